//! How much of a key chain is usable, when its pages lie in several pools with rules of their own.
//!
//! The rules are SGLang HiCache's (`batch_exists_v2`), as its file backend has them. Several backends there fold
//! pools by the minimum of their boundaries, which is no intersection and picks prefixes that nobody can restore.

use crate::Restorable;
use std::num::NonZeroUsize;

/// What a pool beside the anchor must hold, for a prefix of the chain to be usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HitPolicy {
    /// Every page of the prefix: pools that share the anchor's slots, as an indexer's.
    AllPages,
    /// The last so many pages of the prefix, or all where it is shorter: a sliding window, or with 1 the state at
    /// the prefix's end.
    TrailingPages(NonZeroUsize),
    /// A second form of the anchor's pages, in whole groups of keys: it is told how far it reaches, and never makes
    /// the prefix shorter.
    BlockGroups {
        /// The anchor's pages that one group stands for, counted from the start of the span.
        block_pages: NonZeroUsize,
        /// Keys in a group.
        group_pages: NonZeroUsize,
    },
}

impl HitPolicy {
    /// Whether who loads the first `pages` pages of a chain loads page number `page`, from 0, of this pool: what
    /// makes the pool able to restore that length, and nothing more. Pages of block groups have keys of their own,
    /// so of the chain's none.
    pub fn needs(self, page: usize, pages: usize) -> bool {
        match self {
            Self::AllPages => page < pages,
            Self::TrailingPages(window) => page < pages && pages - page <= window.get(),
            Self::BlockGroups { .. } => false,
        }
    }
}

/// One pool beside the anchor, as far as it was looked up.
#[derive(Clone, Copy, Debug)]
pub struct PoolPresence<'a> {
    /// What it must hold.
    pub policy: HitPolicy,
    /// Which of the chain's pages it holds, in order (with block groups, which of its own keys). What it says
    /// nothing about counts as absent.
    pub present: &'a [bool],
}

/// What [`usable_prefix`] found. All lengths are pages from the start of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UsablePrefix {
    /// The anchor's leading run.
    pub anchor: usize,
    /// How far each pool reaches by its own rule, in the order given. `None`: not looked at, since nothing was
    /// usable any more.
    pub pools: Vec<Option<usize>>,
    /// Every length that all pools can restore.
    pub restorable: Restorable,
}

impl UsablePrefix {
    /// The longest prefix that all pools can restore.
    pub fn pages(&self) -> usize {
        self.restorable.longest()
    }
}

/// The prefixes of a chain that `anchor` (which of its pages are there, in order) and every pool can restore.
///
/// With `kv` the anchor's leading run, lengths `1..=kv` are left by the anchor. Then, pool by pool until nothing is
/// left:
///
/// * all pages: `b` is the pool's leading run within `kv`, and `1..=b` are left;
/// * trailing pages `w`: a length `p` is left if every page in `max(0, p - w)..p` is there, and `b` is the longest
///   such `p` up to `kv`;
/// * block groups: with `m` the leading run of the pool's own keys, `b = min(m / group_pages * block_pages, kv)`, and
///   all lengths are left.
pub fn usable_prefix(anchor: &[bool], pools: &[PoolPresence<'_>]) -> UsablePrefix {
    let kv = leading_run(anchor);
    let mut restorable = Restorable::up_to(kv);
    let mut reaches = Vec::with_capacity(pools.len());
    for pool in pools {
        if restorable.is_empty() {
            reaches.push(None);
            continue;
        }
        let reach = match pool.policy {
            HitPolicy::AllPages => {
                let run = leading_run(pool.present).min(kv);
                restorable = restorable.intersect(&Restorable::up_to(run));
                run
            }
            HitPolicy::TrailingPages(window) => {
                let windows = trailing(pool.present, window, kv);
                restorable = restorable.intersect(&windows);
                windows.longest()
            }
            HitPolicy::BlockGroups { block_pages, group_pages } => {
                let groups = leading_run(pool.present) / group_pages;
                groups.saturating_mul(block_pages.get()).min(kv)
            }
        };
        reaches.push(Some(reach));
    }
    UsablePrefix { anchor: kv, pools: reaches, restorable }
}

/// Lengths up to `kv` that end in a whole window. One pass: a run that ends at `p` and is as long as the window, or
/// as `p` itself.
fn trailing(present: &[bool], window: NonZeroUsize, kv: usize) -> Restorable {
    let mut run = 0;
    let ends_whole = |(page, there): (usize, &bool)| {
        run = if *there { run + 1 } else { 0 };
        let pages = page + 1;
        (run >= window.get().min(pages)).then_some(pages)
    };
    present.iter().take(kv).enumerate().filter_map(ends_whole).collect()
}

fn leading_run(present: &[bool]) -> usize {
    present.iter().take_while(|there| **there).count()
}
