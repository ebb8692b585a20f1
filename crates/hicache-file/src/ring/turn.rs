//! A ring's thread: takes reads in, keeps a bounded number of them with the kernel, and hands over what came of them.

use super::kernel::{Issuer, Kernel, Parts, Step, WAKE, likely_cause, place};
use super::record::{Record, tails};
use super::registered::Registered;
use super::{Inbox, Read, lock};
use crate::asked::Completed;
use crate::engine::{Job, Sink};
use crate::own_memory;
use crate::sys::Sys;
use hicache_core::{Alignment, Fallback, PageMut, RegionSpec};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes in flight beyond which no read is added, so that large pages do not queue in the device for longer than they
/// need to. One read is always let through.
const BYTES_MAX: usize = 8 << 20;

/// Completions that are worth waiting for together, while at least as many reads stay under way.
const GATHERED_MAX: usize = 64;

/// Turns that the kernel may refuse in a row before the ring is given up.
const REFUSED_MAX: u32 = 10_000;

/// Rings that may fail on one thread before it makes no more.
const FAILURES_MAX: u32 = 4;

/// What a ring is made with.
#[derive(Clone)]
pub(crate) struct Setup {
    /// Reads in flight.
    pub(crate) depth: u32,
    /// Tails are two of it at most.
    pub(crate) block: Alignment,
    /// What is read beyond a file, to see that it ends there: the least that direct I/O takes.
    pub(crate) beyond: Alignment,
    /// How memory of the store's own is mapped.
    pub(crate) memory: RegionSpec,
    /// In some directory, who starts a read waits for it.
    pub(crate) reads_wait: bool,
    pub(crate) sys: Sys,
}

/// One ring at work.
pub(super) struct Turn {
    kernel: Kernel,
    setup: Setup,
    inbox: Arc<Inbox>,
    sink: Sink,
    waiting: VecDeque<Read>,
    /// Jobs of reads that are over, and the bytes of their pages.
    done: Vec<Job>,
    done_len: usize,
    /// Reads that were taken in and not handed over.
    owed: usize,
    table: Vec<Option<Record>>,
    free: Vec<usize>,
    /// Tails and parts for as many reads as can begin.
    spare: Vec<(PageMut, Parts)>,
    registered: Registered,
    bytes: usize,
    /// Turns in a row that the kernel refused.
    refused: u32,
    armed: bool,
}

impl Turn {
    pub(super) fn new(setup: Setup, inbox: Arc<Inbox>, sink: Sink) -> Result<Self, String> {
        let mut kernel = Kernel::build(setup.depth, Issuer::One)?;
        prove(&mut kernel, &setup.sys)
            .map_err(|error| format!("io_uring_enter: {error}; {}", likely_cause(&error)))?;
        if setup.reads_wait {
            kernel.let_reads_wait(setup.depth);
        }
        for one in &kernel.without {
            tracing::warn!(what = one.what, why = one.why, "fallback");
        }
        let tails = tails(&setup).map_err(|error| error.to_string())?;
        // Memory has told of itself.
        kernel.without.extend(own_memory::told("a ring's tails", tails[0].pool()));
        let count = setup.depth as usize;
        let registered = Registered::new(tails[0].pool().region(), &mut kernel);
        Ok(Self {
            kernel,
            setup,
            inbox,
            sink,
            waiting: VecDeque::new(),
            done: Vec::new(),
            done_len: 0,
            owed: 0,
            table: (0..count).map(|_| None).collect(),
            free: (0..count).rev().collect(),
            spare: tails.into_iter().map(|tail| (tail, Parts::default())).collect(),
            registered,
            bytes: 0,
            refused: 0,
            armed: false,
        })
    }

    /// What the ring is without.
    pub(super) fn without(&self) -> &[Fallback] {
        &self.kernel.without
    }

    /// Reads until there will be no more. A ring that fails is replaced, a few times.
    pub(super) fn run(mut self) {
        for failures in 1.. {
            let served = catch_unwind(AssertUnwindSafe(|| self.serve()));
            // Unwinding would free what the kernel has.
            let Err(error) = served.unwrap_or_else(|_| Err(io::Error::other("its thread panicked"))) else {
                return;
            };
            let Some(next) = self.fail(&error, failures) else { return };
            self = next;
        }
    }

