//! Options of a store made of two tiers.

use hicache_core::{CommonOptions, OptionSpec, Result, StoreOptions, parse_bool, parse_size};

/// When a set is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Write {
    /// When both tiers have the page.
    #[default]
    Through,
    /// When the first has it; the second gets it afterwards, from a queue.
    Behind,
}

/// Options of a store made of two tiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierOptions {
    /// When a set is answered.
    pub write: Write,
    /// What only the second tier had is written into the first.
    pub promote: bool,
    /// Most bytes of pages that are on their way to a tier while nobody waits for them. They lie in the store's own
    /// memory.
    pub queue: u64,
    /// What all stores have.
    pub common: CommonOptions,
}

impl Default for TierOptions {
    fn default() -> Self {
        Self { write: Write::default(), promote: true, queue: 256 << 20, common: CommonOptions::default() }
    }
}

pub(crate) const FIRST: OptionSpec =
    OptionSpec::new("first", "URL, percent-encoded in a URL", "none", "the store that is asked first");
pub(crate) const SECOND: OptionSpec = OptionSpec::new(
    "second",
    "URL, percent-encoded in a URL",
    "none",
    "the store that has what the first has lost",
);
const WRITE: OptionSpec =
    OptionSpec::new("write", "through, behind", "through", "whether a set waits for the second tier, too");
const PROMOTE: OptionSpec =
    OptionSpec::new("promote", "bool", "true", "write what only the second tier had into the first");
const QUEUE: OptionSpec =
    OptionSpec::new("queue", "bytes", "256MiB", "most bytes on their way to a tier that nobody waits for");

/// The options that a URL, a file or the environment can set, besides the common ones.
pub const OPTIONS: &[OptionSpec] = &[FIRST, SECOND, WRITE, PROMOTE, QUEUE];

/// Those of them that name the tiers.
pub(crate) const TIERS: &[OptionSpec] = &[FIRST, SECOND];

impl TierOptions {
    /// Reads them out of what the sources say.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](hicache_core::ErrorKind::InvalidConfig) naming the option, its value and its source;
    /// also for an option that this store does not have.
    pub fn from_options(mut options: StoreOptions) -> Result<Self> {
        let default = Self::default();
        for tier in TIERS {
            options.take(tier, |text| Ok(text.to_owned()))?;
        }
        let parsed = Self {
            write: options.take(&WRITE, parse_write)?.unwrap_or(default.write),
            promote: options.take(&PROMOTE, parse_bool)?.unwrap_or(default.promote),
            queue: options.take(&QUEUE, parse_size)?.unwrap_or(default.queue),
            common: CommonOptions::take(&mut options)?,
        };
        options.finish(&[OPTIONS])?;
        Ok(parsed)
    }
}

fn parse_write(text: &str) -> Result<Write, String> {
    match text {
        "through" => Ok(Write::Through),
        "behind" => Ok(Write::Behind),
        _ => Err("want through or behind".to_string()),
    }
}
