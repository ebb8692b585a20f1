//! One connection of HTTP/1.1 (RFC 9112). A request's body is written from where it lies, and an answer's body is read
//! to where it is to lie: the one copy is the socket's own.
//!
//! General clients gather what comes in buffers of theirs, and copying it from there is a seventh of the work of a
//! read. They also own what they send for as long as a server lets them wait, where here a request that is given up
//! takes its connection with it, and its page is free.

use crate::dial::Socket;
use crate::progress::Progress;
use bytes::Buf;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};
use httparse::Status;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of an answer's head, or of a line between chunks: what is read for at first, and at most.
const BUFFER_LEN: usize = 8 * 1024;
const BUFFER_LEN_MAX: usize = 64 * 1024;

/// Fields of an answer's head at most.
const FIELDS_MAX: usize = 128;

/// Pieces of a body that are written at once.
const SLICES: usize = 16;

/// A connection, between requests or in one.
pub(crate) struct Connection {
    socket: Socket,
    buffer: Vec<u8>,
    /// What has come and nobody has taken.
    held: Range<usize>,
    left: Left,
    /// Both sides mean to go on, once this request is over.
    lasts: bool,
}

/// The head of an answer.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) fields: HeaderMap,
    /// It came before all of the request was written.
    pub(crate) early: bool,
}

/// An answer that has begun.
struct Begun {
    head: Head,
    /// The connection goes on after it.
    lasts: bool,
}

/// What is still to come of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Bytes(u64),
    Chunk(Chunk),
    /// Whatever comes.
    UntilClosed,
}

/// What comes next of a body in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunk {
    Size,
    Bytes(u64),
    End,
    Trailer,
}

const NOTHING: Left = Left::Bytes(0);

const SIZELESS: &str = "a chunk of the answer does not say how long it is";

impl Connection {
    pub(crate) fn new(socket: Socket) -> Self {
        Self { socket, buffer: vec![0; BUFFER_LEN], held: 0..0, left: NOTHING, lasts: true }
    }

    /// Whether another request may be sent: the last one is over, and nothing has come that nobody asked for.
    pub(crate) fn is_free(&self) -> bool {
        self.lasts && self.left == NOTHING && self.held.is_empty()
    }

    /// Whether an answer ends with the connection alone.
    pub(crate) fn ends_by_closing(&self) -> bool {
        self.left == Left::UntilClosed
    }

    /// Whether the other side has left it open, and silent, since the last request.
    pub(crate) async fn is_open(&mut self) -> bool {
        self.socket.is_silent() && poll_fn(|cx| Poll::Ready(self.poll_fill(cx).is_pending())).await
    }

    /// Sends a request; the head of its answer. One that is no success ends the sending: of a body that it did not wait
    /// for, the rest remains. `bodiless`: an answer to this request has none, whatever its head says.
    ///
    /// # Errors
    ///
    /// Also where something comes before the request was sent: it is no answer to it.
    pub(crate) async fn exchange(
        &mut self,
        head: &[u8],
        body: &mut impl Buf,
        bodiless: bool,
        progress: &Progress,
    ) -> io::Result<Head> {
        // Until all of it is over it is not to be used again.
        self.lasts = false;
        let mut unsent = head;
        let (sent, answer) = match self.send(&mut unsent, body, progress).await {
            Ok(None) => (Ok(()), self.answer(progress).await),
            Ok(Some(mut answer)) => {
                answer.head.early = body.has_remaining();
                let goes_on = (200..300).contains(&answer.head.status);
                // Who takes the page all the same may not be done before it has all of it.
                let sent = if goes_on { self.send_rest(body, progress).await } else { Ok(()) };
                (sent, Ok(answer))
            }
            // Who refuses may close before all is sent: what it said counts.
            Err(error) if unsent.is_empty() => (Err(error), self.answer(progress).await),
            Err(error) => return Err(error),
        };
        match (sent, answer) {
            (Err(error), Err(_)) => Err(error),
            (sent, answer) => {
                let Begun { head, lasts } = answer?;
                self.left = if bodiless { NOTHING } else { Left::after(&head)? };
                self.lasts = lasts && sent.is_ok() && !body.has_remaining() && self.left != Left::UntilClosed;
                Ok(head)
            }
        }
    }

