//! What the options say and only the service can do, and what they limit: seen from the service's side.

use crate::stage::{self, MIB, Stage, alone, is_child};
use crate::stub::{Access, Action, Reply, Settings, Stub, bounded};
use hicache_core::Call;
use hicache_obj::{Credentials, Encryption, ObjOptions};
use std::num::NonZeroU32;
use std::time::Duration;

/// Encryption and storage class, of pages in one request and in parts.
#[test]
fn encryption_and_storage_class_are_passed_on_with_every_page() {
    bounded(|| {
        for (encryption, header, key) in [
            (Encryption::Service, "AES256", None),
            (Encryption::Kms(None), "aws:kms", None),
            (Encryption::Kms(Some("k/1".to_string())), "aws:kms", Some("k/1")),
        ] {
            for (len, begins) in [(MIB, "PUT"), (11 * MIB, "POST")] {
                let stage = Stage::with(len, Settings::default(), |options| {
                    options.encryption = Some(encryption.clone());
                    options.storage_class = Some("STANDARD_IA".to_string());
                    (options.multipart_threshold, options.part_len) = (5 << 20, 5 << 20);
                });
                stage.set(1).unwrap();
                let requests = stage.stub.requests();
                let first =
                    requests.iter().find(|request| stage::is_page(request) && request.method == begins);
                let first = first.expect("a page is uploaded");
                assert_eq!(first.header("x-amz-server-side-encryption"), Some(header), "{len}");
                assert_eq!(first.header("x-amz-server-side-encryption-aws-kms-key-id"), key, "{len}");
                assert_eq!(first.header("x-amz-storage-class"), Some("STANDARD_IA"), "{len}");
                assert!(stage.get(1).unwrap());
            }
        }
        let plain = Stage::new(MIB);
        plain.set(1).unwrap();
        let sent = |name: &str| plain.stub.requests().iter().any(|request| request.header(name).is_some());
        assert!(!sent("x-amz-server-side-encryption") && !sent("x-amz-storage-class"));
    });
}

#[test]
fn no_more_requests_are_under_way_than_the_concurrency_says() {
    bounded(|| {
        for concurrency in [1, 5] {
            let stage = Stage::settled(65_536, Settings::default(), |options| {
                options.concurrency = NonZeroU32::new(concurrency).unwrap();
            });
            stage.stub.script(|_, _| Action::normal().wait(Duration::from_millis(10)));
            let puts = (0..32).map(|n| stage.put(n)).collect();
            let outcomes = stage.backend.batch_set(puts, Call::default()).wait();
            assert!(outcomes.first_error().is_none(), "{outcomes:?}");
            let open = stage.stub.open_connections();
            assert!(open <= concurrency as usize + 1, "{open} connections for {concurrency} requests");
        }
    });
}

#[test]
fn a_connection_is_kept_unused_no_longer_than_its_time() {
    bounded(|| {
        let stage = Stage::settled(65_536, Settings::default(), |options| {
            options.idle_timeout = Duration::from_millis(200);
        });
        stage.set(1).unwrap();
        hicache_testkit::until("unused connections are closed", || stage.stub.open_connections() == 0);
        assert!(stage.get(1).unwrap(), "and new ones are made");
    });
}

#[test]
fn credentials_of_the_instance_are_used() {
    const TEST: &str = "passed_on::credentials_of_the_instance_are_used";
    if !is_child() {
        let giver = Stub::start();
        giver.script(|request, _| {
            let text = |body: &str| Action::reply(Reply::new(200).holding(body.to_string()));
            match request.path.as_str() {
                "/latest/api/token" => Action::reply(
                    Reply::new(200)
                        .with("x-aws-ec2-metadata-token-ttl-seconds", "600")
                        .holding("t".to_string()),
                ),
                path if path.ends_with("/security-credentials/") || path.ends_with("-extended/") => {
                    text("role")
                }
                path if path.ends_with("/role") => text(
                    "{\"Code\":\"Success\",\"Type\":\"AWS-HMAC\",\"LastUpdated\":\"2026-01-01T00:00:00Z\",\
                     \"AccessKeyId\":\"of-instance\",\"SecretAccessKey\":\"secret\",\"Token\":\"t\",\
                     \"Expiration\":\"2099-01-01T00:00:00Z\"}",
                ),
                _ => Action::status(404),
            }
        });
        let endpoint = giver.endpoint();
        alone(TEST, &[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &endpoint)], &[]);
        return;
    }
    bounded(|| {
        let key = Access { token: Some("t".to_string()), ..Access::new("of-instance", "secret") };
        let stub = stage::guarded(Settings { keys: vec![key], ..Settings::default() });
        let options = ObjOptions { credentials: Credentials::Instance, ..stage::options(&stub) };
        let stage = Stage::open(stub, "//b", 65_536, options).unwrap();
        stage.set(1).unwrap();
        assert!(stage.get(1).unwrap());
    });
}
