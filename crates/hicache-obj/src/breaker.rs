//! Not asking a service that does not answer: after a few operations in a row have failed, everything is refused at
//! once for a while, then one operation tries.
//!
//! Of a deadline that ends an attempt, nobody can say whether an answer was near. So how long the service has been
//! silent is added up over the attempts that were cut off, whatever their deadlines were.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Operations in a row that must fail, each after its retries.
const FAILURES: u32 = 3;

/// How long nobody asks, at first; doubled each time the try fails.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Opens after failures, closes after a success.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    inner: Mutex<Inner>,
    /// Some silence is added up: what is heard is worth a lock.
    silent: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    failures: u32,
    pause: Duration,
    until: Option<Instant>,
    /// One operation is trying.
    trying: bool,
    why: String,
    /// Operations in a row that their deadlines cut off before an answer.
    cut_off: u32,
    /// Time in which somebody waited and nothing came, and up to when it is added up: waits beside one another count
    /// once.
    silence: Duration,
    silence_until: Option<Instant>,
}

/// Somebody waits for the service. Dropped before [`ended`](Listening::ended), nothing came.
#[derive(Debug)]
pub(crate) struct Listening<'a, F: Fn() -> Instant>(Option<(&'a Breaker, F)>);

/// Permission to ask. Dropped without a word, it says nothing about the service.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    breaker: &'a Breaker,
    trying: bool,
}

impl Breaker {
    /// Permission, or how long there is none and what the last failure was.
    pub(crate) fn enter(&self) -> Result<Pass<'_>, (Duration, String)> {
        let mut inner = self.lock();
        let Some(until) = inner.until else { return Ok(Pass { breaker: self, trying: false }) };
        let left = until.saturating_duration_since(Instant::now());
        if !left.is_zero() || inner.trying {
            return Err((left, inner.why.clone()));
        }
        inner.trying = true;
        Ok(Pass { breaker: self, trying: true })
    }

    /// Why nobody asks, if nobody does.
    pub(crate) fn why_open(&self) -> Option<String> {
        let inner = self.lock();
        inner.until.map(|_| inner.why.clone())
    }

    /// Begins to wait; `since` says since when nothing has moved.
    pub(crate) fn listen<F: Fn() -> Instant>(&self, since: F) -> Listening<'_, F> {
        Listening(Some((self, since)))
    }

    /// A part of an answer came.
    pub(crate) fn heard(&self) {
        if self.silent.swap(false, Ordering::Relaxed) {
            let mut inner = self.lock();
            (inner.cut_off, inner.silence, inner.silence_until) = (0, Duration::ZERO, None);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Fn() -> Instant> Listening<'_, F> {
    /// What was waited for has come, or will not.
    pub(crate) fn ended(mut self) {
        self.0 = None;
    }
}

impl<F: Fn() -> Instant> Drop for Listening<'_, F> {
    fn drop(&mut self) {
        let Some((breaker, since)) = self.0.take() else { return };
        let (since, now) = (since(), Instant::now());
        let mut inner = breaker.lock();
        let from = inner.silence_until.map_or(since, |until| until.max(since));
        inner.silence += now.saturating_duration_since(from);
        inner.silence_until = Some(now);
        breaker.silent.store(true, Ordering::Relaxed);
    }
}

impl Pass<'_> {
    /// The service answered, whatever it said.
    pub(crate) fn answered(self) {
        let mut inner = self.breaker.lock();
        if inner.until.is_some() {
            tracing::info!("the service answers again");
        }
        *inner = Inner::default();
    }

    /// It did not, and the operation has ended.
    pub(crate) fn failed(mut self, why: &str) {
        let mut inner = self.breaker.lock();
        inner.failures += 1;
        if std::mem::take(&mut self.trying) {
            inner.trying = false;
        } else if inner.until.is_some() || inner.failures < FAILURES {
            return;
        }
        inner.pause = (inner.pause * 2).clamp(PAUSE, PAUSE_MAX);
        inner.open(why);
    }

    /// A deadline has cut the operation off before an answer. It counts where several have been in a row, and nothing
    /// was heard for `limit` in all.
    pub(crate) fn cut_off(mut self, why: &str, limit: Duration) {
        let mut inner = self.breaker.lock();
        inner.cut_off += 1;
        if std::mem::take(&mut self.trying) {
            // Not for longer than before: its deadline may have been too short.
            inner.trying = false;
        } else if inner.until.is_some() || inner.cut_off < FAILURES || inner.silence < limit {
            return;
        }
        inner.pause = inner.pause.max(PAUSE);
        inner.open(why);
    }
}

