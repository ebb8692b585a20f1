//! Flags of `hicache bench`.

use super::{Place, parse_order, parse_page_len, path};
use clap::{Args, Subcommand, ValueEnum};
use hicache::{PageOrder, parse_size};
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::time::Duration;

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// A file store: first fill, rewrite, cold read and exists
    ///
    /// Batches go one after the other through a pool of --batch pages of random bytes. Without --backend in a fresh
    /// store, which is removed; in the store that --backend names, what the measurement wrote is removed. A rewrite
    /// stores new keys over reused space: in the format files it removes a batch and writes another. Latencies are
    /// those of a batch. CPU is that of this process, over the step alone.
    File(BenchFile),
    /// An S3 store: write, read and exists (in builds with the feature obj)
    ///
    /// Calls of --batch pages overlap, so that --concurrency requests are always under way. What was written is removed
    /// at the end. Latencies are those of a call. CPU is that of this process, over the step alone.
    Obj(BenchObj),
    /// Page keys: how many a second one core makes
    Keys(BenchKeys),
    /// Host memory: how fast it is mapped and faulted in
    Alloc(BenchAlloc),
}

/// `bench file`.
#[derive(Args, Debug)]
pub(crate) struct BenchFile {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Make the fresh store in this directory
    #[arg(long, value_name = "DIR", conflicts_with = "backend", value_parser = path())]
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) options: StoreFlags,
    /// Bytes of a page
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = parse_page_len)]
    pub(crate) page_bytes: usize,
    /// Pages to store; as many as fill 1 GiB where not given, and at least a batch
    #[arg(long, value_name = "N")]
    pub(crate) pages: Option<NonZeroU64>,
    /// Pages in a batch, and slots of the pool
    #[arg(long, value_name = "N", default_value = "128")]
    pub(crate) batch: NonZeroU32,
    /// What the pool lies on; where not given, the best there is: reserved, else transparent huge pages
    #[arg(long)]
    pub(crate) memory: Option<Memory>,
    /// How a page's content is ordered; layer_first makes it 16 pieces, the others one
    #[arg(long, default_value = "page_first", value_parser = parse_order)]
    pub(crate) order: PageOrder,
    /// Repeat each step until it took this long (at least once)
    #[arg(long, value_name = "N", value_parser = parse_seconds)]
    pub(crate) seconds: Option<Duration>,
    /// What the read step finds in the kernel's page cache
    #[arg(long, default_value = "cold")]
    pub(crate) cache: Cache,
    /// Also write a report with plots to this file, over what is there; it needs nothing from elsewhere
    #[arg(long, value_name = "FILE", value_parser = path())]
    pub(crate) html: Option<PathBuf>,
}

/// Options of the store that have a flag of their own here. The store judges them.
#[derive(Args, Debug)]
pub(crate) struct StoreFlags {
    /// How the store lies on disk
    #[arg(long, value_parser = ["files"])]
    format: Option<String>,
    /// What moves the bytes
    #[arg(long, value_parser = ["auto", "io_uring", "threads"])]
    engine: Option<String>,
    /// Reads that a ring has in flight
    #[arg(long, value_name = "N")]
    pub(crate) depth: Option<NonZeroU32>,
    /// Rings that batches of gets are dealt among
    #[arg(long, value_name = "N")]
    rings: Option<NonZeroU32>,
    /// Go past the kernel's page cache
    #[arg(long)]
    direct: Option<Switch>,
    /// Write and check checksums
    #[arg(long)]
    checksum: Option<Switch>,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

/// What a pool lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Memory {
    /// Reserved huge pages of 2 MiB, or the command fails
    Huge,
    /// Transparent huge pages (reserved ones where there are any)
    Thp,
    /// Base pages
    Base,
    /// Base pages of a memfd, which other processes can map
    Shm,
}

/// What the read step finds in the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cache {
    /// Nothing: the files are dropped from it first. Direct I/O passes it anyway
    Cold,
    /// Whatever a reading of every page just before has left there
    Warm,
}

/// `bench obj`.
#[derive(Args, Debug)]
#[cfg_attr(
    not(feature = "obj"),
    allow(dead_code, reason = "a build without S3 only says how to get one that has")
)]
pub(crate) struct BenchObj {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Bytes of a page
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = parse_page_len)]
    pub(crate) page_bytes: usize,
    /// Pages to store; as many as fill 1 GiB where not given, and at least a batch
    #[arg(long, value_name = "N")]
    pub(crate) pages: Option<NonZeroU64>,
    /// Pages in a call; latencies are those of a call, so 1 measures a page's
    #[arg(long, value_name = "N", default_value = "128")]
    pub(crate) batch: NonZeroU32,
    /// Requests under way at once; as the store's option says where not given
    #[arg(long, value_name = "N")]
    pub(crate) concurrency: Option<NonZeroU32>,
    /// Write and check checksums
    #[arg(long)]
    pub(crate) checksum: Option<Switch>,
    /// Also write a report with plots to this file, over what is there; it needs nothing from elsewhere
    #[arg(long, value_name = "FILE", value_parser = path())]
    pub(crate) html: Option<PathBuf>,
}

/// `bench keys`.
#[derive(Args, Debug)]
pub(crate) struct BenchKeys {
    /// How long each page size is measured
    #[arg(long, value_name = "N", default_value = "0.5", value_parser = parse_seconds)]
    pub(crate) seconds: Duration,
    /// Also write a report with plots to this file, over what is there; it needs nothing from elsewhere
    #[arg(long, value_name = "FILE", value_parser = path())]
    pub(crate) html: Option<PathBuf>,
}

/// `bench alloc`.
#[derive(Args, Debug)]
pub(crate) struct BenchAlloc {
    /// Bytes of each region
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_size)]
    pub(crate) bytes: u64,
    /// Also write a report with plots to this file, over what is there; it needs nothing from elsewhere
    #[arg(long, value_name = "FILE", value_parser = path())]
    pub(crate) html: Option<PathBuf>,
}

impl StoreFlags {
    /// Name and value of each that was given.
    pub(crate) fn given(&self) -> Vec<(String, String)> {
        let switch = |switch: Option<Switch>| switch.map(|switch| (switch == Switch::On).to_string());
        let number = |number: Option<NonZeroU32>| number.map(|number| number.to_string());
        let all = [
            ("format", self.format.clone()),
            ("engine", self.engine.clone()),
            ("depth", number(self.depth)),
            ("rings", number(self.rings)),
            ("direct", switch(self.direct)),
            ("checksum", switch(self.checksum)),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 86_400.0 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("want seconds: a number above 0, at most 86400".to_owned()),
    }
}
