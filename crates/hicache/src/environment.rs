//! Options from environment variables: `HICACHE_<SCHEME>_<OPTION>`, and SGLang's own where they mean the same.

use crate::{Error, ErrorKind, Result, Source, StoreOptions, StoreRegistry, extra_config, names};
use std::ffi::OsString;
use std::fmt;

const PREFIX: &str = "HICACHE_";
/// How the names of the tests' own variables go on.
const OF_TESTS: &str = "TEST_";
/// SGLang's variables that are read: the names that its documentation has.
const DIRECT_IO: &str = "SGLANG_HICACHE_NIXL_USE_DIRECT_IO";
const HUGE_PAGE_SIZE: &str = "SGLANG_HUGEPAGE_SIZE";
const DIRS: &str = "SGLANG_HICACHE_NIXL_BACKEND_STORAGE_DIR";
const DIR: &str = "SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR";
const PLUGIN: &str = "SGLANG_HICACHE_NIXL_BACKEND_PLUGIN";
const BUCKET: &str = "AWS_DEFAULT_BUCKET";
/// The SDK's variables of S3 that are read, with their option; of two for one option the first goes.
const AWS: [(&str, &str); 5] = [
    ("AWS_REGION", "region"),
    ("AWS_DEFAULT_REGION", "region"),
    ("AWS_ENDPOINT_URL_S3", "endpoint"),
    ("AWS_ENDPOINT_URL", "endpoint"),
    ("AWS_CA_BUNDLE", "ca_bundle"),
];
const SGLANG: [&str; 6] = [DIRECT_IO, HUGE_PAGE_SIZE, DIRS, DIR, PLUGIN, BUCKET];
/// The plugin that stands for whichever SGLang finds.
const AUTO: &str = "auto";

/// The variables `HICACHE_<SCHEME>_<OPTION>`, as in `HICACHE_FILE_DIRECT=false`, in upper case. A store reads those
/// of its own scheme. One that is of no kind of store, or of no option of its store, is refused whatever is opened;
/// those of a kind of store that this build leaves out are passed over
/// ([`Opener::passed_over`](crate::Opener::passed_over)), since builds may share an environment, and `HICACHE_TEST_*`
/// is left to the tests.
///
/// Of SGLang's variables, these are read, too, where they are set and not empty:
///
/// | variable | option |
/// | --- | --- |
/// | `SGLANG_HICACHE_NIXL_USE_DIRECT_IO` | `direct` of file stores; `y` and `n` are booleans there |
/// | `SGLANG_HUGEPAGE_SIZE` (`2MB`, `1GB`) | `huge_pages=prefer:SIZE` |
/// | `SGLANG_HICACHE_NIXL_BACKEND_STORAGE_DIR` | directories of a file store, parted by commas |
/// | `SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR` | likewise, one directory |
/// | `SGLANG_HICACHE_NIXL_BACKEND_PLUGIN` (`POSIX`, `OBJ`, `auto`) | which kind of store: `file:`, `s3:`, `file:` |
/// | `AWS_DEFAULT_BUCKET` | the bucket, where that is `s3:` |
///
/// The last four say which store is meant where nothing else names one ([`Opener::url`](crate::Opener::url)).
///
/// Of the AWS SDKs' variables, an S3 store reads `AWS_REGION` (else `AWS_DEFAULT_REGION`), `AWS_ENDPOINT_URL_S3` (else
/// `AWS_ENDPOINT_URL`) and `AWS_CA_BUNDLE` as `region`, `endpoint` and `ca_bundle`, where no variable of ours sets
/// these; and those of credentials, as its option `credentials` says.
#[derive(Clone, Default)]
pub struct Environment(Vec<(String, OsString)>);

impl Environment {
    /// Of this process, now.
    pub fn of_process() -> Self {
        std::env::vars_os().collect()
    }

    /// Refuses a variable that no store of `registry` reads, but for those of kinds of store that it leaves out.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] with the variable, and the one that is nearest.
    pub(crate) fn check(&self, registry: &StoreRegistry) -> Result<()> {
        for (name, _) in &self.0 {
            let ours = name.strip_prefix(PREFIX).filter(|ours| !ours.starts_with(OF_TESTS));
            let Some(ours) = ours.filter(|ours| left_out(ours, registry).is_none()) else { continue };
            let read = registry.factories().find_map(|factory| {
                let option = ours.strip_prefix(&factory.scheme.to_ascii_uppercase())?.strip_prefix('_')?;
                Some((factory, option.to_ascii_lowercase()))
            });
            let Some((factory, option)) = read else { return Err(unknown(name, ours, registry)) };
            names::check(&[factory], Source::Env(name.clone()), &option)?;
        }
        Ok(())
    }

    /// The variables of kinds of store that `registry` leaves out, each with what mends that.
    pub(crate) fn passed_over(&self, registry: &StoreRegistry) -> impl Iterator<Item = (String, String)> {
        let ours = self.0.iter().filter_map(|(name, _)| Some((name, name.strip_prefix(PREFIX)?)));
        ours.filter_map(|(name, ours)| Some((name.clone(), left_out(ours, registry)?)))
    }

