//! What a directory allows: found out once, at open, by doing it.

use crate::draft::is_unsupported;
use crate::fail::io_error;
use crate::options::{Direct, Engine, FileOptions};
use crate::record::{MARKER, Marker};
use crate::sys::{self, ReadInto, Sys, WriteFrom};
use crate::writer::Writer;
use hicache_core::{Alignment, Error, ErrorKind, Fallback, Result};
use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

/// Alignments to try where the kernel does not tell, in bytes: the sectors of devices in the field.
const CANDIDATES: [usize; 2] = [512, 4096];

/// What was found.
#[derive(Debug)]
pub(crate) struct Probe {
    /// Direct I/O works, with this alignment of address, offset and length.
    pub(crate) alignment: Option<Alignment>,
    /// Whoever starts a read here waits for it, where he does not leave it to a thread.
    pub(crate) reads_wait: bool,
    /// Without direct I/O the store is not to work.
    pub(crate) required: bool,
    /// Unnamed files work, and can be given a name.
    pub(crate) unnamed: bool,
    /// This process's folder of temporaries, where one was needed.
    pub(crate) writer: Option<Writer>,
    /// Files can be made.
    pub(crate) writable: bool,
    /// What was asked for and not got.
    pub(crate) fallbacks: Vec<Fallback>,
}

/// The file that is probed.
enum Subject {
    /// Unnamed, ours.
    Unnamed(OwnedFd),
    /// With a name among the temporaries of this writer.
    Named(Writer, String),
    /// The marker, only to read: nothing can be made here now.
    Marker,
}

/// The block that the directory's device wants, in bytes; 0 when it cannot be told.
pub(crate) fn block_of(sys: &Sys, dir: BorrowedFd<'_>) -> usize {
    let file = sys.open(dir, ".", OFlags::TMPFILE | OFlags::RDWR);
    file.ok().and_then(|file| told_alignment(&file)).flatten().map_or(0, Alignment::bytes)
}

/// Looks at the store in `dir`, whose marker is there.
pub(crate) fn look(
    sys: &Sys,
    path: &Path,
    dir: BorrowedFd<'_>,
    marker: &Marker,
    options: &FileOptions,
) -> Result<Probe> {
    let mut fallbacks = Vec::new();
    let fail = |error| io_error(sys, dir, "probe store", path, error);
    let (subject, writable) = make_subject(sys, path, dir, &mut fallbacks).map_err(fail)?;
    let unnamed = match &subject {
        Subject::Unnamed(file) => can_be_named(sys, path, dir, file, &mut fallbacks),
        Subject::Named(..) => false,
        Subject::Marker => true,
    };
    let direct = match options.direct {
        Direct::Off => Ok(None),
        Direct::Prefer | Direct::Require => find_alignment(sys, dir, &subject, marker.block).map(Some),
    };
    let writer = match subject {
        Subject::Named(writer, name) => {
            sys.unlink(dir, &name).map_err(fail)?;
            Some(writer)
        }
        Subject::Unnamed(_) | Subject::Marker => None,
    };
    let alignment = match direct {
        Ok(found) => found,
        Err(why) if options.direct == Direct::Require => {
            return Err(Error::new(ErrorKind::Unsupported, "open store")
                .why(format_args!("direct I/O is required and does not work here: {why}"))
                .with("path", path.display())
                .fix("set direct=true to let it fall back, or name a directory on a local disk"));
        }
        Err(why) => {
            let why = format!("{}: direct I/O does not work here ({why}); buffered", path.display());
            fallbacks.push(Fallback { what: "direct", why });
            None
        }
    };
    let (alignment, reads_wait) = (alignment.map(|found| found.0), alignment.is_some_and(|found| found.1));
    if reads_wait && options.engine != Engine::Threads {
        let why = format!(
            "{}: this file system cannot start a read without waiting for it; a ring's reads take a thread of the \
             kernel's each, and lone gets go to the workers",
            path.display()
        );
        fallbacks.push(Fallback { what: "nowait", why });
    }
    if let Some(error) = sys::opens_through_links(dir) {
        let why = format!(
            "{}: openat2 is not to be had ({error}: a kernel before 5.6, or a container's seccomp profile); a link \
             that somebody puts in place of a folder of the store is followed",
            path.display()
        );
        fallbacks.push(Fallback { what: "openat2", why });
    }
    let required = options.direct == Direct::Require;
    Ok(Probe { alignment, reads_wait, required, unnamed, writer, writable, fallbacks })
}

/// A file to try things on, and whether the directory can be written at all.
fn make_subject(
    sys: &Sys,
    path: &Path,
    dir: BorrowedFd<'_>,
    fallbacks: &mut Vec<Fallback>,
) -> io::Result<(Subject, bool)> {
    let made = match sys.open(dir, ".", OFlags::TMPFILE | OFlags::RDWR) {
        Ok(file) => Ok(Subject::Unnamed(file)),
        Err(error) if is_unsupported(&error) => {
            fallbacks.push(no_unnamed(path, &error));
            Writer::create(sys, dir).and_then(|writer| {
                let name = writer.new_name();
                sys.open(dir, &name, OFlags::CREATE | OFlags::EXCL | OFlags::RDWR)?;
                Ok(Subject::Named(writer, name))
            })
        }
        Err(error) => Err(error),
    };
    let told = |why: &str, error: &io::Error| Fallback {
        what: "writes",
        why: format!("{}: {why} ({error}); what is stored is served", path.display()),
    };
    match made {
        Ok(subject) => Ok((subject, true)),
        Err(error) => match error.raw_os_error() {
            Some(libc::EROFS | libc::EACCES | libc::EPERM) => {
                fallbacks.push(told("this user cannot write here", &error));
                Ok((Subject::Marker, false))
            }
            // Room may come; until then sets say so themselves.
            Some(libc::ENOSPC | libc::EDQUOT) => {
                fallbacks.push(told("there is no room", &error));
                Ok((Subject::Marker, true))
            }
            _ => Err(error),
        },
    }
}

