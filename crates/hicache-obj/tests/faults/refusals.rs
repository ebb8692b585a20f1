//! Refusals that mean a miss, and those that never do (B073); wrong regions and redirects (B074); clocks and
//! credentials that go wrong under way.

use crate::stage::{self, Stage, timed};
use crate::stub::{Access, Action, Close, Reply, Request, Settings, Stub, bounded};
use hicache_core::{Call, ErrorKind, Store, Stored};
use hicache_obj::{Endpoint, ObjOptions};
use hicache_testkit::pages;
use std::time::Duration;

/// A server that shows nobody what is missing.
fn hides_what_is_missing(_: &Request, _: usize) -> Action {
    Action::normal().edit(|reply| {
        if reply.status == 404 {
            *reply = Reply::error(403, "AccessDenied");
        }
    })
}

#[test]
fn b073_a_refusal_of_what_is_not_there_is_a_miss_where_that_is_said() {
    bounded(|| {
        let stage = Stage::settled(65_536, Settings::default(), |options| options.forbidden_is_miss = true);
        stage.on_pages(hides_what_is_missing);
        for n in 0..40 {
            assert!(!stage.get(n).unwrap() && !stage.exists(n).unwrap());
            stage.set(n).unwrap();
            assert!(stage.get(n).unwrap() && stage.exists(n).unwrap());
        }
        let stats = stage.stats();
        assert_eq!((stats.hits, stats.misses, stats.errors, stats.retries), (40, 40, 0, 0), "{stats:?}");
        assert!(stage.store.health().fallbacks.is_empty(), "{:?}", stage.store.health());
    });
}

#[test]
fn b073_by_default_a_refusal_is_told_with_what_to_do() {
    bounded(|| {
        let stage = Stage::settled(65_536, Settings::default(), |_| ());
        stage.on_pages(hides_what_is_missing);
        for error in [stage.get(1).unwrap_err(), stage.exists(1).unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error:?}");
            let story = stage::story(&error);
            assert!(story.contains("forbidden_is_miss") && story.contains("s3:ListBucket"), "{story}");
        }
        assert_eq!((stage.stats().misses, stage.page_requests().len()), (0, 2));
        stage.set(1).unwrap();
        assert!(stage.get(1).unwrap());
    });
}

#[test]
fn b073_a_refusal_that_breaks_off_is_no_answer() {
    bounded(|| {
        let stage = Stage::settled(65_536, Settings::default(), |_| ());
        stage.set(1).unwrap();
        stage.on_pages(|_, n| match n {
            0 => Action::error(404, "NoSuchKey").cut(20, Close::Fin),
            _ => Action::normal(),
        });
        assert!(stage.get(1).unwrap(), "half a refusal was believed");
        assert_eq!((stage.stats().hits, stage.stats().misses, stage.stats().retries), (1, 0, 1));
    });
}

#[test]
fn what_a_refusal_says_is_told_as_it_was_meant_and_not_without_end() {
    bounded(|| {
        let stage = Stage::settled(65_536, Settings::default(), |_| ());
        let long = "x".repeat(1 << 20);
        stage.on_pages(move |_, _| {
            let document = format!(
                "<Error><Code>MethodNotAllowed</Code><Message>&lt;no&gt; &amp;amp; &quot;never&quot;</Message>\
                 <Noise>{long}</Noise></Error>"
            );
            Action::reply(Reply::new(405).with("content-type", "application/xml").holding(document))
        });
        let error = stage.get(1).unwrap_err();
        let story = stage::story(&error);
        assert!(story.contains("<no> &amp; \"never\""), "{story}");
        assert!(story.len() < 2_000, "{}", story.len());
    });
}

#[test]
fn b073_when_everything_is_refused_the_store_says_so_instead_of_missing_for_ever() {
    bounded(|| {
        let stage = Stage::settled(65_536, Settings::default(), |options| options.forbidden_is_miss = true);
        stage.on_pages(|_, _| Action::error(403, "AccessDenied"));
        (0..40).for_each(|n| assert!(!matches!(stage.get(n), Ok(true))));
        let told = stage.store.health().fallbacks;
        assert!(told.iter().any(|fallback| fallback.why.contains("403")), "{told:?}");
        assert_eq!(stage.set(1).unwrap_err().kind(), ErrorKind::PermissionDenied);
        // It is over as soon as something is granted.
        stage.goes_on();
        assert!(stage.store.health().fallbacks.is_empty(), "{:?}", stage.store.health());
    });
}