    /// Sets what the variables of `scheme` say.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for a value that is not UTF-8, or none that SGLang's variable takes.
    pub(crate) fn set(&self, scheme: &str, options: &mut StoreOptions) -> Result<()> {
        let prefix = format!("{PREFIX}{}_", scheme.to_ascii_uppercase());
        for (name, _) in &self.0 {
            let Some(option) = name.strip_prefix(&prefix) else { continue };
            let value = self.text(name)?.unwrap_or_default();
            options.set(Source::Env(name.clone()), option.to_ascii_lowercase(), value);
        }
        if scheme == "file"
            && let Some(value) = self.filled(DIRECT_IO)?
        {
            let value = match value.to_ascii_lowercase().as_str() {
                "y" => "yes",
                "n" => "no",
                _ => value,
            };
            options.set(Source::Env(DIRECT_IO.to_owned()), "direct", value);
        }
        if scheme == "s3" {
            self.set_aws(options)?;
        }
        if let Some(value) = self.filled(HUGE_PAGE_SIZE)? {
            let size = match value.to_ascii_uppercase().as_str() {
                "2MB" => "prefer:2MiB",
                "1GB" => "prefer:1GiB",
                _ => {
                    return Err(
                        refused(HUGE_PAGE_SIZE, "want 2MB or 1GB").with("value", format_args!("{value:?}"))
                    );
                }
            };
            options.set(Source::Env(HUGE_PAGE_SIZE.to_owned()), "huge_pages", size);
        }
        Ok(())
    }

    /// What the SDK's variables say, where no variable of ours says it.
    fn set_aws(&self, options: &mut StoreOptions) -> Result<()> {
        let mut said: Vec<&str> = Vec::new();
        for (name, option) in AWS {
            let ours = format!("{PREFIX}S3_{}", option.to_ascii_uppercase());
            if said.contains(&option) || self.0.iter().any(|(held, _)| *held == ours) {
                continue;
            }
            if let Some(value) = self.filled(name)? {
                options.set(Source::Env(name.to_owned()), option, value);
                said.push(option);
            }
        }
        Ok(())
    }

    /// The directories that SGLang's variables name, in their order; none where neither is set.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for a value that is not UTF-8, an empty place in the list, and two variables
    /// that differ.
    pub fn storage_dirs(&self) -> Result<Vec<String>> {
        let list =
            self.filled(DIRS)?.map(|value| value.split(',').map(|dir| dir.trim().to_owned()).collect());
        let one = self.filled(DIR)?.map(|value| vec![value.to_owned()]);
        let dirs: Vec<String> = match (list, one) {
            (Some(list), Some(one)) if list != one => {
                return Err(
                    refused(DIRS, "it names other directories than the variable for one").with("other", DIR)
                );
            }
            (list, one) => list.or(one).unwrap_or_default(),
        };
        if dirs.iter().any(String::is_empty) {
            return Err(refused(DIRS, "a place in the list is empty"));
        }
        Ok(dirs)
    }

    /// The kind of store that SGLang's variable for the plugin means; `None` where it is not set, or `auto`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for a plugin that no store stands for, and for a value that is not UTF-8.
    pub fn plugin_scheme(&self) -> Result<Option<&'static str>> {
        match self.filled(PLUGIN)?.filter(|plugin| !plugin.eq_ignore_ascii_case(AUTO)) {
            Some(plugin) => extra_config::scheme_of(plugin).map(Some).map_err(|why| refused(PLUGIN, why)),
            None => Ok(None),
        }
    }

    /// The bucket that `AWS_DEFAULT_BUCKET` names.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for a value that is not UTF-8.
    pub fn bucket(&self) -> Result<Option<&str>> {
        self.filled(BUCKET)
    }

    fn text(&self, name: &str) -> Result<Option<&str>> {
        let Some((_, value)) = self.0.iter().find(|(held, _)| held == name) else { return Ok(None) };
        value.to_str().map(Some).ok_or_else(|| refused(name, "the variable's value is not UTF-8"))
    }

    /// A value without its margins; an empty one is as good as none, as SGLang has it.
    fn filled(&self, name: &str) -> Result<Option<&str>> {
        Ok(self.text(name)?.map(str::trim).filter(|value| !value.is_empty()))
    }
}

fn refused(name: &str, why: impl fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidConfig, "read environment").why(why).with("variable", name)
}

impl FromIterator<(OsString, OsString)> for Environment {
    fn from_iter<I: IntoIterator<Item = (OsString, OsString)>>(variables: I) -> Self {
        // A name that is not UTF-8 is none that a store reads, and is refused like those.
        let named = |(name, value): (OsString, OsString)| (name.to_string_lossy().into_owned(), value);
        let mut ours: Vec<_> = variables.into_iter().map(named).collect();
        let of_aws = |name: &str| AWS.iter().any(|(known, _)| *known == name);
        ours.retain(|(name, _)| name.starts_with(PREFIX) || SGLANG.contains(&name.as_str()) || of_aws(name));
        ours.sort();
        Self(ours)
    }
}

/// What mends that a variable is for a kind of store which `registry` leaves out, if it is. `ours` is what follows the
/// prefix.
fn left_out(ours: &str, registry: &StoreRegistry) -> Option<String> {
    let is_of = |scheme: &str| {
        ours.strip_prefix(&scheme.to_ascii_uppercase()).is_some_and(|option| option.starts_with('_'))
    };
    let (scheme, feature) = registry.left_out().find(|(scheme, _)| is_of(scheme))?;
    Some(names::in_builds_with(scheme, feature))
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
