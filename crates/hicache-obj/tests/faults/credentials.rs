//! Where credentials come from, and what is never asked for them (B075). Each test runs in a process of its own, since
//! an environment is a process's.

use crate::stage::{self, Stage, alone, is_child, timed};
use crate::stub::{self, Access, Action, Reply, Settings, Stub, bounded};
use hicache_core::{ErrorKind, Source, StoreOptions};
use hicache_obj::{Credentials, Endpoint, ObjOptions, Proxy, diagnose};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

/// In the parent: runs `test` again with these variables and an empty home. True in the child.
fn child(test: &str, variables: &[(&str, &str)]) -> bool {
    if is_child() {
        return true;
    }
    let home = tempfile::tempdir().unwrap();
    let home = home.path().to_str().unwrap().to_owned();
    let mut all = vec![("HOME", home.as_str())];
    all.extend_from_slice(variables);
    alone(test, &all, &[]);
    false
}

fn automatic(stub: &Stub) -> ObjOptions {
    ObjOptions { credentials: Credentials::Auto, ..stage::options(stub) }
}

fn open(options: impl FnOnce(&Stub) -> ObjOptions) -> hicache_core::Result<Stage> {
    let stub = stage::guarded(Settings::default());
    let options = options(&stub);
    Stage::open(stub, "//b", 65_536, options)
}

#[test]
fn b075_without_credentials_the_store_is_refused_at_once() {
    if !child("credentials::b075_without_credentials_the_store_is_refused_at_once", &[]) {
        return;
    }
    bounded(|| {
        // The first use of TLS and the like is not what is measured.
        drop(open(automatic));
        let (opened, took) = timed(|| open(automatic));
        let error = opened.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
        assert!(took < Duration::from_millis(200), "{took:?}");
        let story = stage::story(&error);
        for fix in ["access_key", "AWS_ACCESS_KEY_ID", "anonymous", "credentials"] {
            assert!(story.contains(fix), "{story}");
        }
        // What the SDK lists in lines is told in one.
        assert!(story.contains("Attempted: environment") && story.contains("; profile: none;"), "{story}");
        // Of the service the doctor says nothing then: it was asked nothing.
        let rows = diagnose("//b", automatic(&stage::guarded(Settings::default()))).unwrap();
        assert_eq!(
            rows.iter().map(|row| (row.name, row.ok)).collect::<Vec<_>>(),
            [("s3_credentials", false)]
        );
    });
}

#[test]
fn b075_no_metadata_service_is_asked_for_an_endpoint_of_ones_own() {
    const NAME: &str = "credentials::b075_no_metadata_service_is_asked_for_an_endpoint_of_ones_own";
    if is_child() {
        return bounded(|| {
            assert!(open(automatic).is_err());
            let stage = open(stage::options).unwrap();
            stage.set(1).unwrap();
        });
    }
    if std::process::Command::new("strace").arg("-V").output().is_err() {
        return stage::skip(NAME, "needs strace");
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let wrap = ["strace", "-f", "-e", "trace=connect", "-o", trace.to_str().unwrap()];
    alone(NAME, &[("HOME", folder.path().to_str().unwrap())], &wrap);
    let trace = std::fs::read_to_string(trace).unwrap();
    assert!(trace.contains("127.0.0.1"), "the trace shows no connection: {trace}");
    let elsewhere: Vec<&str> =
        trace.lines().filter(|line| line.contains("169.254") || line.contains("AF_INET6")).collect();
    assert!(elsewhere.is_empty(), "{elsewhere:?}");
}

#[test]
fn b075_anonymous_requests_are_not_signed_and_need_nothing() {
    if !child("credentials::b075_anonymous_requests_are_not_signed_and_need_nothing", &[]) {
        return;
    }
    bounded(|| {
        let stub = Stub::start();
        let options = ObjOptions { credentials: Credentials::Anonymous, ..stage::options(&stub) };
        let stage = Stage::open(stub, "//b", 65_536, options).unwrap();
        stage.set(1).unwrap();
        assert!(stage.get(1).unwrap() && stage.exists(1).unwrap() && stage.remove(1).unwrap());
        let signed =
            stage.stub.requests().into_iter().filter(|request| request.header("authorization").is_some());
        assert_eq!(signed.count(), 0);
        // Where that is not enough, it is said.
        let error = open(|stub| ObjOptions { credentials: Credentials::Anonymous, ..stage::options(stub) })
            .and_then(|stage| stage.set(1))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error:?}");
    });
}