    fn serve(&mut self) -> io::Result<()> {
        loop {
            let stop = self.take_letters();
            if self.start_reads() {
                // Files are open before anything is waited for, and their reads reach the device together: a read that
                // follows its opening in a chain goes there on its own, which costs a tenth more.
                self.enter(Kernel::submit)?;
                self.reap();
            }
            let in_flight = self.in_flight();
            if stop && in_flight == 0 && self.waiting.is_empty() {
                self.hand_over();
                self.kernel.let_go();
                return Ok(());
            }
            let limit = self.let_go_of_late();
            if self.done.is_empty() {
                self.arm();
                let want = (in_flight / 2).clamp(1, GATHERED_MAX);
                self.enter(|kernel| kernel.enter(want, limit))?;
            }
            self.reap();
            self.hand_over();
            self.kernel.check_overflow()?;
        }
    }

    fn in_flight(&self) -> usize {
        self.table.len() - self.free.len()
    }

    fn hand_over(&mut self) {
        self.owed -= self.done.len();
        self.sink.finish(std::mem::take(&mut self.done), std::mem::take(&mut self.done_len));
    }

    /// Moves what came in to what waits. True when no more will come.
    fn take_letters(&mut self) -> bool {
        let mut letters = lock(&self.inbox.letters);
        self.owed += letters.reads.len();
        self.waiting.append(&mut letters.reads);
        let errands = std::mem::take(&mut letters.errands);
        let stop = letters.stop;
        drop(letters);
        for errand in errands {
            let missed = self.registered.follow(&errand, &mut self.kernel);
            self.inbox.tell(missed, self.registered.len());
            // Whoever waits for it goes on.
            drop(errand);
        }
        stop
    }

