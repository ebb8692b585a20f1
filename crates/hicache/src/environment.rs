//! Options from environment variables, `HICACHE_<SCHEME>_<OPTION>`.

use crate::{Error, ErrorKind, Result, Source, StoreOptions};
use std::ffi::OsString;
use std::fmt;

const PREFIX: &str = "HICACHE_";

/// The variables `HICACHE_<SCHEME>_<OPTION>`, as in `HICACHE_FILE_DIRECT=false`, in upper case. A store reads those
/// of its own scheme, and refuses one whose option it does not have. `HICACHE_TEST_*` is the tests'.
#[derive(Clone, Default)]
pub struct Environment(Vec<(String, OsString)>);

impl Environment {
    /// Of this process, now.
    pub fn of_process() -> Self {
        std::env::vars_os().collect()
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
        let ours = |(name, value): (OsString, OsString)| {
            Some((name.into_string().ok().filter(|name| name.starts_with(PREFIX))?, value))
        };
        let mut ours: Vec<_> = variables.into_iter().filter_map(ours).collect();
        ours.sort();
        Self(ours)
    }
}

/// Names only: a value may be a secret.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}
