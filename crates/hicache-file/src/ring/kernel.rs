//! The kernel's side of a ring: setting it up, and the entries that are pushed to it.
//!
//! `unsafe` stands here because an entry's pointers outlive the call that pushes it. Every block rests on invariant 4:
//! what an entry points to belongs to a [`Record`], which stays where it is until the kernel has told of the chain's
//! last entry, or is leaked; what is registered belongs to a pool, whose registration is undone before it is unmapped.
#![allow(unsafe_code)]

use super::record::Record;
use super::registered::{BUFFERS_MAX, TAILS};
use hicache_core::Fallback;
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode, squeue, types};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// User data of the entry that waits for the inbox.
pub(super) const WAKE: u64 = u64::MAX;

/// Entries of one read that may wait to be submitted: read, tail and close. Its opening went before, or leads a chain
/// that has no tail. There is room for twice as many completions: of three entries that cancel, too. No more than that,
/// since a ring is locked memory, of which containers often have but 64 KiB.
const ENTRIES_PER_READ: u32 = 3;

/// More entries: one that waits for the inbox, and some that cancel.
const ENTRIES_BESIDE: u32 = 8;

/// How long a turn waits for more completions than one, in microseconds.
const GATHER_US: u32 = 500;

/// Milliseconds between the tries of a ring that the kernel has no memory to lock for. What a ring had that was just
/// closed comes back when the kernel gets to it, which it tells nobody.
const WAITS_MS: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// A ring.
pub(super) struct Kernel {
    ring: IoUring,
    has_table: bool,
    gathers: bool,
    /// Entries that cancel and wait to be submitted, and how many of them leave room for what reads need.
    cancels: usize,
    cancels_max: usize,
    /// Operations on registered buffers: on one piece, on several.
    fixed: [bool; 2],
    /// What was asked for and not got.
    pub(super) without: Vec<Fallback>,
}

/// Where the parts of a read go, as an entry points to them.
#[derive(Default)]
pub(super) struct Parts(pub(super) Vec<libc::iovec>);

// SAFETY: invariant 4: they are addresses in memory that the record owns that they go with, from thread to thread.
unsafe impl Send for Parts {}

/// Who enters a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Issuer {
    /// The thread that sets it up, and nobody else.
    One,
    /// One thread after the other.
    Any,
}

/// What an entry is to its read; in the low bits of its user data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Open = 0,
    Read = 1,
    /// What follows the page in the file, where the page is in registered memory.
    Tail = 2,
    Close = 3,
    /// The end of an attempt to cancel, which says nothing: the entry that was cancelled tells.
    Cancel = 4,
}

const STEPS: [Step; 5] = [Step::Open, Step::Read, Step::Tail, Step::Close, Step::Cancel];

impl Kernel {
    /// The best ring for `depth` reads that the kernel has, or why it has none for us.
    pub(super) fn build(depth: u32, issuer: Issuer) -> Result<Self, String> {
        let entries = depth * ENTRIES_PER_READ + ENTRIES_BESIDE;
        let plain = || IoUring::builder().setup_clamp().build(entries);
        let ring = match issuer {
            Issuer::Any => plain(),
            Issuer::One => patiently(|| {
                let mut best = IoUring::builder();
                best.setup_single_issuer().setup_defer_taskrun().setup_clamp();
                match best.build(entries) {
                    // Older than 6.1: without the flags.
                    Err(error) if error.raw_os_error() == Some(libc::EINVAL) => plain(),
                    built => built,
                }
            }),
        };
        let ring = ring.map_err(|error| format!("io_uring_setup: {error}; {}", likely_cause(&error)))?;
        let params = ring.params();
        if !params.is_feature_skip_cqe_on_success() || !params.is_feature_ext_arg() {
            return Err(
                "this kernel's io_uring tells of chains in another way; it is older than 5.17".to_string()
            );
        }
        let gathers = params.is_feature_min_timeout();
        let cancels_max = params.sq_entries().saturating_sub(depth * ENTRIES_PER_READ + 1) as usize;
        let (has_table, fixed, without) = (false, [false; 2], Vec::new());
        let mut kernel = Self { ring, has_table, gathers, cancels: 0, cancels_max, fixed, without };
        kernel.probe()?;
        kernel.make_tables(depth, issuer);
        Ok(kernel)
    }

