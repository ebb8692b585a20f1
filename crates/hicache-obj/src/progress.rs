//! Whether bytes move: waiting for the service is right as long as they do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// When something last moved.
#[derive(Debug)]
pub(crate) struct Progress {
    start: Instant,
    /// Milliseconds after the start.
    last: AtomicU64,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), last: AtomicU64::new(0) }
    }

    pub(crate) fn moved(&self) {
        self.last.store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// When something last moved.
    pub(crate) fn last(&self) -> Instant {
        self.start + Duration::from_millis(self.last.load(Ordering::Relaxed))
    }

    /// Waits for `work` as long as something moves: `None` when nothing has for `limit`.
    pub(crate) async fn follow<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        loop {
            let until = self.last() + limit;
            match tokio::time::timeout_at(until, &mut work).await {
                Ok(value) => return Some(value),
                Err(_) if self.last() + limit > until => (),
                Err(_) => return None,
            }
        }
    }
}
