//! The longest stored run, when batches are slow, overtake one another, or fail.

use hicache_core::{
    Call, Error, ErrorKind, MemoryStore, Page, PageKey, Prefix, Result, STORAGE_BATCH_SIZE, StorageBackend,
};
use hicache_testkit::fault::{Fault, FaultBackend, Item, Operation};
use hicache_testkit::gate::{Gate, GateBackend};
use hicache_testkit::{Medium, View, pages};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

const BATCH: usize = STORAGE_BATCH_SIZE;

fn stored(slots: u32, keys: u64) -> (View, Vec<PageKey>) {
    let medium = Medium::new(|| Arc::new(MemoryStore::new(1 << 30)));
    let view = View::open(&medium, "test", pages::opaque(64), slots);
    let keys = pages::keys(0..keys);
    keys.chunks(slots as usize).for_each(|keys| view.write(keys));
    (view, keys)
}

fn run(backend: Arc<dyn StorageBackend>, view: &View, keys: &[PageKey], at_once: usize) -> Prefix {
    let at_once = NonZeroUsize::new(at_once).unwrap();
    Prefix::new(backend, keys.to_vec(), view.pool.clone(), at_once, Call::default())
}

fn faulty(view: &View, rule: impl Fn(&Item) -> Fault + Send + Sync + 'static) -> Arc<dyn StorageBackend> {
    Arc::new(FaultBackend::new(Arc::clone(&view.backend), rule))
}

fn io_error() -> Error {
    Error::new(ErrorKind::Io, "get page")
}

#[test]
fn batches_that_overtake_one_another_come_in_order() {
    let (view, keys) = stored(1_000, 1_000);
    let gate = Gate::shut();
    let backend = Arc::new(GateBackend::new(Arc::clone(&view.backend), gate.clone()));
    let run = run(backend, &view, &keys, 4);
    thread::scope(|scope| {
        let reader = scope.spawn(|| run.wait().collect::<Result<Vec<Page>>>());
        gate.wait_held(1);
        assert!(gate.release_one(), "the question what is there, which comes first");
        gate.wait_held(4);
        assert_eq!(view.pool.available(), 1_000 - 4 * BATCH, "no more batches at once than allowed");
        while gate.release_last() {}
        gate.release();
        let pages = reader.join().unwrap().unwrap();
        assert_eq!(pages.len(), keys.len());
        for (key, page) in keys.iter().zip(&pages) {
            view.check(key, page);
        }
    });
}

#[test]
fn b022_an_error_ends_the_run_behind_the_pages_before_it() {
    let (view, keys) = stored(300, 300);
    for failing in [0, 1, 130, 299] {
        let key = keys[failing];
        let backend = faulty(&view, move |item| {
            let fails = item.operation == Operation::Get && item.key == key;
            if fails { Fault::Half(io_error()) } else { Fault::Pass }
        });
        let mut run = run(backend, &view, &keys, 2).wait();
        for key in &keys[..failing] {
            view.check(key, &run.next().unwrap().unwrap());
        }
        assert_eq!(run.next().unwrap().unwrap_err().kind(), ErrorKind::Io);
        assert!(run.next().is_none() && run.next().is_none());
        view.at_rest("when the run has ended");
    }
}

#[test]
fn a_question_that_fails_does_not_end_the_run() {
    let (view, keys) = stored(300, 300);
    let backend = faulty(&view, |item| {
        let fails = item.operation == Operation::Exists && item.index >= 10;
        if fails { Fault::Fail(io_error()) } else { Fault::Pass }
    });
    assert_eq!(run(backend, &view, &keys, 2).wait().filter(Result::is_ok).count(), 300);
    let backend = faulty(&view, |item| {
        let fails = item.operation == Operation::Exists && item.index == 10;
        if fails { Fault::Miss } else { Fault::Pass }
    });
    assert_eq!(run(backend, &view, &keys, 2).wait().filter(Result::is_ok).count(), 10);
}

#[test]
fn a_page_that_goes_between_question_and_get_ends_the_run() {
    let (view, keys) = stored(300, 300);
    let gone = keys[150];
    let backend = faulty(&view, move |item| {
        let misses = item.operation == Operation::Get && item.key == gone;
        if misses { Fault::Miss } else { Fault::Pass }
    });
    let pages: Vec<Page> = run(backend, &view, &keys, 3).wait().map(Result::unwrap).collect();
    assert_eq!(pages.len(), 150);
    assert_eq!(view.pool.available(), 150, "what was read ahead is back when the run has ended");
}

#[test]
fn a_run_that_is_dropped_leaves_its_pages_with_the_work() {
    let (view, keys) = stored(300, 300);
    let gate = Gate::shut();
    let backend = Arc::new(GateBackend::new(Arc::clone(&view.backend), gate.clone()));
    let run = run(backend, &view, &keys, 1);
    thread::scope(|scope| {
        let reader = scope.spawn(|| run.wait().next().unwrap().unwrap());
        gate.wait_held(1);
        gate.release_one();
        gate.wait_held(1);
        assert_eq!(view.pool.available(), 300 - BATCH);
        gate.release_one();
        gate.wait_held(1);
        let first = reader.join().unwrap();
        view.check(&keys[0], &first);
        assert_eq!(view.pool.available(), 299 - BATCH, "the second batch is under way, and nobody waits");
        gate.release();
    });
    view.rest();
}
