//! One of the two stores, and whether it is worth asking.

use crate::late::NOT_OPEN;
use hicache_core::{
    Call, Deadline, Error, ErrorKind, Fallback, Health, Namespace, Outcomes, PageKey, Pending, Priority,
    Result, StorageBackend, Store,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Batches in a row that must fail whole before a tier counts as lost.
const FAILURES_MAX: u32 = 3;

/// How often a lost tier is asked whether it is back.
pub(crate) const PROBE_EVERY: Duration = Duration::from_secs(5);

/// A tier that had less time than this and was late may be sound.
const FAIR_TIME: Duration = Duration::from_secs(1);

/// Which tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    First,
    Second,
}

/// One of the two stores. Whether it is lost is known here for all namespaces.
#[derive(Debug)]
pub(crate) struct Tier {
    pub(crate) place: Place,
    pub(crate) store: Arc<dyn Store>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// While it is lost, when it is asked next whether it is back.
    probe_at: Option<Instant>,
    /// Items that were asked of it and failed.
    faults: u64,
    /// Pages that the other tier took and this one did not.
    lacks: u64,
    /// Items that the other tier answered and this one did not.
    unanswered: u64,
    last: Option<Error>,
    /// That it is lost is in the log.
    told: bool,
}

/// What a tier left to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// To store a page.
    Page,
    /// To answer.
    Answer,
}

/// Whether a batch goes to a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ask,
    /// It is lost.
    Skip,
    /// It is lost, and now is the time to ask whether it is back.
    Probe,
}

impl Place {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Second => "second",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    fn what(self) -> &'static str {
        match self {
            Self::First => "first tier",
            Self::Second => "second tier",
        }
    }
}

impl Tier {
    pub(crate) fn new(place: Place, store: Arc<dyn Store>) -> Self {
        Self { place, store, state: Mutex::default() }
    }

    pub(crate) fn verdict(&self, now: Instant) -> Verdict {
        let mut state = self.lock();
        match state.probe_at {
            None => Verdict::Ask,
            Some(at) if now < at => Verdict::Skip,
            Some(_) => {
                state.probe_at = now.checked_add(PROBE_EVERY);
                Verdict::Probe
            }
        }
    }

