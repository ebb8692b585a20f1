//! The engine `threads`: workers that each move one page at a time, and a watch that ends waits at their deadline.
//!
//! A job is the record of its operations: it owns their pages until the kernel has let go of them, since each
//! system call is over when it returns (invariant 4). A deadline answers the caller; the job, if it has begun,
//! goes on to its end and only then gives its pages back.

use crate::asked::Completed;
use crate::own::Ending;
use crate::ring::{Begun, Read, Rings};
use crate::slot::Slot;
use hicache_core::{Counters, Error, ErrorKind, Fallback, Pending, Reply, Result, replies};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Jobs that wait at which no batch is added: it is refused as exhausted, whole. A batch may be of any length itself.
const JOBS_MAX: usize = 64 * 1024;

/// Every so many jobs, the last lane that has one goes first, so that none waits for ever.
const FAIR_EVERY: u64 = 8;

/// Bytes of pages that one more worker is woken for to judge.
const JUDGED_LEN: usize = 2 << 20;

/// Ended waits that may lie in the watch's heap before it is cleaned.
const ENDED_MAX: usize = 1024;

/// What goes first. Reads go before writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Read,
    Write,
    BackgroundRead,
    BackgroundWrite,
}

const LANES: usize = 4;

/// One thing for a worker to do.
pub(crate) struct Job {
    /// Not begun after this.
    pub(crate) deadline: Option<Instant>,
    /// Does it, or, when told that the deadline has passed, answers so.
    pub(crate) run: Box<dyn FnOnce(Turn<'_>) + Send>,
    /// Counts a panic.
    pub(crate) counters: Arc<Counters>,
    /// It may wait for the medium, so that what is queued behind it wants another worker.
    pub(crate) waits: bool,
}

/// What a worker gives a job.
pub(crate) enum Turn<'a> {
    /// Its memory.
    Go(&'a mut Slot),
    /// Too late.
    Late,
}

/// The workers and the watch of one store.
#[derive(Debug)]
pub(crate) struct Engine {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    watch: Option<JoinHandle<()>>,
    rings: Option<Rings>,
}

/// Where rings send their reads to be judged.
#[derive(Clone, Debug)]
pub(crate) struct Sink(Arc<Shared>);

impl Sink {
    /// One job for each read that a ring has no more; `len` bytes of pages in all are to be judged.
    ///
    /// Judging is short: one worker is woken for many pages, and wakes another when it meets one that takes longer.
    pub(crate) fn finish(&self, jobs: Vec<Job>, len: usize) {
        if jobs.is_empty() {
            return;
        }
        let count = jobs.len();
        let mut queue = lock(&self.0.queue);
        queue.away -= count;
        queue.waiting += count;
        queue.lanes[Lane::Read as usize].extend(jobs);
        drop(queue);
        self.0.wake(count.min(1 + len / JUDGED_LEN));
    }

