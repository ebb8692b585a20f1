//! One budget over several pools: never more than it, never a pool without a page.

use hicache_core::{ErrorKind, PoolShare, split_budget};
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

fn pools(weights: [u64; 2]) -> [PoolShare<'static>; 2] {
    let [kv, indexer] = weights;
    [
        PoolShare { name: "kv", weight: kv, page_len: 3 << 20 },
        PoolShare { name: "indexer", weight: indexer, page_len: 128 << 10 },
    ]
}

#[test]
fn b028_the_budget_is_a_total_and_each_part_is_within_a_page() {
    let pools = pools([75, 25]);
    let pages = split_budget(GIB, &pools).unwrap();
    assert_eq!(pages, [256, 2_048]);
    let pages = split_budget(GIB - 1, &pools).unwrap();
    assert_eq!(pages, [255, 2_047], "rounded down");
}

#[test]
fn b028_a_part_below_one_page_is_refused_by_name() {
    for (total, pool) in [(4_194_303, "kv"), (0, "kv"), (300_000, "kv")] {
        let error = split_budget(total, &pools([75, 25])).unwrap_err();
        assert_eq!((error.kind(), error.fact("pool")), (ErrorKind::InvalidConfig, Some(pool)));
    }
    let error = split_budget(GIB, &pools([1_000_000, 1])).unwrap_err();
    assert_eq!(error.fact("pool"), Some("indexer"));
    assert_eq!(split_budget(GIB, &pools([0, 0])).unwrap_err().fact("pool"), Some("kv"));
    let logical = PoolShare { name: "anchor", weight: 1, page_len: 0 };
    assert_eq!(split_budget(GIB, &[logical]).unwrap_err().fact("pool"), Some("anchor"));
    assert_eq!(split_budget(GIB, &[]).unwrap(), [0; 0]);
}

/// Twice what the device has: each pool's weight is its size there, the total twice their sum.
#[test]
fn b028_a_ratio_to_pools_that_are_there_scales_each() {
    let device_pages = [100, 333];
    let pools = pools([100 * (3 << 20), 333 * (128 << 10)]);
    let total = 2 * pools.iter().map(|pool| pool.weight).sum::<u64>();
    let pages = split_budget(total, &pools).unwrap();
    assert_eq!(pages, device_pages.map(|pages| 2 * pages));
    // Weights that are page lengths give equally many pages.
    let equal = split_budget(GIB, &self::pools([3 << 20, 128 << 10])).unwrap();
    assert_eq!(equal[0], equal[1]);
}

proptest! {
    #[test]
    fn b028_no_split_is_more_than_its_total(
        total in prop_oneof![0..10_000_u64, any::<u64>()],
        shares in prop::collection::vec((any::<u64>(), 1..100_000_u64), 1..6),
    ) {
        let share = |(weight, page_len): &(u64, u64)| PoolShare { name: "p", weight: *weight, page_len: *page_len };
        let pools: Vec<_> = shares.iter().map(share).collect();
        let weights: u128 = pools.iter().map(|pool| u128::from(pool.weight)).sum();
        let Ok(pages) = split_budget(total, &pools) else { return Ok(()) };
        let bytes = |(pool, pages): (&PoolShare<'_>, &u64)| u128::from(*pages) * u128::from(pool.page_len);
        prop_assert!(pools.iter().zip(&pages).map(bytes).sum::<u128>() <= u128::from(total));
        for (pool, pages) in pools.iter().zip(&pages) {
            let part = u128::from(total) * u128::from(pool.weight);
            prop_assert!(bytes((pool, pages)) * weights <= part);
            prop_assert!((bytes((pool, pages)) + u128::from(pool.page_len)) * weights > part, "within one page");
        }
    }
}
