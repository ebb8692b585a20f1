//! Answers that lie: errors and garbage inside a 200 (B063), and bodies that are shorter or longer than announced
//! (B064).

use crate::stage::{MIB, Stage, TAIL, timed};
use crate::stub::{Action, Close, Reply, Request, Settings, bounded};
use hicache_core::{Call, Deadline, Depth, ErrorKind, Get, Store};
use hicache_testkit::pages;
use std::time::Duration;

const HTML: &str = "<!DOCTYPE html><html><body>Please log in to the network.</body></html>";

fn in_parts(retries: u32) -> Stage {
    Stage::settled(3 * MIB, Settings::default(), |options| {
        options.multipart_threshold = MIB as u64;
        options.part_len = MIB as u64;
        options.retries = retries;
    })
}

/// The request that makes parts an object.
fn completes(request: &Request) -> bool {
    request.method == "POST" && request.query_value("uploadId").is_some()
}

fn two_hundred(body: impl Into<Vec<u8>>) -> Action {
    Action::reply(Reply::new(200).with("content-type", "application/xml").holding(body))
}

fn error_document(code: &str) -> String {
    String::from_utf8(Reply::error(200, code).body).unwrap()
}

/// What a server may put into a 200 that is no success.
fn garbage() -> Vec<(&'static str, String)> {
    let whole = "<?xml version=\"1.0\"?><CompleteMultipartUploadResult><Bucket>b</Bucket><Key>k</Key><ETag>x";
    vec![
        ("an internal error", error_document("InternalError")),
        ("a throttle after spaces", format!("{}{}", " ".repeat(3000), error_document("SlowDown"))),
        ("nothing", String::new()),
        ("half a document", whole.to_string()),
        ("a web page", HTML.to_string()),
        ("spaces", "   \n".to_string()),
    ]
}

#[test]
fn b063_garbage_in_the_answer_to_complete_is_tried_again_once_and_then_right() {
    bounded(|| {
        for (name, body) in garbage() {
            let stage = in_parts(4);
            let seen = std::sync::atomic::AtomicUsize::new(0);
            stage.on_pages(move |request, _| match completes(request) {
                true if seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 => {
                    two_hundred(body.clone())
                }
                _ => Action::normal(),
            });
            stage.set(1).unwrap_or_else(|error| panic!("{name}: {error:?}"));
            assert!(stage.is_stored(1) && stage.get(1).unwrap(), "{name}");
        }
    });
}

#[test]
fn b063_garbage_in_every_answer_to_complete_is_an_error_and_leaves_nothing_open() {
    bounded(|| {
        for (name, body) in garbage() {
            let stage = in_parts(1);
            stage.on_pages(move |request, _| match completes(request) {
                true => two_hundred(body.clone()),
                false => Action::normal(),
            });
            let error = stage.set(1).map(|_| panic!("{name} was taken for success")).unwrap_err();
            let throttled = error.kind() == ErrorKind::Throttled;
            assert_eq!(throttled, name == "a throttle after spaces", "{name}: {error:?}");
            assert!(!stage.get(1).unwrap(), "{name}");
            assert!(!stage.exists(1).unwrap(), "{name}");
            hicache_testkit::until("the parts are given up", || stage.stub.buckets().open_uploads() == 0);
            stage.goes_on();
        }
    });
}

#[test]
fn b063_a_complete_that_happened_though_its_answer_was_lost_is_success() {
    bounded(|| {
        for lost in [0, 1] {
            let stage = in_parts(4);
            let seen = std::sync::atomic::AtomicUsize::new(0);
            stage.on_pages(move |request, _| {
                if !completes(request) || seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst) > 0 {
                    return Action::normal();
                }
                // Done by the server, and not told: the connection ends, or a proxy says something of its own.
                match lost {
                    0 => Action::normal().cut(0, Close::Rst),
                    _ => Action::normal().edit(|reply| *reply = Reply::error(503, "ServiceUnavailable")),
                }
            });
            stage.set(1).unwrap();
            assert!(stage.get(1).unwrap());
            assert_eq!(stage.stub.buckets().open_uploads(), 0);
        }
    });
}

