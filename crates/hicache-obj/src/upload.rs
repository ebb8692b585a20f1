//! The body of an upload: the page itself, piece by piece, from where it lies, and its tail.

use crate::line::Line;
use crate::tail::{self, Tail};
use bytes::Bytes;
use hicache_core::{Checksum, Page};
use http_body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// Bytes that are handed on at once: few enough that progress can be seen and that they are warm from their checksum
/// when the socket copies them. A little more than the HTTP client gathers before it writes (408 KiB): it writes each
/// before it asks for the next.
const FRAME_LEN: usize = 416 * 1024;

/// When something last moved, and what has not.
#[derive(Clone, Debug)]
pub(crate) struct Progress(Arc<Moved>);

#[derive(Debug)]
struct Moved {
    start: Instant,
    /// Milliseconds after the start.
    last: AtomicU64,
    /// Bytes of the body that the connection has not asked for, or has not written.
    unsent: AtomicUsize,
    /// The connection that asks for them.
    line: OnceLock<Line>,
}

/// Bytes of a page and its tail. It owns the page until the connection has let go of every part of it.
#[derive(Debug)]
pub(crate) struct PageBody {
    page: Page,
    tail: Tail,
    /// Of the bytes handed on so far, for the tail: where it was not known before.
    making: Option<Checksum>,
    left: Range<usize>,
    progress: Progress,
}

/// A part of a page's piece, as bytes.
struct Part {
    page: Page,
    plane: u32,
    range: Range<usize>,
    progress: Progress,
}

/// Somebody waits for the answer. Who does no longer does not leave the page with a server that does not take it.
struct Waiting<'a>(&'a Progress);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Moved { unsent, line, .. } = &*self.0.0;
        if let (1.., Some(line)) = (unsent.load(Ordering::Acquire), line.get()) {
            line.cut();
        }
    }
}

impl Progress {
    pub(crate) fn new() -> Self {
        let (last, unsent) = (AtomicU64::new(0), AtomicUsize::new(0));
        Self(Arc::new(Moved { start: Instant::now(), last, unsent, line: OnceLock::new() }))
    }

    fn moved(&self) {
        self.0.last.store(self.0.start.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    fn gone(&self, len: usize) {
        self.moved();
        self.0.unsent.fetch_sub(len, Ordering::AcqRel);
    }

    /// Whether the connection has written all of it.
    pub(crate) fn is_sent(&self) -> bool {
        self.0.unsent.load(Ordering::Acquire) == 0
    }

    /// When something last moved.
    pub(crate) fn last(&self) -> std::time::Instant {
        let after = Duration::from_millis(self.0.last.load(Ordering::Relaxed));
        self.0.start.into_std() + after
    }

    /// Waits for `work` as long as something moves: `None` when nothing has for `limit`. A page that is not sent whole
    /// when the waiting ends is not sent any further.
    pub(crate) async fn follow<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        let _waiting = Waiting(self);
        loop {
            let last = Duration::from_millis(self.0.last.load(Ordering::Relaxed));
            let until = self.0.start + last + limit;
            match tokio::time::timeout_at(until, &mut work).await {
                Ok(value) => return Some(value),
                Err(_)
                    if self.0.start + Duration::from_millis(self.0.last.load(Ordering::Relaxed)) + limit
                        > until => {}
                Err(_) => return None,
            }
        }
    }
}

impl PageBody {
    /// The bytes `range` of the page's pieces, one after the other, and of the tail behind them. `makes`: the checksum
    /// in the tail is yet to be made, from all that goes before it.
    pub(crate) fn new(page: Page, tail: Tail, makes: bool, range: Range<usize>, progress: Progress) -> Self {
        progress.0.unsent.store(range.len(), Ordering::Release);
        Self { page, tail, making: makes.then(Checksum::new), left: range, progress }
    }

    fn next(&mut self) -> Option<Bytes> {
        if self.left.is_empty() {
            return None;
        }
        if self.left.start >= self.page.len() {
            return Some(self.end());
        }
        let bytes = self.of_page();
        if let Some(making) = &mut self.making {
            making.add(&bytes);
        }
        Some(bytes)
    }