    /// Takes in what came of a batch that had `given` time.
    pub(crate) fn heard<T>(&self, outcomes: &[Result<T>], given: Duration) {
        let mut failed = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).peekable();
        let Some(error) = failed.peek().copied() else {
            if !outcomes.is_empty() {
                self.sound();
            }
            return;
        };
        let (count, lost) = failed
            .fold((0, 0), |(count, lost), error| (count + 1, lost + u64::from(is_outage(error, given))));
        let mut state = self.lock();
        state.faults += count;
        state.last = Some(error.clone());
        if lost < outcomes.len() as u64 {
            // A full or refusing tier is there all the same.
            drop(state);
            if count < outcomes.len() as u64 {
                self.sound();
            }
            return;
        }
        state.failures += 1;
        let newly = state.failures >= FAILURES_MAX && state.probe_at.is_none();
        if newly {
            state.probe_at = Instant::now().checked_add(PROBE_EVERY);
        }
        drop(state);
        if newly {
            self.tell_lost(error);
        }
    }

    /// The other did for an item what this one did not, also where it is lost and was not asked.
    pub(crate) fn left(&self, what: Left) {
        let mut state = self.lock();
        match what {
            Left::Page => state.lacks += 1,
            Left::Answer => state.unanswered += 1,
        }
    }

    /// Says once that it is lost. Of a store that is not open yet, whoever could not open it has said so.
    fn tell_lost(&self, error: &Error) {
        let told = std::mem::replace(&mut self.lock().told, true);
        if !told && self.is_open(&self.store.health()) {
            tracing::warn!(tier = self.place.name(), %error, "a tier is lost; the other does what it can");
        }
    }

    fn is_open(&self, health: &Health) -> bool {
        health.fallbacks.iter().all(|one| one.what != NOT_OPEN)
    }

    /// It has answered.
    fn sound(&self) {
        let mut state = self.lock();
        state.failures = 0;
        let back = state.probe_at.take().is_some() | std::mem::take(&mut state.told);
        drop(state);
        if back {
            tracing::info!(tier = self.place.name(), "a tier that was lost is back");
        }
    }

    /// The error of what a lost tier was not asked for.
    pub(crate) fn lost(&self, operation: &'static str) -> Error {
        let error = Error::new(ErrorKind::Unavailable, operation)
            .why("the tier failed so often that it is not asked for a while")
            .with("tier", self.place.name())
            .retryable();
        match self.lock().last.clone() {
            Some(last) => error.because(last),
            None => error,
        }
    }

    /// What it could not do, and what it says of itself.
    pub(crate) fn fallbacks(&self) -> Vec<Fallback> {
        let health = self.store.health();
        let name = self.place.name();
        let own = |fallback: Fallback| Fallback {
            what: fallback.what,
            why: format!("the {name} tier: {}", fallback.why),
        };
        // Why no pages can go to a tier that could not be opened is in what it says itself.
        let is_open = self.is_open(&health);
        let mut all: Vec<Fallback> = health.fallbacks.into_iter().map(own).collect();
        let what = self.place.what();
        if !health.writable && is_open {
            all.push(Fallback {
                what,
                why: "it takes no pages: its medium is read-only, or gone".to_string(),
            });
        }
        let state = self.lock();
        if let Some(last) = &state.last {
            let lost = if state.probe_at.is_some() { "it is lost; " } else { "" };
            let missed = state.missed(self.place.other().name());
            all.push(Fallback { what, why: format!("{lost}{missed}; the last error: {last}") });
        }
        all
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What it did not do, by what the other tier did: the items that
    /// [`Stats::degraded`](hicache_core::Stats::degraded) counts, over all namespaces.
    fn missed(&self, other: &str) -> String {
        let many = |count: u64, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        let lacks = match self.lacks {
            0 => None,
            1 => Some(format!("1 page was taken by the {other} tier only, and is not in this one")),
            count => {
                Some(format!("{count} pages were taken by the {other} tier only, and are not in this one"))
            }
        };
        let unanswered = (self.unanswered > 0)
            .then(|| format!("{} answered by the {other} tier alone", many(self.unanswered, "item")));
        match (lacks, unanswered) {
            (Some(lacks), Some(unanswered)) => format!("{lacks}; {unanswered}"),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => format!("{} failed", many(self.faults, "item")),
        }
    }
}

/// Whether the error says that the tier is not there, rather than that it cannot do one thing.
pub(crate) fn is_outage(error: &Error, given: Duration) -> bool {
    match error.kind() {
        ErrorKind::Io | ErrorKind::Unavailable | ErrorKind::Closed => true,
        ErrorKind::Timeout => given >= FAIR_TIME,
        _ => false,
    }
}

/// Whether the other tier can do nothing about an error, so that it is the item's.
pub(crate) fn is_final(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::Incompatible)
}

/// A tier seen through one namespace.
#[derive(Debug)]
pub(crate) struct Half {
    pub(crate) tier: Arc<Tier>,
    namespace: Namespace,
    backend: Mutex<Opened>,
}

/// The backend, or why there is none yet.
#[derive(Debug)]
enum Opened {
    Is(Arc<dyn StorageBackend>),
    /// Until then, nobody tries again.
    Not(Error, Option<Instant>),
    /// A thread tries again.
    Trying(Error),
}

impl Half {
    /// The tier's backend. One that cannot be opened now is opened when the tier is back.
    ///
    /// # Errors
    ///
    /// What concerns the namespace, not the tier's health.
    pub(crate) fn open(tier: &Arc<Tier>, namespace: &Namespace) -> Result<Self> {
        let opened = match tier.store.backend(namespace.clone()) {
            Ok(backend) => Opened::Is(backend),
            Err(error) if is_final(&error) => return Err(error.with("tier", tier.place.name())),
            Err(error) => {
                tier.tell_lost(&error);
                tier.heard::<()>(&[Err(error.clone())], Duration::MAX);
                Opened::Not(error, Instant::now().checked_add(PROBE_EVERY))
            }
        };
        Ok(Self { tier: Arc::clone(tier), namespace: namespace.clone(), backend: Mutex::new(opened) })
    }

