//! What several threads and several stores do to the same pages at once: no torn page, no wrong byte.

use crate::{Medium, Openers, Subject, View, pages};
use hicache_core::Stored;
use std::thread;

/// Rounds of each thread.
const ROUNDS: u64 = 8;

/// Equal keys are equal bytes, so both writers succeed and readers see whole pages or misses.
pub fn two_writers_of_the_same_pages_are_both_right(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "writers", pages::two_planes(), 64);
    for round in 0..ROUNDS {
        let keys = pages::keys(100 * round..100 * round + 8);
        let write = || {
            for outcome in view.set(&keys) {
                outcome.expect("contract 8: a set of a page that is there, or is coming, is fine");
            }
            assert_eq!(view.hits(&keys), [true; 8], "what a set has answered can be read");
        };
        let read = || (0..ROUNDS).for_each(|_| drop(view.hits(&keys)));
        thread::scope(|scope| {
            scope.spawn(write);
            scope.spawn(write);
            scope.spawn(read);
            scope.spawn(|| (0..ROUNDS).for_each(|_| drop(view.exists(&keys))));
        });
        let again = view.set(&keys).into_iter().map(|outcome| outcome.expect("a set"));
        assert!(again.eq([Stored::Present; 8]), "contract 8: the page is there and sound");
        view.rest();
    }
}

/// A page that goes while it is read is whole or a miss, never half of it; one that comes back is whole.
pub fn a_get_beside_a_remove_is_whole_or_a_miss(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "removers", pages::many_pieces(), 64);
    let keys = pages::keys(0..8);
    let set = || {
        for _ in 0..5 * ROUNDS {
            view.set(&keys).into_iter().for_each(|outcome| assert!(outcome.is_ok(), "a set"));
        }
    };
    let remove = || (0..5 * ROUNDS).for_each(|_| drop(view.remove(&keys)));
    let read = || (0..5 * ROUNDS).for_each(|_| drop(view.hits(&keys)));
    thread::scope(|scope| {
        scope.spawn(set);
        scope.spawn(remove);
        scope.spawn(read);
        scope.spawn(read);
    });
    view.set(&keys);
    assert_eq!(view.hits(&keys), [true; 8]);
    assert_eq!(view.remove(&keys), [true; 8]);
    assert_eq!(view.hits(&keys), [false; 8]);
    view.rest();
}

/// Where several stores may have one medium open (see [`Openers`]).
pub fn two_stores_on_one_medium_see_the_same_pages(subject: &Subject) {
    if subject.openers() == Openers::One {
        return;
    }
    let medium: Medium = subject.fresh();
    let open = || View::open(&medium, "shared", pages::two_planes(), 32);
    let (a, b) = (open(), open());
    let keys = pages::keys(0..16);
    thread::scope(|scope| {
        for view in [&a, &b] {
            scope.spawn(|| {
                for outcome in view.set(&keys) {
                    outcome.expect("contract 8: both stores may set the page");
                }
            });
        }
    });
    for view in [&a, &b] {
        assert_eq!(view.hits(&keys), [true; 16]);
        assert_eq!(view.exists(&keys), [true; 16]);
    }
    assert_eq!(a.remove(&keys[..8]), [true; 8]);
    assert_eq!(b.hits(&keys[..8]), [false; 8], "a page that another store removed is gone");
    b.write(&keys[..8]);
    assert_eq!(a.hits(&keys), [true; 16]);
    a.rest();
    b.rest();
}
