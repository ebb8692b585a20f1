//! Servers that do not know the newer checksum headers, or that misread them (B060).

use crate::stage::{MIB, Stage, TAIL, story};
use crate::stub::{Action, Framing, Reply, Request, Settings, bounded};
use hicache_core::{ErrorKind, Store};
use hicache_obj::{ChecksumMode, ObjOptions};

/// A server of the time before: 501 to what it does not know, 400 to framing, and it wants to be told lengths.
fn old_server(request: &Request) -> Action {
    let sha = request.header("x-amz-content-sha256").unwrap_or_default();
    let coding = request.header("content-encoding").unwrap_or_default();
    if refused_header(request).is_some() {
        return Action::error(501, "NotImplemented");
    }
    if coding.contains("aws-chunked") || sha.starts_with("STREAMING-") {
        return Action::reply(Reply::new(400));
    }
    if matches!(request.method.as_str(), "PUT" | "POST") && request.content_length().is_none() {
        return Action::error(411, "MissingContentLength");
    }
    Action::normal()
}

/// `x-amz-checksum-mode` of a get asks for nothing and is let pass.
fn refused_header(request: &Request) -> Option<&str> {
    let names = request.headers.iter().map(|(name, _)| name.as_str());
    let refused = ["x-amz-checksum-", "x-amz-sdk-checksum-algorithm", "x-amz-trailer"];
    names
        .filter(|name| *name != "x-amz-checksum-mode")
        .find(|name| refused.iter().any(|part| name.starts_with(part)))
}

#[test]
fn b060_by_default_an_old_server_takes_everything_at_the_first_request() {
    bounded(|| {
        for mode in [ChecksumMode::Auto, ChecksumMode::Off] {
            let stage = Stage::settled(65_536, Settings::default(), |options| options.checksum_mode = mode);
            stage.on_pages(|request, _| old_server(request));
            stage.set(1).unwrap();
            let sets = stage.page_requests();
            assert_eq!(sets.iter().filter(|request| request.method == "PUT").count(), 1, "{sets:?}");
            assert!(stage.get(1).unwrap());
            let object = stage.object(1);
            stage.stub.buckets().remove("b", &object);
            assert!(!stage.get(1).unwrap());
            assert!(!stage.exists(1).unwrap());
            assert_eq!(stage.stats().retries, 0);
            assert!(stage.store.health().fallbacks.is_empty(), "{:?}", stage.store.health());
        }
    });
}

#[test]
fn b060_what_the_store_itself_needs_works_on_an_old_server_too() {
    bounded(|| {
        // Records, listings, removal of many: operations for which the SDK likes to send checksums by itself.
        let stage = Stage::new(65_536);
        stage.stub.script(|request, _| old_server(request));
        for n in 0..5 {
            stage.set(n).unwrap();
        }
        assert!(stage.remove(0).unwrap());
        assert_eq!(hicache_testkit::wait("namespaces", stage.store.namespaces()).unwrap().len(), 1);
        assert_eq!(hicache_testkit::wait("clear", stage.store.clear(&stage.namespace)).unwrap(), 4);
        assert_eq!(stage.stub.buckets().keys("b"), [""; 0]);
    });
}

#[test]
fn b060_pages_in_parts_reach_an_old_server_too() {
    bounded(|| {
        let stage = Stage::settled(3 * MIB, Settings::default(), |options| {
            options.multipart_threshold = MIB as u64;
            options.part_len = MIB as u64;
        });
        stage.on_pages(|request, _| old_server(request));
        stage.set(1).unwrap();
        assert!(stage.get(1).unwrap());
        assert_eq!(stage.stats().retries, 0);
    });
}

