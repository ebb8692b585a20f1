//! Conformance suite, reference model and fault decorators for hicache stores.
//!
//! A [`Subject`] says how to make an empty medium and how to open it. [`conformance::all`] then holds its stores
//! to every promise of the contracts, and [`model::check`] compares random histories with a model:
//!
//! ```
//! use hicache_core::MemoryStore;
//! use hicache_testkit::{Medium, Openers, Reopened, Subject, conformance, model};
//! use std::sync::Arc;
//!
//! let fresh = || Medium::new(|| Arc::new(MemoryStore::new(1 << 30)));
//! let subject = Subject::new("memory", Reopened::Empty, Openers::One, fresh);
//! conformance::misses::an_absent_page_is_a_miss(&subject);
//! model::check(&subject, 1);
//! ```
#![forbid(unsafe_code)]
#![allow(clippy::missing_panics_doc, reason = "a broken promise is a panic, here and nowhere else")]

pub mod conformance;
pub mod fault;
pub mod gate;
pub mod model;
pub mod pages;

mod decorated;
mod patience;
mod subject;
mod view;

pub use decorated::DecoratedStore;
pub use patience::{LIMIT, poll_once, until, until_some, wait};
pub use subject::{Medium, Openers, Reopened, Subject};
pub use view::View;