#[test]
fn b075_half_a_pair_of_options_is_a_mistake() {
    for (names, missing) in [
        (&["access_key"][..], "secret_key"),
        (&["secret_key"][..], "access_key"),
        (&["session_token"][..], "keys"),
        (&["access_key", "session_token"][..], "secret_key"),
    ] {
        let mut options = StoreOptions::default();
        for name in names {
            options.set(Source::Url, *name, "hidden");
        }
        let error = ObjOptions::from_options(options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{names:?}: {error:?}");
        let story = stage::story(&error);
        assert!(story.contains(missing) && !story.contains("hidden"), "{names:?}: {story}");
    }
}

#[test]
fn b075_half_a_pair_in_the_environment_is_a_mistake() {
    let half = [("AWS_ACCESS_KEY_ID", "test")];
    if !child("credentials::b075_half_a_pair_in_the_environment_is_a_mistake", &half) {
        return;
    }
    bounded(|| {
        for credentials in [Credentials::Auto, Credentials::Environment] {
            let (opened, took) = timed(|| open(|stub| ObjOptions { credentials, ..stage::options(stub) }));
            let error = opened.map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
            assert!(took < Duration::from_secs(1), "{took:?}");
            let story = stage::story(&error);
            assert!(story.contains("AWS_SECRET_ACCESS_KEY"), "{story}");
        }
    });
}

#[test]
fn b075_credentials_of_the_environment_are_used() {
    let pair = [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "secret")];
    if !child("credentials::b075_credentials_of_the_environment_are_used", &pair) {
        return;
    }
    bounded(|| {
        for credentials in [Credentials::Auto, Credentials::Environment] {
            let stage = open(|stub| ObjOptions { credentials, ..stage::options(stub) }).unwrap();
            stage.set(1).unwrap();
            assert!(stage.get(1).unwrap());
        }
    });
}

#[test]
fn b075_a_profile_is_read_and_one_that_is_not_there_is_a_mistake() {
    if !child("credentials::b075_a_profile_is_read_and_one_that_is_not_there_is_a_mistake", &[]) {
        return;
    }
    bounded(|| {
        let home = std::env::var("HOME").unwrap();
        let folder = Path::new(&home).join(".aws");
        std::fs::create_dir(&folder).unwrap();
        let profile = "[default]\naws_access_key_id = nobody\naws_secret_access_key = x\n\n\
                       [cache]\naws_access_key_id = test\naws_secret_access_key = secret\n";
        std::fs::write(folder.join("credentials"), profile).unwrap();
        let with = |name: Option<&str>| {
            let credentials = Credentials::Profile(name.map(str::to_string));
            open(|stub| ObjOptions { credentials, ..stage::options(stub) })
        };
        with(Some("cache")).unwrap().set(1).unwrap();
        let error = with(None).and_then(|stage| stage.set(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error:?}");
        let (opened, took) = timed(|| with(Some("absent")));
        let error = opened.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
        assert!(took < Duration::from_secs(1), "{took:?}");
    });
}

#[test]
fn b075_a_token_file_that_is_gone_is_told_quickly() {
    let variables = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/nowhere/token"),
        ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/x"),
        ("AWS_ROLE_SESSION_NAME", "x"),
        ("AWS_REGION", "us-east-1"),
    ];
    if !child("credentials::b075_a_token_file_that_is_gone_is_told_quickly", &variables) {
        return;
    }
    bounded(|| {
        let (opened, took) = timed(|| open(automatic));
        let error = opened.map(drop).unwrap_err();
        assert!(took < Duration::from_secs(1), "{took:?}");
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
        assert!(stage::story(&error).contains("AWS_WEB_IDENTITY_TOKEN_FILE"), "{error:?}");
    });
}

#[test]
fn b075_an_endpoint_on_this_host_is_reached_past_a_proxy_that_is_not_there() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = format!("http://{closed}");
    let variables = [("http_proxy", proxy.as_str()), ("HTTP_PROXY", &proxy), ("https_proxy", &proxy)];
    if !child(
        "credentials::b075_an_endpoint_on_this_host_is_reached_past_a_proxy_that_is_not_there",
        &variables,
    ) {
        return;
    }
    bounded(|| {
        let stage = open(stage::options).unwrap();
        stage.set(1).unwrap();
        let there = |stub: &Stub| ObjOptions {
            endpoint: Some(Endpoint::parse(&format!("http://localhost:{}", stub.port())).unwrap()),
            ..stage::options(stub)
        };
        open(there).unwrap().set(1).unwrap();
        // Elsewhere the proxy is the way, and is what the error names.
        let elsewhere = |stub: &Stub| ObjOptions {
            endpoint: Some(Endpoint::parse("http://s3.example").unwrap()),
            retries: 0,
            ..stage::options(stub)
        };
        let error = open(elsewhere).and_then(|stage| stage.set(1)).unwrap_err();
        let story = stage::story(&error);
        assert!(story.to_lowercase().contains("proxy"), "{story}");
        let straight = |stub: &Stub| ObjOptions { proxy: Proxy::Off, ..elsewhere(stub) };
        let error = open(straight).and_then(|stage| stage.set(1)).unwrap_err();
        assert!(!stage::story(&error).to_lowercase().contains("proxy"), "{error:?}");
    });
}

