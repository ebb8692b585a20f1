//! A slot and who may touch it: one writer, or any number of readers.
//!
//! `unsafe` stands here because a page turns an address into references. Every block relies on two invariants:
//! *covered*: `HostPool::new` checked that the region, which the page keeps mapped, covers every piece; and
//! *one page*: the free list gives a slot to one `PageMut` at a time, and pieces of different slots are disjoint. Of
//! a page that is lent there are two, but the lender's is shut away in its `Loan` until the borrower's is gone.
#![allow(unsafe_code)]

use crate::loan::Lent;
use crate::sync::Arc;
use crate::{HostPool, Loan, PageIndex, Piece, PieceMut};
use std::fmt;
use std::slice;

/// A slot with one owner, who may write it. Dropping it frees the slot.
pub struct PageMut {
    pool: HostPool,
    index: PageIndex,
    claimed: bool,
    /// Who gets the slot instead of the pool.
    lent: Option<Lent>,
}

/// A slot that nobody writes. Clones share it; dropping the last one frees the slot.
#[derive(Clone)]
pub struct Page(Arc<PageMut>);

impl PageMut {
    /// Only the pool makes pages, of slots that it just took from its free list (*one page*).
    pub(crate) fn new(pool: HostPool, index: PageIndex, claimed: bool) -> Self {
        Self { pool, index, claimed, lent: None }
    }

    /// The slot's number.
    pub fn index(&self) -> PageIndex {
        self.index
    }

    /// The pool that it is a slot of.
    pub fn pool(&self) -> &HostPool {
        &self.pool
    }

    /// Number of pieces.
    pub fn planes(&self) -> u32 {
        self.pool.strides().planes()
    }

    /// Bytes over all pieces.
    #[allow(clippy::len_without_is_empty, reason = "a page is never empty")]
    pub fn len(&self) -> usize {
        self.pool.strides().page_len()
    }

    /// Whether somebody chose this slot by number ([`HostPool::claim`]) and may use it again by number.
    pub fn is_claimed(&self) -> bool {
        self.claimed
    }

