//! The system calls of the store, and the seam at which tests rewrite what they answer.
//!
//! `unsafe` stands here for two calls only: `preadv2` and `pwritev2` on raw pieces of pages, which have no safe
//! form because a page's memory may be shared (invariant 6: no references to it).
#![allow(unsafe_code)]

use hicache_core::{Alignment, Page, PageMut};
use rustix::fs::{
    Access, AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags, Stat, StatVfs,
};
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// The kernel's IOV_MAX: parts that one call takes.
const PARTS_MAX: usize = 1024;

/// Bytes of a marker or a record at most.
const SMALL_MAX: usize = 64 * 1024;

/// How often in a row one transfer may answer EAGAIN or EINTR, or move nothing usable, before it is given up.
const RETRIES_MAX: u32 = 64;

/// How often a folder is emptied, into which others may still put something, before it stays.
const EMPTIED_MAX: u32 = 16;

/// A system call that the seam sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SysCall {
    /// Opening a file by its name.
    Open,
    /// Opening a file that has no name yet (O_TMPFILE).
    OpenUnnamed,
    /// Asking for a file's kind and length.
    Stat,
    /// One read.
    Read,
    /// One write.
    Write,
    /// Bringing a file's data to the device.
    Sync,
    /// Bringing a directory's names to the device.
    SyncDir,
    /// Giving an unnamed file its name.
    Link,
    /// Changing a name.
    Rename,
    /// Removing a name.
    Unlink,
    /// Making a directory.
    MakeDir,
    /// The ring's turn to the kernel, to submit and to wait.
    Enter,
    /// The completion of a read by the ring: what the seam says stands in its place.
    Completion,
}

/// What the seam lets happen to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is made.
    Pass,
    /// It is not made, and answers this errno.
    Fail(i32),
    /// It moves, and says that it moved, at most this many bytes.
    AtMost(usize),
    /// It is made, and says that it moved this many bytes.
    Claim(usize),
}

/// The seam of the tests: sees each system call, with the path or the file's offset, before it is made.
#[derive(Clone)]
pub struct Seam(Arc<Rule>);

type Rule = dyn Fn(SysCall, &str) -> Verdict + Send + Sync;

impl Seam {
    /// Asks `rule` before each call. It may also sleep, or panic.
    pub fn new(rule: impl Fn(SysCall, &str) -> Verdict + Send + Sync + 'static) -> Self {
        Self(Arc::new(rule))
    }
}

impl fmt::Debug for Seam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seam")
    }
}

/// Makes system calls, past the seam if there is one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sys(pub(crate) Option<Seam>);

/// Where a read puts its bytes: a page's pieces and then a slice, or slices.
pub(crate) struct ReadInto<'a>(Parts<'a>);

/// Where a write takes its bytes: a page's pieces and then a slice, or slices.
pub(crate) struct WriteFrom<'a>(Parts<'a>);

struct Parts<'a> {
    parts: Vec<libc::iovec>,
    lent: PhantomData<&'a mut [u8]>,
}

impl<'a> ReadInto<'a> {
    pub(crate) fn slice(slice: &'a mut [u8]) -> Self {
        Self(Parts::new(vec![part(slice.as_mut_ptr(), slice.len())]))
    }

    pub(crate) fn slices(first: &'a mut [u8], second: &'a mut [u8]) -> Self {
        let slices = [first, second].into_iter().filter(|slice| !slice.is_empty());
        Self(Parts::new(slices.map(|slice| part(slice.as_mut_ptr(), slice.len())).collect()))
    }

    pub(crate) fn page(page: &'a mut PageMut, tail: &'a mut [u8]) -> Self {
        let planes = page.planes();
        let mut piece_part = |plane| {
            let mut piece = page.piece_mut(plane);
            part(piece.as_mut_ptr(), piece.len())
        };
        let mut parts: Vec<_> = (0..planes).map(&mut piece_part).collect();
        parts.push(part(tail.as_mut_ptr(), tail.len()));
        Self(Parts::new(parts))
    }
}

