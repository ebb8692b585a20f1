//! Threads that share out the pages of a batch, one batch after the other.

use crate::files::Files;
use hicache_alloc::PageMut;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What is done to every page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Write,
    Rewrite,
    Read,
    Exists,
}

/// The files, and a slot for each page of a batch.
#[derive(Debug)]
pub(crate) struct Crew {
    files: Files,
    slots: Vec<Mutex<PageMut>>,
    /// The batch at hand; `None` ends the threads.
    batch: Mutex<Option<Batch>>,
    next: AtomicUsize,
    failed: Mutex<Option<io::Error>>,
}

#[derive(Clone, Copy, Debug)]
struct Batch {
    step: Step,
    first: usize,
    count: usize,
    /// Pages in all: a rewritten page has its old number and this.
    pages: usize,
}

/// What a step took.
#[derive(Debug)]
pub(crate) struct Measured {
    pages: usize,
    bytes: usize,
    wall: Duration,
    cpu: Duration,
    batches: Vec<Duration>,
}

impl Crew {
    pub(crate) fn new(files: Files, slots: Vec<PageMut>) -> Self {
        let slots = slots.into_iter().map(Mutex::new).collect();
        Self { files, slots, batch: Mutex::default(), next: AtomicUsize::new(0), failed: Mutex::default() }
    }

    /// Does the steps over `pages` pages on so many threads.
    pub(crate) fn run(&self, threads: usize, pages: usize, steps: &[Step]) -> io::Result<Vec<Measured>> {
        // One thread is the caller's own: nobody has to be woken for it.
        let workers = if threads == 1 { 0 } else { threads };
        let (begin, end) = (Barrier::new(workers + 1), Barrier::new(workers + 1));
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    loop {
                        begin.wait();
                        let Some(batch) = *lock(&self.batch) else { return };
                        self.work(batch);
                        end.wait();
                    }
                });
            }
            let one_batch = |batch: Batch| {
                self.next.store(0, Ordering::Relaxed);
                if workers == 0 {
                    return self.work(batch);
                }
                *lock(&self.batch) = Some(batch);
                begin.wait();
                end.wait();
            };
            let measured = steps.iter().map(|step| self.step(*step, pages, one_batch)).collect();
            *lock(&self.batch) = None;
            if workers > 0 {
                begin.wait();
            }
            measured
        })
    }

    fn step(&self, step: Step, pages: usize, one_batch: impl Fn(Batch)) -> io::Result<Measured> {
        let mut batches = Vec::with_capacity(pages.div_ceil(self.slots.len()));
        let (cpu, started) = (cpu_time(), Instant::now());
        for first in (0..pages).step_by(self.slots.len()) {
            let begun = Instant::now();
            one_batch(Batch { step, first, count: self.slots.len().min(pages - first), pages });
            batches.push(begun.elapsed());
        }
        let (wall, cpu) = (started.elapsed(), cpu_time().saturating_sub(cpu));
        if let Some(error) = lock(&self.failed).take() {
            return Err(error);
        }
        batches.sort_unstable();
        let len = if step == Step::Exists { 0 } else { lock(&self.slots[0]).len() };
        Ok(Measured { pages, bytes: pages * len, wall, cpu, batches })
    }

    /// Does pages of the batch as long as there are any.
    fn work(&self, batch: Batch) {
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= batch.count {
                return;
            }
            if let Err(error) = self.page(batch, batch.first + index, &mut lock(&self.slots[index])) {
                lock(&self.failed).get_or_insert(error);
                return;
            }
        }
    }

    fn page(&self, batch: Batch, number: usize, page: &mut PageMut) -> io::Result<()> {
        // After the rewrite, pages have their second number.
        let (old, new) = (number as u64, (number + batch.pages) as u64);
        match batch.step {
            Step::Write => self.files.write(old, page),
            Step::Rewrite => {
                self.files.remove(old)?;
                self.files.write(new, page)
            }
            Step::Read => self.files.read(new, page),
            Step::Exists if self.files.exists(new)? => Ok(()),
            Step::Exists => Err(io::Error::other("a page is gone")),
        }
    }
}

impl Measured {
    /// With the keys that `hicache bench file` has.
    pub(crate) fn json(&self) -> Value {
        let (seconds, gb) = (self.wall.as_secs_f64(), self.bytes as f64 / 1e9);
        let at = |percent: usize| {
            let rank = (self.batches.len() * percent).div_ceil(100).max(1);
            self.batches[rank - 1].as_micros() as u64
        };
        json!({
            "bytes": self.bytes, "seconds": seconds, "gb_per_s": gb / seconds,
            "pages_per_s": self.pages as f64 / seconds, "p50_us": at(50), "p99_us": at(99),
            "cpu_seconds_per_gb": if self.bytes > 0 { self.cpu.as_secs_f64() / gb } else { 0.0 },
        })
    }
}

/// CPU time of all threads of this process, in the kernel too.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
