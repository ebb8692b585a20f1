//! The two tiers seen through one namespace: how long each may take, and what is counted.

use crate::driver::Tasks;
use crate::ledger::Ledger;
use crate::options::TierOptions;
use crate::queue::Slots;
use crate::store::{Carried, Tiers, closed};
use crate::tier::{Half, Left, Place, Verdict, is_final};
use crate::{reads, removal, writes};
use hicache_core::{
    Call, Capabilities, Counters, Deadline, Error, ErrorKind, Get, LeadingRun, Namespace, Outcomes, Page,
    PageKey, Pending, Put, Result, Stats, StorageBackend, Stored, replies,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A call's time is parted into so many, so that what is done one after the other each has its own.
const PARTS: u32 = 16;
/// What a tier is given that another is asked after, and when it is given up: its own answer may tell some items.
pub(crate) const BEFORE_OTHER: (u32, u32) = (8, 10);
/// What the last tier is given, and when the call is answered without it.
pub(crate) const LAST: (u32, u32) = (14, 15);

/// Pages of one namespace, in two tiers.
#[derive(Debug)]
pub(crate) struct TierBackend {
    /// Its thread goes on until the last handle is gone. Dropped first: what was accepted uses the view.
    _tiers: Arc<Tiers>,
    view: Arc<View>,
}

/// What an operation needs to know of its namespace.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) namespace: Namespace,
    pub(crate) first: Arc<Half>,
    pub(crate) second: Arc<Half>,
    pub(crate) options: TierOptions,
    pub(crate) tasks: Tasks,
    pub(crate) ledger: Ledger,
    pub(crate) slots: Slots,
    pub(crate) counters: Counters,
    pub(crate) carried: Arc<Carried>,
}

/// When a call began, and how much time it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    start: Instant,
    total: Duration,
}

/// A batch that a tier was asked to do, or why it was not.
pub(crate) struct Asked<T> {
    half: Arc<Half>,
    len: usize,
    given: Duration,
    /// None for a batch of nothing.
    pending: Result<Option<Pending<Outcomes<T>>>>,
}

impl Times {
    /// What is left of the first `parts`.
    pub(crate) fn left(&self, parts: u32) -> Duration {
        (self.total / PARTS * parts).saturating_sub(self.start.elapsed())
    }

    /// When the first `parts` are over; `None` where that is too far away to be told.
    pub(crate) fn at(&self, parts: u32) -> Option<Instant> {
        self.start.checked_add(self.total / PARTS * parts)
    }
}

impl View {
    pub(crate) fn times(&self, call: Call) -> Times {
        let total = match call.deadline {
            Deadline::Store => self.options.common.deadline,
            Deadline::After(after) => after,
        };
        Times { start: Instant::now(), total }
    }

    /// Which tiers are worth asking; both, where neither is.
    pub(crate) fn asks(&self) -> (bool, bool) {
        let now = Instant::now();
        let asks = |half: &Arc<Half>| {
            half.reopen(now);
            match half.tier.verdict(now) {
                Verdict::Ask => true,
                Verdict::Skip => false,
                Verdict::Probe => {
                    self.probe(half);
                    false
                }
            }
        };
        match (asks(&self.first), asks(&self.second)) {
            (false, false) => (true, true),
            asks => asks,
        }
    }

    /// No batch waits for it.
    fn probe(&self, half: &Arc<Half>) {
        let Some((mut pending, given)) = half.probe() else { return };
        let (half, tasks) = (Arc::clone(half), self.tasks.clone());
        let until = Instant::now().checked_add(given);
        drop(self.tasks.run(async move {
            let found = tasks.within(&mut pending, until).await;
            let found: Vec<Result<bool>> =
                found.map_or_else(|| vec![Err(late())], |all| all.into_iter().collect());
            half.tier.heard(&found, given);
            Ok(())
        }));
    }

    pub(crate) fn half(&self, place: Place) -> &Arc<Half> {
        match place {
            Place::First => &self.first,
            Place::Second => &self.second,
        }
    }

    /// Starts a batch of `len` items in a tier, which has `given` time for it; `asks`: it is worth asking.
    pub(crate) fn ask<T>(
        &self,
        (place, asks): (Place, bool),
        len: usize,
        (call, given): (Call, Duration),
        start: impl FnOnce(&dyn StorageBackend, Call) -> Pending<Outcomes<T>>,
    ) -> Asked<T> {
        let half = Arc::clone(self.half(place));
        let backend = if asks { half.backend() } else { Err(half.tier.lost("use tier")) };
        let call = Call { deadline: Deadline::After(given), ..call };
        let pending = backend.map(|backend| (len > 0).then(|| start(&*backend, call)));
        Asked { half, len, given, pending }
    }

    /// What came of it; of a tier that takes longer than `until`, that it was late.
    pub(crate) async fn answers<T>(&self, asked: Asked<T>, until: Option<Instant>) -> Vec<Result<T>> {
        let Asked { half, len, given, pending } = asked;
        // What is wrong with a tier that had no time left is not why there is no answer.
        let in_time = |error: Error| match error.kind() {
            ErrorKind::Timeout => error,
            _ if is_final(&error) || !given.is_zero() => error,
            _ => out_of_time().because(error),
        };
        let mut pending = match pending {
            Ok(Some(pending)) => pending,
            Ok(None) => return Vec::new(),
            Err(error) => return failed(len, &in_time(error)),
        };
        let mut answers: Vec<Result<T>> = match self.tasks.within(&mut pending, until).await {
            Some(outcomes) => outcomes.into_iter().collect(),
            None => failed(len, &late()),
        };
        answers.truncate(len);
        answers.resize_with(len, || Err(untold()));
        half.tier.heard(&answers, given);
        let name = half.tier.place.name();
        answers.into_iter().map(|answer| answer.map_err(|error| in_time(error).with("tier", name))).collect()
    }