#[test]
fn b073_a_store_that_may_do_nothing_is_not_opened() {
    bounded(|| {
        for (status, code) in [(403, "AccessDenied"), (403, "InvalidAccessKeyId"), (401, "Unauthorized")] {
            let stub = stage::guarded(Settings::default());
            stub.script(move |_, _| Action::error(status, code));
            let options = stage::options(&stub);
            let opened = Stage::open(stub, "//b", 65_536, options).and_then(|stage| stage.set(1));
            let error = opened.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{status} {code}: {error:?}");
        }
    });
}

#[test]
fn b073_unknown_and_wrong_keys_are_refusals_whatever_a_refusal_may_mean() {
    bounded(|| {
        for (status, code) in [
            (401, "Unauthorized"),
            (403, "InvalidAccessKeyId"),
            (403, "SignatureDoesNotMatch"),
            (400, "InvalidToken"),
            (400, "ExpiredToken"),
        ] {
            let stage =
                Stage::settled(65_536, Settings::default(), |options| options.forbidden_is_miss = true);
            stage.on_pages(move |_, _| Action::error(status, code));
            let error = stage.get(1).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{status} {code}: {error:?}");
            assert_eq!(stage.page_requests().len(), 1, "{status} {code}");
            assert_eq!(stage.stats().misses, 0);
        }
    });
}

#[test]
fn b073_a_bucket_that_is_not_there_is_a_mistake_and_never_a_miss() {
    bounded(|| {
        let stub = stage::guarded(Settings::default());
        let options = ObjOptions { forbidden_is_miss: true, ..stage::options(&stub) };
        let opened = Stage::open(stub, "//nobody", 65_536, options).and_then(|stage| stage.get(1));
        let error = opened.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
        let story = stage::story(&error);
        assert!(story.contains("NoSuchBucket") && story.contains("nobody"), "{story}");
        assert!(!error.is_retryable());
    });
}

#[test]
fn errors_name_bucket_key_request_and_what_was_tried() {
    bounded(|| {
        let stage = Stage::settled(65_536, Settings::default(), |options| options.retries = 1);
        stage.on_pages(|_, _| Action::error(500, "InternalError"));
        let error = stage.get(1).unwrap_err();
        let last = stage.page_requests().last().unwrap().number;
        assert_eq!(error.fact("bucket"), Some("b"));
        assert_eq!(error.fact("request_id"), Some(format!("STUB{last:08}").as_str()));
        assert_eq!(error.fact("status"), Some("500"));
        assert!(error.fact("key").unwrap().ends_with(&hicache_testkit::pages::key(1).to_string()));
        assert!(error.to_string().contains("2 attempts"), "{error}");
        assert!(!stage::story(&error).contains("secret\""), "{error:?}");
    });
}

/// A store that signs for `us-east-1`, at a server in `eu-west-1`.
fn elsewhere() -> Stub {
    stage::guarded(Settings { region: "eu-west-1", ..Settings::default() })
}

#[test]
fn b074_a_region_that_the_answer_names_is_signed_for_once_and_from_then_on() {
    bounded(|| {
        let stub = elsewhere();
        let options = stage::options(&stub);
        let stage = Stage::open(stub, "//b", 65_536, options).unwrap();
        stage.set(1).unwrap();
        assert!(stage.get(1).unwrap());
        let wrong = stage.stub.requests().into_iter().filter(|request| !signed_for(request, "eu-west-1"));
        assert!(wrong.count() <= 1, "it is remembered");
        let told = stage.store.health().fallbacks;
        assert!(told.iter().any(|fallback| fallback.why.contains("eu-west-1")), "{told:?}");
    });
}

fn signed_for(request: &Request, region: &str) -> bool {
    request.header("authorization").is_some_and(|header| header.contains(&format!("/{region}/s3/")))
}

/// Every way to say that the bucket is elsewhere.
fn says_elsewhere(form: usize) -> Action {
    match form {
        0 => Action::error(301, "PermanentRedirect").with("x-amz-bucket-region", "eu-west-1"),
        1 => Action::reply(Reply::new(301).with("x-amz-bucket-region", "eu-west-1")),
        2 => Action::reply(Reply::new(400).with("x-amz-bucket-region", "eu-west-1")),
        _ => Action::reply(Reply::new(400).with("content-type", "application/xml").holding(
            "<Error><Code>AuthorizationHeaderMalformed</Code><Message>the region 'us-east-1' is wrong; expecting \
             'eu-west-1'</Message><Region>eu-west-1</Region></Error>",
        )),
    }
}

