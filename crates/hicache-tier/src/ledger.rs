//! What is on its way to a tier while nobody waits for it, and what is being removed: so that no page comes back.
//!
//! A get that brings a page of the second tier into the first, or a set whose page goes to the second tier after its
//! answer, could finish after a removal of that page. So a removal waits for what is under way, and a promotion does
//! not begin if its page was removed, or is being removed, since its get began.

use hicache_core::{Outcomes, PageKey, Pending, Reply, replies};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Removed keys that are remembered. With more, what was read before is not promoted at all.
const REMOVED_MAX: usize = 64 * 1024;

/// Of one namespace, however many backends see it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Goes up with each removal.
    now: u64,
    /// What was read before is not promoted.
    floor: u64,
    clears: usize,
    removed: HashMap<PageKey, Removed>,
    under_way: HashMap<PageKey, Vec<Reply<()>>>,
}

#[derive(Default)]
struct Removed {
    going_on: usize,
    at: u64,
}

/// A page on its way; dropped when the tier has let go of it.
#[derive(Debug)]
pub(crate) struct UnderWay {
    ledger: Ledger,
    key: PageKey,
}

/// The keys of which a copy is under way, each with what resolves when it is not any more.
pub(crate) type Waits = Vec<(PageKey, Pending<Outcomes<()>>)>;

/// A removal of some keys, or of all; dropped when it is over.
#[derive(Debug)]
pub(crate) struct Removing {
    ledger: Ledger,
    /// `None`: all.
    keys: Option<Vec<PageKey>>,
}

impl Ledger {
    /// The moment, to say later when something was read.
    pub(crate) fn now(&self) -> u64 {
        self.lock().now
    }

    /// A page sets out that a set has offered. `None`: another copy of it is under way.
    pub(crate) fn set_out(&self, key: PageKey) -> Option<UnderWay> {
        self.begin(&mut self.lock(), key)
    }

    /// A page sets out that was read at `since` or later. `None`: it was removed meanwhile, or is under way.
    pub(crate) fn set_out_read(&self, key: PageKey, since: u64) -> Option<UnderWay> {
        let mut state = self.lock();
        let removed = state.removed.get(&key).is_some_and(|one| one.going_on > 0 || one.at > since);
        if removed || state.clears > 0 || state.floor > since {
            return None;
        }
        self.begin(&mut state, key)
    }

    fn begin(&self, state: &mut State, key: PageKey) -> Option<UnderWay> {
        if state.under_way.contains_key(&key) {
            return None;
        }
        state.under_way.insert(key, Vec::new());
        Some(UnderWay { ledger: self.clone(), key })
    }

    /// A removal of `keys` begins. It waits for what is under way, then removes.
    pub(crate) fn remove(&self, keys: &[PageKey]) -> (Removing, Waits) {
        let mut state = self.lock();
        for key in keys {
            state.removed.entry(*key).or_default().going_on += 1;
        }
        let under_way = keys.iter().filter_map(|key| state.wait_for(key)).collect();
        drop(state);
        (Removing { ledger: self.clone(), keys: Some(keys.to_vec()) }, under_way)
    }

    /// A removal of everything begins.
    pub(crate) fn clear(&self) -> (Removing, Waits) {
        let mut state = self.lock();
        state.clears += 1;
        let keys: Vec<PageKey> = state.under_way.keys().copied().collect();
        let under_way = keys.iter().filter_map(|key| state.wait_for(key)).collect();
        drop(state);
        (Removing { ledger: self.clone(), keys: None }, under_way)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wait_for(&mut self, key: &PageKey) -> Option<(PageKey, Pending<Outcomes<()>>)> {
        let waiting = self.under_way.get_mut(key)?;
        let (replies, ended, _) = replies(1);
        waiting.extend(replies);
        Some((*key, ended))
    }

    fn forget(&mut self) {
        self.floor = self.now;
        self.removed.retain(|_, one| one.going_on > 0);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let waiting = self.ledger.lock().under_way.remove(&self.key).unwrap_or_default();
        waiting.into_iter().for_each(|reply| reply.send(Ok(())));
    }
}

impl Drop for Removing {
    fn drop(&mut self) {
        let mut state = self.ledger.lock();
        state.now += 1;
        let now = state.now;
        match &self.keys {
            Some(keys) => {
                for key in keys {
                    let removed = state.removed.entry(*key).or_default();
                    removed.going_on = removed.going_on.saturating_sub(1);
                    removed.at = now;
                }
                if state.removed.len() > REMOVED_MAX {
                    state.forget();
                }
            }
            None => {
                state.clears -= 1;
                state.forget();
            }
        }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("now", &self.now)
            .field("under_way", &self.under_way.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> PageKey {
        PageKey::new([byte; 32])
    }

    #[test]
    fn what_was_read_before_a_removal_ended_does_not_set_out() {
        let ledger = Ledger::default();
        let before = ledger.now();
        let (removing, _) = ledger.remove(&[key(1)]);
        let during = ledger.now();
        assert!(ledger.set_out_read(key(1), during).is_none(), "the removal goes on");
        drop(removing);
        for since in [before, during] {
            assert!(ledger.set_out_read(key(1), since).is_none());
            assert!(ledger.set_out_read(key(2), since).is_some(), "another page");
        }
        assert!(ledger.set_out_read(key(1), ledger.now()).is_some(), "read after the removal");
    }

    #[test]
    fn what_was_read_before_a_clear_ended_does_not_set_out() {
        let ledger = Ledger::default();
        let before = ledger.now();
        let (clearing, _) = ledger.clear();
        assert!(ledger.set_out_read(key(1), ledger.now()).is_none(), "the clear goes on");
        drop(clearing);
        assert!(ledger.set_out_read(key(1), before).is_none());
        assert!(ledger.set_out_read(key(1), ledger.now()).is_some());
    }

    #[test]
    fn a_removal_that_begins_inside_another_keeps_the_page_away_until_both_are_over() {
        let ledger = Ledger::default();
        let (one, _) = ledger.remove(&[key(1)]);
        let (other, _) = ledger.remove(&[key(1)]);
        drop(one);
        assert!(ledger.set_out_read(key(1), ledger.now()).is_none());
        drop(other);
        assert!(ledger.set_out_read(key(1), ledger.now()).is_some());
    }

    #[test]
    fn many_removals_are_forgotten_and_what_was_read_before_stays_away() {
        let ledger = Ledger::default();
        let before = ledger.now();
        for number in 0..=REMOVED_MAX as u64 {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&number.to_le_bytes());
            drop(ledger.remove(&[PageKey::new(digest)]));
        }
        assert!(ledger.lock().removed.len() <= REMOVED_MAX, "the memory of removals has a limit");
        assert!(ledger.set_out_read(key(9), before).is_none(), "who cannot know does not promote");
        assert!(ledger.set_out_read(key(9), ledger.now()).is_some());
    }

    #[test]
    fn a_removal_waits_for_what_is_under_way() {
        let ledger = Ledger::default();
        let under_way = ledger.set_out(key(1)).unwrap();
        assert!(ledger.set_out(key(1)).is_none(), "one copy of a page is under way");
        let (_removing, mut waits) = ledger.remove(&[key(1), key(2)]);
        let (of, mut wait) = waits.pop().unwrap();
        assert!(waits.is_empty() && of == key(1));
        assert!(hicache_testkit::poll_once(&mut wait).is_pending());
        drop(under_way);
        assert!(hicache_testkit::poll_once(&mut wait).is_ready());
    }
}
