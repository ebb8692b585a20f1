//! KV pages in S3 object stores.
//!
//! [`ObjStore`] opens a bucket, or a part of one; through [`Store::backend`](hicache_core::Store::backend) it stores
//! and fetches pages of a namespace. A page is one object, `{prefix}/{namespace digest}/{key}`, whose metadata says
//! what it is and whose last 64 bytes hold its checksum; what fails that check on its way back is a miss, never a wrong
//! byte. Pages go up straight from their slots and come down straight into them.
//!
//! The caller need not run an asynchronous runtime: the store has a small one on threads of its own.
//!
//! Who depends on this crate alone depends on `hicache-core` as well: it has the traits and the words. By a URL,
//! `s3://bucket/prefix?endpoint=...`, with options from the environment and from files, the crate `hicache` opens such
//! a store with its feature `obj`.
//!
//! ```no_run
//! use hicache_core::{Namespace, PageLayout, Store};
//! use hicache_obj::{Credentials, Endpoint, ObjOptions, ObjStore};
//!
//! let endpoint = Endpoint::parse("http://127.0.0.1:9000").expect("a URL");
//! let credentials = Credentials::Static {
//!     access_key: "minioadmin".to_string(),
//!     secret_key: "minioadmin".to_string(),
//!     session_token: None,
//! };
//! let options = ObjOptions { endpoint: Some(endpoint), credentials, ..ObjOptions::default() };
//! let store = ObjStore::open("//bucket/prefix", options)?;
//! let backend = store.backend(Namespace::named("example", PageLayout::opaque(65_536)?)?)?;
//! # Ok::<(), hicache_core::Error>(())
//! ```
#![forbid(unsafe_code)]

mod backend;
mod breaker;
mod bucket;
mod client;
mod connection;
mod connections;
mod crew;
mod diagnosis;
mod dial;
mod download;
mod facts;
mod keys;
mod known;
mod leading;
mod listing;
mod objects;
mod options;
mod parts;
mod place;
mod progress;
mod records;
mod removal;
mod requests;
mod scan;
mod store;
mod tail;
mod tries;
mod trouble;
mod unfinished;
mod upload;
mod wire;

pub use diagnosis::{Finding, diagnose};
pub use options::{Addressing, ChecksumMode, Credentials, Encryption, OPTIONS, ObjOptions, Proxy};
pub use place::Endpoint;
pub use store::ObjStore;
