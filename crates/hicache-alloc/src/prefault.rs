//! Faulting in every page of a mapping, on several threads.
//!
//! Clearing a page costs what a core can write, and the kernel clears it on the thread that faults it in: so threads
//! share the work. They take chunk after chunk, since first touches vary. No huge page lies in two chunks.

use crate::error::Failed;
use crate::mapping::Mapping;
use crate::{Alignment, Prefault};
use rustix::thread::CpuSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// A chunk, unless a page is larger: long enough for the calls not to count, short enough to be shared.
const CHUNK: Alignment = match Alignment::new(16 << 20) {
    Some(chunk) => chunk,
    None => unreachable!(),
};
/// Where [`Prefault::On`] stops: beyond it the memory, not the cores, is the limit.
const MOST_THREADS: usize = 16;
/// Reading it writes zeros, and answers with an error where writing by hand would be a signal.
const ZEROS: &str = "/dev/zero";

/// How the pages came in.
#[derive(Debug)]
pub(crate) struct Faulted {
    /// Threads that did it.
    pub(crate) threads: usize,
    /// Why there were fewer than wanted.
    pub(crate) not_started: Option<io::Error>,
    /// The kernel knows no MADV_POPULATE_WRITE: each page was touched.
    pub(crate) touched: bool,
}

/// Faults in every page. `page` is the largest page that may lie in the mapping, `step` the smallest. `processors`
/// are where it is best done, or empty.
pub(crate) fn run(
    mapping: &Mapping,
    prefault: Prefault,
    (page, step): (Alignment, Alignment),
    processors: &[u32],
) -> Result<Faulted, Failed> {
    let start = mapping.base().addr().get();
    let chunks = Chunks::new(start..start + mapping.len(), CHUNK.max(page));
    let wanted = match prefault {
        Prefault::Off => return Ok(Faulted { threads: 0, not_started: None, touched: false }),
        Prefault::On => thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS),
        Prefault::With(threads) => threads.get() as usize,
    };
    let touched = AtomicBool::new(false);
    let fault_in = |range: Range<usize>| {
        let range = range.start - start..range.end - start;
        match mapping.populate(range.clone()) {
            // Linux before 5.14 does not know the advice, nor do some kernels in user space.
            Err(failed) if matches!(failed.errno(), libc::EINVAL | libc::ENOSYS) => {
                touched.store(true, Ordering::Relaxed);
                let zeros = File::open(ZEROS).map_err(|source| Failed { call: "open /dev/zero", source })?;
                mapping.touch(range, step, &zeros)
            }
            done => done,
        }
    };
    let affinity = affinity(processors);
    let (threads, not_started) = share(&chunks, wanted.min(chunks.count), affinity.as_ref(), fault_in)?;
    Ok(Faulted { threads, not_started, touched: touched.into_inner() })
}

/// Address ranges that tile a range, cut at multiples of their size only.
#[derive(Debug)]
struct Chunks {
    range: Range<usize>,
    size: Alignment,
    count: usize,
}

impl Chunks {
    fn new(range: Range<usize>, size: Alignment) -> Self {
        let count = (range.end - size.align_down(range.start)).div_ceil(size.bytes());
        Self { range, size, count }
    }

    fn get(&self, index: usize) -> Option<Range<usize>> {
        let start = self.size.align_down(self.range.start) + index.checked_mul(self.size.bytes())?;
        let end = (start.saturating_add(self.size.bytes())).min(self.range.end);
        (index < self.count).then(|| start.max(self.range.start)..end)
    }
}