#[test]
fn b063_a_right_answer_without_an_etag_is_success() {
    bounded(|| {
        let stage = in_parts(0);
        stage.on_pages(|request, _| match completes(request) {
            true => Action::normal().edit(|reply| {
                let text = String::from_utf8(std::mem::take(&mut reply.body)).unwrap();
                let (before, rest) = text.split_once("<ETag>").unwrap();
                let after = rest.split_once("</ETag>").unwrap().1;
                reply.body = format!("{before}{after}").into_bytes();
            }),
            false => Action::normal(),
        });
        stage.set(1).unwrap();
        assert!(stage.get(1).unwrap());
    });
}

#[test]
fn b063_a_last_part_that_the_server_lost_is_found_at_the_read() {
    bounded(|| {
        let stage = std::sync::Arc::new(in_parts(1));
        // The script runs before the server answers, so what it takes away is missing in the result.
        let losing = std::sync::Arc::downgrade(&stage);
        stage.on_pages(move |request, _| {
            if let (true, Some(stage)) = (completes(request), losing.upgrade()) {
                stage.stub.buckets().lose_last_parts();
            }
            Action::normal()
        });
        match stage.set(1) {
            // Nobody could know.
            Ok(_) => {
                assert!(!stage.get(1).unwrap());
                assert_eq!(stage.stats().damaged, 1);
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}"),
        }
        assert!(!stage.get(1).unwrap());
        stage.stub.script(|_, _| Action::normal());
        stage.set(1).unwrap();
        assert!(stage.get(1).unwrap());
    });
}

#[test]
fn b063_a_put_that_something_else_answers_is_no_success() {
    bounded(|| {
        let answers = [
            ("a web page", Reply::new(200).with("content-type", "text/html").holding(HTML)),
            ("nothing", Reply::new(200)),
            ("an error", Reply::new(200).holding(error_document("InternalError"))),
        ];
        for (name, reply) in answers {
            let stage = Stage::settled(65_536, Settings::default(), |options| options.retries = 1);
            let once = reply.clone();
            stage.on_pages(move |request, n| match request.method.as_str() {
                "PUT" if n == 0 => Action::reply(once.clone()),
                _ => Action::normal(),
            });
            stage.set(1).unwrap_or_else(|error| panic!("{name}, once: {error:?}"));
            assert!(stage.is_stored(1), "{name}: it is told as written and is not there");
            stage.on_pages(move |request, _| match request.method.as_str() {
                "PUT" => Action::reply(reply.clone()),
                _ => Action::normal(),
            });
            assert!(stage.set(2).is_err(), "{name} was taken for success");
            assert!(!stage.exists(2).unwrap(), "{name}");
            stage.goes_on();
        }
    });
}

#[test]
fn b063_a_get_that_something_else_answers_is_a_miss_or_an_error_and_never_a_page() {
    bounded(|| {
        let len = 65_536;
        let padded = format!("{HTML}{}", " ".repeat(len - HTML.len()));
        for body in [HTML.to_string(), padded, String::new(), error_document("InternalError")] {
            let stage = Stage::settled(len, Settings::default(), |options| options.retries = 1);
            stage.set(1).unwrap();
            stage.on_pages(move |_, _| Action::reply(Reply::new(200).holding(body.clone())));
            assert!(!matches!(stage.get(1), Ok(true)));
            assert_eq!(stage.stats().hits, 0);
            stage.goes_on();
        }
    });
}

type Breaking = fn(&mut Reply);

/// What is no listing, or not all of one.
fn broken_listings() -> Vec<(&'static str, Breaking)> {
    vec![
        ("nothing", |reply| reply.body.clear()),
        ("a web page", |reply| reply.body = HTML.into()),
        ("an error", |reply| reply.body = error_document("InternalError").into()),
        ("half of it", |reply| reply.body.truncate(reply.body.len() / 2)),
        ("all but its end", |reply| reply.body.truncate(reply.body.len() - 200)),
        ("only the first line", |reply| reply.body.truncate(40)),
    ]
}

