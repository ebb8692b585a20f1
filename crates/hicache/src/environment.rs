//! Options from environment variables, `HICACHE_<SCHEME>_<OPTION>`.

use crate::{Error, ErrorKind, Result, Source, StoreOptions, StoreRegistry, names};
use std::ffi::OsString;
use std::fmt;

const PREFIX: &str = "HICACHE_";
/// How the names of the tests' own variables go on.
const OF_TESTS: &str = "TEST_";

/// The variables `HICACHE_<SCHEME>_<OPTION>`, as in `HICACHE_FILE_DIRECT=false`, in upper case. A store reads those
/// of its own scheme. One that is of no store of this build, or of no option of its store, is refused whatever is
/// opened; only `HICACHE_TEST_*` is left to the tests.
#[derive(Clone, Default)]
pub struct Environment(Vec<(String, OsString)>);

impl Environment {
    /// Of this process, now.
    pub fn of_process() -> Self {
        std::env::vars_os().collect()
    }

    /// Refuses a variable that no store of `registry` reads.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] with the variable, and the one that is nearest.
    pub(crate) fn check(&self, registry: &StoreRegistry) -> Result<()> {
        for (name, _) in &self.0 {
            let ours = name.strip_prefix(PREFIX).unwrap_or(name);
            if ours.starts_with(OF_TESTS) {
                continue;
            }
            let read = registry.factories().find_map(|factory| {
                let option = ours.strip_prefix(&factory.scheme.to_ascii_uppercase())?.strip_prefix('_')?;
                Some((factory, option.to_ascii_lowercase()))
            });
            let Some((factory, option)) = read else { return Err(unknown(name, ours, registry)) };
            names::check(factory, Source::Env(name.clone()), &option)?;
        }
        Ok(())
    }

    /// Sets what the variables of `scheme` say.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for a value that is not UTF-8.
    pub(crate) fn set(&self, scheme: &str, options: &mut StoreOptions) -> Result<()> {
        let prefix = format!("{PREFIX}{}_", scheme.to_ascii_uppercase());
        for (name, value) in &self.0 {
            let Some(option) = name.strip_prefix(&prefix) else { continue };
            let value = value.to_str().ok_or_else(|| {
                Error::new(ErrorKind::InvalidConfig, "read environment")
                    .why("the variable's value is not UTF-8")
                    .with("variable", name)
            })?;
            options.set(Source::Env(name.clone()), option.to_ascii_lowercase(), value);
        }
        Ok(())
    }
}

impl FromIterator<(OsString, OsString)> for Environment {
    fn from_iter<I: IntoIterator<Item = (OsString, OsString)>>(variables: I) -> Self {
        // A name that is not UTF-8 is none that a store reads, and is refused like those.
        let named = |(name, value): (OsString, OsString)| (name.to_string_lossy().into_owned(), value);
        let mut ours: Vec<_> = variables.into_iter().map(named).collect();
        ours.retain(|(name, _)| name.starts_with(PREFIX));
        ours.sort();
        Self(ours)
    }
}

fn unknown(name: &str, ours: &str, registry: &StoreRegistry) -> Error {
    let all = registry.factories().flat_map(|factory| {
        names::options(factory).map(|spec| {
            let option = spec.name.to_ascii_uppercase();
            let known = format!("{}_{option}", factory.scheme.to_ascii_uppercase());
            // The store may be what was left out.
            let likeness = strsim::jaro_winkler(ours, &known).max(strsim::jaro_winkler(ours, &option));
            (likeness, known)
        })
    });
    let fix = match names::nearest(all) {
        Some(near) => format!("did you mean {PREFIX}{near}?"),
        None => {
            let schemes: Vec<_> = registry.factories().map(|factory| factory.scheme).collect();
            format!(
                "{PREFIX}<STORE>_<OPTION> sets an option, with a STORE of {}; which store, its URL says",
                schemes.join(", ").to_ascii_uppercase()
            )
        }
    };
    Error::new(ErrorKind::InvalidConfig, "read environment")
        .why("no store reads this variable")
        .with("variable", name)
        .fix(fix)
}

/// Names only: a value may be a secret.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}