pub(crate) fn no_unnamed(path: &Path, error: &io::Error) -> Fallback {
    let why = format!(
        "{}: no unnamed files here ({error}); pages are written under temporary names",
        path.display()
    );
    Fallback { what: "unnamed_files", why }
}

/// Asks for a name that is taken: the answer says whether a free one could be had, and nothing is made that a
/// kill would leave.
fn can_be_named(
    sys: &Sys,
    path: &Path,
    dir: BorrowedFd<'_>,
    file: &OwnedFd,
    fallbacks: &mut Vec<Fallback>,
) -> bool {
    match sys.link(file, dir, MARKER) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => true,
        Ok(()) => true,
        Err(error) => {
            fallbacks.push(no_unnamed(path, &error));
            false
        }
    }
}

/// The alignment that direct I/O works with, and whether who starts a read waits for it; or why there is none.
fn find_alignment(
    sys: &Sys,
    dir: BorrowedFd<'_>,
    subject: &Subject,
    block: usize,
) -> std::result::Result<(Alignment, bool), String> {
    let flags = OFlags::RDWR | OFlags::DIRECT;
    let file = match subject {
        Subject::Unnamed(_) => sys.open(dir, ".", flags | OFlags::TMPFILE),
        Subject::Named(_, name) => sys.open(dir, name, flags),
        Subject::Marker => sys.open(dir, MARKER, OFlags::RDONLY | OFlags::DIRECT),
    };
    let file = match file {
        // No room for another file says nothing about direct I/O: the marker is there to be read.
        Err(error) if is_shortage(&error) => sys.open(dir, MARKER, OFlags::RDONLY | OFlags::DIRECT),
        file => file,
    };
    let file = file.map_err(|error| format!("opening with O_DIRECT: {error}"))?;
    let only_read = !flags_of(&file).contains(OFlags::RDWR);
    if !flags_of(&file).contains(OFlags::DIRECT) {
        return Err("the file system drops O_DIRECT".to_string());
    }
    let candidates: Vec<Alignment> = match told_alignment(&file) {
        Some(None) => return Err("the kernel says that these files cannot do it".to_string()),
        Some(Some(told)) => vec![told],
        None => CANDIDATES.into_iter().chain([block]).filter_map(Alignment::new).collect(),
    };
    let mut why = format!("no alignment up to the store's block of {block} bytes works");
    for alignment in candidates.into_iter().filter(|candidate| candidate.bytes() <= block) {
        match try_alignment(sys, &file, only_read, alignment) {
            Ok(()) => return Ok((alignment, reads_wait(&file))),
            Err(error) => why = format!("a transfer aligned to {} bytes: {error}", alignment.bytes()),
        }
    }
    Err(why)
}

fn flags_of(file: &OwnedFd) -> OFlags {
    rustix::fs::fcntl_getfl(file).unwrap_or(OFlags::empty())
}

/// Asks for one byte without waiting, which a file system that can do so judges by its alignment.
///
/// An io_uring does not ask: since page files are opened with O_NONBLOCK, it takes any of them to be able to.
fn reads_wait(file: &OwnedFd) -> bool {
    let mut byte = [0];
    let mut part = [io::IoSliceMut::new(&mut byte)];
    let refused = rustix::io::preadv2(file, &mut part, 0, ReadWriteFlags::NOWAIT) == Err(Errno::OPNOTSUPP);
    // Two refuse and need not: a tmpfs has nothing to wait for, and an overlay hands a ring's wish not to wait on to
    // what lies below it.
    let kind = rustix::fs::fstatfs(file).map(|of| of.f_type);
    refused && !matches!(kind, Ok(libc::TMPFS_MAGIC | libc::OVERLAYFS_SUPER_MAGIC))
}

fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EMFILE | libc::ENFILE))
}

/// What statx tells: `None` nothing, `Some(None)` that direct I/O is not to be had.
fn told_alignment(file: &OwnedFd) -> Option<Option<Alignment>> {
    let told = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    if told.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return None;
    }
    Some(Alignment::new(told.stx_dio_mem_align.max(told.stx_dio_offset_align) as usize))
}

/// One real write and one real read, at an address that is aligned to `alignment` and to nothing more.
fn try_alignment(sys: &Sys, file: &OwnedFd, only_read: bool, alignment: Alignment) -> io::Result<()> {
    let len = alignment.bytes();
    let mut memory = vec![0u8; 4 * len];
    let start = memory.as_ptr().align_offset(2 * len) + len;
    let buffer = &mut memory[start..start + len];
    if only_read {
        // Shorter than a block: one short read is all there is to try.
        return match sys.read(file, ReadInto::slice(buffer), 0, alignment) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
            _ => Ok(()),
        };
    }
    buffer.fill(0xA5);
    sys.check_file_len(len)?;
    match sys.write(file, WriteFrom::slice(buffer), 0, alignment) {
        // A full disk says nothing about alignment.
        Err(error) if is_shortage(&error) => return Ok(()),
        written => written?,
    }
    buffer.fill(0);
    sys.read(file, ReadInto::slice(buffer), 0, alignment)?;
    if buffer.iter().all(|byte| *byte == 0xA5) {
        Ok(())
    } else {
        Err(io::Error::other("what was written is not what was read"))
    }
}
