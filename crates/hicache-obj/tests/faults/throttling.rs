//! Servers that ask for fewer requests, or fail for a while (B068).

use crate::stage::{Stage, timed};
use crate::stub::{Action, Reply, Request, Settings, bounded, http_date, per_second};
use hicache_core::{Call, Deadline, ErrorKind, Get};
use hicache_testkit::pages;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const SECOND: Duration = Duration::from_secs(1);

fn stage() -> Stage {
    let stage = Stage::settled(65_536, Settings::default(), |_| ());
    stage.set(1).unwrap();
    stage
}

/// Between one request and the next.
fn gaps(requests: &[Request]) -> Vec<Duration> {
    requests.windows(2).map(|two| two[1].at - two[0].at).collect()
}

fn get_by(stage: &Stage, deadline: Duration) -> Result<bool, hicache_core::Error> {
    let into = stage.pool.alloc(1).unwrap().remove(0);
    let call = Call { deadline: Deadline::After(deadline), ..Call::default() };
    let outcomes = stage.backend.batch_get(vec![Get { key: pages::key(1), into }], call).wait();
    outcomes.into_iter().next().unwrap().map(|page| page.is_some())
}

#[test]
fn b068_slow_down_three_times_is_waited_out_with_growing_pauses() {
    bounded(|| {
        let stage = stage();
        for method in ["GET", "PUT", "HEAD"] {
            stage.on_pages(move |request, n| match n < 3 && request.method == method {
                true => Action::error(503, "SlowDown"),
                false => Action::normal(),
            });
            match method {
                "GET" => assert!(stage.get(1).unwrap()),
                "PUT" => stage.set_all(2..3),
                _ => assert!(!stage.exists(3).unwrap()),
            }
            let requests = stage.page_requests();
            let tried: Vec<Request> =
                requests.into_iter().filter(|request| request.method == method).collect();
            assert_eq!(tried.len(), 4, "{method}");
            let gaps = gaps(&tried);
            assert!(gaps[0] >= Duration::from_millis(100), "{method}: {gaps:?}");
            assert!(gaps[0] + gaps[1] + gaps[2] >= SECOND, "{method}: {gaps:?}");
            assert!(gaps[2] > gaps[0], "{method}: {gaps:?}");
        }
    });
}

#[test]
fn b068_pauses_differ_from_one_another() {
    bounded(|| {
        let stage = stage();
        let mut firsts = Vec::new();
        for _ in 0..6 {
            stage.on_pages(|_, n| if n == 0 { Action::error(503, "SlowDown") } else { Action::normal() });
            assert!(stage.get(1).unwrap());
            firsts.push(gaps(&stage.page_requests())[0]);
        }
        firsts.sort();
        assert!(firsts[5] - firsts[0] > Duration::from_millis(5), "all alike: {firsts:?}");
    });
}

#[test]
fn b068_retry_after_is_honoured_in_seconds_and_as_a_date() {
    bounded(|| {
        let stage = stage();
        for status in [429, 503] {
            stage.on_pages(move |_, n| match n {
                0 => Action::reply(Reply::new(status).with("retry-after", "1")),
                _ => Action::normal(),
            });
            assert!(stage.get(1).unwrap());
            let gap = gaps(&stage.page_requests())[0];
            assert!(SECOND <= gap && gap < 3 * SECOND, "{status}: {gap:?}");
        }
        stage.on_pages(|_, n| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            match n {
                0 => Action::reply(Reply::new(429).with("retry-after", http_date(now as i64 + 3))),
                _ => Action::normal(),
            }
        });
        assert!(stage.get(1).unwrap());
        let gap = gaps(&stage.page_requests())[0];
        assert!(2 * SECOND <= gap && gap < 5 * SECOND, "{gap:?}");
    });
}

#[test]
fn b068_a_retry_after_that_is_no_time_is_ignored() {
    bounded(|| {
        let stage = stage();
        for nonsense in ["soon", "-1", "", "Mon, 99 Foo 2026 00:00:00 GMT", "1e9", "0"] {
            stage.on_pages(move |_, n| match n {
                0 => Action::reply(Reply::new(429).with("retry-after", nonsense)),
                _ => Action::normal(),
            });
            let (got, took) = timed(|| stage.get(1));
            assert!(got.unwrap() && took < 3 * SECOND, "{nonsense:?}: {took:?}");
        }
        // A date that is past asks for nothing.
        stage.on_pages(|_, n| match n {
            0 => Action::reply(Reply::new(503).with("retry-after", http_date(0))),
            _ => Action::normal(),
        });
        assert!(stage.get(1).unwrap());
    });
}

