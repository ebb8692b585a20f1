//! Why memory could not be had, and what to do about it.

use crate::{HugePageSize, RegisterError};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why memory could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// Less is there than was asked for. Nothing is left mapped or open.
    #[error("{shortage}")]
    Exhausted {
        /// What there is too little of.
        shortage: Shortage,
        /// The answer of the kernel, or the one that it would have given.
        source: io::Error,
    },
    /// A region's length is zero, or wraps around when it is rounded up to pages.
    #[error("invalid region size: {what}")]
    InvalidSize {
        /// What is wrong with it.
        what: String,
    },
    /// Strides with a zero count, a sum that overflows, or pieces that overlap.
    #[error("invalid strides: {what}")]
    InvalidShape {
        /// What is wrong with them.
        what: String,
    },
    /// A region has fewer bytes than the strides cover.
    #[error("the region has {have} bytes, the strides need {need}: map at least `Strides::region_len` bytes")]
    TooSmall {
        /// Bytes needed.
        need: usize,
        /// Bytes had.
        have: usize,
    },
    /// This kernel or file system cannot do what was asked.
    #[error("not supported here: {what}")]
    Unsupported {
        /// What it cannot do, and what to ask instead.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A system call failed for a reason that has no variant of its own.
    #[error("{call} failed")]
    Os {
        /// The call.
        call: &'static str,
        /// Its error.
        source: io::Error,
    },
    /// A registrar refused the region. Earlier registrations are undone and the region is unmapped.
    #[error("a registrar refused the region")]
    Register(#[source] RegisterError),
}

/// What there is too little of. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shortage {
    /// Reserved huge pages.
    HugePages {
        /// The page size asked for.
        size: HugePageSize,
        /// Pages asked for.
        wanted: usize,
        /// Pages that were free and not promised to anybody.
        free: usize,
        /// Pages that the machine reserves in all.
        total: usize,
    },
    /// Memory of the machine, or of this process's share of it.
    Memory {
        /// Bytes asked for.
        wanted: usize,
        /// RAM and swap of the machine.
        total: u64,
    },
    /// Space on a file system.
    FileSystem {
        /// Where it is mounted; `None` for the kernel's own mount, which has no path.
        mount: Option<PathBuf>,
        /// Bytes asked for.
        wanted: usize,
        /// Bytes that were free.
        free: u64,
        /// Its size.
        total: u64,
    },
    /// The size that this process may give a file (`RLIMIT_FSIZE`).
    FileSize {
        /// Bytes asked for.
        wanted: usize,
        /// The limit.
        limit: u64,
    },
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HugePages { size, wanted, free, total } => {
                let enough = total.saturating_add(wanted.saturating_sub(*free));
                let kib = size.alignment().bytes() / 1024;
                write!(
                    f,
                    "not enough huge pages: {wanted} pages of {size} wanted, {free} free; reserve more with \
                     `echo {enough} > /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages`, or ask for less"
                )
            }
            Self::Memory { wanted, total } => write!(
                f,
                "not enough memory: {wanted} bytes wanted, the machine has {total} with swap; ask for less, or look \
                 at the address space limit (`ulimit -v`) and `/proc/sys/vm/overcommit_memory`"
            ),
            Self::FileSystem { mount, wanted, free, total } => {
                write!(f, "not enough space: {wanted} bytes wanted, ")?;
                match mount {
                    Some(mount) => write!(
                        f,
                        "{at} has {total} and {free} are free; enlarge it (`mount -o remount,size=... {at}`, for a \
                         container `--shm-size`), or ask for less",
                        at = mount.display()
                    ),
                    None => write!(f, "the shared memory of the kernel has {free} free; ask for less"),
                }
            }
            Self::FileSize { wanted, limit } => write!(
                f,
                "file size limit too low: {wanted} bytes wanted, this process may have {limit}; raise RLIMIT_FSIZE \
                 (`ulimit -f`), or ask for less"
            ),
        }
    }
}

/// A system call that failed, before it is known what that means.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) call: &'static str,
    pub(crate) source: io::Error,
}

impl Failed {
    /// Takes `errno` of the call that just failed on this thread.
    pub(crate) fn last(call: &'static str) -> Self {
        Self { call, source: io::Error::last_os_error() }
    }

    pub(crate) fn errno(&self) -> i32 {
        self.source.raw_os_error().unwrap_or(0)
    }
}

impl From<Failed> for AllocError {
    fn from(failed: Failed) -> Self {
        Self::Os { call: failed.call, source: failed.source }
    }
}