#[test]
fn b060_an_explicit_checksum_that_is_refused_is_one_request_and_says_what_to_do() {
    bounded(|| {
        for refusal in [501, 400] {
            let strict = |options: &mut ObjOptions| options.checksum_mode = ChecksumMode::Crc64Nvme;
            let stage = Stage::settled(65_536, Settings::default(), strict);
            stage.on_pages(move |request, _| match (refusal, refused_header(request)) {
                (_, None) => Action::normal(),
                // Ceph says nothing but 400.
                (400, Some(_)) => Action::status(400),
                (_, Some(_)) => Action::error(501, "NotImplemented"),
            });
            let error = stage.set(1).unwrap_err();
            let puts: Vec<Request> =
                stage.page_requests().into_iter().filter(|request| request.method == "PUT").collect();
            assert_eq!(puts.len(), 1, "{puts:?}");
            assert!(puts[0].has_header("x-amz-checksum-crc64nvme"), "{puts:?}");
            assert!(matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::InvalidConfig), "{error:?}");
            assert!(!error.is_retryable());
            let story = story(&error);
            assert!(story.contains("x-amz-checksum-crc64nvme") && story.contains("checksum_mode"), "{story}");
            stage.goes_on();
        }
    });
}

#[test]
fn b060_on_aws_a_checksum_is_sent_and_given_up_once_where_it_is_refused() {
    bounded(|| {
        for refused in [false, true] {
            let stage = Stage::on_aws("bbb", |_| ()).unwrap();
            if refused {
                stage.stub.script(|request, _| old_server(request));
            }
            stage.set(1).unwrap();
            stage.set(2).unwrap();
            assert!(stage.get(1).unwrap() && stage.get(2).unwrap());
            let with_checksum = |n: u64| {
                let name = hicache_testkit::pages::key(n).to_string();
                let puts = stage.stub.requests().into_iter();
                let puts = puts.filter(|request| request.method == "PUT" && request.key.ends_with(&name));
                puts.map(|request| request.has_header("x-amz-checksum-crc64nvme")).collect::<Vec<_>>()
            };
            let told = stage.store.health().fallbacks;
            if refused {
                assert_eq!(with_checksum(2), [false], "it is remembered");
                assert!(told.iter().any(|fallback| fallback.what.contains("checksum")), "{told:?}");
            } else {
                assert_eq!((with_checksum(1), with_checksum(2)), (vec![true], vec![true]));
                assert!(told.is_empty(), "{told:?}");
            }
        }
    });
}

#[test]
fn b060_a_server_that_keeps_chunk_framing_as_data_never_gets_any() {
    bounded(|| {
        for mode in [ChecksumMode::Auto, ChecksumMode::Off, ChecksumMode::Crc64Nvme] {
            let stage = Stage::settled(65_536, Settings::default(), |options| options.checksum_mode = mode);
            stage.stub.buckets().framing = Framing::KeptAsData;
            stage.set(1).unwrap();
            let object = stage.object(1);
            assert_eq!(stage.stub.buckets().get("b", &object).unwrap().body.len(), 65_536 + TAIL, "{mode:?}");
            assert!(stage.get(1).unwrap(), "{mode:?}");
        }
    });
}

#[test]
fn b060_our_own_checksum_guards_a_page_whatever_the_server_checks() {
    bounded(|| {
        for mode in [ChecksumMode::Auto, ChecksumMode::Off, ChecksumMode::Crc64Nvme] {
            for at in [0, 40_000, 65_535] {
                let stage =
                    Stage::settled(65_536, Settings::default(), |options| options.checksum_mode = mode);
                stage.set(1).unwrap();
                let object = stage.object(1);
                let mut buckets = stage.stub.buckets();
                let object = buckets.get_mut("b", &object).unwrap();
                std::sync::Arc::make_mut(&mut object.body)[at] ^= 1;
                // A server that checks nothing tells no checksum either.
                object.headers.retain(|(name, _)| !name.starts_with("x-amz-checksum-"));
                drop(buckets);
                assert!(!stage.get(1).unwrap(), "{mode:?} {at}");
                let stats = stage.stats();
                assert_eq!((stats.damaged, stats.hits), (1, 0), "{mode:?} {at}: {stats:?}");
                assert!(!stage.exists(1).unwrap());
                // The next set replaces it.
                stage.set(1).unwrap();
                assert!(stage.get(1).unwrap());
            }
        }
    });
}
