//! Servers that are slow but moving, and servers that stand still (B065).

use crate::stage::{MIB, Stage, timed};
use crate::stub::{self, Action, Settings, bounded};
use hicache_core::{Call, Deadline, ErrorKind, Get, Put};
use hicache_testkit::pages;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn impatient(len: usize, retries: u32) -> Stage {
    Stage::settled(len, Settings::default(), |options| {
        options.connect_timeout = SECOND;
        options.read_timeout = SECOND;
        options.retries = retries;
    })
}

#[test]
fn b065_a_steady_trickle_longer_than_any_timeout_succeeds() {
    bounded(|| {
        let stage = impatient(40 * 65_536, 0);
        stage.set(1).unwrap();
        stage.on_pages(|_, _| Action::normal().pace(65_536, Duration::from_millis(200)));
        let (got, took) = timed(|| stage.get(1));
        assert!(got.unwrap());
        assert!(took > 7 * SECOND, "{took:?}");
        assert_eq!(stage.stub.count("GET"), 1);
    });
}

#[test]
fn b065_late_headers_are_a_stall_told_after_the_read_timeout() {
    bounded(|| {
        let stage = impatient(65_536, 0);
        stage.set(1).unwrap();
        stage.on_pages(|_, _| Action::normal().wait(5 * SECOND));
        let (got, took) = timed(|| stage.get(1));
        let error = got.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
        assert!(error.is_retryable() && error.advice().unwrap().contains("raise read_timeout"), "{error:?}");
        assert!(SECOND / 2 < took && took < 3 * SECOND, "{took:?}");
        // The same for a set and for exists, which wait for an answer, too.
        stage.on_pages(|_, _| Action::normal().wait(5 * SECOND));
        let (set, took) = timed(|| stage.set(2));
        assert_eq!(set.unwrap_err().kind(), ErrorKind::Timeout);
        assert!(took < 3 * SECOND, "{took:?}");
        let (exists, took) = timed(|| stage.exists(3));
        assert_eq!(exists.unwrap_err().kind(), ErrorKind::Timeout);
        assert!(took < 3 * SECOND, "{took:?}");
        stage.goes_on();
    });
}

#[test]
fn b065_gaps_longer_than_the_read_timeout_are_a_stall() {
    bounded(|| {
        let stage = impatient(4 * 65_536, 0);
        stage.set(1).unwrap();
        stage.on_pages(|_, _| Action::normal().pace(65_536, 3 * SECOND / 2));
        let (got, took) = timed(|| stage.get(1));
        let error = got.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
        assert!(SECOND / 2 < took && took < 3 * SECOND, "{took:?}");
        stage.goes_on();
    });
}

#[test]
fn b065_a_stall_that_ends_is_asked_again_and_succeeds() {
    bounded(|| {
        let stage = impatient(4 * 65_536, 2);
        stage.set(1).unwrap();
        stage.on_pages(|_, n| match n {
            0 => Action::normal().wait(5 * SECOND),
            1 => Action::normal().pace(65_536, 3 * SECOND / 2),
            _ => Action::normal(),
        });
        let (got, took) = timed(|| stage.get(1));
        assert!(got.unwrap());
        assert!(took < 6 * SECOND, "{took:?}");
        assert_eq!(stage.stats().retries, 2);
    });
}

#[test]
fn b065_a_slow_upload_that_moves_succeeds() {
    bounded(|| {
        // The server takes it slower than the read timeout as a whole, though never standing still for so long.
        // What the kernel holds of it is taken in less than that time, too.
        let settings = Settings { receive_buffer: Some(256 << 10), ..Settings::default() };
        let stage = Stage::settled(32 * MIB, settings, |options| {
            options.read_timeout = SECOND;
            options.retries = 0;
        });
        stage.on_pages(|request, _| match request.method.as_str() {
            "PUT" => Action::normal().read_pace(512 << 10, Duration::from_millis(50)),
            _ => Action::normal(),
        });
        let (set, took) = timed(|| stage.set(1));
        set.unwrap();
        assert!(took > 2 * SECOND, "{took:?}");
        assert_eq!(stage.stub.count("PUT"), 1);
        assert!(stage.get(1).unwrap());
    });
}

