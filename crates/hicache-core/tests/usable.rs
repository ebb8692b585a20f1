//! The usable prefix over several pools: the worked examples, a reference by brute force, and ranks that agree.

use hicache_core::{HitPolicy, PoolPresence, Restorable, UsablePrefix, usable_prefix};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::num::NonZeroUsize;

fn of(pages: usize, present: impl IntoIterator<Item = usize>) -> Vec<bool> {
    let present: BTreeSet<usize> = present.into_iter().collect();
    (0..pages).map(|page| present.contains(&page)).collect()
}

fn trailing(window: usize) -> HitPolicy {
    HitPolicy::TrailingPages(NonZeroUsize::new(window).unwrap())
}

fn groups(block_pages: usize, group_pages: usize) -> HitPolicy {
    let [block_pages, group_pages] = [block_pages, group_pages].map(|n| NonZeroUsize::new(n).unwrap());
    HitPolicy::BlockGroups { block_pages, group_pages }
}

fn usable(anchor: &[bool], pools: &[(HitPolicy, Vec<bool>)]) -> UsablePrefix {
    let pools: Vec<_> =
        pools.iter().map(|(policy, present)| PoolPresence { policy: *policy, present }).collect();
    usable_prefix(anchor, &pools)
}

fn lengths(found: &UsablePrefix) -> Vec<usize> {
    found.restorable.iter().collect()
}

/// Ten keys, the anchor on pages 0 to 7.
fn anchor() -> Vec<bool> {
    of(10, (0..8).chain([9]))
}

#[test]
fn an_anchor_alone_is_usable_to_its_first_gap() {
    let found = usable(&anchor(), &[]);
    assert_eq!((found.anchor, found.pages()), (8, 8));
    assert_eq!(lengths(&found), Vec::from_iter(1..=8));
}

#[test]
fn all_pages_reach_as_far_as_their_leading_run() {
    let indexer = (HitPolicy::AllPages, of(10, [0, 1, 2, 3, 4, 6, 7]));
    let found = usable(&anchor(), &[indexer]);
    assert_eq!((found.pools.as_slice(), lengths(&found)), (&[Some(5)][..], vec![1, 2, 3, 4, 5]));
}

#[test]
fn trailing_pages_reach_to_every_end_of_a_whole_window() {
    let found = usable(&anchor(), &[(trailing(1), of(10, [3, 6]))]);
    assert_eq!((found.pools.as_slice(), lengths(&found)), (&[Some(7)][..], vec![4, 7]));
    let found = usable(&anchor(), &[(trailing(4), of(10, 2..8))]);
    assert_eq!((found.pools.as_slice(), lengths(&found)), (&[Some(8)][..], vec![6, 7, 8]));
}

#[test]
fn w8_pools_are_folded_by_intersection_and_not_by_their_minimum() {
    let indexer = (HitPolicy::AllPages, of(10, [0, 1, 2, 3, 4, 6, 7]));
    let mamba = (trailing(1), of(10, [3, 6]));
    for pools in [[indexer.clone(), mamba.clone()], [mamba, indexer]] {
        let found = usable(&anchor(), &pools);
        assert_eq!((found.anchor, found.pages(), lengths(&found)), (8, 4, vec![4]));
        let reach: BTreeSet<_> = found.pools.into_iter().collect();
        assert_eq!(reach, [Some(5), Some(7)].into(), "the minimum, 5, is nothing that mamba can serve");
    }
}

#[test]
fn a_prefix_shorter_than_the_window_needs_only_its_own_pages() {
    let found = usable(&of(2, 0..2), &[(trailing(4), of(2, 0..2))]);
    assert_eq!(lengths(&found), [1, 2]);
    let found = usable(&anchor(), &[(trailing(4), of(10, [0, 1]))]);
    assert_eq!(lengths(&found), [1, 2]);
    let found = usable(&anchor(), &[(trailing(usize::MAX), of(10, 0..10))]);
    assert_eq!(found.pages(), 8);
}

#[test]
fn w14_block_groups_are_told_and_never_shorten_the_prefix() {
    let span = of(40, 0..40);
    let found = usable(&span, &[(groups(8, 2), of(10, 0..5))]);
    assert_eq!((found.anchor, found.pages()), (40, 40));
    assert_eq!(found.pools, [Some(16)]);
    assert_eq!(usable(&span, &[(groups(8, 2), vec![])]).pools, [Some(0)]);
    assert_eq!(
        usable(&span, &[(groups(8, 2), of(12, 0..12))]).pools,
        [Some(40)],
        "no farther than the anchor"
    );
    assert_eq!(usable(&span, &[(groups(usize::MAX, 1), of(10, 0..10))]).pools, [Some(40)]);
    let found = usable(&span, &[(groups(8, 2), vec![]), (trailing(1), of(40, [4]))]);
    assert_eq!((found.pools.as_slice(), found.pages()), (&[Some(0), Some(5)][..], 5));
}

#[test]
fn pools_after_nothing_is_left_are_not_looked_at() {
    let found = usable(&anchor(), &[(trailing(1), vec![]), (HitPolicy::AllPages, of(10, 0..8))]);
    assert_eq!((found.pools.as_slice(), found.pages()), (&[Some(0), None][..], 0));
    let found = usable(&[], &[(HitPolicy::AllPages, vec![])]);
    assert_eq!((found.anchor, found.pools.as_slice(), found.pages()), (0, &[None][..], 0));
}

