//! Rings: each is one io_uring on a thread of its own that opens page files, and reads and closes each by a chain.
//!
//! They are a fast path and nothing more: a read that came whole, or a file that is not there, is handed to a worker to
//! be judged; whatever else happens (a short read, an error, a file that is no file) is given back, and a worker reads
//! the page again by plain system calls, which know what to make of it. So every rule of reading has one home.

mod kernel;
mod lone;
mod record;
mod registered;
mod turn;

pub(crate) use lone::{Begun, Lones};
pub(crate) use registered::RingRegistrar;
pub(crate) use turn::Setup;

use crate::asked::Asked;
use crate::engine::Sink;
use hicache_core::{Fallback, Outcomes, PageMut, Pending, Reply, replies};
use registered::Errand;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::ffi::CString;
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
use turn::Turn;

/// Most reads in flight on one ring.
pub(crate) const DEPTH_MAX: u32 = 512;

/// Most rings of a store.
pub(crate) const RINGS_MAX: u32 = 64;

/// Reads in flight where the options do not say: what small pages need to fill a device's queue.
pub(crate) const DEPTH: u32 = 128;

/// Tries what the rings of a store need. Gives what they would go without here, or why there can be none: what was
/// refused, and after a semicolon the likely cause and its cure.
///
/// # Errors
///
/// As text, what the kernel refused.
pub fn probe_io_uring() -> Result<Vec<Fallback>, String> {
    turn::probe()
}

/// A page to read.
pub(crate) struct Read {
    pub(crate) asked: Asked,
    /// In the directory of `asked`.
    pub(crate) path: CString,
    /// O_DIRECT and so on, beside what every read has.
    pub(crate) flags: i32,
    /// Bytes of padding and trailer, which come after the page.
    pub(crate) tail_len: usize,
    pub(crate) page: PageMut,
    pub(crate) deadline: Option<Instant>,
}

impl Read {
    /// The directory that its path is relative to.
    fn dir(&self) -> BorrowedFd<'_> {
        self.asked.view.files.roots[self.asked.root].dir()
    }

    /// Whether who starts it waits for it.
    fn waits(&self) -> bool {
        self.asked.view.files.roots[self.asked.root].reads_wait()
    }
}

/// The rings of a store, among which its batches are dealt.
#[derive(Debug)]
pub(crate) struct Rings {
    rings: Vec<Ring>,
    next: AtomicUsize,
    /// What they are without.
    without: Vec<Fallback>,
    pub(crate) lones: Lones,
}

impl Rings {
    /// Starts `count` rings.
    ///
    /// # Errors
    ///
    /// What the kernel refused, and the likely cause.
    pub(crate) fn start(count: u32, setup: &Setup, sink: &Sink) -> Result<Self, String> {
        let lones = Lones::new(setup.clone());
        let started = (0..count).map(|_| Ring::start(setup.clone(), sink.clone()));
        let mut rings = Vec::new();
        let mut without = Vec::new();
        for started in started {
            let (ring, lacks) = started?;
            // All rings lack the same.
            without = lacks;
            rings.push(ring);
        }
        Ok(Self { rings, next: AtomicUsize::new(0), without, lones })
    }

    /// Whether any ring reads.
    pub(crate) fn work(&self) -> bool {
        self.rings.iter().any(|ring| !lock(&ring.inbox.letters).given_up)
    }

    /// Hands a batch's reads to one of the rings: one message, one wake. Gives them back when no ring reads any more.
    pub(crate) fn submit(&self, mut reads: Vec<Read>) -> Result<(), Vec<Read>> {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        for turn in 0..self.rings.len() {
            match self.rings[first.wrapping_add(turn) % self.rings.len()].submit(reads) {
                Ok(()) => return Ok(()),
                Err(back) => reads = back,
            }
        }
        Err(reads)
    }

    /// What was asked for and not got, and what was lost since.
    pub(crate) fn fallbacks(&self) -> Vec<Fallback> {
        let mut all = self.without.clone();
        all.extend(self.lones.without());
        for ring in &self.rings {
            let letters = lock(&ring.inbox.letters);
            all.extend(letters.unregistered.iter().cloned());
            let Some(last) = letters.failures.last() else { continue };
            let count = letters.failures.len();
            let now = if letters.given_up { "others read instead" } else { "it was replaced" };
            let why = format!("a ring failed ({count} in all): {last}; {now}");
            all.push(Fallback { what: "io_uring", why });
        }
        all
    }

