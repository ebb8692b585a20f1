//! What a lost, hanging or slow tier does to the whole, and what a page does that is removed on its way.

use async_trait::async_trait;
use hicache_core::{
    Call, Deadline, Error, ErrorKind, Found, Get, Health, MemoryStore, Namespace, PageIndex, PageKey,
    Pending, Prefix, Result, Scan, StorageBackend, StorageBackendExt, Store, Stored, Visitor,
};
use hicache_testkit::fault::{Fault, FaultBackend, Item, Operation};
use hicache_testkit::gate::{Gate, GateBackend};
use hicache_testkit::{DecoratedStore, View, pages, poll_once, until, wait};
use hicache_tier::{TierOptions, TierStore, Write};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread;
use std::time::Duration;

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(1 << 30))
}

fn faulty(rule: impl Fn(&Item) -> Fault + Send + Sync + 'static) -> (Arc<dyn Store>, Arc<dyn Store>) {
    let (inner, rule) = (memory(), Arc::new(rule));
    let decorate = move |backend: Arc<dyn StorageBackend>| -> Arc<dyn StorageBackend> {
        let rule = Arc::clone(&rule);
        Arc::new(FaultBackend::new(backend, move |item| rule(item)))
    };
    (Arc::new(DecoratedStore::new(Arc::clone(&inner), decorate)), inner)
}

/// A tier that does nothing right.
fn lost() -> Arc<dyn Store> {
    faulty(|_| Fault::Fail(Error::new(ErrorKind::Io, "test").why("the medium is gone"))).0
}

/// A tier behind a gate, and the store itself.
fn gated(gate: &Gate) -> (Arc<dyn Store>, Arc<dyn Store>) {
    let (inner, gate) = (memory(), gate.clone());
    let decorate = move |backend: Arc<dyn StorageBackend>| -> Arc<dyn StorageBackend> {
        Arc::new(GateBackend::new(backend, gate.clone()))
    };
    (Arc::new(DecoratedStore::new(Arc::clone(&inner), decorate)), inner)
}

fn view(first: Arc<dyn Store>, second: Arc<dyn Store>, options: TierOptions) -> View {
    let store: Arc<dyn Store> = Arc::new(TierStore::new(first, second, options).unwrap());
    View::of(&store, "tiers", pages::two_planes(), 16)
}

fn behind() -> TierOptions {
    TierOptions { write: Write::Behind, ..TierOptions::default() }
}

/// The same namespace of one of the tiers, past its decorator.
fn straight(store: &Arc<dyn Store>) -> View {
    View::of(store, "tiers", pages::two_planes(), 16)
}

fn soon(view: &View) -> View {
    view.with_call(Call { deadline: Deadline::After(Duration::from_millis(300)), ..Call::default() })
}

fn told(view: &View, what: &str) -> bool {
    view.store.health().fallbacks.iter().any(|fallback| fallback.what == what)
}

#[test]
fn a_lost_first_tier_degrades_and_fails_nothing_but_removals() {
    for options in [TierOptions::default(), behind()] {
        let second = memory();
        let view = view(lost(), Arc::clone(&second), options);
        let keys = pages::keys(0..8);
        view.write(&keys[..4]);
        assert_eq!(view.exists(&keys), [true, true, true, true, false, false, false, false]);
        assert_eq!(view.hits(&keys), [true, true, true, true, false, false, false, false]);
        assert_eq!(straight(&second).hits(&keys[..4]), [true; 4]);
        let stats = view.backend.stats();
        assert_eq!((stats.degraded, stats.errors, stats.promoted), (4 + 8 + 8, 0, 0), "{stats:?}");
        assert!(told(&view, "first tier"), "{:?}", view.store.health());
        let removed = wait("remove", view.backend.batch_remove(&keys[..1], view.call));
        let error = removed.first_error().expect("nobody may say that the page is gone");
        assert_eq!((error.kind(), error.fact("tier")), (ErrorKind::Io, Some("first")));
        view.rest();
        wait("close", view.store.close()).unwrap();
    }
}

