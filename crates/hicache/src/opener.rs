//! From a URL, and what the environment, a configuration file and flags say, to a store.

use crate::{ConfigFile, Environment, MemoryStore, Result, Source, Store, StoreOptions, StoreRegistry};
use std::sync::Arc;

/// The part of the available memory that `memory:` holds at most, unless its capacity is set.
const MEMORY_PART: u64 = 4;

/// Everything besides the URL that says how a store is opened. Precedence, strongest first: flags, the URL's own
/// query, the environment, the configuration file, defaults.
#[derive(Clone, Debug)]
pub struct Opener {
    /// The kinds of store there are.
    pub registry: StoreRegistry,
    /// What a configuration file says.
    pub config: Option<ConfigFile>,
    /// What the environment says.
    pub environment: Environment,
    /// Options that the program or its user sets: name and value.
    pub flags: Vec<(String, String)>,
    /// Only a store that is there is opened, and no new one made.
    pub existing: bool,
}

/// With every kind of store of this build, and nothing else said.
impl Default for Opener {
    fn default() -> Self {
        Self {
            registry: registry(),
            config: None,
            environment: Environment::default(),
            flags: Vec::new(),
            existing: false,
        }
    }
}

impl Opener {
    /// Opens the store that `url` names.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) for a malformed URL, an unknown scheme, and an option
    /// that is unknown or malformed, naming the source that set it; and what opening the store meets.
    pub fn open(&self, url: &str) -> Result<Arc<dyn Store>> {
        let (factory, _) = self.registry.factory(url)?;
        self.registry.open(url, self.options(factory.scheme)?)
    }

    /// What all sources but the URL say for stores of `scheme`.
    fn options(&self, scheme: &str) -> Result<StoreOptions> {
        let mut options = StoreOptions::default();
        options.set_existing(self.existing);
        if scheme == MemoryStore::FACTORY.scheme
            && let Some(available) = memory_available()
        {
            options.set(Source::Default, "capacity", (available / MEMORY_PART).to_string());
        }
        if let Some(config) = &self.config {
            config.check(self.registry.factories().map(|factory| factory.scheme))?;
            config.set(scheme, &mut options);
        }
        self.environment.set(scheme, &mut options)?;
        for (name, value) in &self.flags {
            options.set(Source::Flag, name, value);
        }
        Ok(options)
    }
}

/// The kinds of store of this build: `memory:`, and `file:` with the feature `file`.
pub fn registry() -> StoreRegistry {
    let mut registry = StoreRegistry::default();
    registry.register(MemoryStore::FACTORY);
    #[cfg(feature = "file")]
    registry.register(crate::file::FileStore::FACTORY);
    registry
}

/// Opens the store that `url` names, with what the environment of this process says ([`Environment`]).
///
/// # Errors
///
/// As [`Opener::open`].
pub fn open(url: &str) -> Result<Arc<dyn Store>> {
    Opener { environment: Environment::of_process(), ..Opener::default() }.open(url)
}

/// Bytes of memory that this machine could still give without swapping; `None` where the kernel does not say.
pub fn memory_available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn environment(name: &str, value: &str) -> Environment {
        [(name.into(), value.into())].into_iter().collect()
    }

    fn config(text: &str) -> Option<ConfigFile> {
        Some(ConfigFile::parse_toml("some.toml", text).unwrap())
    }

    /// What is left of a memory store's capacity, which says what the capacity is.
    fn capacity(opener: &Opener, url: &str) -> u64 {
        opener.open(url).unwrap().health().available_len.unwrap()
    }

    #[test]
    fn flag_beats_url_beats_environment_beats_file_beats_default() {
        let mut opener = Opener::default();
        assert!(capacity(&opener, "memory:") > 100);
        opener.config = config("[memory]\ncapacity = 1");
        assert_eq!(capacity(&opener, "memory:"), 1);
        opener.environment = environment("HICACHE_MEMORY_CAPACITY", "2");
        assert_eq!(capacity(&opener, "memory:"), 2);
        assert_eq!(capacity(&opener, "memory:?capacity=3"), 3);
        opener.flags = vec![("capacity".to_owned(), "4".to_owned())];
        assert_eq!(capacity(&opener, "memory:?capacity=3"), 4);
    }

    #[test]
    fn a_bad_value_names_the_source_that_set_it() {
        let opener =
            Opener { environment: environment("HICACHE_MEMORY_DEADLINE", "soon"), ..Opener::default() };
        let error = opener.open("memory:").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(error.to_string().contains("environment HICACHE_MEMORY_DEADLINE"), "{error}");

        let opener = Opener { config: config("[memory]\nhuge_pages = 'some'"), ..Opener::default() };
        let error = opener.open("memory:").unwrap_err();
        assert!(error.to_string().contains("some.toml: memory.huge_pages"), "{error}");
    }

    #[test]
    fn every_option_of_every_store_is_settable_from_the_environment() {
        for factory in registry().factories() {
            for spec in factory.options.iter().chain(crate::COMMON_OPTIONS) {
                let name = format!("HICACHE_{}_{}", factory.scheme, spec.name).to_ascii_uppercase();
                let opener = Opener { environment: environment(&name, ""), ..Opener::default() };
                let place = if factory.scheme == "memory" { "" } else { "unused" };
                let error = opener.open(&format!("{}:{place}", factory.scheme)).unwrap_err();
                assert!(error.to_string().contains(&name), "{error}");
                assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{name}");
            }
        }
    }
}
