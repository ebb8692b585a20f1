//! A lone get on the caller's thread: a ring of one read, waited for as long as a medium needs that is well.
//!
//! A page that is alone gains nothing from a ring's thread and pays for being handed over twice. Its caller enters a
//! small ring himself, and gives it to a worker when it takes longer: so nobody is held up beyond [`PATIENCE`],
//! whatever the medium does.

use super::Read;
use super::kernel::{Issuer, Kernel, Parts, Step, place};
use super::record::{Record, tails};
use super::turn::Setup;
use crate::asked::{Asked, Completed};
use crate::engine::{Job, Turn};
use hicache_core::{Fallback, PageMut};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long a caller waits for his own page. Longer than the kernel's tick, whose timer then need not be set anew for
/// each wait: a virtual machine pays for that.
const PATIENCE: Duration = Duration::from_millis(10);

/// Lone gets that go to the workers after one that outlasted the patience: a slow medium does not hold up everybody.
const SHY: u32 = 64;

/// Rings that are kept for the next.
const KEPT_MAX: usize = 8;

/// Small rings that callers enter themselves.
pub(crate) struct Lones {
    shared: Arc<Shared>,
}

struct Shared {
    setup: Setup,
    kept: Mutex<Vec<Kept>>,
    /// Gets that are still to go to the workers.
    shy: AtomicU32,
    /// Why there are none.
    without: OnceLock<Fallback>,
}

struct Kept {
    kernel: Kernel,
    tail: PageMut,
    parts: Parts,
}

/// A read on a ring of its own.
pub(crate) struct Lone {
    shared: Arc<Shared>,
    /// Leaked with the record.
    kernel: Option<Kernel>,
    record: Option<Record>,
}

/// How a lone read began.
pub(crate) enum Begun {
    /// Not at all: a worker reads it.
    Not(Read),
    /// It is over; what came of it was handed on.
    Over,
    /// It takes its time.
    Goes(Box<Lone>),
}

impl Lones {
    pub(super) fn new(setup: Setup) -> Self {
        let setup = Setup { depth: 1, ..setup };
        let shared =
            Shared { setup, kept: Mutex::default(), shy: AtomicU32::new(0), without: OnceLock::new() };
        Self { shared: Arc::new(shared) }
    }

    /// Lets go of the rings that wait for the next get.
    pub(super) fn let_go(&self) {
        let kept = std::mem::take(&mut *self.shared.kept.lock().unwrap_or_else(PoisonError::into_inner));
        drop(kept);
    }

    /// Why the workers read all, if they do.
    pub(super) fn without(&self) -> Option<Fallback> {
        self.shared.without.get().cloned()
    }

    /// Reads on this thread. What came of it goes to `act`, unless it takes long.
    pub(crate) fn begin(&self, read: Read, act: impl FnOnce(Asked, Completed)) -> Begun {
        let shy = |count: u32| count.checked_sub(1);
        if self.shared.shy.fetch_update(Ordering::Relaxed, Ordering::Relaxed, shy).is_ok() {
            return Begun::Not(read);
        }
        let Some(Kept { kernel, tail, parts }) = self.shared.take() else { return Begun::Not(read) };
        let record = Record::new(read, tail, parts, self.shared.setup.beyond);
        let mut lone = Lone { shared: Arc::clone(&self.shared), kernel: None, record: None };
        lone.kernel.insert(kernel).push_chain(0, lone.record.insert(record));
        match lone.wait(Some(Instant::now() + PATIENCE)) {
            Ok(false) => {
                self.shared.shy.store(SHY, Ordering::Relaxed);
                Begun::Goes(Box::new(lone))
            }
            ended => {
                lone.end(ended.map(drop), act);
                Begun::Over
            }
        }
    }
}

