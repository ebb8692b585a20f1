//! HTTP/1.1 by hand: requests read off a connection, replies written to it whole, cut, chunked or drop by drop.

use super::tls::{Authority, Secure};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

const LONGEST_LINE: usize = 64 << 10;

type Headers = Vec<(String, String)>;

/// A request as it came, without its body once it is recorded.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path as on the wire, percent signs and all.
    pub(crate) path: String,
    /// Query as on the wire, without its question mark.
    pub(crate) query: String,
    /// Names in lower case, in their order.
    pub(crate) headers: Vec<(String, String)>,
    /// Of the bucket and object that path and host name, decoded.
    pub(crate) bucket: String,
    pub(crate) key: String,
    /// Empty when a script sees it, and in the record.
    pub(crate) body: Vec<u8>,
    /// Bytes of the body that were read.
    pub(crate) body_len: usize,
    /// The connection it came on, counted from 0.
    pub(crate) connection: usize,
    /// Its place among all requests, from 0.
    pub(crate) number: usize,
    /// When its head was read.
    pub(crate) at: Instant,
}

impl Request {
    /// The first header of that name (in lower case).
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(held, _)| held == name).map(|(_, value)| value.as_str())
    }

    /// Whether any header's name begins so.
    pub(crate) fn has_header(&self, prefix: &str) -> bool {
        self.headers.iter().any(|(name, _)| name.starts_with(prefix))
    }

    /// A value of the query, decoded; empty where the name stands alone.
    pub(crate) fn query_value(&self, name: &str) -> Option<String> {
        self.query.split('&').find_map(|pair| {
            let (held, value) = pair.split_once('=').unwrap_or((pair, ""));
            (percent_decode(held) == name).then(|| percent_decode(value))
        })
    }

    /// First and last byte of a `Range: bytes=FIRST-LAST`.
    pub(crate) fn range(&self) -> Option<(usize, usize)> {
        let (first, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?))
    }

    /// The length that its head announces.
    pub(crate) fn content_length(&self) -> Option<usize> {
        self.header("content-length")?.parse().ok()
    }
}

/// Text with its percent signs resolved; `+` stays.
pub(crate) fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                plain.push(byte);
                at += 3;
            }
            None => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// What is answered.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    /// Of a HEAD, only its length is told.
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new() }
    }

    /// S3's own error document.
    pub(crate) fn error(status: u16, code: &str) -> Self {
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{code}, by script\
             </Message><RequestId>STUB</RequestId></Error>"
        );
        Self::new(status).with("content-type", "application/xml").holding(body)
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.set(name, value);
        self
    }

    pub(crate) fn holding(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Puts a header in place of those of that name.
    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.unset(name);
        self.headers.push((name.to_owned(), value.into()));
    }

    pub(crate) fn unset(&mut self, name: &str) {
        self.headers.retain(|(held, _)| !held.eq_ignore_ascii_case(name));
    }
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Close {
    /// Closed in order.
    Fin,
    /// Reset.
    Rst,
    /// Nothing more is said, but what comes is still read.
    Half,
}

/// How the bytes of a reply go out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delivery {
    /// Announced in place of the true length.
    pub(crate) claimed: Option<u64>,
    /// In chunks, without a length.
    pub(crate) chunked: bool,
    /// Bytes of the body that are sent; the rest is not.
    pub(crate) cut: Option<usize>,
    /// So many bytes at a time, with so long between them.
    pub(crate) pace: Option<(usize, Duration)>,
    /// Bytes that follow what was announced.
    pub(crate) surplus: Vec<u8>,
    /// What follows the reply; otherwise the connection stays.
    pub(crate) close: Option<Close>,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: Stream,
    buffer: Vec<u8>,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<Secure>),
}

impl Wire {
    pub(crate) fn plain(stream: TcpStream) -> Self {
        Self { stream: Stream::Plain(stream), buffer: Vec::new() }
    }

    pub(crate) fn secure(stream: Secure) -> Self {
        Self { stream: Stream::Tls(Box::new(stream)), buffer: Vec::new() }
    }

    /// Goes on under TLS, as after `CONNECT`.
    pub(crate) fn secured(&mut self, authority: &Authority) -> Result<()> {
        let socket = self.socket().try_clone()?;
        self.stream = Stream::Tls(Box::new(authority.accept(socket)));
        Ok(())
    }

    fn socket(&self) -> &TcpStream {
        match &self.stream {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => &stream.sock,
        }
    }

    /// Waits for the first byte of a request; false at the end of the stream, `WouldBlock` after `limit`.
    pub(crate) fn wait(&mut self, limit: Option<Duration>) -> Result<bool> {
        if !self.buffer.is_empty() {
            return Ok(true);
        }
        self.socket().set_read_timeout(limit)?;
        let filled = self.fill();
        self.socket().set_read_timeout(None)?;
        Ok(filled? > 0)
    }

