//! Memory that rings know: pools registered through their [`Registrar`], in chunks, each a buffer of every ring.
//!
//! A chunk ends where a slot ends, so that no piece lies in two, and has at most 1 GiB, which is the kernel's limit.
//! Where the limit of locked memory is met, chunks get smaller until no more fit: the rest goes unregistered, which is
//! told. Undoing is posted and waits for nobody. The kernel pins what is registered, so that the memory is there until
//! the ring has undone it, and since a pool's registration goes after its last page, nothing is read into it then.

use super::kernel::{Kernel, likely_cause};
use super::record::Record;
use super::{Inbox, lock};
use hicache_core::{Fallback, PageIndex, Region, RegisterError, Registrar, Registration, Strides};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

/// The kernel's limit of one buffer, in bytes.
const CHUNK_MAX: usize = 1 << 30;

/// Smaller chunks are not worth a buffer.
const CHUNK_MIN: usize = 1 << 20;

/// Entries of a ring's table of buffers.
pub(super) const BUFFERS_MAX: u16 = 1024;

/// The buffer of a ring's own tails.
pub(super) const TAILS: u16 = 0;

/// Fallbacks of this kind that are kept.
const TOLD_MAX: usize = 16;

/// How long a ring may take to pin a pool, before its pages go unregistered until it has.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// What a ring's thread is to do about a pool.
pub(super) enum Errand {
    /// Whoever holds the other end of `_done` waits until it is dropped.
    Register {
        id: u64,
        start: usize,
        strides: Strides,
        _done: SyncSender<()>,
    },
    Unregister {
        id: u64,
    },
}

/// Registers pools with the rings of one store.
#[derive(Clone, Debug)]
pub(crate) struct RingRegistrar {
    inboxes: Vec<Arc<Inbox>>,
    next: Arc<AtomicU64>,
}

impl RingRegistrar {
    pub(super) fn new(inboxes: Vec<Arc<Inbox>>) -> Self {
        Self { inboxes, next: Arc::default() }
    }
}

impl Registrar for RingRegistrar {
    /// Never fails: what cannot be registered is read without, and told.
    fn register(&self, region: &Region, strides: &Strides) -> Result<Registration, RegisterError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let start = region.as_ptr().addr();
        let mut answers = Vec::new();
        for inbox in &self.inboxes {
            let (done, answer) = sync_channel(1);
            if inbox.send(Errand::Register { id, start, strides: *strides, _done: done }) {
                answers.push(answer);
            }
        }
        for answer in answers {
            // One that gave up meanwhile has told so.
            let _ = answer.recv_timeout(ANSWER_MAX);
        }
        let inboxes = self.inboxes.clone();
        Ok(Registration::new(move || {
            for inbox in inboxes {
                inbox.send(Errand::Unregister { id });
            }
        }))
    }
}

impl Inbox {
    /// False where nobody runs errands any more.
    fn send(&self, errand: Errand) -> bool {
        let mut letters = lock(&self.letters);
        if letters.given_up || letters.stop {
            return false;
        }
        letters.errands.push(errand);
        drop(letters);
        self.wake();
        true
    }

    /// What pools go without, and how much is registered now.
    pub(super) fn tell(&self, missed: impl IntoIterator<Item = Fallback>, registered_len: u64) {
        let mut letters = lock(&self.letters);
        letters.registered_len = registered_len;
        for fallback in missed {
            tracing::warn!(what = fallback.what, why = %fallback.why, "fallback");
            if letters.unregistered.len() < TOLD_MAX {
                letters.unregistered.push(fallback);
            }
        }
    }
}

/// What is registered with one ring.
pub(super) struct Registered {
    /// By their first address.
    chunks: BTreeMap<usize, Chunk>,
    pools: BTreeMap<u64, Pool>,
    taken: Vec<bool>,
    /// The ring's own tails are registered, without which no page is read so.
    tails: bool,
}

