//! Uploads in parts that killed writers left behind: told, and given up by who repairs.

use crate::stage::{self, Stage};
use crate::stub::{Action, Reply, Settings, bounded};
use hicache_core::{Depth, Found, Namespace, PageLayout, Scan, State, Store};
use hicache_obj::{Finding, diagnose};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

const DAY: i64 = 24 * 3600;

/// With two old uploads, a young one, and old ones that are nobody's page or another prefix's.
fn littered() -> Stage {
    let stub = stage::guarded(Settings::default());
    let options = stage::options(&stub);
    let stage = Stage::open(stub, "//b/own", 4_096, options).unwrap();
    stage.set_all(0..2);
    let page = |n| stage.object(0).replace(&hicache_testkit::pages::key(0).to_string(), &key(n));
    let litter = [
        (page(7), 3 * DAY),
        (page(8), 2 * DAY),
        (page(9), DAY / 2),
        ("own/elsewhere".to_owned(), 9 * DAY),
        (page(7).replace("own/", "other/"), 9 * DAY),
    ];
    let mut buckets = stage.stub.buckets();
    litter.iter().for_each(|(name, seconds)| buckets.leave_upload("b", name, *seconds));
    drop(buckets);
    stage
}

fn key(n: u64) -> String {
    hicache_testkit::pages::key(n).to_string()
}

fn verify(stage: &Stage, scan: Scan) -> Vec<Found> {
    let finds = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&finds);
    let visitor = move |found| {
        sink.lock().unwrap().push(found);
        ControlFlow::Continue(())
    };
    stage.store.scan(scan, Box::new(visitor)).wait().unwrap();
    let mut finds = std::mem::take(&mut *finds.lock().unwrap());
    finds.retain(|found: &Found| matches!(found.state, State::Orphan(_)));
    finds
}

fn contents(repair: bool) -> Scan {
    Scan { depth: Depth::Contents, repair, ..Scan::default() }
}

#[test]
fn uploads_that_nobody_ends_are_told_by_a_scan_and_given_up_by_a_repair() {
    bounded(|| {
        for most in [1000, 1] {
            let stage = littered();
            stage.stub.buckets().most_listed = most;
            let told = verify(&stage, contents(false));
            let names: Vec<bool> =
                [7, 8].map(|n| told.iter().any(|found| found.place.ends_with(&key(n)))).to_vec();
            assert_eq!((told.len(), names), (2, vec![true, true]), "{told:?}");
            assert!(told.iter().any(|found| format!("{:?}", found.state).contains("3 days")), "{told:?}");
            assert_eq!(stage.stub.buckets().open_uploads(), 5, "nothing is removed unasked");
            let repaired = verify(&stage, contents(true));
            assert!(repaired.len() == 2 && repaired.iter().all(|found| found.repaired), "{repaired:?}");
            assert_eq!(stage.stub.buckets().open_uploads(), 3, "the young, and what is not ours, stay");
            assert_eq!(verify(&stage, contents(true)).len(), 0);
            stage.stub.buckets().most_listed = 1000;
            stage.goes_on();
        }
    });
}

#[test]
fn a_scan_of_one_namespace_tells_of_its_own_uploads_and_one_of_names_of_none() {
    bounded(|| {
        let stage = littered();
        let own = Scan { namespace: Some(stage.namespace.digest()), ..contents(false) };
        assert_eq!(verify(&stage, own).len(), 2);
        let other = Namespace::named("other", PageLayout::opaque(4_096).unwrap()).unwrap();
        let other = Scan { namespace: Some(other.digest()), ..contents(true) };
        assert_eq!(verify(&stage, other).len(), 0);
        stage.stub.forget();
        assert_eq!(verify(&stage, Scan::default()).len(), 0);
        let asked = stage.stub.requests();
        assert!(asked.iter().all(|request| request.query_value("uploads").is_none()), "{asked:?}");
        assert_eq!(stage.stub.buckets().open_uploads(), 5);
    });
}

#[test]
fn a_service_that_does_not_list_uploads_is_verified_without() {
    bounded(|| {
        let refusals: [fn() -> Action; 5] = [
            || Action::error(501, "NotImplemented"),
            || Action::error(405, "MethodNotAllowed"),
            || Action::error(403, "AccessDenied"),
            || Action::error(400, "InvalidRequest"),
            // Of a service that takes it for a question for objects.
            || {
                let listing = "<ListBucketResult><Name>b</Name><KeyCount>0</KeyCount><MaxKeys>1000</MaxKeys>\
                               <IsTruncated>false</IsTruncated></ListBucketResult>";
                Action::reply(Reply::new(200).with("content-type", "application/xml").holding(listing))
            },
        ];
        for (status, refusal) in refusals.into_iter().enumerate() {
            let stage = littered();
            stage.stub.script(move |request, _| match request.query_value("uploads").is_some() {
                true => refusal(),
                false => Action::normal(),
            });
            assert_eq!(verify(&stage, contents(true)).len(), 0, "{status}");
            assert!(stage.store.health().fallbacks.is_empty(), "uploads have all they had");
            assert!(row(&stage).is_none(), "{status}");
            stage.goes_on();
        }
    });
}

#[test]
fn the_doctor_counts_unfinished_uploads_and_says_what_takes_them() {
    bounded(|| {
        let stage = littered();
        let told = row(&stage).unwrap();
        assert!(!told.ok && told.found == "4 unfinished, the oldest begun 9 days ago", "{told:?}");
        assert!(told.fix.contains("verify --repair") && told.fix.contains("lifecycle rule"), "{told:?}");
        let clean = Stage::new(4_096);
        let told = row(&clean).unwrap();
        assert!(told.ok && told.found.contains("no upload"), "{told:?}");
        clean.stub.buckets().leave_upload("b", "x", 3 * 3600);
        let told = row(&clean).unwrap();
        assert!(told.ok && told.found == "1 unfinished, the oldest begun 3 h ago", "{told:?}");
    });
}

fn row(stage: &Stage) -> Option<Finding> {
    let location = if stage.is_stored(0) { "//b/own" } else { "//b" };
    let all = diagnose(location, stage::options(&stage.stub)).unwrap();
    all.into_iter().find(|finding| finding.name == "s3_uploads")
}
