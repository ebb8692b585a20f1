//! `hicache bench alloc`: how fast each kind of host memory is mapped and faulted in.

use super::html::Report;
use crate::args::BenchAlloc;
use crate::failure::{Ending, Failure, Result};
use crate::output::{self, Output};
use crate::report::{Size, gb_per_s};
use hicache::{Backing, HugePageSize, HugePages, Prefault, RegionSpec, memory_available};
use serde::Serialize;
use serde_json::json;
use std::num::NonZeroU32;
use std::time::Instant;

/// Most threads that a region is faulted in by.
const THREADS_MAX: NonZeroU32 = NonZeroU32::new(16).unwrap();

/// What is mapped, one after the other.
const KINDS: [(Backing, HugePages); 6] = [
    (Backing::Private, HugePages::Off),
    (Backing::Private, HugePages::Prefer(HugePageSize::Size2M)),
    (Backing::Shared, HugePages::Off),
    (Backing::Memfd, HugePages::Off),
    (Backing::Private, HugePages::Require(HugePageSize::Size2M)),
    (Backing::Memfd, HugePages::Require(HugePageSize::Size2M)),
];

#[derive(Debug, Serialize)]
struct Measured {
    backing: &'static str,
    /// Bytes; of a transparent huge page where at least half of the region lies on such.
    page_size: usize,
    bytes: u64,
    prefault_threads: u32,
    seconds: f64,
    gb_per_s: f64,
    /// What resident memory grew by.
    rss_bytes: u64,
}

pub(crate) fn run(args: &BenchAlloc, output: &mut Output) -> Result {
    let len = usize::try_from(args.bytes).ok().filter(|len| *len > 0);
    let len =
        len.ok_or_else(|| Failure::Usage("--bytes is at least 1, and no more than memory".to_owned()))?;
    if let Some(available) = memory_available().filter(|available| args.bytes > available / 2) {
        let (asked, there) = (Size(args.bytes), Size(available));
        let why = format!("--bytes {asked} is more than half of the memory that is available ({there})");
        return Err(Failure::Usage(why));
    }
    let mut results = Vec::new();
    let cores = std::thread::available_parallelism().ok().and_then(|cores| NonZeroU32::try_from(cores).ok());
    let mut threads = vec![NonZeroU32::MIN, cores.map_or(NonZeroU32::MIN, |cores| cores.min(THREADS_MAX))];
    threads.dedup();
    for (backing, huge_pages) in KINDS {
        for threads in &threads {
            let prefault = Prefault::With(*threads);
            match measure(
                &RegionSpec { len, backing, huge_pages, prefault, ..RegionSpec::default() },
                *threads,
            ) {
                Ok(measured) => results.push(measured),
                // Most machines have none reserved.
                Err(error) if matches!(huge_pages, HugePages::Require(_)) => {
                    let name = name(backing);
                    output::note(format_args!("not measured: {name} on reserved huge pages: {error}"));
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    if let Some(path) = &args.html {
        html(&results).write(path)?;
    }
    if output.is_json() {
        output.document(&json!({ "results": results }))?;
        return Ok(Ending::Done);
    }
    for row in results {
        output.line(format_args!(
            "{:<8} pages of {:>9}, {:>2} threads  {:.3} s  {:>6.2} GB/s  {} resident",
            row.backing,
            Size(row.page_size as u64).to_string(),
            row.prefault_threads,
            row.seconds,
            row.gb_per_s,
            Size(row.rss_bytes)
        ))?;
    }
    Ok(Ending::Done)
}

fn html(results: &[Measured]) -> Report {
    let mut report = Report::new("hicache bench alloc");
    let bytes = results.iter().map(|row| row.bytes).max().unwrap_or(0);
    report.fact("regions", format_args!("{} each, one after the other", Size(bytes)));
    let name = |row: &Measured| {
        format!("{}, {}, {} threads", row.backing, Size(row.page_size as u64), row.prefault_threads)
    };
    report.plot("mapped and faulted in, GB/s", results.iter().map(|row| (name(row), row.gb_per_s)));
    report
}

fn measure(spec: &RegionSpec, threads: NonZeroU32) -> Result<Measured, hicache::AllocError> {
    let before = resident();
    let started = Instant::now();
    let region = spec.map()?;
    let took = started.elapsed();
    let is_transparent = region.huge_len() >= region.capacity() / 2;
    let huge = HugePageSize::Size2M.alignment().bytes();
    let page_size = if is_transparent { huge } else { region.page_size().bytes() };
    Ok(Measured {
        backing: name(spec.backing),
        page_size,
        bytes: region.capacity() as u64,
        prefault_threads: threads.get(),
        seconds: took.as_secs_f64(),
        gb_per_s: gb_per_s(region.capacity() as u64, took),
        rss_bytes: resident().saturating_sub(before),
    })
}

fn name(backing: Backing) -> &'static str {
    match backing {
        Backing::Private => "private",
        Backing::Shared => "shared",
        Backing::Memfd => "memfd",
    }
}

/// Bytes that this process has in memory, reserved huge pages too.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    ["VmRSS:", "HugetlbPages:"].into_iter().filter_map(kib).sum::<u64>() * 1024
}
