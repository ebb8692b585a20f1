//! How endpoint and bucket become a URL (B070).

use crate::stage::{self, Stage, timed};
use crate::stub::{Access, Action, Authority, Reply, Request, Settings, Stub, bounded};
use hicache_core::{ErrorKind, Result};
use hicache_obj::{Addressing, Endpoint, ObjOptions, Proxy};
use std::time::Duration;

const BUCKETS: [&str; 2] = ["b", "my.dotted.bucket"];

fn server(base: &'static str, ipv6: bool) -> Stub {
    stage::guarded(Settings { buckets: BUCKETS.to_vec(), base, ipv6, ..Settings::default() })
}

/// Sets and gets a page; the requests for it, as they came.
fn exchange(stub: Stub, endpoint: &str, bucket: &str, addressing: Addressing) -> (Stage, Vec<Request>) {
    let endpoint = Some(Endpoint::parse(endpoint).unwrap());
    let options = ObjOptions { endpoint, addressing, ..stage::options(&stub) };
    let stage = Stage::open(stub, &format!("//{bucket}"), 65_536, options).unwrap();
    stage.set(1).unwrap();
    assert!(stage.get(1).unwrap());
    let requests = stage.page_requests();
    assert!(requests.len() >= 2);
    (stage, requests)
}

#[test]
fn b070_an_endpoint_is_spoken_to_with_the_bucket_in_the_path() {
    bounded(|| {
        for bucket in BUCKETS {
            for addressing in [Addressing::Auto, Addressing::Path] {
                for (host, base) in [
                    ("127.0.0.1", ""),
                    ("127.0.0.1", "/"),
                    ("localhost", ""),
                    ("localhost", "/"),
                    ("localhost", "/base"),
                    ("localhost", "/base/"),
                    ("127.0.0.1", "/two/parts"),
                ] {
                    let at: &'static str = match base.trim_end_matches('/') {
                        "/base" => "/base",
                        "/two/parts" => "/two/parts",
                        _ => "",
                    };
                    let stub = server(at, false);
                    let endpoint = format!("http://{host}:{}{base}", stub.port());
                    let port = stub.port();
                    let (_stage, requests) = exchange(stub, &endpoint, bucket, addressing);
                    for request in requests {
                        assert!(
                            request.path.starts_with(&format!("{at}/{bucket}/")),
                            "{endpoint}: {request:?}"
                        );
                        assert_eq!(request.header("host"), Some(format!("{host}:{port}").as_str()));
                    }
                }
            }
        }
    });
}

#[test]
fn b070_an_ipv6_endpoint_works() {
    bounded(|| {
        if std::net::TcpListener::bind("[::1]:0").is_err() {
            return stage::skip(
                "addressing::b070_an_ipv6_endpoint_works",
                "needs IPv6 on the loopback device",
            );
        }
        for bucket in BUCKETS {
            let stub = server("", true);
            let (endpoint, host) = (stub.endpoint(), stub.host());
            assert!(endpoint.starts_with("http://[::1]:"));
            let (_stage, requests) = exchange(stub, &endpoint, bucket, Addressing::Auto);
            for request in requests {
                assert!(request.path.starts_with(&format!("/{bucket}/")), "{request:?}");
                assert_eq!(request.header("host"), Some(host.as_str()));
            }
        }
    });
}

/// The store's own requests, caught by a proxy: no name server has to know `bucket.s3.example`.
fn through_proxy(bucket: &'static str, addressing: Addressing) -> Result<(Stage, Vec<Request>)> {
    let stub =
        stage::guarded(Settings { buckets: vec![bucket], domain: "s3.example", ..Settings::default() });
    let options = ObjOptions {
        endpoint: Some(Endpoint::parse("http://s3.example:9000").unwrap()),
        proxy: Proxy::Url(stub.endpoint()),
        addressing,
        ..stage::options(&stub)
    };
    let stage = Stage::open(stub, &format!("//{bucket}"), 65_536, options)?;
    stage.set(1)?;
    assert!(stage.get(1)?);
    let requests = stage.page_requests();
    Ok((stage, requests))
}

#[test]
fn b070_virtual_hosts_have_the_bucket_in_their_name() {
    bounded(|| {
        let (_stage, requests) = through_proxy("bucket", Addressing::VirtualHost).unwrap();
        for request in requests {
            assert_eq!(request.header("host"), Some("bucket.s3.example:9000"));
            assert_eq!(request.path.matches('/').count(), 2, "{request:?}");
        }
        let (_stage, requests) = through_proxy("bucket", Addressing::Auto).unwrap();
        assert!(requests.iter().all(|request| request.header("host") == Some("s3.example:9000")));
    });
}

