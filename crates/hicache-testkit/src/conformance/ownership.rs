//! Contracts 2 and 5 of a backend: pages belong to the operation until it is over, and work starts at the call.

use crate::{Subject, View, pages, poll_once, until, until_some, wait};
use hicache_core::{Pending, Put, Stored};
use std::task::Poll;

/// Dropping what waits for a set drops the interest, not the work.
pub fn a_dropped_set_goes_on_and_gives_its_pages_back(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "dropped", pages::two_planes(), 32);
    for round in 0..10 {
        let keys = pages::keys(100 * round..100 * round + 32);
        drop(view.backend.batch_set(view.puts(&keys), view.call));
        view.rest();
        until("contract 5: a set goes on without anybody waiting", || {
            view.exists(&keys).iter().all(|there| *there)
        });
        assert_eq!(view.hits(&keys), [true; 32]);
    }
    view.rest();
}

/// Also when it is polled once before; what is stored stays right.
pub fn a_dropped_get_gives_its_pages_back(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "dropped", pages::two_planes(), 32);
    let keys = pages::keys(0..32);
    view.write(&keys);
    for polled in [false, true].repeat(10) {
        let mut pending = view.backend.batch_get(view.gets(&keys), view.call);
        if polled {
            let _ = poll_once(&mut pending);
        }
        drop(pending);
        view.rest();
    }
    drop(view.backend.batch_exists(&keys, view.call));
    assert_eq!(view.hits(&keys), [true; 32]);
    drop(view.backend.batch_remove(&keys[..16], view.call));
    until("contract 5: a removal goes on without anybody waiting", || {
        view.exists(&keys[..16]).iter().all(|there| !there)
    });
    view.rest();
}

/// What nobody has polled yet is being done, and its answer is there when somebody asks at last.
pub fn work_starts_at_the_call(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "eager", pages::opaque(4_096), 16);
    let keys = pages::keys(0..8);
    let set = view.backend.batch_set(view.puts(&keys), view.call);
    until("contract 5: a set starts at the call", || view.exists(&keys).iter().all(|there| *there));
    let outcomes = wait("batch_set", set);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(Stored::Written))), "{outcomes:?}");
    view.rest();
    let get = view.backend.batch_get(view.gets(&keys), view.call);
    let exists = view.backend.batch_exists(&keys, view.call);
    let outcomes = ended("contract 5: a get ends without anybody to be woken", get);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(Some(_)))), "{outcomes:?}");
    let answers = ended("contract 5: a question is answered without anybody to be woken", exists);
    assert!(answers.iter().all(|answer| matches!(answer, Ok(true))), "{answers:?}");
    drop(outcomes);
    view.rest();
}

/// The caller keeps reading a page that it has offered, and frees the slot when it is done with it.
pub fn a_page_being_set_stays_readable(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "shared", pages::two_planes(), 16);
    let keys = pages::keys(0..16);
    let kept: Vec<Put> = view.puts(&keys);
    let set = view.backend.batch_set(kept.clone(), view.call);
    for put in &kept {
        view.check(&put.key, &put.page);
    }
    let outcomes = wait("batch_set", set);
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    for put in kept {
        view.check(&put.key, &put.page);
    }
    view.rest();
    assert_eq!(view.hits(&keys), [true; 16]);
}

/// Looks again and again, and is never woken.
#[track_caller]
fn ended<T>(what: &str, mut pending: Pending<T>) -> T {
    until_some(what, || match poll_once(&mut pending) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    })
}
