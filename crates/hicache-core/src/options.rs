//! Options of stores: where each value came from, which wins, and that none vanishes.

use crate::allocator::ALLOCATOR;
use crate::{
    AllocatorType, Error, ErrorKind, HugePageSize, HugePages, Lock, Numa, Result, Store, get_allocator_type,
    parse_bool, parse_duration, without_secrets,
};
use memory::{HUGE_PAGES, MLOCK, NUMA};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

mod memory;

/// Where an option was set, weakest first; the derived order is the precedence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The application's own default.
    Default,
    /// A configuration file: its path and the place in it.
    File(String),
    /// An environment variable: its name.
    Env(String),
    /// The query part of the store's URL.
    Url,
    /// A flag of the command, or a call in the program.
    Flag,
}

/// What a store knows about one of its options. Tables of these make documentation and suggestions.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Its name.
    pub name: &'static str,
    /// Other names with the same meaning.
    pub aliases: &'static [&'static str],
    /// The values it takes, for people.
    pub kind: &'static str,
    /// What holds when it is not set, for people.
    pub default: &'static str,
    /// What it does, in a clause.
    pub about: &'static str,
    /// Its value is never printed.
    pub secret: bool,
    /// A value that it does not take is not printed: it may be a secret that stands in the wrong place.
    pub guarded: bool,
}

/// How to open a store, once or, where it is not there, again later.
#[derive(Clone)]
pub struct StoreOpener(Arc<dyn Fn() -> Result<Arc<dyn Store>> + Send + Sync>);

impl StoreOpener {
    /// One that opens a store by `open`.
    pub fn new(open: impl Fn() -> Result<Arc<dyn Store>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(open))
    }

    /// Opens it. Blocks while the store looks at its medium.
    ///
    /// # Errors
    ///
    /// As [`StoreRegistry::open`](crate::StoreRegistry::open).
    pub fn open(&self) -> Result<Arc<dyn Store>> {
        (self.0)()
    }
}

impl fmt::Debug for StoreOpener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreOpener")
    }
}

impl OptionSpec {
    /// One without another name, whose value may be printed.
    pub const fn new(
        name: &'static str,
        kind: &'static str,
        default: &'static str,
        about: &'static str,
    ) -> Self {
        Self { name, aliases: &[], kind, default, about, secret: false, guarded: false }
    }

    /// Whether it has that name, or also has it.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }
}

/// Raw options, each with its source. A store takes those it knows, then ends with [`StoreOptions::finish`].
#[derive(Clone, Default)]
pub struct StoreOptions {
    values: BTreeMap<String, Vec<(Source, String)>>,
    scheme: Option<String>,
    existing: bool,
    stores: BTreeMap<&'static str, StoreOpener>,
}

/// Options that every store has.
pub const COMMON_OPTIONS: &[OptionSpec] = &[ACCEPT_UNVERIFIED, ALLOCATOR, DEADLINE, HUGE_PAGES, MLOCK, NUMA];

const ACCEPT_UNVERIFIED: OptionSpec = OptionSpec {
    name: "accept_unverified",
    aliases: &[],
    kind: "bool",
    default: "false",
    about: "serve pages that carry no check of ours",
    secret: false,
    guarded: false,
};

const DEADLINE: OptionSpec = OptionSpec {
    name: "deadline",
    aliases: &[],
    kind: "duration",
    default: "30s",
    about: "when a batch is given up, where the call does not say",
    secret: false,
    guarded: false,
};

/// The values of [`COMMON_OPTIONS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommonOptions {
    /// Serve pages that carry no check of ours.
    pub accept_unverified: bool,
    /// Memory of host pools.
    pub allocator: AllocatorType,
    /// When a batch is given up, where the call does not say.
    pub deadline: Duration,
    /// Page size of the memory of the store and of its host pools.
    pub huge_pages: HugePages,
    /// Whether that memory is locked.
    pub mlock: Lock,
    /// Which NUMA node that memory lies on.
    pub numa: Numa,
}

impl Default for CommonOptions {
    fn default() -> Self {
        let huge_pages = HugePages::Prefer(HugePageSize::Size2M);
        let (allocator, deadline) = (AllocatorType::default(), Duration::from_secs(30));
        let (mlock, numa) = (Lock::Off, Numa::Any);
        Self { accept_unverified: false, allocator, deadline, huge_pages, mlock, numa }
    }
}

impl CommonOptions {
    /// Takes them out of `options`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] naming the option, its value and its source.
    pub fn take(options: &mut StoreOptions) -> Result<Self> {
        let default = Self::default();
        let allocator = get_allocator_type(options)?;
        options.take(&ALLOCATOR, AllocatorType::parse)?;
        let deadline = options.take(&DEADLINE, |text| {
            parse_duration(text)
                .and_then(|some| if some.is_zero() { Err("it is 0".to_string()) } else { Ok(some) })
        })?;
        Ok(Self {
            accept_unverified: options
                .take(&ACCEPT_UNVERIFIED, parse_bool)?
                .unwrap_or(default.accept_unverified),
            allocator,
            deadline: deadline.unwrap_or(default.deadline),
            huge_pages: options.take(&HUGE_PAGES, memory::parse_huge_pages)?.unwrap_or(default.huge_pages),
            mlock: options.take(&MLOCK, memory::parse_mlock)?.unwrap_or(default.mlock),
            numa: options.take(&NUMA, memory::parse_numa)?.unwrap_or(default.numa),
        })
    }
}

impl StoreOptions {
    /// Sets an option. A repeated option holds all the values of its strongest source.
    pub fn set(&mut self, source: Source, name: impl Into<String>, value: impl Into<String>) -> &mut Self {
        self.values.entry(name.into()).or_default().push((source, value.into()));
        self
    }

