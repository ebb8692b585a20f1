//! The storage tier under the KV cache of LLM inference engines.
//!
//! Prefix KV pages live in page-aligned host memory and move, without a copy where the device allows it, to and
//! from a store that a URL names. A store never serves a wrong byte: what is damaged is a miss.
//!
#![cfg_attr(feature = "file", doc = "```")]
#![cfg_attr(not(feature = "file"), doc = "```no_run")]
//! use hicache::{Call, KeyUnits, Namespace, PageKey, PageLayout, Prefix, Put, RegionSpec, StoreExt};
//! use std::num::NonZeroUsize;
//!
//! # let folder = tempfile::tempdir()?;
//! # let url = format!("file:{}", folder.path().display());
//! // A store is what a URL opens, a backend is that store seen through one namespace.
//! let store = hicache::open(&url)?;
//! let layout = PageLayout::opaque(64 << 10)?;
//! let backend = store.backend(Namespace::named("example", layout)?)?;
//!
//! // Host memory, cut into slots that the device can reach without a copy.
//! let pool = store.pool(&*backend, &layout, 4, RegionSpec::default())?;
//!
//! // Keys are a hash chain over the tokens: four tokens, pages of two.
//! let keys = PageKey::of_pages(None, &[1, 2, 3, 4], NonZeroUsize::MIN.saturating_add(1), KeyUnits::Token)?;
//! let mut parent = None;
//! let mut batch = Vec::new();
//! for (key, mut page) in keys.iter().zip(pool.alloc(2).expect("four slots are free")) {
//!     page.piece_mut(0).copy_from(0, key.as_bytes());
//!     batch.push(Put { key: *key, parent, page: page.freeze() });
//!     parent = Some(*key);
//! }
//! let stored = backend.batch_set(batch, Call::default()).wait();
//! assert!(stored.first_error().is_none());
//!
//! // The longest stored run of a chain, in order.
//! let run = Prefix::new(backend, keys.iter().copied(), pool, NonZeroUsize::MIN, Call::default());
//! let pages = run.wait().collect::<Result<Vec<_>, _>>()?;
//! assert_eq!(pages.len(), 2);
//! assert_eq!(&pages[1].bytes(0).expect("private memory")[..32], keys[1].as_bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A batch has one outcome for each of its pages, in order, and a deadline: a hit is the page, a miss is `None` and no
//! error, and an error is that page's alone.
//!
//! ```
//! use hicache::{Call, Deadline, Get, Namespace, PageKey, PageLayout, Put, RegionSpec, StorageBackendExt, StoreExt};
//! use std::time::Duration;
//!
//! let store = hicache::open("memory:")?;
//! let layout = PageLayout::opaque(4096)?;
//! let backend = store.backend(Namespace::named("example", layout)?)?;
//! let pool = store.pool(&*backend, &layout, 4, RegionSpec::default())?;
//! let free = || pool.alloc(1).expect("a free slot").remove(0);
//!
//! let [there, absent, odd] = [1, 2, 3].map(|token| PageKey::of_page(None, &[token], Default::default()));
//! let (there, absent, odd) = (there?, absent?, odd?);
//! backend.set(Put { key: there, parent: None, page: free().freeze() }).wait()?;
//!
//! // The last slot is of another pool, whose pages are of another length.
//! let other = PageLayout::opaque(512)?;
//! let slot = store.pool(&*backend, &other, 1, RegionSpec::default())?.alloc(1).expect("it is new").remove(0);
//! let batch =
//!     vec![Get { key: there, into: free() }, Get { key: absent, into: free() }, Get { key: odd, into: slot }];
//!
//! let call = Call { deadline: Deadline::After(Duration::from_secs(2)), ..Call::default() };
//! let (mut hits, mut misses, mut errors) = (Vec::new(), Vec::new(), Vec::new());
//! for (key, outcome) in [there, absent, odd].into_iter().zip(backend.batch_get(batch, call).wait()) {
//!     match outcome {
//!         Ok(Some(page)) => hits.push((key, page)),
//!         // The slot is back in its pool. What was stored and is damaged is a miss, too.
//!         Ok(None) => misses.push(key),
//!         // A timeout, a full queue, a broken device: `is_retryable` says whether another try may help.
//!         Err(error) => errors.push((key, error)),
//!     }
//! }
//! assert_eq!((hits[0].0, misses[0], errors[0].0), (there, absent, odd));
//! assert_eq!(errors[0].1.kind(), hicache::ErrorKind::InvalidArgument);
//! store.close_blocking()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Each kind of store is a feature: `file` (default), `obj` (S3), `tier`. `memory:` is always there. [`open`] has the
//! options; an [`Opener`] reads a configuration file, too:
//!
//! ```no_run
//! use hicache::{ConfigFile, Environment, Opener};
//!
//! let (config, environment) = (Some(ConfigFile::read("kv.toml")?), Environment::of_process());
//! let opener = Opener { config, environment, ..Opener::default() };
//! // The one that the file names, as in backend = "s3://bucket/prefix".
//! let url = opener.url()?.ok_or("kv.toml names no store")?;
//! let store = opener.open(&url)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod config;
mod document;
mod effective;
mod environment;
mod extra_config;
mod names;
mod opener;
#[cfg(doctest)]
mod readme;
mod yaml;

