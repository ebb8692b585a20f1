//! Clearing a namespace: by requests for many, and truly told where some of it fails.

use crate::stage::Stage;
use crate::stub::{Action, Reply, Request, Settings, bounded, first};
use hicache_core::{Depth, ErrorKind, Namespace, PageLayout, Result, State, Store};
use hicache_testkit::pages;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

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

#[test]
fn a_refusal_to_remove_the_record_tells_how_many_pages_have_gone() {
    bounded(|| {
        let stage = stage();
        stage.set_all(0..9);
        stage.stub.script(|request, _| match request.method.as_str() {
            "DELETE" => Action::error(403, "AccessDenied"),
            _ => Action::normal(),
        });
        let error = clear(&stage).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error:?}");
        assert_eq!(error.fact("removed"), Some("10"), "{error:?}");
        // A listing that is refused on the way, too.
        stage.set_all(0..3);
        let deleted = AtomicBool::new(false);
        stage.stub.script(move |request, _| {
            if request.query_value("list-type").is_some() && deleted.load(Ordering::SeqCst) {
                return Action::error(403, "AccessDenied");
            }
            deleted.fetch_or(is_delete(request), Ordering::SeqCst);
            Action::normal()
        });
        let error = clear(&stage).unwrap_err();
        assert_eq!(error.fact("removed"), Some("3"), "{error:?}");
        stage.goes_on();
    });
}

#[test]
fn a_page_that_is_written_while_its_namespace_is_cleared_is_not_left_without_a_record() {
    bounded(|| {
        let stage = stage();
        stage.set_all(0..5);
        let (told, asked) = sync_channel(1);
        let (go, gone) = sync_channel::<()>(1);
        let gone = Mutex::new(gone);
        on_many(&stage, move |_, n| {
            if n == 0 {
                told.send(()).unwrap();
                gone.lock().unwrap().recv().unwrap();
            }
            Action::normal()
        });
        std::thread::scope(|scope| {
            let clearing = scope.spawn(|| clear(&stage));
            asked.recv().unwrap();
            // It has been listed already.
            stage.set(77).unwrap();
            go.send(()).unwrap();
            assert_eq!(clearing.join().unwrap().unwrap(), 7);
        });
        assert_eq!(stage.stub.buckets().keys("b"), [""; 0]);
        stage.goes_on();
    });
}

#[test]
fn a_namespace_that_somebody_keeps_writing_to_keeps_its_record_and_the_error_tells_what_has_gone() {
    bounded(|| {
        let stage = stage();
        stage.set_all(0..2);
        // A page that comes back as often as it is removed.
        let names = stage.stub.buckets().keys("b");
        let page = names.iter().find(|name| !name.ends_with("/namespace")).unwrap().clone();
        stage.stub.script(move |request, _| match request.method.as_str() {
            "POST" => Action::reply(told(&format!("<Deleted><Key>{page}</Key></Deleted>"))),
            "DELETE" => Action::status(204),
            _ => Action::normal(),
        });
        let error = clear(&stage).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyOpen, "{error:?}");
        assert!(error.is_retryable() && error.fact("removed").is_some(), "{error:?}");
        assert!(stage.stub.buckets().keys("b").iter().any(|name| name.ends_with("/namespace")));
        stage.goes_on();
    });
}

#[test]
fn a_namespace_without_a_record_is_cleared_by_its_digest() {
    bounded(|| {
        let stage = stage();
        stage.set_all(0..4);
        let digest = stage.namespace.digest();
        stage.stub.buckets().remove("b", &format!("{digest}/namespace")).unwrap();
        let finds = stage.scan(Depth::Contents).unwrap();
        assert_eq!(finds.len(), 5);
        assert!(
            finds.iter().all(|found| matches!(&found.state, State::Orphan(why) if why.contains("record")))
        );
        let nameless = Namespace::recorded("any", digest, PageLayout::opaque(1).unwrap());
        assert_eq!(hicache_testkit::wait("clear", stage.store.clear(&nameless)).unwrap(), 5);
        assert_eq!(stage.stub.buckets().keys("b"), [""; 0]);
        stage.goes_on();
    });
}