impl Shared {
    /// A ring that was used before, or a new one.
    fn take(&self) -> Option<Kept> {
        if let Some(parts) = self.kept.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Some(parts);
        }
        match self.make() {
            Ok(made) => Some(made),
            Err(why) => {
                self.shy.store(u32::MAX, Ordering::Relaxed);
                let why = format!("a ring for lone gets: {why}; workers read them");
                tracing::warn!(what = "io_uring", why, "fallback");
                // Of several that tried at once, one tells.
                let _ = self.without.set(Fallback { what: "io_uring", why });
                None
            }
        }
    }

    fn make(&self) -> Result<Kept, String> {
        let kernel = Kernel::build(1, Issuer::Any)?;
        if !kernel.has_table() {
            return Err("it has no table of files".to_string());
        }
        let tail = tails(&self.setup).map_err(|error| error.to_string())?.pop().expect("one was asked for");
        Ok(Kept { kernel, tail, parts: Parts::default() })
    }

    fn keep(&self, done: Kept) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_MAX {
            kept.push(done);
        }
    }
}

impl Lone {
    /// The job that waits for the rest.
    pub(crate) fn job(self: Box<Self>) -> Job {
        let counters = self.record.as_ref().map(|record| Arc::clone(&record.read.asked.view.counters));
        let run = move |turn: Turn<'_>| {
            let mut left = None;
            self.finish(|asked, completed| left = Some(asked.job(completed)));
            if let Some(job) = left {
                (job.run)(turn);
            }
        };
        Job { deadline: None, run: Box::new(run), counters: counters.unwrap_or_default(), waits: true }
    }

    /// Waits for the rest, on a worker. Past its deadline the kernel is asked to let go of it.
    fn finish(mut self, act: impl FnOnce(Asked, Completed)) {
        let deadline = self.record.as_ref().and_then(|record| record.read.deadline);
        let mut ended = self.wait(deadline);
        if let (Ok(false), Some(record), Some(kernel)) = (&ended, &mut self.record, &mut self.kernel) {
            record.cancelled = kernel.push_cancel(0);
            ended = self.wait(None);
        }
        self.end(ended.map(drop), act);
    }

    /// Whether it is over, by `until` at the latest.
    fn wait(&mut self, until: Option<Instant>) -> io::Result<bool> {
        loop {
            if self.reap() {
                return Ok(true);
            }
            let limit = until.map(|until| until.saturating_duration_since(Instant::now()));
            if limit.is_some_and(|limit| limit.is_zero()) {
                return Ok(false);
            }
            let Some(kernel) = &mut self.kernel else { return Ok(true) };
            match self.shared.setup.sys.check_enter().and_then(|()| kernel.enter(1, limit)) {
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) =>
                {
                    std::thread::yield_now();
                }
                entered => entered?,
            }
        }
    }

    fn reap(&mut self) -> bool {
        let (Some(record), Some(kernel)) = (&mut self.record, &mut self.kernel) else { return true };
        while let Some((data, result)) = kernel.next() {
            let path = || record.read.path.to_string_lossy().into_owned();
            match place(data).1 {
                Some(Step::Close) => return true,
                Some(step @ Step::Open) => {
                    record.told(step, self.shared.setup.sys.completion(result, path));
                    return true;
                }
                Some(step @ Step::Read) => record.told(step, self.shared.setup.sys.completion(result, path)),
                _ => (),
            }
        }
        false
    }

    fn end(mut self, ended: io::Result<()>, act: impl FnOnce(Asked, Completed)) {
        let Some(record) = self.record.take() else { return };
        if let Err(error) = ended {
            tracing::error!(%error, "the ring of a lone read failed; its page is leaked");
            std::mem::forget(self.kernel.take());
            return act(record.leak(), Completed::Lost);
        }
        let cancelled = record.cancelled;
        let (tail, parts) = record.end(act);
        // What cancels may still be told of, to whoever uses the ring next.
        if let Some(kernel) = self.kernel.take().filter(|_| !cancelled) {
            self.shared.keep(Kept { kernel, tail, parts });
        }
    }
}

impl Drop for Lone {
    /// What the kernel has is leaked; whoever asked is told when his reply goes.
    fn drop(&mut self) {
        if let Some(record) = self.record.take() {
            std::mem::forget(self.kernel.take());
            drop(record.leak());
        }
    }
}

impl fmt::Debug for Lones {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lones")
    }
}
