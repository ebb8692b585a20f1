//! The stub server itself, spoken to over bare sockets: what its scripts promise is what goes over the wire.

mod stub;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stub::{
    Access, Action, Authority, Close, Expect, Framing, Idle, IdleEnd, Object, Reply, Settings, Stub, bounded,
    endless, first, per_second,
};

/// A client that does exactly what it is told.
struct Raw(TcpStream);

/// What it was answered.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: String,
    body: Vec<u8>,
}

impl Raw {
    fn to(stub: &Stub) -> Self {
        let stream = TcpStream::connect(stub.host()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Self(stream)
    }

    fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).unwrap();
    }

    fn ask(&mut self, method: &str, target: &str, headers: &str, body: &str) -> Answer {
        let length = body.len();
        self.send(&format!(
            "{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        ));
        self.answer(method == "HEAD")
    }

    fn head(&mut self) -> (u16, String) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        (head[9..12].parse().unwrap(), head.to_lowercase())
    }

    fn answer(&mut self, bodiless: bool) -> Answer {
        let (status, headers) = self.head();
        let length = headers.split("content-length: ").nth(1).map(|rest| rest.split("\r\n").next().unwrap());
        let length = if bodiless { 0 } else { length.map_or(0, |length| length.parse().unwrap()) };
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        Answer { status, headers, body }
    }

    /// Everything up to the end, and how the end came.
    fn rest(&mut self) -> (Vec<u8>, Option<ErrorKind>) {
        let mut bytes = Vec::new();
        let end = self.0.read_to_end(&mut bytes).err().map(|error| error.kind());
        (bytes, end)
    }
}

fn text(answer: &Answer) -> String {
    String::from_utf8(answer.body.clone()).unwrap()
}

#[test]
fn objects_come_back_whole_in_ranges_and_under_conditions() {
    bounded(|| {
        let stub = Stub::start();
        let mut raw = Raw::to(&stub);
        let put = raw.ask("PUT", "/b/a%20b+c", "x-amz-meta-page: 7\r\n", "0123456789");
        assert_eq!(put.status, 200);
        let etag = put.headers.split("etag: ").nth(1).unwrap().split("\r\n").next().unwrap().to_owned();
        assert_eq!(stub.buckets().keys("b"), ["a b+c"]);
        let get = raw.ask("GET", "/b/a%20b+c", "", "");
        assert_eq!((get.status, get.body.as_slice()), (200, b"0123456789".as_slice()));
        assert!(get.headers.contains("x-amz-meta-page: 7\r\n"), "{get:?}");
        for (range, wanted, told) in [
            ("bytes=2-4", "234", "bytes 2-4/10"),
            ("bytes=7-", "789", "bytes 7-9/10"),
            ("bytes=-2", "89", "bytes 8-9/10"),
            ("bytes=8-99", "89", "bytes 8-9/10"),
        ] {
            let part = raw.ask("GET", "/b/a%20b+c", &format!("Range: {range}\r\n"), "");
            assert_eq!((part.status, text(&part).as_str()), (206, wanted), "{range}");
            assert!(part.headers.contains(&format!("content-range: {told}\r\n")), "{part:?}");
        }
        assert_eq!(raw.ask("GET", "/b/a%20b+c", "Range: bytes=10-\r\n", "").status, 416);
        assert_eq!(raw.ask("GET", "/b/a%20b+c", "If-Match: \"other\"\r\n", "").status, 412);
        assert_eq!(raw.ask("GET", "/b/a%20b+c", &format!("If-Match: {etag}\r\n"), "").status, 200);
        assert_eq!(raw.ask("PUT", "/b/a%20b+c", "If-None-Match: *\r\n", "new").status, 412);
        let head = raw.ask("HEAD", "/b/a%20b+c", "", "");
        assert!(head.status == 200 && head.headers.contains("content-length: 10\r\n"), "{head:?}");
        assert_eq!(raw.ask("DELETE", "/b/a%20b+c", "", "").status, 204);
        assert_eq!(raw.ask("GET", "/b/a%20b+c", "", "").status, 404);
        let absent = raw.ask("GET", "/nobody/a", "", "");
        assert!(absent.status == 404 && text(&absent).contains("<Code>NoSuchBucket</Code>"), "{absent:?}");
        assert_eq!((stub.count("GET"), stub.count("PUT"), stub.connections()), (10, 2, 1));
        assert_eq!(stub.requests()[0].body_len, 10);
    });
}

