//! `hicache bench`: measurements of one part each.

mod alloc;
mod figures;
mod file;
mod html;
mod keys;
#[cfg(feature = "obj")]
mod obj;

pub(crate) use alloc::run as alloc;
pub(crate) use file::run as file;
pub(crate) use keys::run as keys;
#[cfg(feature = "obj")]
pub(crate) use obj::run as obj;