    /// Asks for the operations one by one. A kernel of the version that the set-up told of has what is needed, so one
    /// that does not let us ask is taken at its word.
    fn probe(&mut self) -> Result<(), String> {
        let mut probe = Probe::new();
        if self.ring.submitter().register_probe(&mut probe).is_err() {
            return Ok(());
        }
        let needed = [
            ("openat", opcode::OpenAt::CODE),
            ("readv", opcode::Readv::CODE),
            ("close", opcode::Close::CODE),
            ("async_cancel", opcode::AsyncCancel::CODE),
        ];
        for (name, code) in needed {
            if !probe.is_supported(code) {
                return Err(format!("this kernel's io_uring has no {name}; it is too old"));
            }
        }
        self.fixed = [opcode::ReadFixed::CODE, opcode::ReadvFixed::CODE].map(|code| probe.is_supported(code));
        Ok(())
    }

    /// Tables of files and of buffers. A ring without them is a ring still, and told.
    fn make_tables(&mut self, depth: u32, issuer: Issuer) {
        let submitter = self.ring.submitter();
        let mut tell = |what: &'static str, error: &io::Error, cause: &str| {
            let why = format!("io_uring_register: {error}; {cause}; the ring works without");
            self.without.push(Fallback { what, why });
        };
        match submitter.register_files_sparse(depth) {
            Ok(()) => self.has_table = true,
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                let cause =
                    "it has more reads than the process may have files; raise ulimit -n, or lower depth";
                tell("registered_files", &error, cause);
            }
            Err(error) => tell("registered_files", &error, likely_cause(&error)),
        }
        if issuer == Issuer::One
            && let Err(error) = submitter.register_buffers_sparse(u32::from(BUFFERS_MAX))
        {
            self.fixed = [false; 2];
            tell("registered_buffers", &error, likely_cause(&error));
        }
    }

    /// Lets as many reads wait on threads of the kernel's as there may be, also while their files are opened: else
    /// those that hang would hold up all others.
    pub(super) fn let_reads_wait(&mut self, depth: u32) {
        let (bounded, unchanged) = (depth, 0);
        if let Err(error) = self.ring.submitter().register_iowq_max_workers(&mut [bounded, unchanged]) {
            let why = format!("io_uring_register: {error}; {}; the ring has fewer", likely_cause(&error));
            self.without.push(Fallback { what: "ring_threads", why });
        }
    }

    /// Whether files are opened into a table of the ring's, and a read is one chain.
    pub(super) fn has_table(&self) -> bool {
        self.has_table
    }

    /// Whether a page of so many pieces can be read into registered memory.
    pub(super) fn reads_fixed(&self, pieces: usize) -> bool {
        if pieces == 1 { self.fixed[0] } else { self.fixed[1] }
    }

    /// Proves that entries are taken and told of.
    pub(super) fn prove(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() {
            // SAFETY: the entry points to no memory.
            let pushed = unsafe { self.ring.submission().push(&opcode::Nop::new().build()) };
            pushed.map_err(io::Error::other)?;
        }
        self.enter(1, None)?;
        match self.ring.completion().next() {
            Some(_) => Ok(()),
            None => Err(io::Error::other("it does not tell of its entries")),
        }
    }

    /// Opens a read's file, which is told.
    pub(super) fn push_open(&mut self, index: usize, record: &Record) {
        let open = self.opening(index, record);
        self.push(&[open]);
    }

    /// Goes on with a read whose file was opened, as `fd` where there is no table.
    pub(super) fn push_opened(&mut self, index: usize, record: &Record, fd: i32) {
        let file = if self.has_table { File::Slot(index as u32) } else { File::Fd(fd) };
        self.push_reading(index, record, None, file);
    }

    /// All of a read in one go, for a ring that has a table. Of its opening only a failure is told.
    pub(super) fn push_chain(&mut self, index: usize, record: &Record) {
        let open = self.opening(index, record).flags(squeue::Flags::IO_LINK | squeue::Flags::SKIP_SUCCESS);
        self.push_reading(index, record, Some(open), File::Slot(index as u32));
    }

    fn opening(&self, index: usize, record: &Record) -> squeue::Entry {
        // NONBLOCK: what stands there may be a FIFO, whose opening waits for a writer.
        let flags = record.read.flags | libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let dir = types::Fd(record.read.dir().as_raw_fd());
        let open = opcode::OpenAt::new(dir, record.read.path.as_ptr());
        let open = if self.has_table {
            // A slot of the table has no flag to be closed by exec, and needs none.
            let target = types::DestinationSlot::try_from_slot_target(index as u32).ok();
            open.flags(flags).file_index(target)
        } else {
            open.flags(flags | libc::O_CLOEXEC)
        };
        open.build().user_data(data(index, Step::Open))
    }

    fn push_reading(&mut self, index: usize, record: &Record, open: Option<squeue::Entry>, file: File) {
        // Closed whatever the reads say.
        let mut flags = squeue::Flags::IO_HARDLINK;
        if record.read.waits() {
            // Else it would hold up the thread that enters the ring.
            flags |= squeue::Flags::ASYNC;
        }
        let linked = |entry: squeue::Entry, step| entry.flags(flags).user_data(data(index, step));
        let close = match file {
            File::Slot(slot) => opcode::Close::new(types::Fixed(slot)).build(),
            File::Fd(fd) => opcode::Close::new(types::Fd(fd)).build(),
        };
        let close = close.user_data(data(index, Step::Close));
        let (pieces, tail) = record.pieces_and_tail();
        let read = match record.buffer {
            None => file.read(&record.parts.0, 0),
            Some(buffer) => file.read_fixed(pieces, 0, buffer),
        };
        let read = linked(read, Step::Read);
        let tail = record
            .reads_apart()
            .then(|| linked(file.read_fixed(tail, record.read.page.len() as u64, TAILS), Step::Tail));
        let chain: Vec<squeue::Entry> = open.into_iter().chain([read]).chain(tail).chain([close]).collect();
        self.push(&chain);
    }

    fn push(&mut self, chain: &[squeue::Entry]) {
        // SAFETY: invariant 4: path, parts and the memory they point to belong to a record, which stays until its
        // last entry has completed, or is leaked.
        unsafe { self.ring.submission().push_multiple(chain) }
            .expect("the queue has entries for every read that there can be");
    }

    /// Asks the kernel to let go of a read. False where there is no room for that now.
    pub(super) fn push_cancel(&mut self, index: usize) -> bool {
        let cancel =
            |step| opcode::AsyncCancel::new(data(index, step)).build().user_data(data(index, Step::Cancel));
        let all = [Step::Open, Step::Read, Step::Tail].map(cancel);
        if self.cancels + all.len() > self.cancels_max {
            return false;
        }
        self.cancels += all.len();
        // SAFETY: the entries point to no memory.
        unsafe { self.ring.submission().push_multiple(&all) }.is_ok()
    }

    /// Waits for the inbox beside the reads. False where there is no room for that now.
    pub(super) fn push_wake(&mut self, wake: BorrowedFd<'_>) -> bool {
        let wake = types::Fd(wake.as_raw_fd());
        let entry = opcode::PollAdd::new(wake, libc::POLLIN as u32).build().user_data(WAKE);
        // SAFETY: the entry points to no memory.
        unsafe { self.ring.submission().push(&entry) }.is_ok()
    }

    /// Submits, and waits for nothing.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        let entered = self.ring.submit();
        self.count_submitted();
        entered.map(drop)
    }

    fn count_submitted(&mut self) {
        if self.ring.submission().is_empty() {
            self.cancels = 0;
        }
    }

    /// Submits, and waits for `want` completions: for fewer when they take their time, and for none after `limit`.
    pub(super) fn enter(&mut self, want: usize, limit: Option<Duration>) -> io::Result<()> {
        let limit = limit.map(Timespec::from);
        let mut args = SubmitArgs::new();
        if let Some(limit) = &limit {
            args = args.timespec(limit);
        }
        let entered = match (self.gathers && want > 1, &limit) {
            (true, _) => self.ring.submitter().submit_with_args(want, &args.min_wait_usec(GATHER_US)),
            (false, Some(_)) => self.ring.submitter().submit_with_args(1, &args),
            (false, None) => self.ring.submit_and_wait(1),
        };
        self.count_submitted();
        match entered {
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => Ok(()),
            entered => entered.map(drop),
        }
    }

    /// The next entry that is over: its user data and its result.
    pub(super) fn next(&mut self) -> Option<(u64, i32)> {
        self.ring.completion().next().map(|entry| (entry.user_data(), entry.result()))
    }

    /// Fails when the kernel had no room for a completion and lost it: a read would wait for it for ever. There is room
    /// for all entries that the reads in flight can have.
    pub(super) fn check_overflow(&mut self) -> io::Result<()> {
        match self.ring.completion().overflow() {
            0 => Ok(()),
            lost => Err(io::Error::other(format!("the kernel lost {lost} completions"))),
        }
    }

    /// Registers `range` of addresses as `buffer`.
    ///
    /// The kernel pins what it registers: what lies there stays until [`Kernel::unregister`], whoever unmaps it.
    pub(super) fn register(&mut self, buffer: u16, range: &Range<usize>) -> io::Result<()> {
        let part = libc::iovec { iov_base: range.start as *mut libc::c_void, iov_len: range.len() };
        // SAFETY: invariant 7: the range is of a region that a pool owns, mapped as long as its registration is in
        // force, which ends by `unregister`; the ring reads into it only for pages of that pool.
        unsafe { self.ring.submitter().register_buffers_update(u32::from(buffer), &[part], None) }
    }

    /// Lets go of all buffers now. Of a ring that is closed with them, the kernel does when it gets to it, and counts
    /// them as locked until then.
    pub(super) fn let_go(&mut self) {
        if let Err(error) = self.ring.submitter().unregister_buffers() {
            tracing::debug!(%error, "a ring ends with its buffers");
        }
    }

    /// Lets go of `buffer`.
    pub(super) fn unregister(&mut self, buffer: u16) -> io::Result<()> {
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: an empty entry points to no memory.
        unsafe { self.ring.submitter().register_buffers_update(u32::from(buffer), &[nothing], None) }
    }
}

