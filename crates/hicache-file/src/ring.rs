//! The ring: one io_uring on a thread of its own that reads page files, a chain of open, read and close for each.
//!
//! It is a fast path and nothing more: a read that came whole, or a file that is not there, is handed to a worker to
//! be judged; whatever else happens (a short read, an error, a file that is no file) is given back, and a worker reads
//! the page again by plain system calls, which know what to make of it. So every rule of reading has one home.
//!
//! A [`Read`] is the record of its operation (invariant 4): it owns the page and all else that the kernel may touch,
//! stands in the ring's table from before its entries are pushed, and leaves it when the last of them has completed. If
//! the ring fails, what is in the table is leaked, never freed.
//!
//! `unsafe` stands here for pushing entries, whose pointers are into records of that table.
#![allow(unsafe_code)]

use crate::backend::View;
use crate::engine::{Job, Sink};
use crate::sys::Sys;
use hicache_core::{Alignment, HostPool, HugePages, PageMut, RegionSpec, Strides};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Most reads in flight.
pub(crate) const DEPTH_MAX: u32 = 512;

/// Reads in flight where the options do not say: what small pages need to fill a device's queue.
pub(crate) const DEPTH: u32 = 32;

/// Bytes in flight beyond which no read is added, so that large pages do not queue in the device for longer than they
/// need to. One read is always let through.
const BYTES_MAX: usize = 8 << 20;

/// Turns that the kernel may refuse in a row before the ring is given up.
const REFUSED_MAX: u32 = 10_000;

/// User data of the entry that waits for the inbox.
const WAKE: u64 = u64::MAX;

/// Where a page's read stands among its chain, in the low bits of its user data.
const OPEN: u64 = 0;
const READ: u64 = 1;
const CLOSE: u64 = 2;

/// A page to read: the record of the operation.
pub(crate) struct Read {
    /// Keeps the directory open that `path` is relative to.
    pub(crate) view: Arc<View>,
    pub(crate) root: usize,
    pub(crate) path: CString,
    /// O_DIRECT and so on, beside what every read has.
    pub(crate) flags: i32,
    /// Bytes of padding and trailer, which come after the page.
    pub(crate) tail_len: usize,
    pub(crate) page: PageMut,
    pub(crate) deadline: Option<Instant>,
    /// Called on the ring's thread; the job it makes goes to a worker.
    pub(crate) finish: Finish,
}

