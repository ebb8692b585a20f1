//! One connection: requests one after the other, as long as the client likes.

use crate::head::{Head, Method};
use crate::listing::listing;
use crate::objects::{Object, Objects};
use crate::removal::removal;
use std::fmt::Write as _;
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// For heads, and for bodies that are thrown away.
const BUFFER_LEN: usize = 256 << 10;
const END: &[u8] = b"\r\n\r\n";

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    objects: Arc<Objects>,
    buffer: Vec<u8>,
    /// Bytes in the buffer that are not dealt with.
    held: usize,
    /// The head of an answer.
    answer: String,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, objects: Arc<Objects>) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, objects, buffer: vec![0; BUFFER_LEN], held: 0, answer: String::new() })
    }

    /// Answers requests until the client has none.
    pub(crate) fn serve(mut self) -> io::Result<()> {
        while let Some(end) = self.head_end()? {
            let head = Head::parse(&self.buffer[..end]);
            self.forget(end + END.len());
            let Some(head) = head else { return self.refuse("400 Bad Request", "BadRequest", true) };
            let last = head.last;
            self.request(head)?;
            if last {
                break;
            }
        }
        Ok(())
    }

    /// Where the next head ends; `None` at the end of the connection.
    fn head_end(&mut self) -> io::Result<Option<usize>> {
        let mut seen = 0;
        loop {
            if let Some(place) =
                self.buffer[seen..self.held].windows(END.len()).position(|found| found == END)
            {
                return Ok(Some(seen + place));
            }
            seen = self.held.saturating_sub(END.len() - 1);
            if self.held == self.buffer.len() {
                return Err(io::Error::other("a head of a request is too long"));
            }
            match self.stream.read(&mut self.buffer[self.held..])? {
                0 => return Ok(None),
                read => self.held += read,
            }
        }
    }

    /// Drops the first bytes of what is held.
    fn forget(&mut self, count: usize) {
        self.buffer.copy_within(count..self.held, 0);
        self.held -= count;
    }

    fn request(&mut self, head: Head) -> io::Result<()> {
        let is_bucket = head.key.is_empty();
        match head.method {
            _ if head.framed => self.refuse("501 Not Implemented", "NotImplemented", true),
            Method::Put if is_bucket => {
                self.discard(&head)?;
                self.plain("200 OK", "")
            }
            Method::Put if head.parameter("uploadId").is_none() => self.put(head),
            Method::Get if is_bucket && head.parameter("uploads").is_some() => {
                self.refuse("501 Not Implemented", "NotImplemented", false)
            }
            Method::Get if is_bucket => {
                let body = listing(&self.objects, &head);
                self.document(&body)
            }
            Method::Head if is_bucket => self.plain("200 OK", ""),
            Method::Get | Method::Head => self.get(&head),
            Method::Delete => {
                self.objects.remove(&head.bucket, &head.key);
                self.plain("204 No Content", "")
            }
            Method::Post if is_bucket && head.parameter("delete").is_some() => {
                let mut body = vec![0; head.len];
                self.receive(&head, &mut body)?;
                let body = removal(&self.objects, &head.bucket, &body);
                self.document(&body)
            }
            Method::Put | Method::Post | Method::Other => {
                self.discard(&head)?;
                self.refuse("501 Not Implemented", "NotImplemented", false)
            }
        }
    }

    fn put(&mut self, head: Head) -> io::Result<()> {
        let mut body = self.objects.body(head.len);
        match body.as_mut().and_then(|body| body.bytes_mut()) {
            Some(bytes) => self.receive(&head, bytes)?,
            None => self.discard(&head)?,
        }
        match self.objects.put(head.bucket, head.key, body, head.kept, head.only_new) {
            Some(object) => self.plain("200 OK", &format!("ETag: {}\r\n", object.etag)),
            None => self.refuse("412 Precondition Failed", "PreconditionFailed", false),
        }
    }

    fn get(&mut self, head: &Head) -> io::Result<()> {
        let Some(object) = self.objects.get(&head.bucket, &head.key) else {
            return match head.method {
                // Its answer has no body.
                Method::Head => self.plain("404 Not Found", ""),
                _ => self.refuse("404 Not Found", "NoSuchKey", false),
            };
        };
        let bytes = object.body.bytes();
        let Some(range) = head.wanted(bytes.len()) else {
            return self.refuse("416 Range Not Satisfiable", "InvalidRange", false);
        };
        let mut headers = object_headers(&object);
        let _ = write!(headers, "Content-Length: {}\r\n", range.len());
        let status = if head.range.is_some() {
            let (first, last) = (range.start, range.end - 1);
            let _ = write!(headers, "Content-Range: bytes {first}-{last}/{}\r\n", bytes.len());
            "206 Partial Content"
        } else {
            "200 OK"
        };
        self.begin(status, &headers);
        self.send(if head.method == Method::Get { &bytes[range] } else { &[] })
    }

    /// Receives a body straight to where it belongs.
    fn receive(&mut self, head: &Head, bytes: &mut [u8]) -> io::Result<()> {
        go_ahead(&mut self.stream, head)?;
        let early = self.held.min(bytes.len());
        bytes[..early].copy_from_slice(&self.buffer[..early]);
        self.stream.read_exact(&mut bytes[early..])?;
        self.forget(early);
        Ok(())
    }

    /// Receives a body that nobody wants.
    fn discard(&mut self, head: &Head) -> io::Result<()> {
        go_ahead(&mut self.stream, head)?;
        let early = self.held.min(head.len);
        self.forget(early);
        let mut left = head.len - early;
        while left > 0 {
            // What is held lies at the front and stays; there is none while a body is still coming.
            let end = left.min(self.buffer.len());
            match self.stream.read(&mut self.buffer[..end])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => left -= read,
            }
        }
        Ok(())
    }

    fn document(&mut self, body: &str) -> io::Result<()> {
        let headers = format!("Content-Type: application/xml\r\nContent-Length: {}\r\n", body.len());
        self.begin("200 OK", &headers);
        self.send(body.as_bytes())
    }

    fn plain(&mut self, status: &str, headers: &str) -> io::Result<()> {
        self.begin(status, &format!("{headers}Content-Length: 0\r\n"));
        self.send(&[])
    }

    fn refuse(&mut self, status: &str, code: &str, close: bool) -> io::Result<()> {
        let body =
            format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{status}</Message></Error>");
        let close_header = if close { "Connection: close\r\n" } else { "" };
        let length = body.len();
        let headers = format!("{close_header}Content-Type: application/xml\r\nContent-Length: {length}\r\n");
        self.begin(status, &headers);
        self.send(body.as_bytes())?;
        if close { Err(io::Error::other(code.to_owned())) } else { Ok(()) }
    }

    fn begin(&mut self, status: &str, headers: &str) {
        self.answer.clear();
        // Writing to a string does not fail.
        let _ = write!(self.answer, "HTTP/1.1 {status}\r\nServer: memory-s3\r\n{headers}\r\n");
    }

    /// The head that was begun and its body, with as few system calls as the socket lets it be.
    fn send(&mut self, body: &[u8]) -> io::Result<()> {
        let mut parts = [IoSlice::new(self.answer.as_bytes()), IoSlice::new(body)];
        let mut parts = &mut parts[..];
        while parts.iter().any(|part| !part.is_empty()) {
            match self.stream.write_vectored(parts)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => IoSlice::advance_slices(&mut parts, written),
            }
        }
        Ok(())
    }
}

