//! `Expect: 100-continue`, and servers that answer before they have read (B076).

use crate::stage::{MIB, Stage, timed};
use crate::stub::{Action, Expect, Reply, Settings, bounded};
use hicache_core::{ErrorKind, Stored};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn stage() -> Stage {
    Stage::settled(4 * MIB, Settings::default(), |_| ())
}

#[test]
fn b076_a_server_that_never_says_continue_delays_nothing() {
    bounded(|| {
        let stage = stage();
        stage.on_pages(|_, _| Action::normal().expect(Expect::Never));
        for n in 1..4 {
            let (set, took) = timed(|| stage.set(n));
            set.unwrap();
            assert!(took < SECOND, "{took:?}");
            assert!(stage.get(n).unwrap());
        }
        assert_eq!(stage.stub.count("PUT"), 3);
    });
}

#[test]
fn b076_interim_replies_are_passed_over() {
    bounded(|| {
        for replies in [vec![100], vec![100, 100], vec![102], vec![103], vec![102, 103, 100], vec![103; 20]] {
            let stage = stage();
            let sent = replies.clone();
            stage.on_pages(move |_, _| Action::normal().expect(Expect::Interim(sent.clone())));
            stage.set(1).unwrap_or_else(|error| panic!("{replies:?}: {error:?}"));
            assert!(stage.get(1).unwrap(), "{replies:?}");
            assert!(!stage.get(2).unwrap(), "{replies:?}");
            assert_eq!(stage.stats().retries, 0, "{replies:?}");
        }
    });
}

#[test]
fn b076_a_server_that_refuses_expectations_gets_the_page_without_one() {
    bounded(|| {
        let stage = stage();
        // One that objects to the header wherever it sees it.
        stage.on_pages(|request, _| match request.header("expect") {
            Some(_) => Action::error(417, "ExpectationFailed").early(),
            None => Action::normal(),
        });
        stage.set(1).unwrap();
        assert!(stage.stub.count("PUT") <= 2);
        assert!(stage.get(1).unwrap());
    });
}

#[test]
fn b076_an_early_refusal_ends_the_upload_and_says_denied() {
    bounded(|| {
        let stage = stage();
        stage.on_pages(|request, _| match request.method.as_str() {
            "PUT" => Action::error(403, "AccessDenied").early(),
            _ => Action::normal(),
        });
        let (set, took) = timed(|| stage.set(1));
        let error = set.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error:?}");
        assert!(took < 3 * SECOND, "{took:?}");
        assert_eq!(stage.stub.count("PUT"), 1);
        stage.goes_on();
    });
}

#[test]
fn b076_an_early_success_is_looked_at_before_it_is_believed() {
    bounded(|| {
        let stage = Stage::settled(16 * MIB, Settings::default(), |_| ());
        stage.on_pages(|request, n| match request.method.as_str() {
            "PUT" if n == 0 => Action::reply(Reply::new(200).with("etag", "\"x\"")).early(),
            _ => Action::normal(),
        });
        assert_eq!(stage.set(1).unwrap(), Stored::Written);
        assert!(stage.get(1).unwrap(), "it was never sent");
        assert_eq!((stage.stub.count("PUT"), stage.stub.count("HEAD")), (2, 1));
    });
}

#[test]
fn b076_an_early_slow_down_is_waited_out() {
    bounded(|| {
        let stage = stage();
        stage.on_pages(|request, n| match request.method.as_str() {
            "PUT" if n < 2 => Action::error(503, "SlowDown").early(),
            _ => Action::normal(),
        });
        stage.set(1).unwrap();
        assert!(stage.get(1).unwrap());
    });
}
