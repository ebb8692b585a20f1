//! From a URL, and what the environment, a configuration file and flags say, to a store.

use crate::{
    CommonOptions, ConfigFile, Environment, Error, ErrorKind, MemoryStore, Result, Source, Store,
    StoreOptions, StoreRegistry,
};
use percent_encoding::percent_decode_str;
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

    /// The values of the options that every store has, for the store that `url` names: for memory of the
    /// program's own that goes with it. Looks at nothing else; what is wrong with other options, [`Opener::open`] says.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) for an unknown scheme, and for a value that is malformed,
    /// naming the source that set it.
    pub fn common(&self, url: &str) -> Result<CommonOptions> {
        let (factory, rest) = self.registry.factory(url)?;
        let mut options = self.options(factory.scheme)?;
        let (_, query) = rest.split_once('?').unwrap_or((rest, ""));
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            options.set(Source::Url, decode(name)?, decode(value)?);
        }
        CommonOptions::take(&mut options)
    }

    /// Refuses what no store reads, of whichever store it is meant to be: a section or an option of the configuration
    /// file, a variable of the environment. [`Opener::open`] does so first.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) naming it, and the name that is nearest.
    pub fn check(&self) -> Result<()> {
        self.environment.check(&self.registry)?;
        self.config.as_ref().map_or(Ok(()), |config| config.check(&self.registry))
    }

    /// What all sources but the URL say for stores of `scheme`.
    fn options(&self, scheme: &str) -> Result<StoreOptions> {
        self.check()?;
        let mut options = StoreOptions::default();
        options.set_existing(self.existing);
        if scheme == MemoryStore::FACTORY.scheme
            && let Some(available) = memory_available()
        {
            options.set(Source::Default, "capacity", (available / MEMORY_PART).to_string());
        }
        if let Some(config) = &self.config {
            config.set(scheme, &mut options);
        }
        self.environment.set(scheme, &mut options)?;
        for (name, value) in &self.flags {
            options.set(Source::Flag, name, value);
        }
        Ok(options)
    }
}

fn decode(text: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| {
        Error::new(ErrorKind::InvalidConfig, "open store")
            .why("the URL does not decode to UTF-8")
            .with("text", text)
    })?;
    Ok(decoded.into_owned())
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
#[doc = include_str!("options.md")]
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
    use crate::{COMMON_OPTIONS, HugePageSize, HugePages};

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
    fn a_variable_is_checked_by_name_also_where_another_store_is_opened() {
        let open = |name: &str| {
            let mut registry = registry();
            let other = crate::StoreFactory { scheme: "other", ..MemoryStore::FACTORY };
            registry.register(other);
            let opener = Opener { registry, environment: environment(name, "much"), ..Opener::default() };
            opener.open("memory:").map(|_| ()).map_err(|error| error.to_string())
        };
        open("HICACHE_OTHER_CAPACITY").unwrap();
        open("HICACHE_TEST_CAPCITY").unwrap();
        for (name, wanted) in [
            ("HICACHE_OTHER_CAPCITY", "did you mean capacity?"),
            ("HICACHE_OTHR_CAPACITY", "did you mean HICACHE_OTHER_CAPACITY?"),
            ("HICACHE_OTHER", "did you mean HICACHE_OTHER_"),
            ("HICACHE_X", "with a STORE of "),
        ] {
            let error = open(name).unwrap_err();
            assert!(error.contains(name) && error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn every_option_of_every_store_is_settable_from_the_environment() {
        for factory in registry().factories() {
            for spec in factory.options.iter().chain(COMMON_OPTIONS) {
                let name = format!("HICACHE_{}_{}", factory.scheme, spec.name).to_ascii_uppercase();
                let opener = Opener { environment: environment(&name, ""), ..Opener::default() };
                let place = if factory.scheme == "memory" { "" } else { "unused" };
                let error = opener.open(&format!("{}:{place}", factory.scheme)).unwrap_err();
                assert!(error.to_string().contains(&name), "{error}");
                assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{name}");
            }
        }
    }

    #[test]
    fn the_common_options_of_a_url_are_those_of_its_strongest_source() {
        let huge_pages = |opener: &Opener, url: &str| opener.common(url).unwrap().huge_pages;
        let mut opener = Opener::default();
        assert_eq!(huge_pages(&opener, "memory:?capacity=1"), HugePages::Prefer(HugePageSize::Size2M));
        opener.config = config("[memory]\nhuge_pages = 'off'");
        assert_eq!(huge_pages(&opener, "memory:"), HugePages::Off);
        opener.environment = environment("HICACHE_MEMORY_HUGE_PAGES", "require");
        assert_eq!(huge_pages(&opener, "memory:"), HugePages::Require(HugePageSize::Size2M));
        let url = "memory:?huge_pages=prefer%3A1GiB";
        assert_eq!(huge_pages(&opener, url), HugePages::Prefer(HugePageSize::Size1G));
        opener.flags = vec![("huge_pages".to_owned(), "off".to_owned())];
        assert_eq!(huge_pages(&opener, url), HugePages::Off);
        // Of another store, it goes for that one only.
        opener.flags.clear();
        #[cfg(feature = "file")]
        {
            opener.environment = environment("HICACHE_FILE_HUGE_PAGES", "require");
            assert_eq!(huge_pages(&opener, "memory:"), HugePages::Off);
        }

        let error = Opener::default().common("memory:?huge_pages=some").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(Opener::default().common("memry:").is_err());
    }

    #[cfg(feature = "file")]
    #[test]
    fn every_option_is_in_the_documentation_of_open_and_in_the_readme_and_no_other() {
        let all = registry();
        let specs = all.factories().flat_map(|factory| factory.options).chain(COMMON_OPTIONS);
        let mut names: Vec<_> = specs.map(|spec| spec.name).collect();
        let row = |line: &'static str| Some(line.strip_prefix("| `")?.split_once('`')?.0);
        let mut documented: Vec<_> = include_str!("options.md").lines().filter_map(row).collect();
        names.sort_unstable();
        documented.sort_unstable();
        assert_eq!(documented, names);
        let readme = include_str!("../../../README.md");
        let missing: Vec<_> = names.iter().filter(|name| !readme.contains(&format!("`{name}`"))).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