impl<'a> WriteFrom<'a> {
    pub(crate) fn slice(slice: &'a [u8]) -> Self {
        Self(Parts::new(vec![part(slice.as_ptr().cast_mut(), slice.len())]))
    }

    pub(crate) fn slices(first: &'a [u8], second: &'a [u8]) -> Self {
        let slices = [first, second].into_iter().filter(|slice| !slice.is_empty());
        Self(Parts::new(slices.map(|slice| part(slice.as_ptr().cast_mut(), slice.len())).collect()))
    }

    pub(crate) fn page(page: &'a Page, tail: &'a [u8]) -> Self {
        let piece_part = |plane| {
            let piece = page.piece(plane);
            part(piece.as_ptr().cast_mut(), piece.len())
        };
        let mut parts: Vec<_> = (0..page.planes()).map(piece_part).collect();
        parts.push(part(tail.as_ptr().cast_mut(), tail.len()));
        Self(Parts::new(parts))
    }
}

/// As openat, but through no link, so that what is written lies in the store and nowhere else.
fn open_beneath(
    dir: BorrowedFd<'_>,
    path: &str,
    flags: OFlags,
    mode: Mode,
) -> std::result::Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(dir, path, flags, mode, resolve) {
        // A kernel before 5.6, or a profile that does not know the call.
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::openat(dir, path, flags, mode),
        opened => opened,
    }
}

/// Why `open_beneath` does as openat does, if the kernel does not let it do better.
pub(crate) fn opens_through_links(dir: BorrowedFd<'_>) -> Option<io::Error> {
    let (flags, resolve) =
        (OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS);
    match rustix::fs::openat2(dir, ".", flags, Mode::empty(), resolve) {
        Err(refused @ (Errno::NOSYS | Errno::PERM)) => Some(refused.into()),
        _ => None,
    }
}

fn part(start: *mut u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: start.cast(), iov_len: len }
}

impl Parts<'_> {
    fn new(parts: Vec<libc::iovec>) -> Self {
        Self { parts, lent: PhantomData }
    }

    fn len(&self) -> usize {
        self.parts.iter().map(|part| part.iov_len).sum()
    }

    fn is_aligned(&self, alignment: Alignment) -> bool {
        let aligned = |part: &libc::iovec| {
            alignment.is_aligned(part.iov_base.addr()) && alignment.is_aligned(part.iov_len)
        };
        self.parts.iter().all(aligned)
    }

    /// What is left after `moved` bytes, at most `len_max` bytes of it.
    fn rest(&self, moved: usize, len_max: usize) -> Vec<libc::iovec> {
        let (mut skip, mut room) = (moved, len_max);
        let mut rest = Vec::with_capacity(self.parts.len().min(PARTS_MAX));
        for each in &self.parts {
            let skipped = skip.min(each.iov_len);
            skip -= skipped;
            let len = (each.iov_len - skipped).min(room);
            room -= len;
            if len > 0 {
                rest.push(part(each.iov_base.cast::<u8>().wrapping_add(skipped), len));
            }
            if rest.len() == PARTS_MAX || room == 0 {
                break;
            }
        }
        rest
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Read,
    Write,
}

impl Sys {
    /// Reads until every part is full.
    ///
    /// `alignment` is what the file wants of each call ([`Alignment::NONE`] where it wants nothing): parts that
    /// do not have it are an error here, before the kernel sees them.
    pub(crate) fn read(
        &self,
        file: &OwnedFd,
        into: ReadInto<'_>,
        offset: u64,
        alignment: Alignment,
    ) -> io::Result<()> {
        self.transfer(Way::Read, file, &into.0, offset, alignment)
    }

    /// Writes every part whole.
    pub(crate) fn write(
        &self,
        file: &OwnedFd,
        from: WriteFrom<'_>,
        offset: u64,
        alignment: Alignment,
    ) -> io::Result<()> {
        self.transfer(Way::Write, file, &from.0, offset, alignment)
    }

