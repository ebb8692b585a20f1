//! Signals: Ctrl-C and its like, asked about between requests so that a temporary store is removed; and a file limit.

use crate::failure::{Failure, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// How long a wait goes on before it looks for the signal.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// What a shell adds to the number of the signal that ended a command.
const SIGNALED: u8 = 128;

/// Whether the user wants to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    stopped: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// From now on the first signal is noted, and the second ends the process. Where whoever started this process had
    /// it ignore that its terminal goes, as nohup does, it stays so.
    pub(crate) fn listen() -> Result<Self> {
        let interrupt = Self::default();
        let hangs_up = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        for signal in hangs_up.into_iter().chain([SIGINT, SIGTERM]) {
            let stopped = || Arc::clone(&interrupt.stopped);
            flag::register_conditional_shutdown(signal, exit_code(signal).into(), stopped())
                .and_then(|_| flag::register_usize(signal, Arc::clone(&interrupt.signal), signal as usize))
                .and_then(|_| flag::register(signal, stopped()))
                .map_err(Failure::file("listen for signals"))?;
        }
        Ok(interrupt)
    }

    /// An error once there was a signal.
    pub(crate) fn check(&self) -> Result<()> {
        if self.stopped.load(Ordering::SeqCst) {
            Err(Failure::Interrupted(exit_code(self.signal.load(Ordering::SeqCst) as i32)))
        } else {
            Ok(())
        }
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

/// From now on a write beyond the limit on file sizes (`ulimit -f`) fails like any other, where by default the system
/// ends the process.
pub(crate) fn outlive_file_limit() -> Result<()> {
    let noted = flag::register(SIGXFSZ, Arc::default());
    noted.map(|_| ()).map_err(Failure::file("listen for signals"))
}

fn exit_code(signal: i32) -> u8 {
    SIGNALED + signal as u8
}

/// Whether a signal is ignored, as far as the system says.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    // The lowest bit is that of signal 1.
    mask >> (signal - 1) & 1 == 1
}
