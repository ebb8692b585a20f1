//! Options of a file store.

use crate::ring::{DEPTH_MAX, RINGS_MAX};
use hicache_core::{CommonOptions, OptionSpec, Result, StoreOptions, parse_bool, parse_count, parse_path};
use std::num::NonZeroU32;
use std::path::PathBuf;

/// Whether pages go past the kernel's page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// Through the page cache.
    Off,
    /// Past it where the file system can; else through it, and told.
    #[default]
    Prefer,
    /// Past it, or the store does not open.
    Require,
}

/// Whether pages of pools on base pages go through a few slots of the store's own on huge pages, and a copy. Pages that
/// the device cannot take where they lie go through a slot whatever this says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bounce {
    /// Where it is measured to be faster, in the traffic itself.
    #[default]
    Auto,
    /// Always, where the slots get huge pages.
    On,
    /// Never.
    Off,
}

/// What moves the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// Rings for batches of gets of pages up to 128 KiB and for lone gets (batches of one) of pages up to 1 MiB, where
    /// the kernel lets us; threads for the rest.
    #[default]
    Auto,
    /// The same, and for batches of gets of pages of any length. An error where there is no ring.
    IoUring,
    /// A pool of threads, one page each at a time.
    Threads,
}

/// When a set answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When the page can be read. A power cut may lose it; it is never read wrong.
    #[default]
    None,
    /// When the page and its name are on the device.
    Sync,
}

/// Options of a file store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// Further directories. Each page lies in one, chosen by its key and the directories' identities.
    pub dirs: Vec<PathBuf>,
    /// Whether pages go past the kernel's page cache.
    pub direct: Direct,
    /// Whether pages of pools on base pages go through slots on huge pages.
    pub bounce: Bounce,
    /// What moves the bytes.
    pub engine: Engine,
    /// Threads of the engine; `None`: 4 a core, at most 32.
    pub threads: Option<NonZeroU32>,
    /// Rings, each with a thread of its own, among which batches are dealt.
    pub rings: NonZeroU32,
    /// Reads that a ring has in flight; `None`: what was measured best.
    pub depth: Option<NonZeroU32>,
    /// Checksums are written, and pages without one are not trusted.
    pub checksum: bool,
    /// When a set answers.
    pub durability: Durability,
    /// Only a store that is there is opened, and no new one made.
    pub existing: bool,
    /// What all stores have.
    pub common: CommonOptions,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            dirs: Vec::new(),
            direct: Direct::default(),
            bounce: Bounce::default(),
            engine: Engine::default(),
            threads: None,
            rings: NonZeroU32::MIN,
            depth: None,
            checksum: true,
            durability: Durability::default(),
            existing: false,
            common: CommonOptions::default(),
        }
    }
}

const FORMAT: OptionSpec = OptionSpec::new("format", "files", "files", "how pages lie on disk");
const DIR: OptionSpec =
    OptionSpec::new("dir", "path, repeated", "none", "further directories to spread pages over");
const DIRECT: OptionSpec = OptionSpec {
    aliases: &["use_direct_io"],
    ..OptionSpec::new("direct", "bool, or require", "true", "go past the kernel's page cache (O_DIRECT)")
};
const BOUNCE: OptionSpec = OptionSpec::new(
    "bounce",
    "auto, or bool",
    "auto",
    "move pages of pools on base pages through slots on huge pages; auto where that measures faster",
);
const ENGINE: OptionSpec = OptionSpec::new(
    "engine",
    "auto, io_uring, threads",
    "auto",
    "what moves the bytes; auto: gets by io_uring (batches of pages up to 128 KiB, lone pages up to 1 MiB), \
     else threads",
);
const THREADS: OptionSpec =
    OptionSpec::new("threads", "number", "4 a core, at most 32", "threads of the engine");
const DEPTH: OptionSpec = OptionSpec::new("depth", "number", "128", "reads that a ring has in flight");
const RINGS: OptionSpec =
    OptionSpec::new("rings", "number", "1", "rings that batches of gets are dealt among");