#[test]
fn b063_a_listing_that_breaks_off_is_no_list_of_what_is_there() {
    bounded(|| {
        for (name, breaking) in broken_listings() {
            let stage = Stage::settled(65_536, Settings::default(), |options| {
                options.retries = 1;
                options.exists_ttl = Duration::ZERO;
            });
            stage.set_all(0..20);
            stage.stub.script(move |request, _| match request.query_value("list-type") {
                Some(_) => Action::normal().edit(breaking),
                None => Action::normal(),
            });
            // Whatever is asked by listing is asked page by page where there is none.
            let keys: Vec<_> = (0..20).map(pages::key).collect();
            let there = stage.backend.batch_exists(&keys, Call::default()).wait();
            assert!(there.iter().all(|outcome| matches!(outcome, Ok(true))), "{name}: {there:?}");
            let cleared = hicache_testkit::wait("clear", stage.store.clear(&stage.namespace));
            assert!(cleared.is_err(), "{name}: cleared {cleared:?}");
            assert!(stage.scan(Depth::Names).is_err(), "{name}");
            // Three failures in a row, and the service would not be asked for a while.
            assert!(stage.get(19).is_ok());
            let listed = hicache_testkit::wait("namespaces", stage.store.namespaces());
            assert!(listed.is_err(), "{name}: {listed:?}");
            stage.stub.script(|_, _| Action::normal());
            let left = stage.scan(Depth::Names).unwrap().len() as u64;
            let cleared = hicache_testkit::wait("clear", stage.store.clear(&stage.namespace)).unwrap();
            assert_eq!(cleared, left, "{name}");
        }
    });
}

#[test]
fn b063_a_listing_that_is_broken_once_is_asked_for_again() {
    bounded(|| {
        for (name, breaking) in broken_listings() {
            let stage = Stage::settled(65_536, Settings::default(), |_| ());
            stage.set_all(0..20);
            let seen = std::sync::atomic::AtomicUsize::new(0);
            stage.stub.script(move |request, _| {
                let listing = request.query_value("list-type").is_some();
                match listing && seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 {
                    true => Action::normal().edit(breaking),
                    false => Action::normal(),
                }
            });
            let cleared = hicache_testkit::wait("clear", stage.store.clear(&stage.namespace));
            assert_eq!(cleared.unwrap(), 21, "{name}");
            assert_eq!(stage.stub.buckets().keys("b"), [""; 0], "{name}");
        }
    });
}

#[test]
fn listings_of_many_pages_are_read_to_their_end() {
    bounded(|| {
        let stage = Stage::settled(4096, Settings::default(), |_| ());
        stage.set_all(0..50);
        stage.stub.buckets().most_listed = 7;
        assert_eq!(stage.scan(Depth::Names).unwrap().len(), 51);
        let cleared = hicache_testkit::wait("clear", stage.store.clear(&stage.namespace));
        assert_eq!(cleared.unwrap(), 51);
        assert_eq!(stage.stub.buckets().keys("b"), [""; 0]);
    });
}

/// Every place at which a body can end, and how.
fn ends() -> Vec<(usize, Close)> {
    let places = [0, 1, MIB / 2, MIB - 1, MIB, MIB + 1, MIB + TAIL - 1];
    places.into_iter().flat_map(|at| [(at, Close::Fin), (at, Close::Rst), (at, Close::Half)]).collect()
}

#[test]
fn b064_a_body_cut_once_is_read_again() {
    bounded(|| {
        for chunked in [false, true] {
            let stage = Stage::settled(MIB, Settings::default(), |_| ());
            stage.set(1).unwrap();
            for (at, close) in ends() {
                stage.on_pages(move |_, n| match (n, chunked) {
                    (0, false) => Action::normal().cut(at, close),
                    (0, true) => Action::normal().chunked().cut(at, close),
                    _ => Action::normal(),
                });
                assert!(stage.get(1).unwrap(), "{at} {close:?}");
                assert_eq!(stage.stub.count("GET"), 2, "{at} {close:?}");
            }
            assert_eq!(stage.stats().retries, ends().len() as u64);
        }
    });
}