#[test]
fn listings_come_in_pages_and_delete_takes_many() {
    bounded(|| {
        let stub = Stub::start();
        for key in ["p/a&b", "p/c/1", "p/c/2", "p/d", "q"] {
            stub.buckets().insert("b", key, Object::new(b"x".to_vec()));
        }
        let mut raw = Raw::to(&stub);
        let all = text(&raw.ask("GET", "/b?list-type=2&prefix=p%2F&max-keys=2", "", ""));
        assert!(all.contains("<Key>p/a&amp;b</Key>") && all.contains("<IsTruncated>true<"), "{all}");
        let token = all.split("<NextContinuationToken>").nth(1).unwrap().split('<').next().unwrap();
        let next = format!("/b?list-type=2&prefix=p%2F&continuation-token={}", token.replace('/', "%2F"));
        let next = text(&raw.ask("GET", &next, "", ""));
        assert!(next.contains("p/c/2") && next.contains("p/d") && !next.contains("p/c/1"), "{next}");
        let folders = text(&raw.ask("GET", "/b?list-type=2&prefix=p/&delimiter=/&encoding-type=url", "", ""));
        assert!(folders.contains("<CommonPrefixes><Prefix>p/c/</Prefix></CommonPrefixes>"), "{folders}");
        assert!(folders.contains("<Key>p/a%26b</Key>") && folders.contains("<KeyCount>3<"), "{folders}");
        let body = "<Delete><Object><Key>p/a&amp;b</Key></Object><Object><Key>q</Key></Object></Delete>";
        let deleted = text(&raw.ask("POST", "/b?delete", "", body));
        assert_eq!(deleted.matches("<Deleted>").count(), 2, "{deleted}");
        assert_eq!(stub.buckets().keys("b"), ["p/c/1", "p/c/2", "p/d"]);
    });
}

#[test]
fn an_upload_in_parts_is_one_object_and_may_lose_its_last_part() {
    bounded(|| {
        let stub = Stub::start();
        let mut raw = Raw::to(&stub);
        let upload = |raw: &mut Raw| {
            let begun = text(&raw.ask("POST", "/b/k?uploads", "x-amz-meta-page: 7\r\n", ""));
            let id = begun.split("<UploadId>").nth(1).unwrap().split('<').next().unwrap().to_owned();
            for (part, body) in [(2, "world"), (1, "hello ")] {
                let target = format!("/b/k?partNumber={part}&uploadId={id}");
                assert_eq!(raw.ask("PUT", &target, "", body).status, 200);
            }
            id
        };
        let parts = "<Part><PartNumber>1</PartNumber></Part><Part><PartNumber>2</PartNumber></Part>";
        let id = upload(&mut raw);
        let done = raw.ask("POST", &format!("/b/k?uploadId={id}"), "", parts);
        assert!(text(&done).contains("-2&quot;</ETag>"), "{done:?}");
        let get = raw.ask("GET", "/b/k", "", "");
        assert!(text(&get) == "hello world" && get.headers.contains("x-amz-meta-page: 7"), "{get:?}");
        let id = upload(&mut raw);
        stub.buckets().lose_last_parts();
        assert_eq!(raw.ask("POST", &format!("/b/k?uploadId={id}"), "", parts).status, 200);
        assert_eq!(text(&raw.ask("GET", "/b/k", "", "")), "hello ");
        let id = upload(&mut raw);
        assert_eq!(stub.buckets().open_uploads(), 1);
        assert_eq!(raw.ask("DELETE", &format!("/b/k?uploadId={id}"), "", "").status, 204);
        assert_eq!(stub.buckets().open_uploads(), 0);
    });
}