    fn transfer(
        &self,
        way: Way,
        file: &OwnedFd,
        parts: &Parts<'_>,
        offset: u64,
        alignment: Alignment,
    ) -> io::Result<()> {
        let total = parts.len();
        if !parts.is_aligned(alignment) || !alignment.is_aligned(offset as usize) {
            return Err(io::Error::other(
                "a transfer is not aligned as its file wants; this is a defect of hicache",
            ));
        }
        let (mut moved, mut retries, mut stalled) = (0, 0, false);
        while moved < total {
            let step = self.transfer_once(way, file, parts, moved, offset + moved as u64, alignment);
            let (before, answered) = (moved, step.is_ok());
            match step {
                Ok(0) if way == Way::Read => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) if count > total - moved => {
                    return Err(io::Error::other("the kernel says it moved more than was asked"));
                }
                // A read that ends inside a block at the second try, too, has met the end of the file.
                Ok(count) if way == Way::Read && stalled && alignment.align_down(count) == 0 => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                // A short transfer may end inside a block: go on from the block's start.
                Ok(count) => {
                    moved = if moved + count == total { total } else { alignment.align_down(moved + count) }
                }
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR))
                        && retries < RETRIES_MAX =>
                {
                    std::thread::yield_now();
                }
                Err(error) => return Err(error),
            }
            stalled = answered && moved == before;
            retries = if moved == before { retries + 1 } else { 0 };
            if retries > RETRIES_MAX {
                return Err(io::Error::new(io::ErrorKind::WriteZero, "the transfer moves nothing any more"));
            }
        }
        Ok(())
    }

    /// One system call for what is left after `moved` bytes. Returns bytes moved.
    fn transfer_once(
        &self,
        way: Way,
        file: &OwnedFd,
        parts: &Parts<'_>,
        moved: usize,
        offset: u64,
        alignment: Alignment,
    ) -> io::Result<usize> {
        let call = if way == Way::Read { SysCall::Read } else { SysCall::Write };
        let verdict = self.ask(call, || offset.to_string());
        let rest = match verdict {
            Verdict::Fail(errno) => return Err(io::Error::from_raw_os_error(errno)),
            Verdict::Pass | Verdict::Claim(_) => parts.rest(moved, usize::MAX),
            // Whole blocks, as a device would; what is said may end inside one.
            Verdict::AtMost(len) => parts.rest(moved, alignment.align_up(len).unwrap_or(len)),
        };
        let (fd, start, count) = (file.as_raw_fd(), rest.as_ptr(), rest.len() as libc::c_int);
        let done = match way {
            // SAFETY: invariant 4: each part points into memory that `parts` borrows mutably (a page's pieces or
            // a slice), which outlives this call, and the call is over when it returns.
            Way::Read => unsafe { libc::preadv2(fd, start, count, offset as libc::off_t, 0) },
            // SAFETY: invariant 4: as above; the kernel only reads them.
            Way::Write => unsafe { libc::pwritev2(fd, start, count, offset as libc::off_t, 0) },
        };
        let done = usize::try_from(done).map_err(|_| io::Error::last_os_error())?;
        Ok(match verdict {
            Verdict::AtMost(len) => done.min(len),
            Verdict::Claim(len) => len,
            Verdict::Pass | Verdict::Fail(_) => done,
        })
    }

    pub(crate) fn open(&self, dir: BorrowedFd<'_>, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let call = if flags.contains(OFlags::TMPFILE) { SysCall::OpenUnnamed } else { SysCall::Open };
        // The umask decides who else may read: a store may be shared between users.
        let (flags, mode) = (flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o666));
        self.make(call, path, || match call {
            SysCall::OpenUnnamed => open_beneath(dir, path, flags, mode),
            _ => rustix::fs::openat(dir, path, flags, mode),
        })
    }

    /// Of `path` itself, not of what it links to.
    pub(crate) fn stat(&self, dir: BorrowedFd<'_>, path: &str) -> io::Result<Stat> {
        self.make(SysCall::Stat, path, || rustix::fs::statat(dir, path, AtFlags::SYMLINK_NOFOLLOW))
    }

    /// Whether `path` is a regular file whose own owner or mode keeps this user from reading it. Only to word an error.
    pub(crate) fn is_unreadable_file(&self, dir: BorrowedFd<'_>, path: &Path) -> bool {
        let stat = rustix::fs::statat(dir, path, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
            && rustix::fs::accessat(dir, path, Access::READ_OK, AtFlags::EACCESS) == Err(Errno::ACCESS)
    }

    pub(crate) fn stat_file(&self, file: &OwnedFd) -> io::Result<Stat> {
        self.make(SysCall::Stat, "", || rustix::fs::fstat(file))
    }

    pub(crate) fn sync(&self, file: &OwnedFd) -> io::Result<()> {
        self.make(SysCall::Sync, "", || rustix::fs::fdatasync(file))
    }

    pub(crate) fn sync_dir(&self, dir: BorrowedFd<'_>, path: &str) -> io::Result<()> {
        self.make(SysCall::SyncDir, path, || {
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::fsync(rustix::fs::openat(dir, path, flags, Mode::empty())?)
        })
    }

    /// Names an unnamed file, by its descriptor where the kernel lets us, else by its place in procfs.
    pub(crate) fn link(&self, file: &OwnedFd, dir: BorrowedFd<'_>, path: &str) -> io::Result<()> {
        self.make(SysCall::Link, path, || {
            match rustix::fs::linkat(file, "", dir, path, AtFlags::EMPTY_PATH) {
                Ok(()) => Ok(()),
                Err(Errno::EXIST) => Err(Errno::EXIST),
                Err(_) => {
                    let place = format!("/proc/self/fd/{}", file.as_raw_fd());
                    rustix::fs::linkat(rustix::fs::CWD, place, dir, path, AtFlags::SYMLINK_FOLLOW)
                }
            }
        })
    }

    /// A second name for `from`. Fails with EEXIST when `to` is taken.
    pub(crate) fn link_name(&self, dir: BorrowedFd<'_>, from: &str, to: &str) -> io::Result<()> {
        self.make(SysCall::Link, to, || rustix::fs::linkat(dir, from, dir, to, AtFlags::empty()))
    }

    /// Fails with EEXIST when `to` is taken.
    pub(crate) fn rename(&self, dir: BorrowedFd<'_>, from: &str, to: &str) -> io::Result<()> {
        self.make(SysCall::Rename, to, || {
            rustix::fs::renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE)
        })
    }

    /// To a name that nobody else uses.
    pub(crate) fn rename_to_own(&self, dir: BorrowedFd<'_>, from: &str, to: &str) -> io::Result<()> {
        self.make(SysCall::Rename, to, || rustix::fs::renameat(dir, from, dir, to))
    }

    pub(crate) fn unlink(&self, dir: BorrowedFd<'_>, path: &str) -> io::Result<()> {
        self.make(SysCall::Unlink, path, || rustix::fs::unlinkat(dir, path, AtFlags::empty()))
    }

    /// Of an empty folder.
    pub(crate) fn remove_dir(&self, dir: BorrowedFd<'_>, path: &str) -> io::Result<()> {
        self.make(SysCall::Unlink, path, || rustix::fs::unlinkat(dir, path, AtFlags::REMOVEDIR))
    }

    pub(crate) fn make_dir(&self, dir: BorrowedFd<'_>, path: &str) -> io::Result<()> {
        self.make(SysCall::MakeDir, path, || rustix::fs::mkdirat(dir, path, Mode::from_raw_mode(0o777)))
    }

    /// The bytes of a small file, which must be a regular one. Never waits, as opening a FIFO would.
    pub(crate) fn read_small(&self, dir: BorrowedFd<'_>, path: &str) -> io::Result<Vec<u8>> {
        let file = self.open(dir, path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK)?;
        let stat = self.stat_file(&file)?;
        let len = usize::try_from(stat.st_size).unwrap_or(usize::MAX);
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || len > SMALL_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no small regular file"));
        }
        let mut bytes = vec![0; len];
        self.read(&file, ReadInto::slice(&mut bytes), 0, Alignment::NONE)?;
        Ok(bytes)
    }

    /// The names in a folder, in order.
    pub(crate) fn names(&self, dir: BorrowedFd<'_>, path: &str) -> io::Result<Vec<String>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(dir, path, flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in Dir::new(folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Removes a folder and all that is in it, without leaving it by a link. Returns how many files there were.
    pub(crate) fn remove_tree(&self, dir: BorrowedFd<'_>, path: &str) -> io::Result<u64> {
        let mut removed = 0;
        for _ in 1..EMPTIED_MAX {
            removed += self.empty(dir, path)?;
            match self.remove_dir(dir, path) {
                // A writer that had opened the folder before it was taken away has put something into it.
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => (),
                done => return done.map(|()| removed),
            }
        }
        removed += self.empty(dir, path)?;
        self.remove_dir(dir, path).map(|()| removed)
    }

    /// Removes all that is in a folder.
    fn empty(&self, dir: BorrowedFd<'_>, path: &str) -> io::Result<u64> {
        let mut removed = 0;
        for name in self.names(dir, path)? {
            let path = format!("{path}/{name}");
            match self.unlink(dir, &path) {
                Ok(()) => removed += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => (),
                // A folder: EISDIR on Linux, EPERM elsewhere.
                Err(error) => match self.stat(dir, &path) {
                    Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                        removed += self.remove_tree(dir, &path)?;
                    }
                    _ => return Err(error),
                },
            }
        }
        Ok(removed)
    }

    /// Refuses a file that is longer than the process may make: the write itself would be answered by a signal.
    pub(crate) fn check_file_len(&self, len: usize) -> io::Result<()> {
        match rustix::process::getrlimit(rustix::process::Resource::Fsize).current {
            Some(limit) if len as u64 > limit => Err(io::Error::from_raw_os_error(libc::EFBIG)),
            _ => Ok(()),
        }
    }

    /// Files that the process may have open.
    pub(crate) fn files_max(&self) -> u32 {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        limit.map_or(u32::MAX, |limit| u32::try_from(limit).unwrap_or(u32::MAX))
    }

    pub(crate) fn space(&self, dir: BorrowedFd<'_>) -> io::Result<StatVfs> {
        Ok(rustix::fs::fstatvfs(dir)?)
    }

    /// Takes the lock on `file`, or fails at once with EWOULDBLOCK when somebody has it.
    pub(crate) fn lock(&self, file: &OwnedFd) -> io::Result<()> {
        Ok(rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)?)
    }

    /// The ring's turn to the kernel.
    pub(crate) fn check_enter(&self) -> io::Result<()> {
        self.check(SysCall::Enter, "")
    }

    /// What the ring is told of a read that has `result`: bytes, or an errno below zero.
    pub(crate) fn completion(&self, result: i32, path: impl Fn() -> String) -> i32 {
        match self.ask(SysCall::Completion, path) {
            Verdict::Pass => result,
            Verdict::Fail(errno) => -errno,
            Verdict::AtMost(len) => result.min(len as i32),
            Verdict::Claim(len) => len as i32,
        }
    }

    /// Makes a call, past the seam, and again when a signal interrupts it.
    fn make<T>(
        &self,
        call: SysCall,
        path: &str,
        act: impl Fn() -> std::result::Result<T, Errno>,
    ) -> io::Result<T> {
        let mut interrupted = 0;
        loop {
            match self.check(call, path).and_then(|()| Ok(act()?)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted && interrupted < RETRIES_MAX => {
                    interrupted += 1;
                }
                done => return done,
            }
        }
    }

    fn check(&self, call: SysCall, path: &str) -> io::Result<()> {
        match self.ask(call, || path.to_string()) {
            Verdict::Fail(errno) => Err(io::Error::from_raw_os_error(errno)),
            Verdict::Pass | Verdict::AtMost(_) | Verdict::Claim(_) => Ok(()),
        }
    }

    fn ask(&self, call: SysCall, place: impl Fn() -> String) -> Verdict {
        self.0.as_ref().map_or(Verdict::Pass, |seam| (seam.0)(call, &place()))
    }
}
