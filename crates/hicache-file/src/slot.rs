//! A worker's own aligned memory: where pages bounce whose pieces the device cannot take, and where padding and
//! trailer stand while they move.

use crate::own_memory;
use hicache_core::{Alignment, Checksum, Fallback, HostPool, Page, PageMut, RegionSpec, Result, Strides};

/// Bytes that bounce at once. From 1 MiB up, larger transfers gain nothing.
const BOUNCE_LEN: usize = 1 << 20;

/// Bytes that are copied and checked at once.
const COPY_LEN: usize = 32 * 1024;

/// The slots of all workers, one region.
#[derive(Debug)]
pub(crate) struct Slots {
    pool: HostPool,
    block: Alignment,
}

/// One worker's memory.
#[derive(Debug)]
pub(crate) struct Slot {
    page: PageMut,
    block: Alignment,
}

impl Slots {
    /// `count` slots for page files of blocks up to `block`, in memory as `memory` says.
    pub(crate) fn map(count: u32, block: Alignment, memory: RegionSpec) -> Result<Self> {
        let len = BOUNCE_LEN + 2 * block.bytes();
        let strides = Strides::new(1, count, len, block)?;
        Ok(Self { pool: own_memory::pool(strides, memory)?, block })
    }

    /// What was asked of their memory and not got.
    pub(crate) fn fallbacks(&self) -> Vec<Fallback> {
        own_memory::told("the store's slots", &self.pool)
    }

    /// As many as there are slots.
    pub(crate) fn take(&self) -> Vec<Slot> {
        let pages = self.pool.alloc(self.pool.available()).expect("as many as are free");
        pages.into_iter().map(|page| Slot { page, block: self.block }).collect()
    }
}

impl Slot {
    /// The bounce area, and the two blocks of a tail.
    pub(crate) fn split(&mut self) -> (&mut [u8], &mut [u8]) {
        let tail_len = 2 * self.block.bytes();
        let bytes = self.page.bytes_mut(0).expect("slots are in private memory");
        let (bounce, tail) = bytes.split_at_mut(BOUNCE_LEN);
        (bounce, &mut tail[..tail_len])
    }
}

/// Copies from the page's bytes at `offset`, all pieces seen as one run; `checksum` goes on with them while warm.
pub(crate) fn copy_out(page: &Page, offset: usize, into: &mut [u8], mut checksum: Option<&mut Checksum>) {
    let mut done = 0;
    for (plane, at, len) in steps(page.len(), page.planes(), offset, into.len()) {
        let into = &mut into[done..done + len];
        page.piece(plane).copy_to(at, into);
        if let Some(checksum) = &mut checksum {
            checksum.add(into);
        }
        done += len;
    }
}

/// Copies to the page's bytes at `offset`, all pieces seen as one run; `checksum` goes on with them while warm.
pub(crate) fn copy_in(page: &mut PageMut, offset: usize, from: &[u8], mut checksum: Option<&mut Checksum>) {
    let mut done = 0;
    for (plane, at, len) in steps(page.len(), page.planes(), offset, from.len()) {
        let from = &from[done..done + len];
        if let Some(checksum) = &mut checksum {
            checksum.add(from);
        }
        page.piece_mut(plane).copy_from(at, from);
        done += len;
    }
}

/// `len` bytes of a page at `offset`, cut where pieces end and into what caches hold: piece, place in it, bytes.
fn steps(
    page_len: usize,
    planes: u32,
    offset: usize,
    len: usize,
) -> impl Iterator<Item = (u32, usize, usize)> {
    let piece_len = page_len / planes as usize;
    let (mut at, end) = (offset, offset + len);
    std::iter::from_fn(move || {
        let (plane, inside) = (at / piece_len, at % piece_len);
        let count = (piece_len - inside).min(end - at).min(COPY_LEN);
        at += count;
        (count > 0).then_some((plane as u32, inside, count))
    })
}
