//! How many questions a leading run costs, and what it tells when it is cut short.

use crate::stage::Stage;
use crate::stub::{Action, Settings, bounded};
use hicache_core::{Call, Deadline, ErrorKind, Store};
use std::time::Duration;

/// Pages `0..len` but for `missing`, of which the store knows nothing.
fn unknown(len: u64, missing: u64) -> Stage {
    let stage = Stage::settled(4_096, Settings::default(), |options| {
        options.exists_ttl = Duration::ZERO;
        options.retries = 0;
    });
    stage.set_all(0..missing);
    stage.set_all(missing + 1..len);
    stage.stub.forget();
    stage
}

fn run_of(stage: &Stage, len: u64, call: Call) -> hicache_core::LeadingRun {
    stage.backend.leading_run(&hicache_testkit::pages::keys(0..len), call).wait()
}

#[test]
fn a_leading_run_asks_for_nothing_behind_a_known_miss() {
    bounded(|| {
        let stage = unknown(200, 40);
        let run = run_of(&stage, 200, Call::default());
        assert_eq!((run.len, run.error.is_none()), (40, true), "{run:?}");
        // What was accepted is done then.
        hicache_testkit::wait("close", stage.store.close()).unwrap();
        let asked = stage.page_requests();
        assert!(asked.iter().all(|request| request.method == "HEAD"));
        // Those before it, it, and at most as many behind it as were under way.
        assert!((41..=41 + 15).contains(&asked.len()), "{} requests", asked.len());
    });
}

#[test]
fn a_leading_run_waits_for_what_lies_before_a_miss_and_asks_for_nothing_more() {
    bounded(|| {
        let stage = unknown(100, 3);
        let slow = stage.object(1);
        stage.on_pages(move |request, _| match request.key == slow {
            true => Action::normal().wait(Duration::from_secs(1)),
            false => Action::normal(),
        });
        let run = run_of(&stage, 100, Call::default());
        assert_eq!((run.len, run.error.is_none()), (3, true), "{run:?}");
        assert!(stage.page_requests().len() <= 1 + 16, "{} requests", stage.page_requests().len());
    });
}

#[test]
fn a_leading_run_has_at_most_sixteen_questions_under_way_and_never_more_than_the_store_allows() {
    bounded(|| {
        for (concurrency, most) in [(32, 16), (3, 3)] {
            let stage = Stage::settled(4_096, Settings::default(), |options| {
                options.exists_ttl = Duration::ZERO;
                options.concurrency = std::num::NonZeroU32::new(concurrency).unwrap();
            });
            stage.set_all(0..60);
            stage.on_pages(|_, _| Action::normal().wait(Duration::from_millis(50)));
            assert_eq!(run_of(&stage, 60, Call::default()).len, 60);
            let mut starts: Vec<_> = stage.page_requests().iter().map(|request| request.at).collect();
            starts.sort();
            assert_eq!(starts.len(), 60);
            // Each takes 50 ms at least: of one more than may be under way, the last starts after the first has ended.
            for window in starts.windows(most + 1) {
                let apart = window[most] - window[0];
                assert!(apart >= Duration::from_millis(45), "{most}: {apart:?}");
            }
        }
    });
}

#[test]
fn a_leading_run_tells_what_it_knows_when_the_deadline_or_a_failure_ends_it() {
    bounded(|| {
        let stage = unknown(100, 99);
        let stuck = stage.object(5);
        let held = stuck.clone();
        stage.on_pages(move |request, _| match request.key == held {
            true => Action::normal().wait(Duration::from_secs(5)),
            false => Action::normal(),
        });
        let call = Call { deadline: Deadline::After(Duration::from_secs(1)), ..Call::default() };
        let (run, took) = crate::stage::timed(|| run_of(&stage, 100, call));
        assert_eq!(run.len, 5, "{run:?}");
        assert_eq!(run.error.unwrap().kind(), ErrorKind::Timeout);
        assert!(took < Duration::from_secs(3), "{took:?}");
        let refused = stuck.clone();
        stage.on_pages(move |request, _| match request.key == refused {
            true => Action::error(403, "AccessDenied"),
            false => Action::normal(),
        });
        let run = run_of(&stage, 100, Call::default());
        assert_eq!(run.len, 5, "{run:?}");
        assert_eq!(run.error.unwrap().kind(), ErrorKind::PermissionDenied);
        assert_eq!((stage.stats().timeouts, stage.stats().errors), (1, 1), "one question, one count");
        stage.goes_on();
        // A store that is closed says so.
        hicache_testkit::wait("close", stage.store.close()).unwrap();
        let run = run_of(&stage, 100, Call::default());
        assert_eq!((run.len, run.error.unwrap().kind()), (0, ErrorKind::Closed));
        assert_eq!(run_of(&stage, 0, Call::default()).error.unwrap().kind(), ErrorKind::Closed);
    });
}
