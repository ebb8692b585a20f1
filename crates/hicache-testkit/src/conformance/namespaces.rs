//! Contracts 1 and 2 of a store: one namespace, one layout; and nothing of others.

use crate::{Subject, View, pages, wait};
use hicache_core::{Error, ErrorKind, Namespace, PageLayout, PageOrder, Store};
use std::slice;
use std::sync::Arc;

/// With one layout and with two.
pub fn one_key_in_two_namespaces_is_two_pages(subject: &Subject) {
    let medium = subject.fresh();
    let store = medium.open();
    let view = |name, layout| View::of(&store, name, layout, 4);
    let a = view("a", pages::two_planes());
    let b = view("b", pages::two_planes());
    let c = view("c", pages::opaque(777));
    let keys = pages::keys(0..3);
    a.write(&keys);
    assert_eq!(b.exists(&keys), [false; 3], "store contract 2: a page is in its own namespace only");
    assert_eq!(b.hits(&keys), [false; 3], "store contract 2: a page is served in its own namespace only");
    b.write(&keys[..2]);
    c.write(&keys);
    assert_eq!((a.hits(&keys), c.hits(&keys)), (vec![true; 3], vec![true; 3]));
    assert_eq!(b.remove(&keys), [true, true, false]);
    assert_eq!((a.hits(&keys), c.hits(&keys)), (vec![true; 3], vec![true; 3]));
    for view in [a, b, c] {
        view.rest();
    }
}

/// By name, as they were given.
pub fn a_namespace_is_listed_from_its_first_put(subject: &Subject) {
    let medium = subject.fresh();
    let store = medium.open();
    assert_eq!(listed(&store), []);
    let layouts = [pages::opaque(100), pages::two_planes(), pages::latent()];
    let views: Vec<View> = ["z", "m", "a"]
        .into_iter()
        .zip(layouts)
        .map(|(name, layout)| View::of(&store, name, layout, 2))
        .collect();
    views[0].get(&[pages::key(1)]);
    assert_eq!(listed(&store), [], "store contract 1: recorded at its first put, not at a get");
    let mut put = Vec::new();
    for view in &views {
        view.write(&[pages::key(1)]);
        put.push(view.namespace.clone());
        put.sort_by(|a, b| a.name().cmp(b.name()));
        assert_eq!(listed(&store), put, "store contract 1: name, digest and layout, by name");
    }
    views[0].remove(&[pages::key(1)]);
    assert_eq!(listed(&store), put, "the record of a namespace outlives its pages");
}

/// Names are for people; stores go by digests.
pub fn names_of_any_kind_are_kept_apart(subject: &Subject) {
    let medium = subject.fresh();
    let store = medium.open();
    let long = "n".repeat(1_024);
    let longer = "n".repeat(1_023);
    let names = [
        "a",
        "A",
        "a ",
        " a",
        "a.",
        "a/b",
        "a/../b",
        "../a",
        "/",
        ".",
        "..",
        "a%2Fb",
        "a\\b",
        "-a",
        "~",
        "*",
        "ключ",
        "e\u{301}",
        "\u{e9}",
        "org/model kv tp0/8",
        &long,
        &longer,
    ];
    let view = |name: &&str| View::of(&store, name, pages::opaque(300), 1);
    let views: Vec<View> = names.iter().map(view).collect();
    for view in &views {
        assert_eq!(view.hits(&[pages::key(1)]), [false], "store contract 2: {:?}", view.namespace.name());
        view.write(&[pages::key(1)]);
    }
    for view in &views {
        assert_eq!(view.hits(&[pages::key(1)]), [true], "{:?}", view.namespace.name());
    }
    let found = listed(&store);
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    assert_eq!(found.iter().map(Namespace::name).collect::<Vec<_>>(), sorted);
}

