//! What an operator's scan of a sound store finds: its pages, each once, and nothing else.

use crate::{Subject, View, pages, wait};
use hicache_core::{Depth, Found, Namespace, PageKey, Scan, State, Store};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

/// By name and by content, with key, namespace and length.
pub fn a_scan_finds_every_page_once(subject: &Subject) {
    let medium = subject.fresh();
    let store = medium.open();
    let a = View::of(&store, "a", pages::two_planes(), 20);
    let b = View::of(&store, "b", pages::opaque(777), 20);
    a.write(&pages::keys(0..20));
    b.write(&pages::keys(10..25));
    b.remove(&pages::keys(10..12));
    for depth in [Depth::Names, Depth::Contents] {
        for repair in [false, true] {
            let found = scan(&store, Scan { namespace: None, depth, repair });
            check(&found, depth, &[(&a.namespace, pages::keys(0..20)), (&b.namespace, pages::keys(12..25))]);
        }
    }
    assert_eq!(a.hits(&pages::keys(0..20)), [true; 20], "a scan leaves sound pages alone");
}

/// Also where the other has the same keys.
pub fn a_scan_of_one_namespace_finds_no_other(subject: &Subject) {
    let medium = subject.fresh();
    let store = medium.open();
    let view = |name| View::of(&store, name, pages::opaque(777), 5);
    let (a, b) = (view("a"), view("b"));
    a.write(&pages::keys(0..5));
    b.write(&pages::keys(0..5));
    for view in [&a, &b] {
        let asked = Scan { namespace: Some(view.namespace.digest()), depth: Depth::Contents, repair: false };
        check(&scan(&store, asked), Depth::Contents, &[(&view.namespace, pages::keys(0..5))]);
    }
}

/// In a store without pages, and of a namespace that is not there.
pub fn a_scan_of_nothing_finds_nothing(subject: &Subject) {
    let medium = subject.fresh();
    let store = medium.open();
    assert_eq!(scan(&store, Scan::default()), []);
    let view = View::of(&store, "a", pages::opaque(777), 2);
    view.write(&pages::keys(0..2));
    let absent = Namespace::named("absent", pages::opaque(777)).expect("a fine name");
    assert_eq!(scan(&store, Scan { namespace: Some(absent.digest()), ..Scan::default() }), []);
    view.remove(&pages::keys(0..2));
    assert_eq!(scan(&store, Scan::default()), [], "a removed page leaves nothing to find");
}

#[track_caller]
fn scan(store: &Arc<dyn Store>, scan: Scan) -> Vec<Found> {
    let finds = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&finds);
    let found = move |find| {
        into.lock().unwrap_or_else(PoisonError::into_inner).push(find);
        ControlFlow::Continue(())
    };
    wait("scan", store.scan(scan, Box::new(found))).expect("a scan of a sound store");
    let mut finds = finds.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut *finds)
}

#[track_caller]
fn check(found: &[Found], depth: Depth, wanted: &[(&Namespace, Vec<PageKey>)]) {
    let mut left = BTreeSet::new();
    for (namespace, keys) in wanted {
        let len = namespace.layout().page_len() as u64;
        left.extend(keys.iter().map(|key| (namespace.name(), *key, len)));
    }
    for find in found {
        let key = find.key.unwrap_or_else(|| panic!("store contract 2: not a page: {find:?}"));
        assert!(left.remove(&(&*find.namespace, key, find.len)), "no such page, or found twice: {find:?}");
        let fits = match depth {
            Depth::Names => find.state == State::Listed,
            Depth::Contents => matches!(find.state, State::Sound | State::Unverified),
        };
        assert!(fits && !find.repaired, "a sound page: {find:?}");
    }
    assert!(left.is_empty(), "not found: {left:?}");
}

/// A visitor that breaks is called no more.
///
/// # Panics
///
/// If it is, or if the scan fails for that.
pub fn a_scan_ends_where_its_visitor_breaks(subject: &Subject) {
    let medium = subject.fresh();
    let store = medium.open();
    let view = View::of(&store, "a", pages::opaque(777), 8);
    view.write(&pages::keys(0..8));
    let calls = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&calls);
    let visitor = move |_| {
        let mut calls = counted.lock().unwrap_or_else(PoisonError::into_inner);
        *calls += 1;
        if *calls == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    wait("scan", store.scan(Scan::default(), Box::new(visitor))).expect("a scan that was enough");
    assert_eq!(
        *calls.lock().unwrap_or_else(PoisonError::into_inner),
        3,
        "calls of a visitor that breaks at the third"
    );
}
