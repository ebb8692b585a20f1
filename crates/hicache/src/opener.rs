//! From a URL, and what the environment, a configuration file and flags say, to a store.

use crate::{
    AllocatorType, COMMON_OPTIONS, CommonOptions, ConfigFile, EffectiveOption, Environment, Error, ErrorKind,
    Machine, MemoryStore, OptionSpec, Result, Source, Store, StoreFactory, StoreOptions, StoreRegistry,
    get_allocator_type,
};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::fmt;
use std::sync::Arc;

/// The part of the available memory that `memory:` holds at most, unless its capacity is set.
const MEMORY_PART: u64 = 4;

/// The kind of store that SGLang's variables for directories are for.
const FILE: &str = "file";

/// Kinds of store, and the feature that has each.
const FEATURES: [(&str, &str); 3] = [(FILE, "file"), ("s3", "obj"), ("tier", "tier")];

/// What a path in a URL does not hold as it is.
const IN_URL: &AsciiSet = &CONTROLS.add(b'%').add(b'?').add(b'&').add(b'=');

/// Everything besides the URL that says how a store is opened. Precedence, strongest first: flags, the URL's own
/// query, the environment, the configuration file, defaults.
#[derive(Clone)]
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

/// One of the stores that a store is made of.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TierPlace {
    /// The whole's option that names it.
    pub name: &'static str,
    /// Its URL. It may hold secrets.
    pub url: String,
    /// Every option that it would be opened with, each with its source.
    pub options: StoreOptions,
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
        let options = self.beside(factory.scheme)?;
        for (place, fix) in self.passed_over() {
            tracing::info!(
                place,
                fix,
                "an option of a kind of store that this build leaves out is passed over"
            );
        }
        self.registry.open_with(url, options, &|scheme| self.beside_tier(scheme))
    }

    /// The store that is meant where no URL is given: that of the configuration file, else one of the kind that
    /// stands for SGLang's plugin, which the file or the environment selects: `s3:` with the bucket that the plugin's
    /// section names, else that of [`Environment::bucket`], or a file store in the directories of
    /// [`Environment::storage_dirs`]. `None`: nothing names one.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) for variables that name no directories, no plugin that a
    /// store stands for, or no bucket.
    pub fn url(&self) -> Result<Option<String>> {
        let config = self.config.as_ref();
        if let Some(url) = config.and_then(ConfigFile::backend) {
            return Ok(Some(url.to_owned()));
        }
        // SGLang, too, asks its variable only where the file selects no plugin.
        let plugin = match config.and_then(ConfigFile::plugin_scheme) {
            Some(scheme) => Some(scheme),
            None => self.environment.plugin_scheme()?,
        };
        match plugin {
            None | Some(FILE) => self.url_of_dirs(),
            Some(scheme) => self.url_of_bucket(scheme).map(Some),
        }
    }

    fn url_of_bucket(&self, scheme: &str) -> Result<String> {
        let said = self.config.as_ref().and_then(ConfigFile::bucket);
        match said.map_or_else(|| self.environment.bucket(), |bucket| Ok(Some(bucket)))? {
            Some(bucket) => Ok(format!("{scheme}://{}", utf8_percent_encode(bucket, IN_URL))),
            None => Err(Error::new(ErrorKind::InvalidConfig, "find store")
                .why("SGLang's plugin says which kind of store, and nothing says which")
                .with("scheme", scheme)
                .fix(format_args!(
                    "set bucket beside active, or AWS_DEFAULT_BUCKET, or name the store as in {scheme}://BUCKET"
                ))),
        }
    }

    fn url_of_dirs(&self) -> Result<Option<String>> {
        let dirs = self.environment.storage_dirs()?;
        let mut dirs = dirs.iter().map(|dir| utf8_percent_encode(dir, IN_URL));
        let Some(first) = dirs.next() else { return Ok(None) };
        let more =
            dirs.enumerate().map(|(index, dir)| format!("{}dir={dir}", if index == 0 { '?' } else { '&' }));
        Ok(Some(format!("{FILE}:{first}{}", more.collect::<String>())))
    }

    /// Every option that the store at `url` would be opened with, each with its source.
    ///
    /// # Errors
    ///
    /// As [`Opener::check`], but for the options' values.
    pub fn options(&self, url: &str) -> Result<StoreOptions> {
        let (factory, _) = self.registry.factory(url)?;
        self.registry.options(url, self.beside(factory.scheme)?)
    }

    /// Where the store at `url` is, as its kind names places, if it is of the kind `scheme`.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) for a malformed URL or an unknown kind.
    pub fn location(&self, scheme: &str, url: &str) -> Result<Option<String>> {
        let (factory, _) = self.registry.factory(url)?;
        if factory.scheme == scheme { self.registry.location(url).map(Some) } else { Ok(None) }
    }

    /// Checks every option that the store at `url` would be opened with, its location and its tiers, and touches
    /// nothing. Of a URL that names a kind of store and nothing else, as `s3:` does, only the options.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) as [`Opener::open`] would have it.
    pub fn check(&self, url: &str) -> Result<()> {
        let (factory, rest) = self.registry.factory(url)?;
        if !rest.is_empty() {
            return self.check_place(url);
        }
        let options = self.beside(factory.scheme)?;
        self.registry.check_options_with(url, options, &|scheme| self.beside_tier(scheme))
    }

    /// As [`Opener::check`], also of a URL that names a kind of store and nothing else: whether it would be opened, as
    /// far as can be told without touching anything.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) as [`Opener::open`] would have it.
    pub fn check_place(&self, url: &str) -> Result<()> {
        let (factory, _) = self.registry.factory(url)?;
        self.registry.check_with(url, self.beside(factory.scheme)?, &|scheme| self.beside_tier(scheme))
    }

    /// What the environment and the configuration file say of kinds of store that this build leaves out: its place, and
    /// what mends that it is passed over. [`Opener::open`] logs it.
    pub fn passed_over(&self) -> Vec<(String, String)> {
        let of_file = self.config.iter().flat_map(|config| config.passed_over(&self.registry));
        self.environment.passed_over(&self.registry).chain(of_file).collect()
    }

    /// Checks the configuration file for itself: its keys, and every option in it, for each kind of store of this build
    /// that it has a section for and for the one that it names. Where it names none, there must be a kind of store that
    /// takes all the options at top level.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) with the place in the file: the first of
    /// [`Opener::config_errors`].
    pub fn check_config(&self) -> Result<()> {
        let Some(config) = &self.config else { return Ok(()) };
        let alone = Self { environment: Environment::default(), flags: Vec::new(), ..self.clone() };
        config.check(&self.registry)?;
        if let Some(url) = config.backend() {
            alone.check_place(url)?;
        }
        if let Some(scheme) = config.plugin_scheme() {
            // As `backend` does, it says which store is meant.
            self.registry.factory(&format!("{scheme}:"))?;
        }
        for scheme in config.schemes() {
            match (scheme, config.backend()) {
                (Some(scheme), _) if self.registry.left_out().any(|(absent, _)| absent == scheme) => (),
                (Some(scheme), _) => alone.check(&format!("{scheme}:"))?,
                (None, None) => alone.check_any()?,
                (None, Some(_)) => (),
            }
        }
        Ok(())
    }

    /// Checks that there is a kind of store that takes all options. If not, a value that its option does not take is
    /// told rather than an option of another store.
    fn check_any(&self) -> Result<()> {
        let check = |factory: &StoreFactory| self.check(&format!("{}:", factory.scheme));
        let mut refused = Vec::new();
        for factory in self.registry.factories() {
            match check(factory) {
                Ok(()) => return Ok(()),
                Err(error) => refused.push(error),
            }
        }
        let at = refused.iter().position(|error| error.fact("value").is_some()).unwrap_or(0);
        if refused.is_empty() { Ok(()) } else { Err(refused.swap_remove(at)) }
    }

    /// What holds for each option of the store at `url`, and then of each of its tiers, and which source says so.
    ///
    /// # Errors
    ///
    /// As [`Opener::check`].
    pub fn effective(&self, url: &str) -> Result<Vec<EffectiveOption>> {
        self.check(url)?;
        let (factory, _) = self.registry.factory(url)?;
        let mut all = self.effective_of(None, &self.options(url)?, factory);
        for tier in self.tiers(url)? {
            let (factory, _) = self.registry.factory(&tier.url)?;
            all.extend(self.effective_of(Some(tier.name), &tier.options, factory));
        }
        Ok(all)
    }

    fn effective_of(
        &self,
        tier: Option<&'static str>,
        options: &StoreOptions,
        factory: &StoreFactory,
    ) -> Vec<EffectiveOption> {
        let specs = factory.options.iter().chain(COMMON_OPTIONS);
        specs.map(|spec| EffectiveOption::of(&self.registry, factory, tier, *spec, options)).collect()
    }

    /// The stores that the one at `url` is made of; none where it is not made of others.
    ///
    /// # Errors
    ///
    /// As [`Opener::check`], but for the options' values.
    pub fn tiers(&self, url: &str) -> Result<Vec<TierPlace>> {
        let (factory, _) = self.registry.factory(url)?;
        let beside = |scheme: &str| self.beside_tier(scheme);
        let tiers = self.registry.tiers_with(url, self.beside(factory.scheme)?, &beside)?;
        let tier = |(spec, url, options): (&OptionSpec, String, StoreOptions)| {
            let options = self.registry.options(&url, options)?;
            Ok(TierPlace { name: spec.name, url, options })
        };
        tiers.into_iter().map(tier).collect()
    }

    /// Which memory host pools for the store at `url` are made of.
    ///
    /// # Errors
    ///
    /// As [`Opener::options`], and for a value that the option does not have.
    pub fn allocator_type(&self, url: &str) -> Result<AllocatorType> {
        get_allocator_type(&self.options(url)?)
    }

    /// The values of the options that every store has, for the store that `url` names: for memory of the
    /// program's own that goes with it. Of what is wrong with the values of other options, [`Opener::check`] tells.
    ///
    /// # Errors
    ///
    /// As [`Opener::options`], and for a value that is malformed, naming the source that set it.
    pub fn common(&self, url: &str) -> Result<CommonOptions> {
        CommonOptions::take(&mut self.options(url)?)
    }

    /// Refuses what no store reads, of whichever store it is meant to be: a section or an option of the configuration
    /// file, a variable of the environment. What is for a kind of store that this build leaves out is passed over.
    /// [`Opener::open`] does so first.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](crate::ErrorKind::InvalidConfig) naming it, and the name that is nearest.
    pub fn check_names(&self) -> Result<()> {
        self.environment.check(&self.registry)?;
        self.config.as_ref().map_or(Ok(()), |config| config.check(&self.registry))
    }

    /// What all sources but the URL say for stores of `scheme`.
    fn beside(&self, scheme: &str) -> Result<StoreOptions> {
        let mut options = self.beside_tier(scheme)?;
        for (name, value) in &self.flags {
            options.set(Source::Flag, name, value);
        }
        Ok(options)
    }

    /// As [`Opener::beside`], of a store that another is made of: flags are the other's.
    fn beside_tier(&self, scheme: &str) -> Result<StoreOptions> {
        self.check_names()?;
        let mut options = StoreOptions::default();
        options.set_scheme(scheme).set_existing(self.existing);
        if scheme == MemoryStore::FACTORY.scheme
            && let Some(available) = memory_available()
        {
            options.set(Source::Default, "capacity", (available / MEMORY_PART).to_string());
        }
        if let Some(config) = &self.config {
            config.set(scheme, &mut options);
        }
        self.environment.set(scheme, &mut options)?;
        Ok(options)
    }
}

