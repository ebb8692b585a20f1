//! What a KV page is, how it is named, and what a store promises.
//!
//! Words: a *page* holds the keys and values of some tokens; a [`PageKey`] names it by its content; a
//! [`Namespace`] says what its bytes depend on besides the tokens; a [`PageLayout`] says how they lie. A
//! [`Store`] is what a URL opens; a [`StorageBackend`] is a store seen through one namespace: where pages go.
//!
//! This crate starts no thread, reads no clock and no environment, and has no `unsafe`.
#![forbid(unsafe_code)]

mod allocator;
mod budget;
mod checksum;
mod error;
mod key;
mod layout;
mod memory;
mod namespace;
mod options;
mod outcome;
mod pending;
mod pool_set;
mod prefix;
mod record;
mod registry;
mod restorable;
mod stats;
mod storage;
mod store;
mod units;
mod url;
mod usable;

pub use allocator::{AllocatorType, get_allocator_type};
pub use budget::{PoolShare, split_budget};
pub use checksum::Checksum;
pub use error::{Error, ErrorKind, Result};
pub use hicache_alloc::{
    Alignment, AllocError, Backing, Budget, Busy, Fallback, HostPool, HugePageSize, HugePages, Loan, Lock,
    Machine, MachineCounts, MachinePaths, MemoryLimit, Numa, NumaNode, Page, PageIndex, PageMut, Piece,
    PieceMut, Prefault, Region, RegionSpec, RegisterError, Registrar, Registration, ReservedPages, Shortage,
    Strides,
};
pub use key::{KeyUnits, PageKey, namespace_seed};
pub use layout::{DType, Element, Geometry, HeadRange, LayerView, PageLayout, PageOrder};
pub use memory::MemoryStore;
pub use namespace::{Digest, Identity, Namespace, Rank};
pub use options::{COMMON_OPTIONS, CommonOptions, OptionSpec, Source, StoreOpener, StoreOptions};
pub use outcome::{Expiry, LeadingRun, Outcomes, Reply, replies};
pub use pending::Pending;
pub use pool_set::{PoolGet, PoolLookup, PoolPages, PoolPut, PoolSet, Sidecar};
pub use prefix::{Prefix, PrefixWait};
pub use record::{Unsealed, seal};
pub use registry::{Beside, StoreFactory, StoreRegistry};
pub use restorable::Restorable;
pub use stats::{Counters, Stats};
pub use storage::{
    Call, Capabilities, Deadline, Get, Priority, Put, STORAGE_BATCH_SIZE, StorageBackend, StorageBackendExt,
    Stored,
};
pub use store::{Depth, Found, Health, Scan, State, Store, StoreExt, Visitor};
pub use units::{parse_bool, parse_count, parse_duration, parse_path, parse_size};
pub use url::{without_secrets, without_users};
pub use usable::{HitPolicy, PoolPresence, UsablePrefix, usable_prefix};
