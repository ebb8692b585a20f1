//! The thread that goes on with what consists of several steps, whether or not somebody waits for it.
//!
//! A step is over when the tier that does it wakes the task; the driver only polls tasks then, and rings the alarms
//! that end their waits. A task's first poll is on the thread that starts it, so that its first step starts at the
//! call and a tier that needs no waiting costs no change of threads.

use hicache_core::{Pending, Reply, replies};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Alarms that nobody waits for any more and that may lie in the heap before it is cleaned.
const STALE_MAX: usize = 1024;

/// The thread. Dropped, it ends what was started, as far as the time allows, then itself.
#[derive(Debug)]
pub(crate) struct Driver {
    tasks: Tasks,
    thread: Option<JoinHandle<()>>,
    patience: Duration,
}

/// Where tasks are started. Clones are the same place.
#[derive(Clone, Debug)]
pub(crate) struct Tasks(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    tasks: BTreeMap<u64, Arc<Task>>,
    started: u64,
    ready: VecDeque<Arc<Task>>,
    alarms: BinaryHeap<Reverse<Alarm>>,
    stale_max: usize,
    /// No more is accepted.
    closed: bool,
    /// When the thread ends at the latest, once it is to end.
    end_by: Option<Option<Instant>>,
    ended: bool,
    /// Who waits until nothing that was accepted is left.
    idle: Vec<Reply<()>>,
}

struct Task {
    number: u64,
    /// A close waits for it.
    accepted: bool,
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    queued: AtomicBool,
    shared: Arc<Shared>,
}

struct Alarm {
    at: Instant,
    sleeper: Weak<Mutex<Sleeper>>,
}

#[derive(Default)]
struct Sleeper {
    rung: bool,
    waker: Option<Waker>,
}

/// What `pending` gives, unless it takes longer than until some moment.
pub(crate) struct Within<'a, T> {
    pending: &'a mut Pending<T>,
    until: Option<Instant>,
    shared: Arc<Shared>,
    sleeper: Option<Arc<Mutex<Sleeper>>>,
}

impl Driver {
    /// `patience` is how long a drop waits for what was started.
    pub(crate) fn start(patience: Duration) -> io::Result<Self> {
        let shared: Arc<Shared> = Arc::default();
        let tasks = Tasks(Arc::clone(&shared));
        let thread =
            std::thread::Builder::new().name("hicache-tier".to_string()).spawn(move || shared.work())?;
        Ok(Self { tasks, thread: Some(thread), patience })
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        &self.tasks
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let mut state = lock(&self.tasks.0.state);
        state.closed = true;
        state.end_by = Some(Instant::now().checked_add(self.patience));
        drop(state);
        self.tasks.0.changed.notify_all();
        let Some(thread) = self.thread.take() else { return };
        // The last handle may go in a task, or where a waker of the caller's runs.
        if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
            tracing::error!("the thread of a store made of tiers had panicked");
        }
    }
}

impl Tasks {
    /// Starts what a close waits for.
    pub(crate) fn accept(&self, future: impl Future<Output = ()> + Send + 'static) {
        if let Some(task) = self.add(true, future) {
            task.poll();
        }
    }

    /// As [`Tasks::accept`], but its first step is the thread's: for work that must not hold up its caller.
    pub(crate) fn follow(&self, future: impl Future<Output = ()> + Send + 'static) {
        if let Some(task) = self.add(true, future) {
            task.wake();
        }
    }

    /// Does what is no operation on pages, also after a close.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = hicache_core::Result<T>> + Send + 'static,
    ) -> Pending<hicache_core::Result<T>> {
        let (mut replies, outcomes, _) = replies(1);
        let reply: Reply<T> = replies.pop().expect("one was asked for");
        if let Some(task) = self.add(false, async move { reply.send(future.await) }) {
            task.poll();
        }
        Pending::new(async move { outcomes.await.into_iter().next().expect("one outcome for one reply") })
    }

    fn add(&self, accepted: bool, future: impl Future<Output = ()> + Send + 'static) -> Option<Arc<Task>> {
        let mut state = lock(&self.0.state);
        if state.ended {
            return None;
        }
        state.started += 1;
        let task = Arc::new(Task {
            number: state.started,
            accepted,
            future: Mutex::new(Some(Box::pin(future))),
            queued: AtomicBool::new(false),
            shared: Arc::clone(&self.0),
        });
        state.tasks.insert(task.number, Arc::clone(&task));
        Some(task)
    }

    /// From now on, nothing more is to be accepted.
    pub(crate) fn close(&self) {
        lock(&self.0.state).closed = true;
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.0.state).closed
    }

    /// Resolves when nothing that was accepted is left.
    pub(crate) fn idle(&self) -> Pending<()> {
        let (mut replies, outcomes, _) = replies(1);
        let reply = replies.pop().expect("one was asked for");
        let mut state = lock(&self.0.state);
        if state.is_idle() {
            drop(state);
            reply.send(Ok(()));
        } else {
            state.idle.push(reply);
        }
        Pending::new(async move { drop(outcomes.await) })
    }

    /// What `pending` gives, or `None` if that takes longer than `until`; `None` there is no limit.
    pub(crate) fn within<'a, T>(&self, pending: &'a mut Pending<T>, until: Option<Instant>) -> Within<'a, T> {
        Within { pending, until, shared: Arc::clone(&self.0), sleeper: None }
    }
}