#[test]
fn a_lost_second_tier_degrades_and_fails_nothing_but_removals() {
    for options in [TierOptions::default(), behind()] {
        let write = options.write;
        let view = view(memory(), lost(), options);
        let keys = pages::keys(0..8);
        view.write(&keys[..4]);
        assert_eq!(view.exists(&keys), [true, true, true, true, false, false, false, false]);
        assert_eq!(view.hits(&keys), [true, true, true, true, false, false, false, false]);
        let stats = || view.backend.stats();
        if write == Write::Behind {
            until("pages that did not reach the second tier are counted", || stats().unflushed == 4);
            assert!(told(&view, "write_behind"), "{:?}", view.store.health());
        } else {
            assert_eq!(stats().degraded, 4 + 4 + 4);
        }
        assert_eq!(stats().errors, 0);
        assert!(told(&view, "second tier"), "{:?}", view.store.health());
        let removed = wait("remove", view.backend.batch_remove(&keys[..1], view.call));
        assert_eq!(removed.first_error().unwrap().fact("tier"), Some("second"));
        view.rest();
    }
}

/// What a tier says of itself, and what is counted: of as many items, also of those that it was not asked for any more.
#[test]
fn a_tier_that_dies_tells_how_many_pages_it_lacks_and_the_counter_says_the_same() {
    let why = |view: &View, what: &str| {
        let health = view.store.health();
        let found = health.fallbacks.iter().find(|one| one.what == what);
        found.unwrap_or_else(|| panic!("{what}: {health:?}")).why.clone()
    };
    for (place, other, first, second) in
        [("second tier", "first", memory(), lost()), ("first tier", "second", lost(), memory())]
    {
        let view = view(first, second, TierOptions::default());
        let keys = pages::keys(0..40);
        // One batch a page: after three of them it is lost, and the others go without it.
        keys.iter().for_each(|key| view.write(&[*key]));
        let stats = view.backend.stats();
        assert_eq!((stats.degraded, stats.written), (40, 40), "{stats:?}");
        let told = why(&view, place);
        let lacks =
            format!("it is lost; 40 pages were taken by the {other} tier only, and are not in this one;");
        assert!(told.starts_with(&lacks) && told.contains("the medium is gone"), "{told}");
        // Questions that the other answers alone, of a namespace of its own, and counted there.
        let named = View::of(&view.store, "other", pages::two_planes(), 4);
        assert_eq!(named.exists(&pages::keys(50..53)), [false; 3]);
        assert_eq!(named.backend.stats().degraded, 3);
        let told = why(&view, place);
        assert!(told.contains(&format!("; 3 items answered by the {other} tier alone;")), "{told}");
        view.rest();
    }
}

#[test]
fn two_lost_tiers_are_an_error_that_names_both() {
    let view = view(lost(), lost(), TierOptions::default());
    let key = pages::key(1);
    let set = view.set(&[key]).remove(0).unwrap_err();
    let get = view.get(&[key]).remove(0).unwrap_err();
    let exists = wait("exists", view.backend.exists(key)).unwrap_err();
    for error in [set, get, exists] {
        assert_eq!((error.kind(), error.fact("tier")), (ErrorKind::Io, Some("second")), "{error}");
        assert!(error.fact("first_tier").unwrap().contains("the medium is gone"), "{error}");
    }
    view.rest();
}

#[test]
fn a_tier_that_fails_single_items_leaks_no_page_and_serves_no_wrong_one() {
    let broken = || Error::new(ErrorKind::Io, "test");
    let rule = move |seed: u64| {
        move |item: &Item| match (item.nth.wrapping_mul(seed) >> 7) % 5 {
            0 => Fault::Fail(broken()),
            1 => Fault::Half(broken()),
            2 if item.operation == Operation::Get => Fault::Miss,
            3 => Fault::Drop,
            _ => Fault::Pass,
        }
    };
    for options in [TierOptions::default(), behind()] {
        let (first, _) = faulty(rule(0x9E37_79B9));
        let (second, _) = faulty(rule(0x85EB_CA6B));
        let view = view(first, second, options);
        for round in 0..40 {
            let keys = pages::keys(4 * (round % 3)..4 * (round % 3) + 8);
            view.set(&keys);
            view.rest();
            // Each page that comes is compared, byte for byte.
            view.get(&keys);
            view.rest();
        }
        assert!(view.backend.stats().degraded > 0);
    }
}

