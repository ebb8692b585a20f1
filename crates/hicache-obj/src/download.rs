//! From an answer into a page's slot, with the one copy that a socket costs.

use crate::bucket::Bucket;
use crate::connections::Line;
use crate::facts::{Facts, Flaw};
use crate::progress::Progress;
use crate::tail;
use crate::trouble::{Kind, Trouble};
use hicache_core::{Checksum, PageMut};
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

/// Bytes that are taken at once: few enough that they are warm from the socket's copy when their checksum is made.
const LEN_MAX: usize = 256 * 1024;

/// Bytes of a piece from which on they are read straight into it. Shorter ones are read several at once, and copied:
/// that costs less than a call of the kernel for each.
const DIRECT_MIN: usize = 32 * 1024;

/// Bytes that are read at once to be copied.
const COPY_LEN: usize = 64 * 1024;

/// A page whose parts may come at once. The lock is never waited for: one task takes them in turn.
pub(crate) type Target<'a> = Mutex<&'a mut PageMut>;

/// The bytes of an object that are still to come: those of a page, then its tail, where it is one of ours.
#[derive(Debug)]
pub(crate) struct Intake {
    page_len: usize,
    left: Range<usize>,
    came: Came,
    checksum: Option<Checksum>,
    /// For what is copied.
    copy: Vec<u8>,
}

/// What has come beside the page's bytes.
#[derive(Debug)]
pub(crate) struct Came {
    /// Bytes of the page.
    len: u64,
    /// Of these, made while they were warm; `None` where the tail has none.
    checksum: Option<u64>,
    /// Zeros where it was not among what came.
    tail: [u8; tail::LEN],
}

impl Intake {
    /// All of an object.
    pub(crate) fn whole(facts: Option<&Facts>, page_len: usize) -> Self {
        Self::part(facts, page_len, 0..page_len + tail::LEN)
    }

    /// The bytes `range` of an object, as far as it goes.
    pub(crate) fn part(facts: Option<&Facts>, page_len: usize, range: Range<usize>) -> Self {
        let stored_len = page_len + facts.map_or(0, |_| tail::LEN);
        let checked = facts.is_some_and(|facts| facts.checked);
        Self {
            page_len,
            left: range.start..range.end.min(stored_len),
            came: Came { len: 0, checksum: None, tail: [0; tail::LEN] },
            checksum: checked.then(Checksum::new),
            copy: Vec::new(),
        }
    }

    /// Takes the whole body, as long as something comes every so often. Without a `target` it is only looked at.
    pub(crate) async fn take(
        mut self,
        bucket: &Bucket,
        mut body: Line,
        target: Option<&Target<'_>>,
    ) -> Result<Came, Trouble> {
        let progress = Progress::new();
        let reading = async {
            while !self.left.is_empty() && poll_fn(|cx| self.poll_take(cx, &mut body, target)).await? > 0 {
                bucket.came(&progress);
            }
            // To its end also so that the connection is free again, unless that is when it is closed.
            let ends = body.connection().ends_by_closing();
            Ok(self.left.is_empty() && !ends && body.read(&mut [0]).await? > 0)
        };
        if bucket.receive(&progress, reading).await? {
            return Err(Trouble::flaw(Flaw::Torn("more bytes came than were asked for".to_string())));
        }
        if !self.left.is_empty() {
            let why = format!("the body ended {} bytes short", self.left.len());
            return Err(Trouble::new(Kind::Outage, why));
        }
        self.came.checksum = self.checksum.map(|checksum| checksum.finish());
        Ok(self.came)
    }

    fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Line,
        target: Option<&Target<'_>>,
    ) -> Poll<io::Result<usize>> {
        let at = self.left.start;
        let of_page = self.page_len.min(self.left.end).saturating_sub(at);
        let came = if of_page == 0 {
            let tail = at - self.page_len..self.left.end - self.page_len;
            ready!(body.poll_read(cx, &mut self.came.tail[tail]))?
        } else {
            let came = ready!(self.poll_page(cx, body, target, at, of_page))?;
            self.came.len += came as u64;
            came
        };
        self.left.start += came;
        Poll::Ready(Ok(came))
    }

    /// Up to `len` bytes of the page, from `at` on.
    fn poll_page(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut Line,
        target: Option<&Target<'_>>,
        at: usize,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        let mut page = target.map(|target| target.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(slot) = page.as_mut().and_then(|page| direct(page, at, len)) {
            let came = ready!(body.poll_read(cx, slot))?;
            self.add(&slot[..came]);
            return Poll::Ready(Ok(came));
        }
        let mut copy = std::mem::take(&mut self.copy);
        copy.resize(COPY_LEN, 0);
        let read = body.poll_read(cx, &mut copy[..len.min(COPY_LEN)]);
        if let Poll::Ready(Ok(came)) = read {
            self.add(&copy[..came]);
            page.iter_mut().for_each(|page| write(page, at, &copy[..came]));
        }
        self.copy = copy;
        read
    }

    fn add(&mut self, bytes: &[u8]) {
        if let Some(checksum) = &mut self.checksum {
            checksum.add(bytes);
        }
    }
}

impl Came {
    /// This and what follows it, which ends with the tail.
    pub(crate) fn then(self, next: Self) -> Self {
        let both = self.checksum.zip(next.checksum);
        Self {
            len: self.len + next.len,
            checksum: both.map(|(before, after)| Checksum::joined(before, after, next.len)),
            tail: next.tail,
        }
    }

    /// Whether that is what the object's metadata says; what has none cannot be told.
    pub(crate) fn check(&self, facts: Option<&Facts>) -> Result<(), Trouble> {
        facts.map_or(Ok(()), |facts| facts.tail(self.checksum).check(&self.tail)).map_err(Trouble::flaw)
    }
}

/// Where up to `len` of the page's bytes lie, from `at` on: `None` where they are too few to be read alone, and where
/// no reference may exist.
fn direct(page: &mut PageMut, at: usize, len: usize) -> Option<&mut [u8]> {
    let piece_len = page.len() / page.planes() as usize;
    let (plane, offset) = (at / piece_len, at % piece_len);
    let of_piece = len.min(piece_len - offset).min(LEN_MAX);
    let pays = of_piece >= DIRECT_MIN || of_piece == len;
    Some(&mut page.bytes_mut(plane as u32).filter(|_| pays)?[offset..offset + of_piece])
}

/// Writes `bytes` to the page's bytes from `at` on, over its pieces.
fn write(page: &mut PageMut, mut at: usize, mut bytes: &[u8]) {
    let piece_len = page.len() / page.planes() as usize;
    while !bytes.is_empty() {
        let (plane, offset) = (at / piece_len, at % piece_len);
        let (now, rest) = bytes.split_at(bytes.len().min(piece_len - offset));
        page.piece_mut(plane as u32).copy_from(offset, now);
        at += now.len();
        bytes = rest;
    }
}
