//! Connections that a server has closed meanwhile (B067), and how many there are.

use crate::stage::{self, MIB, Stage, TAIL, timed};
use crate::stub::{Action, Close, Idle, IdleEnd, Settings, Stub, bounded};
use hicache_core::{Call, ErrorKind, Get, StoreExt as _};
use hicache_obj::{Endpoint, ObjOptions, ObjStore};
use hicache_testkit::pages;
use std::time::Duration;

const AFTER: Duration = Duration::from_millis(300);

/// Rounds of one way to end a connection; five ways make 200.
const ROUNDS: u64 = 40;

fn closing(how: IdleEnd, len: usize) -> Stage {
    Stage::settled(len, Settings { idle: Some(Idle { after: AFTER, how }), ..Settings::default() }, |_| ())
}

/// PUT, a pause around the server's patience, PUT, GET: all succeed, none is sent more than twice.
fn rounds(how: IdleEnd) {
    bounded(move || {
        let pauses = [250, 310, 500].map(Duration::from_millis);
        let lanes: Vec<_> = (0..8).map(|_| closing(how, 300_000)).collect();
        std::thread::scope(|scope| {
            for (lane, stage) in lanes.iter().enumerate() {
                scope.spawn(move || {
                    for round in 0..ROUNDS / 8 {
                        let n = 10 * round;
                        stage.set(n).unwrap();
                        std::thread::sleep(pauses[(lane + round as usize) % 3]);
                        stage.set(n + 1).unwrap();
                        assert!(stage.get(n).unwrap());
                    }
                });
            }
        });
        for stage in lanes {
            let stats = stage.stats();
            assert_eq!((stats.errors, stats.damaged), (0, 0), "{stats:?}");
            let mut tries = std::collections::HashMap::<_, u32>::new();
            for request in stage.page_requests() {
                *tries.entry((request.method, request.key)).or_default() += 1;
            }
            for ((method, key), count) in tries {
                assert!(count <= 2, "{how:?}: {method} of {key} was sent {count} times");
            }
            // At most one retry for each pause; there is one before the first round, too.
            assert!(stats.retries <= ROUNDS / 8 + 1, "{how:?}: {stats:?}");
        }
    });
}

#[test]
fn b067_connections_closed_in_order_while_idle_cost_at_most_a_retry() {
    rounds(IdleEnd::Close(Close::Fin));
}

#[test]
fn b067_connections_reset_while_idle_cost_at_most_a_retry() {
    rounds(IdleEnd::Close(Close::Rst));
}

#[test]
fn b067_connections_half_closed_while_idle_cost_at_most_a_retry() {
    rounds(IdleEnd::Close(Close::Half));
}

#[test]
fn b067_a_request_timeout_told_on_reuse_costs_at_most_a_retry() {
    rounds(IdleEnd::Refuse);
}

#[test]
fn b067_a_request_timeout_told_unasked_costs_at_most_a_retry() {
    rounds(IdleEnd::Unasked);
}

#[test]
fn b067_a_body_is_sent_again_from_its_start() {
    bounded(|| {
        for close in [Close::Fin, Close::Rst, Close::Half] {
            for early in [false, true] {
                let stage = Stage::settled(4 * MIB, Settings::default(), |options| options.retries = 3);
                stage.on_pages(move |request, _| match request.method.as_str() {
                    "PUT" if request.connection < 2 && early => Action::hang_up(close).early(),
                    "PUT" if request.connection < 2 => Action::hang_up(close),
                    _ => Action::normal(),
                });
                stage.set(1).unwrap_or_else(|error| panic!("{close:?} {early}: {error:?}"));
                let bodies: Vec<usize> =
                    stage.page_requests().iter().map(|request| request.body_len).collect();
                assert_eq!(bodies.last(), Some(&(4 * MIB + TAIL)), "{close:?} {early}: {bodies:?}");
                assert!(stage.get(1).unwrap());
            }
        }
    });
}