#[test]
fn b074_every_way_to_say_elsewhere_costs_one_request_more_at_most() {
    bounded(|| {
        for form in 0..4 {
            for method in ["GET", "PUT", "HEAD"] {
                let stage = Stage::settled(65_536, Settings::default(), |_| ());
                stage.set(1).unwrap();
                // It moves while we look: signatures for the old region are refused from now on.
                stage.stub.keys().clear();
                stage.on_pages(move |request, _| match signed_for(request, "eu-west-1") {
                    true => Action::normal(),
                    false => says_elsewhere(form),
                });
                match method {
                    "GET" => assert!(stage.get(1).unwrap(), "{form}"),
                    "PUT" => stage.set_all(2..3),
                    // Without a body nor a header it cannot be known; then it is an error.
                    _ => match stage.exists(3) {
                        Ok(there) => assert!(!there),
                        Err(error) => {
                            assert_eq!(form, 3, "{error:?}");
                            assert!(error.kind() != ErrorKind::Unavailable, "{error:?}");
                        }
                    },
                }
                assert!(stage.page_requests().len() <= 2, "{form} {method}: {:?}", stage.page_requests());
            }
        }
    });
}

#[test]
fn b074_a_redirect_to_another_host_is_not_followed() {
    bounded(|| {
        let other = Stub::start();
        for location in [format!("{}/b/k", other.endpoint()), "http://169.254.169.254/".to_string()] {
            for status in [301, 302, 307, 308] {
                let stage = Stage::settled(65_536, Settings::default(), |_| ());
                stage.set(1).unwrap();
                let location = location.clone();
                stage.on_pages(move |_, _| {
                    Action::error(status, "TemporaryRedirect").with("location", location.clone())
                });
                for method in ["GET", "PUT", "HEAD"] {
                    let (outcome, took) = timed(|| match method {
                        "GET" => stage.get(1),
                        "PUT" => stage.set(2).map(|_| true),
                        _ => stage.exists(3),
                    });
                    let error = outcome.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{status} {method}: {error:?}");
                    assert!(took < Duration::from_secs(2), "{status} {method}: {took:?}");
                }
                assert!(stage.page_requests().len() <= 6, "{status}");
                stage.goes_on();
            }
        }
        assert!(other.requests().is_empty(), "credentials went to another host");
        assert_eq!(other.connections(), 0);
    });
}

