//! One owned mapping of host memory, and what it turned out to be.

use crate::account::{self, Account};
use crate::adopt::Lent;
use crate::attempt::{Mapped, with_source};
use crate::mapping::Mapping;
use crate::{Alignment, AllocError, Backing, Machine, RegionSpec};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

/// Something that was asked for and not got. The region works without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// What was not got: `huge_pages`, `memfd`, `numa`, `populate` (the kernel's own way to fault pages in),
    /// `prefault_threads`, `lock`, or `page_account` (the kernel's account of the pages).
    pub what: &'static str,
    /// Why, with numbers.
    pub why: String,
}

/// One owned mapping of host memory, zeroed when made by [`RegionSpec::map`]. Unmapped on drop.
///
/// It hands out an address and no references: bytes are reached through the pages of a pool.
pub struct Region {
    memory: Memory,
    fd: Option<OwnedFd>,
    is_sealed: bool,
    len: usize,
    backing: Backing,
    account: Account,
    numa_bound: bool,
    is_locked: bool,
    prefault_threads: usize,
    fallbacks: Vec<Fallback>,
}

enum Memory {
    Mapped(Mapping),
    Lent(Lent),
}

impl Region {
    /// Reads the kernel's account of what was mapped, and tells of every fallback once. `refused` is why there are
    /// no reserved huge pages although they were preferred.
    pub(crate) fn new(
        spec: &RegionSpec,
        machine: &Machine,
        mapped: Mapped,
        refused: Option<AllocError>,
    ) -> Self {
        let memory = Memory::Mapped(mapped.mapping);
        let mut fallbacks = Vec::new();
        let account = memory.account(machine, mapped.page, &mut fallbacks);
        if let Some(refused) = refused {
            let why = format!(
                "{}; on base pages instead, {} of {} bytes on transparent huge pages",
                with_source(&refused),
                account.huge_len,
                memory.len()
            );
            fallbacks.push(Fallback { what: "huge_pages", why });
        }
        fallbacks.extend(mapped.fallbacks);
        tell(&fallbacks, spec.len);
        Self {
            memory,
            fd: mapped.file,
            is_sealed: mapped.is_sealed,
            len: spec.len,
            backing: spec.backing,
            account,
            numa_bound: mapped.numa_bound,
            is_locked: mapped.is_locked,
            prefault_threads: mapped.prefault_threads,
            fallbacks,
        }
    }

    /// A region of somebody else's memory.
    pub(crate) fn lent(lent: Lent) -> Self {
        let memory = Memory::Lent(lent);
        let mut fallbacks = Vec::new();
        let account = memory.account(&Machine::default(), Alignment::base_page(), &mut fallbacks);
        tell(&fallbacks, memory.len());
        Self {
            len: memory.len(),
            memory,
            fd: None,
            is_sealed: false,
            backing: Backing::Shared,
            account,
            numa_bound: false,
            is_locked: false,
            prefault_threads: 0,
            fallbacks,
        }
    }

    /// Bytes asked for.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never true: a region has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes mapped and usable: [`Region::len`] rounded up to the page size.
    pub fn capacity(&self) -> usize {
        self.memory.len()
    }

    /// The page size that the kernel tells for this mapping: that of the reserved huge pages, else the base page
    /// (also when transparent huge pages hold some of it).
    pub fn page_size(&self) -> Alignment {
        self.account.page_size
    }

    /// Bytes on huge pages, reserved or transparent, by the kernel's own account, when the region was mapped.
    pub fn huge_len(&self) -> usize {
        self.account.huge_len
    }

    /// What stands behind it; [`Backing::Shared`] for adopted memory, which others may write.
    pub fn backing(&self) -> Backing {
        self.backing
    }

    /// Whether nobody outside this process can write it, so that references to its bytes may exist.
    pub fn is_exclusive(&self) -> bool {
        self.backing == Backing::Private && !self.is_adopted()
    }

    /// The first byte, valid for [`Region::capacity`] bytes while the region lives. To read or write through it is
    /// the caller's `unsafe`: the bytes belong to the pages of the pool that owns the region.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory.base().as_ptr()
    }

    /// The file of a [`Backing::Memfd`] region, [`Region::capacity`] bytes long.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// Whether the length of [`Region::fd`] is fixed for good. It is, unless memfds are refused here and another
    /// file stands in: then whoever has it can cut it short, and a touch behind its end is a SIGBUS.
    pub fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// Whether the memory is bound to the NUMA node that was preferred or required, and every page that was there
    /// when the region was mapped lies on it, by the kernel's own account. False if no node was asked for.
    pub fn numa_bound(&self) -> bool {
        self.numa_bound
    }

    /// Whether the memory is locked.
    pub fn is_locked(&self) -> bool {
        self.is_locked
    }

    /// Whether it is somebody else's memory ([`Region::adopt`]).
    pub fn is_adopted(&self) -> bool {
        matches!(self.memory, Memory::Lent(_))
    }

    /// Threads that faulted its pages in; 0 if they come at their first touch.
    pub fn prefault_threads(&self) -> usize {
        self.prefault_threads
    }

    /// What was asked for and not got.
    pub fn fallbacks(&self) -> &[Fallback] {
        &self.fallbacks
    }
}

impl Memory {
    fn base(&self) -> NonNull<u8> {
        match self {
            Self::Mapped(mapping) => mapping.base(),
            Self::Lent(lent) => lent.base(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Mapped(mapping) => mapping.len(),
            Self::Lent(lent) => lent.len(),
        }
    }

    /// The kernel's account, or where it is not to be read the page size that was mapped, which is told.
    fn account(&self, machine: &Machine, page: Alignment, fallbacks: &mut Vec<Fallback>) -> Account {
        let start = self.base().addr().get();
        account::read(machine, start..start + self.len()).unwrap_or_else(|error| {
            let why = format!("smaps: {error}; the page size is the one that was mapped");
            fallbacks.push(Fallback { what: "page_account", why });
            let huge_len = if page > Alignment::base_page() { self.len() } else { 0 };
            Account { page_size: page, huge_len }
        })
    }
}

fn tell(fallbacks: &[Fallback], len: usize) {
    for fallback in fallbacks {
        tracing::warn!(what = fallback.what, why = %fallback.why, len, "region fell back");
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("address", &self.as_ptr())
            .field("len", &self.len)
            .field("capacity", &self.capacity())
            .field("backing", &self.backing)
            .field("page_size", &self.page_size().bytes())
            .field("huge_len", &self.huge_len())
            .field("numa_bound", &self.numa_bound)
            .field("is_locked", &self.is_locked)
            .field("fallbacks", &self.fallbacks)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}