fn go_ahead(stream: &mut TcpStream, head: &Head) -> io::Result<()> {
    if head.expects { stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n") } else { Ok(()) }
}

fn object_headers(object: &Object) -> String {
    let mut headers = format!(
        "ETag: {}\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nAccept-Ranges: bytes\r\n",
        object.etag
    );
    for (name, value) in &object.headers {
        let _ = write!(headers, "{name}: {value}\r\n");
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Keep;
    use std::net::TcpListener;

    /// A connection's other end.
    fn client(keep: Keep) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let connection = Connection::new(listener.accept().unwrap().0, Arc::new(Objects::new(keep))).unwrap();
        std::thread::spawn(move || connection.serve());
        client
    }

    /// Sends all of it at once, and reads until the server ends the connection.
    fn talk(keep: Keep, requests: &str) -> String {
        let mut client = client(keep);
        client.write_all(requests.as_bytes()).unwrap();
        let mut answers = Vec::new();
        client.read_to_end(&mut answers).unwrap();
        String::from_utf8_lossy(&answers).into_owned()
    }

    #[test]
    fn requests_sent_at_once_are_answered_in_turn_with_what_was_put() {
        let answers = talk(
            Keep::All,
            "PUT /b/k HTTP/1.1\r\nContent-Length: 5\r\nx-amz-meta-hicache: v=1\r\n\r\nhello\
             PUT /b/k HTTP/1.1\r\nContent-Length: 2\r\nIf-None-Match: *\r\n\r\nno\
             GET /b/k HTTP/1.1\r\nRange: bytes=1-2\r\n\r\n\
             HEAD /b/k HTTP/1.1\r\n\r\n\
             DELETE /b/k HTTP/1.1\r\n\r\n\
             HEAD /b/k HTTP/1.1\r\nConnection: close\r\n\r\n",
        );
        let lines: Vec<&str> =
            answers.split("HTTP/1.1 ").skip(1).map(|answer| answer.split("\r\n").next().unwrap()).collect();
        let expected =
            ["200 OK", "412 Precondition Failed", "206 Partial Content", "200 OK", "204 No Content"];
        assert_eq!(lines[..5], expected, "{answers}");
        assert_eq!(lines[5], "404 Not Found");
        assert!(answers.contains("Content-Range: bytes 1-2/5\r\n\r\nelHTTP/1.1"), "{answers}");
        assert_eq!(answers.matches("x-amz-meta-hicache: v=1\r\n").count(), 2);
    }

    #[test]
    fn a_body_thrown_away_leaves_the_connection_in_step() {
        let body = "x".repeat(3 * BUFFER_LEN + 7);
        let put = format!("PUT /b/k HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let answers =
            talk(Keep::nothing(4), &format!("{put}{put}GET /b/k HTTP/1.1\r\nConnection: close\r\n\r\n"));
        assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 3, "{answers}");
        assert!(answers.contains("Content-Length: 4\r\n\r\n"), "{answers}");
    }

    #[test]
    fn a_client_that_waits_for_a_go_ahead_gets_it() {
        let mut client = client(Keep::All);
        client.write_all(b"PUT /b/k HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n").unwrap();
        let mut answer = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
        client.read_exact(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 100"));
        client.write_all(b"ok").unwrap();
        let mut answer = [0; "HTTP/1.1 200".len()];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
    }

    #[test]
    fn chunk_frames_are_refused_rather_than_stored_as_data() {
        let text = "PUT /b/k HTTP/1.1\r\nContent-Length: 0\r\nContent-Encoding: aws-chunked\r\n\r\n";
        assert!(talk(Keep::All, text).starts_with("HTTP/1.1 501"));
    }
}
