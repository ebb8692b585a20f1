//! The harness that file stores are measured against: threads, one plain file a page, raw direct I/O, no checksums.
//!
//! What it does is fixed, so that its numbers can be compared over time. Writing a page: create a temporary file, one
//! `pwrite`, close, rename. Reading it: open, one `pread`, close. Rewriting: unlink an old page, write a new one.

mod crew;
mod files;

use crate::crew::{Crew, Step};
use crate::files::Files;
use clap::{Parser, ValueEnum};
use hicache_alloc::{
    Alignment, Backing, HostPool, HugePageSize, HugePages, PageMut, Region, RegionSpec, Strides,
};
use serde_json::json;
use std::error::Error;
use std::path::PathBuf;

/// Measures threads that write, rewrite, read and ask for plain files, and prints one JSON document
#[derive(Debug, Parser)]
struct Flags {
    /// An empty directory; the files stay in it
    #[arg(long)]
    dir: PathBuf,
    /// Bytes of a page, a multiple of 4096
    #[arg(long)]
    page_bytes: usize,
    /// Pages in all
    #[arg(long)]
    pages: usize,
    /// Pages in a batch, and slots of the pool
    #[arg(long, default_value_t = 128)]
    batch: u32,
    /// Threads; with one, it is the caller's
    #[arg(long, default_value_t = 16)]
    threads: usize,
    /// What the pool lies on
    #[arg(long, default_value = "thp")]
    memory: Memory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Memory {
    /// Reserved huge pages of 2 MiB, or it fails
    Huge,
    /// Transparent huge pages
    Thp,
    /// Base pages
    Base,
}

fn main() -> Result<(), Box<dyn Error>> {
    let flags = Flags::parse();
    if flags.batch == 0 || flags.pages == 0 || flags.threads == 0 {
        return Err("--pages, --batch and --threads are at least 1".into());
    }
    let pool = pool(&flags)?;
    let memory = kind(pool.region());
    let pages: Vec<PageMut> = pool.alloc(flags.batch as usize).ok_or("a new pool has its slots")?;
    let crew = Crew::new(Files::open(&flags.dir)?, pages);
    let steps =
        crew.run(flags.threads, flags.pages, &[Step::Write, Step::Rewrite, Step::Read, Step::Exists])?;
    let [write, rewrite, read, exists] = steps.as_slice() else { return Err("a step is missing".into()) };
    println!(
        "{}",
        json!({
            "write": write.json(), "rewrite": rewrite.json(), "read": read.json(), "exists": exists.json(),
            "threads": flags.threads, "memory": memory, "batch": flags.batch, "page_bytes": flags.page_bytes,
        })
    );
    Ok(())
}

/// A pool of one batch, every page of it random bytes.
fn pool(flags: &Flags) -> Result<HostPool, Box<dyn Error>> {
    let strides = Strides::new(1, flags.batch, flags.page_bytes, Alignment::base_page())?;
    let huge_pages = match flags.memory {
        Memory::Huge => HugePages::Require(HugePageSize::Size2M),
        Memory::Thp => HugePages::Prefer(HugePageSize::Size2M),
        Memory::Base => HugePages::Off,
    };
    let len = strides.region_len().max(HugePageSize::Size2M.alignment().bytes());
    let pool = HostPool::new(RegionSpec { len, huge_pages, ..RegionSpec::default() }.map()?, strides, &[])?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for mut page in pool.alloc(flags.batch as usize).ok_or("a new pool has its slots")? {
        for word in page.bytes_mut(0).ok_or("the memory is private")?.chunks_mut(size_of::<u64>()) {
            // xorshift64
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
        }
    }
    Ok(pool)
}

fn kind(region: &Region) -> &'static str {
    debug_assert_eq!(region.backing(), Backing::Private);
    if region.page_size() >= HugePageSize::Size2M.alignment() {
        "huge"
    } else if region.huge_len() > region.capacity() / 2 {
        "thp"
    } else {
        "base"
    }
}