    /// `count` reads will have no job: they are over, or their makers panicked.
    pub(crate) fn lose(&self, count: usize) {
        let mut queue = lock(&self.0.queue);
        queue.away -= count;
        let ends = queue.closed && queue.away == 0;
        drop(queue);
        if ends {
            self.0.work.notify_all();
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    watch: Mutex<Watch>,
    deadline: Condvar,
}

#[derive(Default)]
struct Queue {
    lanes: [VecDeque<Job>; LANES],
    waiting: usize,
    taken: u64,
    /// Workers that wait for a job.
    idle: usize,
    /// Reads that rings have; each comes back as a job.
    away: usize,
    closed: bool,
    workers: usize,
    /// Who waits for the last worker to end.
    ended: Vec<Reply<()>>,
}

#[derive(Debug, Default)]
struct Watch {
    waits: BinaryHeap<Reverse<Wait>>,
    ended_max: usize,
    closed: bool,
}

/// A batch whose caller waits until `deadline`.
#[derive(Debug)]
struct Wait {
    deadline: Instant,
    ending: Ending,
    counters: Arc<Counters>,
}

impl Engine {
    /// Starts one worker for each slot.
    pub(crate) fn start(slots: Vec<Slot>) -> io::Result<Self> {
        let mut engine = Self { shared: Arc::default(), workers: Vec::new(), watch: None, rings: None };
        for slot in slots {
            let shared = Arc::clone(&engine.shared);
            lock(&shared.queue).workers += 1;
            let started = spawn("hicache-file", move || shared.work(slot));
            // What has started ends when `engine` is dropped.
            engine.workers.push(started.inspect_err(|_| lock(&engine.shared.queue).workers -= 1)?);
        }
        let shared = Arc::clone(&engine.shared);
        engine.watch = Some(spawn("hicache-watch", move || shared.watch())?);
        Ok(engine)
    }

    /// Takes one batch, whole or not at all: jobs for the workers, reads for a ring. One lock, one wake of each.
    pub(crate) fn submit(
        &self,
        lane: Lane,
        jobs: Vec<Job>,
        reads: Vec<Read>,
    ) -> std::result::Result<(), (Error, Vec<Job>, Vec<Read>)> {
        let (jobs_count, reads_count) = (jobs.len(), reads.len());
        let mut queue = lock(&self.shared.queue);
        if queue.closed {
            return Err((closed(), jobs, reads));
        }
        if queue.waiting + queue.away >= JOBS_MAX {
            return Err((full(queue.waiting + queue.away), jobs, reads));
        }
        queue.waiting += jobs_count;
        queue.away += reads_count;
        queue.lanes[lane as usize].extend(jobs);
        drop(queue);
        self.shared.wake(jobs_count);
        let refused = match &self.rings {
            _ if reads_count == 0 => Vec::new(),
            Some(rings) => rings.submit(reads).err().unwrap_or_default(),
            None => reads,
        };
        // The rings are gone: workers read.
        let redone = refused.into_iter().map(|read| read.asked.job(Completed::Unclear(read.page)));
        self.sink().finish(redone.collect(), 0);
        Ok(())
    }

    /// Reads a lone page on this thread, for as long as a medium needs that is well; a worker does the rest.
    pub(crate) fn read_alone(&self, read: Read) -> std::result::Result<(), (Error, Vec<Job>, Vec<Read>)> {
        let Some(rings) = &self.rings else { return self.submit(Lane::Read, Vec::new(), vec![read]) };
        let mut queue = lock(&self.shared.queue);
        if queue.closed {
            return Err((closed(), Vec::new(), vec![read]));
        }
        // From here on the workers stay until it is over.
        queue.away += 1;
        drop(queue);
        let mut left = None;
        let begun = rings.lones.begin(read, |asked, completed| left = asked.settle(completed));
        let job = match begun {
            Begun::Over => left,
            Begun::Not(read) => Some(read.asked.job(Completed::Unclear(read.page))),
            Begun::Goes(lone) => Some(lone.job()),
        };
        match job {
            Some(job) => self.sink().finish(vec![job], 0),
            None => self.sink().lose(1),
        }
        Ok(())
    }

    fn sink(&self) -> Sink {
        Sink(Arc::clone(&self.shared))
    }

    /// Adds rings, made by `start` of where their reads are to go. They read from now on.
    pub(crate) fn add_rings(
        &mut self,
        start: impl FnOnce(&Sink) -> std::result::Result<Rings, String>,
    ) -> std::result::Result<(), String> {
        self.rings = Some(start(&self.sink())?);
        Ok(())
    }

    /// The rings, if any of them reads.
    pub(crate) fn rings(&self) -> Option<&Rings> {
        self.rings.as_ref().filter(|rings| rings.work())
    }

    /// Ends the rings of an engine that is closed. Resolves when they are gone, with what they had locked.
    pub(crate) fn end_rings(&self) -> Pending<()> {
        let Some(ended) = self.rings.as_ref().map(Rings::stop) else { return Pending::ready(()) };
        Pending::new(async move { drop(ended.await) })
    }

    /// What the rings that there were to be go without.
    pub(crate) fn ring_fallbacks(&self) -> Vec<Fallback> {
        self.rings.as_ref().map(Rings::fallbacks).unwrap_or_default()
    }

    /// Ends the wait for a batch at `deadline`.
    pub(crate) fn expire_at(&self, deadline: Instant, ending: Ending, counters: &Arc<Counters>) {
        let mut watch = lock(&self.shared.watch);
        if watch.waits.len() > watch.ended_max.max(ENDED_MAX) {
            watch.waits.retain(|Reverse(wait)| !wait.ending.expiry.is_over());
            watch.ended_max = 2 * watch.waits.len();
        }
        let first = watch.waits.peek().is_none_or(|Reverse(wait)| deadline < wait.deadline);
        watch.waits.push(Reverse(Wait { deadline, ending, counters: Arc::clone(counters) }));
        drop(watch);
        if first {
            self.shared.deadline.notify_one();
        }
    }

    /// Takes no more. Resolves when everything accepted is done.
    pub(crate) fn close(&self) -> Pending<Result<()>> {
        let (mut replies, ended, _) = replies(1);
        let reply = replies.pop().expect("one was asked for");
        let mut queue = lock(&self.shared.queue);
        queue.closed = true;
        if queue.workers == 0 {
            reply.send(Ok(()));
        } else {
            queue.ended.push(reply);
        }
        drop(queue);
        self.shared.work.notify_all();
        Pending::new(async move { ended.await.into_iter().collect() })
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.shared.queue).closed
    }

    /// Does `act` on a worker, when its turn comes, however long that is.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        lane: Lane,
        act: impl FnOnce(&mut Slot) -> Result<T> + Send + 'static,
    ) -> Pending<Result<T>> {
        let (mut replies, outcomes, _) = replies(1);
        let reply: Reply<T> = replies.pop().expect("one was asked for");
        let run = move |turn: Turn<'_>| match turn {
            Turn::Go(slot) => reply.send(act(slot)),
            Turn::Late => reply.send(Err(late())),
        };
        let job = Job { deadline: None, run: Box::new(run), counters: Arc::default(), waits: true };
        if let Err((error, ..)) = self.submit(lane, vec![job], Vec::new()) {
            return Pending::ready(Err(error));
        }
        Pending::new(async move { outcomes.await.into_iter().next().expect("one outcome for one reply") })
    }
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "use store").why("the store was closed")
}