/// Does `work` on every chunk, on so many threads, the calling one among them. The first failure ends it all: chunks
/// that are not begun are not begun any more. With `affinity`, threads of their own do it all, and keep to it.
fn share(
    chunks: &Chunks,
    threads: usize,
    affinity: Option<&CpuSet>,
    work: impl Fn(Range<usize>) -> Result<(), Failed> + Sync,
) -> Result<(usize, Option<io::Error>), Failed> {
    let next = AtomicUsize::new(0);
    let stopped = AtomicBool::new(false);
    let failure = Mutex::new(None);
    let take_all = || {
        while !stopped.load(Ordering::Relaxed) {
            let Some(chunk) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
            if let Err(failed) = work(chunk) {
                stopped.store(true, Ordering::Relaxed);
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failed);
            }
        }
    };
    let take_all_there = || {
        if let Some(affinity) = affinity {
            // It may fail where no processor is left to this process; the pages lie where they are bound all the same.
            let _ = rustix::thread::sched_setaffinity(None, affinity);
        }
        take_all();
    };
    let (mut running, mut not_started) = (0, None);
    thread::scope(|scope| {
        let helpers = if affinity.is_some() { threads } else { threads.saturating_sub(1) };
        for _ in 0..helpers {
            let builder = thread::Builder::new().name("hicache-prefault".to_owned());
            match builder.spawn_scoped(scope, take_all_there) {
                Ok(_) => running += 1,
                Err(error) => {
                    not_started = Some(error);
                    break;
                }
            }
        }
        if affinity.is_none() || running == 0 {
            running += 1;
            take_all();
        }
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(failed) => Err(failed),
        None => Ok((running, not_started)),
    }
}

/// Those of `processors` that this thread may run on, or `None` if that is none or all of its own.
fn affinity(processors: &[u32]) -> Option<CpuSet> {
    let allowed = rustix::thread::sched_getaffinity(None).ok()?;
    let mut set = CpuSet::new();
    for &processor in processors {
        let processor = processor as usize;
        if processor < CpuSet::MAX_CPU && allowed.is_set(processor) {
            set.set(processor);
        }
    }
    (set.count() > 0 && set != allowed).then_some(set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chunks(count: usize) -> Chunks {
        Chunks::new(0..count * 64, Alignment::new(64).unwrap())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn chunks_tile_the_range_and_cut_no_page(start in 0..5000_usize, len in 1..9000_usize, log2 in 0..12_u32) {
            let size = Alignment::new(1 << log2).unwrap();
            let chunks = Chunks::new(start..start + len, size);
            let mut at = start;
            for index in 0..chunks.count {
                let chunk = chunks.get(index).unwrap();
                prop_assert_eq!(chunk.start, at);
                prop_assert!(!chunk.is_empty());
                prop_assert!(index == 0 || size.is_aligned(chunk.start));
                at = chunk.end;
            }
            prop_assert_eq!(at, start + len);
            prop_assert!(chunks.get(chunks.count).is_none());
        }
    }

    #[test]
    fn every_chunk_is_done_once_by_the_threads_asked_for() {
        for affinity in [None, Some(rustix::thread::sched_getaffinity(None).unwrap())] {
            for threads in [1, 2, 5] {
                let done: Vec<AtomicUsize> = (0..40).map(|_| AtomicUsize::new(0)).collect();
                let names = Mutex::new(std::collections::HashSet::new());
                let (ran, not_started) = share(&chunks(40), threads, affinity.as_ref(), |chunk| {
                    done[chunk.start / 64].fetch_add(1, Ordering::Relaxed);
                    names.lock().unwrap().insert(thread::current().id());
                    Ok(())
                })
                .unwrap();
                assert_eq!((ran, not_started.is_none()), (threads, true));
                assert!(done.iter().all(|done| done.load(Ordering::Relaxed) == 1));
                assert!(names.lock().unwrap().len() <= threads);
            }
        }
    }

    #[test]
    fn the_first_failure_ends_the_work() {
        for threads in [1, 2, 3] {
            let begun = AtomicUsize::new(0);
            let failed = share(&chunks(1000), threads, None, |chunk| {
                begun.fetch_add(1, Ordering::Relaxed);
                if chunk.start < 3 * 64 {
                    return Ok(());
                }
                Err(Failed { call: "madvise", source: io::Error::from_raw_os_error(libc::EFAULT) })
            })
            .unwrap_err();
            assert_eq!((failed.call, failed.errno()), ("madvise", libc::EFAULT));
            // Each thread meets at most one failure.
            assert!(begun.into_inner() <= 3 + threads);
        }
    }
}
