//! One owned mapping of host memory, and what it turned out to be.

use crate::account::{self, Account};
use crate::mapping::Mapping;
use crate::spec::Mapped;
use crate::{Alignment, AllocError, Backing, RegionSpec};
use std::error::Error;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Something that was asked for and not got. The region works without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// What was not got, for example `huge_pages`.
    pub what: &'static str,
    /// Why, with numbers.
    pub why: String,
}

/// One owned mapping of host memory, zeroed when made by [`RegionSpec::map`]. Unmapped on drop.
///
/// It hands out an address and no references: bytes are reached through the pages of a pool.
pub struct Region {
    mapping: Mapping,
    fd: Option<OwnedFd>,
    len: usize,
    backing: Backing,
    account: Account,
    fallbacks: Vec<Fallback>,
}

impl Region {
    /// Reads the kernel's account of what was mapped, and tells of every fallback once. `refused` is why there are
    /// no reserved huge pages although they were preferred.
    pub(crate) fn new(spec: &RegionSpec, mapped: Mapped, refused: Option<AllocError>) -> Self {
        let Mapped { mapping, fd, page } = mapped;
        let mut fallbacks = Vec::new();
        let start = mapping.base().addr().get();
        let account = account::read(start..start + mapping.len()).unwrap_or_else(|error| {
            let why = format!("/proc/self/smaps: {error}; the page size is the one that was mapped");
            fallbacks.push(Fallback { what: "page_account", why });
            let huge_len = if page > Alignment::base_page() { mapping.len() } else { 0 };
            Account { page_size: page, huge_len }
        });
        if let Some(refused) = refused {
            let answer = refused.source().map(|source| format!(" ({source})")).unwrap_or_default();
            let why = format!(
                "{refused}{answer}; on base pages instead, {} of {} bytes on transparent huge pages",
                account.huge_len,
                mapping.len()
            );
            fallbacks.push(Fallback { what: "huge_pages", why });
        }
        for fallback in &fallbacks {
            tracing::warn!(what = fallback.what, why = %fallback.why, len = spec.len, "region fell back");
        }
        Self { mapping, fd, len: spec.len, backing: spec.backing, account, fallbacks }
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
        self.mapping.len()
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

    /// What stands behind it.
    pub fn backing(&self) -> Backing {
        self.backing
    }

    /// Whether nobody outside this process can write it, so that references to its bytes may exist.
    pub fn is_exclusive(&self) -> bool {
        self.backing == Backing::Private
    }

    /// The first byte, valid for [`Region::capacity`] bytes while the region lives. To read or write through it is
    /// the caller's `unsafe`: the bytes belong to the pages of the pool that owns the region.
    pub fn as_ptr(&self) -> *mut u8 {
        self.mapping.base().as_ptr()
    }

    /// The sealed memfd of a [`Backing::Memfd`] region, [`Region::capacity`] bytes long.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// What was asked for and not got.
    pub fn fallbacks(&self) -> &[Fallback] {
        &self.fallbacks
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
            .field("fallbacks", &self.fallbacks)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}
