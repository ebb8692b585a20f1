//! Why memory could not be had, and what to do about it.

use crate::{HugePageSize, NumaNode, RegisterError};
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
    /// The system refuses it to this process, not to everybody.
    #[error("not permitted: {what}")]
    Denied {
        /// What is refused, the likely cause, and what to do.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A NUMA node was named that is not online.
    #[error("no NUMA node {given}: online here: {online}")]
    UnknownNode {
        /// The node as it was named.
        given: String,
        /// The numbers of the nodes that are online.
        online: String,
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
    /// Memory that the machine can give now without swapping (`MemAvailable`).
    Available {
        /// Bytes asked for.
        wanted: usize,
        /// Bytes that can be had.
        available: u64,
    },
    /// What a cgroup, and so the container or service that this process is in, may use.
    Cgroup {
        /// The file that holds the limit.
        file: PathBuf,
        /// Bytes asked for.
        wanted: usize,
        /// The limit.
        limit: u64,
        /// Bytes charged to the group.
        used: u64,
        /// Those of them that are file cache, which gives way.
        reclaimable: u64,
    },
    /// Memory of one NUMA node.
    Node {
        /// The node.
        node: NumaNode,
        /// Bytes asked for.
        wanted: usize,
        /// Bytes that were free, or are file cache.
        free: u64,
    },
    /// Memory that this process may lock (`RLIMIT_MEMLOCK`).
    Locked {
        /// Bytes asked for.
        wanted: usize,
        /// The limit, over all that the process has locked; `None` if there is none.
        limit: Option<u64>,
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
            Self::Available { wanted, available } => write!(
                f,
                "not enough memory: {wanted} bytes wanted, {available} available (MemAvailable); ask for less, or free \
                 some"
            ),
            Self::Cgroup { file, wanted, limit, used, reclaimable } => write!(
                f,
                "the cgroup limit is too low: {wanted} bytes wanted, {} allows {limit}, of which {used} are in use \
                 ({reclaimable} of them file cache, which gives way); raise the limit of the container or service \
                 (`--memory`, `MemoryMax=`), or ask for less",
                file.display()
            ),
            Self::Node { node, wanted, free } => write!(
                f,
                "not enough memory on NUMA node {node}: {wanted} bytes wanted, {free} free there; prefer the node \
                 instead of requiring it, or ask for less"
            ),
            Self::Locked { wanted, limit } => {
                write!(f, "cannot lock memory: {wanted} bytes wanted, ")?;
                match limit {
                    Some(limit) => write!(f, "this process may lock {limit} in all")?,
                    None => write!(f, "although RLIMIT_MEMLOCK sets no limit")?,
                }
                write!(
                    f,
                    "; raise RLIMIT_MEMLOCK (`ulimit -l`, `LimitMEMLOCK=`, for a container `--ulimit memlock=-1`) or \
                     give CAP_IPC_LOCK"
                )
            }
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