    /// Asks for a store that is there: opening fails rather than make a new one.
    pub fn set_existing(&mut self, existing: bool) -> &mut Self {
        self.existing = existing;
        self
    }

    /// Whether only a store that is there may be opened.
    pub fn existing(&self) -> bool {
        self.existing
    }

    /// Says which kind of store the options are for. The registry does.
    pub fn set_scheme(&mut self, scheme: impl Into<String>) -> &mut Self {
        self.scheme = Some(scheme.into());
        self
    }

    /// Hands over how to open the store whose URL is the value of `spec`. The registry does.
    pub fn set_store(&mut self, spec: &OptionSpec, opener: StoreOpener) -> &mut Self {
        self.stores.insert(spec.name, opener);
        self
    }

    /// Takes how to open the store whose URL is the value of `spec`; none where there is no such URL.
    pub fn take_store(&mut self, spec: &OptionSpec) -> Option<StoreOpener> {
        self.stores.remove(spec.name)
    }

    /// Which kind of store the options are for, if anybody said.
    pub fn scheme(&self) -> Option<&str> {
        self.scheme.as_deref()
    }

    /// The values of an option at its strongest source, each with that source; none where it is not set.
    pub fn strongest(&self, spec: &OptionSpec) -> Vec<(&Source, &str)> {
        let names = std::iter::once(spec.name).chain(spec.aliases.iter().copied());
        let all: Vec<_> = names.filter_map(|name| self.values.get(name)).flatten().collect();
        let rank = |source: &Source| std::mem::discriminant(source);
        let Some(strongest) = all.iter().map(|(source, _)| source).max().map(rank) else { return Vec::new() };
        let held = all.into_iter().filter(|(source, _)| rank(source) == strongest);
        held.map(|(source, value)| (source, value.as_str())).collect()
    }

    /// Reads an option that has one value, and leaves it.
    ///
    /// # Errors
    ///
    /// As [`StoreOptions::take`].
    pub fn get<T>(
        &self,
        spec: &OptionSpec,
        parse: impl Fn(&str) -> std::result::Result<T, String>,
    ) -> Result<Option<T>> {
        let values = self.strongest(spec);
        let Some((source, first)) = values.first() else { return Ok(None) };
        if let Some((other, _)) = values.iter().find(|(_, value)| value != first) {
            return Err(Error::new(ErrorKind::InvalidConfig, "read options")
                .why("the option is set twice, to different values")
                .with("option", spec.name)
                .with("sources", format_args!("{source} and {other}"))
                .fix("leave one of them"));
        }
        parsed(spec, source, first, &parse).map(Some)
    }

    /// Takes an option that has one value.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] when `parse` refuses the value, or when one source gives two that differ.
    pub fn take<T>(
        &mut self,
        spec: &OptionSpec,
        parse: impl Fn(&str) -> std::result::Result<T, String>,
    ) -> Result<Option<T>> {
        let value = self.get(spec, parse);
        self.remove(spec);
        value
    }

    /// Takes an option that may be repeated: all values of its strongest source.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] when `parse` refuses a value.
    pub fn take_all<T>(
        &mut self,
        spec: &OptionSpec,
        parse: impl Fn(&str) -> std::result::Result<T, String>,
    ) -> Result<Vec<T>> {
        let values =
            self.strongest(spec).into_iter().map(|(source, value)| parsed(spec, source, value, &parse));
        let values = values.collect();
        self.remove(spec);
        values
    }

    /// Ends taking; `tables` are the options that the store knows, besides the common ones.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] when an option is left that nobody took, with its source and the known name
    /// nearest to it.
    pub fn finish(self, tables: &[&[OptionSpec]]) -> Result<()> {
        let Some((name, values)) = self.values.into_iter().next() else { return Ok(()) };
        let known = || tables.iter().copied().chain([COMMON_OPTIONS]).flatten().map(|spec| spec.name);
        let source = values.first().map_or(Source::Default, |(source, _)| source.clone());
        let nearest = known().max_by(|a, b| {
            let likeness = |known| strsim::jaro_winkler(&name, known);
            likeness(a).total_cmp(&likeness(b))
        });
        let fix = match nearest.filter(|known| strsim::jaro_winkler(&name, known) > 0.75) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("the options are {}", known().collect::<Vec<_>>().join(", ")),
        };
        Err(Error::new(ErrorKind::InvalidConfig, "read options")
            .why("the store has no such option")
            .with("option", name)
            .with("source", source)
            .fix(fix))
    }

    fn remove(&mut self, spec: &OptionSpec) {
        for name in std::iter::once(spec.name).chain(spec.aliases.iter().copied()) {
            self.values.remove(name);
        }
    }
}

fn parsed<T>(
    spec: &OptionSpec,
    source: &Source,
    value: &str,
    parse: &impl Fn(&str) -> std::result::Result<T, String>,
) -> Result<T> {
    parse(value).map_err(|why| {
        Error::new(ErrorKind::InvalidConfig, "read options")
            .why(why)
            .with("option", spec.name)
            .with(
                "value",
                match (spec.secret, spec.guarded) {
                    (true, _) => "(secret)".to_string(),
                    (false, true) => "(not shown)".to_string(),
                    (false, false) => format!("{:?}", without_secrets(value)),
                },
            )
            .with("source", source)
    })
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(place) => write!(f, "file {place}"),
            Self::Env(name) => write!(f, "environment {name}"),
            Self::Url => f.write_str("url"),
            Self::Flag => f.write_str("flag"),
        }
    }
}

/// Names and sources only: a value may be a secret.
impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sources =
            |values: &[(Source, String)]| values.iter().map(|(source, _)| source.clone()).collect::<Vec<_>>();
        f.debug_map().entries(self.values.iter().map(|(name, values)| (name, sources(values)))).finish()
    }
}