#[test]
fn b067_all_connections_ended_at_once_cost_no_operation() {
    bounded(|| {
        let stage = Stage::settled(65_536, Settings::default(), |_| ());
        for round in 0..10 {
            let puts = (0..16).map(|n| stage.put(100 * round + n)).collect();
            let outcomes = stage.backend.batch_set(puts, Call::default()).wait();
            assert!(outcomes.first_error().is_none(), "{outcomes:?}");
            stage.stub.disconnect();
            let slots = stage.pool.alloc(16).unwrap();
            let gets = (0..16).zip(slots);
            let gets = gets.map(|(n, into)| Get { key: pages::key(100 * round + n), into }).collect();
            let outcomes = stage.backend.batch_get(gets, Call::default()).wait();
            assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(Some(_)))), "{outcomes:?}");
        }
    });
}

#[test]
fn connections_are_reused_across_batches_and_bounded_by_the_concurrency() {
    bounded(|| {
        let stage = Stage::settled(65_536, Settings::default(), |options| {
            options.concurrency = std::num::NonZeroU32::new(4).unwrap();
        });
        for batch in 0..10 {
            let puts = (0..16).map(|n| stage.put(100 * batch + n)).collect();
            assert!(stage.backend.batch_set(puts, Call::default()).wait().first_error().is_none());
            let slots = stage.pool.alloc(16).unwrap();
            let gets = (0..16).zip(slots);
            let gets = gets.map(|(n, into)| Get { key: pages::key(100 * batch + n), into }).collect();
            assert!(stage.backend.batch_get(gets, Call::default()).wait().first_error().is_none());
        }
        assert!(stage.page_requests().len() >= 320);
        assert!(stage.stub.connections() <= 4, "{} connections", stage.stub.connections());
        drop(stage.backend);
        drop(stage.store);
        hicache_testkit::until("the connections end with the store", || stage.stub.open_connections() == 0);
    });
}

#[test]
fn connections_that_nobody_uses_are_closed_after_a_while_and_with_the_store() {
    bounded(|| {
        let idle_timeout = Duration::from_millis(400);
        let stage =
            Stage::settled(65_536, Settings::default(), |options| options.idle_timeout = idle_timeout);
        for n in 0..3 {
            stage.set_all(10 * n..10 * n + 8);
            assert!(stage.stub.open_connections() > 0);
            hicache_testkit::until("nobody uses them", || stage.stub.open_connections() == 0);
        }
        stage.set_all(100..108);
        stage.store.close_blocking().unwrap();
        hicache_testkit::until("the store is closed", || stage.stub.open_connections() == 0);
    });
}

#[test]
fn a_server_that_is_not_there_is_told_at_once_and_found_again() {
    bounded(|| {
        let stage = Stage::settled(65_536, Settings::default(), |options| options.retries = 0);
        stage.set(1).unwrap();
        stage.on_pages(|_, _| Action::hang_up(Close::Rst));
        for _ in 0..5 {
            let (got, took) = timed(|| stage.get(1));
            let error = got.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Io), "{error:?}");
            assert!(took < Duration::from_secs(1), "{took:?}");
        }
        // After repeated failures it is not asked at all for a while.
        let asked = stage.page_requests().len();
        assert!(asked < 5, "{asked}");
        let error = stage.get(1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert_eq!(stage.page_requests().len(), asked);
        stage.goes_on();
    });
}

#[test]
fn an_endpoint_where_nobody_listens_is_named_with_what_to_check() {
    bounded(|| {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let there = |stub: &Stub| ObjOptions {
            endpoint: Some(Endpoint::parse(&format!("http://{closed}")).unwrap()),
            retries: 0,
            ..stage::options(stub)
        };
        let stub = Stub::start();
        let error = ObjStore::open("//bucket", there(&stub)).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        let endpoint = format!("http://{closed}");
        assert_eq!(error.fact("endpoint"), Some(endpoint.as_str()), "{error:?}");
        assert!(stage::story(&error).contains("check that the service runs"), "{error:?}");
    });
}
