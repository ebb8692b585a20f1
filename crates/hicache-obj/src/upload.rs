//! The body of an upload: the page itself, piece by piece, from where it lies, and its tail.

use crate::tail::{self, Tail};
use bytes::Buf;
use hicache_core::{Checksum, Page};
use std::io::IoSlice;
use std::ops::Range;

/// Bytes that are made ready before they are sent: few enough that they are warm from their checksum when the socket
/// copies them.
const AHEAD: usize = 512 * 1024;

/// Bytes of a page and its tail.
#[derive(Debug)]
pub(crate) struct PageBody<'a> {
    page: &'a Page,
    tail: Tail,
    /// The tail, once its checksum is known.
    end: Option<[u8; tail::LEN]>,
    /// Of the bytes that are ready, for the tail: where it was not known before.
    making: Option<Checksum>,
    left: Range<usize>,
    /// Up to where all is ready to be sent.
    ready: usize,
    /// What is ready, where no reference to the page may exist.
    copy: Option<Vec<u8>>,
}

impl<'a> PageBody<'a> {
    /// The bytes `range` of the page's pieces, one after the other, and of the tail behind them. `makes`: the checksum
    /// in the tail is yet to be made, from all that goes before it.
    pub(crate) fn new(page: &'a Page, tail: Tail, makes: bool, range: Range<usize>) -> Self {
        let mut body = Self {
            page,
            tail,
            end: None,
            making: makes.then(Checksum::new),
            ready: range.start,
            left: range,
            copy: page.bytes(0).is_none().then(Vec::new),
        };
        body.prepare();
        body
    }

    /// Makes more ready: by and by, and what is copied when all of it was taken.
    fn prepare(&mut self) {
        if let Some(copy) = &mut self.copy {
            if self.ready > self.left.start {
                return;
            }
            copy.clear();
        }
        let end = self.left.end.min(self.page.len()).min(self.left.start + AHEAD);
        while self.ready < end {
            let (plane, range) = piece_at(self.page, self.ready, end);
            self.ready += range.len();
            let bytes = match &mut self.copy {
                None => &self.page.bytes(plane).expect("memory stays as exclusive as it was")[range],
                Some(copy) => {
                    let from = copy.len();
                    copy.resize(from + range.len(), 0);
                    self.page.piece(plane).copy_to(range.start, &mut copy[from..]);
                    &copy[from..]
                }
            };
            if let Some(making) = &mut self.making {
                making.add(bytes);
            }
        }
        if self.ready >= self.page.len() && self.left.end > self.page.len() && self.end.is_none() {
            if let Some(making) = self.making.take() {
                self.tail.checksum = Some(making.finish());
            }
            self.end = Some(self.tail.encode());
            self.ready = self.left.end;
        }
    }

    /// What is ready at `at`, as far as it lies there together.
    fn slice(&self, at: usize) -> &[u8] {
        let page_len = self.page.len();
        if at >= self.ready {
            return &[];
        }
        if let Some(end) = self.end.as_ref().filter(|_| at >= page_len) {
            return &end[at - page_len..];
        }
        let ready = self.ready.min(page_len);
        match &self.copy {
            Some(copy) => &copy[copy.len() - (ready - at)..],
            None => {
                let (plane, range) = piece_at(self.page, at, ready);
                &self.page.bytes(plane).expect("memory stays as exclusive as it was")[range]
            }
        }
    }
}

/// Where the page's bytes lie from `at` on: the plane, and what of it, up to `end` at most.
fn piece_at(page: &Page, at: usize, end: usize) -> (u32, Range<usize>) {
    let piece_len = page.len() / page.planes() as usize;
    let (plane, offset) = (at / piece_len, at % piece_len);
    (plane as u32, offset..offset + (piece_len - offset).min(end - at))
}

impl Buf for PageBody<'_> {
    fn remaining(&self) -> usize {
        self.left.len()
    }

    fn chunk(&self) -> &[u8] {
        self.slice(self.left.start)
    }

    fn chunks_vectored<'s>(&'s self, into: &mut [IoSlice<'s>]) -> usize {
        let (mut at, mut count) = (self.left.start, 0);
        for slot in into {
            let bytes = self.slice(at);
            if bytes.is_empty() {
                break;
            }
            *slot = IoSlice::new(bytes);
            (at, count) = (at + bytes.len(), count + 1);
        }
        count
    }

    fn advance(&mut self, len: usize) {
        self.left.start += len;
        assert!(self.left.start <= self.ready, "more is taken than was ready");
        self.prepare();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hicache_core::{Alignment, Backing};
    use hicache_testkit::pages;

    /// Takes so many bytes at once, at most.
    fn sent(mut body: PageBody, most: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while body.has_remaining() {
            let mut slices = [IoSlice::new(&[]); 5];
            let count = body.chunks_vectored(&mut slices);
            assert_eq!(&*slices[0], body.chunk());
            let offered: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
            let taken = offered.len().min(most);
            bytes.extend_from_slice(&offered[..taken]);
            body.advance(taken);
        }
        assert_eq!((body.remaining(), body.chunk().len()), (0, 0));
        bytes
    }

    #[test]
    fn a_body_is_the_page_and_the_tail_of_what_was_sent_each_time_it_is_sent() {
        for backing in [Backing::Private, Backing::Shared] {
            for layout in [pages::two_planes(), pages::many_pieces(), pages::opaque(3 * AHEAD + 512)] {
                let pool = pages::pool(&layout, 1, Alignment::NONE, backing);
                let mut page = pool.alloc(1).unwrap().remove(0);
                pages::fill(&mut page, 7);
                let page = page.freeze();
                let checksum = Checksum::of(&page);
                let right = Tail { page_len: page.len() as u64, metadata: 8, checksum: Some(checksum) };
                let (len, unknown) = (page.len(), Tail { checksum: None, ..right });
                for (tail, makes) in [(unknown, true), (unknown, true), (right, false), (unknown, false)] {
                    for most in [usize::MAX, AHEAD / 3 + 1] {
                        let bytes = sent(PageBody::new(&page, tail, makes, 0..len + tail::LEN), most);
                        assert_eq!(Checksum::of_bytes(&bytes[..len]), checksum, "{layout}");
                        let expected = if makes { right } else { tail };
                        assert_eq!(bytes[len..], expected.encode(), "{layout}");
                    }
                }
                let parts = [0..len / 2, len / 2..len + tail::LEN]
                    .map(|range| sent(PageBody::new(&page, right, false, range), usize::MAX));
                assert_eq!(Checksum::of_bytes(&parts.concat()[..len]), checksum, "{layout}");
                assert_eq!(parts[1][len - len / 2..], right.encode(), "{layout}");
            }
        }
    }
}
