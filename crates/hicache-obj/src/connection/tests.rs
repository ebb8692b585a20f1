//! Connections whose other side does all that HTTP/1.1 allows, and more.

use super::*;
use crate::dial::Duplex;
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
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\nhello", false, 200, "hello", true),
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
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n\r\n3\r\nllo\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n;x=y\r\n\r\n",
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
        let head = join(sending, refusing).await.0.unwrap();
        assert!((head.status, head.early) == (503, true));
        assert!(!body.is_empty() && !connection.is_free(), "the server is owed the rest");
    });
}

#[test]
fn what_comes_while_a_body_is_sent_ends_the_sending_only_where_it_is_a_refusal() {
    let page = vec![7; 3_000_000];
    let answers = [
        ("\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", false),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 20", "0 OK\r\ncontent-length: 2\r\n\r\nhi", false),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", "hi", true),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", "", true),
    ];
    for (first, rest_of_it, early) in answers {
        run(async {
            let ((mut connection, mut server), mut body) = (line(), &page[..]);
            let serving = async {
                let mut came = vec![0; 10 + page.len()];
                server.read_exact(&mut came[..100]).await.unwrap();
                server.write_all(first.as_bytes()).await.unwrap();
                tokio::task::yield_now().await;
                server.read_exact(&mut came[100..]).await.unwrap();
                server.write_all(rest_of_it.as_bytes()).await.unwrap();
            };
            let progress = Progress::new();
            let sending = connection.exchange(b"PUT / ...\n", &mut body, false, &progress);
            let head = join(sending, serving).await.0.unwrap();
            assert_eq!((head.status, head.early), (200, early), "{first:?}");
            assert!(body.is_empty(), "{first:?}");
            assert_eq!(rest(&mut connection, 10).await.unwrap(), b"hi");
            assert!(connection.is_free());
        });
    }
}

/// A server that answers in the moment in which it has the last byte.
struct Prompt {
    wants: usize,
    answer: &'static [u8],
}

impl Duplex for Prompt {}

impl AsyncRead for Prompt {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.wants > 0 || self.answer.is_empty() {
            return Poll::Pending;
        }
        into.put_slice(std::mem::take(&mut self.answer));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Prompt {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let taken = bytes.len().min(100);
        self.wants -= taken;
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[test]
fn an_answer_that_is_there_as_soon_as_all_is_written_is_not_early() {
    run(async {
        let page = vec![7; 1000];
        let socket = Prompt { wants: 1010, answer: b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n" };
        let (mut connection, mut body) = (Connection::new(Box::new(socket)), &page[..]);
        let sent = connection.exchange(b"PUT / ...\n", &mut body, false, &Progress::new()).await;
        assert!(!sent.unwrap().early && connection.is_free());
    });
}

#[test]
fn what_comes_before_anything_was_asked_is_no_answer() {
    run(async {
        let (mut connection, mut server) = line();
        server.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        assert!(ask(&mut connection, true).await.is_err());
        assert!(!connection.is_free());
        // Nothing was sent, either.
        drop(connection);
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
    });
}

#[test]
fn a_connection_is_not_used_again_in_the_midst_of_an_answer_or_when_the_server_has_spoken_or_gone() {
    run(async {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
        let (mut connection, mut server) = line();
        assert!(connection.is_free() && connection.is_open().await);
        let serving = async {
            server.read_exact(&mut [0; 18]).await.unwrap();
            server.write_all(answer).await.unwrap();
        };
        join(ask(&mut connection, false), serving).await.0.unwrap();
        assert!(!connection.is_free(), "its body is still to come");
        assert_eq!(rest(&mut connection, 3).await.unwrap(), b"hello");
        assert!(connection.is_free() && connection.is_open().await);
        server.write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n").await.unwrap();
        assert!(!connection.is_open().await);

        let (mut connection, server) = line();
        drop(server);
        assert!(!connection.is_open().await);

        let (mut connection, _server) = line();
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(1), ask(&mut connection, false));
        assert!(waiting.await.is_err());
        assert!(!connection.is_free(), "an answer may be on its way");
    });
}