#[test]
fn b074_regions_that_send_us_round_in_circles_end_in_an_error() {
    bounded(|| {
        let stage = Stage::settled(65_536, Settings::default(), |_| ());
        stage.set(1).unwrap();
        stage.on_pages(|request, _| {
            let other = if signed_for(request, "eu-west-1") { "eu-central-1" } else { "eu-west-1" };
            Action::error(301, "PermanentRedirect").with("x-amz-bucket-region", other)
        });
        let error = stage.get(1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
        assert!(stage::story(&error).contains("eu-central-1"), "{error:?}");
        assert_eq!(stage.page_requests().len(), 2);
    });
}

#[test]
fn b074_a_region_that_is_no_region_changes_no_host() {
    bounded(|| {
        for evil in ["evil.example/", "x.evil.example#", "a@evil.example", "", " ", "us-east-1"] {
            let stage = Stage::on_aws("plain-bucket", |_| ()).unwrap();
            stage.set(1).unwrap();
            stage.on_pages(move |_, _| {
                Action::error(301, "PermanentRedirect").with("x-amz-bucket-region", evil)
            });
            let error = stage.get(1).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{evil:?}: {error:?}");
            let hosts =
                stage.stub.requests().into_iter().map(|request| request.header("host").unwrap().to_owned());
            let astray: Vec<String> =
                hosts.filter(|host| !host.contains(".us-east-1.amazonaws.com")).collect();
            assert!(astray.is_empty(), "{evil:?}: {astray:?}");
        }
    });
}

#[test]
fn a_clock_that_is_wrong_is_corrected_by_the_servers() {
    bounded(|| {
        for skew in [-3600, 3600, 86_400] {
            let stage = Stage::settled(65_536, Settings::default(), |_| ());
            stage.set(1).unwrap();
            stage.stub.skew(skew);
            stage.stub.forget();
            assert!(stage.get(1).unwrap(), "{skew}");
            assert_eq!(stage.page_requests().len(), 2, "{skew}");
            stage.set(2).unwrap();
            assert!(!stage.exists(3).unwrap(), "{skew}");
            assert!(stage.page_requests().len() <= 6, "{skew}: {}", stage.page_requests().len());
        }
    });
}

#[test]
fn a_clock_that_is_put_right_again_is_noticed_by_heads_alone() {
    bounded(|| {
        for skew in [-3600, 3600] {
            let stage = Stage::settled(65_536, Settings::default(), |options| {
                options.forbidden_is_miss = true;
                options.exists_ttl = Duration::ZERO;
            });
            stage.stub.skew(skew);
            stage.set(1).unwrap();
            // As where this machine's clock was wrong, and is not any more.
            stage.stub.skew(0);
            assert!(stage.exists(1).unwrap(), "{skew}");
        }
    });
}

#[test]
fn a_success_whose_document_is_an_error_is_none() {
    bounded(|| {
        for method in ["PUT", "DELETE"] {
            let stage = Stage::settled(65_536, Settings::default(), |options| {
                options.exists_ttl = Duration::ZERO;
            });
            if method == "DELETE" {
                stage.set(1).unwrap();
            }
            let faults = std::sync::atomic::AtomicUsize::new(0);
            stage.on_pages(move |request, _| {
                let is_first = || faults.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
                if request.method == method && is_first() {
                    let document = "<Error><Code>InternalError</Code><Message>not now</Message></Error>";
                    return Action::reply(Reply::new(200).with("etag", "\"x\"").holding(document));
                }
                Action::normal()
            });
            if method == "PUT" {
                assert_eq!(stage.set(1).unwrap(), Stored::Written);
                assert!(stage.get(1).unwrap());
            } else {
                let removed = stage.backend.batch_remove(&[pages::key(1)], Call::default()).wait();
                assert!(removed.into_iter().all(|removed| removed.unwrap()));
                assert!(!stage.exists(1).unwrap(), "it is still there");
            }
            assert_eq!(stage.stub.count(method), 2, "{method}");
            assert_eq!(stage.stats().retries, 1, "{method}");
        }
    });
}

#[test]
fn a_head_refused_for_its_clock_is_no_miss() {
    bounded(|| {
        // It has no body that would say why, only a date.
        for skew in [-3600, 3600] {
            let stage =
                Stage::settled(65_536, Settings::default(), |options| options.forbidden_is_miss = true);
            stage.set(1).unwrap();
            let object = stage.object(1);
            let sound = stage.stub.buckets().remove("b", &object).unwrap();
            assert!(!stage.get(1).unwrap());
            stage.stub.buckets().insert("b", &object, sound);
            stage.stub.skew(skew);
            assert!(!matches!(stage.exists(1), Ok(false)), "{skew}");
        }
    });
}

#[test]
fn a_clock_that_cannot_be_corrected_is_told_as_the_clock() {
    bounded(|| {
        let stage = Stage::settled(65_536, Settings::default(), |_| ());
        stage.on_pages(|_, _| Action::error(403, "RequestTimeTooSkewed"));
        let error = stage.get(1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error:?}");
        assert!(stage::story(&error).contains("clock"), "{error:?}");
        assert!(stage.page_requests().len() <= 2);
    });
}

#[test]
fn credentials_that_expire_under_way_are_a_refusal_with_its_fix() {
    bounded(|| {
        let stage = Stage::settled(65_536, Settings::default(), |_| ());
        stage.set(1).unwrap();
        stage.stub.forget();
        stage.stub.keys()[0].expired = true;
        for error in [stage.get(1).unwrap_err(), stage.set(2).unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error:?}");
            assert!(stage::story(&error).contains("renew"), "{error:?}");
        }
        assert_eq!(stage.page_requests().len(), 2, "keys that are given once are not asked for again");
        assert_eq!(stage.stats().misses, 0);
        stage.stub.keys()[0].expired = false;
        assert!(stage.get(1).unwrap());
        *stage.stub.keys() = vec![Access::new("other", "secret")];
        let error = stage.get(1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error:?}");
        assert!(stage::story(&error).contains("access_key"), "{error:?}");
    });
}

#[test]
fn a_session_token_is_sent_and_signed() {
    bounded(|| {
        let access = Access { token: Some("the+token/==".to_string()), ..Access::new("test", "secret") };
        let stub = stage::guarded(Settings { keys: vec![access], ..Settings::default() });
        let credentials = hicache_obj::Credentials::Static {
            access_key: "test".to_string(),
            secret_key: "secret".to_string(),
            session_token: Some("the+token/==".to_string()),
        };
        let options = ObjOptions { credentials, ..stage::options(&stub) };
        let stage = Stage::open(stub, "//b", 65_536, options).unwrap();
        stage.set(1).unwrap();
        assert!(stage.get(1).unwrap());
        let signed =
            |request: &Request| request.header("authorization").unwrap().contains("x-amz-security-token");
        assert!(stage.page_requests().iter().all(signed));
        let without = ObjOptions { endpoint: endpoint(&stage.stub), ..stage::options(&stage.stub) };
        let opened = Stage::open(stage::guarded(Settings::default()), "//b", 65_536, without);
        let error = opened.and_then(|stage| stage.get(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error:?}");
    });
}

fn endpoint(stub: &Stub) -> Option<Endpoint> {
    Some(Endpoint::parse(&stub.endpoint()).unwrap())
}