#[test]
fn b064_a_body_always_cut_is_an_error_after_the_retries() {
    bounded(|| {
        let stage = Stage::settled(MIB, Settings::default(), |options| options.retries = 1);
        stage.set(1).unwrap();
        for (at, close) in ends() {
            stage.on_pages(move |_, _| Action::normal().cut(at, close));
            let error = stage.get(1).map(|_| panic!("{at} {close:?}: a miss or a page")).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::Unavailable), "{error:?}");
            assert!(error.is_retryable(), "{error:?}");
            assert_eq!(stage.stub.count("GET"), 2, "{at} {close:?}");
            stage.goes_on();
        }
        assert_eq!(stage.stats().damaged, 0, "nothing is wrong with the page");
        assert!(stage.exists(1).unwrap());
    });
}

#[test]
fn b064_chunks_that_end_in_order_but_early_are_never_a_page() {
    bounded(|| {
        for len in [0, 1, MIB / 2, MIB - 1, MIB, MIB + TAIL - 1] {
            let stage = Stage::settled(MIB, Settings::default(), |options| options.retries = 1);
            stage.set(1).unwrap();
            stage.on_pages(move |_, _| Action::normal().chunked().short(len));
            assert!(!matches!(stage.get(1), Ok(true)), "{len}");
            let stats = stage.stats();
            assert_eq!(stats.hits, 0);
            assert!(stats.damaged + stats.errors == 1, "it is counted: {stats:?}");
            stage.goes_on();
        }
    });
}

#[test]
fn b064_a_length_that_is_not_the_pages_is_damage() {
    bounded(|| {
        let stage = Stage::settled(MIB, Settings::default(), |options| options.retries = 1);
        for (n, claim) in [(1, 0), (2, 1), (3, MIB - 1), (4, MIB), (5, MIB + TAIL - 1), (6, MIB + TAIL + 1)] {
            stage.set(n).unwrap();
            stage.on_pages(move |_, _| Action::normal().claim(claim as u64).close(Close::Fin));
            assert!(!stage.get(n).unwrap(), "{claim}");
            assert_eq!(stage.stats().damaged, n, "{claim}");
            stage.stub.script(|_, _| Action::normal());
        }
        // Longer objects: what follows the page is not read into anybody's memory.
        for (n, longer) in [(7, 1), (8, MIB), (9, 9 * MIB)] {
            stage.set(n).unwrap();
            let object = stage.object(n);
            let mut buckets = stage.stub.buckets();
            let object = buckets.get_mut("b", &object).unwrap();
            std::sync::Arc::make_mut(&mut object.body).extend(vec![7; longer]);
            drop(buckets);
            assert!(!stage.get(n).unwrap(), "{longer}");
            assert_eq!(stage.stats().damaged, n, "{longer}");
        }
        stage.goes_on();
    });
}

#[test]
fn b064_bytes_after_the_announced_end_spoil_neither_this_get_nor_the_next() {
    bounded(|| {
        let stage = Stage::settled(MIB, Settings::default(), |_| ());
        stage.set(1).unwrap();
        stage.set(2).unwrap();
        stage.on_pages(|request, n| match n {
            0 => Action::normal().surplus(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"),
            _ if request.method == "GET" => Action::normal(),
            _ => Action::normal(),
        });
        // The page itself came whole. What follows must not be taken for the answer to the next request.
        assert!(!matches!(stage.get(1), Ok(false)));
        for _ in 0..3 {
            assert!(stage.get(2).unwrap());
        }
        assert_eq!(stage.stats().damaged, 0);
    });
}

#[test]
fn b064_a_body_that_never_comes_ends_at_the_deadline_and_gives_its_slot_back() {
    bounded(|| {
        let stage = Stage::settled(MIB, Settings::default(), |_| ());
        stage.set(1).unwrap();
        stage.on_pages(|_, _| Action::normal().short(1000));
        let into = stage.pool.alloc(1).unwrap().remove(0);
        let batch = vec![Get { key: pages::key(1), into }];
        let call = Call { deadline: Deadline::After(Duration::from_millis(700)), ..Call::default() };
        let (outcomes, took) = timed(|| stage.backend.batch_get(batch, call).wait());
        let error = outcomes.into_iter().next().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
        assert!(took < Duration::from_secs(2), "{took:?}");
        stage.goes_on();
    });
}