#[test]
fn chunk_framing_is_taken_off_or_kept_as_data() {
    bounded(|| {
        let stub = Stub::start();
        let mut raw = Raw::to(&stub);
        let framed = "5;chunk-signature=00\r\nhello\r\n1\r\n!\r\n0\r\nx-amz-checksum-crc32c:AAAAAA==\r\n\r\n";
        let headers = "Content-Encoding: aws-chunked\r\nx-amz-decoded-content-length: 6\r\n";
        assert_eq!(raw.ask("PUT", "/b/k", headers, framed).status, 200);
        assert_eq!(text(&raw.ask("GET", "/b/k", "", "")), "hello!");
        let wrong = "Content-Encoding: aws-chunked\r\nx-amz-decoded-content-length: 7\r\n";
        assert_eq!(raw.ask("PUT", "/b/k", wrong, framed).status, 400);
        stub.buckets().framing = Framing::KeptAsData;
        assert_eq!(raw.ask("PUT", "/b/k", headers, framed).status, 200);
        assert_eq!(text(&raw.ask("GET", "/b/k", "", "")), framed);
    });
}

#[test]
fn bodies_end_early_in_every_way() {
    bounded(|| {
        let stub = Stub::start();
        stub.buckets().insert("b", "k", Object::new(vec![7; 1000]));
        for (close, wanted) in
            [(Close::Fin, None), (Close::Half, None), (Close::Rst, Some(ErrorKind::ConnectionReset))]
        {
            stub.script(first(1, move |_| Action::normal().cut(10, close)));
            let mut raw = Raw::to(&stub);
            raw.send("GET /b/k HTTP/1.1\r\nHost: x\r\n\r\n");
            let (status, headers) = raw.head();
            assert!(status == 200 && headers.contains("content-length: 1000\r\n"), "{headers}");
            let (bytes, end) = raw.rest();
            // A reset may take back what was not read yet.
            assert!(bytes.len() == 10 || close == Close::Rst, "{close:?} {}", bytes.len());
            assert_eq!(end, wanted, "{close:?}");
            assert_eq!(Raw::to(&stub).ask("GET", "/b/k", "", "").body.len(), 1000);
        }
        stub.script(endless(|_| Action::normal().chunked().short(10)));
        let mut raw = Raw::to(&stub);
        raw.send("GET /b/k HTTP/1.1\r\nHost: x\r\n\r\n");
        let (_, headers) = raw.head();
        assert!(
            headers.contains("transfer-encoding: chunked") && !headers.contains("content-length"),
            "{headers}"
        );
        let mut bytes = [0; 20];
        raw.0.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"a\r\n\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\r\n0\r\n\r\n");
        stub.script(endless(|_| Action::normal().claim(3).surplus(b"more").close(Close::Fin)));
        let mut raw = Raw::to(&stub);
        raw.send("GET /b/k HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(raw.head().1.contains("content-length: 3\r\n"));
        assert_eq!(raw.rest().0.len(), 1004);
    });
}

#[test]
fn replies_come_late_or_drop_by_drop() {
    bounded(|| {
        let stub = Stub::start();
        stub.buckets().insert("b", "k", Object::new(vec![7; 50]));
        let gap = Duration::from_millis(30);
        stub.script(endless(move |_| Action::normal().wait(gap * 3).pace(10, gap)));
        let start = Instant::now();
        let mut raw = Raw::to(&stub);
        raw.send("GET /b/k HTTP/1.1\r\nHost: x\r\n\r\n");
        raw.head();
        assert!(start.elapsed() >= gap * 3);
        let mut bytes = [0; 50];
        raw.0.read_exact(&mut bytes).unwrap();
        assert!(start.elapsed() >= gap * 7);
    });
}

