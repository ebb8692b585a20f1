//! Pools of the store's own: on the node and locked as its options say.

use hicache_core::{Fallback, HostPool, Numa, Prefault, RegionSpec, Result, Strides};

/// A pool in memory as `memory` says. It is touched when it is used, but for memory that is to lie on a node: where a
/// page lies is known when it is there.
pub(crate) fn pool(strides: Strides, memory: RegionSpec) -> Result<HostPool> {
    let prefault = if memory.numa == Numa::Any { Prefault::Off } else { Prefault::On };
    let region = RegionSpec { len: strides.region_len(), prefault, ..memory };
    Ok(HostPool::new(region.map()?, strides, &[])?)
}

/// What was asked of the pool's memory and not got. `whose` is what it is for.
pub(crate) fn told(whose: &str, pool: &HostPool) -> Vec<Fallback> {
    let of = |one: &Fallback| Fallback { what: one.what, why: format!("{whose}: {}", one.why) };
    pool.region().fallbacks().iter().map(of).collect()
}
