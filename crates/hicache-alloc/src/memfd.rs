//! An anonymous file that another process can be given, and that nobody can cut short.

use crate::error::Failed;
use crate::file::failed;
use crate::{AllocError, HugePageSize};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// An empty memfd that is closed on exec, on `huge` pages if told so.
pub(crate) fn create(huge: Option<HugePageSize>) -> Result<OwnedFd, Failed> {
    let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    flags |= match huge {
        None => MemfdFlags::empty(),
        Some(HugePageSize::Size2M) => MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
        Some(HugePageSize::Size1G) => MemfdFlags::HUGETLB | MemfdFlags::HUGE_1GB,
    };
    let made = match rustix::fs::memfd_create("hicache", flags | MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3 does not know the flag.
        Err(Errno::INVAL) => rustix::fs::memfd_create("hicache", flags),
        made => made,
    };
    made.map_err(failed("memfd_create"))
}

/// Whether a failed [`create`] says that there are no memfds for this process, and not that it ran out of something.
pub(crate) fn is_refused(failed: &Failed) -> bool {
    matches!(failed.errno(), libc::ENOSYS | libc::EPERM | libc::EACCES)
}

/// Fixes the length of `file` for good: no process that maps it can meet a SIGBUS because another one cut it.
pub(crate) fn seal(file: &OwnedFd) -> Result<(), AllocError> {
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    Ok(rustix::fs::fcntl_add_seals(file, seals).map_err(failed("fcntl(F_ADD_SEALS)"))?)
}
