//! Servers at the endpoint that are no S3: they are refused when the store is opened, and no page is a miss there.

use crate::stage::{self, Stage};
use crate::stub::{Action, Reply, Settings, Stub, bounded, endless};
use hicache_core::ErrorKind;
use hicache_obj::{Finding, ObjOptions, ObjStore, diagnose};

/// What a web server says, without what only S3 adds.
fn bare(status: u16, page: &str) -> Action {
    let body = page.as_bytes().to_vec();
    Action::reply(Reply { body, ..Reply::new(status) }).edit(|reply| reply.unset("x-amz-request-id"))
}

fn answering(status: u16, page: &'static str) -> Stub {
    let stub = stage::guarded(Settings::default());
    stub.script(endless(move |_| bare(status, page)));
    stub
}

const PAGE: &str = "<html><body><h1>Not here</h1></body></html>";

#[test]
fn a_web_server_that_has_nothing_refuses_or_has_everything_is_no_service_where_all_is_a_miss() {
    bounded(|| {
        for (status, page) in [(404, PAGE), (404, ""), (403, PAGE), (200, PAGE), (206, "<")] {
            let stub = answering(status, page);
            let error = ObjStore::open("//b", stage::options(&stub)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{status} {page:?}: {error:?}");
            let story = stage::story(&error);
            assert!(
                story.contains("does not answer as S3 does") && story.contains("host and port"),
                "{story}"
            );
            assert!(!error.is_retryable(), "{status}");
        }
    });
}

#[test]
fn an_error_document_without_a_name_of_the_request_is_an_answer_of_s3() {
    bounded(|| {
        let stub = stage::guarded(Settings::default());
        stub.script(|_, _| Action::normal().edit(|reply| reply.unset("x-amz-request-id")));
        let options = stage::options(&stub);
        let stage = Stage::open(stub, "//b", 65_536, options).unwrap();
        assert!(!stage.get(1).unwrap());
        stage.set(1).unwrap();
        assert!(stage.get(1).unwrap());
    });
}

#[test]
fn the_doctor_tells_a_web_server_from_s3_and_says_nothing_more_of_it() {
    bounded(|| {
        for (status, page) in [(404, PAGE), (404, ""), (200, PAGE)] {
            let stub = answering(status, page);
            let all = rows(stage::options(&stub));
            let reached = all.iter().find(|row| row.name == "s3_reachable").unwrap();
            assert!(!reached.ok && reached.found.contains("does not answer as S3 does"), "{reached:?}");
            assert!(reached.fix.contains("host and port"), "{reached:?}");
            let said: Vec<_> =
                all.iter().map(|row| row.name).filter(|name| *name != "s3_clock_skew").collect();
            assert_eq!(said, ["s3_reachable"], "{status}: {all:?}");
        }
    });
}

#[test]
fn the_doctor_says_nothing_of_keys_and_names_that_nobody_was_heard_of() {
    bounded(|| {
        let stub = stage::guarded(Settings::default());
        let options = stage::options(&stub);
        let heard: Vec<_> = rows(options.clone()).iter().map(|row| (row.name, row.ok)).collect();
        for name in ["s3_reachable", "s3_credentials", "s3_bucket", "s3_addressing"] {
            assert!(heard.contains(&(name, true)), "{name}: {heard:?}");
        }
        drop(stub);
        let all = rows(options);
        assert_eq!(all.iter().map(|row| (row.name, row.ok)).collect::<Vec<_>>(), [("s3_reachable", false)]);
    });
}

fn rows(options: ObjOptions) -> Vec<Finding> {
    diagnose("//b", options).unwrap()
}
