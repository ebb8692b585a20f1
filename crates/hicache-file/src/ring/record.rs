//! One read that the kernel has: all that its entries point to, and what came of them so far.

use super::Read;
use super::kernel::{Parts, Step};
use super::turn::Setup;
use crate::asked::{Asked, Completed};
use crate::own_memory;
use hicache_core::{Alignment, HugePages, PageMut, RegionSpec, Result, Strides};
use std::sync::Arc;
use std::time::Instant;

/// The record of an operation (invariant 4): it stands in its ring's table from before its entries are pushed until the
/// last of them has completed, or is leaked.
pub(super) struct Record {
    pub(super) read: Read,
    /// The page's pieces, then the tail and a little beyond, which must stay empty: a longer file shows itself.
    pub(super) parts: Parts,
    /// Where the tail comes, or is copied to when the page has room for it.
    tail: PageMut,
    /// The tail comes to the page's own room, as the end of its last part.
    joined: bool,
    /// The registered buffer that holds all pieces.
    pub(super) buffer: Option<u16>,
    /// Bytes read, or an errno below zero.
    result: i32,
    /// The kernel was asked to let go of it.
    pub(super) cancelled: bool,
}

/// Memory for the tails of a ring's reads, each with a block beyond.
pub(super) fn tails(setup: &Setup) -> Result<Vec<PageMut>> {
    let strides = Strides::new(1, setup.depth, 3 * setup.block.bytes(), setup.block)?;
    // Too little for huge pages.
    let pool = own_memory::pool(strides, RegionSpec { huge_pages: HugePages::Off, ..setup.memory })?;
    Ok(pool.alloc(setup.depth as usize).expect("the pool is new"))
}

impl Record {
    pub(super) fn new(mut read: Read, mut tail: PageMut, mut parts: Parts, beyond: Alignment) -> Self {
        let part = |start: *mut u8, len: usize| libc::iovec { iov_base: start.cast(), iov_len: len };
        parts.0.clear();
        for plane in 0..read.page.planes() {
            let mut piece = read.page.piece_mut(plane);
            parts.0.push(part(piece.as_mut_ptr(), piece.len()));
        }
        let tail_len = read.tail_len + beyond.bytes();
        let room = read.page.room_mut().map_or(0, |room| room.len());
        let joined = room >= tail_len;
        match parts.0.last_mut().filter(|_| joined) {
            Some(last) => last.iov_len += tail_len,
            None => parts.0.push(part(tail.piece_mut(0).as_mut_ptr(), tail_len)),
        }
        Self { read, parts, tail, joined, buffer: None, result: 0, cancelled: false }
    }

    /// Takes down what came of a step that opens or reads. The first error stays.
    pub(super) fn told(&mut self, step: Step, result: i32) {
        if self.result < 0 || (step == Step::Open && result >= 0) {
            return;
        }
        let page_len = self.read.page.len();
        self.result = match usize::try_from(result) {
            Err(_) => result,
            // Read apart from its tail: what one has too little must not be made up by the other.
            Ok(count) if step == Step::Read && self.reads_apart() && count != page_len => -libc::EIO,
            Ok(_) => self.result.saturating_add(result),
        };
    }

    /// Where the page's bytes go, and its tail where there is room for it.
    pub(super) fn pieces(&self) -> &[libc::iovec] {
        self.pieces_and_tail().0
    }

    /// The tail apart where there is no room for it.
    pub(super) fn pieces_and_tail(&self) -> (&[libc::iovec], &[libc::iovec]) {
        self.parts.0.split_at(self.parts.0.len() - usize::from(!self.joined))
    }

    /// Whether page and tail are two reads: a vectored one must lie in one registered buffer.
    pub(super) fn reads_apart(&self) -> bool {
        self.buffer.is_some() && !self.joined
    }

    pub(super) fn is_late(&self, now: Instant) -> bool {
        self.read.deadline.is_some_and(|deadline| now >= deadline)
    }

    /// What came of it, handed to `act`. The kernel has let go of it; tail and parts are for the next.
    pub(super) fn end(self, act: impl FnOnce(Asked, Completed)) -> (PageMut, Parts) {
        let let_go = self.cancelled && matches!(-self.result, libc::ECANCELED | libc::EINTR);
        let Self { read, mut tail, parts, joined, buffer, result, .. } = self;
        let Read { mut asked, page, tail_len, .. } = read;
        asked.registered = buffer.is_some();
        let expected = page.len() + tail_len;
        let bytes = &mut tail.bytes_mut(0).expect("tails are in private memory")[..tail_len];
        let completed = match usize::try_from(result) {
            Ok(count) if count == expected => {
                let trailer = match (page.room_bytes(), page.room()) {
                    (Some(room), _) if joined => asked.decode(&room[..tail_len]),
                    (None, Some(room)) if joined => {
                        room.copy_to(0, bytes);
                        asked.decode(bytes)
                    }
                    _ => asked.decode(bytes),
                };
                Completed::Whole(page, trailer)
            }
            Err(_) if result == -libc::ENOENT => Completed::Absent(page),
            Err(_) if let_go => Completed::Late(page),
            _ => Completed::Unclear(page),
        };
        act(asked, completed);
        (tail, parts)
    }

    /// What the kernel has is never freed. Gives back who waits for it.
    pub(super) fn leak(self) -> Asked {
        let Self { read, parts, tail, .. } = self;
        let Read { asked, page, path, .. } = read;
        let view = Arc::clone(&asked.view);
        std::mem::forget((page, path, view, parts, tail));
        asked
    }
}