impl Shared {
    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            let now = Instant::now();
            if let Some(task) = state.ready.pop_front() {
                drop(state);
                task.poll();
            } else if let Some(sleeper) = state.due(now) {
                drop(state);
                ring(&sleeper);
            } else if state.is_over(now) {
                break;
            } else {
                let next = state.next_event();
                state = match next {
                    None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                    Some(at) => {
                        let waited = self.changed.wait_timeout(state, at.saturating_duration_since(now));
                        waited.unwrap_or_else(PoisonError::into_inner).0
                    }
                };
                continue;
            }
            state = lock(&self.state);
        }
        state.ended = true;
        let left = std::mem::take(&mut state.tasks);
        state.ready.clear();
        drop(state);
        // Whoever waits is answered as closed; what a tier still has stays with it.
        for task in left.into_values() {
            drop(lock(&task.future).take());
        }
    }

    fn ended(&self, task: &Task) {
        let mut state = lock(&self.state);
        state.tasks.remove(&task.number);
        let idle = if state.is_idle() { std::mem::take(&mut state.idle) } else { Vec::new() };
        let is_last = state.end_by.is_some() && state.tasks.is_empty();
        drop(state);
        idle.into_iter().for_each(|reply| reply.send(Ok(())));
        if is_last {
            self.changed.notify_all();
        }
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.tasks.values().all(|task| !task.accepted)
    }

    fn is_over(&self, now: Instant) -> bool {
        self.end_by.is_some_and(|by| self.tasks.is_empty() || by.is_some_and(|by| now >= by))
    }

    /// An alarm whose time has come.
    fn due(&mut self, now: Instant) -> Option<Arc<Mutex<Sleeper>>> {
        while self.alarms.peek().is_some_and(|Reverse(alarm)| alarm.at <= now) {
            let Reverse(alarm) = self.alarms.pop()?;
            if let Some(sleeper) = alarm.sleeper.upgrade() {
                return Some(sleeper);
            }
        }
        None
    }

    fn next_event(&self) -> Option<Instant> {
        let alarm = self.alarms.peek().map(|Reverse(alarm)| alarm.at);
        [alarm, self.end_by.flatten()].into_iter().flatten().min()
    }

    /// Adds an alarm; whether it is now the first.
    fn add_alarm(&mut self, alarm: Alarm) -> bool {
        if self.alarms.len() > self.stale_max.max(STALE_MAX) {
            self.alarms.retain(|Reverse(alarm)| alarm.sleeper.strong_count() > 0);
            self.stale_max = 2 * self.alarms.len();
        }
        let first = self.alarms.peek().is_none_or(|Reverse(first)| alarm.at < first.at);
        self.alarms.push(Reverse(alarm));
        first
    }
}

impl Task {
    fn poll(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let mut slot = lock(&self.future);
        // From here on a wake means that there may be something new.
        self.queued.store(false, Ordering::SeqCst);
        let Some(future) = slot.as_mut() else { return };
        let polled =
            catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut Context::from_waker(&waker))));
        match polled {
            Ok(Poll::Pending) => return,
            Ok(Poll::Ready(())) => (),
            Err(_) => tracing::error!("an operation on tiers panicked; it is answered as failed"),
        }
        let over = slot.take();
        drop(slot);
        drop(over);
        self.shared.ended(&self);
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if self.queued.swap(true, Ordering::SeqCst) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let mut state = lock(&shared.state);
        if !state.ended {
            state.ready.push_back(self);
        }
        drop(state);
        shared.changed.notify_one();
    }
}

impl<T> Future for Within<'_, T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        if let Poll::Ready(value) = Pin::new(&mut *self.pending).poll(context) {
            return Poll::Ready(Some(value));
        }
        let Some(until) = self.until else { return Poll::Pending };
        if Instant::now() >= until {
            return Poll::Ready(None);
        }
        if let Some(sleeper) = &self.sleeper {
            let mut sleeper = lock(sleeper);
            if sleeper.rung {
                return Poll::Ready(None);
            }
            sleeper.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        let sleeper = Arc::new(Mutex::new(Sleeper { rung: false, waker: Some(context.waker().clone()) }));
        let alarm = Alarm { at: until, sleeper: Arc::downgrade(&sleeper) };
        self.sleeper = Some(sleeper);
        if lock(&self.shared.state).add_alarm(alarm) {
            self.shared.changed.notify_one();
        }
        Poll::Pending
    }
}

fn ring(sleeper: &Mutex<Sleeper>) {
    let mut sleeper = lock(sleeper);
    sleeper.rung = true;
    let waker = sleeper.waker.take();
    drop(sleeper);
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl PartialEq for Alarm {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Alarm {}

impl PartialOrd for Alarm {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Alarm {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("tasks", &self.tasks.len())
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