const CHECKSUM: OptionSpec =
    OptionSpec::new("checksum", "bool", "true", "write checksums, and trust no page without one");
const DURABILITY: OptionSpec = OptionSpec::new(
    "durability",
    "none, sync",
    "none",
    "whether a set answers after the page is on the device",
);

/// The options that a URL, a file or the environment can set, besides the common ones.
pub const OPTIONS: &[OptionSpec] =
    &[FORMAT, DIR, DIRECT, BOUNCE, ENGINE, THREADS, RINGS, DEPTH, CHECKSUM, DURABILITY];

/// Most threads of an engine.
const THREADS_MAX: u32 = 1024;

impl FileOptions {
    /// Reads them out of what the sources say.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](hicache_core::ErrorKind::InvalidConfig) naming the option, its value and its source;
    /// also for an option that this store does not have.
    pub fn from_options(mut options: StoreOptions) -> Result<Self> {
        let default = Self::default();
        options.take(&FORMAT, parse_format)?;
        let parsed = Self {
            dirs: options.take_all(&DIR, parse_path)?,
            direct: options.take(&DIRECT, parse_direct)?.unwrap_or(default.direct),
            bounce: options.take(&BOUNCE, parse_bounce)?.unwrap_or(default.bounce),
            engine: options.take(&ENGINE, parse_engine)?.unwrap_or(default.engine),
            threads: options.take(&THREADS, parse_threads)?,
            rings: options.take(&RINGS, parse_rings)?.unwrap_or(default.rings),
            depth: options.take(&DEPTH, parse_depth)?,
            checksum: options.take(&CHECKSUM, parse_bool)?.unwrap_or(default.checksum),
            durability: options.take(&DURABILITY, parse_durability)?.unwrap_or(default.durability),
            existing: options.existing(),
            common: CommonOptions::take(&mut options)?,
        };
        options.finish(&[OPTIONS])?;
        Ok(parsed)
    }
}

fn parse_format(text: &str) -> Result<(), String> {
    match text {
        "files" => Ok(()),
        _ => Err("want files".to_string()),
    }
}

fn parse_direct(text: &str) -> Result<Direct, String> {
    match text {
        "require" => Ok(Direct::Require),
        _ => match parse_bool(text) {
            Ok(true) => Ok(Direct::Prefer),
            Ok(false) => Ok(Direct::Off),
            Err(why) => Err(format!("{why}, or require")),
        },
    }
}

fn parse_bounce(text: &str) -> Result<Bounce, String> {
    match text {
        "auto" => Ok(Bounce::Auto),
        _ => match parse_bool(text) {
            Ok(true) => Ok(Bounce::On),
            Ok(false) => Ok(Bounce::Off),
            Err(why) => Err(format!("{why}, or auto")),
        },
    }
}

fn parse_engine(text: &str) -> Result<Engine, String> {
    match text {
        "auto" => Ok(Engine::Auto),
        "threads" => Ok(Engine::Threads),
        "io_uring" => Ok(Engine::IoUring),
        _ => Err("want auto, io_uring or threads".to_string()),
    }
}

fn parse_threads(text: &str) -> Result<NonZeroU32, String> {
    match parse_count(text) {
        Ok(count) if count.get() > THREADS_MAX => Err(format!("at most {THREADS_MAX}")),
        parsed => parsed,
    }
}

fn parse_rings(text: &str) -> Result<NonZeroU32, String> {
    match parse_count(text) {
        Ok(count) if count.get() > RINGS_MAX => Err(format!("at most {RINGS_MAX}")),
        parsed => parsed,
    }
}

fn parse_depth(text: &str) -> Result<NonZeroU32, String> {
    match parse_count(text) {
        Ok(count) if count.get() > DEPTH_MAX => Err(format!("at most {DEPTH_MAX}")),
        parsed => parsed,
    }
}

fn parse_durability(text: &str) -> Result<Durability, String> {
    match text {
        "none" => Ok(Durability::None),
        "sync" => Ok(Durability::Sync),
        _ => Err("want none or sync".to_string()),
    }
}
