//! From a response's body into a page's slot, with the one copy that a socket costs.

use crate::bucket::Bucket;
use crate::facts::{Facts, Flaw};
use crate::tail;
use crate::trouble::{Kind, Trouble};
use aws_sdk_s3::primitives::ByteStream;
use hicache_core::{Checksum, PageMut};
use std::ops::Range;

/// The bytes of an object that are still to come: those of a page, then its tail, where it is one of ours.
#[derive(Debug)]
pub(crate) struct Intake {
    page_len: usize,
    left: Range<usize>,
    came: Came,
    checksum: Option<Checksum>,
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
        }
    }

    /// Takes the whole body, as long as something comes every so often. `page` is given the page's bytes and where they
    /// go.
    pub(crate) async fn take(
        mut self,
        bucket: &Bucket,
        mut body: ByteStream,
        mut page: impl FnMut(usize, &[u8]),
    ) -> Result<Came, Trouble> {
        while let Some(bytes) = bucket.frame(&mut body).await? {
            let at = self.left.start;
            page(at, self.split(&bytes)?);
        }
        if !self.left.is_empty() {
            let why = format!("the body ended {} bytes short", self.left.len());
            return Err(Trouble::new(Kind::Outage, why));
        }
        self.came.checksum = self.checksum.map(|checksum| checksum.finish());
        Ok(self.came)
    }

    /// The page's bytes among `bytes`; those of the tail are kept.
    fn split<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], Trouble> {
        if bytes.len() > self.left.len() {
            return Err(Trouble::flaw(Flaw::Torn("more bytes came than were asked for".to_string())));
        }
        let at = self.left.start;
        self.left.start += bytes.len();
        let (of_page, of_tail) = bytes.split_at(bytes.len().min(self.page_len.saturating_sub(at)));
        self.came.len += of_page.len() as u64;
        if let Some(checksum) = &mut self.checksum {
            checksum.add(of_page);
        }
        if !of_tail.is_empty() {
            let at = at.saturating_sub(self.page_len);
            self.came.tail[at..at + of_tail.len()].copy_from_slice(of_tail);
        }
        Ok(of_page)
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

/// Writes `bytes` to the page's bytes from `at` on, over its pieces.
pub(crate) fn write(page: &mut PageMut, mut at: usize, mut bytes: &[u8]) {
    let piece_len = page.len() / page.planes() as usize;
    while !bytes.is_empty() {
        let (plane, offset) = (at / piece_len, at % piece_len);
        let (now, rest) = bytes.split_at(bytes.len().min(piece_len - offset));
        page.piece_mut(plane as u32).copy_from(offset, now);
        at += now.len();
        bytes = rest;
    }
}