#[test]
fn what_the_first_tier_wrote_halfway_is_not_in_the_page_of_the_second() {
    let halve = |item: &Item| match item.operation {
        Operation::Get => Fault::Half(Error::new(ErrorKind::Io, "test")),
        _ => Fault::Pass,
    };
    let view = view(faulty(halve).0, memory(), TierOptions::default());
    view.write(&pages::keys(0..4));
    assert_eq!(view.hits(&pages::keys(0..6)), [true, true, true, true, false, false]);
    view.rest();
}

#[test]
fn a_chosen_slot_that_the_first_tier_missed_is_the_one_that_the_second_reads_into() {
    let second = memory();
    straight(&second).write(&pages::keys(0..1));
    let view = view(memory(), second, TierOptions::default());
    for _ in 0..3 {
        let claim = |key, slot| Get { key, into: view.pool.claim(PageIndex::new(slot)).unwrap() };
        let batch = vec![claim(pages::key(0), 5), claim(pages::key(9), 2)];
        let mut outcomes = wait("get", view.backend.batch_get(batch, view.call)).into_iter();
        let page = outcomes.next().unwrap().unwrap().unwrap();
        assert_eq!((page.index().get(), page.is_claimed()), (5, true));
        view.check(&pages::key(0), &page);
        assert!(outcomes.next().unwrap().unwrap().is_none());
        drop(page);
        // Also while a copy of it is being promoted.
        view.at_rest("when a get into a chosen slot is answered");
    }
}

#[test]
fn a_page_of_the_second_tier_is_promoted_and_then_the_first_tiers() {
    for promote in [true, false] {
        let (first, second) = (memory(), memory());
        straight(&second).write(&pages::keys(0..4));
        let options = TierOptions { promote, ..TierOptions::default() };
        let view = view(Arc::clone(&first), second, options);
        assert_eq!(view.hits(&pages::keys(0..5)), [true, true, true, true, false]);
        let stats = || view.backend.stats();
        assert_eq!((stats().second_hits, stats().degraded), (4, 0));
        if promote {
            until("pages are promoted", || stats().promoted == 4);
            assert_eq!(straight(&first).hits(&pages::keys(0..4)), [true; 4]);
        } else {
            wait("close", view.store.close()).unwrap();
            assert_eq!(stats().promoted, 0);
        }
    }
}

#[test]
fn a_run_of_the_second_tiers_pages_is_longer_than_the_pool_and_no_promotion_holds_its_slots() {
    let second = memory();
    let keys = pages::keys(0..40);
    for some in keys.chunks(8) {
        straight(&second).write(some);
    }
    let gate = Gate::open();
    let view = view(gated(&gate).0, second, TierOptions::default());
    let run =
        Prefix::new(Arc::clone(&view.backend), keys.clone(), view.pool.clone(), NonZeroUsize::MIN, view.call);
    let mut count = 0;
    for (key, page) in keys.iter().zip(run.wait()) {
        view.check(key, &page.expect("a page of the run"));
        count += 1;
    }
    assert_eq!(count, keys.len());
    view.at_rest("after the run");
    until("pages are promoted", || view.backend.stats().promoted == 40);
}

#[test]
fn a_hanging_first_tier_does_not_hang_the_answer() {
    let gate = Gate::open();
    let (first, _) = gated(&gate);
    let second = memory();
    straight(&second).write(&pages::keys(0..2));
    let view = view(first, second, TierOptions::default());
    gate.close();
    let soon = soon(&view);
    assert_eq!(soon.exists(&pages::keys(0..3)), [true, true, false]);
    assert_eq!(soon.hits(&pages::keys(0..3)), [true, true, false], "read into other slots of the pool");
    assert!(soon.set(&pages::keys(4..6)).iter().all(|one| matches!(one, Ok(Stored::Written))));
    assert!(view.pool.available() < 16, "the first tier still has the slots that it was given");
    gate.release();
    view.rest();
    assert_eq!(view.hits(&pages::keys(4..6)), [true; 2]);
}

