//! Contract 6 of a backend: every item is answered by its deadline.

use crate::{Subject, View, pages, wait};
use hicache_core::{Call, Deadline, Error, ErrorKind, Get, PageIndex, Priority};
use std::time::Duration;

/// No hang and no lost page, and the next call works.
pub fn a_deadline_of_nothing_is_a_timeout_or_an_outcome(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "late", pages::two_planes(), 32);
    let keys = pages::keys(0..32);
    for after in [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(50)] {
        let late = view.with_call(Call { deadline: Deadline::After(after), ..Call::default() });
        late.set(&keys).into_iter().filter_map(Result::err).for_each(check);
        late.rest();
        late.get(&keys).into_iter().filter_map(Result::err).for_each(check);
        late.rest();
        let claimed = |key: &_| {
            let into = view.pool.claim(PageIndex::new(3)).expect("the slot is free");
            Get { key: *key, into }
        };
        let outcomes = wait("batch_get", view.backend.batch_get(vec![claimed(&keys[0])], late.call));
        if let Err(error) = outcomes.into_iter().next().expect("contract 1: one outcome") {
            check(error);
        }
        view.at_rest("when a get into a chosen slot is answered");
        let questions = wait("batch_exists", view.backend.batch_exists(&keys, late.call));
        assert_eq!(questions.len(), 32);
        questions.into_iter().filter_map(Result::err).for_each(check);
        let removals = wait("batch_remove", view.backend.batch_remove(&keys, late.call));
        assert_eq!(removals.len(), 32);
        removals.into_iter().filter_map(Result::err).for_each(check);
    }
    view.set(&keys).into_iter().for_each(|outcome| assert!(outcome.is_ok(), "a set without haste"));
    assert_eq!(view.hits(&keys), [true; 32]);
    view.rest();
}

/// The longest time there is does not wrap around.
pub fn a_deadline_of_for_ever_is_no_deadline(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "patient", pages::opaque(4_096), 4);
    let keys = pages::keys(0..4);
    let patient = view.with_call(Call { deadline: Deadline::After(Duration::MAX), ..Call::default() });
    patient.write(&keys);
    assert_eq!(patient.hits(&keys), [true; 4]);
    assert_eq!(patient.remove(&keys), [true; 4]);
    view.rest();
}

/// Also beside others.
pub fn background_calls_are_answered_too(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "background", pages::opaque(4_096), 64);
    let background = view.with_call(Call { priority: Priority::Background, ..Call::default() });
    let (quiet, loud) = (pages::keys(0..32), pages::keys(100..132));
    let set = background.backend.batch_set(background.puts(&quiet), background.call);
    view.write(&loud);
    assert!(wait("batch_set", set).iter().all(Result::is_ok));
    assert_eq!(background.hits(&quiet), [true; 32]);
    assert_eq!(background.exists(&loud), [true; 32]);
    assert_eq!(background.remove(&quiet), [true; 32]);
    view.rest();
}

#[track_caller]
fn check(error: Error) {
    assert_eq!(error.kind(), ErrorKind::Timeout, "contract 6: {error}");
    assert!(error.is_retryable(), "a deadline that passed may be met the next time: {error}");
}