#[test]
fn a_service_that_stands_still_ends_a_clear_and_a_scan_within_the_deadline_of_one_step() {
    bounded(|| {
        let second = Duration::from_secs(1);
        let slow = |edit: fn(&Request) -> bool| {
            let stage = Stage::settled(4_096, Settings::default(), |options| {
                options.common.deadline = 2 * second;
                options.retries = 100;
            });
            stage.set_all(0..4);
            stage.stub.script(move |request, _| match edit(request) {
                true => Action::normal().wait(20 * second),
                false => Action::normal(),
            });
            stage
        };
        let is_list = |request: &Request| request.query_value("list-type").is_some();
        let is_record = |request: &Request| request.method == "DELETE";
        for (still, removed) in [(is_list as fn(&Request) -> bool, "0"), (is_delete, "0"), (is_record, "5")] {
            let stage = slow(still);
            let (cleared, took) = crate::stage::timed(|| clear(&stage));
            let error = cleared.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
            assert_eq!(error.fact("removed"), Some(removed), "{error:?}");
            assert!(took < 6 * second, "{took:?}");
            stage.stub.disconnect();
        }
        let stage = slow(is_list);
        let (scanned, took) = crate::stage::timed(|| stage.scan(Depth::Names));
        let error = scanned.unwrap_err();
        assert_eq!((error.kind(), error.fact("finds")), (ErrorKind::Timeout, Some("0")), "{error:?}");
        assert!(took < 6 * second, "{took:?}");
        stage.stub.disconnect();
    });
}

#[test]
fn pages_that_stand_still_or_trickle_end_a_scan_that_says_how_far_it_has_come() {
    bounded(|| {
        let second = Duration::from_secs(1);
        let faults: [fn() -> Action; 2] = [
            || Action::normal().wait(Duration::from_secs(20)),
            || Action::normal().pace(64, Duration::from_millis(200)),
        ];
        for (index, fault) in faults.into_iter().enumerate() {
            let stage = Stage::settled(4_096, Settings::default(), |options| {
                options.common.deadline = second;
                options.read_timeout = 2 * second;
            });
            stage.set_all(0..12);
            let mut names = stage.stub.buckets().keys("b");
            names.retain(|name| !name.ends_with("/namespace"));
            let sound = names[..2].to_vec();
            stage.on_pages(move |request, _| match sound.contains(&request.key) {
                true => Action::normal(),
                false => fault(),
            });
            let (scanned, took) = crate::stage::timed(|| stage.scan(Depth::Contents));
            let error = scanned.unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable),
                "{index}: {error:?}"
            );
            // Two that came, and two of the three that did not are finds: the third is the error.
            assert_eq!(error.fact("finds"), Some("4"), "{index}: {error:?}");
            assert!(took < 6 * second, "{index}: {took:?}");
            stage.stub.disconnect();
        }
    });
}

#[test]
fn a_page_that_does_not_come_in_time_among_others_that_do_is_a_find() {
    bounded(|| {
        let stage = Stage::settled(4_096, Settings::default(), |options| {
            options.common.deadline = Duration::from_secs(1);
        });
        stage.set_all(0..6);
        let late = [stage.object(1), stage.object(4)];
        stage.on_pages(move |request, _| match late.contains(&request.key) {
            true => Action::normal().wait(Duration::from_secs(5)),
            false => Action::normal(),
        });
        let finds = stage.scan(Depth::Contents).unwrap();
        let unreadable = finds.iter().filter(|found| matches!(found.state, State::Unreadable(_))).count();
        assert_eq!((finds.len(), unreadable), (7, 2));
        let keys: Vec<_> = [1, 4].map(pages::key).to_vec();
        let is_late = |found: &&hicache_core::Found| found.key.is_some_and(|key| keys.contains(&key));
        assert!(finds.iter().filter(is_late).all(|found| matches!(found.state, State::Unreadable(_))));
        stage.stub.disconnect();
    });
}