fn full(waiting: usize) -> Error {
    Error::new(ErrorKind::Exhausted, "queue batch")
        .why("the engine has as many operations waiting as it takes")
        .with("waiting", waiting)
        .with("limit", JOBS_MAX)
        .retryable()
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_string()).spawn(body)
}

impl Shared {
    /// Wakes `count` workers for new jobs.
    fn wake(&self, count: usize) {
        let idle = lock(&self.queue).idle;
        if count >= idle {
            self.work.notify_all();
        } else {
            (0..count).for_each(|_| self.work.notify_one());
        }
    }

    fn work(&self, mut slot: Slot) {
        while let Some(job) = self.next_job() {
            let counters = Arc::clone(&job.counters);
            let turn = if job.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                Turn::Late
            } else {
                Turn::Go(&mut slot)
            };
            // What a panic leaves half done is in the job, which is gone, and in the slot, which each job fills anew.
            if catch_unwind(AssertUnwindSafe(|| (job.run)(turn))).is_err() {
                Counters::add(&counters.worker_restarts, 1);
                Counters::add(&counters.errors, 1);
                tracing::error!(
                    "a worker panicked; its operation is answered as failed, and the worker goes on"
                );
            }
        }
        let mut queue = lock(&self.queue);
        queue.workers -= 1;
        let ended = if queue.workers == 0 { std::mem::take(&mut queue.ended) } else { Vec::new() };
        drop(queue);
        ended.into_iter().for_each(|reply| reply.send(Ok(())));
    }

    /// The next job, or `None` when there will be no more.
    fn next_job(&self) -> Option<Job> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(job) = queue.take() {
                if job.waits && queue.waiting > 0 && queue.idle > 0 {
                    self.work.notify_one();
                }
                return Some(job);
            }
            if queue.closed && queue.away == 0 {
                // The others may wait for what this one was woken for.
                self.work.notify_all();
                return None;
            }
            queue.idle += 1;
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }

    fn watch(&self) {
        let mut watch = lock(&self.watch);
        while !watch.closed {
            let now = Instant::now();
            let next = watch.waits.peek().map(|Reverse(wait)| wait.deadline);
            match next {
                None => watch = self.deadline.wait(watch).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) if deadline > now => {
                    let waited = self.deadline.wait_timeout(watch, deadline - now);
                    watch = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                Some(_) => {
                    let Some(Reverse(wait)) = watch.waits.pop() else { continue };
                    // Waking a caller may run the caller's code.
                    drop(watch);
                    let Wait { ending, counters, .. } = wait;
                    let expire = || {
                        let expired = ending.expire(&late()) as u64;
                        Counters::add(&counters.timeouts, expired);
                        Counters::add(&counters.errors, expired);
                    };
                    if catch_unwind(AssertUnwindSafe(expire)).is_err() {
                        tracing::error!("a waker panicked; the watch goes on");
                    }
                    watch = lock(&self.watch);
                }
            }
        }
    }
}

/// The error of what was not done by its deadline.
pub(crate) fn late() -> Error {
    Error::new(ErrorKind::Timeout, "wait for page")
        .why("the batch's deadline passed")
        .fix("a longer deadline, fewer bytes under way, or a faster medium")
        .retryable()
}

impl Queue {
    fn take(&mut self) -> Option<Job> {
        let fair = self.taken % FAIR_EVERY == FAIR_EVERY - 1;
        let mut lanes = self.lanes.iter_mut();
        let lane =
            if fair { lanes.rfind(|lane| !lane.is_empty()) } else { lanes.find(|lane| !lane.is_empty()) };
        let job = lane?.pop_front()?;
        self.taken += 1;
        self.waiting -= 1;
        Some(job)
    }
}

impl Drop for Engine {
    /// What was accepted is still done. Waits for the threads, unless the last handle goes on one of them.
    fn drop(&mut self) {
        lock(&self.shared.queue).closed = true;
        self.shared.work.notify_all();
        self.workers.drain(..).for_each(join);
        drop(self.rings.take());
        lock(&self.shared.watch).closed = true;
        self.shared.deadline.notify_all();
        self.watch.take().into_iter().for_each(join);
    }
}

fn join(thread: JoinHandle<()>) {
    if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
        tracing::error!("a thread of the store had panicked");
    }
}

impl PartialEq for Wait {
    fn eq(&self, other: &Self) -> bool {
        self.deadline == other.deadline
    }
}

impl Eq for Wait {}

impl PartialOrd for Wait {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Wait {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.deadline.cmp(&other.deadline)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("waiting", &self.waiting)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
