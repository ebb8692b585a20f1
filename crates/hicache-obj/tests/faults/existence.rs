//! What is believed of pages that somebody else removes or writes (B079).

use crate::stage::{MIB, Stage};
use crate::stub::{Action, CEILING, Close, Settings, bounded};
use hicache_core::{Call, Deadline, ErrorKind, Get, Stored};
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

#[test]
fn a_damaged_page_is_not_taken_for_a_sound_one_by_a_listing() {
    bounded(|| {
        let stage = stage();
        stage.set(1).unwrap();
        let object = stage.object(1);
        let mut buckets = stage.stub.buckets();
        std::sync::Arc::make_mut(&mut buckets.get_mut("b", &object).unwrap().body)[7] ^= 1;
        drop(buckets);
        assert!(!stage.get(1).unwrap(), "it fails its check");
        assert!(!stage.exists(1).unwrap());
        // So many unknown ones are asked for by a listing, which knows lengths alone.
        let keys: Vec<_> = (1..200).map(hicache_testkit::pages::key).collect();
        let there = stage.backend.batch_exists(&keys, Call::default()).wait();
        assert!(stage.stub.requests().iter().any(|request| request.query_value("list-type").is_some()));
        assert!(there.iter().all(|there| !there.as_ref().unwrap()), "a listing is no check");
        assert_eq!(stage.set(1).unwrap(), Stored::Written, "what is damaged is replaced");
        assert!(stage.get(1).unwrap());
    });
}

#[test]
fn a_batch_that_is_longer_than_the_queue_is_taken_whole() {
    bounded(|| {
        let stage = stage();
        stage.set(1).unwrap();
        let key = hicache_testkit::pages::key(1);
        let call = Call { deadline: Deadline::After(CEILING), ..Default::default() };
        let there = stage.backend.batch_exists(&vec![key; 70_000], call).wait();
        assert_eq!(there.len(), 70_000);
        assert!(there.iter().all(|there| matches!(there, Ok(true))), "{:?}", there.first_error());
    });
}

#[test]
fn a_page_that_is_removed_while_it_is_read_is_not_believed_to_be_there() {
    bounded(|| {
        let stage = stage();
        stage.set(1).unwrap();
        stage.on_pages(|request, _| match request.method.as_str() {
            "GET" => Action::normal().pace(16_384, Duration::from_millis(250)),
            _ => Action::normal(),
        });
        let into = stage.pool.alloc(1).unwrap().remove(0);
        let get = Get { key: hicache_testkit::pages::key(1), into };
        let reading = stage.backend.batch_get(vec![get], Call::default());
        hicache_testkit::until("it is read", || stage.stub.count("GET") == 1);
        assert!(stage.remove(1).unwrap());
        assert!(
            reading.wait().into_iter().next().unwrap().unwrap().is_some(),
            "it was there when it was asked for"
        );
        assert!(!stage.exists(1).unwrap());
    });
}