#[test]
fn a_hanging_second_tier_does_not_hang_the_answer() {
    for options in [TierOptions::default(), behind()] {
        let gate = Gate::shut();
        let view = view(memory(), gated(&gate).0, options);
        let soon = soon(&view);
        assert!(soon.set(&pages::keys(0..2)).iter().all(|one| matches!(one, Ok(Stored::Written))));
        assert_eq!(soon.exists(&pages::keys(0..3)), [true, true, false]);
        assert_eq!(soon.hits(&pages::keys(0..3)), [true, true, false]);
        let removed = wait("remove", view.backend.batch_remove(&pages::keys(0..1), soon.call));
        assert_eq!(removed.first_error().unwrap().kind(), ErrorKind::Timeout, "it may still be there");
        gate.release();
        view.rest();
    }
}

#[test]
fn a_get_into_a_chosen_slot_is_answered_only_when_the_hanging_tier_has_let_go() {
    let gate = Gate::shut();
    let view = view(gated(&gate).0, memory(), TierOptions::default());
    let soon = soon(&view);
    let into = view.pool.claim(PageIndex::new(3)).unwrap();
    let mut chosen = view.backend.batch_get(vec![Get { key: pages::key(1), into }], soon.call);
    gate.wait_held(1);
    // By the time that this one is answered, the deadline of both has passed.
    soon.hits(&pages::keys(2..3));
    assert!(poll_once(&mut chosen).is_pending(), "invariant 5");
    assert!(view.pool.claim(PageIndex::new(3)).is_err());
    gate.release();
    assert!(wait("get", chosen).iter().all(|outcome| matches!(outcome, Ok(None))));
    drop(view.pool.claim(PageIndex::new(3)).expect("the slot is free once its get is answered"));
    view.rest();
}

#[test]
fn a_set_that_the_full_queue_has_no_room_for_waits_for_the_second_tier() {
    let gate = Gate::shut();
    let (second, inner) = gated(&gate);
    let len = pages::two_planes().page_len() as u64;
    let view = view(memory(), second, TierOptions { queue: 2 * len, ..behind() });
    view.write(&pages::keys(0..2));
    gate.wait_held(1);
    view.at_rest("when a set is answered whose pages are on their way to the second tier");
    let mut through = view.backend.batch_set(view.puts(&pages::keys(2..3)), view.call);
    gate.wait_held(2);
    assert!(poll_once(&mut through).is_pending(), "it goes through");
    assert_eq!(view.backend.stats().overflowed, 1);
    gate.release();
    assert!(wait("set", through).iter().all(|one| matches!(one, Ok(Stored::Written))));
    let second = straight(&inner);
    until("the second tier has the pages", || second.exists(&pages::keys(0..3)) == [true; 3]);
    until("the queue has room again", || {
        view.set(&pages::keys(10..12));
        view.remove(&pages::keys(10..12));
        view.backend.stats().overflowed == 1
    });
}

#[test]
fn a_page_that_is_larger_than_the_queue_goes_through_and_is_told() {
    let second = memory();
    let view = view(memory(), Arc::clone(&second), TierOptions { queue: 10, ..behind() });
    view.write(&pages::keys(0..2));
    assert_eq!(straight(&second).exists(&pages::keys(0..2)), [true; 2]);
    assert!(told(&view, "queue"), "{:?}", view.store.health());
    assert_eq!(view.backend.stats().overflowed, 2);
}

