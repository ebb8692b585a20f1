//! One store made of two, for example files over an object store.
//!
//! Reads try the first tier, then the second, and promote what only the second had. Writes go to both at once
//! (*through*), or are answered by the first and carried to the second afterwards (*behind*). A tier that is lost
//! degrades the store and fails nothing that the other can do; what that means is said at [`TierStore`]. The tiers are
//! handed over open; by a URL, `tier:?first=URL&second=URL`, the crate `hicache` opens both, with its feature `tier`.
//!
//! ```
//! use hicache_core::{MemoryStore, Namespace, PageLayout, Store, StoreExt};
//! use hicache_tier::{TierOptions, TierStore};
//! use std::sync::Arc;
//!
//! let (first, second) = (Arc::new(MemoryStore::new(1 << 20)), Arc::new(MemoryStore::new(1 << 30)));
//! let store = TierStore::new(first, second, TierOptions::default())?;
//! let backend = store.backend(Namespace::named("example", PageLayout::opaque(4_096)?)?)?;
//! assert!(backend.capabilities().cheap_exists);
//! // What was written behind reaches the second tier before this is done.
//! store.close_blocking()?;
//! # Ok::<(), hicache_core::Error>(())
//! ```
#![forbid(unsafe_code)]

mod backend;
mod driver;
mod late;
mod ledger;
mod options;
mod queue;
mod reads;
mod removal;
mod scan;
mod store;
mod tier;
mod writes;

pub use options::{OPTIONS, TierOptions, Write};
pub use store::TierStore;