    /// Writes all of it, unless an answer comes meanwhile: that, then.
    async fn send(
        &mut self,
        head: &mut &[u8],
        body: &mut impl Buf,
        progress: &Progress,
    ) -> io::Result<Option<Begun>> {
        poll_fn(|cx| {
            loop {
                if let Poll::Ready(came) = self.poll_fill(cx)? {
                    if came == 0 {
                        return Poll::Ready(Err(closed("before an answer")));
                    }
                    if !head.is_empty() {
                        return Poll::Ready(Err(malformed("something came before anything was asked")));
                    }
                    progress.moved();
                    if let Some(answer) = self.parse_answer()? {
                        return Poll::Ready(Ok(Some(answer)));
                    }
                    continue;
                }
                if head.is_empty() && !body.has_remaining() {
                    return Pin::new(&mut self.socket).poll_flush(cx).map_ok(|()| None);
                }
                ready!(self.poll_write(cx, head, body, progress))?;
            }
        })
        .await
    }

    /// Writes what is left of a body whose answer has come.
    async fn send_rest(&mut self, body: &mut impl Buf, progress: &Progress) -> io::Result<()> {
        poll_fn(|cx| {
            while body.has_remaining() {
                ready!(self.poll_write(cx, &mut &[][..], body, progress))?;
            }
            Pin::new(&mut self.socket).poll_flush(cx)
        })
        .await
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        head: &mut &[u8],
        body: &mut impl Buf,
        progress: &Progress,
    ) -> Poll<io::Result<()>> {
        let mut slices = [IoSlice::new(&[]); 1 + SLICES];
        slices[0] = IoSlice::new(head);
        let count = 1 + body.chunks_vectored(&mut slices[1..]);
        let slices = &slices[usize::from(head.is_empty())..count];
        let sent = ready!(Pin::new(&mut self.socket).poll_write_vectored(cx, slices))?;
        if sent == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        progress.moved();
        let of_head = sent.min(head.len());
        *head = &head[of_head..];
        body.advance(sent - of_head);
        Poll::Ready(Ok(()))
    }

    /// Waits for the head of an answer.
    async fn answer(&mut self, progress: &Progress) -> io::Result<Begun> {
        loop {
            if let Some(answer) = self.parse_answer()? {
                return Ok(answer);
            }
            if poll_fn(|cx| self.poll_fill(cx)).await? == 0 {
                let begun = !self.held.is_empty();
                return Err(closed(if begun { "in an answer's head" } else { "before an answer" }));
            }
            progress.moved();
        }
    }

    /// The head of an answer, once it is there. Those before it that only say to go on, or to wait, are passed over.
    fn parse_answer(&mut self) -> io::Result<Option<Begun>> {
        loop {
            match self.parse_head()? {
                Some(Begun { head: Head { status: 100 | 102..=199, .. }, .. }) => (),
                answer => return Ok(answer),
            }
        }
    }

