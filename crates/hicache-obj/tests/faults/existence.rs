//! What is believed of pages that somebody else removes or writes (B079).

use crate::stage::{MIB, Stage};
use crate::stub::{Action, Close, Settings, bounded};
use hicache_core::{ErrorKind, Stored};
use std::time::Duration;

fn stage() -> Stage {
    Stage::settled(65_536, Settings::default(), |options| {
        options.exists_ttl = Duration::from_secs(3600);
        options.retries = 0;
    })
}

#[test]
fn b079_a_page_that_a_lifecycle_rule_removed_is_missed_once_and_then_known_to_be_gone() {
    bounded(|| {
        let stage = stage();
        stage.set(1).unwrap();
        assert!(stage.exists(1).unwrap());
        let object = stage.object(1);
        let removed = stage.stub.buckets().remove("b", &object).unwrap();
        assert!(!stage.get(1).unwrap());
        assert!(!stage.exists(1).unwrap());
        assert_eq!((stage.stats().misses, stage.stats().damaged), (1, 0));
        // Another client puts it back: absence is not believed for long.
        stage.stub.buckets().insert("b", &object, removed);
        hicache_testkit::until("it is seen again", || stage.exists(1).unwrap());
        assert!(stage.get(1).unwrap());
    });
}

#[test]
fn b079_a_page_that_is_gone_can_be_set_again_by_whoever_noticed_and_whoever_did_not() {
    bounded(|| {
        for noticed in [false, true] {
            let stage = stage();
            stage.set(1).unwrap();
            let object = stage.object(1);
            stage.stub.buckets().remove("b", &object).unwrap();
            assert!(!noticed || !stage.get(1).unwrap());
            assert_eq!(stage.set(1).unwrap(), Stored::Written, "{noticed}");
            assert!(stage.is_stored(1) && stage.get(1).unwrap(), "{noticed}");
        }
    });
}

#[test]
fn b079_a_failure_of_the_service_unsettles_nothing_that_is_known() {
    bounded(|| {
        let faults: [fn() -> Action; 5] = [
            || Action::error(503, "ServiceUnavailable"),
            || Action::error(503, "SlowDown"),
            || Action::error(403, "AccessDenied"),
            || Action::hang_up(Close::Rst),
            || Action::normal().cut(100, Close::Fin),
        ];
        for (index, fault) in faults.into_iter().enumerate() {
            let stage = stage();
            stage.set(1).unwrap();
            assert!(stage.exists(1).unwrap());
            stage.on_pages(move |_, _| fault());
            stage.get(1).unwrap_err();
            stage.stub.forget();
            assert!(stage.exists(1).unwrap(), "{index}");
            assert!(stage.page_requests().is_empty(), "{index}: it was known without asking");
            stage.goes_on();
        }
    });
}

#[test]
fn b079_belief_ends_with_its_time() {
    bounded(|| {
        let stage = Stage::settled(65_536, Settings::default(), |options| {
            options.exists_ttl = Duration::from_millis(200);
        });
        stage.set(1).unwrap();
        assert!(stage.exists(1).unwrap());
        let object = stage.object(1);
        stage.stub.buckets().remove("b", &object);
        hicache_testkit::until("it is asked for again", || !stage.exists(1).unwrap());
        let stage =
            Stage::settled(65_536, Settings::default(), |options| options.exists_ttl = Duration::ZERO);
        stage.set(1).unwrap();
        let object = stage.object(1);
        stage.stub.buckets().remove("b", &object);
        assert!(!stage.exists(1).unwrap(), "0 believes nothing");
    });
}

#[test]
fn b079_a_page_that_vanishes_between_its_parts_is_a_miss() {
    bounded(|| {
        let stage = std::sync::Arc::new(Stage::settled(4 * MIB, Settings::default(), |options| {
            options.multipart_threshold = MIB as u64;
            options.part_len = MIB as u64;
        }));
        stage.set(1).unwrap();
        let object = stage.object(1);
        let removing = std::sync::Arc::downgrade(&stage);
        stage.on_pages(move |_, n| {
            if let (2, Some(stage)) = (n, removing.upgrade()) {
                stage.stub.buckets().remove("b", &object);
            }
            Action::normal()
        });
        assert!(!stage.get(1).unwrap());
        assert!(!stage.exists(1).unwrap());
    });
}

#[test]
fn b079_a_bucket_that_vanishes_is_an_error_and_never_a_miss() {
    bounded(|| {
        let stage = stage();
        stage.set(1).unwrap();
        stage.on_pages(|_, _| Action::error(404, "NoSuchBucket"));
        for _ in 0..2 {
            let error = stage.get(1).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
        }
        let error = stage.set(2).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
        assert_eq!(stage.stats().misses, 0);
    });
}
