//! Which failure is told where one tier took the call's time and the other is dead, and that a lost tier is not asked.

use hicache_core::{
    Call, Deadline, Error, ErrorKind, Get, MemoryStore, Page, PageIndex, Result, StorageBackend, Store,
};
use hicache_testkit::fault::{Fault, FaultBackend, Item, Operation};
use hicache_testkit::gate::{Gate, GateBackend};
use hicache_testkit::{DecoratedStore, View, pages, poll_once, wait};
use hicache_tier::{TierOptions, TierStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A tier that fails every item, so, behind a gate.
fn failing(gate: &Gate, kind: ErrorKind) -> Arc<dyn Store> {
    counted(gate, kind, &Arc::default())
}

/// The same, which counts the gets that it was asked for.
fn counted(gate: &Gate, kind: ErrorKind, gets: &Arc<AtomicU64>) -> Arc<dyn Store> {
    let (gate, gets) = (gate.clone(), Arc::clone(gets));
    let decorate = move |backend: Arc<dyn StorageBackend>| -> Arc<dyn StorageBackend> {
        let gets = Arc::clone(&gets);
        let fail = move |item: &Item| {
            gets.fetch_add(u64::from(item.operation == Operation::Get), Ordering::SeqCst);
            Fault::Fail(Error::new(kind, "test"))
        };
        Arc::new(GateBackend::new(Arc::new(FaultBackend::new(backend, fail)), gate.clone()))
    };
    Arc::new(DecoratedStore::new(Arc::new(MemoryStore::new(1 << 30)), decorate))
}

fn view(first: Arc<dyn Store>, second: Arc<dyn Store>) -> View {
    let store: Arc<dyn Store> = Arc::new(TierStore::new(first, second, TierOptions::default()).unwrap());
    View::of(&store, "tiers", pages::two_planes(), 16)
        .with_call(Call { deadline: Deadline::After(Duration::from_millis(300)), ..Call::default() })
}

fn assert_late(outcome: Result<Option<Page>>) {
    let error = outcome.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
    assert!(error.is_retryable(), "{error:?}");
}

#[test]
fn a_first_tier_that_took_its_time_and_a_dead_second_are_a_timeout_that_names_both() {
    let gate = Gate::shut();
    let view = view(failing(&gate, ErrorKind::Io), failing(&Gate::open(), ErrorKind::Unavailable));
    // From the fourth on, the second tier is known to be lost.
    for number in 0..5 {
        let key = pages::key(number);
        let get = view.get(&[key]).remove(0).map(drop).unwrap_err();
        let exists = wait("exists", view.backend.batch_exists(&[key], view.call));
        let exists = exists.first_error().unwrap().clone();
        for error in [get, exists] {
            assert_eq!(error.kind(), ErrorKind::Timeout, "{number}: {error:?}");
            assert_eq!(error.fact("tier"), Some("first"), "{number}: {error:?}");
            assert!(error.fact("second_tier").unwrap().contains("unavailable"), "{number}: {error:?}");
        }
    }
    gate.release();
    view.rest();
}

#[test]
fn a_get_into_a_chosen_slot_whose_time_is_over_before_the_dead_second_is_asked_is_a_timeout() {
    let (gate, other) = (Gate::shut(), Gate::shut());
    let view = view(failing(&gate, ErrorKind::Io), failing(&other, ErrorKind::Unavailable));
    let into = view.pool.claim(PageIndex::new(3)).unwrap();
    let mut chosen = view.backend.batch_get(vec![Get { key: pages::key(1), into }], view.call);
    gate.wait_held(1);
    // Both tiers hold this one up: when it is answered, the deadline of both gets has passed.
    assert_late(view.get(&pages::keys(2..3)).remove(0));
    other.release();
    assert!(poll_once(&mut chosen).is_pending(), "invariant 5");
    gate.release();
    wait("get", chosen).into_iter().for_each(assert_late);
    view.rest();
}

#[test]
fn two_dead_tiers_that_had_time_are_no_timeout() {
    let open = Gate::open();
    let view = view(failing(&open, ErrorKind::Io), failing(&open, ErrorKind::Unavailable));
    let error = view.get(&[pages::key(1)]).remove(0).map(drop).unwrap_err();
    assert_eq!((error.kind(), error.fact("tier")), (ErrorKind::Unavailable, Some("second")), "{error:?}");
}

#[test]
fn a_lost_first_tier_is_asked_for_no_key_of_a_get() {
    let gets: Arc<AtomicU64> = Arc::default();
    let second: Arc<dyn Store> = Arc::new(MemoryStore::new(1 << 30));
    let view = view(counted(&Gate::open(), ErrorKind::Unavailable, &gets), second);
    for number in 0..8 {
        let keys = pages::keys(10 * number..10 * number + 4);
        assert_eq!(view.hits(&keys), [false; 4]);
    }
    assert_eq!(gets.load(Ordering::SeqCst), 3 * 4, "three batches failed whole");
    view.rest();
}