    /// Method, path, query and headers.
    pub(crate) fn head(&mut self) -> Result<(String, String, String, Headers)> {
        let line = self.line()?;
        let mut words = line.split(' ');
        let (Some(method), Some(target), Some("HTTP/1.1")) = (words.next(), words.next(), words.next())
        else {
            return Err(Error::new(ErrorKind::InvalidData, format!("no request line: {line:?}")));
        };
        // To a proxy the target is a whole URL; the host is in its header, too.
        let target = match target.strip_prefix("http://") {
            Some(rest) => rest.find('/').map_or("/", |slash| &rest[slash..]),
            None => target,
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok((method.to_owned(), path.to_owned(), query.to_owned(), headers));
            }
            let (name, value) = line.split_once(':').unwrap_or((&line, ""));
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    /// The body that the head announced; with a pace, so many bytes at a time, so far apart.
    pub(crate) fn body(&mut self, request: &Request, pace: Option<(usize, Duration)>) -> Result<Vec<u8>> {
        if request.header("transfer-encoding").is_some_and(|coding| coding.contains("chunked")) {
            let mut body = Vec::new();
            loop {
                let size = self.line()?;
                let size = size.split(';').next().unwrap_or_default().trim();
                let size =
                    usize::from_str_radix(size, 16).map_err(|e| Error::new(ErrorKind::InvalidData, e))?;
                body.extend(self.exactly(size)?);
                self.line()?;
                if size == 0 {
                    return Ok(body);
                }
            }
        }
        let mut left = request.content_length().unwrap_or(0);
        let Some((piece, gap)) = pace else { return self.exactly(left) };
        let mut body = Vec::with_capacity(left);
        while left > 0 {
            body.extend(self.exactly(left.min(piece))?);
            left -= left.min(piece);
            std::thread::sleep(gap);
        }
        Ok(body)
    }

    fn line(&mut self) -> Result<String> {
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned());
            }
            if self.buffer.len() > LONGEST_LINE {
                return Err(Error::new(ErrorKind::InvalidData, "a line without an end"));
            }
            if self.fill()? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn exactly(&mut self, len: usize) -> Result<Vec<u8>> {
        let mut bytes: Vec<u8> = self.buffer.drain(..len.min(self.buffer.len())).collect();
        let held = bytes.len();
        bytes.resize(len, 0);
        match &mut self.stream {
            Stream::Plain(stream) => stream.read_exact(&mut bytes[held..])?,
            Stream::Tls(stream) => stream.read_exact(&mut bytes[held..])?,
        }
        Ok(bytes)
    }

    fn fill(&mut self) -> Result<usize> {
        let mut bytes = [0; 16 << 10];
        let len = match &mut self.stream {
            Stream::Plain(stream) => stream.read(&mut bytes)?,
            Stream::Tls(stream) => stream.read(&mut bytes)?,
        };
        self.buffer.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.stream {
            Stream::Plain(stream) => stream.write_all(bytes),
            Stream::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }

    /// A reply before the reply.
    pub(crate) fn interim(&mut self, status: u16) -> Result<()> {
        self.write(format!("HTTP/1.1 {status} {}\r\n\r\n", reason(status)).as_bytes())
    }

    /// Writes a reply; `bodiless` leaves the body out, as for a HEAD.
    pub(crate) fn reply(&mut self, reply: &Reply, delivery: &Delivery, bodiless: bool) -> Result<()> {
        let mut head = format!("HTTP/1.1 {} {}\r\n", reply.status, reason(reply.status));
        for (name, value) in &reply.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let len = delivery.claimed.unwrap_or(reply.body.len() as u64);
        match (reply.status, delivery.chunked) {
            (204 | 304, _) => {}
            (_, true) => head.push_str("Transfer-Encoding: chunked\r\n"),
            (_, false) => head.push_str(&format!("Content-Length: {len}\r\n")),
        }
        if delivery.close.is_some() && delivery.cut.is_none() {
            head.push_str("Connection: close\r\n");
        }
        head.push_str("\r\n");
        self.write(head.as_bytes())?;
        if bodiless || matches!(reply.status, 204 | 304) {
            return Ok(());
        }
        let sent = &reply.body[..delivery.cut.unwrap_or(reply.body.len()).min(reply.body.len())];
        let (piece, gap) = delivery.pace.unwrap_or((64 << 10, Duration::ZERO));
        for (index, bytes) in sent.chunks(piece).enumerate() {
            if index > 0 && !gap.is_zero() {
                std::thread::sleep(gap);
            }
            if delivery.chunked {
                self.write(&[format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat())?;
            } else {
                self.write(bytes)?;
            }
        }
        if delivery.chunked && delivery.close.is_none() {
            self.write(b"0\r\n\r\n")?;
        }
        self.write(&delivery.surplus)
    }

    /// Ends the connection.
    pub(crate) fn close(self, close: Close) {
        let socket = self.socket();
        match close {
            Close::Fin => drop(socket.shutdown(Shutdown::Write)),
            Close::Rst => drop(rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO))),
            Close::Half => {
                let _ = socket.shutdown(Shutdown::Write);
                self.drain(Duration::from_secs(30));
            }
        }
    }

    /// Waits, reading nothing, until the other side is done, for `limit` at most.
    pub(crate) fn wait_for_end(&self, limit: Duration) {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut socket = [PollFd::new(self.socket(), PollFlags::RDHUP)];
        let limit =
            Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: i64::from(limit.subsec_nanos()) };
        let _ = poll(&mut socket, Some(&limit));
    }

    /// Reads and forgets what comes until the other side is done, for `limit` at most.
    pub(crate) fn drain(&self, limit: Duration) {
        let end = Instant::now() + limit;
        let mut bytes = [0; 16 << 10];
        let mut socket = self.socket();
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            let _ = socket.set_read_timeout(Some(left));
            if !matches!(socket.read(&mut bytes), Ok(1..)) {
                break;
            }
        }
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        102 => "Processing",
        103 => "Early Hints",
        200 => "OK",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        412 => "Precondition Failed",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        503 => "Service Unavailable",
        _ => "By Script",
    }
}
