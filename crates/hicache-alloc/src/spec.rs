//! What to map: everything that may be asked of a region.

use crate::{AllocError, HugePages, Machine, Numa, Region, attempt};
use std::num::NonZeroU32;

/// What stands behind a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Backing {
    /// Anonymous memory of this process alone (`MAP_PRIVATE`). A forked child does not have it at all
    /// (`MADV_DONTFORK`), so that copy-on-write never puts a device and this process on different pages; a child
    /// that touches it gets a SIGSEGV.
    #[default]
    Private,
    /// Anonymous memory that forked children share (`MAP_SHARED`).
    Shared,
    /// A memfd, sealed at its length, that another process can be given ([`Region::fd`]) and map too
    /// (`MAP_SHARED`). Where memfds are refused, a file without a name in `/dev/shm` stands in for it; that is a
    /// [`Fallback`](crate::Fallback), since nothing fixes such a file's length.
    Memfd,
}

/// Whether every page is faulted in when the region is mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Prefault {
    /// A page is faulted in at its first touch. Memfds and huge pages are reserved all the same, so that the touch
    /// finds them, unless a limit that the kernel checks only then (the hugetlb limit of a cgroup, a cpuset) forbids
    /// it. Anonymous base pages are promised only as far as the machine's overcommit policy goes.
    Off,
    /// Every page is there when [`RegionSpec::map`] returns: no later touch can fail. On as many threads as the
    /// process has processors, 16 at most, each with at least 16 MiB to do.
    #[default]
    On,
    /// As [`Prefault::On`], on so many threads, if there is that much to do. The calling thread is one of them.
    With(NonZeroU32),
}

/// Whether the memory is locked (mlock), so that the kernel never swaps it out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lock {
    /// Not locked. Reserved huge pages are never swapped out, locked or not.
    #[default]
    Off,
    /// Locked where this process may, else a [`Fallback`](crate::Fallback). Pages that are not prefaulted are locked
    /// as they come.
    Prefer,
    /// Locked or an error.
    Require,
}

/// Whether it is asked beforehand if the memory is there.
///
/// What is looked at: the kernel's `MemAvailable`, the limits of the process's cgroups (without the file cache in
/// them, which gives way), the size of the file system for a file in `/dev/shm`, for reserved huge pages their pool
/// without the pages promised to others, and the node's own share where one is required. Swap does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Budget {
    /// A region that takes its memory when it is mapped (all but anonymous memory without [`Prefault`]) is refused
    /// with the limit's name if there is less. No page has been touched then.
    #[default]
    Check,
    /// Only what the machine could never hold is refused. The out-of-memory killer may have the last word.
    Skip,
}

/// What to map: a plain value, [`RegionSpec::map`] does the work.
///
/// ```
/// # use hicache_alloc::RegionSpec;
/// let region = RegionSpec { len: 1 << 20, ..Default::default() }.map()?;
/// assert_eq!(region.len(), 1 << 20);
/// # Ok::<(), hicache_alloc::AllocError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionSpec {
    /// Bytes; what is mapped is rounded up to the page size.
    pub len: usize,
    /// What stands behind the region.
    pub backing: Backing,
    /// Which page size is asked for.
    pub huge_pages: HugePages,
    /// Whether every page is faulted in at once.
    pub prefault: Prefault,
    /// Which NUMA node its pages are to lie on.
    pub numa: Numa,
    /// Whether it is locked.
    pub lock: Lock,
    /// Whether it is asked beforehand if the memory is there.
    pub budget: Budget,
}

impl RegionSpec {
    /// Maps zeroed memory of the machine that this process runs on. What was asked for and not got is in
    /// [`Region::fallbacks`] and in one warning each.
    ///
    /// # Errors
    ///
    /// - [`AllocError::InvalidSize`]: the length is zero or wraps around when it is rounded up.
    /// - [`AllocError::UnknownNode`]: the NUMA node is not online.
    /// - [`AllocError::Exhausted`]: there is less memory, or there are fewer huge pages, than asked for, or less may
    ///   be locked.
    /// - [`AllocError::Unsupported`]: the machine does not have the page size that is required, or cannot bind
    ///   memory to the node that is.
    /// - [`AllocError::Denied`]: this process may not bind memory to the node that is required.
    /// - [`AllocError::Os`]: a system call failed for another reason.
    ///
    /// After an error nothing stays mapped or open.
    pub fn map(&self) -> Result<Region, AllocError> {
        self.map_on(&Machine::default())
    }

    /// As [`RegionSpec::map`], with facts read where `machine` says, and counted there.
    ///
    /// # Errors
    ///
    /// As [`RegionSpec::map`].
    pub fn map_on(&self, machine: &Machine) -> Result<Region, AllocError> {
        let mapped = attempt::map(self, machine);
        match &mapped {
            Ok(region) => machine.tally().mapped(region.fallbacks()),
            Err(_) => machine.tally().refused(),
        }
        mapped
    }

    /// Whether mapping takes the memory, so that it must be there at once.
    pub(crate) fn takes_memory(&self) -> bool {
        self.prefault != Prefault::Off || self.backing == Backing::Memfd
    }
}
