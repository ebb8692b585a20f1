//! Ctrl-C, asked about between requests, so that a temporary store is removed.

use crate::failure::{Failure, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a wait goes on before it looks for the signal.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Whether the user wants to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on the first signal is noted, and the second ends the process.
    pub(crate) fn listen() -> Result<Self> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_shutdown(signal, 130, Arc::clone(&interrupt.0))
                .and_then(|_| flag::register(signal, Arc::clone(&interrupt.0)))
                .map_err(Failure::file("listen for signals"))?;
        }
        Ok(interrupt)
    }

    /// An error once there was a signal.
    pub(crate) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Failure::Interrupted) } else { Ok(()) }
    }

    /// Lets `wait` pass, or returns at a signal.
    pub(crate) fn sleep(&self, mut wait: Duration) -> Result<()> {
        while !wait.is_zero() {
            self.check()?;
            let part = wait.min(LOOK_EVERY);
            std::thread::sleep(part);
            wait -= part;
        }
        self.check()
    }
}
