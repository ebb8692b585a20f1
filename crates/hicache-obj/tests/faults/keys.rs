//! Names that need encoding, on a server that checks signatures by itself (B071).

use crate::stage::{self, Stage};
use crate::stub::{Settings, bounded};
use hicache_core::{Depth, ErrorKind, Store};

const NAMES: [&str; 21] = [
    "a b",
    "a+b",
    "a%20b",
    "a%",
    "a%2",
    "a%2Fb",
    "a@b",
    "k=v",
    "a#b",
    "a?b",
    "a&b",
    "a;b",
    "a:b",
    "a,b$c",
    "~",
    "*'()!",
    "é",
    "日本",
    "a\"b<c>",
    "[x]{y}|^`\\",
    "e\u{301}",
];

fn open(prefix: &str) -> hicache_core::Result<Stage> {
    let stub = stage::guarded(Settings::default());
    let options = stage::options(&stub);
    Stage::open(stub, &format!("//b/{prefix}"), 65_536, options)
}

#[test]
fn b071_every_name_makes_the_round_trip_and_is_kept_exactly() {
    bounded(|| {
        for name in NAMES {
            let stage = open(name).unwrap_or_else(|error| panic!("{name:?}: {error:?}"));
            for n in 0..3 {
                stage.set(n).unwrap_or_else(|error| panic!("{name:?}: {error:?}"));
            }
            let kept = stage.stub.buckets().keys("b");
            assert!(kept.iter().all(|key| key.starts_with(&format!("{name}/"))), "{name:?}: {kept:?}");
            assert!(stage.get(1).unwrap(), "{name:?}");
            assert!(!stage.get(7).unwrap(), "{name:?}");
            assert!(!stage.exists(7).unwrap(), "{name:?}");
            let mut listed: Vec<String> = Vec::new();
            for found in stage.scan(Depth::Contents).unwrap() {
                assert_eq!(found.state, hicache_core::State::Sound, "{name:?}: {found:?}");
                listed.push(found.key.unwrap().to_string());
            }
            let wanted = [0, 1, 2].map(|n| hicache_testkit::pages::key(n).to_string());
            listed.sort();
            assert_eq!(
                listed,
                {
                    let mut wanted = wanted.to_vec();
                    wanted.sort();
                    wanted
                },
                "{name:?}"
            );
            let namespaces = hicache_testkit::wait("namespaces", stage.store.namespaces()).unwrap();
            assert_eq!(namespaces.len(), 1, "{name:?}");
            assert!(stage.remove(1).unwrap(), "{name:?}");
            assert!(!stage.is_stored(1), "{name:?}");
            assert_eq!(
                hicache_testkit::wait("clear", stage.store.clear(&stage.namespace)).unwrap(),
                2,
                "{name:?}"
            );
            assert_eq!(stage.stub.buckets().keys("b"), [""; 0], "{name:?}");
            assert_eq!(stage.stats().retries, 0, "{name:?}");
        }
    });
}

#[test]
fn b071_names_that_look_alike_stay_apart() {
    bounded(|| {
        // One server, one prefix after another: nobody sees what another wrote.
        let stub = stage::guarded(Settings::default());
        let endpoint = stub.endpoint();
        let first = Stage::open(stub, &format!("//b/{}", NAMES[0]), 65_536, plain(&endpoint)).unwrap();
        first.set(1).unwrap();
        let idle = || stage::guarded(Settings::default());
        for name in &NAMES[1..] {
            let other = Stage::open(idle(), &format!("//b/{name}"), 65_536, plain(&endpoint)).unwrap();
            assert!(!other.exists(1).unwrap() && !other.get(1).unwrap(), "{name:?} sees a page of another");
            other.set(1).unwrap();
            assert!(other.get(1).unwrap());
        }
        let kept = first.stub.buckets().keys("b");
        // Each has its page and its record.
        assert_eq!(kept.len(), 2 * NAMES.len(), "{kept:?}");
        assert_eq!(hicache_testkit::wait("clear", first.store.clear(&first.namespace)).unwrap(), 1);
        assert_eq!(first.stub.buckets().keys("b").len(), 2 * (NAMES.len() - 1), "clear took from another");
    });
}

fn plain(endpoint: &str) -> hicache_obj::ObjOptions {
    hicache_obj::ObjOptions {
        endpoint: Some(hicache_obj::Endpoint::parse(endpoint).unwrap()),
        credentials: stage::keys("test", "secret"),
        ..Default::default()
    }
}

#[test]
fn b071_names_that_servers_resolve_or_fold_are_refused_up_front() {
    bounded(|| {
        for wrong in [
            "a//b", "/lead", "a/./b", "a/../b", ".", "..", "./a", "a/..", "a/.", "a\nb", "a\0b", "a\u{7f}b",
            "//",
        ] {
            let error = open(wrong).map(|_| panic!("{wrong:?} was taken")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{wrong:?}: {error:?}");
        }
        // Dots that are no dot segments are names like any other.
        for right in ["a/.b", "..a", "a...", "a/b..c/d"] {
            let stage = open(right).unwrap();
            stage.set(1).unwrap();
            assert!(stage.get(1).unwrap(), "{right:?}");
        }
        // A slash at the end says nothing.
        let stage = open("trail/").unwrap();
        stage.set(1).unwrap();
        assert!(stage.stub.buckets().keys("b").iter().all(|key| key.matches('/').count() == 2));
    });
}

#[test]
fn b071_the_longest_name_works_and_a_longer_one_is_refused_up_front() {
    bounded(|| {
        // A page's own part of its name is 129 bytes, and the slash before it one.
        let longest = 1024 - 130;
        let stage = open(&"x".repeat(longest)).unwrap();
        stage.set(1).unwrap();
        assert!(stage.get(1).unwrap());
        assert_eq!(stage.object(1).len(), 1024);
        for longer in ["x".repeat(longest + 1), "é".repeat(longest / 2 + 1)] {
            let error = open(&longer).map(|_| panic!("{} bytes were taken", longer.len())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
        }
    });
}

#[test]
fn b071_a_wrong_secret_is_a_refusal_and_never_a_miss() {
    bounded(|| {
        let stub = stage::guarded(Settings::default());
        let options =
            hicache_obj::ObjOptions { credentials: stage::keys("test", "wrong"), ..stage::options(&stub) };
        let error = Stage::open(stub, "//b", 65_536, options).and_then(|stage| stage.get(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error:?}");
        let story = stage::story(&error);
        assert!(story.contains("secret_key") && !story.contains("wrong"), "{story}");
    });
}