    /// The tail, all of it.
    fn end(&mut self) -> Bytes {
        if let Some(making) = self.making.take() {
            self.tail.checksum = Some(making.finish());
        }
        self.left.start += tail::LEN;
        self.progress.gone(tail::LEN);
        Bytes::copy_from_slice(&self.tail.encode())
    }

    fn of_page(&mut self) -> Bytes {
        let piece_len = self.page.len() / self.page.planes() as usize;
        let (plane, at) = (self.left.start / piece_len, self.left.start % piece_len);
        let end = self.left.end.min(self.page.len());
        let len = FRAME_LEN.min(piece_len - at).min(end - self.left.start);
        self.left.start += len;
        self.progress.moved();
        let (page, progress) = (self.page.clone(), self.progress.clone());
        Part { page, plane: plane as u32, range: at..at + len, progress }.into_bytes()
    }
}

impl Part {
    /// Where nobody else writes the memory, the bytes are the page's own; else a copy, since no reference may exist.
    fn into_bytes(self) -> Bytes {
        if self.page.bytes(self.plane).is_some() {
            return Bytes::from_owner(self);
        }
        let mut copy = vec![0; self.range.len()];
        self.page.piece(self.plane).copy_to(self.range.start, &mut copy);
        copy.into()
    }
}

/// Written, or not wanted any more.
impl Drop for Part {
    fn drop(&mut self) {
        self.progress.gone(self.range.len());
    }
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.page.bytes(self.plane).expect("memory stays as exclusive as it was")[self.range.clone()]
    }
}

impl Body for PageBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let (None, Some(line)) = (self.progress.0.line.get(), Line::here()) {
            let _ = self.progress.0.line.set(line);
        }
        Poll::Ready(self.next().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hicache_core::{Alignment, Backing};
    use hicache_testkit::pages;

    fn sent(body: PageBody) -> (Vec<u8>, Progress) {
        let (mut body, mut bytes) = (body, Vec::new());
        while let Some(frame) = body.next() {
            assert_eq!(body.is_end_stream(), body.left.is_empty());
            bytes.extend_from_slice(&frame);
        }
        (bytes, body.progress)
    }

    #[test]
    fn a_body_is_the_page_and_the_tail_of_what_was_sent_each_time_it_is_sent() {
        for backing in [Backing::Private, Backing::Shared] {
            for layout in [pages::two_planes(), pages::many_pieces(), pages::opaque(3 * FRAME_LEN + 512)] {
                let pool = pages::pool(&layout, 1, Alignment::NONE, backing);
                let mut page = pool.alloc(1).unwrap().remove(0);
                pages::fill(&mut page, 7);
                let page = page.freeze();
                let checksum = Checksum::of(&page);
                let right = Tail { page_len: page.len() as u64, metadata: 8, checksum: Some(checksum) };
                let (len, unknown) = (page.len(), Tail { checksum: None, ..right });
                for (tail, makes) in [(unknown, true), (unknown, true), (right, false), (unknown, false)] {
                    let progress = Progress::new();
                    let body = PageBody::new(page.clone(), tail, makes, 0..len + tail::LEN, progress);
                    let (bytes, progress) = sent(body);
                    assert_eq!(Checksum::of_bytes(&bytes[..len]), checksum, "{layout}");
                    let expected = if makes { right } else { tail };
                    assert_eq!(bytes[len..], expected.encode(), "{layout}");
                    assert_eq!(progress.0.unsent.load(Ordering::Acquire), 0, "{layout}");
                }
                let parts = [0..len / 2, len / 2..len + tail::LEN]
                    .map(|range| sent(PageBody::new(page.clone(), right, false, range, Progress::new())).0);
                assert_eq!(Checksum::of_bytes(&parts.concat()[..len]), checksum, "{layout}");
                assert_eq!(parts[1][len - len / 2..], right.encode(), "{layout}");
            }
        }
    }
}
