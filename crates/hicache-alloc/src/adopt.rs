//! Memory that somebody else mapped, taken in as a region.
//!
//! `unsafe` stands here because such memory rests on a promise that no code can check. The blocks rely on one
//! invariant, called *lent*: what [`Region::adopt`] demands of its caller.
#![allow(unsafe_code)]

use crate::{AllocError, Region};
use std::any::Any;
use std::fmt;
use std::ptr::NonNull;

/// Memory of somebody else's, kept in place by its owner.
pub(crate) struct Lent {
    base: NonNull<u8>,
    len: usize,
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: *lent*: the memory may be used from any thread, and so may the owner. No references are handed out.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl Lent {
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Region {
    /// Takes in `len` bytes from `base` on, which somebody else mapped: a tensor, a pool of another library. `owner`
    /// is what keeps them in place; it is dropped after the last page and the last registration, on whatever thread
    /// that happens, and the memory is not unmapped here.
    ///
    /// The region is treated as one that others may write: it is not exclusive, so that its pages hand out no
    /// references, and [`Region::backing`] is [`Backing::Shared`](crate::Backing::Shared).
    ///
    /// # Errors
    ///
    /// [`AllocError::InvalidSize`] if `len` is 0, or if the bytes wrap around the address space.
    ///
    /// # Safety
    ///
    /// Until `owner` is dropped,
    /// - all of the bytes are mapped, readable and writable, from any thread, at this address: nobody unmaps, moves,
    ///   protects or truncates them;
    /// - they are initialised;
    /// - no reference to any of them exists while a page of theirs is not free, and none is made;
    /// - what others write, whether in this process, in another one or by a device, they write so that a read here
    ///   at the same time is no data race, or when the page concerned is free or written by nobody here.
    pub unsafe fn adopt(
        base: NonNull<u8>,
        len: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Self, AllocError> {
        let start = base.addr().get();
        let fits = isize::try_from(len).is_ok() && start.checked_add(len).is_some();
        if len == 0 || !fits {
            let what = format!("{len} bytes at {start:#x}; at least one, within the address space");
            return Err(AllocError::InvalidSize { what });
        }
        Ok(Self::lent(Lent { base, len, _owner: owner }))
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").field("base", &self.base).field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Alignment, Backing, HostPool, Strides};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A buffer on the heap that knows when it ends.
    struct Buffer(Box<[u8]>, Arc<AtomicBool>);

    impl Drop for Buffer {
        fn drop(&mut self) {
            self.1.store(true, Ordering::Relaxed);
        }
    }

    fn lend(len: usize) -> (Result<Region, AllocError>, Arc<AtomicBool>) {
        let gone = Arc::new(AtomicBool::new(false));
        let mut buffer = Box::new(Buffer(vec![0; 1 << 16].into(), Arc::clone(&gone)));
        let base = NonNull::from(&mut buffer.0[..]).cast();
        // SAFETY: *lent*: the buffer is owned, initialised, and no longer referred to.
        (unsafe { Region::adopt(base, len, buffer) }, gone)
    }

    #[test]
    fn the_owner_goes_after_the_last_page() {
        let (region, gone) = lend(1 << 16);
        let region = region.unwrap();
        assert_eq!((region.len(), region.capacity()), (1 << 16, 1 << 16));
        assert!(!region.is_exclusive() && region.is_adopted());
        assert_eq!((region.backing(), region.fd().is_none()), (Backing::Shared, true));
        assert_eq!((region.page_size(), region.fallbacks().len()), (Alignment::base_page(), 0));
        let pool = HostPool::new(region, Strides::new(2, 4, 1000, Alignment::NONE).unwrap(), &[]).unwrap();
        let mut page = pool.alloc(1).unwrap().remove(0);
        drop(pool);
        page.piece_mut(1).copy_from(990, b"last bytes");
        assert!(page.bytes(1).is_none() && page.bytes_mut(1).is_none());
        let mut back = [0; 10];
        page.piece(1).copy_to(990, &mut back);
        assert_eq!(&back, b"last bytes");
        assert!(!gone.load(Ordering::Relaxed));
        drop(page);
        assert!(gone.load(Ordering::Relaxed));
    }

    #[test]
    fn nothing_and_what_wraps_around_is_refused_and_given_back() {
        for len in [0, usize::MAX, isize::MAX as usize + 1] {
            let (region, gone) = lend(len);
            assert!(matches!(region, Err(AllocError::InvalidSize { .. })), "{len}");
            assert!(gone.load(Ordering::Relaxed));
        }
    }
}