    pub(crate) fn backend(&self) -> Result<Arc<dyn StorageBackend>> {
        match &*self.lock() {
            Opened::Is(backend) => Ok(Arc::clone(backend)),
            Opened::Not(error, _) | Opened::Trying(error) => Err(error.clone()),
        }
    }

    /// Asks a lost tier whether it is back, of a page that nobody has.
    pub(crate) fn probe(&self) -> Option<(Pending<Outcomes<bool>>, Duration)> {
        let call = Call {
            deadline: Deadline::After(PROBE_EVERY),
            priority: Priority::Background,
            ..Call::default()
        };
        let backend = self.backend().ok()?;
        Some((backend.batch_exists(&[PageKey::new([0; 32])], call), PROBE_EVERY))
    }

    /// Tries again to open the backend if that is due, on a thread of its own, since it may block.
    pub(crate) fn reopen(self: &Arc<Self>, now: Instant) {
        let mut opened = self.lock();
        let Opened::Not(error, not_before) = &*opened else { return };
        if not_before.is_some_and(|at| now < at) {
            return;
        }
        *opened = Opened::Trying(error.clone());
        drop(opened);
        let half = Arc::clone(self);
        let body = move || {
            let found = half.tier.store.backend(half.namespace.clone());
            half.tier.heard(&[found.as_ref().map(drop).map_err(Error::clone)], Duration::MAX);
            *half.lock() = match found {
                Ok(backend) => Opened::Is(backend),
                Err(error) => Opened::Not(error, Instant::now().checked_add(PROBE_EVERY)),
            };
        };
        if std::thread::Builder::new().name("hicache-tier-open".to_string()).spawn(body).is_err() {
            let mut opened = self.lock();
            if let Opened::Trying(error) = &*opened {
                *opened = Opened::Not(error.clone(), now.checked_add(PROBE_EVERY));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Opened> {
        self.backend.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hicache_core::MemoryStore;

    fn tier() -> Tier {
        Tier::new(Place::First, Arc::new(MemoryStore::new(1)))
    }

    fn failed(kind: ErrorKind) -> Vec<Result<()>> {
        vec![Err(Error::new(kind, "test")); 2]
    }

    #[test]
    fn a_tier_is_lost_after_three_batches_that_failed_whole_and_back_after_one_answer() {
        let tier = tier();
        let now = Instant::now();
        for kind in [ErrorKind::Io, ErrorKind::Unavailable] {
            tier.heard(&failed(kind), FAIR_TIME);
            assert_eq!(tier.verdict(now), Verdict::Ask);
        }
        tier.heard(&failed(ErrorKind::Timeout), FAIR_TIME);
        assert_eq!(tier.verdict(now), Verdict::Skip);
        let later = now + 2 * PROBE_EVERY;
        assert_eq!(tier.verdict(later), Verdict::Probe);
        assert_eq!(tier.verdict(later), Verdict::Skip, "one probe at a time");
        assert!(tier.fallbacks().iter().any(|one| one.what == "first tier" && one.why.contains("lost")));
        tier.heard(&[Ok(())], FAIR_TIME);
        assert_eq!(tier.verdict(later), Verdict::Ask);
        assert!(tier.fallbacks().iter().any(|one| one.why.contains("6 items")), "what was is still told");
    }

    #[test]
    fn a_full_tier_or_one_that_had_no_time_is_not_lost() {
        let tier = tier();
        for _ in 0..10 {
            tier.heard(&failed(ErrorKind::NoSpace), FAIR_TIME);
            tier.heard(&failed(ErrorKind::Timeout), Duration::from_millis(1));
            tier.heard(&[Ok(()), Err(Error::new(ErrorKind::Io, "test"))], FAIR_TIME);
        }
        assert_eq!(tier.verdict(Instant::now()), Verdict::Ask);
    }
}