#[test]
fn b065_a_server_that_takes_nothing_more_is_a_stall() {
    bounded(|| {
        let stage = impatient(16 * MIB, 0);
        stage.on_pages(|request, _| match request.method.as_str() {
            "PUT" => Action::normal().read_pace(256 << 10, 10 * SECOND),
            _ => Action::normal(),
        });
        let (set, took) = timed(|| stage.set(1));
        assert_eq!(set.unwrap_err().kind(), ErrorKind::Timeout);
        assert!(took < 4 * SECOND, "{took:?}");
        stage.stub.disconnect();
        stage.goes_on();
    });
}

#[test]
fn b065_a_caller_who_waits_late_is_not_blamed_on_the_server() {
    bounded(|| {
        let stage = impatient(MIB, 0);
        stage.set(1).unwrap();
        let mut into = stage.pool.alloc(1).unwrap().remove(0);
        pages::spoil(&mut into);
        let batch = vec![Get { key: pages::key(1), into }];
        let pending = stage.backend.batch_get(batch, Call::default());
        std::thread::sleep(3 * SECOND);
        let page = pending.wait().into_iter().next().unwrap().unwrap();
        stage.check(1, &page.unwrap());
    });
}

#[test]
fn b065_many_gets_that_queue_for_a_connection_are_not_stalled_requests() {
    bounded(|| {
        let stage = Stage::settled(65_536, Settings::default(), |options| {
            options.read_timeout = SECOND;
            options.retries = 0;
            options.concurrency = std::num::NonZeroU32::new(2).unwrap();
        });
        let count = 10;
        stage.set_all(0..count);
        stage.on_pages(|_, _| Action::normal().wait(SECOND / 2));
        let slots = stage.pool.alloc(count as usize).unwrap();
        let batch = (0..count).zip(slots).map(|(n, into)| Get { key: pages::key(n), into }).collect();
        let outcomes = stage.backend.batch_get(batch, Call::default()).wait();
        assert_eq!(outcomes.first_error().map(ToString::to_string), None);
    });
}

#[test]
fn b065_the_deadline_of_a_call_holds_whatever_the_server_does() {
    bounded(|| {
        let stage = Stage::settled(65_536, Settings::default(), |_| ());
        stage.set(1).unwrap();
        let call = Call { deadline: Deadline::After(SECOND / 2), ..Call::default() };
        let scripts: [fn() -> Action; 4] = [
            || Action::normal().wait(5 * SECOND),
            || Action::normal().pace(1024, SECOND / 5),
            || Action::error(503, "SlowDown"),
            || Action::hang_up(stub::Close::Rst),
        ];
        for (index, script) in scripts.into_iter().enumerate() {
            stage.on_pages(move |_, _| script());
            let into = stage.pool.alloc(1).unwrap().remove(0);
            let get = || stage.backend.batch_get(vec![Get { key: pages::key(1), into }], call).wait();
            let (got, took) = timed(get);
            assert!(got.first_error().is_some() && took < 2 * SECOND, "get {index}: {took:?} {got:?}");
            let Put { key, parent, page } = stage.put(2);
            let (set, took) = timed(|| stage.backend.batch_set(vec![Put { key, parent, page }], call).wait());
            // An answer that trickles is no trickle where the answer is empty.
            assert!(took < 2 * SECOND, "set {index}: {took:?}");
            assert!(set.first_error().is_some() || index == 1, "set {index}: {set:?}");
            let (exists, took) = timed(|| stage.backend.batch_exists(&[pages::key(3)], call).wait());
            assert!(took < 2 * SECOND, "exists {index}: {took:?}");
            assert!(exists.first_error().is_some() || index == 1, "exists {index}: {exists:?}");
            stage.stub.disconnect();
            stage.goes_on();
        }
    });
}

