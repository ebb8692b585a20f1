//! The leading run over two tiers: a key may lie in either, and a lost one degrades.

use hicache_core::{Error, ErrorKind, MemoryStore, PageKey, StorageBackend, Store};
use hicache_testkit::fault::{Fault, FaultBackend, Item, Operation};
use hicache_testkit::{DecoratedStore, View, pages, wait};
use hicache_tier::{TierOptions, TierStore};
use std::sync::{Arc, Mutex};

type Rule = fn(&Item) -> Fault;

/// A store of two in memory, each behind a rule; the tiers themselves; and which keys the second was asked for.
struct Tiers {
    whole: View,
    first: View,
    second: View,
    asked: Arc<Mutex<Vec<PageKey>>>,
}

fn tiers(rules: [Rule; 2]) -> Tiers {
    let plain: [Arc<dyn Store>; 2] = [0, 1].map(|_| Arc::new(MemoryStore::new(1 << 30)) as Arc<dyn Store>);
    let asked: Arc<Mutex<Vec<PageKey>>> = Arc::default();
    let decorated = [0, 1].map(|index| {
        let asked = Arc::clone(&asked);
        let rule = rules[index];
        let decorate = move |backend| -> Arc<dyn StorageBackend> {
            let asked = Arc::clone(&asked);
            Arc::new(FaultBackend::new(backend, move |item| {
                if index == 1 && item.operation == Operation::Exists {
                    asked.lock().unwrap().push(item.key);
                }
                rule(item)
            }))
        };
        Arc::new(DecoratedStore::new(Arc::clone(&plain[index]), decorate)) as Arc<dyn Store>
    });
    let [one, other] = decorated;
    let options = TierOptions { promote: false, ..TierOptions::default() };
    let store: Arc<dyn Store> = Arc::new(TierStore::new(one, other, options).unwrap());
    let view = |store: &Arc<dyn Store>| View::of(store, "tiers", pages::opaque(512), 64);
    Tiers { whole: view(&store), first: view(&plain[0]), second: view(&plain[1]), asked }
}

fn pass(_: &Item) -> Fault {
    Fault::Pass
}

fn fail(_: &Item) -> Fault {
    Fault::Fail(Error::new(ErrorKind::Io, "test").why("the medium is gone"))
}

#[test]
fn a_key_in_either_tier_makes_the_run_longer() {
    let keys = pages::keys(0..16);
    for pattern in 0..64_u32 {
        let tiers = tiers([pass, pass]);
        let held = |index: usize| (pattern >> (2 * (index % 3))) & 3;
        let of = |bit: u32| Vec::from_iter((0..12).filter(|i| held(*i) & bit != 0).map(|i| keys[i]));
        tiers.first.write(&of(1));
        tiers.second.write(&of(2));
        let wanted = (0..12).take_while(|index| held(*index) != 0).count();
        assert_eq!(tiers.whole.leading_run(&keys), wanted, "pattern {pattern:06b}");
        assert_eq!(tiers.whole.leading_run(&keys[..6]), wanted.min(6), "pattern {pattern:06b}");
    }
}

#[test]
fn the_second_tier_is_asked_for_no_key_that_the_first_has() {
    let tiers = tiers([pass, pass]);
    let keys = pages::keys(0..10);
    tiers.first.write(&keys[..8]);
    assert_eq!(tiers.whole.leading_run(&keys[..8]), 8);
    assert_eq!(tiers.asked.lock().unwrap().len(), 0);
    assert_eq!(tiers.whole.leading_run(&keys), 8);
    assert_eq!(*tiers.asked.lock().unwrap(), keys[8..]);
}

#[test]
fn a_lost_tier_degrades_a_run_and_two_are_an_error() {
    let keys = pages::keys(0..6);
    for (rules, wanted) in [([fail as Rule, pass], 4), ([pass, fail], 3), ([fail, fail], 0)] {
        let tiers = tiers(rules);
        tiers.first.write(&keys[..3]);
        tiers.second.write(&keys[..4]);
        let run = wait("run", tiers.whole.backend.leading_run(&keys, tiers.whole.call));
        assert_eq!(run.len, wanted, "{run:?}");
        assert_eq!(run.error.is_some(), wanted == 0, "{run:?}");
        let stats = tiers.whole.backend.stats();
        assert_eq!((stats.degraded > 0, stats.errors), (wanted != 0, u64::from(wanted == 0)), "{stats:?}");
    }
}

#[test]
fn what_the_second_tier_could_not_tell_ends_the_run_there() {
    let tiers = tiers([pass, |item| if item.index == 2 { fail(item) } else { Fault::Pass }]);
    let keys = pages::keys(0..6);
    tiers.second.write(&keys);
    let run = wait("run", tiers.whole.backend.leading_run(&keys, tiers.whole.call));
    // The first has not got it, so a tier that fails makes it a miss, as of every question.
    assert_eq!((run.len, run.error.is_none()), (2, true), "{run:?}");
    assert_eq!(tiers.whole.backend.stats().degraded, 1);
}
