//! How fast memory is faulted in: two threads of ours against the kernel's MAP_POPULATE on one, turn by turn.
//!
//! `cargo run --release -p hicache-alloc --example prefault -- [MIB] [ROUNDS]` (1024 MiB and 5 rounds if not given).
//! Both get base pages, so that they do the same work. The first round of each is not counted: it may be the first
//! time that a virtual machine uses this memory at all, which its host has to find first.

use hicache_alloc::{HugePages, Prefault, Region, RegionSpec};
use std::error::Error;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let len = arguments.next().map_or(Ok(1024), |text| text.parse::<usize>())? * MIB;
    let rounds = arguments.next().map_or(Ok(5), |text| text.parse::<usize>())?;
    let base = RegionSpec { len, huge_pages: HugePages::Off, ..Default::default() };
    let spec = |threads| RegionSpec { prefault: Prefault::With(threads), ..base.clone() };
    let two = NonZeroU32::new(2).ok_or("two is not zero")?;
    let huge = RegionSpec { huge_pages: HugePages::default(), ..spec(two) };

    println!("{} MiB, times in ms, rate in GiB/s", len / MIB);
    println!(
        "{:>5} {:>14} {:>14} {:>14} {:>6}",
        "round", "MAP_POPULATE", "2 threads", "2 thr. huge", "ratio"
    );
    let mut ratios = Vec::new();
    for round in 0..=rounds {
        let populate = populate(len)?;
        let ours = map(&spec(two))?;
        let on_huge = map(&huge)?;
        let ratio = populate.as_secs_f64() / ours.as_secs_f64();
        let cell = |time: Duration| {
            let rate = len as f64 / f64::from(1 << 30) / time.as_secs_f64();
            format!("{:>7.0} {rate:>6.2}", time.as_secs_f64() * 1e3)
        };
        let note = if round == 0 { " (not counted)" } else { "" };
        println!("{round:>5} {} {} {} {ratio:>6.2}{note}", cell(populate), cell(ours), cell(on_huge));
        if round > 0 {
            ratios.push(ratio);
        }
    }
    ratios.sort_by(f64::total_cmp);
    if let (Some(least), Some(most)) = (ratios.first(), ratios.last()) {
        println!("ratio: median {:.2}, from {least:.2} to {most:.2}", ratios[ratios.len() / 2]);
    }
    resident(&spec(two))?;
    resident(&huge)
}

/// One thread, all pages, in the call that maps.
fn populate(len: usize) -> Result<Duration, Box<dyn Error>> {
    let start = Instant::now();
    let map = memmap2::MmapOptions::new().len(len).populate().map_anon()?;
    let time = start.elapsed();
    drop(map);
    Ok(time)
}

fn map(spec: &RegionSpec) -> Result<Duration, Box<dyn Error>> {
    let start = Instant::now();
    let region: Region = spec.map()?;
    let time = start.elapsed();
    drop(region);
    Ok(time)
}

/// What the process grows by, against what was asked.
fn resident(spec: &RegionSpec) -> Result<(), Box<dyn Error>> {
    let before = status_kib(&["VmRSS:", "HugetlbPages:"])?;
    let region = spec.map()?;
    let grown = status_kib(&["VmRSS:", "HugetlbPages:"])? - before;
    let asked = spec.len / 1024;
    println!(
        "resident: {grown} KiB for {asked} KiB asked ({:+.2} %), {} MiB of it on huge pages, {} threads",
        (grown as f64 / asked as f64 - 1.0) * 100.0,
        region.huge_len() / MIB,
        region.prefault_threads()
    );
    Ok(())
}

fn status_kib(names: &[&str]) -> Result<usize, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let lines = status.lines().filter(|line| names.iter().any(|name| line.starts_with(name)));
    lines.map(|line| Ok(line.split_ascii_whitespace().nth(1).ok_or("no number")?.parse::<usize>()?)).sum()
}