#[test]
fn w8_ranks_agree_on_a_length_that_each_can_restore() {
    let ranks = [Restorable::from_iter([4, 7]), Restorable::from_iter([4, 6, 9]), Restorable::up_to(70)];
    let both = ranks.iter().skip(1).fold(ranks[0].clone(), |all, rank| all.intersect(rank));
    assert_eq!((both.longest(), both.len(), both.is_empty()), (4, 1, false));
    let reduced: Vec<bool> = (0..=9).map(|p| ranks.iter().all(|rank| rank.to_flags(9)[p])).collect();
    assert_eq!(Restorable::from_flags(&reduced), both);
    let none = Restorable::from_iter([3]).intersect(&Restorable::from_iter([200]));
    assert_eq!((none.longest(), none.is_empty(), none.contains(0)), (0, true, true));
    assert_eq!(none, Restorable::default(), "however it came about, the empty set is one value");
    assert_eq!(none.to_flags(2), [true, false, false]);
    assert_eq!(format!("{:?}", ranks[0]), "{4, 7}");
}

/// The definition, length by length, and the set as a set.
fn reference(anchor: &[bool], pools: &[(HitPolicy, Vec<bool>)]) -> (Vec<usize>, Vec<Option<usize>>) {
    let whole = |present: &[bool], from: usize, to: usize| {
        (from..to).all(|page| present.get(page).copied().unwrap_or(false))
    };
    let kv = (0..=anchor.len()).rev().find(|p| whole(anchor, 0, *p)).unwrap();
    let mut left: BTreeSet<usize> = (1..=kv).collect();
    let mut reach = Vec::new();
    for (policy, present) in pools {
        if left.is_empty() {
            reach.push(None);
            continue;
        }
        let mine: BTreeSet<usize> = match policy {
            HitPolicy::AllPages => (1..=kv).filter(|p| whole(present, 0, *p)).collect(),
            HitPolicy::TrailingPages(w) => {
                (1..=kv).filter(|p| whole(present, p.saturating_sub(w.get()), *p)).collect()
            }
            HitPolicy::BlockGroups { block_pages, group_pages } => {
                let complete = (0..present.len() + 1)
                    .filter(|count| whole(present, 0, count * group_pages.get()))
                    .max()
                    .unwrap();
                reach.push(Some((complete * block_pages.get()).min(kv)));
                continue;
            }
            other => panic!("{other:?} is not in the reference"),
        };
        reach.push(Some(mine.iter().max().copied().unwrap_or(0)));
        left = left.intersection(&mine).copied().collect();
    }
    (left.into_iter().collect(), reach)
}

/// Mostly there, so that runs are long enough to tell rules apart.
fn presence() -> impl Strategy<Value = Vec<bool>> {
    prop::collection::vec(prop::bool::weighted(0.8), 0..140)
}

fn policy() -> impl Strategy<Value = HitPolicy> {
    prop_oneof![
        Just(HitPolicy::AllPages),
        (1..8_usize).prop_map(trailing),
        (1..10_usize, 1..4_usize).prop_map(|(block, group)| groups(block, group)),
    ]
}

proptest! {
    #[test]
    fn it_is_the_definition(
        run in 0..140_usize,
        tail in presence(),
        pools in prop::collection::vec((policy(), presence()), 0..4),
    ) {
        let anchor: Vec<bool> = std::iter::repeat_n(true, run).chain(tail).collect();
        let found = usable(&anchor, &pools);
        let (left, reach) = reference(&anchor, &pools);
        prop_assert_eq!(found.pages(), left.last().copied().unwrap_or(0));
        prop_assert_eq!(lengths(&found), left);
        prop_assert_eq!(found.pools, reach);
    }

    #[test]
    fn what_a_length_needs_is_what_restores_it_and_no_page_less_does(
        pages in 1..60_usize,
        policy in policy(),
        missing in 0..60_usize,
    ) {
        let needed = of(80, (0..80).filter(|page| policy.needs(*page, pages)));
        let all = vec![true; pages];
        prop_assert_eq!(usable(&all, &[(policy, needed.clone())]).pages(), pages);
        if needed[missing] {
            let mut without = needed;
            without[missing] = false;
            prop_assert!(!usable(&all, &[(policy, without)]).restorable.contains(pages));
        }
    }

    #[test]
    fn a_set_is_its_flags_and_intersects_as_they_do(
        a in prop::collection::btree_set(0..300_usize, 0..40),
        b in prop::collection::btree_set(0..300_usize, 0..40),
    ) {
        let [one, other]: [Restorable; 2] = [&a, &b].map(|set| set.iter().copied().collect());
        let listed: Vec<usize> = a.iter().copied().filter(|pages| *pages > 0).collect();
        prop_assert_eq!(one.iter().collect::<Vec<_>>(), listed);
        prop_assert_eq!(Restorable::from_flags(&one.to_flags(300)), one.clone());
        let both: Restorable = a.intersection(&b).copied().collect();
        prop_assert_eq!(one.intersect(&other), both.clone());
        prop_assert_eq!(other.intersect(&one), both);
    }
}
