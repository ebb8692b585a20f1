//! Removing pages from both tiers, so that none of them comes back.

use crate::backend::{BEFORE_OTHER, LAST, View};
use crate::driver::Tasks;
use crate::ledger::Waits;
use crate::tier::Place;
use hicache_core::{Call, Counters, Error, ErrorKind, PageKey, Result};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

/// Removes pages.
///
/// Here a lost tier is an error: a page that it still has would come back with it, and who removes a page must not be
/// told that it is gone. Both tiers are asked, lost or not.
pub(crate) async fn remove(view: Arc<View>, keys: Vec<PageKey>, call: Call) -> Vec<Result<bool>> {
    let times = view.times(call);
    let mut places: HashMap<PageKey, usize> = HashMap::new();
    let mut once: Vec<PageKey> = Vec::new();
    for key in &keys {
        places.entry(*key).or_insert_with(|| {
            once.push(*key);
            once.len() - 1
        });
    }
    let (removing, under_way) = view.ledger.remove(&once);
    let held = still_under_way(&view.tasks, under_way, times.at(BEFORE_OTHER.0)).await;
    let given = (call, times.left(LAST.0));
    let ask =
        |place| view.ask((place, true), once.len(), given, |backend, call| backend.batch_remove(&once, call));
    let (first, second) = (ask(Place::First), ask(Place::Second));
    let first = view.answers(first, times.at(LAST.1)).await;
    let second = view.answers(second, times.at(LAST.1)).await;
    drop(removing);
    let mut outcomes: Vec<Result<bool>> = first.into_iter().zip(second).map(both).collect();
    for (key, outcome) in once.iter().zip(&mut outcomes).filter(|(key, _)| held.contains(*key)) {
        if outcome.is_ok() {
            *outcome = Err(still_written().with("key", key));
        }
    }
    let removed = outcomes.iter().filter(|outcome| matches!(outcome, Ok(true))).count();
    Counters::add(&view.counters.removed, removed as u64);
    // One mention of a key removed its page; the others found nothing.
    let mut told = vec![false; once.len()];
    let answer = |key: &PageKey| {
        let place = places[key];
        let outcome = outcomes[place].clone();
        let again = std::mem::replace(&mut told[place], true);
        outcome.map(|there| there && !again)
    };
    keys.iter().map(answer).collect()
}

fn both((first, second): (Result<bool>, Result<bool>)) -> Result<bool> {
    Ok(first? | second?)
}

/// The keys of which a copy is still on its way after `until`.
pub(crate) async fn still_under_way(
    tasks: &Tasks,
    under_way: Waits,
    until: Option<Instant>,
) -> HashSet<PageKey> {
    let mut held = HashSet::new();
    for (key, mut ended) in under_way {
        if tasks.within(&mut ended, until).await.is_none() {
            held.insert(key);
        }
    }
    held
}

pub(crate) fn still_written() -> Error {
    Error::new(ErrorKind::Timeout, "remove page")
        .why("a tier still has a copy that it may write")
        .fix("remove it again when the tier answers")
        .retryable()
}
