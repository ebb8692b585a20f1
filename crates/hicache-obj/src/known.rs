//! What a backend knows of pages without asking: which were there a moment ago, and which are damaged.

use crate::listing::Pays;
use hicache_core::PageKey;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Keys remembered of either kind. Two generations of half as many each: the older one goes as a whole.
const KEYS_MAX: usize = 65_536;

/// Bounded, and never the last word: whoever finds a page missing says so here.
#[derive(Debug)]
pub(crate) struct Known {
    ttl: Duration,
    pages: Mutex<Pages>,
    listing: Pays,
}

#[derive(Debug, Default)]
struct Pages {
    there: HashMap<PageKey, Instant>,
    there_before: HashMap<PageKey, Instant>,
    damaged: HashSet<PageKey>,
    damaged_before: HashSet<PageKey>,
    /// Goes up with each removal.
    removals: u64,
}

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    There,
    Damaged,
    Unknown,
}

impl Known {
    /// Believes for `ttl` that a page is still there.
    pub(crate) fn new(ttl: Duration) -> Self {
        Self { ttl, pages: Mutex::default(), listing: Pays::default() }
    }

    /// Whether a listing is worth trying.
    pub(crate) fn listing(&self) -> &Pays {
        &self.listing
    }

    pub(crate) fn of(&self, key: &PageKey) -> Standing {
        let pages = self.lock();
        if pages.damaged.contains(key) || pages.damaged_before.contains(key) {
            return Standing::Damaged;
        }
        let seen = pages.there.get(key).or_else(|| pages.there_before.get(key));
        match seen {
            Some(seen) if seen.elapsed() < self.ttl => Standing::There,
            _ => Standing::Unknown,
        }
    }

    /// Removals so far, to say later since when a page is being stored, read or looked for.
    pub(crate) fn removals(&self) -> u64 {
        self.lock().removals
    }

    /// It was stored, read or seen, and sound. That is not believed where something was removed since: it may have
    /// been this page.
    pub(crate) fn note_there(&self, key: PageKey, since: u64) {
        let mut pages = self.lock();
        pages.damaged.remove(&key);
        pages.damaged_before.remove(&key);
        if self.ttl.is_zero() || pages.removals != since {
            return;
        }
        if pages.there.len() >= KEYS_MAX / 2 {
            pages.there_before = std::mem::take(&mut pages.there);
        }
        pages.there.insert(key, Instant::now());
    }

    /// It was removed.
    pub(crate) fn note_removed(&self, key: &PageKey) {
        self.lock().removals += 1;
        self.note_absent(key);
    }

    /// It was not found.
    pub(crate) fn note_absent(&self, key: &PageKey) {
        let mut pages = self.lock();
        pages.forget(key);
        pages.damaged.remove(key);
        pages.damaged_before.remove(key);
    }

    /// It failed its check: not there for anybody who asks, and to be replaced by the next set.
    pub(crate) fn note_damaged(&self, key: PageKey) {
        let mut pages = self.lock();
        pages.forget(&key);
        if pages.damaged.len() >= KEYS_MAX / 2 {
            pages.damaged_before = std::mem::take(&mut pages.damaged);
        }
        pages.damaged.insert(key);
    }

    /// The namespace was cleared.
    pub(crate) fn forget_all(&self) {
        let mut pages = self.lock();
        *pages = Pages { removals: pages.removals + 1, ..Pages::default() };
    }

    fn lock(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages {
    fn forget(&mut self, key: &PageKey) {
        self.there.remove(key);
        self.there_before.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u32) -> PageKey {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&n.to_le_bytes());
        PageKey::new(bytes)
    }

    #[test]
    fn what_is_known_is_bounded_and_the_newest_stays() {
        let known = Known::new(Duration::from_secs(3600));
        for n in 0..3 * KEYS_MAX as u32 {
            known.note_there(key(n), 0);
            known.note_damaged(key(1_000_000 + n));
        }
        let pages = known.lock();
        assert!(pages.there.len() + pages.there_before.len() <= KEYS_MAX);
        assert!(pages.damaged.len() + pages.damaged_before.len() <= KEYS_MAX);
        drop(pages);
        assert_eq!(known.of(&key(3 * KEYS_MAX as u32 - 1)), Standing::There);
        assert_eq!(known.of(&key(0)), Standing::Unknown);
    }

    #[test]
    fn a_damaged_page_is_so_until_it_is_replaced_or_gone() {
        let known = Known::new(Duration::from_secs(3600));
        known.note_there(key(1), 0);
        known.note_damaged(key(1));
        assert_eq!(known.of(&key(1)), Standing::Damaged);
        known.note_there(key(1), 0);
        assert_eq!(known.of(&key(1)), Standing::There);
        known.note_damaged(key(1));
        known.note_absent(&key(1));
        assert_eq!(known.of(&key(1)), Standing::Unknown);
    }

    #[test]
    fn without_a_ttl_nothing_is_believed_but_damage() {
        let known = Known::new(Duration::ZERO);
        known.note_there(key(1), 0);
        assert_eq!(known.of(&key(1)), Standing::Unknown);
        known.note_damaged(key(1));
        assert_eq!(known.of(&key(1)), Standing::Damaged);
    }

    #[test]
    fn what_was_seen_before_a_removal_is_not_believed_after_it() {
        let known = Known::new(Duration::from_secs(3600));
        let removals: [&dyn Fn(); 2] = [&|| known.note_removed(&key(1)), &|| known.forget_all()];
        for remove in removals {
            let since = known.removals();
            remove();
            known.note_there(key(1), since);
            assert_eq!(known.of(&key(1)), Standing::Unknown);
            known.note_there(key(1), known.removals());
            assert_eq!(known.of(&key(1)), Standing::There);
        }
    }
}
