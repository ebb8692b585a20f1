//! Waiting that ends: every wait of a test has a ceiling, and says what it waited for.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// The longest that any one step of a test may take.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Between two looks at something that tells nobody when it changes, as a pool's count of free slots.
const PAUSE: Duration = Duration::from_micros(200);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks this thread until `future` is ready.
///
/// # Panics
///
/// If that takes longer than [`LIMIT`]: no answer came, or nobody was woken for it.
#[track_caller]
pub fn wait<T>(what: &str, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let end = Instant::now() + LIMIT;
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        thread::park_timeout(end.saturating_duration_since(Instant::now()));
        assert!(Instant::now() < end, "{what}: no answer within {LIMIT:?}");
    }
}

/// What a single poll of `future` gives, with a waker that does nothing.
pub fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Blocks this thread until `holds`.
///
/// # Panics
///
/// If that takes longer than [`LIMIT`].
#[track_caller]
pub fn until(what: &str, holds: impl Fn() -> bool) {
    until_some(what, || holds().then_some(()));
}

/// Blocks this thread until `look` gives something.
///
/// # Panics
///
/// If that takes longer than [`LIMIT`].
#[track_caller]
pub fn until_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(value) = look() {
            return value;
        }
        assert!(Instant::now() < end, "{what}: not within {LIMIT:?}");
        thread::sleep(PAUSE);
    }
}