#[test]
fn b070_a_bucket_that_is_no_host_name_is_refused_as_a_virtual_host() {
    bounded(|| {
        for bucket in ["b", "Upper", "under_score"] {
            let opened = through_proxy(bucket, Addressing::VirtualHost).map(drop);
            let error = opened.map(|()| panic!("{bucket} went another way without a word")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
            assert!(stage::story(&error).contains("path_style"), "{error:?}");
            through_proxy(bucket, Addressing::Auto).unwrap();
        }
    });
}

#[test]
fn b070_aws_is_spoken_to_by_virtual_host_and_dotted_buckets_by_path() {
    bounded(|| {
        for (bucket, host, path) in [
            ("plain-bucket", "plain-bucket.s3.us-east-1.amazonaws.com", "/"),
            ("my.dotted.bucket", "s3.us-east-1.amazonaws.com", "/my.dotted.bucket/"),
        ] {
            let stage = Stage::on_aws(bucket, |_| ()).unwrap();
            stage.set(1).unwrap();
            assert!(stage.get(1).unwrap());
            for request in stage.page_requests() {
                assert_eq!(request.header("host"), Some(host));
                assert!(request.path.starts_with(path), "{request:?}");
            }
            let opened = stage.stub.requests();
            let connects: Vec<&Request> =
                opened.iter().filter(|request| request.method == "CONNECT").collect();
            assert!(!connects.is_empty());
            assert!(connects.iter().all(|request| request.path == format!("{host}:443")), "{connects:?}");
        }
    });
}

#[test]
fn a_directory_bucket_is_written_and_read_with_the_keys_of_a_session() {
    bounded(|| {
        let bucket = "pages--use1-az4--x-s3";
        let session = |request: &Request| request.query.split('&').any(|part| part.starts_with("session"));
        let begin = move |request: &Request, _| match session(request) {
            true => Action::reply(Reply::new(200).with("content-type", "application/xml").holding(
                "<CreateSessionResult><Credentials><SessionToken>of-the-session</SessionToken>\
                 <SecretAccessKey>hidden</SecretAccessKey><AccessKeyId>lent</AccessKeyId>\
                 <Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></CreateSessionResult>",
            )),
            false => Action::normal(),
        };
        let prepare = |stub: &Stub| {
            stub.keys().push(Access::new("lent", "hidden"));
            stub.script(begin);
        };
        let domain = "s3express-use1-az4.us-east-1.amazonaws.com";
        let stage = Stage::on_aws_at(domain, bucket, prepare, |_| ()).unwrap();
        stage.set(1).unwrap();
        assert!(stage.get(1).unwrap());
        let requests = stage.page_requests();
        assert_eq!(requests.len(), 2);
        for request in requests {
            assert_eq!(request.header("host"), Some(format!("{bucket}.{domain}").as_str()));
            assert_eq!(request.header("x-amz-s3session-token"), Some("of-the-session"));
            let signed = request.header("authorization").unwrap();
            assert!(signed.contains("Credential=lent/") && signed.contains("/s3express/"), "{signed}");
        }
        assert_eq!(stage.stub.requests().iter().filter(|request| session(request)).count(), 1);
    });
}

#[test]
fn b070_aws_by_path_where_that_is_asked_for() {
    bounded(|| {
        let stage = Stage::on_aws("plain-bucket", |options| options.addressing = Addressing::Path).unwrap();
        stage.set(1).unwrap();
        for request in stage.page_requests() {
            assert_eq!(request.header("host"), Some("s3.us-east-1.amazonaws.com"));
            assert!(request.path.starts_with("/plain-bucket/"), "{request:?}");
        }
    });
}

#[test]
fn b070_an_endpoint_that_is_no_url_is_refused_before_anything_is_sent() {
    for wrong in [
        "",
        "127.0.0.1:9000",
        "localhost",
        "localhost:9000",
        "minio.local/b",
        "://x",
        "http://",
        "http:///b",
        "http://:9000",
        "http://host:port",
        "http://host:99999",
        "ftp://host",
        "s3://bucket",
        "http://user:secret@host",
        "http://host?region=x",
        "http://ho st",
        "http//host",
    ] {
        let why = Endpoint::parse(wrong).map(|_| panic!("{wrong:?} was taken")).unwrap_err();
        assert!(why.contains("http") || why.contains("credentials"), "{wrong:?}: {why}");
        assert!(!why.contains("secret"), "{wrong:?}: {why}");
    }
}

#[test]
fn b070_tls_to_a_plain_port_fails_quickly_and_says_so() {
    bounded(|| {
        let stub = stage::guarded(Settings::default());
        let endpoint = Some(Endpoint::parse(&format!("https://{}", stub.host())).unwrap());
        let options = ObjOptions { endpoint, retries: 1, ..stage::options(&stub) };
        let (opened, took) =
            timed(|| Stage::open(stub, "//b", 65_536, options).and_then(|stage| stage.set(1)));
        let error = opened.map(drop).unwrap_err();
        assert!(took < Duration::from_secs(5), "{took:?}");
        let story = stage::story(&error).to_lowercase();
        assert!(story.contains("tls") && story.contains("http or https"), "{story}");
    });
}

#[test]
fn b070_plain_http_to_a_tls_port_fails_quickly() {
    bounded(|| {
        let tls = Some(Authority::signing(&["127.0.0.1"]));
        let stub = stage::guarded(Settings { tls, ..Settings::default() });
        let endpoint = Some(Endpoint::parse(&format!("http://{}", stub.host())).unwrap());
        let options = ObjOptions { endpoint, retries: 1, ..stage::options(&stub) };
        let (opened, took) =
            timed(|| Stage::open(stub, "//b", 65_536, options).and_then(|stage| stage.set(1)));
        assert!(opened.is_err());
        assert!(took < Duration::from_secs(5), "{took:?}");
    });
}

#[test]
fn tls_is_believed_by_the_authority_that_is_named_and_by_no_other() {
    bounded(|| {
        let open = |authority: &Authority, host: &str, ca: Option<&str>| {
            let stub = stage::guarded(Settings { tls: Some(authority.clone()), ..Settings::default() });
            let pem = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(pem.path(), ca.unwrap_or_default()).unwrap();
            let endpoint = Some(Endpoint::parse(&format!("https://{host}:{}", stub.port())).unwrap());
            let ca_bundle = ca.map(|_| pem.path().to_path_buf());
            let options = ObjOptions { endpoint, ca_bundle, retries: 0, ..stage::options(&stub) };
            let stage = Stage::open(stub, "//b", 65_536, options)?;
            stage.set(1)?;
            stage.get(1)
        };
        let authority = Authority::signing(&["localhost", "127.0.0.1"]);
        let other = Authority::signing(&["localhost"]);
        assert!(open(&authority, "localhost", Some(&authority.pem)).unwrap());
        assert!(open(&authority, "127.0.0.1", Some(&authority.pem)).unwrap());
        let both = format!("{}\n{}", other.pem, authority.pem);
        assert!(open(&authority, "localhost", Some(&both)).unwrap(), "a bundle holds more than one");
        for (ca, host) in [(None, "localhost"), (Some(&other.pem), "localhost")] {
            let error = open(&authority, host, ca.map(String::as_str)).unwrap_err();
            let story = stage::story(&error);
            assert!(story.contains("ca_bundle"), "the fix is named: {story}");
        }
        let error = open(&other, "127.0.0.1", Some(&other.pem)).unwrap_err();
        let story = stage::story(&error).to_lowercase();
        assert!(story.contains("certificate") && story.contains("name"), "{story}");
        for broken in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
        {
            let error = open(&authority, "localhost", Some(broken)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
        }
    });
}

#[test]
fn a_service_that_cannot_be_reached_is_named() {
    bounded(|| {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let endpoint = format!("http://{free}");
        let options = ObjOptions {
            endpoint: Some(Endpoint::parse(&endpoint).unwrap()),
            credentials: stage::keys("test", "secret"),
            retries: 1,
            ..ObjOptions::default()
        };
        let error = hicache_obj::ObjStore::open("//b", options).map(drop).unwrap_err();
        let story = stage::story(&error);
        assert!(story.contains(&endpoint) && story.contains("check that the service runs"), "{story}");
    });
}

#[test]
fn a_place_that_names_a_user_is_refused_and_not_told() {
    for place in ["//user:S3cr3t@bucket/x", "//S3cr3t@bucket"] {
        let error = hicache_obj::ObjStore::open(place, ObjOptions::default()).map(drop).unwrap_err();
        let story = stage::story(&error);
        assert!(story.contains("access_key") && !story.contains("S3cr3t"), "{story}");
    }
    let mut options = hicache_core::StoreOptions::default();
    options.set(hicache_core::Source::Url, "endpoint", "http://user:S3cr3t@host");
    let story = stage::story(&ObjOptions::from_options(options).unwrap_err());
    assert!(story.contains("names a user") && !story.contains("S3cr3t"), "{story}");
}

#[test]
fn certificates_are_not_read_without_end() {
    bounded(|| {
        let stub = stage::guarded(Settings::default());
        let ca_bundle = Some(std::path::PathBuf::from("/dev/zero"));
        let options = ObjOptions { ca_bundle, ..stage::options(&stub) };
        let error = Stage::open(stub, "//b", 65_536, options).map(drop).unwrap_err();
        assert!(stage::story(&error).contains("too long"), "{error:?}");
    });
}