/// What a second tier was asked to set, and a gate before it.
fn recorded(gate: &Gate) -> (Arc<dyn Store>, Arc<Mutex<Vec<PageKey>>>) {
    let sets: Arc<Mutex<Vec<PageKey>>> = Arc::default();
    let (noted, gate) = (Arc::clone(&sets), gate.clone());
    let decorate = move |backend: Arc<dyn StorageBackend>| -> Arc<dyn StorageBackend> {
        let noted = Arc::clone(&noted);
        let note = move |item: &Item| {
            if item.operation == Operation::Set {
                noted.lock().unwrap().push(item.key);
            }
            Fault::Pass
        };
        Arc::new(GateBackend::new(Arc::new(FaultBackend::new(backend, note)), gate.clone()))
    };
    (Arc::new(DecoratedStore::new(memory(), decorate)), sets)
}

#[test]
fn a_close_carries_what_is_in_the_queue() {
    let gate = Gate::shut();
    let (second, sets) = recorded(&gate);
    let view = view(memory(), second, behind());
    view.write(&pages::keys(0..3));
    let store = Arc::clone(&view.store);
    let mut close = Pending::new(async move { store.close().await });
    assert!(poll_once(&mut close).is_pending(), "pages are on their way");
    assert_eq!(*sets.lock().unwrap(), []);
    gate.release();
    wait("close", close).unwrap();
    assert_eq!(*sets.lock().unwrap(), pages::keys(0..3));
    assert_eq!(view.backend.stats().unflushed, 0);
}

#[test]
fn a_close_that_cannot_carry_what_is_in_the_queue_says_how_much_is_left() {
    let gate = Gate::shut();
    let mut options = behind();
    options.common.deadline = Duration::from_secs(1);
    let (second, _) = recorded(&gate);
    let view = view(memory(), second, options);
    view.write(&pages::keys(0..3));
    let error = wait("close", view.store.close()).unwrap_err();
    let told = error.fact("pages").map(|pages| pages.parse::<u64>().unwrap());
    assert_eq!((error.kind(), told), (ErrorKind::Timeout, Some(3)), "{error}");
    wait("close", view.store.close()).unwrap();
    gate.release();
}

#[test]
fn handles_that_are_dropped_end_what_was_accepted() {
    let gate = Gate::shut();
    let (second, sets) = recorded(&gate);
    let view = view(memory(), second, behind());
    view.write(&pages::keys(0..3));
    let dropped = thread::spawn(move || drop(view));
    gate.wait_held(1);
    gate.release();
    dropped.join().unwrap();
    assert_eq!(*sets.lock().unwrap(), pages::keys(0..3));
}

#[test]
fn handles_that_are_dropped_do_not_wait_for_ever() {
    let gate = Gate::shut();
    let mut options = behind();
    options.common.deadline = Duration::from_millis(200);
    let view = view(memory(), recorded(&gate).0, options);
    view.write(&pages::keys(0..3));
    let mut get = view.backend.batch_get(view.gets(&pages::keys(5..6)), view.call);
    let pool = view.pool.clone();
    drop(view);
    assert!(matches!(poll_once(&mut get), Poll::Ready(_)), "nobody is left without an answer");
    drop(get);
    gate.release();
    until("every page comes back to its pool", || pool.available() == 16);
}

#[test]
fn a_page_that_is_removed_while_it_is_promoted_does_not_come_back() {
    let (gate, other) = (Gate::open(), Gate::shut());
    let ((first, in_first), (second, in_second)) = (gated(&gate), gated(&other));
    straight(&in_second).write(&pages::keys(0..1));
    let view = view(first, second, TierOptions::default());
    let get = view.backend.batch_get(view.gets(&pages::keys(0..1)), view.call);
    other.wait_held(1);
    gate.close();
    other.release();
    assert!(wait("get", get).iter().all(|one| matches!(one, Ok(Some(_)))));
    // The promotion is at the gate.
    gate.wait_held(1);
    let mut remove = view.backend.batch_remove(&pages::keys(0..1), view.call);
    assert!(poll_once(&mut remove).is_pending());
    assert_eq!(gate.held(), 1, "the removal waits for the promotion");
    gate.release();
    assert!(wait("remove", remove).iter().all(|one| matches!(one, Ok(true))));
    assert_eq!(straight(&in_first).exists(&pages::keys(0..1)), [false]);
    assert_eq!(view.hits(&pages::keys(0..1)), [false]);
    view.rest();
}

