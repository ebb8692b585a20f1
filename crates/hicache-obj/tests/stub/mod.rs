//! An S3 server in a test's hands: buckets in memory, one thread per connection, and a script that says, request by
//! request, what goes wrong.
#![allow(dead_code, unused_imports, reason = "each test binary uses its part")]

mod clock;
mod objects;
mod script;
mod server;
mod sigv4;
mod tls;
mod wire;
mod xml;

pub(crate) use clock::{amz_date, http_date, now, parse_amz_date};
pub(crate) use objects::{Buckets, Framing, Object};
pub(crate) use script::{Action, Expect, Per, endless, first, per_second};
pub(crate) use server::{Idle, IdleEnd, Settings, Stub};
pub(crate) use sigv4::{Access, uri_encode};
pub(crate) use tls::Authority;
pub(crate) use wire::{Close, Reply, Request, percent_decode};

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// No test of the product may take longer.
pub(crate) const CEILING: Duration = Duration::from_secs(120);

/// Runs a test on a thread of its own and fails when it has not ended by the ceiling, so that a hang is a failure
/// with a name and never a run that stands still.
pub(crate) fn bounded(test: impl FnOnce() + Send + 'static) {
    let (ended, end) = channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = ended.send(());
    });
    match end.recv_timeout(CEILING) {
        Err(RecvTimeoutError::Timeout) => panic!("still running after {CEILING:?}"),
        Ok(()) | Err(RecvTimeoutError::Disconnected) => {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}
