//! One budget of memory, several pools.

use crate::{Error, ErrorKind, Result};

/// A pool that takes part in a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolShare<'a> {
    /// What errors call it.
    pub name: &'a str,
    /// Its part of the budget, of the sum of all weights. To give all pools equally many pages, their page lengths;
    /// to scale pools that are there, their sizes.
    pub weight: u64,
    /// Bytes of a page in the pool, padding included ([`Strides`](crate::Strides)).
    pub page_len: u64,
}

/// How many pages each pool gets of `total` bytes: `floor(total * weight / weights / page_len)`. Together they take
/// `total` at most. A pool without bytes takes no part.
///
/// # Errors
///
/// [`ErrorKind::InvalidConfig`] naming the pool that gets no page, or that has no weight or no bytes.
pub fn split_budget(total: u64, pools: &[PoolShare<'_>]) -> Result<Vec<u64>> {
    let weights: u128 = pools.iter().map(|pool| u128::from(pool.weight)).sum();
    pools.iter().map(|pool| share(total, weights, pool)).collect()
}

fn share(total: u64, weights: u128, pool: &PoolShare<'_>) -> Result<u64> {
    let refused = |why: &str| {
        Err(Error::new(ErrorKind::InvalidConfig, "split budget")
            .why(why)
            .with("pool", pool.name)
            .with("total", total)
            .with("weight", format_args!("{} of {weights}", pool.weight))
            .with("page", pool.page_len))
    };
    if pool.weight == 0 || pool.page_len == 0 {
        return refused("the pool has no weight, or its pages no bytes");
    }
    let bytes = u128::from(total) * u128::from(pool.weight) / weights;
    match (bytes / u128::from(pool.page_len)) as u64 {
        0 => refused("the pool's part is smaller than one of its pages"),
        pages => Ok(pages),
    }
}
