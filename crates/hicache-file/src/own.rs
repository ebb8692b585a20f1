//! Pages of the store's own, where gets go that must not write to the caller's memory after their deadline.

use crate::own_memory;
use crate::store::Files;
use hicache_core::{
    Alignment, Error, ErrorKind, Expiry, HostPool, Page, PageLayout, PageMut, RegionSpec, Result,
};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Bytes of them, unless one page is more.
const OWN_LEN: usize = 64 << 20;

/// Most of them.
const OWN_MAX: usize = 64;

/// A pool that is made when the first page is wanted.
#[derive(Debug, Default)]
pub(crate) struct OwnPages(OnceLock<Result<HostPool>>);

impl OwnPages {
    /// A free page.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Exhausted`] when all are under way, or why there are none.
    pub(crate) fn take(&self, files: &Files, layout: &PageLayout) -> Result<PageMut> {
        let make = || {
            let pool = make(layout, files.options.common.own_memory())?;
            let told = own_memory::told("pages for hard deadlines", &pool);
            told.into_iter().for_each(|fallback| files.tell(fallback));
            Ok(pool)
        };
        let pool = self.0.get_or_init(make).as_ref().map_err(Clone::clone)?;
        let mut pages = pool.alloc(1).ok_or_else(|| {
            Error::new(ErrorKind::Exhausted, "get page")
                .why("all pages that the store has for hard deadlines are under way")
                .with("limit", pool.slots())
                .retryable()
        })?;
        Ok(pages.remove(0))
    }
}

fn make(layout: &PageLayout, memory: RegionSpec) -> Result<HostPool> {
    let slots = (OWN_LEN / layout.page_len()).clamp(1, OWN_MAX);
    let strides = layout.strides(slots as u32, Alignment::base_page())?;
    own_memory::pool(strides, memory)
}

/// A caller's page that something is copied to if its answer is still wanted then. At the deadline it goes back,
/// whatever the kernel does with the page that is read into meanwhile.
#[derive(Debug)]
pub(crate) struct Target(Arc<Mutex<Option<PageMut>>>);

impl Target {
    pub(crate) fn new(page: PageMut) -> Self {
        Self(Arc::new(Mutex::new(Some(page))))
    }

    /// `None` once it went back.
    pub(crate) fn take(&self) -> Option<PageMut> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// How a batch's wait ends at its deadline.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) expiry: Expiry,
    /// Each belongs to its job, and goes with it.
    targets: Vec<Weak<Mutex<Option<PageMut>>>>,
}

impl Ending {
    /// Also gives this one back.
    pub(crate) fn include(&mut self, target: &Target) {
        self.targets.push(Arc::downgrade(&target.0));
    }

    /// Who has the answer has his page back. Gives how many are answered.
    pub(crate) fn expire(&self, error: &Error) -> usize {
        for target in self.targets.iter().filter_map(Weak::upgrade) {
            drop(Target(target).take());
        }
        self.expiry.expire(error)
    }
}

impl From<Expiry> for Ending {
    fn from(expiry: Expiry) -> Self {
        Self { expiry, targets: Vec::new() }
    }
}

/// Copies all pieces of a page of the same layout.
pub(crate) fn copy_page(from: &Page, into: &mut PageMut) {
    for plane in 0..from.planes() {
        let bytes = from.bytes(plane).expect("own pages are in private memory");
        into.piece_mut(plane).copy_from(0, bytes);
    }
}
