//! What to map, and how it is mapped.

use crate::error::Failed;
use crate::mapping::{Advice, Mapping, Sharing};
use crate::{Alignment, AllocError, HugePageSize, HugePages, Region, file, machine, memfd};
use std::os::fd::{AsFd, OwnedFd};

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
    /// (`MAP_SHARED`).
    Memfd,
}

/// Whether every page is faulted in when the region is mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Prefault {
    /// A page is faulted in at its first touch. Memfds and huge pages are reserved all the same, so that the touch
    /// finds them, unless a limit that the kernel checks only then (the hugetlb limit of a cgroup, a cpuset) forbids
    /// it. Anonymous base pages are promised only as far as the machine's overcommit policy goes.
    Off,
    /// Every page is there when [`RegionSpec::map`] returns: no later touch can fail.
    #[default]
    On,
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
}

/// What an attempt to map has got so far. Dropped, it leaves nothing.
pub(crate) struct Mapped {
    pub(crate) mapping: Mapping,
    pub(crate) fd: Option<OwnedFd>,
    /// The page size that was mapped, should the kernel's account not be readable.
    pub(crate) page: Alignment,
}

/// The pages of one attempt.
#[derive(Clone, Copy)]
enum Pages {
    Base,
    /// Base pages that the kernel may join into pages of this size.
    Transparent(Alignment),
    Reserved(HugePageSize),
}

impl RegionSpec {
    /// Maps zeroed memory. What was asked for and not got is in [`Region::fallbacks`] and in one warning each.
    ///
    /// # Errors
    ///
    /// - [`AllocError::InvalidSize`]: the length is zero or wraps around when it is rounded up.
    /// - [`AllocError::Exhausted`]: there is less memory, or there are fewer huge pages, than asked for.
    /// - [`AllocError::Unsupported`]: the machine does not have the page size that is required.
    /// - [`AllocError::Os`]: a system call failed for another reason.
    ///
    /// After an error nothing stays mapped or open.
    pub fn map(&self) -> Result<Region, AllocError> {
        let refused = match self.huge_pages {
            HugePages::Off => return Ok(Region::new(self, self.map_with(Pages::Base)?, None)),
            HugePages::Require(size) => {
                return Ok(Region::new(self, self.map_with(Pages::Reserved(size))?, None));
            }
            HugePages::Prefer(size) => match self.map_with(Pages::Reserved(size)) {
                Ok(mapped) => return Ok(Region::new(self, mapped, None)),
                Err(invalid @ AllocError::InvalidSize { .. }) => return Err(invalid),
                Err(refused) => refused,
            },
        };
        let pages = match self.backing {
            Backing::Private => machine::transparent_size().map_or(Pages::Base, Pages::Transparent),
            // Its blocks are placed when the file gets them, before any advice about the mapping could tell.
            Backing::Shared | Backing::Memfd => Pages::Base,
        };
        Ok(Region::new(self, self.map_with(pages)?, Some(refused)))
    }

    fn map_with(&self, pages: Pages) -> Result<Mapped, AllocError> {
        let huge = match pages {
            Pages::Reserved(size) => Some(size),
            Pages::Base | Pages::Transparent(_) => None,
        };
        let page = huge.map_or_else(Alignment::base_page, HugePageSize::alignment);
        let len = self.rounded(page)?;
        let refusal = |failed: Failed| machine::refusal(failed, len, huge);
        let takes_memory = self.prefault == Prefault::On || self.backing == Backing::Memfd;
        if huge.is_none() && takes_memory {
            machine::check_exists(len)?;
        }
        let (mapping, fd) = match self.backing {
            Backing::Private => (map_private(len, pages).map_err(refusal)?, None),
            Backing::Shared => (map_shared(len, huge).map_err(refusal)?, None),
            Backing::Memfd => {
                let fd = memfd::create(len, huge)?;
                let mapping = file::map_reserved(fd.as_fd(), len, huge)?;
                memfd::seal(&fd)?;
                (mapping, Some(fd))
            }
        };
        if self.prefault == Prefault::On {
            mapping.populate().map_err(refusal)?;
        }
        Ok(Mapped { mapping, fd, page })
    }

    fn rounded(&self, page: Alignment) -> Result<usize, AllocError> {
        let invalid = |what: String| AllocError::InvalidSize { what };
        if self.len == 0 {
            return Err(invalid("0 bytes; ask for at least one".to_owned()));
        }
        // No object, and so no slice, may be longer than `isize::MAX`.
        page.align_up(self.len).filter(|len| isize::try_from(*len).is_ok()).ok_or_else(|| {
            invalid(format!("{} bytes wrap around when rounded up to pages of {}", self.len, page.bytes()))
        })
    }
}

fn map_private(len: usize, pages: Pages) -> Result<Mapping, Failed> {
    let mapping = match pages {
        Pages::Base => Mapping::private(len, Alignment::base_page())?,
        Pages::Transparent(size) => Mapping::private(len, size.max(Alignment::base_page()))?,
        Pages::Reserved(size) => Mapping::hugetlb(len, size, Sharing::Private)?,
    };
    mapping.advise(Advice::DontFork)?;
    let advised = match pages {
        Pages::Base => mapping.advise(Advice::NotTransparent),
        Pages::Transparent(_) => mapping.advise(Advice::Transparent),
        Pages::Reserved(_) => Ok(()),
    };
    match advised {
        // The kernel is built without transparent huge pages: it has none to give and none to keep away.
        Err(failed) if failed.errno() == libc::EINVAL => Ok(mapping),
        advised => advised.map(|()| mapping),
    }
}

/// Anonymous shared memory lies on a mount of the kernel's own that has no size limit, so it needs no reservation:
/// a touch can meet the out-of-memory killer but no SIGBUS.
fn map_shared(len: usize, huge: Option<HugePageSize>) -> Result<Mapping, Failed> {
    match huge {
        None => Mapping::shared(len),
        Some(size) => Mapping::hugetlb(len, size, Sharing::Shared),
    }
}