struct Chunk {
    end: usize,
    buffer: u16,
    pool: u64,
}

struct Pool {
    start: usize,
    strides: Strides,
}

impl Registered {
    /// Of a new ring, with the memory of its tails.
    pub(super) fn new(tails: &Region, kernel: &mut Kernel) -> Self {
        let start = tails.as_ptr().addr();
        let mut taken = vec![false; usize::from(BUFFERS_MAX)];
        taken[usize::from(TAILS)] = true;
        let tails = kernel.reads_fixed(1) && kernel.register(TAILS, &(start..start + tails.len())).is_ok();
        Self { chunks: BTreeMap::new(), pools: BTreeMap::new(), taken, tails }
    }

    /// Whether it holds the ring's own tails, without which nothing else is of use.
    pub(super) fn has_tails(&self) -> bool {
        self.tails
    }

    /// Does it. Gives what a pool goes without.
    pub(super) fn follow(&mut self, errand: &Errand, kernel: &mut Kernel) -> Option<Fallback> {
        match errand {
            Errand::Register { id, start, strides, .. } => {
                self.register(*id, Pool { start: *start, strides: *strides }, kernel)
            }
            Errand::Unregister { id } => {
                self.pools.remove(id);
                for (_, chunk) in self.chunks.extract_if(.., |_, chunk| chunk.pool == *id) {
                    self.taken[usize::from(chunk.buffer)] = false;
                    if let Err(error) = kernel.unregister(chunk.buffer) {
                        tracing::error!(%error, "a ring could not let go of a pool's memory, which stays pinned");
                    }
                }
                None
            }
        }
    }

    fn register(&mut self, id: u64, pool: Pool, kernel: &mut Kernel) -> Option<Fallback> {
        let (pieces, mut next, mut chunk_max) = (Pieces(&pool.strides), 0, CHUNK_MAX);
        let mut refused = None;
        while let Some((range, after)) = pieces.chunk(next, chunk_max) {
            let range = pool.start + range.start..pool.start + range.end;
            match self.add(id, range, kernel) {
                Ok(()) => next = after,
                Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && chunk_max > CHUNK_MIN => {
                    chunk_max /= 2;
                }
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        let (got, asked) = (pieces.bytes_before(next), pieces.bytes_before(pieces.count()));
        self.pools.insert(id, pool);
        (got < asked).then(|| {
            let why = refused.map_or_else(
                || "a piece is larger than a buffer can be".to_string(),
                |error| format!("io_uring_register: {error}; {}", likely_cause(&error)),
            );
            let why =
                format!("{got} of {asked} bytes of a pool are registered: {why}; the rest is read without");
            Fallback { what: "registered_buffers", why }
        })
    }

    fn add(&mut self, pool: u64, range: Range<usize>, kernel: &mut Kernel) -> io::Result<()> {
        let Some(free) = self.taken.iter().position(|taken| !taken) else {
            return Err(io::Error::other("the ring's table of buffers is full"));
        };
        let buffer = free as u16;
        kernel.register(buffer, &range)?;
        self.taken[free] = true;
        self.chunks.insert(range.start, Chunk { end: range.end, buffer, pool });
        Ok(())
    }

    /// The buffer that holds all of a page's pieces.
    pub(super) fn buffer_of(&self, record: &Record, kernel: &Kernel) -> Option<u16> {
        let pieces = record.pieces();
        let first = pieces.first()?.iov_base.addr();
        let (start, chunk) = self.chunks.range(..=first).next_back()?;
        let inside = |piece: &libc::iovec| {
            let at = piece.iov_base.addr();
            *start <= at && at + piece.iov_len <= chunk.end
        };
        (self.tails && pieces.iter().all(inside) && kernel.reads_fixed(pieces.len())).then_some(chunk.buffer)
    }

    /// Bytes of pools that are registered, padding between their pieces included.
    pub(super) fn len(&self) -> u64 {
        self.chunks.iter().map(|(start, chunk)| (chunk.end - start) as u64).sum()
    }

    /// Registers the pools of a ring that failed; gives what they go without here.
    pub(super) fn take_over(&mut self, failed: Self, kernel: &mut Kernel) -> Vec<Fallback> {
        failed.pools.into_iter().filter_map(|(id, pool)| self.register(id, pool, kernel)).collect()
    }
}

/// The pieces of a pool, in the order of their addresses.
struct Pieces<'a>(&'a Strides);

impl Pieces<'_> {
    fn count(&self) -> u64 {
        u64::from(self.0.planes()) * u64::from(self.0.slots())
    }

