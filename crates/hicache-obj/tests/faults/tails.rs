//! What stands behind a page's bytes: torn, changed, or that of something else, it makes the page a counted miss.

use crate::stage::{MIB, Stage, TAIL};
use crate::stub::{Action, Object, Settings, bounded};
use hicache_core::{Backing, Call, Depth, Namespace, Put, State, StorageBackendExt, Store, Stored};
use hicache_obj::{ChecksumMode, ObjOptions};
use hicache_testkit::pages;
use std::sync::Arc;

const LEN: usize = 65_536;

fn stage() -> Stage {
    Stage::settled(LEN, Settings::default(), |_| ())
}

fn in_parts(options: &mut ObjOptions) {
    (options.multipart_threshold, options.part_len) = (MIB as u64, MIB as u64);
}

/// Does something to the bytes under which page `n` is stored.
fn change(stage: &Stage, n: u64, change: impl FnOnce(&mut Vec<u8>)) {
    let name = stage.object(n);
    change(Arc::make_mut(&mut stage.stub.buckets().get_mut("b", &name).unwrap().body));
}

/// The object of page `n`.
fn stored(stage: &Stage, n: u64) -> Object {
    let name = stage.object(n);
    stage.stub.buckets().get("b", &name).unwrap().clone()
}

/// Page `n` with the bytes of page 1: their checksums are the same.
fn like_page_1(stage: &Stage, n: u64) -> Put {
    Put { key: pages::key(n), parent: stage.put(n).parent, page: stage.put(1).page }
}

/// It is a miss that is counted as damage, and told as such; and the next set replaces it.
#[track_caller]
fn is_damaged(stage: &Stage, n: u64, what: &str) {
    let before = stage.stats();
    assert!(!stage.get(n).unwrap(), "{what}");
    let stats = stage.stats();
    assert_eq!((stats.damaged - before.damaged, stats.hits - before.hits), (1, 0), "{what}: {stats:?}");
    assert!(!stage.exists(n).unwrap(), "{what}");
    let found = stage.scan(Depth::Contents).unwrap();
    let found = found.iter().find(|found| found.key == Some(pages::key(n))).expect("it is there");
    assert!(matches!(found.state, State::Wrong(_) | State::Torn(_)), "{what}: {:?}", found.state);
    assert_eq!(stage.set(n).unwrap(), Stored::Written, "{what}");
    assert!(stage.get(n).unwrap(), "{what}");
}

#[test]
fn a_torn_or_longer_tail_is_never_believed() {
    bounded(|| {
        let stage = stage();
        for (n, left) in (1..).zip([0, 1, 8, TAIL - 1, TAIL + 1, 2 * TAIL]) {
            stage.set(n).unwrap();
            change(&stage, n, |body| body.resize(LEN + left, 0));
            is_damaged(&stage, n, &format!("{left} bytes of the tail"));
        }
    });
}

#[test]
fn a_flipped_bit_of_the_page_or_of_any_field_of_the_tail_is_damage() {
    bounded(|| {
        let stage = stage();
        for at in [0, LEN - 1].into_iter().chain((LEN..LEN + TAIL).step_by(4)) {
            stage.set(1).unwrap();
            change(&stage, 1, |body| body[at] ^= 1);
            is_damaged(&stage, 1, &format!("byte {at}"));
        }
    });
}

#[test]
fn a_tail_of_another_page_is_not_this_ones_though_the_bytes_are_the_same() {
    bounded(|| {
        for checksum in [true, false] {
            let stage = Stage::settled(LEN, Settings::default(), |options| options.checksum = checksum);
            stage.set(1).unwrap();
            stage.backend.set(like_page_1(&stage, 2)).wait().unwrap();
            let other = stored(&stage, 2);
            assert_eq!(other.body[..LEN], stored(&stage, 1).body[..LEN]);
            change(&stage, 1, |body| body[LEN..].copy_from_slice(&other.body[LEN..]));
            is_damaged_or_unverified(&stage, checksum);
        }
    });
}

