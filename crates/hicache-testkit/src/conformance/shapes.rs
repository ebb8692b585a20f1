//! Contract 7 of a backend: a page of another shape is refused before any I/O.

use crate::{Subject, View, pages, wait};
use hicache_core::{Call, Error, ErrorKind, Get, Namespace, PageLayout, Put};

/// The namespace's pages: K and V.
fn layout() -> PageLayout {
    pages::two_planes()
}

/// Layouts whose pages are not the namespace's: a byte less, a byte more, twice as long, other pieces of the same
/// sum.
fn others() -> [PageLayout; 5] {
    let len = layout().page_len();
    [
        pages::opaque(len - 1),
        pages::opaque(len + 1),
        pages::opaque(2 * len),
        pages::opaque(len),
        pages::many_pieces(),
    ]
}

/// A view of the same backend whose pages are of another layout.
fn askew(view: &View, layout: PageLayout) -> View {
    let namespace = Namespace::recorded(view.namespace.name(), view.namespace.digest(), layout);
    let view = View { namespace, ..view.clone() };
    view.with_pool(4, view.backend.capabilities().alignment, hicache_core::Backing::Private)
}

/// Neither stored nor served, and the pages come back.
pub fn a_page_of_another_shape_is_refused_before_any_io(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "shapes", layout(), 4);
    let (stored, fresh) = (pages::key(1), pages::key(2));
    view.write(&[stored]);
    let before = view.backend.stats();
    for other in others() {
        let other = askew(&view, other);
        for outcome in other.set(&[fresh, stored]) {
            check(outcome.expect_err("contract 7: a set of another shape"));
        }
        other.at_rest("when a set is refused");
        for outcome in other.get(&[fresh, stored]) {
            check(outcome.expect_err("contract 7: a get of another shape"));
        }
        other.at_rest("when a get is refused");
    }
    let after = view.backend.stats();
    assert_eq!(
        (after.written, after.bytes_written, after.hits, after.bytes_read),
        (before.written, before.bytes_written, before.hits, before.bytes_read),
        "contract 7: refused before any I/O"
    );
    assert_eq!(view.exists(&[stored, fresh]), [true, false], "contract 7: nothing was stored");
    assert_eq!(view.hits(&[stored, fresh]), [true, false]);
    view.rest();
}

/// The rest of its batch is done.
pub fn an_item_of_another_shape_fails_alone(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "shapes", layout(), 8);
    let other = askew(&view, pages::opaque(layout().page_len() + 1));
    let keys = pages::keys(0..5);
    let put = |(index, key): (usize, &_)| {
        let view = if index % 2 == 1 { &other } else { &view };
        Put { key: *key, parent: None, page: view.page(key) }
    };
    let batch = keys.iter().enumerate().map(put).collect();
    let set = wait("batch_set", view.backend.batch_set(batch, Call::default()));
    let refused: Vec<bool> = set.iter().map(|outcome| outcome.is_err()).collect();
    assert_eq!(refused, [false, true, false, true, false], "contract 1: a batch never fails as a whole");
    assert_eq!(view.exists(&keys), [true, false, true, false, true]);
    let get = |(index, mut get): (usize, Get)| {
        if index % 2 == 1 {
            get.into = other.gets(&[get.key]).remove(0).into;
        }
        get
    };
    let batch = view.gets(&keys).into_iter().enumerate().map(get).collect();
    let got = wait("batch_get", view.backend.batch_get(batch, Call::default()));
    for (index, outcome) in got.into_iter().enumerate() {
        match outcome {
            Ok(Some(page)) if index % 2 == 0 => view.check(&keys[index], &page),
            Err(error) if index % 2 == 1 => check(error),
            other => panic!("contract 1: item {index} of a batch in which others fail: {other:?}"),
        }
    }
    view.rest();
    other.rest();
}

#[track_caller]
fn check(error: Error) {
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "contract 7: {error}");
}
