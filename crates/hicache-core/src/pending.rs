//! Work that has started, and how to wait for it.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The result of work that is under way: await it in any runtime, or [`wait`](Pending::wait) on a plain thread.
///
/// Dropping it drops the interest, not the work: pages lent to the work stay with it until it is done.
#[must_use = "the work goes on, but nobody learns what came of it"]
pub struct Pending<T>(Pin<Box<dyn Future<Output = T> + Send>>);

impl<T> Pending<T> {
    /// Wraps a future whose work does not depend on being polled.
    pub fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Box::pin(future))
    }

    /// Already there.
    pub fn ready(value: T) -> Self
    where
        T: Send + 'static,
    {
        Self::new(std::future::ready(value))
    }

    /// Blocks this thread until the result is there. Not for use inside an asynchronous task.
    pub fn wait(self) -> T {
        pollster::block_on(self)
    }
}

impl<T> Future for Pending<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        self.0.as_mut().poll(context)
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending")
    }
}