    /// Starts what there is room for, and ends what is too late. Whether anything was started.
    fn start_reads(&mut self) -> bool {
        let mut started = false;
        while let Some(read) = self.waiting.front() {
            if self.in_flight() > 0 && self.bytes + read.page.len() > BYTES_MAX {
                break;
            }
            let Some(index) = self.free.pop() else { break };
            let Some(read) = self.waiting.pop_front() else { break };
            if read.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.free.push(index);
                self.done.push(read.asked.job(Completed::Late(read.page)));
                continue;
            }
            self.bytes += read.page.len();
            let (tail, parts) = self.spare.pop().expect("as many as reads in flight");
            let mut record = Record::new(read, tail, parts, self.setup.beyond);
            record.buffer = self.registered.buffer_of(&record, &self.kernel);
            self.kernel.push_open(index, self.table[index].insert(record));
            started = true;
        }
        started
    }

    /// Asks the kernel to let go of reads whose deadline has passed. How long it is until the next.
    fn let_go_of_late(&mut self) -> Option<Duration> {
        let first = self.waiting.front().and_then(|read| read.deadline);
        let records = self.table.iter().flatten().filter(|record| !record.cancelled);
        let next = records.filter_map(|record| record.read.deadline).chain(first).min()?;
        let now = Instant::now();
        if next > now {
            return Some(next - now);
        }
        for (index, record) in self.table.iter_mut().enumerate() {
            if let Some(record) = record
                && !record.cancelled
                && record.is_late(now)
            {
                record.cancelled = self.kernel.push_cancel(index);
            }
        }
        // What never began has nothing to let go of.
        for read in std::mem::take(&mut self.waiting) {
            if read.deadline.is_some_and(|deadline| now >= deadline) {
                self.done.push(read.asked.job(Completed::Late(read.page)));
            } else {
                self.waiting.push_back(read);
            }
        }
        None
    }

    /// Waits for the inbox beside the reads.
    fn arm(&mut self) {
        if !self.armed {
            self.armed = self.kernel.push_wake(self.inbox.wake.as_fd());
        }
    }

    fn enter(&mut self, enter: impl FnOnce(&mut Kernel) -> io::Result<()>) -> io::Result<()> {
        match self.setup.sys.check_enter().and_then(|()| enter(&mut self.kernel)) {
            Ok(()) => self.refused = 0,
            // Interrupted, or short of something for a moment: completions make room.
            Err(error) if passes(&error) && self.refused < REFUSED_MAX => self.refused += 1,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Ends the reads that are over.
    fn reap(&mut self) {
        while let Some((data, result)) = self.kernel.next() {
            if data == WAKE {
                self.armed = false;
                self.inbox.empty();
                continue;
            }
            let (index, step) = place(data);
            let Some(Some(record)) = self.table.get_mut(index) else { continue };
            let over = match step {
                Some(step @ Step::Open) => {
                    let opened = result >= 0;
                    let path = || record.read.path.to_string_lossy().into_owned();
                    record.told(step, if opened { result } else { self.setup.sys.completion(result, path) });
                    if opened {
                        // Cancelling it came too late: it is cancelled again when there is something to cancel.
                        record.cancelled = false;
                        self.kernel.push_opened(index, record, result);
                    }
                    !opened
                }
                Some(step @ (Step::Read | Step::Tail)) => {
                    let path = || record.read.path.to_string_lossy().into_owned();
                    let result =
                        if step == Step::Read { self.setup.sys.completion(result, path) } else { result };
                    record.told(step, result);
                    false
                }
                Some(Step::Close) => true,
                Some(Step::Cancel) | None => false,
            };
            if over && let Some(record) = self.table[index].take() {
                self.free.push(index);
                self.bytes -= record.read.page.len();
                self.done_len += record.read.asked.judged_len(record.read.page.len());
                let done = &mut self.done;
                self.spare.push(record.end(|asked, completed| done.push(asked.job(completed))));
            }
        }
    }

    /// Nothing is freed that the kernel may have, and nobody left waiting. Gives the ring that goes on in its place;
    /// where there is none, nothing more is taken in.
    fn fail(mut self, error: &io::Error, failures: u32) -> Option<Self> {
        for record in self.table.iter_mut().filter_map(Option::take) {
            self.done.push(record.leak().job(Completed::Lost));
        }
        self.hand_over();
        // Panics may have taken the rest.
        self.sink.lose(self.owed - self.waiting.len());
        let Self { kernel, setup, inbox, sink, waiting, registered, spare, .. } = self;
        std::mem::forget((kernel, spare));
        let next = if failures < FAILURES_MAX {
            Self::new(setup, Arc::clone(&inbox), sink.clone())
        } else {
            Err(format!("{failures} rings failed on this thread"))
        };
        let mut letters = lock(&inbox.letters);
        letters.failures.push(error.to_string());
        match next {
            Ok(mut next) => {
                drop(letters);
                tracing::error!(%error, failures, "a ring failed and is replaced; its pages are leaked");
                next.owed = waiting.len();
                next.waiting = waiting;
                let missed = next.registered.take_over(registered, &mut next.kernel);
                inbox.tell(missed, next.registered.len());
                Some(next)
            }
            Err(why) => {
                letters.given_up = true;
                let late = std::mem::take(&mut letters.reads);
                letters.errands.clear();
                drop(letters);
                tracing::error!(%error, why, "a ring failed; its pages are leaked, and others read from now on");
                let reads = waiting.into_iter().chain(late);
                let jobs = reads.map(|read| read.asked.job(Completed::Unclear(read.page)));
                sink.finish(jobs.collect(), 0);
                None
            }
        }
    }
}

/// Whether the kernel may well take the next turn.
fn passes(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

/// A ring is trusted with pages only when it has told of an entry.
fn prove(kernel: &mut Kernel, sys: &Sys) -> io::Result<()> {
    let mut refused = 0;
    loop {
        match sys.check_enter().and_then(|()| kernel.prove()) {
            Err(error) if passes(&error) && refused < REFUSED_MAX => refused += 1,
            proven => return proven,
        }
    }
}

/// What a ring of this machine goes without, registered memory of its own included.
pub(super) fn probe() -> Result<Vec<Fallback>, String> {
    let mut kernel = Kernel::build(1, Issuer::One)?;
    let refused = |error: io::Error| format!("io_uring_enter: {error}; {}", likely_cause(&error));
    prove(&mut kernel, &Sys::default()).map_err(refused)?;
    let (memory, sys) = (RegionSpec::default(), Sys::default());
    let block = Alignment::base_page();
    let setup = Setup { depth: 1, block, beyond: block, memory, reads_wait: false, sys };
    let tails = tails(&setup).map_err(|error| error.to_string())?;
    let region = tails[0].pool().region();
    let mut without = std::mem::take(&mut kernel.without);
    if !Registered::new(region, &mut kernel).has_tails() && without.is_empty() {
        let why =
            "io_uring_register: memory is not taken; the limit of locked memory is too low; raise ulimit -l";
        without.push(Fallback { what: "registered_buffers", why: why.to_owned() });
    }
    Ok(without)
}