#[test]
fn a_page_that_is_removed_while_it_is_read_is_not_promoted() {
    let other = Gate::shut();
    let first = memory();
    let (second, in_second) = gated(&other);
    straight(&in_second).write(&pages::keys(0..2));
    let view = view(Arc::clone(&first), second, TierOptions::default());
    let get = view.backend.batch_get(view.gets(&pages::keys(0..2)), view.call);
    other.wait_held(1);
    let remove = view.backend.batch_remove(&pages::keys(0..1), view.call);
    other.wait_held(2);
    // The get reads the page before the second tier removes it.
    assert!(other.release_one());
    assert!(wait("get", get).iter().all(|one| matches!(one, Ok(Some(_)))));
    until("the page that nobody removes is promoted", || view.backend.stats().promoted == 1);
    other.release();
    assert!(wait("remove", remove).iter().all(|one| matches!(one, Ok(true))));
    assert_eq!(straight(&first).exists(&pages::keys(0..2)), [false, true]);
}

#[test]
fn a_clear_waits_for_what_is_on_its_way_and_nothing_comes_back() {
    let gate = Gate::shut();
    let (second, in_second) = gated(&gate);
    let view = view(memory(), second, behind());
    view.write(&pages::keys(0..3));
    gate.wait_held(1);
    let (store, namespace) = (Arc::clone(&view.store), view.namespace.clone());
    let mut clear = Pending::new(async move { store.clear(&namespace).await });
    assert!(poll_once(&mut clear).is_pending());
    assert_eq!(view.hits(&pages::keys(0..3)), [true; 3], "nothing is cleared so far");
    gate.release();
    assert_eq!(wait("clear", clear).unwrap(), 3);
    assert_eq!(straight(&in_second).exists(&pages::keys(0..3)), [false; 3]);
    assert_eq!(view.hits(&pages::keys(0..3)), [false; 3]);
}

#[test]
fn a_removal_waits_for_a_copy_on_its_way_to_the_second_tier() {
    let gate = Gate::shut();
    let (second, in_second) = gated(&gate);
    let view = view(memory(), second, behind());
    view.write(&pages::keys(0..2));
    gate.wait_held(1);
    let mut remove = view.backend.batch_remove(&pages::keys(0..1), view.call);
    assert!(poll_once(&mut remove).is_pending());
    gate.release();
    assert!(wait("remove", remove).iter().all(|one| matches!(one, Ok(true))));
    until("the other page is carried", || straight(&in_second).exists(&pages::keys(0..2)) == [false, true]);
}

#[test]
fn a_lost_tier_is_not_asked_until_it_is_back() {
    let (broken, asked) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
    let (is_broken, count) = (Arc::clone(&broken), Arc::clone(&asked));
    let (first, in_first) = faulty(move |item| {
        count.fetch_add(u64::from(item.operation == Operation::Set), Ordering::SeqCst);
        if is_broken.load(Ordering::SeqCst) {
            Fault::Fail(Error::new(ErrorKind::Unavailable, "test"))
        } else {
            Fault::Pass
        }
    });
    let view = view(first, memory(), TierOptions::default());
    for number in 0..6 {
        view.write(&pages::keys(number..number + 1));
    }
    assert_eq!(asked.load(Ordering::SeqCst), 3, "three batches failed whole");
    assert_eq!(view.backend.stats().degraded, 6);
    broken.store(false, Ordering::SeqCst);
    let numbers = AtomicU64::new(10);
    until("the tier is asked again", || {
        let number = numbers.fetch_add(1, Ordering::SeqCst);
        let keys = pages::keys(number..number + 1);
        view.write(&keys);
        straight(&in_first).exists(&keys) == [true]
    });
}

/// A store that opens no namespace while it is broken.
#[derive(Debug)]
struct Refusing {
    inner: Arc<dyn Store>,
    broken: Arc<AtomicBool>,
}