    /// Counts an item that the tier at `place` left to the other.
    pub(crate) fn degraded(&self, place: Place, what: Left) {
        Counters::add(&self.counters.degraded, 1);
        self.half(place).tier.left(what);
    }

    fn count_errors<T>(&self, answers: &[Result<T>]) {
        for error in answers.iter().filter_map(|answer| answer.as_ref().err()) {
            Counters::add(&self.counters.errors, 1);
            Counters::add(&self.counters.timeouts, u64::from(error.kind() == ErrorKind::Timeout));
        }
    }
}

impl TierBackend {
    pub(crate) fn new(tiers: Arc<Tiers>, view: View) -> Self {
        Self { _tiers: tiers, view: Arc::new(view) }
    }

    fn accept<T: Send + 'static>(
        &self,
        len: usize,
        operation: impl Future<Output = Vec<Result<T>>> + Send + 'static,
    ) -> Pending<Outcomes<T>> {
        if self.view.tasks.is_closed() {
            drop(operation);
            Counters::add(&self.view.counters.errors, len as u64);
            return Pending::ready(Outcomes::failed(len, &closed()));
        }
        let (mut replies, answer, _) = replies(1);
        let reply = replies.pop().expect("one was asked for");
        let view = Arc::clone(&self.view);
        self.view.tasks.accept(async move {
            let answers = operation.await;
            view.count_errors(&answers);
            reply.send(Ok(answers));
        });
        Pending::new(async move {
            match answer.await.into_iter().next().expect("one outcome for one reply") {
                Ok(answers) => answers.into_iter().collect(),
                Err(error) => Outcomes::failed(len, &error),
            }
        })
    }
}

impl StorageBackend for TierBackend {
    /// The stricter alignment suits both: alignments are powers of two.
    fn capabilities(&self) -> Capabilities {
        let of = |half: &Half| half.backend().ok().map(|backend| backend.capabilities());
        match (of(&self.view.first), of(&self.view.second)) {
            (Some(first), Some(second)) => Capabilities::new(
                first.alignment.max(second.alignment),
                first.cheap_exists && second.cheap_exists,
            ),
            (Some(one), None) | (None, Some(one)) => Capabilities::new(one.alignment, false),
            (None, None) => Capabilities::new(hicache_core::Alignment::NONE, false),
        }
    }

    fn batch_set(&self, batch: Vec<Put>, call: Call) -> Pending<Outcomes<Stored>> {
        self.accept(batch.len(), writes::set(Arc::clone(&self.view), batch, call))
    }

    fn batch_get(&self, batch: Vec<Get>, call: Call) -> Pending<Outcomes<Option<Page>>> {
        self.accept(batch.len(), reads::get(Arc::clone(&self.view), batch, call))
    }

    fn batch_exists(&self, keys: &[PageKey], call: Call) -> Pending<Outcomes<bool>> {
        self.accept(keys.len(), reads::exists(Arc::clone(&self.view), keys.to_vec(), call))
    }

    fn leading_run(&self, keys: &[PageKey], call: Call) -> Pending<LeadingRun> {
        let (view, keys) = (Arc::clone(&self.view), keys.to_vec());
        let run = self.accept(1, async move {
            let run = reads::leading_run(Arc::clone(&view), keys, call).await;
            let error: Result<()> = run.error.clone().map_or(Ok(()), Err);
            view.count_errors(&[error]);
            vec![Ok(run)]
        });
        Pending::new(async move {
            let run = run.await.into_iter().next().expect("one outcome for one question");
            run.unwrap_or_else(|error| LeadingRun { len: 0, error: Some(error) })
        })
    }

    fn batch_remove(&self, keys: &[PageKey], call: Call) -> Pending<Outcomes<bool>> {
        self.accept(keys.len(), removal::remove(Arc::clone(&self.view), keys.to_vec(), call))
    }

    /// What was answered is counted here; how pages moved, and what was wrong with them, by the tiers.
    fn stats(&self) -> Stats {
        let mut stats = self.view.counters.snapshot();
        for half in [&self.view.first, &self.view.second] {
            let Ok(backend) = half.backend() else { continue };
            let of = backend.stats();
            stats.damaged += of.damaged;
            stats.unverified += of.unverified;
            stats.direct += of.direct;
            stats.bounced += of.bounced;
            stats.buffered += of.buffered;
            stats.ring += of.ring;
            stats.registered += of.registered;
            stats.retries += of.retries;
            stats.worker_restarts += of.worker_restarts;
        }
        stats
    }
}

/// The error of an item that both tiers failed: what the second says, and why the first did not do it either. Where
/// time was what only the first had too little of, it is the other way around: more of it may help.
pub(crate) fn both_failed(first: Error, second: Error) -> Error {
    if first.kind() == ErrorKind::Timeout && second.kind() != ErrorKind::Timeout {
        first.with("second_tier", second)
    } else {
        second.with("first_tier", first)
    }
}

fn out_of_time() -> Error {
    Error::new(ErrorKind::Timeout, "use tier")
        .why("the call's time was over before the tier could be asked")
        .fix("a longer deadline, or a faster tier before it")
        .retryable()
}

pub(crate) fn late() -> Error {
    Error::new(ErrorKind::Timeout, "wait for tier")
        .why("the tier did not answer in its part of the call's time")
        .fix("a longer deadline, fewer bytes under way, or a faster medium")
        .retryable()
}

fn untold() -> Error {
    Error::new(ErrorKind::Io, "answer").why("a tier gave fewer outcomes than it got items")
}

fn failed<T>(len: usize, error: &Error) -> Vec<Result<T>> {
    (0..len).map(|_| Err(error.clone())).collect()
}