    /// Piece `plane`, to read.
    ///
    /// # Panics
    ///
    /// If there is no such plane.
    pub fn piece(&self, plane: u32) -> Piece<'_> {
        Piece::new(self, plane)
    }

    /// Piece `plane`, to write.
    ///
    /// # Panics
    ///
    /// If there is no such plane.
    pub fn piece_mut(&mut self, plane: u32) -> PieceMut<'_> {
        PieceMut::new(self, plane)
    }

    /// The bytes of piece `plane`, or `None` if somebody outside this process may write them
    /// ([`Region::is_exclusive`](crate::Region::is_exclusive)); [`PageMut::piece_mut`] works then too.
    ///
    /// # Panics
    ///
    /// If there is no such plane.
    pub fn bytes_mut(&mut self, plane: u32) -> Option<&mut [u8]> {
        let (start, len) = self.raw(plane);
        if !self.pool.region().is_exclusive() {
            return None;
        }
        // SAFETY: *covered* and *one page*: the piece is mapped, only this page reaches it, and the page is borrowed
        // mutably as long as the slice lives. Mappings start zeroed, so the bytes are initialised.
        Some(unsafe { slice::from_raw_parts_mut(start, len) })
    }

    /// The bytes of piece `plane`, or `None` if somebody outside this process may write them
    /// ([`Region::is_exclusive`](crate::Region::is_exclusive)); [`PageMut::piece`] works then too.
    ///
    /// # Panics
    ///
    /// If there is no such plane.
    pub fn bytes(&self, plane: u32) -> Option<&[u8]> {
        let (start, len) = self.raw(plane);
        if !self.pool.region().is_exclusive() {
            return None;
        }
        // SAFETY: *covered* and *one page*: the piece is mapped, and writing it takes a mutable borrow of this page,
        // which is borrowed as long as the slice lives. Mappings start zeroed, so the bytes are initialised.
        Some(unsafe { slice::from_raw_parts(start, len) })
    }

    /// Lends the page: the first is for the borrower, and when that is dropped, frozen or not, the slot comes back
    /// through the loan instead of going to its pool. A read that may come to nothing is tried so, and then again.
    pub fn lend(self) -> (Self, Loan) {
        let (pool, index, claimed) = (self.pool.clone(), self.index, self.claimed);
        let (loan, lent) = Loan::new(self);
        (Self { pool, index, claimed, lent: Some(lent) }, loan)
    }

    /// The room after the last piece ([`Strides::room`](crate::Strides::room)), if there is any: for what is stored
    /// beside a page and moves with it. It is the writer's; who reads the page does not see it.
    pub fn room(&self) -> Option<Piece<'_>> {
        (self.pool.strides().room() > 0).then(|| Piece::room(self))
    }

    /// The bytes of that room, or `None` if there is none, or if somebody outside this process may write them.
    pub fn room_bytes(&self) -> Option<&[u8]> {
        let strides = self.pool.strides();
        (strides.room() > 0).then(|| self.bytes(strides.planes())).flatten()
    }

    /// The room after the last piece, to write.
    pub fn room_mut(&mut self) -> Option<PieceMut<'_>> {
        (self.pool.strides().room() > 0).then(|| PieceMut::room(self))
    }

    /// Gives up writing, so that the page can be shared.
    pub fn freeze(self) -> Page {
        Page(Arc::new(self))
    }

    /// Where piece `plane` starts and how many bytes it has; of the room where a plane more would be.
    pub(crate) fn raw(&self, plane: u32) -> (*mut u8, usize) {
        let strides = self.pool.strides();
        let range = if plane == strides.planes() {
            let last = strides.piece(self.index, plane - 1);
            last.end..last.end + strides.room()
        } else {
            strides.piece(self.index, plane)
        };
        // SAFETY: *covered*: the offset lies in the mapping.
        let start = unsafe { self.pool.region().as_ptr().add(range.start) };
        (start, range.len())
    }
}

impl Page {
    /// The slot's number.
    pub fn index(&self) -> PageIndex {
        self.0.index
    }

    /// The pool that it is a slot of.
    pub fn pool(&self) -> &HostPool {
        &self.0.pool
    }

    /// Number of pieces.
    pub fn planes(&self) -> u32 {
        self.0.planes()
    }

    /// Bytes over all pieces.
    #[allow(clippy::len_without_is_empty, reason = "a page is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether somebody chose this slot by number ([`HostPool::claim`]) and may use it again by number.
    pub fn is_claimed(&self) -> bool {
        self.0.claimed
    }

    /// Piece `plane`, to read.
    ///
    /// # Panics
    ///
    /// If there is no such plane.
    pub fn piece(&self, plane: u32) -> Piece<'_> {
        self.0.piece(plane)
    }

    /// The bytes of piece `plane`, or `None` if somebody outside this process may write them
    /// ([`Region::is_exclusive`](crate::Region::is_exclusive)); [`Page::piece`] works then too.
    ///
    /// # Panics
    ///
    /// If there is no such plane.
    pub fn bytes(&self, plane: u32) -> Option<&[u8]> {
        self.0.bytes(plane)
    }

    /// Takes writing back, if this is the only clone.
    ///
    /// # Errors
    ///
    /// The page itself, if it is shared.
    pub fn try_thaw(self) -> Result<PageMut, Page> {
        Arc::try_unwrap(self.0).map_err(Page)
    }
}

impl Drop for PageMut {
    fn drop(&mut self) {
        match &self.lent {
            Some(lent) => lent.end(),
            None => self.pool.free(self.index),
        }
    }
}

impl fmt::Debug for PageMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe("PageMut", self, f)
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe("Page", &self.0, f)
    }
}

fn describe(name: &str, page: &PageMut, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.debug_struct(name)
        .field("index", &page.index.get())
        .field("len", &page.len())
        .field("claimed", &page.claimed)
        .finish_non_exhaustive()
}
