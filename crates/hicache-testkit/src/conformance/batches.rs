//! Contract 1 of a backend: one outcome per item, of the batch's length and in its order.

use crate::{Subject, View, pages, wait};
use hicache_core::{PageKey, Put, Result, StorageBackendExt, Stored};

/// Lengths around [`STORAGE_BATCH_SIZE`](hicache_core::STORAGE_BATCH_SIZE), and the small and large ones.
const LENS: [u64; 6] = [0, 1, 127, 128, 129, 300];

/// Every other page is there; each outcome tells of the item in its place, whatever their order.
pub fn each_item_has_its_outcome_in_its_place(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "order", pages::opaque(512), 300);
    for len in LENS {
        let all = shuffled(pages::keys(1_000 * len..1_000 * len + len));
        let stored: Vec<PageKey> = all.iter().copied().step_by(2).collect();
        let wanted: Vec<bool> = (0..all.len()).map(|index| index % 2 == 0).collect();
        view.write(&stored);
        assert_eq!(view.exists(&all), wanted, "contract 1: existence of {len}, in order");
        assert_eq!(view.hits(&all), wanted, "contract 1: gets of {len}, in order");
        let again = view.set(&all).into_iter().map(|outcome| outcome.expect("a set"));
        let present: Vec<bool> = again.map(|stored| stored == Stored::Present).collect();
        assert_eq!(present, wanted, "contract 1: sets of {len}, in order");
        view.remove(&stored);
        let rest: Vec<bool> = wanted.iter().map(|there| !there).collect();
        assert_eq!(view.remove(&all), rest, "contract 1: removals of {len}, in order");
    }
    view.rest();
}

/// Neither an error nor a wait for ever.
pub fn an_empty_batch_has_an_empty_answer(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "empty", pages::opaque(512), 1);
    assert_eq!(view.set(&[]).len(), 0);
    assert_eq!(view.get(&[]).len(), 0);
    assert_eq!(view.exists(&[]).len(), 0);
    assert_eq!(view.remove(&[]).len(), 0);
    let recorded = wait("namespaces", view.store.namespaces()).expect("a list");
    assert_eq!(recorded, [], "store contract 1: a namespace is recorded at its first put, not before");
}

/// Each mention is answered on its own.
pub fn a_batch_may_name_a_key_twice(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "twice", pages::opaque(4_096), 6);
    let (a, b, absent) = (pages::key(1), pages::key(2), pages::key(3));
    let named = [a, b, a, a, b, a];
    let stored: Result<Vec<Stored>> = view.set(&named).into_iter().collect();
    let stored = stored.expect("contract 1: a key named twice is no error");
    for key in [a, b] {
        let mut outcomes = named.iter().zip(&stored).filter(|(named, _)| **named == key);
        let written = outcomes.any(|(_, stored)| *stored == Stored::Written);
        assert!(written, "contract 8: one of the mentions wrote the page: {stored:?}");
    }
    view.rest();
    assert_eq!(view.exists(&[a, absent, a]), [true, false, true]);
    assert_eq!(view.hits(&[a, a, absent, b, b, absent]), [true, true, false, true, true, false]);
    let removed = view.remove(&[a, b, a, b]);
    for (first, second) in [(0, 2), (1, 3)] {
        assert!(removed[first] != removed[second], "contract 4: one mention removed the page: {removed:?}");
    }
    assert_eq!(view.hits(&[a, b]), [false, false]);
    view.rest();
}

/// Its chain is what a page is stored with, not where.
pub fn a_page_with_or_without_a_parent_is_stored(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "parents", pages::opaque(4_096), 4);
    let keys = pages::keys(0..3);
    let parents = [None, Some(keys[0]), Some(pages::key(99))];
    for (key, parent) in keys.iter().zip(parents) {
        let put = Put { key: *key, parent, page: view.page(key) };
        assert_eq!(wait("set", view.backend.set(put)).expect("a set"), Stored::Written);
    }
    assert_eq!(view.hits(&keys), [true; 3]);
    let put = Put { key: keys[1], parent: None, page: view.page(&keys[1]) };
    let again = wait("set", view.backend.set(put)).expect("a set");
    assert_eq!(again, Stored::Present, "contract 8: a page is its key, whatever its parent");
    view.rest();
}

/// The counters of a backend follow what it answered.
pub fn what_is_done_is_counted(subject: &Subject) {
    let medium = subject.fresh();
    let len = 4_096;
    let view = View::open(&medium, "counts", pages::opaque(len), 8);
    view.write(&pages::keys(0..5));
    view.set(&pages::keys(3..7));
    view.get(&pages::keys(5..10));
    view.remove(&pages::keys(0..1));
    view.remove(&pages::keys(0..1));
    let stats = view.backend.stats();
    let counted = [stats.written, stats.present, stats.hits, stats.misses, stats.removed, stats.errors];
    assert_eq!(counted, [7, 2, 2, 3, 1, 0], "written, present, hits, misses, removed, errors");
    assert_eq!([stats.bytes_written, stats.bytes_read], [7 * len as u64, 2 * len as u64]);
    assert_eq!([stats.damaged, stats.timeouts, stats.worker_restarts], [0, 0, 0]);
}

/// The same keys in an order that is neither theirs nor the reverse.
fn shuffled(mut keys: Vec<PageKey>) -> Vec<PageKey> {
    keys.sort_unstable();
    keys
}
