//! One contiguous part of a page: an address for the kernel or a device, and copies in and out.
//!
//! `unsafe` stands here because the copies go through raw pointers: on memory that another process or a device may
//! write at the same time no reference may exist. The blocks rely on the invariants that `page.rs` names.
#![allow(unsafe_code)]

use crate::PageMut;
use std::fmt;
use std::ops::Range;
use std::ptr;

/// A piece to read.
#[derive(Clone, Copy)]
pub struct Piece<'a> {
    page: &'a PageMut,
    plane: u32,
}

/// A piece to write.
pub struct PieceMut<'a> {
    page: &'a mut PageMut,
    plane: u32,
}

impl<'a> Piece<'a> {
    pub(crate) fn new(page: &'a PageMut, plane: u32) -> Self {
        check_plane(page, plane);
        Self { page, plane }
    }

    /// The room after the last piece: where a plane more would be.
    pub(crate) fn room(page: &'a PageMut) -> Self {
        Self { plane: page.planes(), page }
    }

    /// The first byte, valid for [`Piece::len`] bytes while the page lives. Not to be written through; whether it
    /// may be read is the caller's `unsafe` on memory that others write.
    pub fn as_ptr(&self) -> *const u8 {
        self.page.raw(self.plane).0
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty, reason = "a piece is never empty")]
    pub fn len(&self) -> usize {
        self.page.raw(self.plane).1
    }

    /// Copies the bytes from `offset` on into all of `into`. If somebody else writes them meanwhile, the copy may
    /// hold some old and some new bytes.
    ///
    /// # Panics
    ///
    /// If the piece ends before `into` is full.
    pub fn copy_to(&self, offset: usize, into: &mut [u8]) {
        let range = check_range(offset, into.len(), self.len());
        // SAFETY: *covered* and the check above: the source is mapped. `into` is borrowed mutably, so it overlaps no
        // slice of this page's, and there are no references to memory that is not exclusive.
        unsafe { ptr::copy_nonoverlapping(self.as_ptr().add(range.start), into.as_mut_ptr(), range.len()) };
    }
}

impl<'a> PieceMut<'a> {
    pub(crate) fn new(page: &'a mut PageMut, plane: u32) -> Self {
        check_plane(page, plane);
        Self { page, plane }
    }

    /// The room after the last piece: where a plane more would be.
    pub(crate) fn room(page: &'a mut PageMut) -> Self {
        Self { plane: page.planes(), page }
    }

    /// The first byte, valid for [`PieceMut::len`] bytes while the page lives. To write through it after this borrow
    /// ended is the caller's `unsafe`: the page must still be unfrozen and in nobody else's use.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.page.raw(self.plane).0
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty, reason = "a piece is never empty")]
    pub fn len(&self) -> usize {
        self.page.raw(self.plane).1
    }

    /// Copies all of `from` to the bytes from `offset` on.
    ///
    /// # Panics
    ///
    /// If the piece ends before `from` does.
    pub fn copy_from(&mut self, offset: usize, from: &[u8]) {
        let range = check_range(offset, from.len(), self.len());
        // SAFETY: *covered*, *one page* and the check above: the target is mapped and this page is the only one that
        // reaches it, borrowed mutably, so no slice of it exists that `from` could be.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.as_mut_ptr().add(range.start), range.len()) };
    }
}

impl fmt::Debug for Piece<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe("Piece", self.page, self.plane, f)
    }
}

impl fmt::Debug for PieceMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe("PieceMut", self.page, self.plane, f)
    }
}

fn describe(name: &str, page: &PageMut, plane: u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (start, len) = page.raw(plane);
    f.debug_struct(name).field("start", &start).field("len", &len).finish_non_exhaustive()
}

fn check_plane(page: &PageMut, plane: u32) {
    assert!(plane < page.planes(), "no plane {plane} among {}", page.planes());
}

fn check_range(offset: usize, len: usize, have: usize) -> Range<usize> {
    match offset.checked_add(len) {
        Some(end) if end <= have => offset..end,
        _ => panic!("{len} bytes at {offset} do not fit a piece of {have}"),
    }
}