#[async_trait]
impl Store for Refusing {
    fn backend(&self, namespace: Namespace) -> Result<Arc<dyn StorageBackend>> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, "test").why("nobody answers"));
        }
        self.inner.backend(namespace)
    }

    async fn namespaces(&self) -> Result<Vec<Namespace>> {
        Err(Error::new(ErrorKind::Unavailable, "test"))
    }

    async fn clear(&self, namespace: &Namespace) -> Result<u64> {
        self.inner.clear(namespace).await
    }

    fn scan(&self, _: Scan, _: Visitor) -> Pending<Result<()>> {
        Pending::ready(Err(Error::new(ErrorKind::Unavailable, "test")))
    }

    fn health(&self) -> Health {
        self.inner.health()
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

#[test]
fn a_namespace_that_one_tier_cannot_open_is_opened_there_when_the_tier_is_back() {
    let (inner, broken) = (memory(), Arc::new(AtomicBool::new(true)));
    let second = Refusing { inner: Arc::clone(&inner), broken: Arc::clone(&broken) };
    let view = view(memory(), Arc::new(second), TierOptions::default());
    view.write(&pages::keys(0..1));
    assert_eq!(view.backend.stats().degraded, 1);
    assert!(told(&view, "second tier"), "{:?}", view.store.health());
    let listed = wait("namespaces", view.store.namespaces()).expect("what the first tier knows");
    assert_eq!(listed, std::slice::from_ref(&view.namespace));
    let finds = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&finds);
    let visitor = move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        ControlFlow::Continue(())
    };
    let scanned = wait("scan", view.store.scan(Scan::default(), Box::new(visitor)));
    assert_eq!(scanned.unwrap_err().fact("tier"), Some("second"), "who scans must not call it sound");
    assert_eq!(finds.load(Ordering::SeqCst), 1);
    broken.store(false, Ordering::SeqCst);
    let numbers = AtomicU64::new(10);
    until("the namespace is opened in the second tier", || {
        let number = numbers.fetch_add(1, Ordering::SeqCst);
        let keys = pages::keys(number..number + 1);
        view.write(&keys);
        straight(&inner).exists(&keys) == [true]
    });
}

#[test]
fn a_scan_says_which_tier_has_a_page_and_names_one_in_both_once() {
    let (first, second) = (memory(), memory());
    straight(&first).write(&pages::keys(0..2));
    straight(&second).write(&pages::keys(1..4));
    let view = view(first, second, TierOptions::default());
    let found: Arc<Mutex<Vec<(PageKey, String)>>> = Arc::default();
    let into = Arc::clone(&found);
    let visitor = move |one: Found| {
        let tier = one.place.split(':').next().unwrap_or_default().to_owned();
        into.lock().unwrap().push((one.key.expect("a page"), tier));
        ControlFlow::Continue(())
    };
    wait("scan", view.store.scan(Scan::default(), Box::new(visitor))).unwrap();
    let mut found = std::mem::take(&mut *found.lock().unwrap());
    found.sort_unstable();
    let places = ["first", "first", "second", "second"].map(str::to_owned);
    let mut wanted: Vec<_> = pages::keys(0..4).into_iter().zip(places).collect();
    wanted.sort_unstable();
    assert_eq!(found, wanted);
    assert_eq!(wait("clear", view.store.clear(&view.namespace)).unwrap(), 3, "the larger of the counts");
}

#[test]
fn a_full_first_tier_goes_on_serving_and_the_second_has_the_rest() {
    let second = memory();
    let len = pages::two_planes().page_len() as u64;
    let view = view(Arc::new(MemoryStore::new(2 * len)), Arc::clone(&second), TierOptions::default());
    for number in 0..6 {
        view.write(&pages::keys(number..number + 1));
    }
    assert_eq!(view.hits(&pages::keys(0..7)), [true, true, true, true, true, true, false]);
    assert_eq!(straight(&second).exists(&pages::keys(0..6)), [true; 6]);
    let stats = view.backend.stats();
    assert_eq!((stats.errors, stats.second_hits, stats.degraded), (0, 4, 4), "{stats:?}");
    view.rest();
}