/// Makes the job that judges a read.
pub(crate) type Finish = Box<dyn FnOnce(Completed<'_>) -> Job + Send>;

/// What came of a read.
pub(crate) enum Completed<'a> {
    /// All of it, and not a byte more; this is its tail.
    Whole(PageMut, &'a [u8]),
    /// There is no such file.
    Absent(PageMut),
    /// Something else: to be read again by a worker.
    Unclear(PageMut),
    /// Not begun by its deadline.
    Late(PageMut),
    /// The ring failed while the kernel had the page, which is leaked.
    Lost,
}

/// The way to the ring's thread.
#[derive(Debug)]
pub(crate) struct Ring {
    inbox: Arc<Inbox>,
    thread: Option<JoinHandle<()>>,
}

struct Inbox {
    letters: Mutex<Letters>,
    wake: OwnedFd,
}

#[derive(Default)]
struct Letters {
    reads: VecDeque<Read>,
    stop: bool,
    /// Why the ring is no more.
    failed: Option<String>,
}

impl Ring {
    /// Starts a ring of `depth` reads in flight, whose tails are at most two of `block`.
    ///
    /// # Errors
    ///
    /// What the kernel refused, and the likely cause.
    pub(crate) fn start(depth: u32, block: Alignment, sys: Sys, sink: Sink) -> Result<Self, String> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| format!("eventfd: {error}"))?;
        let inbox = Arc::new(Inbox { letters: Mutex::default(), wake });
        let (report, started) = std::sync::mpsc::sync_channel(1);
        let theirs = Arc::clone(&inbox);
        // SINGLE_ISSUER: the ring is set up by the thread that submits.
        let body = move || match Turn::new(depth, block, sys, &theirs, sink) {
            Ok(turn) => {
                drop(report.send(Ok(())));
                turn.run();
            }
            Err(why) => drop(report.send(Err(why))),
        };
        let thread = std::thread::Builder::new().name("hicache-ring".to_string()).spawn(body);
        let thread = thread.map_err(|error| format!("its thread: {error}"))?;
        match started.recv() {
            Ok(Ok(())) => Ok(Self { inbox, thread: Some(thread) }),
            Ok(Err(why)) => Err(why),
            Err(_) => Err("its thread ended at once".to_string()),
        }
    }

    /// Why it reads no more, if it does not.
    pub(crate) fn failure(&self) -> Option<String> {
        lock(&self.inbox.letters).failed.clone()
    }

    /// Hands reads over: one message, one wake. Gives them back when the ring has failed.
    pub(crate) fn submit(&self, reads: Vec<Read>) -> Result<(), Vec<Read>> {
        let mut letters = lock(&self.inbox.letters);
        if letters.failed.is_some() {
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

/// A read that the kernel has.
struct InFlight {
    read: Read,
    /// What the read's entry points to: the pieces, the tail, and a block beyond, which must stay empty.
    parts: Vec<libc::iovec>,
    tail: PageMut,
    expected: usize,
    result: i32,
}

/// The ring's thread.
struct Turn<'a> {
    ring: IoUring,
    sys: Sys,
    inbox: &'a Inbox,
    sink: Sink,
    waiting: VecDeque<Read>,
    /// Jobs of reads that are over.
    done: Vec<Job>,
    /// Reads that were taken in and not handed over.
    owed: usize,
    table: Vec<Option<InFlight>>,
    free: Vec<usize>,
    tails: HostPool,
    block: Alignment,
    bytes: usize,
    /// Turns in a row that the kernel refused.
    refused: u32,
    armed: bool,
}

impl<'a> Turn<'a> {
    fn new(depth: u32, block: Alignment, sys: Sys, inbox: &'a Inbox, sink: Sink) -> Result<Self, String> {
        let ring = build(depth)?;
        let strides = Strides::new(1, depth, 3 * block.bytes(), block).map_err(|error| error.to_string())?;
        let spec =
            RegionSpec { len: strides.region_len(), huge_pages: HugePages::Off, ..RegionSpec::default() };
        let region = spec.map().map_err(|error| error.to_string())?;
        let tails = HostPool::new(region, strides, &[]).map_err(|error| error.to_string())?;
        let count = depth as usize;
        Ok(Self {
            ring,
            sys,
            inbox,
            sink,
            waiting: VecDeque::new(),
            done: Vec::new(),
            owed: 0,
            table: (0..count).map(|_| None).collect(),
            free: (0..count).rev().collect(),
            tails,
            block,
            bytes: 0,
            refused: 0,
            armed: false,
        })
    }

    fn run(mut self) {
        match catch_unwind(AssertUnwindSafe(|| self.serve())) {
            Ok(Ok(())) => (),
            Ok(Err(error)) => self.fail(&error),
            // Unwinding would free what the kernel has.
            Err(_) => self.fail(&io::Error::other("its thread panicked")),
        }
    }

    fn serve(&mut self) -> io::Result<()> {
        loop {
            let stop = self.take_letters();
            self.start_reads();
            let idle = self.free.len() == self.table.len();
            if stop && idle && self.waiting.is_empty() {
                self.hand_over();
                return Ok(());
            }
            if self.done.is_empty() {
                self.arm();
                self.enter()?;
            }
            self.reap();
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        self.owed -= self.done.len();
        self.sink.finish(std::mem::take(&mut self.done));
    }

    /// Moves what came in to what waits. True when no more will come.
    fn take_letters(&mut self) -> bool {
        let mut letters = lock(&self.inbox.letters);
        self.owed += letters.reads.len();
        self.waiting.append(&mut letters.reads);
        letters.stop
    }

    /// Starts what there is room for, and ends what is too late.
    fn start_reads(&mut self) {
        while let Some(read) = self.waiting.front() {
            let in_flight = self.table.len() - self.free.len();
            if in_flight > 0 && self.bytes + read.page.len() > BYTES_MAX {
                break;
            }
            let Some(index) = self.free.pop() else { break };
            let Some(read) = self.waiting.pop_front() else { break };
            if read.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.free.push(index);
                self.done.push((read.finish)(Completed::Late(read.page)));
                continue;
            }
            self.bytes += read.page.len();
            let record = InFlight::new(read, self.tails.alloc(1), self.block);
            self.table[index] = Some(record);
            self.push_chain(index);
        }
    }

    fn push_chain(&mut self, index: usize) {
        let Some(record) = &self.table[index] else { return };
        let slot = index as u32;
        let data = |step: u64| (index as u64) << 2 | step;
        let dir = types::Fd(record.read.view.files.roots[record.read.root].dir().as_raw_fd());
        // NONBLOCK: what stands there may be a FIFO, whose opening waits for a writer.
        let flags = record.read.flags | libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let target = types::DestinationSlot::try_from_slot_target(slot).ok();
        let open =
            opcode::OpenAt::new(dir, record.read.path.as_ptr()).flags(flags).file_index(target).build();
        let parts = (record.parts.as_ptr(), record.parts.len() as u32);
        let read = opcode::Readv::new(types::Fixed(slot), parts.0, parts.1).build();
        let close = opcode::Close::new(types::Fixed(slot)).build();
        let chain = [
            // Only its failure is of interest.
            open.flags(squeue::Flags::IO_LINK | squeue::Flags::SKIP_SUCCESS).user_data(data(OPEN)),
            // Closed whatever the read says.
            read.flags(squeue::Flags::IO_HARDLINK).user_data(data(READ)),
            close.user_data(data(CLOSE)),
        ];
        // SAFETY: invariant 4: path, parts and the memory they point to belong to `table[index]`, which stays until
        // the chain's last entry has completed, or is leaked. The queue has room: four entries a read.
        unsafe { self.ring.submission().push_multiple(&chain) }
            .expect("the queue has four entries for each read");
    }

    /// Waits for the inbox beside the reads.
    fn arm(&mut self) {
        if self.armed {
            return;
        }
        let wake = types::Fd(self.inbox.wake.as_raw_fd());
        let entry = opcode::PollAdd::new(wake, libc::POLLIN as u32).build().user_data(WAKE);
        // SAFETY: the entry points to no memory.
        self.armed = unsafe { self.ring.submission().push(&entry) }.is_ok();
    }

    fn enter(&mut self) -> io::Result<()> {
        let entered = self.sys.check_enter().and_then(|()| self.ring.submit_and_wait(1));
        match entered {
            Ok(_) => self.refused = 0,
            // Interrupted, or short of something for a moment: completions make room.
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
                    && self.refused < REFUSED_MAX =>
            {
                self.refused += 1;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Ends the reads that are over.
    fn reap(&mut self) {
        let completions: Vec<cqueue::Entry> = self.ring.completion().collect();
        for completion in completions {
            if completion.user_data() == WAKE {
                self.armed = false;
                // Empties the counter; what it counts does not matter.
                let _ = rustix::io::read(&self.inbox.wake, &mut [0; 8]);
                continue;
            }
            let index = (completion.user_data() >> 2) as usize;
            let Some(record) = &mut self.table[index] else { continue };
            let path = || record.read.path.to_string_lossy().into_owned();
            match completion.user_data() & 3 {
                READ => {
                    record.result = self.sys.completion(completion.result(), path);
                    continue;
                }
                // Told only when it failed; the rest of its chain is cancelled, and not told.
                OPEN => record.result = self.sys.completion(completion.result(), path),
                // Otherwise the last of the chain.
                _ => (),
            }
            let Some(record) = self.table[index].take() else { continue };
            self.free.push(index);
            self.bytes -= record.read.page.len();
            self.done.push(record.complete());
        }
    }

    /// Nothing is freed that the kernel may have, nobody is left waiting, and nothing more is taken.
    fn fail(mut self, error: &io::Error) {
        tracing::error!(%error, "the ring failed; its pages are leaked, and reads go to the workers from now on");
        let mut letters = lock(&self.inbox.letters);
        letters.failed = Some(error.to_string());
        self.owed += letters.reads.len();
        self.waiting.append(&mut letters.reads);
        drop(letters);
        for record in self.table.iter_mut().filter_map(Option::take) {
            let InFlight { read, parts, tail, .. } = record;
            let Read { finish, page, path, view, .. } = read;
            std::mem::forget((page, path, view, parts, tail));
            self.done.push(finish(Completed::Lost));
        }
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        self.done.extend(waiting.map(|read| (read.finish)(Completed::Unclear(read.page))));
        self.hand_over();
        self.sink.lose(self.owed);
        std::mem::forget(self.ring);
    }
}

impl InFlight {
    fn new(mut read: Read, tail: Option<Vec<PageMut>>, block: Alignment) -> Self {
        let mut tail = tail.and_then(|mut tails| tails.pop()).expect("as many tails as reads in flight");
        let part = |start: *mut u8, len: usize| libc::iovec { iov_base: start.cast(), iov_len: len };
        let planes = read.page.planes();
        let mut parts = Vec::with_capacity(planes as usize + 1);
        for plane in 0..planes {
            let mut piece = read.page.piece_mut(plane);
            parts.push(part(piece.as_mut_ptr(), piece.len()));
        }
        let expected = read.page.len() + read.tail_len;
        // One block more than the file should have: a longer file shows itself.
        parts.push(part(tail.piece_mut(0).as_mut_ptr(), read.tail_len + block.bytes()));
        Self { read, parts, tail, expected, result: -libc::EIO }
    }

    fn complete(self) -> Job {
        let Self { read, tail, expected, result, .. } = self;
        let Read { finish, page, tail_len, .. } = read;
        match usize::try_from(result) {
            Ok(count) if count == expected => {
                let tail = tail.bytes(0).expect("tails are in private memory");
                finish(Completed::Whole(page, &tail[..tail_len]))
            }
            Err(_) if result == -libc::ENOENT => finish(Completed::Absent(page)),
            _ => finish(Completed::Unclear(page)),
        }
    }
}

/// The best ring that the kernel has, or why it has none for us.
fn build(depth: u32) -> Result<IoUring, String> {
    let entries = 4 * depth;
    let best = IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_clamp().build(entries);
    let ring = match best {
        // Older than 6.1: without the flags.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            IoUring::builder().setup_clamp().build(entries)
        }
        built => built,
    };
    let ring = ring.map_err(|error| format!("io_uring_setup: {error}; {}", likely_cause(&error)))?;
    if !ring.params().is_feature_skip_cqe_on_success() {
        return Err(
            "this kernel's io_uring tells of chains in another way; it is older than 5.17".to_string()
        );
    }
    let mut probe = Probe::new();
    let probed = ring.submitter().register_probe(&mut probe);
    probed.map_err(|error| format!("probing its operations: {error}; {}", likely_cause(&error)))?;
    for (name, code) in
        [("openat", opcode::OpenAt::CODE), ("readv", opcode::Readv::CODE), ("close", opcode::Close::CODE)]
    {
        if !probe.is_supported(code) {
            return Err(format!("this kernel's io_uring has no {name}; it is too old"));
        }
    }
    let table = ring.submitter().register_files_sparse(depth);
    table.map_err(|error| format!("registering a file table: {error}; {}", likely_cause(&error)))?;
    Ok(ring)
}

fn likely_cause(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM) => {
            "it is forbidden by kernel.io_uring_disabled or by a container's seccomp profile; allow it there"
        }
        Some(libc::ENOSYS) => "the kernel is built without it, or a sandbox hides it",
        Some(libc::ENOMEM) => "the limit of locked memory is too low; raise ulimit -l",
        Some(libc::EINVAL) => "the kernel is too old for what is asked of it",
        Some(libc::EMFILE | libc::ENFILE) => "there is no free file descriptor; raise ulimit -n",
        _ => "see the kernel's log",
    }
}

fn lock(letters: &Mutex<Letters>) -> MutexGuard<'_, Letters> {
    letters.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inbox")
    }
}