#[test]
fn b068_a_retry_after_of_a_day_ends_at_the_deadline_as_throttled() {
    bounded(|| {
        let stage = stage();
        for long in ["86400", "18446744073709551615"] {
            stage.on_pages(move |_, _| Action::reply(Reply::new(429).with("retry-after", long)));
            let (got, took) = timed(|| get_by(&stage, 2 * SECOND));
            let error = got.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Throttled, "{error:?}");
            assert!(error.is_retryable());
            assert!(took < 4 * SECOND, "{took:?}");
            assert!(stage.page_requests().len() <= 3);
        }
        stage.goes_on();
    });
}

#[test]
fn b068_endless_slow_down_ends_at_the_deadline_as_throttled() {
    bounded(|| {
        let stage = stage();
        stage.on_pages(|_, _| Action::error(503, "SlowDown"));
        let (got, took) = timed(|| get_by(&stage, 3 * SECOND));
        let error = got.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Throttled, "{error:?}");
        assert!(took < 5 * SECOND, "{took:?}");
        let asked = stage.page_requests().len();
        assert!((2..=12).contains(&asked), "{asked} requests in 3 s");
        // A throttle is an answer: the service is there, and asked again at once.
        stage.stub.script(|_, _| Action::normal());
        assert!(stage.get(1).unwrap());
    });
}

#[test]
fn b068_a_code_inside_a_200_is_a_throttle_too() {
    bounded(|| {
        let stage = Stage::settled(3 << 20, Settings::default(), |options| {
            options.multipart_threshold = 1 << 20;
            options.part_len = 1 << 20;
        });
        stage.on_pages(|request, n| match request.method == "POST" && n < 6 {
            true if request.query_value("uploadId").is_some() => Action::error(200, "SlowDown"),
            _ => Action::normal(),
        });
        stage.set(1).unwrap();
        assert!(stage.get(1).unwrap());
    });
}

#[test]
fn b068_failures_of_the_server_are_tried_again() {
    bounded(|| {
        let stage = stage();
        for (status, code) in [
            (500, Some("InternalError")),
            (500, None),
            (502, None),
            (503, Some("ServiceUnavailable")),
            (503, None),
            (504, None),
            (408, None),
            (409, Some("OperationAborted")),
            (429, Some("TooManyRequests")),
            (429, None),
        ] {
            let fault = move || match code {
                Some(code) => Action::error(status, code),
                None => Action::status(status),
            };
            stage.on_pages(move |_, n| if n == 0 { fault() } else { Action::normal() });
            assert!(stage.get(1).unwrap(), "{status} {code:?}");
            assert_eq!(stage.page_requests().len(), 2, "{status} {code:?}");
        }
    });
}

#[test]
fn b068_what_would_not_change_is_asked_once() {
    bounded(|| {
        let stage = stage();
        for (status, code) in [
            (400, "InvalidRequest"),
            (400, "InvalidArgument"),
            (403, "AccessDenied"),
            (403, "InvalidAccessKeyId"),
            (403, "SignatureDoesNotMatch"),
            (401, "Unauthorized"),
            (405, "MethodNotAllowed"),
            (404, "NoSuchBucket"),
        ] {
            for method in ["GET", "PUT", "HEAD", "DELETE"] {
                stage.on_pages(move |_, _| Action::error(status, code));
                let failed = match method {
                    "GET" => stage.get(1).is_err(),
                    "PUT" => stage.set(2).is_err(),
                    "HEAD" => stage.exists(3).is_err(),
                    _ => stage.remove(3).is_err(),
                };
                // A HEAD, with which a removal begins, has no body: a missing bucket looks like a missing page.
                let blind = matches!(method, "HEAD" | "DELETE") && code == "NoSuchBucket";
                assert!(failed || blind, "{method} {status} {code}");
                let asked = stage.page_requests();
                assert_eq!(asked.len(), 1, "{method} {status} {code}: {asked:?}");
                stage.stub.script(|_, _| Action::normal());
            }
        }
    });
}

#[test]
fn b068_sixteen_at_once_under_a_limit_of_four_a_second_all_succeed_in_few_requests() {
    bounded(|| {
        let stage = Stage::settled(65_536, Settings::default(), |_| ());
        stage.set_all(0..16);
        let limit = per_second(4.0);
        stage.on_pages(limit);
        let slots = stage.pool.alloc(16).unwrap();
        let gets = (0..16).zip(slots).map(|(n, into)| Get { key: pages::key(n), into }).collect();
        let start = Instant::now();
        let outcomes = stage.backend.batch_get(gets, Call::default()).wait();
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(Some(_)))), "{outcomes:?}");
        let asked = stage.page_requests().len();
        assert!(asked <= 64, "{asked} requests in {:?}", start.elapsed());
    });
}