/// And says how many pages that were.
pub fn clear_takes_its_own_namespace_and_nothing_else(subject: &Subject) {
    let medium = subject.fresh();
    let store = medium.open();
    let view = |name| View::of(&store, name, pages::opaque(600), 8);
    let (gone, kept, never) = (view("gone"), view("kept"), view("never"));
    let keys = pages::keys(0..8);
    gone.write(&keys);
    kept.write(&keys);
    gone.remove(&keys[..1]);
    assert_eq!(clear(&store, &never.namespace), 0, "there was nothing to clear");
    assert_eq!(clear(&store, &gone.namespace), 7, "pages that were cleared");
    assert_eq!(gone.hits(&keys), [false; 8]);
    assert_eq!(gone.exists(&keys), [false; 8]);
    assert_eq!(kept.hits(&keys), [true; 8], "store contract 2: clear removes nothing of others");
    assert_eq!(listed(&store), slice::from_ref(&kept.namespace), "a cleared namespace has no record");
    assert_eq!(clear(&store, &gone.namespace), 0);
    gone.rest();
    kept.rest();
}

/// Through the backend that was there before, and through a new one; also with another layout.
pub fn a_cleared_namespace_can_be_used_again(subject: &Subject) {
    let medium = subject.fresh();
    let store = medium.open();
    let view = View::of(&store, "again", pages::opaque(600), 4);
    let keys = pages::keys(0..4);
    for _ in 0..3 {
        view.write(&keys);
        assert_eq!(
            listed(&store),
            slice::from_ref(&view.namespace),
            "store contract 1: recorded at its first put"
        );
        assert_eq!(clear(&store, &view.namespace), 4);
    }
    let other = View::of(&store, "again", pages::two_planes(), 4);
    other.write(&keys);
    assert_eq!(listed(&store), slice::from_ref(&other.namespace));
    assert_eq!(other.hits(&keys), [true; 4]);
}

/// Refused from the first put on, and told apart from other failures.
pub fn another_layout_is_incompatible(subject: &Subject) {
    let medium = subject.fresh();
    let store = medium.open();
    let view = View::of(&store, "layout", pages::two_planes(), 2);
    view.write(&[pages::key(1)]);
    for other in [pages::opaque(pages::two_planes().page_len()), pages::latent(), pages::many_pieces()] {
        check(store.backend(named("layout", other)).map(drop).expect_err("store contract 1: another layout"));
    }
    view.remove(&[pages::key(1)]);
    let other = named("layout", pages::latent());
    check(
        store.backend(other).map(drop).expect_err("store contract 1: the record is there without pages too"),
    );
    store.backend(view.namespace.clone()).expect("the layout that is recorded");
    assert_eq!(view.hits(&[pages::key(1)]), [false]);
}

/// Who opened first does not matter; who put first does. One of the others has pages of the same shape.
pub fn two_layouts_before_the_first_put_do_not_mix(subject: &Subject) {
    let medium = subject.fresh();
    let store = medium.open();
    let direct = PageLayout::new(*pages::two_planes().geometry(), PageOrder::PageFirstDirect);
    let others = [pages::latent(), pages::many_pieces(), direct.expect("the geometry is fine")];
    for (name, other) in ["latent", "many pieces", "another order"].into_iter().zip(others) {
        let first = View::of(&store, name, pages::two_planes(), 4);
        let second = View::of(&store, name, other, 4);
        let keys = pages::keys(0..3);
        first.write(&keys[..2]);
        for outcome in second.get(&keys) {
            match outcome {
                Ok(None) => (),
                Err(error) => check(error),
                Ok(Some(_)) => panic!("contract 4: a page of another layout was served: {name}"),
            }
        }
        assert_eq!(first.hits(&keys), [true, true, false], "store contract 1: a get harms nothing: {name}");
        for outcome in second.set(&keys[1..]) {
            check(outcome.expect_err("store contract 1: one namespace, one layout"));
        }
        assert_eq!(first.hits(&keys), [true, true, false], "store contract 1: a set harms nothing: {name}");
        assert!(listed(&store).contains(&first.namespace));
        first.rest();
        second.rest();
    }
}

fn named(name: &str, layout: PageLayout) -> Namespace {
    Namespace::named(name, layout).expect("a fine name")
}

#[track_caller]
fn listed(store: &Arc<dyn Store>) -> Vec<Namespace> {
    wait("namespaces", store.namespaces()).expect("a list of namespaces")
}

#[track_caller]
fn clear(store: &Arc<dyn Store>, namespace: &Namespace) -> u64 {
    wait("clear", store.clear(namespace)).expect("a namespace is cleared")
}

#[track_caller]
fn check(error: Error) {
    assert_eq!(error.kind(), ErrorKind::Incompatible, "store contract 1: {error}");
}