/// A container gives other keys from some moment on, and then the service is made to refuse those before by `spoil`;
/// the first that hears of it is `ask`.
fn after_other_keys(
    test: &str,
    spoil: impl FnOnce(&Stub) + Send + 'static,
    ask: impl FnOnce(&Stage) + Send + 'static,
) {
    if !is_child() {
        let giver = Stub::start();
        let switched = std::sync::atomic::AtomicBool::new(false);
        giver.script(move |request, _| {
            if request.path == "/switch" {
                switched.store(true, std::sync::atomic::Ordering::SeqCst);
            }
            let id = if switched.load(std::sync::atomic::Ordering::SeqCst) { "new" } else { "old" };
            let body = format!(
                "{{\"AccessKeyId\":\"{id}\",\"SecretAccessKey\":\"secret\",\"Token\":\"t\",\
                 \"Expiration\":\"2099-01-01T00:00:00Z\"}}"
            );
            Action::reply(Reply::new(200).with("content-type", "application/json").holding(body))
        });
        let url = format!("{}/keys", giver.endpoint());
        child(&format!("credentials::{test}"), &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", &url)]);
        let asked = giver.requests().into_iter().filter(|request| request.path == "/keys").count();
        assert!((2..=3).contains(&asked), "{asked}");
        return;
    }
    bounded(move || {
        let token = Some("t".to_string());
        let old = Access { token: token.clone(), ..Access::new("old", "secret") };
        let new = Access { token, ..Access::new("new", "secret") };
        let stub = stage::guarded(Settings { keys: vec![old, new], ..Settings::default() });
        let options = ObjOptions { credentials: Credentials::Container, ..stage::options(&stub) };
        let stage = Stage::open(stub, "//b", 65_536, options).unwrap();
        stage.set(1).unwrap();
        let by = |request: &stub::Request, id: &str| request.header("authorization").unwrap().contains(id);
        assert!(stage.stub.requests().iter().all(|request| by(request, "Credential=old/")));
        spoil(&stage.stub);
        let url = std::env::var("AWS_CONTAINER_CREDENTIALS_FULL_URI").unwrap();
        let giver = url.strip_prefix("http://").unwrap().strip_suffix("/keys").unwrap();
        let mut giver = std::net::TcpStream::connect(giver).unwrap();
        giver.write_all(b"GET /switch HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        giver.read_exact(&mut [0]).unwrap();
        stage.stub.forget();
        ask(&stage);
        stage.set(2).unwrap();
        let requests = stage.page_requests();
        assert!(by(&requests[0], "Credential=old/"));
        assert!(requests[1..].iter().all(|request| by(request, "Credential=new/")), "{requests:?}");
    });
}

#[test]
fn credentials_of_a_container_are_asked_for_again_when_they_have_expired() {
    let test = "credentials_of_a_container_are_asked_for_again_when_they_have_expired";
    after_other_keys(test, |stub| stub.keys()[0].expired = true, |stage| assert!(stage.get(1).unwrap()));
}

#[test]
fn credentials_of_a_container_are_asked_for_again_when_they_were_taken_away() {
    let test = "credentials_of_a_container_are_asked_for_again_when_they_were_taken_away";
    after_other_keys(test, |stub| drop(stub.keys().remove(0)), |stage| assert!(stage.get(1).unwrap()));
}

/// A HEAD is told 400 then, and no more.
#[test]
fn credentials_of_a_container_that_have_expired_are_asked_for_again_by_a_question() {
    let test = "credentials_of_a_container_that_have_expired_are_asked_for_again_by_a_question";
    after_other_keys(
        test,
        |stub| {
            stub.keys()[0].expired = true;
            // As AWS says where the bucket is, too.
            stub.script(stub::endless(|_| {
                Action::normal()
                    .edit(|reply| reply.headers.push(("x-amz-bucket-region".into(), "us-east-1".into())))
            }));
        },
        |stage| assert!(!stage.exists(2).unwrap()),
    );
}

#[test]
fn who_hands_out_credentials_and_hangs_is_not_the_service() {
    const TEST: &str = "credentials::who_hands_out_credentials_and_hangs_is_not_the_service";
    if !is_child() {
        let giver = Stub::start();
        let asked = std::sync::atomic::AtomicUsize::new(0);
        giver.script(move |_, _| {
            // Good for the opening, and then no more.
            let wait = if asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 { 0 } else { 60 };
            let soon = "{\"AccessKeyId\":\"test\",\"SecretAccessKey\":\"secret\",\"Token\":\"t\",\
                        \"Expiration\":\"2000-01-01T00:00:00Z\"}";
            let reply = Reply::new(200).with("content-type", "application/json").holding(soon);
            Action::reply(reply).wait(std::time::Duration::from_secs(wait))
        });
        child(TEST, &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", &format!("{}/keys", giver.endpoint()))]);
        return;
    }
    bounded(|| {
        let keys = vec![Access { token: Some("t".to_string()), ..Access::new("test", "secret") }];
        let stub = stage::guarded(Settings { keys, ..Settings::default() });
        let mut options = ObjOptions { credentials: Credentials::Container, ..stage::options(&stub) };
        (options.retries, options.read_timeout) = (0, std::time::Duration::from_secs(1));
        options.common.deadline = std::time::Duration::from_secs(3);
        let error = match Stage::open(stub, "//b", 65_536, options) {
            Ok(stage) => stage.get(1).unwrap_err(),
            Err(error) => error,
        };
        let story = stage::story(&error);
        assert!(!story.contains("stood still") && !story.contains("not asked"), "{story}");
    });
}
