//! A file's memory, whose every block is there before anybody touches it.
//!
//! Setting a length on a memory file system takes no memory: the blocks are charged at the first touch, and a touch
//! that finds none is a SIGBUS. So the blocks are had by fallocate, which answers with an error instead.

use crate::error::Failed;
use crate::mapping::Mapping;
use crate::{AllocError, HugePageSize, Machine, Shortage};
use rustix::fs::FallocateFlags;
use rustix::process::Resource;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

/// One fallocate call. A signal makes the kernel undo the whole call, so a large one might never end.
const STEP: u64 = 256 << 20;

/// Gives `file` the length `len` and maps it. `huge` says that it is a hugetlb file of that page size, and `len` is
/// then a multiple of it; the kernel sets its pages aside here. A file on base pages has none yet: see [`reserve`].
/// On failure the mapping is gone; the file is the caller's.
pub(crate) fn map(
    machine: &Machine,
    file: BorrowedFd<'_>,
    len: usize,
    huge: Option<HugePageSize>,
) -> Result<Mapping, AllocError> {
    check_size_limit(len)?;
    rustix::fs::ftruncate(file, len as u64).map_err(failed("ftruncate"))?;
    Mapping::file(file, len, machine.tally()).map_err(|failed| machine.refusal(failed, len, huge))
}

/// Reserves every block of `file`, which has the length `len`.
pub(crate) fn reserve(machine: &Machine, file: BorrowedFd<'_>, len: usize) -> Result<(), AllocError> {
    let before = space(file);
    allocate(file, len as u64).map_err(|failed| match failed.errno() {
        libc::ENOSPC | libc::EDQUOT => no_space(machine, file, len, before, failed.source),
        libc::EOPNOTSUPP => AllocError::Unsupported {
            what: "reserving space: the file system has no fallocate; use a memory file system".to_owned(),
            source: failed.source,
        },
        _ => machine.refusal(failed, len, None),
    })
}

/// Refuses `len` bytes that the file system of `file` has no room for now.
pub(crate) fn check_space(machine: &Machine, file: BorrowedFd<'_>, len: usize) -> Result<(), AllocError> {
    match space(file) {
        // A size of 0 is none at all: the file system may use all memory.
        Some((total, free)) if total > 0 && free < len as u64 => {
            let source = io::Error::from_raw_os_error(libc::ENOSPC);
            Err(no_space(machine, file, len, Some((total, free)), source))
        }
        _ => Ok(()),
    }
}

fn no_space(
    machine: &Machine,
    file: BorrowedFd<'_>,
    wanted: usize,
    space: Option<(u64, u64)>,
    source: io::Error,
) -> AllocError {
    let (total, free) = space.unwrap_or((0, 0));
    AllocError::Exhausted {
        shortage: Shortage::FileSystem { mount: mount(machine, file), wanted, free, total },
        source,
    }
}

fn allocate(file: BorrowedFd<'_>, len: u64) -> Result<(), Failed> {
    let mut start = 0;
    while start < len {
        let step = STEP.min(len - start);
        match rustix::fs::fallocate(file, FallocateFlags::empty(), start, step) {
            Ok(()) => start += step,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(failed("fallocate")(errno)),
        }
    }
    Ok(())
}

/// Above RLIMIT_FSIZE the kernel does not only fail the call, it also kills the process by SIGXFSZ.
fn check_size_limit(len: usize) -> Result<(), AllocError> {
    match rustix::process::getrlimit(Resource::Fsize).current {
        Some(limit) if limit < len as u64 => Err(AllocError::Exhausted {
            shortage: Shortage::FileSize { wanted: len, limit },
            source: io::Error::from_raw_os_error(libc::EFBIG),
        }),
        _ => Ok(()),
    }
}

/// Size and free bytes of the file system that `file` is on.
fn space(file: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let stat = rustix::fs::fstatvfs(file).ok()?;
    Some((stat.f_blocks.saturating_mul(stat.f_frsize), stat.f_bavail.saturating_mul(stat.f_frsize)))
}

/// Where the file system of `file` is mounted. A memfd's is mounted nowhere.
fn mount(machine: &Machine, file: BorrowedFd<'_>) -> Option<PathBuf> {
    let device = rustix::fs::fstat(file.as_fd()).ok()?.st_dev;
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = fs::read_to_string(machine.paths().procfs.join("self/mountinfo")).ok()?;
    // The third word of a line is the device, the fifth the place.
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&device))?;
    line.split(' ').nth(4).map(PathBuf::from)
}

/// Names the call that an error number came from.
pub(crate) fn failed(call: &'static str) -> impl Fn(rustix::io::Errno) -> Failed {
    move |errno| Failed { call, source: errno.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_length_is_an_error() {
        let (_reader, pipe) = std::io::pipe().unwrap();
        let error = map(&Machine::default(), pipe.as_fd(), 4096, None).unwrap_err();
        assert!(matches!(error, AllocError::Os { call: "ftruncate", .. }), "{error:?}");
    }
}
