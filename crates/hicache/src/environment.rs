//! Options from environment variables: `HICACHE_<SCHEME>_<OPTION>`, and SGLang's own where they mean the same.

use crate::{Error, ErrorKind, Result, Source, StoreOptions};
use std::ffi::OsString;
use std::fmt;

const PREFIX: &str = "HICACHE_";
/// SGLang's variables that are read: the names that its documentation has.
const DIRECT_IO: &str = "SGLANG_HICACHE_NIXL_USE_DIRECT_IO";
const HUGE_PAGE_SIZE: &str = "SGLANG_HUGEPAGE_SIZE";
const DIRS: &str = "SGLANG_HICACHE_NIXL_BACKEND_STORAGE_DIR";
const DIR: &str = "SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR";
const SGLANG: [&str; 4] = [DIRECT_IO, HUGE_PAGE_SIZE, DIRS, DIR];

/// The variables `HICACHE_<SCHEME>_<OPTION>`, as in `HICACHE_FILE_DIRECT=false`, in upper case. A store reads those
/// of its own scheme, and refuses one whose option it does not have. `HICACHE_TEST_*` is the tests'.
///
/// Of SGLang's variables, these are read, too, where they are set and not empty:
///
/// | variable | option |
/// | --- | --- |
/// | `SGLANG_HICACHE_NIXL_USE_DIRECT_IO` | `direct` of file stores; `y` and `n` are booleans there |
/// | `SGLANG_HUGEPAGE_SIZE` (`2MB`, `1GB`) | `huge_pages=prefer:SIZE` |
/// | `SGLANG_HICACHE_NIXL_BACKEND_STORAGE_DIR` | directories of a file store, parted by commas |
/// | `SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR` | likewise, one directory |
///
/// The directories are those of a file store where nothing else names a store ([`Opener::url`](crate::Opener::url)).
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

    fn text(&self, name: &str) -> Result<Option<&str>> {
        let Some((_, value)) = self.0.iter().find(|(held, _)| held == name) else { return Ok(None) };
        value.to_str().map(Some).ok_or_else(|| refused(name, "the variable's value is not UTF-8"))
    }

    /// A value without its margins; an empty one is as good as none, as SGLang has it.
    fn filled(&self, name: &str) -> Result<Option<&str>> {
        Ok(self.text(name)?.map(str::trim).filter(|value| !value.is_empty()))
    }
}

fn refused(name: &str, why: &'static str) -> Error {
    Error::new(ErrorKind::InvalidConfig, "read environment").why(why).with("variable", name)
}

impl FromIterator<(OsString, OsString)> for Environment {
    fn from_iter<I: IntoIterator<Item = (OsString, OsString)>>(variables: I) -> Self {
        let is_ours = |name: &String| name.starts_with(PREFIX) || SGLANG.contains(&name.as_str());
        let ours =
            |(name, value): (OsString, OsString)| Some((name.into_string().ok().filter(is_ours)?, value));
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