/// Page 1, whose tail is sound and another's.
#[track_caller]
fn is_damaged_or_unverified(stage: &Stage, checksum: bool) {
    if checksum {
        return is_damaged(stage, 1, "another's tail");
    }
    // Without checksums the tail still says whose bytes they are.
    assert!(!stage.get(1).unwrap());
    assert_eq!(stage.stats().damaged, 1);
}

#[test]
fn a_tail_of_another_namespace_is_not_this_ones_though_the_bytes_are_the_same() {
    bounded(|| {
        let stage = stage();
        let other = Namespace::named("other", *stage.namespace.layout()).unwrap();
        let put = stage.put(1);
        stage.store.backend(other).unwrap().set(put).wait().unwrap();
        let theirs = stored(&stage, 1);
        stage.set(1).unwrap();
        let name = stage
            .stub
            .buckets()
            .keys("b")
            .into_iter()
            .filter(|name| name.ends_with(&pages::key(1).to_string()));
        for name in name {
            let mut buckets = stage.stub.buckets();
            let body = Arc::make_mut(&mut buckets.get_mut("b", &name).unwrap().body);
            assert_eq!(body[..LEN], theirs.body[..LEN]);
            if body[LEN..] != theirs.body[LEN..] {
                body[LEN..].copy_from_slice(&theirs.body[LEN..]);
            }
        }
        assert!(!stage.get(1).unwrap());
        assert_eq!(stage.stats().damaged, 1);
    });
}

#[test]
fn a_whole_body_of_another_page_is_not_this_page() {
    bounded(|| {
        for checksum in [true, false] {
            let stage = Stage::settled(LEN, Settings::default(), |options| options.checksum = checksum);
            stage.set_all(1..3);
            let other = stored(&stage, 2);
            change(&stage, 1, |body| body.clone_from(&other.body));
            assert!(!stage.get(1).unwrap());
            assert_eq!(stage.stats().damaged, 1);
        }
    });
}

#[test]
fn a_page_in_parts_is_checked_part_by_part_and_its_tail_comes_with_the_last() {
    bounded(|| {
        let len = 3 * MIB + 7 * 4096;
        let stage = Stage::settled(len, Settings::default(), in_parts);
        stage.on_pages(|_, _| Action::normal());
        stage.set(1).unwrap();
        let mut lens: Vec<_> = stage.page_requests().iter().map(|request| request.body_len).collect();
        lens.retain(|body_len| *body_len > 4096);
        lens.sort_unstable();
        assert_eq!(lens, [7 * 4096 + TAIL, MIB, MIB, MIB]);
        for at in [0, MIB, 3 * MIB - 1, len - 1, len, len + 16, len + 32, len + TAIL - 1] {
            change(&stage, 1, |body| body[at] ^= 1);
            assert!(!stage.get(1).unwrap(), "byte {at}");
            change(&stage, 1, |body| body[at] ^= 1);
            assert!(stage.get(1).unwrap(), "byte {at}");
        }
        assert_eq!(stage.stats().damaged, 8);
    });
}

#[test]
fn a_page_without_a_checksum_is_served_only_to_who_takes_it() {
    bounded(|| {
        for edit in [|_: &mut ObjOptions| (), in_parts] {
            let len = 2 * MIB;
            let stage = Stage::settled(len, Settings::default(), |options| {
                options.checksum = false;
                edit(options);
            });
            stage.set(1).unwrap();
            assert!(stage.get(1).unwrap());
            assert_eq!(stored(&stage, 1).body.len(), len + TAIL);
            let mut options = crate::stage::options(&stage.stub);
            edit(&mut options);
            for accepts in [false, true] {
                options.common.accept_unverified = accepts;
                let store = hicache_obj::ObjStore::open("//b", options.clone()).unwrap();
                let backend = store.backend(stage.namespace.clone()).unwrap();
                let into = stage.pool.alloc(1).unwrap().remove(0);
                let got = backend.get(pages::key(1), into).wait().unwrap();
                assert_eq!(got.inspect(|page| stage.check(1, page)).is_some(), accepts);
                assert_eq!((backend.stats().unverified, backend.stats().damaged), (1, 0));
            }
        }
    });
}

