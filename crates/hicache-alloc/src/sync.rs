//! What pools and pages share between threads: the standard library's, or in the models loom's.
#![allow(unexpected_cfgs, reason = "`--cfg hicache_loom` is given by hand to run the models")]

#[cfg(hicache_loom)]
pub(crate) use loom::sync::{Arc, Mutex, MutexGuard};
#[cfg(not(hicache_loom))]
pub(crate) use std::sync::{Arc, Mutex, MutexGuard};
