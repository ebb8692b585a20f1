//! Clearing a namespace: by requests for many, and truly told where some of it fails.

use crate::stage::Stage;
use crate::stub::{Action, Reply, Request, Settings, bounded, first};
use hicache_core::{ErrorKind, Result, Store};

fn stage() -> Stage {
    Stage::settled(4_096, Settings::default(), |options| options.retries = 2)
}

fn clear(stage: &Stage) -> Result<u64> {
    hicache_testkit::wait("clear", stage.store.clear(&stage.namespace))
}

fn is_delete(request: &Request) -> bool {
    request.method == "DELETE" || request.query_value("delete").is_some()
}

/// Does `fault` to requests for many.
fn on_many(stage: &Stage, fault: impl Fn(&Request, usize) -> Action + Send + Sync + 'static) {
    let seen = std::sync::atomic::AtomicUsize::new(0);
    stage.stub.forget();
    stage.stub.script(move |request, _| match request.query_value("delete").is_some() {
        true => fault(request, seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst)),
        false => Action::normal(),
    });
}

fn deletes(stage: &Stage) -> (usize, usize) {
    let requests = stage.stub.requests();
    let many = requests.iter().filter(|request| request.query_value("delete").is_some()).count();
    (many, requests.iter().filter(|request| request.method == "DELETE").count())
}

/// A success that says so of each key.
fn told(rows: &str) -> Reply {
    let body = format!("<?xml version=\"1.0\"?><DeleteResult>{rows}</DeleteResult>");
    Reply::new(200).with("content-type", "application/xml").holding(body)
}

/// A success, but for one key.
fn fails(key: &str, why: &str) -> Action {
    let deleted = format!("<Deleted><Key>{key}</Key></Deleted>");
    let error = format!("<Error><Key>{key}</Key>{why}</Error>");
    Action::normal().edit(move |reply| {
        let told = String::from_utf8(reply.body.clone()).unwrap();
        assert!(told.contains(&deleted), "{told}");
        reply.body = told.replace(&deleted, &error).into_bytes();
    })
}

#[test]
fn a_namespace_is_cleared_by_one_request_for_a_thousand_pages() {
    bounded(|| {
        let stage = stage();
        stage.set_all(0..40);
        stage.stub.forget();
        assert_eq!(clear(&stage).unwrap(), 41);
        // The record goes last, and alone.
        assert_eq!(deletes(&stage), (1, 1));
        assert_eq!(stage.stub.buckets().keys("b"), [""; 0]);
        assert!(stage.store.health().fallbacks.is_empty(), "{:?}", stage.store.health());
        stage.goes_on();
    });
}

#[test]
fn what_a_success_tells_of_a_key_that_stayed_is_an_error_with_the_count() {
    bounded(|| {
        let stage = stage();
        stage.set_all(0..9);
        let kept = stage.object(3);
        on_many(&stage, move |_, _| fails(&kept, "<Code>AccessDenied</Code>"));
        let error = clear(&stage).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error:?}");
        assert_eq!((error.fact("removed"), error.fact("failed")), (Some("9"), Some("1")), "{error:?}");
        assert_eq!(deletes(&stage), (1, 0), "the record stays, so that it can be begun again");
        stage.goes_on();
    });
}

#[test]
fn a_key_that_the_service_was_too_busy_for_is_asked_for_again_and_alone() {
    bounded(|| {
        let stage = stage();
        stage.set_all(0..5);
        let busy = stage.object(2);
        on_many(&stage, move |_, n| match n {
            0 => fails(&busy, "<Code>InternalError</Code><Message>busy</Message>"),
            _ => Action::normal(),
        });
        assert_eq!(clear(&stage).unwrap(), 6);
        assert_eq!(deletes(&stage), (2, 1));
        let lens: Vec<usize> = (stage.stub.requests().iter())
            .filter(|request| request.query_value("delete").is_some())
            .map(|request| request.header("content-length").unwrap().parse().unwrap())
            .collect();
        assert!(lens[1] * 3 < lens[0], "one key and not six: {lens:?}");
    });
}

#[test]
fn keys_that_an_answer_says_nothing_of_are_removed_one_by_one() {
    bounded(|| {
        let stage = stage();
        stage.set_all(0..5);
        on_many(&stage, |_, _| Action::reply(told("")));
        assert_eq!(clear(&stage).unwrap(), 6);
        assert_eq!(deletes(&stage), (1, 7));
        assert_eq!(stage.stub.buckets().keys("b"), [""; 0]);
    });
}

#[test]
fn a_service_that_refuses_requests_for_many_is_told_and_asked_for_each() {
    bounded(|| {
        let refusals: [fn() -> Action; 5] = [
            || Action::error(501, "NotImplemented"),
            || Action::error(405, "MethodNotAllowed"),
            || Action::error(400, "MissingContentMD5"),
            || Action::error(400, "InvalidRequest"),
            || Action::status(501),
        ];
        for (index, refusal) in refusals.into_iter().enumerate() {
            let stage = stage();
            stage.set_all(0..5);
            on_many(&stage, move |_, _| refusal());
            assert_eq!(clear(&stage).unwrap(), 6, "{index}");
            assert_eq!(deletes(&stage), (1, 7), "{index}");
            let told: Vec<_> = stage.store.health().fallbacks.iter().map(|one| one.what).collect();
            assert_eq!(told, ["delete_objects"], "{index}: and nothing else is done without");
            stage.set_all(0..2);
            stage.stub.forget();
            assert_eq!(clear(&stage).unwrap(), 2, "{index}");
            assert_eq!(deletes(&stage), (0, 3), "{index}: it is remembered");
            stage.goes_on();
        }
    });
}

#[test]
fn a_refusal_of_each_key_is_counted_and_an_outage_ends_it() {
    bounded(|| {
        let stage = stage();
        stage.set_all(0..5);
        stage.stub.script(|request, _| match request.query_value("delete").is_some() {
            true => Action::error(501, "NotImplemented"),
            false if is_delete(request) => Action::error(403, "AccessDenied"),
            false => Action::normal(),
        });
        let error = clear(&stage).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error:?}");
        assert_eq!((error.fact("removed"), error.fact("failed")), (Some("0"), Some("6")), "{error:?}");
        let other = Stage::settled(4_096, Settings::default(), |options| options.retries = 1);
        other.set_all(0..5);
        let down = first(usize::MAX, |_| Action::error(503, "ServiceUnavailable"));
        on_many(&other, down);
        let error = clear(&other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert_eq!((error.fact("removed"), error.fact("failed")), (Some("0"), Some("6")), "{error:?}");
        assert_eq!(deletes(&other), (2, 0));
        other.goes_on();
    });
}
