//! [`Prefix`] over the store: the longest stored run, in order, within the pool.

use crate::{Subject, View, pages, wait};
use futures_core::Stream;
use hicache_core::{Alignment, Backing, Error, ErrorKind, Page, PageKey, Prefix, Result};
use std::future::poll_fn;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;

/// Whatever is stored behind the miss.
pub fn a_run_ends_before_its_first_miss(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "runs", pages::opaque(512), 300);
    let keys = pages::keys(0..300);
    for stored in [0, 1, 127, 128, 129, 200, 299, 300] {
        view.write(&keys[..stored]);
        if stored < 299 {
            view.write(&keys[stored + 1..]);
        }
        view.rest();
        for at_once in [1, 3] {
            let mut run = run(&view, &keys, at_once);
            let pages = rest_of(&view, &mut run, &keys).expect("a run without errors");
            assert_eq!(pages.len(), stored, "a run ends before its first miss");
            assert!(next(&mut run).is_none(), "a run that has ended stays ended");
        }
        view.at_rest("after the run");
        view.remove(&keys);
    }
    assert!(next(&mut run(&view, &[], 1)).is_none(), "a run of no keys is empty");
}

/// Pages are taken as batches start, so a caller that drops them as it goes needs few.
pub fn a_run_may_be_longer_than_the_pool(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "runs", pages::opaque(512), 300);
    let keys = pages::keys(0..300);
    view.write(&keys);
    for (slots, at_once) in [(1, 1), (1, 4), (50, 1), (50, 2), (128, 2), (200, 4)] {
        let view = view.with_pool(slots, Alignment::NONE, Backing::Private);
        let mut run = run(&view, &keys, at_once);
        for key in &keys {
            let page = next(&mut run).expect("the whole run").expect("a page");
            view.check(key, &page);
        }
        assert!(next(&mut run).is_none());
        view.at_rest("after the run");
    }
}

/// Others have all the pages, or the caller keeps those it was given.
pub fn a_dry_pool_ends_the_run_as_exhausted(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "runs", pages::opaque(512), 50);
    let keys = pages::keys(0..100);
    view.write(&keys[..50]);
    view.rest();
    view.write(&keys[50..]);
    view.rest();
    let others = view.pool.alloc(50);
    let mut dry = run(&view, &keys, 2);
    check(next(&mut dry).expect("an end that is told").expect_err("no page to read into"));
    assert!(next(&mut dry).is_none(), "a run ends after its first error");
    drop((dry, others));
    let mut kept = Vec::new();
    let mut run = run(&view, &keys, 2);
    let error = loop {
        match next(&mut run).expect("an end that is told") {
            Ok(page) => kept.push(page),
            Err(error) => break error,
        }
    };
    check(error);
    assert_eq!(kept.len(), 50, "as many pages as the pool has");
    for (key, page) in keys.iter().zip(&kept) {
        view.check(key, page);
    }
    assert!(next(&mut run).is_none());
    drop(kept);
    view.at_rest("after the run");
}

/// Whoever sees the end may use the pool at once.
pub fn what_was_read_ahead_of_a_miss_is_back_when_the_run_ends(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "runs", pages::two_planes(), 300);
    let keys = pages::keys(0..300);
    view.write(&keys);
    view.rest();
    for missing in [0, 5, 130, 290] {
        view.remove(&keys[missing..=missing]);
        let mut run = run(&view, &keys, 4);
        for key in &keys[..missing] {
            view.check(key, &next(&mut run).expect("a page before the miss").expect("a page"));
        }
        assert!(next(&mut run).is_none());
        view.at_rest("when the run has ended");
        view.set(&keys[missing..=missing]);
        view.rest();
    }
}

/// The pages that were given stay good.
pub fn a_run_left_halfway_gives_its_pages_back(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "runs", pages::two_planes(), 300);
    let keys = pages::keys(0..300);
    view.write(&keys);
    view.rest();
    for taken in [0, 1, 100, 129] {
        let mut run = run(&view, &keys, 3);
        let kept: Vec<Page> = (0..taken).map(|_| next(&mut run).expect("a page").expect("a page")).collect();
        drop(run);
        for (key, page) in keys.iter().zip(&kept) {
            view.check(key, page);
        }
        drop(kept);
        view.rest();
    }
    let mut waiting =
        Prefix::new(Arc::clone(&view.backend), keys[..10].to_vec(), view.pool.clone(), one(), view.call)
            .wait();
    assert!(waiting.by_ref().all(|page| page.is_ok()), "the same run on a plain thread");
    view.at_rest("when the run has ended");
}

fn one() -> NonZeroUsize {
    NonZeroUsize::MIN
}

fn run(view: &View, keys: &[PageKey], at_once: usize) -> Prefix {
    let at_once = NonZeroUsize::new(at_once).expect("at least one batch");
    Prefix::new(Arc::clone(&view.backend), keys.to_vec(), view.pool.clone(), at_once, view.call)
}

#[track_caller]
fn next(run: &mut Prefix) -> Option<Result<Page>> {
    wait("the next page of a run", poll_fn(|context| Pin::new(&mut *run).poll_next(context)))
}

#[track_caller]
fn rest_of(view: &View, run: &mut Prefix, keys: &[PageKey]) -> Result<Vec<Page>> {
    let mut pages = Vec::new();
    while let Some(page) = next(run) {
        let page = page?;
        view.check(&keys[pages.len()], &page);
        pages.push(page);
    }
    Ok(pages)
}

#[track_caller]
fn check(error: Error) {
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    assert!(error.is_retryable(), "others may give pages back: {error}");
}
