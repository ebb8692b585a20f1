//! What became of the regions that were asked of one machine, counted.

use crate::Fallback;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What became of the regions that were asked of one [`Machine`](crate::Machine) and its clones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MachineCounts {
    /// Regions mapped.
    pub mapped: u64,
    /// Regions refused with an error.
    pub refused: u64,
    /// Fallbacks of the mapped regions, by [`Fallback::what`].
    pub fallbacks: BTreeMap<&'static str, u64>,
    /// Ranges that the kernel would not unmap; each is told as an error event too, and lost until the process ends.
    pub unmap_failures: u64,
}

impl MachineCounts {
    /// Fallbacks of one kind.
    pub fn fallbacks_of(&self, what: &str) -> u64 {
        self.fallbacks.get(what).copied().unwrap_or(0)
    }
}

/// Where a machine counts. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(Arc<Mutex<MachineCounts>>);

impl Tally {
    pub(crate) fn mapped(&self, fallbacks: &[Fallback]) {
        let mut counts = self.lock();
        counts.mapped += 1;
        for fallback in fallbacks {
            *counts.fallbacks.entry(fallback.what).or_default() += 1;
        }
    }

    pub(crate) fn refused(&self) {
        self.lock().refused += 1;
    }

    pub(crate) fn not_unmapped(&self) {
        self.lock().unmap_failures += 1;
    }

    pub(crate) fn read(&self) -> MachineCounts {
        self.lock().clone()
    }

    /// Sums are sound whenever the lock is free, poisoned or not.
    fn lock(&self) -> MutexGuard<'_, MachineCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
