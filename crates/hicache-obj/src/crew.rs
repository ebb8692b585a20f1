//! The store's own runtime, and the queue in front of it.
//!
//! A batch becomes jobs in one of four lanes; at most so many run at once, each on a task that takes the next job when
//! it is done with one. The runtime belongs to a thread of its own, which ends it when the store is closed or gone
//! and what was accepted is done: it is never dropped inside a task of the caller's.

use futures_util::FutureExt;
use hicache_core::{Error, ErrorKind, Outcomes, Pending, Priority, Reply, Result, replies};
use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Jobs that may wait before a batch, which may have any length, is refused rather than let the queue grow.
pub(crate) const QUEUE_MAX: usize = 65_536;

/// Every so many jobs, one comes from the lane that is last in line, so that none starves.
const FAIR_TURN: u32 = 8;

/// How long the end of a runtime waits for what it cannot end.
const LAST_WAIT: Duration = Duration::from_millis(200);

/// Work on one item, which owns its page.
pub(crate) type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What goes first: gets before sets, and either before what nobody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Read,
    Write,
    BackgroundRead,
    BackgroundWrite,
}

/// The runtime and its queue.
pub(crate) struct Crew {
    shared: Arc<Shared>,
    handle: Handle,
    keeper: Mutex<Option<thread::JoinHandle<()>>>,
}

struct Shared {
    queue: Mutex<Queue>,
    /// Jobs at once.
    crew: usize,
    /// The keeper's: closed, and nothing left.
    ended: Notify,
    threads: Mutex<HashSet<ThreadId>>,
}

#[derive(Default)]
struct Queue {
    lanes: [VecDeque<Job>; 4],
    waiting: usize,
    running: usize,
    aside: usize,
    turn: u32,
    closed: bool,
    ended: bool,
    closers: Vec<Reply<()>>,
}

impl Lane {
    pub(crate) fn read(priority: Priority) -> Self {
        if priority == Priority::Normal { Self::Read } else { Self::BackgroundRead }
    }

    pub(crate) fn write(priority: Priority) -> Self {
        if priority == Priority::Normal { Self::Write } else { Self::BackgroundWrite }
    }
}

impl Crew {
    /// Starts a runtime of `threads` threads that does `crew` jobs at once.
    pub(crate) fn start(threads: usize, crew: usize) -> Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            crew,
            ended: Notify::new(),
            threads: Mutex::default(),
        });
        let mine = Arc::clone(&shared);
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("hicache-obj")
            .on_thread_start(move || {
                lock(&mine.threads).insert(thread::current().id());
            })
            .enable_all()
            .build()
            .map_err(not_started)?;
        let handle = runtime.handle().clone();
        let keeps = Arc::clone(&shared);
        let keeper = thread::Builder::new()
            .name("hicache-obj-keeper".to_string())
            .spawn(move || {
                runtime.block_on(keeps.ended.notified());
                // All that was accepted is done; what is left is a name that a resolver is still asked for.
                runtime.shutdown_timeout(LAST_WAIT);
                let closers = {
                    let mut queue = lock(&keeps.queue);
                    queue.ended = true;
                    std::mem::take(&mut queue.closers)
                };
                closers.into_iter().for_each(|closer| closer.send(Ok(())));
            })
            .map_err(not_started)?;
        Ok(Self { shared, handle, keeper: Mutex::new(Some(keeper)) })
    }

    /// Queues jobs. Whether some must wait; where they are refused they come back, and with them their pages.
    pub(crate) fn submit(&self, lane: Lane, jobs: Vec<Job>) -> Result<bool, (Error, Vec<Job>)> {
        let mut queue = lock(&self.shared.queue);
        if queue.closed {
            return Err((closed(), jobs));
        }
        if queue.waiting >= QUEUE_MAX {
            let error = Error::new(ErrorKind::Exhausted, "queue batch")
                .why("too many items wait for the service")
                .with("waiting", queue.waiting)
                .with("limit", QUEUE_MAX)
                .retryable();
            return Err((error, jobs));
        }
        queue.waiting += jobs.len();
        queue.lanes[lane as usize].extend(jobs);
        let hands = self.shared.crew.saturating_sub(queue.running).min(queue.waiting);
        queue.running += hands;
        // Each hand is given its first job here: left in line until the hand has begun, it could be overtaken by jobs
        // that come later, and would wait where it was said not to.
        let first: Vec<Job> = (0..hands).filter_map(|_| queue.next()).collect();
        let some_wait = queue.waiting > 0;
        drop(queue);
        for job in first {
            self.handle.spawn(work(Arc::clone(&self.shared), job));
        }
        Ok(some_wait)
    }

    /// Does one thing beside the line: operators' questions, which may take long, or ask further ones.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Pending<Result<T>> {
        let mut queue = lock(&self.shared.queue);
        if queue.closed {
            return Pending::ready(Err(closed()));
        }
        queue.aside += 1;
        drop(queue);
        let (mut one, outcomes, _) = replies(1);
        let (reply, aside): (Reply<T>, _) = (one.remove(0), Aside(Arc::clone(&self.shared)));
        self.handle.spawn(async move {
            reply.send(work.await);
            drop(aside);
        });
        Pending::new(async move { first(outcomes.await) })
    }

    /// Something to do at `deadline`, once it is [set](Alarm::set).
    pub(crate) fn at(&self, deadline: Instant, act: impl FnOnce() + Send + 'static) -> Alarm {
        let act: Act = Box::new(act);
        Alarm { handle: self.handle.clone(), deadline, act: Mutex::new(Some(act)), task: OnceLock::new() }
    }

    /// Takes nothing more; resolves when what was accepted is done and the runtime gone.
    pub(crate) fn close(&self) -> Pending<Result<()>> {
        let (mut one, outcomes, _) = replies(1);
        let mut queue = lock(&self.shared.queue);
        if queue.ended {
            return Pending::ready(Ok(()));
        }
        queue.closers.push(one.remove(0));
        queue.closed = true;
        let over = queue.is_over();
        drop(queue);
        if over {
            self.shared.ended.notify_one();
        }
        Pending::new(async move { first(outcomes.await) })
    }
}