    /// With the room after it, in bytes from the region's start.
    fn at(&self, number: u64) -> Range<usize> {
        let (planes, slots) = (u64::from(self.0.planes()), u64::from(self.0.slots()));
        let (plane, slot) = if self.0.plane_stride() >= self.0.slot_stride() {
            (number / slots, number % slots)
        } else {
            (number % planes, number / planes)
        };
        let piece = self.0.piece(PageIndex::new(slot as u32), plane as u32);
        piece.start..piece.end + self.0.room()
    }

    /// The chunk that begins with piece `first`, of at most `len_max` bytes but of one piece at least, and the piece
    /// after it. `None` at the end, or where one piece alone is more than a buffer can be.
    fn chunk(&self, first: u64, len_max: usize) -> Option<(Range<usize>, u64)> {
        if first == self.count() || self.at(first).len() > CHUNK_MAX {
            return None;
        }
        let start = self.at(first).start;
        let (mut last, mut beyond) = (first, self.count());
        while beyond - last > 1 {
            let middle = last + (beyond - last) / 2;
            if self.at(middle).end - start <= len_max { last = middle } else { beyond = middle }
        }
        Some((start..self.at(last).end, last + 1))
    }

    fn bytes_before(&self, number: u64) -> u64 {
        number * self.0.slot_len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hicache_core::Alignment;

    fn chunks(strides: &Strides, len_max: usize) -> Vec<Range<usize>> {
        let (pieces, mut next, mut all) = (Pieces(strides), 0, Vec::new());
        while let Some((range, after)) = pieces.chunk(next, len_max) {
            all.push(range);
            next = after;
        }
        all
    }

    #[test]
    fn chunks_end_at_slot_edges_and_cover_every_piece() {
        let page = Alignment::base_page();
        let errands = [
            Strides::new(1, 100, 5_000, page),
            Strides::new(4, 7, 12_288, page),
            Strides::with_stride(3, 10, 4096, 3 * 4096, 4096),
            Strides::with_stride(2, 1, 4096, 0, 8192),
        ];
        for strides in errands.map(Result::unwrap) {
            for len_max in [1, 12_288, 50_000, CHUNK_MAX] {
                let all = chunks(&strides, len_max);
                let pieces = Pieces(&strides);
                for number in 0..pieces.count() {
                    let piece = pieces.at(number);
                    let holds = |chunk: &&Range<usize>| chunk.start <= piece.start && piece.end <= chunk.end;
                    assert_eq!(all.iter().filter(holds).count(), 1, "{strides:?} {len_max} {piece:?}");
                }
                for chunk in &all {
                    assert!(chunk.len() <= len_max.max(strides.slot_len()), "{chunk:?} {len_max}");
                }
            }
        }
    }

    #[test]
    fn a_pool_beyond_the_kernels_limit_becomes_several_chunks() {
        let strides = Strides::new(1, 5_000, 1 << 20, Alignment::base_page()).unwrap();
        let all = chunks(&strides, CHUNK_MAX);
        assert_eq!(all.len(), 5);
        assert!(all.iter().all(|chunk| chunk.len() <= CHUNK_MAX && chunk.len() % (1 << 20) == 0));
    }
}
