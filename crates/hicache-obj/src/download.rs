//! From a response's body into a page's slot, with the one copy that a socket costs.

use crate::bucket::Bucket;
use crate::facts::Flaw;
use crate::trouble::{Kind, Trouble};
use aws_sdk_s3::primitives::ByteStream;
use hicache_core::{Checksum, PageMut};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Bytes of a page that are still to come, and where they go. The lock is for pages that come in parts, which one task
/// takes in turn: it is never waited for.
#[derive(Debug)]
pub(crate) struct Filling<'a, 'p> {
    page: &'a Mutex<&'p mut PageMut>,
    left: Range<usize>,
    /// Of what has come: while it is warm.
    checksum: Option<Checksum>,
}

impl<'a, 'p> Filling<'a, 'p> {
    /// The bytes `range` of `page`.
    pub(crate) fn new(page: &'a Mutex<&'p mut PageMut>, range: Range<usize>, checksum: bool) -> Self {
        Self { page, left: range, checksum: checksum.then(Checksum::new) }
    }

    /// Takes the whole body, as long as something comes every so often. Its checksum, where one was wanted.
    pub(crate) async fn take(
        mut self,
        bucket: &Bucket,
        mut body: ByteStream,
    ) -> Result<Option<u64>, Trouble> {
        while let Some(bytes) = bucket.frame(&mut body).await? {
            self.put(&bytes)?;
        }
        if !self.left.is_empty() {
            let why = format!("the body ended {} bytes short", self.left.len());
            return Err(Trouble::new(Kind::Outage, why));
        }
        Ok(self.checksum.map(|checksum| checksum.finish()))
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        if bytes.len() > self.left.len() {
            return Err(Trouble::flaw(Flaw::Torn("more bytes came than were asked for".to_string())));
        }
        if let Some(checksum) = &mut self.checksum {
            checksum.add(bytes);
        }
        write(&mut self.page.lock().unwrap_or_else(PoisonError::into_inner), self.left.start, bytes);
        self.left.start += bytes.len();
        Ok(())
    }
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