    fn parse_head(&mut self) -> io::Result<Option<Begun>> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut parsed = httparse::Response::new(&mut fields);
        let parsing = parsed.parse(&self.buffer[self.held.clone()]);
        let len = match parsing.map_err(|error| malformed(format!("the answer is no HTTP: {error}")))? {
            Status::Complete(len) => len,
            Status::Partial => return Ok(None),
        };
        let status = parsed.code.unwrap_or_default();
        let mut fields = HeaderMap::with_capacity(parsed.headers.len());
        for field in &*parsed.headers {
            let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(malformed)?;
            fields.append(name, HeaderValue::from_bytes(field.value).map_err(malformed)?);
        }
        let lasts = parsed.version == Some(1) && !has_token(&fields, &CONNECTION, "close");
        self.held.start += len;
        Ok(Some(Begun { head: Head { status, fields, early: false }, lasts }))
    }

    /// Reads of the answer's body; nothing at its end.
    ///
    /// # Errors
    ///
    /// Also where the connection is closed before that.
    pub(crate) fn poll_body(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            let most = match self.left {
                NOTHING => return Poll::Ready(Ok(0)),
                Left::Bytes(left) | Left::Chunk(Chunk::Bytes(left)) => left,
                Left::UntilClosed => u64::MAX,
                Left::Chunk(between) => {
                    self.left = ready!(self.poll_between(cx, between))?;
                    continue;
                }
            };
            let len = into.len().min(usize::try_from(most).unwrap_or(usize::MAX));
            let came = ready!(self.poll_take(cx, &mut into[..len]))?;
            self.left = match self.left {
                Left::UntilClosed if came == 0 => NOTHING,
                _ if came == 0 => {
                    return Poll::Ready(Err(closed("before the end of an answer")));
                }
                Left::Bytes(left) => Left::Bytes(left - came as u64),
                Left::Chunk(_) if most == came as u64 => Left::Chunk(Chunk::End),
                Left::Chunk(_) => Left::Chunk(Chunk::Bytes(most - came as u64)),
                Left::UntilClosed => Left::UntilClosed,
            };
            return Poll::Ready(Ok(came));
        }
    }

    /// Reads what stands between the bytes of chunks.
    fn poll_between(&mut self, cx: &mut Context<'_>, what: Chunk) -> Poll<io::Result<Left>> {
        loop {
            let held = &self.buffer[self.held.clone()];
            let read = match what {
                // An empty line would pass for the last chunk's.
                Chunk::Size if held.first().is_some_and(|first| !first.is_ascii_hexdigit()) => {
                    return Poll::Ready(Err(malformed(SIZELESS)));
                }
                Chunk::Size => match httparse::parse_chunk_size(held) {
                    Ok(Status::Complete((len, 0))) => Some((len, Left::Chunk(Chunk::Trailer))),
                    Ok(Status::Complete((len, size))) => Some((len, Left::Chunk(Chunk::Bytes(size)))),
                    Ok(Status::Partial) => None,
                    Err(_) => return Poll::Ready(Err(malformed(SIZELESS))),
                },
                Chunk::End | Chunk::Bytes(_) => match held {
                    [b'\r', b'\n', ..] => Some((2, Left::Chunk(Chunk::Size))),
                    [] | [b'\r'] => None,
                    _ => return Poll::Ready(Err(malformed("a chunk of the answer is longer than it says"))),
                },
                Chunk::Trailer => match held.windows(2).position(|pair| pair == b"\r\n") {
                    Some(0) => Some((2, NOTHING)),
                    Some(end) => Some((end + 2, Left::Chunk(Chunk::Trailer))),
                    None => None,
                },
            };
            if let Some((len, next)) = read {
                self.held.start += len;
                return Poll::Ready(Ok(next));
            }
            if ready!(self.poll_fill(cx))? == 0 {
                return Poll::Ready(Err(closed("before the end of an answer")));
            }
        }
    }

    /// Of what has come already, or else straight from the socket.
    fn poll_take(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.held.is_empty() {
            return poll_read(&mut self.socket, cx, into);
        }
        let len = into.len().min(self.held.len());
        into[..len].copy_from_slice(&self.buffer[self.held.start..][..len]);
        self.held.start += len;
        Poll::Ready(Ok(len))
    }

    /// Reads into the buffer, behind what it holds.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.held.is_empty() {
            self.held = 0..0;
        }
        if self.held.end == self.buffer.len() {
            if self.held.start > 0 {
                self.buffer.copy_within(self.held.clone(), 0);
                self.held = 0..self.held.len();
            } else if self.buffer.len() < BUFFER_LEN_MAX {
                self.buffer.resize(2 * self.buffer.len(), 0);
            } else {
                return Poll::Ready(Err(malformed("the answer has too long a head, or line")));
            }
        }
        let came = ready!(poll_read(&mut self.socket, cx, &mut self.buffer[self.held.end..]))?;
        self.held.end += came;
        Poll::Ready(Ok(came))
    }
}

impl Left {
    /// By the rules of <https://www.rfc-editor.org/rfc/rfc9112#section-6.3>.
    fn after(head: &Head) -> io::Result<Self> {
        if matches!(head.status, 204 | 304) {
            return Ok(NOTHING);
        }
        if head.fields.contains_key(TRANSFER_ENCODING) {
            let chunked = has_token(&head.fields, &TRANSFER_ENCODING, "chunked");
            return Ok(if chunked { Self::Chunk(Chunk::Size) } else { Self::UntilClosed });
        }
        let mut len = None;
        for field in head.fields.get_all(CONTENT_LENGTH) {
            let digits = field.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            match digits.and_then(|digits| digits.parse::<u64>().ok()) {
                Some(told) if len.is_none_or(|len| len == told) => len = Some(told),
                _ => return Err(malformed("the answer does not say how long it is")),
            }
        }
        Ok(len.map_or(Self::UntilClosed, Self::Bytes))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("left", &self.left).finish_non_exhaustive()
    }
}

fn poll_read(socket: &mut Socket, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
    let mut read = ReadBuf::new(into);
    ready!(Pin::new(socket).poll_read(cx, &mut read))?;
    Poll::Ready(Ok(read.filled().len()))
}

/// Whether a field that is a list has that word.
fn has_token(fields: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let texts = fields.get_all(name).into_iter().filter_map(|field| field.to_str().ok());
    texts.flat_map(|text| text.split(',')).any(|word| word.trim().eq_ignore_ascii_case(token))
}

fn closed(when: &str) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, format!("the connection was closed {when}"))
}

fn malformed(why: impl Into<crate::dial::BoxError>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests;
