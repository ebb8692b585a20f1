//! What the contract means when things go wrong behind a backend: failing items, broken transfers, slow ones.

use hicache_core::{
    Alignment, Call, Error, ErrorKind, Get, MemoryStore, Outcomes, Page, PageKey, Pending, Put, Result,
    StorageBackendExt, Stored, replies,
};
use hicache_testkit::fault::{Fault, FaultBackend, Item, Operation};
use hicache_testkit::gate::{Gate, GateBackend};
use hicache_testkit::{Medium, View, pages, poll_once, wait};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

fn view(slots: u32) -> View {
    View::open(&Medium::new(|| Arc::new(MemoryStore::new(1 << 30))), "test", pages::two_planes(), slots)
}

/// The same store, with items going wrong by `rule`.
fn faulty(view: &View, rule: impl Fn(&Item) -> Fault + Send + Sync + 'static) -> View {
    View { backend: Arc::new(FaultBackend::new(Arc::clone(&view.backend), rule)), ..view.clone() }
}

fn gated(view: &View, gate: &Gate) -> View {
    View { backend: Arc::new(GateBackend::new(Arc::clone(&view.backend), gate.clone())), ..view.clone() }
}

fn broken() -> Error {
    Error::new(ErrorKind::Io, "move page").why("the device is gone").retryable()
}

fn kinds<T>(outcomes: &[Result<T>]) -> Vec<Option<ErrorKind>> {
    outcomes.iter().map(|outcome| outcome.as_ref().err().map(Error::kind)).collect()
}

#[test]
fn b020_every_key_has_one_result_whatever_fails() {
    let view = view(8);
    view.write(&pages::keys(0..4));
    let all = faulty(&view, |_| Fault::Fail(broken()));
    let some = faulty(&view, |item| if item.index % 3 == 1 { Fault::Fail(broken()) } else { Fault::Pass });
    let none = faulty(&view, |_| Fault::Drop);
    for len in [0, 1, 3, 7] {
        // Each key twice, so that no answer is taken for another's.
        let keys: Vec<PageKey> = (0..len).map(|n| pages::key(n / 2)).collect();
        for (view, kind) in [(&all, ErrorKind::Io), (&none, ErrorKind::Closed)] {
            assert_eq!(kinds(&view.get(&keys)), vec![Some(kind); keys.len()]);
            assert_eq!(kinds(&view.set(&keys)), vec![Some(kind); keys.len()]);
            let exists = wait("batch_exists", view.backend.batch_exists(&keys, view.call));
            let removed = wait("batch_remove", view.backend.batch_remove(&keys, view.call));
            assert_eq!((exists.len(), removed.len()), (keys.len(), keys.len()));
            assert_eq!((exists.prefix_len(|_| true), removed.prefix_len(|_| true)), (0, 0));
            view.rest();
        }
        let got = kinds(&some.get(&keys));
        let wanted: Vec<_> = (0..keys.len()).map(|index| (index % 3 == 1).then_some(ErrorKind::Io)).collect();
        assert_eq!(got, wanted, "one error per failed item, the others as they are");
        some.rest();
    }
}

#[test]
fn b022_one_failed_page_of_a_set_leaves_the_others_stored_and_can_be_tried_again() {
    let view = view(10);
    let once = AtomicBool::new(false);
    let faulty = faulty(&view, move |item| {
        let fails = item.key == pages::key(4) && !once.swap(true, Ordering::Relaxed);
        if fails { Fault::Fail(broken()) } else { Fault::Pass }
    });
    let keys = pages::keys(0..10);
    let outcomes = faulty.set(&keys);
    for (index, outcome) in outcomes.iter().enumerate() {
        match outcome {
            Ok(stored) => assert_eq!((*stored, index == 4), (Stored::Written, false)),
            Err(error) => assert!(index == 4 && error.is_retryable(), "{index}: {error}"),
        }
    }
    assert_eq!(faulty.set(&keys[4..5])[0].as_ref().unwrap(), &Stored::Written);
    assert_eq!(view.hits(&keys), [true; 10]);
    view.rest();
}

#[test]
fn b022_a_get_that_runs_out_in_the_middle_keeps_the_pages_before() {
    let view = view(10);
    let keys = pages::keys(0..10);
    view.write(&keys);
    let dry = Error::new(ErrorKind::Exhausted, "get page").retryable();
    let faulty =
        faulty(&view, move |item| if item.index < 6 { Fault::Pass } else { Fault::Fail(dry.clone()) });
    let outcomes = wait("batch_get", faulty.backend.batch_get(faulty.gets(&keys), Call::default()));
    assert_eq!(outcomes.prefix_len(Option::is_some), 6);
    assert_eq!((outcomes.len(), outcomes.first_error().unwrap().kind()), (10, ErrorKind::Exhausted));
    for (key, outcome) in keys.iter().zip(outcomes.into_iter().take(6)) {
        view.check(key, &outcome.unwrap().unwrap());
    }
    view.rest();
}

#[test]
fn b024_a_read_that_breaks_off_is_never_a_hit() {
    let view = view(4);
    let keys = pages::keys(0..4);
    view.write(&keys);
    let hits = view.backend.stats().hits;
    for fault in [Fault::Half(broken()), Fault::Fail(broken()), Fault::Drop] {
        let faulty = faulty(&view, {
            let fault = fault.clone();
            move |item| if item.operation == Operation::Get { fault.clone() } else { Fault::Pass }
        });
        let gets = faulty.gets(&keys);
        let bytes = |get: &Get| get.into.bytes(0).unwrap().to_vec();
        assert!(gets.iter().all(|get| bytes(get).iter().all(|byte| *byte == pages::STALE)));
        let outcomes = wait("batch_get", faulty.backend.batch_get(gets, Call::default()));
        assert!(outcomes.iter().all(Result::is_err), "{fault:?}: {outcomes:?}");
        assert_eq!(outcomes.prefix_len(Option::is_some), 0);
        view.at_rest("when its read has failed");
        assert_eq!(view.backend.stats().hits, hits, "a failed read is not counted as a hit");
        assert_eq!(faulty.exists(&keys), [true; 4]);
    }
    assert_eq!(view.hits(&keys), [true; 4], "the slots that were half written serve again");
}