#[test]
fn what_others_wrote_has_no_tail_and_is_served_only_to_who_accepts_it() {
    bounded(|| {
        for accepts in [false, true] {
            for edit in [|_: &mut ObjOptions| (), in_parts] {
                let len = 2 * MIB;
                let stage = Stage::settled(len, Settings::default(), |options| {
                    options.common.accept_unverified = accepts;
                    options.exists_ttl = std::time::Duration::ZERO;
                    edit(options);
                });
                stage.set(1).unwrap();
                let name = stage.object(1);
                let bare = Object::new(stored(&stage, 1).body[..len].to_vec());
                *stage.stub.buckets().get_mut("b", &name).unwrap() = bare;
                assert_eq!(stage.get(1).unwrap(), accepts);
                assert_eq!((stage.stats().unverified, stage.stats().damaged), (1, 0));
                assert_eq!(stage.exists(1).unwrap(), accepts);
                // Many are asked for by one listing, which is to say the same.
                let keys: Vec<_> = (1..100).map(pages::key).collect();
                let there = stage.backend.batch_exists(&keys, Call::default()).wait();
                assert_eq!(*there.iter().next().unwrap().as_ref().unwrap(), accepts);
                assert!(
                    stage.stub.requests().iter().any(|request| request.query_value("list-type").is_some())
                );
                // An operator who repairs by names alone loses nothing of anybody.
                let listed = stage.scan(Depth::Names).unwrap();
                assert!(listed.iter().all(|found| matches!(found.state, State::Listed)), "{listed:?}");
                let read = stage.scan(Depth::Contents).unwrap();
                let read = read.iter().find(|found| found.key == Some(pages::key(1))).unwrap();
                assert!(matches!(read.state, State::Unverified), "{:?}", read.state);
            }
        }
    });
}

#[test]
fn the_service_is_told_the_checksum_of_page_and_tail() {
    bounded(|| {
        for checksum in [true, false] {
            let stage = Stage::settled(LEN, Settings::default(), |options| {
                options.checksum_mode = ChecksumMode::Crc64Nvme;
                options.checksum = checksum;
            });
            stage.set(1).unwrap();
            let object = stored(&stage, 1);
            assert_eq!(object.body.len(), LEN + TAIL);
            let right = hicache_core::Checksum::of_bytes(&object.body).to_be_bytes();
            let right = aws_smithy_types::base64::encode(right);
            let told = object.headers.iter().find(|(name, _)| name == "x-amz-checksum-crc64nvme");
            assert_eq!(told.map(|(_, value)| value.as_str()), Some(right.as_str()));
            assert!(stage.get(1).unwrap());
        }
    });
}

#[test]
fn a_page_in_memory_that_others_may_write_has_the_checksum_of_the_bytes_that_were_sent() {
    bounded(|| {
        let stage = stage();
        let shared = pages::pool(stage.namespace.layout(), 1, hicache_core::Alignment::NONE, Backing::Shared);
        let mut page = shared.alloc(1).unwrap().remove(0);
        pages::fill(&mut page, pages::seed(&stage.namespace, &pages::key(1)));
        let page = page.freeze();
        assert!(page.bytes(0).is_none(), "no reference to it may exist");
        stage.backend.set(Put { key: pages::key(1), parent: None, page }).wait().unwrap();
        assert!(stage.get(1).unwrap());
    });
}

#[test]
fn a_walk_tells_the_length_of_the_page_and_not_of_its_object() {
    bounded(|| {
        let stage = stage();
        stage.set(1).unwrap();
        for depth in [Depth::Names, Depth::Contents] {
            let found = stage.scan(depth).unwrap();
            assert!(found.iter().all(|found| found.len == LEN as u64), "{found:?}");
        }
    });
}
