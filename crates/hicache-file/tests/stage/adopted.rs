//! A pool of memory that somebody else mapped, as an engine's tensors are.
//!
//! `unsafe` stands here because adopted memory rests on its owner's promise, and a test of it must make one.
#![allow(unsafe_code)]

use hicache_core::{HostPool, HugePages, Region, RegionSpec, Strides};
use std::ptr::NonNull;

/// Its owner is another region, which nobody else uses.
pub(crate) fn adopted_pool(strides: Strides) -> HostPool {
    let spec = RegionSpec { len: strides.region_len(), huge_pages: HugePages::Off, ..Default::default() };
    let owner = spec.map().unwrap();
    let base = NonNull::new(owner.as_ptr()).unwrap();
    // SAFETY: what adopting demands: the bytes are mapped and initialised as long as their owner is there, which the
    // adopted region keeps; it has no pool, so that nobody else refers to them or writes there.
    let region = unsafe { Region::adopt(base, strides.region_len(), Box::new(owner)) }.unwrap();
    assert!(region.is_adopted());
    HostPool::new(region, strides, &[]).unwrap()
}