/// Names only: a value may be a secret.
impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags: Vec<_> = self.flags.iter().map(|(name, _)| name).collect();
        f.debug_struct("Opener")
            .field("registry", &self.registry)
            .field("config", &self.config)
            .field("environment", &self.environment)
            .field("flags", &flags)
            .field("existing", &self.existing)
            .finish()
    }
}

/// The kinds of store of this build: `memory:`, `file:` with the feature `file`, `s3:` with `obj`, `tier:` with `tier`.
pub fn registry() -> StoreRegistry {
    let mut registry = StoreRegistry::default();
    registry.register(MemoryStore::FACTORY);
    #[cfg(feature = "file")]
    registry.register(crate::file::FileStore::FACTORY);
    #[cfg(feature = "obj")]
    registry.register(crate::obj::ObjStore::FACTORY);
    #[cfg(feature = "tier")]
    registry.register(crate::tier::TierStore::FACTORY);
    for (scheme, feature) in FEATURES {
        registry.leave_out(scheme, feature);
    }
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

/// Bytes of memory that this process could still take without swapping: of this machine, or less where a cgroup, and
/// so the container that it is in, allows less. `None` where the kernel does not say.
pub fn memory_available() -> Option<u64> {
    Machine::default().available_memory()
}

#[cfg(test)]
mod tests;
