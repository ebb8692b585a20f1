//! Not asking a service that does not answer: after a few operations in a row have failed, everything is refused at
//! once for a while, then one operation tries.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Operations in a row that must fail, each after its retries.
const FAILURES: u32 = 3;

/// How long nobody asks, at first; doubled each time the try fails.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Opens after failures, closes after a success.
#[derive(Debug, Default)]
pub(crate) struct Breaker(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    failures: u32,
    pause: Duration,
    until: Option<Instant>,
    /// One operation is trying.
    trying: bool,
    why: String,
}

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

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        inner.until = Some(Instant::now() + inner.pause);
        inner.why = why.to_string();
        tracing::warn!(why, pause = ?inner.pause, "the service is not asked for a while");
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
