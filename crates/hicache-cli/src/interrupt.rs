//! Signals: Ctrl-C and its like, asked about between requests so that a temporary store is removed; and a file limit.

use crate::failure::{Failure, Result};
use crate::output;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::{flag, low_level};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

/// How long the last words may take: standard error may be a pipe that nobody reads.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long the first signal may take before the user is told what it waits for.
const WORD_AFTER: Duration = Duration::from_secs(1);
/// How long a wait goes on before it looks for the signal.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// What a shell adds to the number of the signal that ended a command.
const SIGNALED: u8 = 128;

/// Whether the user wants to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    /// The first signal's number; 0 before that.
    signal: Arc<AtomicI32>,
    leftovers: Arc<Mutex<Vec<String>>>,
}

/// Something that this run has made and is to remove. As long as this lives, it is told of by whoever ends the process
/// before that.
#[derive(Debug)]
pub(crate) struct Leftover {
    all: Arc<Mutex<Vec<String>>>,
    told: String,
}

impl Interrupt {
    /// From now on the first signal is noted, and the second ends the process, which then tells what it leaves. Where
    /// whoever started this process had it ignore that its terminal goes, as nohup does, it stays so.
    pub(crate) fn listen() -> Result<Self> {
        let interrupt = Self::default();
        let hangs_up = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        let failed = || Failure::file("listen for signals");
        let mut signals = Signals::new(hangs_up.into_iter().chain([SIGINT, SIGTERM])).map_err(failed())?;
        let theirs = interrupt.clone();
        // It ends with the process.
        let listen = move || signals.forever().for_each(|signal| theirs.came(signal));
        thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(failed())?;
        Ok(interrupt)
    }

    fn came(&self, signal: i32) {
        let first = self.signal.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
        if first.is_ok() {
            // Who is done sooner needs no word.
            let tell = || {
                thread::sleep(WORD_AFTER);
                output::note(
                    "note: interrupted: it ends when what is under way is done; once more ends it at once",
                );
            };
            drop(thread::Builder::new().spawn(tell));
            return;
        }
        let left = self.leftovers.lock().unwrap_or_else(PoisonError::into_inner).join("; ");
        let (done, told) = mpsc::channel::<()>();
        let tell = move || {
            let left = if left.is_empty() { left } else { format!("; {left}") };
            output::note(format_args!("note: interrupted again: it ends at once{left}"));
            drop(done);
        };
        if thread::Builder::new().spawn(tell).is_ok() {
            let _ = told.recv_timeout(LAST_WORDS);
        }
        // Nothing runs any more, as after any signal that ends a process.
        low_level::exit(exit_code(signal).into());
    }

    /// `told` says what is left, and how to remove it, until the returned value goes.
    pub(crate) fn leaves(&self, told: String) -> Leftover {
        self.leftovers.lock().unwrap_or_else(PoisonError::into_inner).push(told.clone());
        Leftover { all: Arc::clone(&self.leftovers), told }
    }

    /// An error once there was a signal.
    pub(crate) fn check(&self) -> Result<()> {
        match self.signal.load(Ordering::SeqCst) {
            0 => Ok(()),
            signal => Err(Failure::Interrupted(exit_code(signal))),
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

impl Drop for Leftover {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).retain(|told| *told != self.told);
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
