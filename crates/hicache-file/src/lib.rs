//! KV pages in files: past the page cache, one file a page, checked on read.
//!
//! [`FileStore`] opens a directory; through [`Store::backend`](hicache_core::Store::backend) it stores and fetches
//! pages of a namespace. A page is published whole or not at all, carries its length, key, namespace and checksum,
//! and what fails that check is a miss, never a wrong byte.
//!
//! ```
//! use hicache_core::{Namespace, PageKey, PageLayout, Put, RegionSpec, StorageBackendExt, Store, StoreExt};
//! use hicache_file::{FileOptions, FileStore};
//!
//! # let dir = tempfile::tempdir()?;
//! let store = FileStore::open(dir.path(), FileOptions::default())?;
//! let layout = PageLayout::opaque(65_536)?;
//! let backend = store.backend(Namespace::named("example", layout)?)?;
//!
//! // Memory as this store moves it best: then no page is copied on its way.
//! let pool = store.pool(&*backend, &layout, 2, RegionSpec::default())?;
//! let mut pages = pool.alloc(2).expect("two slots, two pages");
//!
//! let key = PageKey::new([7; 32]);
//! let mut page = pages.remove(0);
//! page.piece_mut(0).copy_from(0, b"keys and values");
//! backend.set(Put { key, parent: None, page: page.freeze() }).wait()?;
//! let page = backend.get(key, pages.remove(0)).wait()?.expect("it was just stored");
//! assert_eq!(&page.bytes(0).expect("private memory")[..15], b"keys and values");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod asked;
mod backend;
mod bounce;
mod claim;
mod draft;
mod engine;
mod fail;
mod folders;
mod options;
mod own;
mod own_memory;
mod page_file;
mod payload;
mod probe;
mod record;
mod ring;
mod root;
mod scan;
mod slot;
mod standing;
mod store;
mod sys;
mod trailer;
mod trial;
mod writer;

pub use options::{Bounce, Direct, Durability, Engine, FileOptions, OPTIONS};
pub use ring::probe_io_uring;
pub use store::{FileStore, look_at};
pub use sys::{Seam, SysCall, Verdict};
pub use trailer::checksum;
