//! What a medium that keeps its pages (see [`Reopened`]) holds when it is opened again.

use crate::{Medium, Reopened, Subject, View, pages, wait};
use hicache_core::{ErrorKind, Namespace, Scan, Stored};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// After a close: pages, records, and the refusal of other layouts.
pub fn a_closed_store_is_whole_when_opened_again(subject: &Subject) {
    whole(subject, |view| wait("close", view.store.close()).expect("a store closes"));
}

/// Without a close: a dropped store does the same (store contract 3).
pub fn a_dropped_store_is_whole_when_opened_again(subject: &Subject) {
    whole(subject, |view| view.rest());
}

/// Also across two openings.
pub fn a_removed_page_stays_removed(subject: &Subject) {
    if subject.reopened() == Reopened::Empty {
        return;
    }
    let medium = subject.fresh();
    let open = || View::open(&medium, "removed", pages::opaque(4_096), 4);
    let keys = pages::keys(0..4);
    open().write(&keys);
    assert_eq!(open().remove(&keys[..2]), [true, true]);
    assert_eq!(open().hits(&keys), [false, false, true, true]);
    let cleared = open();
    assert_eq!(wait("clear", cleared.store.clear(&cleared.namespace)).expect("a clear"), 2);
    drop(cleared);
    assert_eq!(open().hits(&keys), [false; 4]);
    let store = medium.open();
    assert_eq!(wait("namespaces", store.namespaces()).expect("a list"), []);
}

fn whole(subject: &Subject, end: impl Fn(&View)) {
    if subject.reopened() == Reopened::Empty {
        return;
    }
    let medium = subject.fresh();
    let layouts =
        [("many", pages::many_pieces()), ("opaque", pages::opaque(4_097)), ("two", pages::two_planes())];
    let keys = pages::keys(0..8);
    for (name, layout) in layouts {
        let view = View::open(&medium, name, layout, 8);
        view.write(&keys);
        end(&view);
    }
    for (name, layout) in layouts {
        let view = View::open(&medium, name, layout, 8);
        assert_eq!(view.exists(&keys), [true; 8], "store contract 3: what was stored is there");
        assert_eq!(view.hits(&keys), [true; 8]);
        let again = view.set(&keys).into_iter().map(|outcome| outcome.expect("a set"));
        assert!(again.eq([Stored::Present; 8]), "contract 8: it is there and sound");
        view.rest();
        let other = Namespace::named(name, pages::opaque(9)).expect("a fine name");
        let refused = view.store.backend(other).map(drop).expect_err("store contract 1: another layout");
        assert_eq!(refused.kind(), ErrorKind::Incompatible, "{refused}");
        end(&view);
    }
    listed(&medium, &layouts.map(|(name, layout)| Namespace::named(name, layout).expect("a fine name")), 24);
}

fn listed(medium: &Medium, namespaces: &[Namespace], pages: usize) {
    let store = medium.open();
    assert_eq!(wait("namespaces", store.namespaces()).expect("a list"), namespaces);
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let found = move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        ControlFlow::Continue(())
    };
    wait("scan", store.scan(Scan::default(), Box::new(found))).expect("a scan");
    assert_eq!(count.load(Ordering::Relaxed), pages, "pages that a scan finds");
}