type Act = Box<dyn FnOnce() + Send>;

/// An action that waits for its time, once it is set. Dropping it calls it off.
pub(crate) struct Alarm {
    handle: Handle,
    deadline: Instant,
    act: Mutex<Option<Act>>,
    task: OnceLock<JoinHandle<()>>,
}

impl Alarm {
    /// Has effect once.
    pub(crate) fn set(&self) {
        let act = self.act.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(act) = act {
            let deadline = self.deadline;
            let task = self.handle.spawn(async move {
                tokio::time::sleep_until(deadline).await;
                act();
            });
            let _ = self.task.set(task);
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

/// Something that is done beside the line, whatever comes of it.
struct Aside(Arc<Shared>);

impl Drop for Aside {
    fn drop(&mut self) {
        let mut queue = lock(&self.0.queue);
        queue.aside -= 1;
        let over = queue.is_over();
        drop(queue);
        if over {
            self.0.ended.notify_one();
        }
    }
}

/// Does a job, and others until there are none.
async fn work(shared: Arc<Shared>, mut job: Job) {
    loop {
        // A job that panics has dropped its reply, which says so; the others go on.
        if AssertUnwindSafe(job).catch_unwind().await.is_err() {
            tracing::error!("a job of the store panicked");
        }
        let mut queue = lock(&shared.queue);
        match queue.next() {
            Some(next) => job = next,
            None => {
                queue.running -= 1;
                let over = queue.is_over();
                drop(queue);
                if over {
                    shared.ended.notify_one();
                }
                return;
            }
        }
    }
}

impl Queue {
    fn next(&mut self) -> Option<Job> {
        self.turn = self.turn.wrapping_add(1);
        let mut lanes = self.lanes.iter_mut();
        let job = if self.turn.is_multiple_of(FAIR_TURN) {
            lanes.rev().find_map(VecDeque::pop_front)
        } else {
            lanes.find_map(VecDeque::pop_front)
        }?;
        self.waiting -= 1;
        Some(job)
    }

    fn is_over(&self) -> bool {
        self.closed && self.waiting == 0 && self.running == 0 && self.aside == 0
    }
}

impl Drop for Crew {
    /// What was accepted is still done. Waits for that, unless the last handle goes on a thread of the runtime's own.
    fn drop(&mut self) {
        drop(self.close());
        let keeper = self.keeper.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let own = lock(&self.shared.threads).contains(&thread::current().id());
        if let Some(keeper) = keeper.filter(|_| !own)
            && keeper.join().is_err()
        {
            tracing::error!("the store's runtime had panicked");
        }
    }
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").field("jobs", &self.shared.crew).finish_non_exhaustive()
    }
}

/// The answer to a batch of one.
fn first<T>(outcomes: Outcomes<T>) -> Result<T> {
    outcomes.into_iter().next().expect("contract 1: one outcome per item")
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "use store").why("the store is closed")
}

fn not_started(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Exhausted, "open store")
        .why("the store's threads could not be started")
        .fix("raise ulimit -u, or set threads to fewer")
        .because(error)
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_job_that_need_not_wait_is_not_overtaken_by_later_ones_that_go_first() {
        for _ in 0..200 {
            let crew = Crew::start(1, 1).unwrap();
            let (order, told) = mpsc::channel();
            let job = |name: &'static str| {
                let order = order.clone();
                let job: Job = Box::pin(async move { order.send(name).unwrap() });
                job
            };
            let jobs = |name, count| (0..count).map(|_| job(name)).collect::<Vec<_>>();
            let first = crew.submit(Lane::BackgroundWrite, jobs("first", 1)).map_err(|(error, _)| error);
            let later = crew.submit(Lane::Read, jobs("later", 6)).map_err(|(error, _)| error);
            assert!(!first.unwrap(), "it has a hand of its own");
            later.unwrap();
            assert_eq!(told.recv().unwrap(), "first");
            drop(crew);
        }
    }
}