    /// Ends the rings, which get no more to read, and lets go of what they have locked. Resolves when that is done.
    pub(crate) fn stop(&self) -> Pending<Outcomes<()>> {
        self.lones.let_go();
        let (replies, ended, _) = replies(self.rings.len());
        self.rings.iter().zip(replies).for_each(|(ring, reply)| ring.stop(reply));
        ended
    }

    /// Bytes of pools that every ring knows.
    pub(crate) fn registered_len(&self) -> u64 {
        self.rings.iter().map(|ring| lock(&ring.inbox.letters).registered_len).min().unwrap_or(0)
    }

    /// Who registers pools with the rings.
    pub(crate) fn registrar(&self) -> RingRegistrar {
        RingRegistrar::new(self.rings.iter().map(|ring| Arc::clone(&ring.inbox)).collect())
    }
}

/// The way to a ring's thread.
#[derive(Debug)]
struct Ring {
    inbox: Arc<Inbox>,
    thread: Option<JoinHandle<()>>,
}

/// What its thread is told, and tells.
pub(crate) struct Inbox {
    letters: Mutex<Letters>,
    wake: OwnedFd,
}

#[derive(Default)]
struct Letters {
    reads: VecDeque<Read>,
    errands: Vec<Errand>,
    stop: bool,
    /// Why rings failed on this thread.
    failures: Vec<String>,
    /// It makes no more of them.
    given_up: bool,
    /// Memory that it could not register, and bytes that it did.
    unregistered: Vec<Fallback>,
    registered_len: u64,
    /// The ring is gone, and who waits for that.
    gone: bool,
    ended: Vec<Reply<()>>,
}

impl Ring {
    /// Also what it is without.
    fn start(setup: Setup, sink: Sink) -> Result<(Self, Vec<Fallback>), String> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| format!("eventfd: {error}"))?;
        let inbox = Arc::new(Inbox { letters: Mutex::default(), wake });
        let (report, started) = std::sync::mpsc::sync_channel(1);
        let (theirs, ending) = (Arc::clone(&inbox), Arc::clone(&inbox));
        // SINGLE_ISSUER: the ring is set up by the thread that submits.
        let body = move || match Turn::new(setup, theirs, sink) {
            Ok(turn) => {
                drop(report.send(Ok(turn.without().to_vec())));
                turn.run();
                ending.end();
            }
            Err(why) => drop(report.send(Err(why))),
        };
        let thread = std::thread::Builder::new().name("hicache-ring".to_string()).spawn(body);
        let thread = thread.map_err(|error| format!("its thread: {error}"))?;
        let without = started.recv().unwrap_or_else(|_| Err("its thread ended at once".to_string()))?;
        Ok((Self { inbox, thread: Some(thread) }, without))
    }

    /// What was handed over is still read; `ended` is answered when the ring is gone.
    fn stop(&self, ended: Reply<()>) {
        let mut letters = lock(&self.inbox.letters);
        letters.stop = true;
        if letters.gone {
            drop(letters);
            return ended.send(Ok(()));
        }
        letters.ended.push(ended);
        drop(letters);
        self.inbox.wake();
    }

    fn submit(&self, reads: Vec<Read>) -> Result<(), Vec<Read>> {
        let mut letters = lock(&self.inbox.letters);
        if letters.given_up {
            return Err(reads);
        }
        letters.reads.extend(reads);
        drop(letters);
        self.inbox.wake();
        Ok(())
    }
}

impl Inbox {
    fn wake(&self) {
        // A full counter means that the thread is awake already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// The ring is gone, with all that it knew.
    fn end(&self) {
        let mut letters = lock(&self.letters);
        (letters.gone, letters.registered_len) = (true, 0);
        let ended = std::mem::take(&mut letters.ended);
        drop(letters);
        ended.into_iter().for_each(|reply| reply.send(Ok(())));
    }

    /// What the counter counts does not matter.
    fn empty(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }
}

impl Drop for Ring {
    /// What was handed over is still read.
    fn drop(&mut self) {
        lock(&self.inbox.letters).stop = true;
        self.inbox.wake();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the ring's thread had panicked");
        }
    }
}

fn lock(letters: &Mutex<Letters>) -> MutexGuard<'_, Letters> {
    letters.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inbox")
    }
}