impl Inner {
    fn open(&mut self, why: &str) {
        self.until = Some(Instant::now() + self.pause);
        self.why = why.to_string();
        tracing::warn!(why, pause = ?self.pause, "the service is not asked for a while");
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.trying {
            self.breaker.lock().trying = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_failures_in_a_row_and_closes_after_an_answer() {
        let breaker = Breaker::default();
        for _ in 0..10 {
            breaker.enter().unwrap().failed("down");
            breaker.enter().unwrap().failed("down");
            breaker.enter().unwrap().answered();
        }
        for _ in 0..FAILURES {
            breaker.enter().unwrap().failed("down");
        }
        let (left, why) = breaker.enter().unwrap_err();
        assert!(left <= PAUSE && why == "down");
        breaker.lock().until = Some(Instant::now());
        let trying = breaker.enter().unwrap();
        assert!(breaker.enter().is_err(), "one tries, the others are refused");
        trying.failed("still down");
        let (left, why) = breaker.enter().unwrap_err();
        assert!(left > PAUSE && why == "still down", "the pause doubles");
        breaker.lock().until = Some(Instant::now());
        drop(breaker.enter().unwrap());
        breaker.enter().unwrap().answered();
        assert_eq!(breaker.why_open(), None);
        drop(breaker.enter().unwrap());
    }

    fn wait(breaker: &Breaker, from: Instant) {
        drop(breaker.listen(|| from));
    }

    #[test]
    fn it_opens_when_operations_that_were_cut_off_have_heard_nothing_for_long_enough() {
        let (breaker, limit) = (Breaker::default(), Duration::from_secs(10));
        let ago = |seconds| Instant::now() - Duration::from_secs(seconds);
        let cut_off = || breaker.enter().map(|pass| pass.cut_off("late", limit));
        // Waits beside one another are one wait.
        for _ in 0..10 {
            wait(&breaker, ago(9));
            cut_off().unwrap();
        }
        assert_eq!(breaker.why_open(), None, "{breaker:?}");
        // What is heard begins it anew, and so does an answer.
        breaker.heard();
        for _ in 0..10 {
            cut_off().unwrap();
        }
        wait(&breaker, ago(20));
        breaker.enter().unwrap().answered();
        for _ in 0..2 {
            cut_off().unwrap();
        }
        wait(&breaker, ago(11));
        cut_off().unwrap();
        assert_eq!(breaker.why_open().as_deref(), Some("late"));
        breaker.lock().until = Some(Instant::now());
        breaker.enter().unwrap().cut_off("late again", limit);
        let (left, why) = breaker.enter().unwrap_err();
        assert!(left <= PAUSE && why == "late again", "the pause does not grow: {left:?}");
    }

    #[test]
    fn what_has_ended_was_no_silence() {
        let breaker = Breaker::default();
        breaker.listen(|| Instant::now() - Duration::from_secs(60)).ended();
        for _ in 0..10 {
            breaker.enter().unwrap().cut_off("late", Duration::from_secs(1));
        }
        assert_eq!(breaker.why_open(), None);
    }

    #[test]
    fn operations_that_were_under_way_when_it_opened_do_not_lengthen_the_pause() {
        let breaker = Breaker::default();
        let passes: Vec<Pass<'_>> = (0..32).map(|_| breaker.enter().unwrap()).collect();
        for pass in passes {
            pass.failed("down");
        }
        assert_eq!(breaker.lock().pause, PAUSE);
    }
}
