//! Contract 3 of a store: close ends what was accepted, then refuses.

use crate::{Reopened, Subject, View, pages, wait};
use hicache_core::{Error, ErrorKind, Namespace, Scan, Stored};
use std::ops::ControlFlow;

/// Through the store, and through backends that were there before.
pub fn a_closed_store_refuses_everything(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "closed", pages::two_planes(), 8);
    let keys = pages::keys(0..8);
    view.write(&keys[..4]);
    view.rest();
    wait("close", view.store.close()).expect("a store closes");
    let store = &view.store;
    check("backend", store.backend(view.namespace.clone()).map(drop));
    let other = Namespace::named("other", pages::opaque(1)).expect("a fine name");
    check("backend", store.backend(other).map(drop));
    check("namespaces", wait("namespaces", store.namespaces()).map(drop));
    check("clear", wait("clear", store.clear(&view.namespace)).map(drop));
    check("scan", wait("scan", store.scan(Scan::default(), Box::new(|_| ControlFlow::Continue(())))));
    view.set(&keys).into_iter().for_each(|outcome| check("set", outcome.map(drop)));
    view.at_rest("when a set is refused");
    view.get(&keys).into_iter().for_each(|outcome| check("get", outcome.map(drop)));
    view.at_rest("when a get is refused");
    let exists = wait("batch_exists", view.backend.batch_exists(&keys, view.call));
    assert_eq!(exists.len(), 8, "contract 1: one outcome per item");
    exists.into_iter().for_each(|outcome| check("exists", outcome.map(drop)));
    let removed = wait("batch_remove", view.backend.batch_remove(&keys, view.call));
    assert_eq!(removed.len(), 8, "contract 1: one outcome per item");
    removed.into_iter().for_each(|outcome| check("remove", outcome.map(drop)));
    assert_eq!(view.set(&[]).len(), 0, "contract 1: a batch of nothing has no outcome to refuse");
    let _ = (store.health(), view.backend.stats(), view.backend.capabilities());
}

/// Each item with its outcome, or refused; what was told written is there afterwards.
pub fn what_was_accepted_before_a_close_is_answered(subject: &Subject) {
    let medium = subject.fresh();
    let keys = pages::keys(0..32);
    let view = View::open(&medium, "closing", pages::two_planes(), 64);
    let set = view.backend.batch_set(view.puts(&keys), view.call);
    let get = view.backend.batch_get(view.gets(&keys), view.call);
    wait("close", view.store.close()).expect("a store closes");
    let set: Vec<bool> = wait("batch_set", set)
        .into_iter()
        .map(|outcome| match outcome {
            Ok(stored) => stored == Stored::Written,
            Err(error) => {
                check("set", Err(error));
                false
            }
        })
        .collect();
    assert_eq!(set.len(), 32, "contract 1: one outcome per item");
    for (key, outcome) in keys.iter().zip(wait("batch_get", get)) {
        match outcome {
            Ok(Some(page)) => view.check(key, &page),
            Ok(None) => (),
            Err(error) => check("get", Err(error)),
        }
    }
    view.rest();
    drop(view);
    if subject.reopened() == Reopened::Whole {
        let view = View::open(&medium, "closing", pages::two_planes(), 32);
        for (there, written) in view.hits(&keys).into_iter().zip(set) {
            assert!(there || !written, "store contract 3: what was told written is there");
        }
    }
}

/// And dropped after that.
pub fn a_store_may_be_closed_twice(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "twice", pages::opaque(512), 2);
    view.write(&pages::keys(0..2));
    for _ in 0..3 {
        wait("close", view.store.close()).expect("store contract 3: closing twice is fine");
    }
    check("backend", view.store.backend(view.namespace.clone()).map(drop));
    drop(view);
    drop(medium.open());
}

#[track_caller]
fn check(operation: &str, outcome: Result<(), Error>) {
    match outcome {
        Err(error) if error.kind() == ErrorKind::Closed => (),
        other => panic!("store contract 3: {operation} after a close: {other:?}"),
    }
}
