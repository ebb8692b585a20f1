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
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};

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

impl Connection {
    pub(crate) fn new(socket: Socket) -> Self {
        Self { socket, buffer: vec![0; BUFFER_LEN], held: 0..0, left: NOTHING, lasts: true }
    }

    /// Whether another request may be sent: the last one is over, and nothing has come that nobody asked for.
    pub(crate) fn is_free(&self) -> bool {
        self.lasts && self.left == NOTHING && self.held.is_empty()
    }

    /// Whether the other side has left it open, and silent, since the last request.
    pub(crate) async fn is_open(&mut self) -> bool {
        poll_fn(|cx| Poll::Ready(self.poll_fill(cx).is_pending())).await
    }

    /// Sends a request; its answer's head. The answer ends the sending: of a body that it did not wait for, the rest
    /// remains. `bodiless`: an answer to this request has none, whatever its head says.
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
        let (sent, answer) = loop {
            let sent = self.send(&mut unsent, body, progress).await;
            match self.head(progress).await {
                // It is told to go on, or to wait.
                Ok((Head { status: 100 | 102..=199, .. }, _)) => (),
                answer => break (sent, answer),
            }
        };
        // Who refuses may close before all is sent: what it said counts.
        match (sent, answer) {
            (Err(error), Err(_)) => Err(error),
            (sent, answer) => {
                let (head, lasts) = answer?;
                self.left = if bodiless { NOTHING } else { Left::after(&head)? };
                self.lasts = lasts && sent.is_ok() && !body.has_remaining() && self.left != Left::UntilClosed;
                Ok(head)
            }
        }
    }

    /// Until all is written, or something comes.
    async fn send(&mut self, head: &mut &[u8], body: &mut impl Buf, progress: &Progress) -> io::Result<()> {
        poll_fn(|cx| {
            while self.held.is_empty() {
                if let Poll::Ready(came) = self.poll_fill(cx)? {
                    return Poll::Ready(if came == 0 { Err(closed("before an answer")) } else { Ok(()) });
                }
                if head.is_empty() && !body.has_remaining() {
                    return Pin::new(&mut self.socket).poll_flush(cx);
                }
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
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// The head of an answer, and whether the connection goes on after it.
    async fn head(&mut self, progress: &Progress) -> io::Result<(Head, bool)> {
        loop {
            if let Some(head) = self.parse_head()? {
                return Ok(head);
            }
            if poll_fn(|cx| self.poll_fill(cx)).await? == 0 {
                let begun = !self.held.is_empty();
                return Err(closed(if begun { "in an answer's head" } else { "before an answer" }));
            }
            progress.moved();
        }
    }

    fn parse_head(&mut self) -> io::Result<Option<(Head, bool)>> {
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
        Ok(Some((Head { status, fields }, lasts)))
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
                Chunk::Size => match httparse::parse_chunk_size(held) {
                    Ok(Status::Complete((len, 0))) => Some((len, Left::Chunk(Chunk::Trailer))),
                    Ok(Status::Complete((len, size))) => Some((len, Left::Chunk(Chunk::Bytes(size)))),
                    Ok(Status::Partial) => None,
                    Err(_) => return Poll::Ready(Err(malformed("a chunk of the answer has no size"))),
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
mod tests {
    use super::*;
    use futures_util::future::join;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    fn run<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
    }

    fn line() -> (Connection, DuplexStream) {
        let (ours, theirs) = duplex(1 << 20);
        (Connection::new(Box::new(ours)), theirs)
    }

    async fn ask(connection: &mut Connection, bodiless: bool) -> io::Result<Head> {
        connection.exchange(b"GET / HTTP/1.1\r\n\r\n", &mut &[][..], bodiless, &Progress::new()).await
    }

    /// The rest of an answer, so many bytes at once.
    async fn rest(connection: &mut Connection, at_once: usize) -> io::Result<Vec<u8>> {
        let (mut all, mut some) = (Vec::new(), vec![0; at_once]);
        loop {
            match poll_fn(|cx| connection.poll_body(cx, &mut some)).await? {
                0 => return Ok(all),
                len => all.extend_from_slice(&some[..len]),
            }
        }
    }

    /// What is made of `answer`, which comes in parts of `parts` bytes and then ends: status, body, and whether the
    /// connection may be used again.
    async fn heard(
        answer: &[u8],
        parts: usize,
        at_once: usize,
        bodiless: bool,
    ) -> io::Result<(u16, Vec<u8>, bool)> {
        let (mut connection, mut server) = line();
        let speaking = async {
            for part in answer.chunks(parts) {
                server.write_all(part).await.unwrap();
                tokio::task::yield_now().await;
            }
            server.shutdown().await.unwrap();
        };
        let hearing = async {
            let head = ask(&mut connection, bodiless).await?;
            let body = rest(&mut connection, at_once).await?;
            Ok((head.status, body, connection.is_free()))
        };
        join(hearing, speaking).await.0
    }

    #[test]
    fn an_answer_is_read_to_its_end_however_it_is_cut_up() {
        let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\ncontent-length: 2\r\n\r\nhi", "y".repeat(20_000));
        let answers: [(&str, bool, u16, &str, bool); 14] = [
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", false, 200, "hello", true),
            ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false, 200, "", true),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\nhello",
                false,
                200,
                "hello",
                true,
            ),
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", true, 200, "", true),
            ("HTTP/1.1 404 Not Found\r\ntransfer-encoding: chunked\r\n\r\n", true, 404, "", true),
            ("HTTP/1.1 204 No Content\r\n\r\n", false, 204, "", true),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n",
                false,
                200,
                "hello",
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx: 1\r\ny: 2\r\n\r\n",
                false,
                200,
                "hello",
                true,
            ),
            ("HTTP/1.1 200 OK\r\n\r\nhello", false, 200, "hello", false),
            ("HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello", false, 200, "hello", false),
            (
                "HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 5\r\n\r\nhello",
                false,
                200,
                "hello",
                false,
            ),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n\
                 HTTP/1.1 206 Partial Content\r\ncontent-length: 2\r\n\r\nhi",
                false,
                206,
                "hi",
                true,
            ),
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi, and more", false, 200, "hi", false),
            (&long, false, 200, "hi", true),
        ];
        for (answer, bodiless, status, body, free) in answers {
            for (parts, at_once) in [(usize::MAX, 1000), (1, 1000), (1, 1), (7, 3), (usize::MAX, 2)] {
                let heard = run(heard(answer.as_bytes(), parts.min(answer.len()), at_once, bodiless));
                let (found, text, is_free) = heard.unwrap_or_else(|error| panic!("{answer:?}: {error}"));
                assert_eq!((found, text.as_slice()), (status, body.as_bytes()), "{answer:?}");
                // What follows an answer may come after it is looked at.
                assert!(is_free == free || parts < answer.len(), "{answer:?} {parts}");
            }
        }
    }

    #[test]
    fn what_is_no_answer_or_breaks_off_is_an_error_and_ends_the_connection() {
        let endless = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(2 * BUFFER_LEN_MAX));
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(FIELDS_MAX + 1));
        for answer in [
            "",
            "\x15\x03\x03\0\x02\x02",
            "SSH-2.0-OpenSSH_9.2\r\n",
            "HTTP/1.1 200 OK\r\ncontent-le",
            "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
            "HTTP/1.1 200 OK\r\ncontent-length: +5\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\ncontent-length: \r\n\r\nhello",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\nhello",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello!\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
            &endless,
            &many,
        ] {
            for parts in [usize::MAX, if answer.len() < 1000 { 1 } else { 997 }] {
                let heard = run(heard(answer.as_bytes(), parts.min(answer.len().max(1)), 1000, false));
                heard.map(|found| panic!("{answer:?} was taken for {found:?}")).unwrap_err();
            }
        }
    }

    #[test]
    fn a_body_is_sent_behind_its_head_and_the_rest_remains_where_nobody_waits_for_it() {
        run(async {
            let (mut connection, mut server) = line();
            let page: Vec<u8> = (0..3_000_000_u32).map(|n| n as u8).collect();
            let (mut body, progress) = (&page[..], Progress::new());
            let serving = async {
                let mut came = vec![0; 10 + page.len()];
                server.read_exact(&mut came).await.unwrap();
                assert!(came.starts_with(b"PUT / ...\n") && came[10..] == page);
                server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            };
            let sending = connection.exchange(b"PUT / ...\n", &mut body, false, &progress);
            assert_eq!(join(sending, serving).await.0.unwrap().status, 200);
            assert!(body.is_empty() && connection.is_free());

            let mut body = &page[..];
            let refusing = async {
                server.read_exact(&mut [0; 10]).await.unwrap();
                server.write_all(b"HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            };
            let sending = connection.exchange(b"PUT / ...\n", &mut body, false, &progress);
            assert_eq!(join(sending, refusing).await.0.unwrap().status, 503);
            assert!(!body.is_empty() && !connection.is_free(), "the server is owed the rest");
        });
    }

    #[test]
    fn a_connection_is_not_used_again_in_the_midst_of_an_answer_or_when_the_server_has_spoken_or_gone() {
        run(async {
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
            let (mut connection, mut server) = line();
            assert!(connection.is_free() && connection.is_open().await);
            server.write_all(answer).await.unwrap();
            ask(&mut connection, false).await.unwrap();
            assert!(!connection.is_free(), "its body is still to come");
            assert_eq!(rest(&mut connection, 3).await.unwrap(), b"hello");
            assert!(connection.is_free() && connection.is_open().await);
            server.write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n").await.unwrap();
            assert!(!connection.is_open().await);

            let (mut connection, server) = line();
            drop(server);
            assert!(!connection.is_open().await);

            let (mut connection, _server) = line();
            let waiting =
                tokio::time::timeout(std::time::Duration::from_millis(1), ask(&mut connection, false));
            assert!(waiting.await.is_err());
            assert!(!connection.is_free(), "an answer may be on its way");
        });
    }
}
