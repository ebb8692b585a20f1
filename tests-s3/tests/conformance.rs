//! The contract, and the reference model, on a real server.

use hicache_s3_tests::{Kind, S3Server};
use hicache_testkit::{Medium, Openers, Reopened, Subject, conformance, model};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::sync::atomic::{AtomicU32, Ordering};

/// Each medium is a part of the bucket of its own; tests at once may share a server, and so a bucket.
fn subject(server: &S3Server, test: &'static str) -> Subject {
    let access = server.access().clone();
    let (run, count) = (std::process::id(), AtomicU32::new(0));
    Subject::new("s3", Reopened::Whole, Openers::Many, move || {
        let prefix = format!("{test}/{run}-{}", count.fetch_add(1, Ordering::Relaxed));
        let url = access.url(&prefix);
        Medium::of(move || hicache::open(&url).expect("the store opens"))
    })
}

#[test]
fn a_bucket_of_a_real_server_keeps_the_contract() {
    let test = "a_bucket_of_a_real_server_keeps_the_contract";
    let Some(server) = S3Server::for_test(test, &Kind::ALL) else { return };
    conformance::all(&subject(&server, test));
}

/// A directory of its own over a part of the bucket of its own.
fn tier(server: &S3Server, write: &'static str) -> Subject {
    let access = server.access().clone();
    let (run, count) = (std::process::id(), AtomicU32::new(0));
    Subject::new("file over s3", Reopened::Whole, Openers::One, move || {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let prefix = format!("tier/{write}-{run}-{}", count.fetch_add(1, Ordering::Relaxed));
        let second = access.url(&prefix);
        Medium::of(move || {
            let first = format!("file:{}", dir.path().join("store").display());
            let encoded = |url: &str| utf8_percent_encode(url, NON_ALPHANUMERIC).to_string();
            let (first, second) = (encoded(&first), encoded(&second));
            hicache::open(&format!("tier:?first={first}&second={second}&write={write}"))
                .expect("the tiers open")
        })
    })
}

#[test]
fn a_directory_over_a_bucket_keeps_the_contract() {
    let test = "a_directory_over_a_bucket_keeps_the_contract";
    let Some(server) = S3Server::for_test(test, &Kind::ALL) else { return };
    conformance::all(&tier(&server, "through"));
}

#[test]
fn a_directory_over_a_bucket_written_behind_keeps_the_contract() {
    let test = "a_directory_over_a_bucket_written_behind_keeps_the_contract";
    let Some(server) = S3Server::for_test(test, &Kind::ALL) else { return };
    conformance::all(&tier(&server, "behind"));
}

#[test]
fn a_bucket_of_a_real_server_does_what_the_model_does() {
    let test = "a_bucket_of_a_real_server_does_what_the_model_does";
    let Some(server) = S3Server::for_test(test, &Kind::ALL) else { return };
    model::check(&subject(&server, test), 20);
}