#[test]
fn a_set_does_not_wait_for_the_record_that_another_asks_for_beyond_its_own_deadline() {
    bounded(|| {
        let stage = Stage::with(65_536, Settings::default(), |_| ());
        stage.stub.script(|request, _| match request.key.ends_with("/namespace") {
            true => Action::normal().wait(8 * SECOND),
            false => Action::normal(),
        });
        let call = |seconds| Call { deadline: Deadline::After(seconds * SECOND), ..Call::default() };
        let patient = stage.backend.batch_set(vec![stage.put(1)], call(6));
        hicache_testkit::until("it asks", || {
            stage.stub.requests().iter().any(|one| one.key.ends_with("/namespace"))
        });
        let (hasty, took) = timed(|| stage.backend.batch_set(vec![stage.put(2)], call(1)).wait());
        let error = hasty.into_iter().next().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
        assert!(took < 3 * SECOND, "{took:?}");
        drop(patient.wait());
    });
}

#[test]
fn deadlines_that_are_shorter_than_the_read_timeout_do_not_keep_a_hanging_server_asked_for_ever() {
    bounded(|| {
        let stage = Stage::settled(65_536, Settings::default(), |options| options.read_timeout = 2 * SECOND);
        stage.on_pages(|_, _| Action::normal().wait(20 * SECOND));
        let call = Call { deadline: Deadline::After(SECOND / 2), ..Call::default() };
        let ask = |n| {
            let into = stage.pool.alloc(1).unwrap().remove(0);
            let (got, took) =
                timed(|| stage.backend.batch_get(vec![Get { key: pages::key(n), into }], call).wait());
            let error = got.into_iter().next().unwrap().unwrap_err();
            let advised = error.advice().is_some_and(|advice| advice.contains("a longer deadline"));
            assert!(advised || error.kind() != ErrorKind::Timeout, "{error:?}");
            (error.kind(), took)
        };
        let kinds: Vec<ErrorKind> = (0..8).map(|n| ask(n).0).collect();
        let late = kinds.iter().take_while(|kind| **kind == ErrorKind::Timeout).count();
        assert!((4..=5).contains(&late), "it is given the read timeout, in parts: {kinds:?}");
        assert!(kinds[late..].iter().all(|kind| *kind == ErrorKind::Unavailable), "{kinds:?}");
        assert!(ask(9).1 < SECOND / 4, "nobody waits for it");
        stage.stub.disconnect();
        stage.goes_on();
    });
}

#[test]
fn a_server_that_answers_now_and_then_or_trickles_is_asked_whatever_deadlines_cut_off() {
    bounded(|| {
        let stage = Stage::settled(65_536, Settings::default(), |options| options.read_timeout = SECOND);
        stage.set(1).unwrap();
        let call = Call { deadline: Deadline::After(SECOND / 2), ..Call::default() };
        let scripts: [fn(usize) -> Action; 2] = [
            |n| if n % 2 == 0 { Action::normal().wait(20 * SECOND) } else { Action::normal() },
            |_| Action::normal().pace(1_024, SECOND / 5),
        ];
        for (index, script) in scripts.into_iter().enumerate() {
            stage.on_pages(move |_, n| script(n));
            for turn in 0..8 {
                let into = stage.pool.alloc(1).unwrap().remove(0);
                let got = stage.backend.batch_get(vec![Get { key: pages::key(1), into }], call).wait();
                let refused = got.first_error().is_some_and(|error| error.kind() == ErrorKind::Unavailable);
                assert!(!refused, "{index}, {turn}: {got:?}");
            }
            stage.stub.disconnect();
            stage.goes_on();
        }
    });
}

#[test]
fn a_server_that_stands_still_is_not_asked_for_a_while_also_when_deadlines_end_the_attempts() {
    bounded(|| {
        let stage = Stage::settled(65_536, Settings::default(), |options| {
            options.read_timeout = SECOND;
            options.common.deadline = 3 * SECOND;
        });
        stage.on_pages(|_, _| Action::normal().wait(20 * SECOND));
        for n in 1..=3 {
            assert_eq!(stage.get(n).unwrap_err().kind(), ErrorKind::Timeout);
        }
        let (got, took) = timed(|| stage.get(4));
        assert_eq!(got.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(took < SECOND / 2, "{took:?}");
    });
}
