//! What `hicache bench file` found, for scripts and for people, and how it asks for memory.

use super::html::Report;
use crate::args::Memory;
use crate::failure::Result;
use crate::meter::Step;
use crate::output::Output;
use crate::report::{Count, Micros, Missed, Size};
use crate::session::Session;
use hicache::{Backing, HugePageSize, HugePages, Region, RegionSpec, parse_bool};
use serde::Serialize;

/// The JSON of `bench file`.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    pub(super) write: Step,
    pub(super) rewrite: Step,
    pub(super) read: Step,
    pub(super) exists: Step,
    pub(super) engine: &'static str,
    pub(super) mode: &'static str,
    pub(super) memory: &'static str,
    /// 0 for an engine that has none.
    pub(super) depth: u32,
    pub(super) batch: u32,
    pub(super) page_bytes: u64,
    /// Read by a ring into memory registered with it.
    pub(super) registered_pages: u64,
    pub(super) format: &'static str,
    pub(super) checksum: bool,
    /// Of one core of this machine, whether or not the store makes checksums.
    pub(super) checksum_gb_per_s: f64,
    /// What the read step found in the page cache.
    pub(super) cache: String,
    pub(super) fallbacks: Vec<Missed>,
}

impl Figures {
    /// The page for people.
    pub(super) fn html(&self) -> Report {
        let mut report = Report::new("hicache bench file");
        report.fact("pages", format_args!("{}, {} in a batch", Size(self.page_bytes), self.batch));
        report.fact(
            "store",
            format_args!("format {}, engine {}, mode {}", self.format, self.engine, self.mode),
        );
        report.fact("depth", self.depth);
        report.fact(
            "memory",
            format_args!(
                "{}; {} read into registered memory",
                self.memory,
                Count(self.registered_pages, "page")
            ),
        );
        report.fact("cache", &self.cache);
        let used = if self.checksum { "on" } else { "off" };
        report.fact("checksum", format_args!("{used}; a core makes {:.1} GB/s", self.checksum_gb_per_s));
        for missed in &self.fallbacks {
            report.fact("without", format_args!("{}: {}", missed.what, missed.why));
        }
        let moves = [("write", &self.write), ("rewrite", &self.rewrite), ("read", &self.read)];
        report.plot_steps("batch", &moves, &self.exists);
        report
    }

    /// The lines for people.
    pub(super) fn print(&self, output: &mut Output) -> Result<()> {
        for (name, step) in [("write", &self.write), ("rewrite", &self.rewrite), ("read", &self.read)] {
            output.line(format_args!(
                "{name:<10} {:.2} GB/s, {:.0} pages/s, batch p50 {}, p99 {}, {:.3} CPU s/GB ({} in {:.2} s)",
                step.gb_per_s,
                step.pages_per_s,
                Micros(step.p50_us),
                Micros(step.p99_us),
                step.cpu_seconds_per_gb,
                Size(step.bytes),
                step.seconds
            ))?;
        }
        let (asked, took) = (self.exists.pages_per_s, Micros(self.exists.p50_us));
        output.line(format_args!("exists     {asked:.0} pages/s, batch p50 {took}"))?;
        let (page, known) = (Size(self.page_bytes), self.registered_pages);
        output.line(format_args!(
            "pages      {page}, {} in a batch, on memory: {}; {known} read into registered memory",
            self.batch, self.memory
        ))?;
        let depth = if self.depth > 0 { format!(", depth {}", self.depth) } else { String::new() };
        output.line(format_args!(
            "store      format {}, engine {}{depth}, mode {}",
            self.format, self.engine, self.mode
        ))?;
        output.line(format_args!("cache      {}", self.cache))?;
        let used = if self.checksum { "on" } else { "off" };
        output.line(format_args!("checksum   {used}; a core makes {:.1} GB/s", self.checksum_gb_per_s))?;
        Missed::print(&self.fallbacks, output)
    }
}

/// How to map such memory, on the node and locked as the store's options say; every page is there before anything is
/// measured. A pool of one small page lies on what a large one lies on.
pub(super) fn region_spec(memory: Option<Memory>, options: RegionSpec) -> RegionSpec {
    let (backing, huge_pages) = match memory {
        Some(Memory::Huge) => (Backing::Private, HugePages::Require(HugePageSize::Size2M)),
        None | Some(Memory::Thp) => (Backing::Private, HugePages::Prefer(HugePageSize::Size2M)),
        Some(Memory::Base) => (Backing::Private, HugePages::Off),
        Some(Memory::Shm) => (Backing::Memfd, HugePages::Off),
    };
    let len = HugePageSize::Size2M.alignment().bytes();
    RegionSpec { len, backing, huge_pages, ..options }
}

/// What the kernel gave, by the names of the flag.
pub(super) fn memory(region: &Region) -> &'static str {
    if region.backing() != Backing::Private {
        "shm"
    } else if region.page_size() >= HugePageSize::Size2M.alignment() {
        "huge"
    } else if region.huge_len() > region.capacity() / 2 {
        "thp"
    } else {
        "base"
    }
}

/// Pages that a ring has under way at most, by the store's options; a limit that lowers the default is among the
/// fallbacks.
pub(super) fn depth(session: &Session, engine: &str) -> Result<u32> {
    let set = if engine == "io_uring" { session.option("depth")? } else { None };
    Ok(set.and_then(|depth| depth.parse().ok()).unwrap_or(0))
}

/// Whether the store's pages have checksums, by its options; without such an option they have.
pub(super) fn has_checksums(session: &Session) -> Result<bool> {
    let set = session.option("checksum")?;
    Ok(set.and_then(|checksum| parse_bool(&checksum).ok()).unwrap_or(true))
}