#[test]
fn idle_connections_end_in_every_way() {
    bounded(|| {
        let after = Duration::from_millis(50);
        for how in [
            IdleEnd::Close(Close::Fin),
            IdleEnd::Close(Close::Rst),
            IdleEnd::Close(Close::Half),
            IdleEnd::Unasked,
        ] {
            let stub = Stub::with(Settings { idle: Some(Idle { after, how }), ..Settings::default() });
            let mut raw = Raw::to(&stub);
            assert_eq!(raw.ask("PUT", "/b/k", "", "x").status, 200);
            let (bytes, end) = raw.rest();
            let wanted = (how == IdleEnd::Close(Close::Rst)).then_some(ErrorKind::ConnectionReset);
            assert_eq!(end, wanted, "{how:?}");
            let told = String::from_utf8(bytes).unwrap();
            assert_eq!(told.contains("RequestTimeout"), how == IdleEnd::Unasked, "{told}");
        }
        let idle = Some(Idle { after, how: IdleEnd::Refuse });
        let stub = Stub::with(Settings { idle, ..Settings::default() });
        let mut raw = Raw::to(&stub);
        assert_eq!(raw.ask("PUT", "/b/k", "", "x").status, 200);
        std::thread::sleep(after * 2);
        let refused = raw.ask("PUT", "/b/k", "", "y");
        assert!(refused.status == 400 && text(&refused).contains("RequestTimeout"), "{refused:?}");
        assert_eq!(raw.rest(), (Vec::new(), None));
    });
}

#[test]
fn interim_replies_are_sent_kept_back_or_overtaken() {
    bounded(|| {
        let stub = Stub::start();
        let head = "PUT /b/k HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n";
        for (expect, wanted) in [
            (Expect::Continue, vec![100]),
            (Expect::Never, vec![]),
            (Expect::Interim(vec![103, 102, 100, 100]), vec![103, 102, 100, 100]),
        ] {
            let sent = expect.clone();
            stub.script(endless(move |_| Action::normal().expect(sent.clone())));
            let mut raw = Raw::to(&stub);
            raw.send(head);
            for status in wanted {
                assert_eq!(raw.head().0, status, "{expect:?}");
            }
            raw.send("body");
            assert_eq!(raw.answer(false).status, 200, "{expect:?}");
        }
        stub.script(endless(|_| Action::error(403, "AccessDenied").early()));
        let mut raw = Raw::to(&stub);
        raw.send(head);
        assert_eq!(raw.answer(false).status, 403);
        assert_eq!(stub.requests().last().unwrap().body_len, 0);
    });
}

#[test]
fn a_rate_is_kept_and_scripts_count_their_own_requests() {
    bounded(|| {
        let stub = Stub::start();
        stub.script(per_second(4.0));
        let mut raw = Raw::to(&stub);
        let statuses: Vec<u16> = (0..8).map(|_| raw.ask("GET", "/b/none", "", "").status).collect();
        assert_eq!(statuses.iter().filter(|&&status| status == 404).count(), 4, "{statuses:?}");
        assert_eq!(statuses.iter().filter(|&&status| status == 503).count(), 4, "{statuses:?}");
        let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
        let told = Arc::clone(&seen);
        stub.script(move |request, n| {
            told.lock().unwrap().push((request.key.clone(), n));
            Action::reply(Reply::new(429).with("retry-after", "1"))
        });
        assert_eq!(raw.ask("GET", "/b/first", "", "").status, 429);
        assert!(raw.ask("GET", "/b/second", "", "").headers.contains("retry-after: 1\r\n"));
        assert_eq!(*seen.lock().unwrap(), [("first".to_owned(), 0), ("second".to_owned(), 1)]);
    });
}

