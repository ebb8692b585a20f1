//! The memory store keeps every promise of a store, is its model, and stays within its capacity.

use hicache_core::{Error, ErrorKind, MemoryStore, StoreOptions, StoreRegistry, Stored};
use hicache_testkit::{Medium, Openers, Reopened, Subject, View, conformance, model, pages, wait};
use std::sync::Arc;

fn subject() -> Subject {
    let fresh = || Medium::new(|| Arc::new(MemoryStore::new(1 << 30)));
    Subject::new("memory", Reopened::Empty, Openers::One, fresh)
}

#[test]
fn the_memory_store_keeps_every_promise() {
    conformance::all(&subject());
}

#[test]
fn the_memory_store_is_its_model() {
    model::check(&subject(), 64);
}

#[test]
fn a_full_store_refuses_single_pages_and_goes_on() {
    let medium = Medium::new(|| Arc::new(MemoryStore::new(4_000)));
    let view = View::open(&medium, "full", pages::opaque(1_000), 6);
    let keys = pages::keys(0..6);
    let outcomes = view.set(&keys);
    let kinds: Vec<_> = outcomes.iter().map(|outcome| outcome.as_ref().err().map(Error::kind)).collect();
    let full = Some(ErrorKind::NoSpace);
    assert_eq!(kinds, [None, None, None, None, full, full]);
    assert!(outcomes[5].as_ref().unwrap_err().to_string().contains("capacity=4000"));
    assert_eq!(view.store.health().available_len, Some(0));
    assert_eq!(view.set(&keys[..1])[0].as_ref().unwrap(), &Stored::Present, "what is there needs no room");
    view.remove(&keys[..1]);
    view.write(&keys[5..]);
    assert_eq!(view.hits(&keys), [false, true, true, true, false, true]);
    assert_eq!(wait("clear", view.store.clear(&view.namespace)).unwrap(), 4);
    assert_eq!(view.store.health().available_len, Some(4_000));
    assert_eq!(view.backend.stats().errors, 2);
}

#[test]
fn b058_a_capacity_below_a_page_is_no_panic() {
    for capacity in [0, 1, 999, 1_000, 1_001] {
        let mut registry = StoreRegistry::default();
        registry.register(MemoryStore::FACTORY);
        let store = registry.open(&format!("memory:?capacity={capacity}"), StoreOptions::default()).unwrap();
        let view = View::of(&store, "small", pages::opaque(1_000), 1);
        let fits = view.set(&[pages::key(1)])[0].is_ok();
        assert_eq!(fits, capacity >= 1_000);
        assert_eq!(view.hits(&[pages::key(1)]), [fits]);
    }
}

#[test]
fn clones_of_a_store_are_one_store() {
    let store = MemoryStore::new(1 << 20);
    let view = |store| {
        View::open(&Medium::new(move || Arc::new(MemoryStore::clone(&store))), "a", pages::opaque(9), 2)
    };
    let (a, b) = (view(store.clone()), view(store));
    a.write(&[pages::key(1)]);
    assert_eq!(b.hits(&[pages::key(1)]), [true]);
    wait("close", b.store.close()).unwrap();
    assert_eq!(a.get(&[pages::key(1)])[0].as_ref().unwrap_err().kind(), ErrorKind::Closed);
}