/// Where an open file is.
#[derive(Clone, Copy)]
enum File {
    /// In the ring's table.
    Slot(u32),
    /// In the process's.
    Fd(i32),
}

impl File {
    fn read(self, parts: &[libc::iovec], offset: u64) -> squeue::Entry {
        let (start, count) = (parts.as_ptr(), parts.len() as u32);
        match self {
            Self::Slot(slot) => opcode::Readv::new(types::Fixed(slot), start, count).offset(offset).build(),
            Self::Fd(fd) => opcode::Readv::new(types::Fd(fd), start, count).offset(offset).build(),
        }
    }

    fn read_fixed(self, pieces: &[libc::iovec], offset: u64, buffer: u16) -> squeue::Entry {
        if let [piece] = pieces {
            let (start, len) = (piece.iov_base.cast(), piece.iov_len as u32);
            return match self {
                Self::Slot(slot) => {
                    opcode::ReadFixed::new(types::Fixed(slot), start, len, buffer).offset(offset)
                }
                Self::Fd(fd) => opcode::ReadFixed::new(types::Fd(fd), start, len, buffer).offset(offset),
            }
            .build();
        }
        let (start, count) = (pieces.as_ptr(), pieces.len() as u32);
        match self {
            Self::Slot(slot) => opcode::ReadvFixed::new(types::Fixed(slot), start, count, buffer).build(),
            Self::Fd(fd) => opcode::ReadvFixed::new(types::Fd(fd), start, count, buffer).build(),
        }
    }
}

/// Builds a ring, again for a quarter of a second where there is no memory to lock. Not for a thread that has other
/// things to do.
fn patiently(mut build: impl FnMut() -> io::Result<IoUring>) -> io::Result<IoUring> {
    for wait in WAITS_MS {
        match build() {
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => {
                std::thread::park_timeout(Duration::from_millis(wait));
            }
            built => return built,
        }
    }
    build()
}

fn data(index: usize, step: Step) -> u64 {
    (index as u64) << 3 | step as u64
}

/// What [`data`] put together.
pub(super) fn place(data: u64) -> (usize, Option<Step>) {
    ((data >> 3) as usize, STEPS.get((data & 7) as usize).copied())
}

pub(super) fn likely_cause(error: &io::Error) -> &'static str {
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