#[test]
fn the_signature_check_agrees_with_the_example_of_amazons_manual() {
    bounded(|| {
        // "GET Object" of the S3 API reference, signature version 4, authorization header, single chunk.
        let access = Access::new("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
        let stub = Stub::with(Settings {
            buckets: vec!["examplebucket"],
            domain: "s3.amazonaws.com",
            keys: vec![access],
            ..Settings::default()
        });
        stub.buckets().insert("examplebucket", "test.txt", Object::new(b"0123456789abc".to_vec()));
        let at = stub::parse_amz_date("20130524T000000Z").unwrap();
        stub.skew(at - stub::now(0));
        let ask = |range: &str, signature: &str| {
            let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
            let headers = format!(
                "Host: examplebucket.s3.amazonaws.com\r\nRange: bytes={range}\r\nx-amz-content-sha256: {empty}\r\n\
                 x-amz-date: 20130524T000000Z\r\nAuthorization: AWS4-HMAC-SHA256 \
                 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
                 SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,Signature={signature}\r\n"
            );
            let mut raw = Raw::to(&stub);
            raw.send(&format!("GET /test.txt HTTP/1.1\r\n{headers}\r\n"));
            raw.answer(false)
        };
        let good = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
        let answer = ask("0-9", good);
        assert_eq!((answer.status, text(&answer).as_str()), (206, "0123456789"));
        assert!(answer.headers.contains("date: fri, 24 may 2013 00:00:0"), "{answer:?}");
        assert!(text(&ask("0-8", good)).contains("SignatureDoesNotMatch"));
        stub.skew(at - stub::now(0) + 1000);
        assert!(text(&ask("0-9", good)).contains("RequestTimeTooSkewed"));
        stub.keys()[0].expired = true;
        assert!(text(&ask("0-9", good)).contains("ExpiredToken"));
        stub.keys().clear();
        assert_eq!(ask("0-9", good).status, 206);
    });
}

#[test]
fn tls_speaks_to_who_knows_the_authority() {
    bounded(|| {
        let authority = Authority::signing(&["localhost", "127.0.0.1"]);
        let pem = authority.pem.clone();
        let stub = Stub::with(Settings { tls: Some(authority), ..Settings::default() });
        assert!(stub.endpoint().starts_with("https://127.0.0.1:"));
        let ask = |pem: &str| {
            let mut stream = tls_client(pem, "127.0.0.1", TcpStream::connect(stub.host()).unwrap());
            stream.write_all(b"GET /b/none HTTP/1.1\r\nHost: x\r\n\r\n")?;
            let mut head = [0; 12];
            stream.read_exact(&mut head).map(|()| head)
        };
        assert_eq!(&ask(&pem).unwrap(), b"HTTP/1.1 404");
        assert!(ask(&Authority::signing(&["127.0.0.1"]).pem).is_err());
        assert_eq!(stub.requests().len(), 1);
    });
}

#[test]
fn hosts_that_no_name_server_knows_are_reached_through_the_stub_as_a_proxy() {
    bounded(|| {
        let domain = "s3.us-east-1.amazonaws.com";
        let host = format!("b.{domain}");
        let authority = Authority::signing(&[&host]);
        let stub = Stub::with(Settings { domain, tunnel: Some(authority.clone()), ..Settings::default() });
        stub.buckets().insert("b", "folder/k", Object::new(b"page".to_vec()));
        let mut raw = Raw::to(&stub);
        raw.send(&format!("GET http://{host}/folder/k HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(text(&raw.answer(false)), "page");
        assert_eq!(text(&raw.ask("GET", "/b/folder/k", "", "")), "page");
        raw.send(&format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n"));
        assert_eq!(raw.head().0, 200);
        let mut stream = tls_client(&authority.pem, &host, raw.0);
        stream.write_all(format!("GET /folder/k HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        let places: Vec<(String, String)> =
            stub.requests().into_iter().map(|request| (request.method, request.key)).collect();
        let get = ("GET".to_owned(), "folder/k".to_owned());
        assert_eq!(places, [get.clone(), get.clone(), ("CONNECT".to_owned(), format!("{host}:443")), get]);
        let refusing = Stub::start();
        let mut raw = Raw::to(&refusing);
        raw.send("CONNECT b:443 HTTP/1.1\r\nHost: b:443\r\n\r\n");
        assert_eq!(raw.head().0, 502);
    });
}

/// A client that knows this authority alone.
fn tls_client(
    pem: &str,
    host: &str,
    socket: TcpStream,
) -> rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName};
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let session = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    rustls::StreamOwned::new(session, socket)
}