pub use config::ConfigFile;
pub use effective::EffectiveOption;
pub use environment::Environment;
/// The store of files by itself: [`FileStore::open`](file::FileStore::open) takes a path and
/// [`FileOptions`](file::FileOptions), where [`open`] takes a URL.
#[cfg(feature = "file")]
#[doc(inline)]
pub use hicache_file as file;
/// The S3 store by itself: [`ObjStore::open`](obj::ObjStore::open) takes a bucket and
/// [`ObjOptions`](obj::ObjOptions), where [`open`] takes a URL.
#[cfg(feature = "obj")]
#[doc(inline)]
pub use hicache_obj as obj;

/// The store made of two by itself: [`TierStore::new`](tier::TierStore::new) takes them open, where [`open`] takes a
/// URL.
#[cfg(feature = "tier")]
#[doc(inline)]
pub use hicache_tier as tier;

pub use hicache_core::{
    Alignment, AllocError, AllocatorType, Backing, Beside, Budget, Busy, COMMON_OPTIONS, Call, Capabilities,
    Checksum, CommonOptions, Counters, DType, Deadline, Depth, Digest, Element, Error, ErrorKind, Expiry,
    Fallback, Found, Geometry, Get, HeadRange, Health, HitPolicy, HostPool, HugePageSize, HugePages,
    Identity, KeyUnits, LayerView, LeadingRun, Loan, Lock, Machine, MachineCounts, MachinePaths, MemoryLimit,
    MemoryStore, Namespace, Numa, NumaNode, OptionSpec, Outcomes, Page, PageIndex, PageKey, PageLayout,
    PageMut, PageOrder, Pending, Piece, PieceMut, PoolGet, PoolLookup, PoolPages, PoolPresence, PoolPut,
    PoolSet, PoolShare, Prefault, Prefix, PrefixWait, Priority, Put, Rank, Region, RegionSpec, RegisterError,
    Registrar, Registration, Reply, ReservedPages, Restorable, Result, STORAGE_BATCH_SIZE, Scan, Shortage,
    Sidecar, Source, State, Stats, StorageBackend, StorageBackendExt, Store, StoreExt, StoreFactory,
    StoreOptions, StoreRegistry, Stored, Strides, UsablePrefix, Visitor, get_allocator_type, namespace_seed,
    parse_bool, parse_count, parse_duration, parse_path, parse_size, replies, split_budget, usable_prefix,
};
pub use opener::{Opener, TierPlace, memory_available, open, registry};