#[test]
fn b024_a_lost_set_is_found_out_by_the_next_get() {
    let view = view(4);
    let keys = pages::keys(0..4);
    let lossy = faulty(&view, |item| if item.index == 2 { Fault::Miss } else { Fault::Pass });
    lossy.set(&keys).into_iter().for_each(|outcome| assert_eq!(outcome.unwrap(), Stored::Written));
    assert_eq!(view.hits(&keys), [true, true, false, true]);
}

#[test]
fn b025_nothing_is_there_before_the_outcome_and_all_of_it_with_it() {
    let view = view(16);
    let gate = Gate::open();
    let slow = gated(&view, &gate);
    for round in 0..200 {
        let keys = pages::keys(8 * round..8 * round + 8);
        gate.close();
        let mut set = slow.backend.batch_set(slow.puts(&keys), slow.call);
        assert!(poll_once(&mut set).is_pending());
        assert_eq!(view.exists(&keys), [false; 8]);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                // However it interleaves: what a get gives is whole.
                let hits = view.hits(&keys[..4]);
                (hits, view.exists(&keys))
            });
            gate.release();
            assert!(wait("batch_set", set).iter().all(Result::is_ok));
            assert_eq!(view.hits(&keys[4..]), [true; 4], "what was answered can be read");
            reader.join().unwrap();
        });
        view.remove(&keys);
    }
    view.rest();
}

/// A backend of replies: a thread writes each page in two halves, then tells.
fn halves(view: &View, keys: &[PageKey]) -> (Pending<Outcomes<Option<Page>>>, Arc<AtomicUsize>) {
    let told = Arc::new(AtomicUsize::new(0));
    let (replies, pending, _) = replies(keys.len());
    let (gets, telling, view) = (view.gets(keys), Arc::clone(&told), view.clone());
    thread::spawn(move || {
        for (mut get, reply) in gets.into_iter().zip(replies) {
            pages::fill(&mut get.into, view.seed(&get.key));
            thread::yield_now();
            reply.send(Ok(Some(get.into.freeze())));
            telling.fetch_add(1, Ordering::Relaxed);
        }
    });
    (pending, told)
}

#[test]
fn b025_pages_are_handed_over_after_their_bytes() {
    let view = view(4);
    let keys = pages::keys(0..4);
    for _ in 0..500 {
        let (mut pending, told) = halves(&view, &keys);
        if poll_once(&mut pending).is_pending() {
            assert!(told.load(Ordering::Relaxed) <= 4);
            for (key, outcome) in keys.iter().zip(wait("outcomes", pending)) {
                view.check(key, &outcome.unwrap().unwrap());
            }
        }
        view.rest();
    }
}

#[test]
fn b031_a_page_a_byte_off_is_refused_and_the_backend_goes_on() {
    for layout in [pages::two_planes(), pages::many_pieces(), pages::latent(), pages::opaque(4_096)] {
        let open = || Arc::new(MemoryStore::new(1 << 20));
        let view = View::open(&Medium::new(open), "test", layout, 2);
        for len in [layout.page_len() - 1, layout.page_len() + 1] {
            let pool = pages::pool(&pages::opaque(len), 1, Alignment::NONE, hicache_core::Backing::Private);
            let page = || pool.alloc(1).unwrap().remove(0);
            let put = Put { key: pages::key(1), parent: None, page: page().freeze() };
            assert_eq!(view.backend.set(put).wait().unwrap_err().kind(), ErrorKind::InvalidArgument);
            let error = view.backend.get(pages::key(1), page()).wait().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.fact("page").unwrap().contains(&len.to_string()), "{error}");
        }
        view.write(&[pages::key(1)]);
        assert_eq!(view.backend.stats().bytes_written, layout.page_len() as u64);
        assert_eq!(view.hits(&[pages::key(1)]), [true]);
    }
}

#[test]
fn a_page_held_at_the_gate_is_not_in_its_pool() {
    let view = view(8);
    let gate = Gate::shut();
    let slow = gated(&view, &gate);
    let keys = pages::keys(0..4);
    drop(slow.backend.batch_set(slow.puts(&keys), slow.call));
    let get = slow.backend.batch_get(slow.gets(&keys), slow.call);
    assert_eq!((gate.held(), view.pool.available()), (2, 0), "contract 2: pages stay with the operation");
    assert!(gate.release_last(), "the get overtakes the set");
    assert!(wait("batch_get", get).iter().all(|outcome| matches!(outcome, Ok(None))));
    gate.release();
    view.rest();
    assert_eq!(view.hits(&keys), [true; 4]);
}

#[test]
fn an_abandoned_call_is_answered_as_closed() {
    let view = view(4);
    let gate = Gate::shut();
    let slow = gated(&view, &gate);
    let get = slow.backend.batch_get(slow.gets(&pages::keys(0..4)), slow.call);
    gate.wait_held(1);
    gate.abandon();
    let outcomes: Vec<_> = wait("batch_get", get).into_iter().collect();
    assert_eq!(kinds(&outcomes), [Some(ErrorKind::Closed); 4]);
    view.at_rest("when its call was given up");
}
