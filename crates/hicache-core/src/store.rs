//! The contract of a store: what a URL opens.

use crate::{
    Digest, Fallback, HostPool, Namespace, PageKey, PageLayout, Pending, RegionSpec, Registrar, Result,
    StorageBackend,
};
use async_trait::async_trait;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::SystemTime;

/// What a URL opens: one directory, bucket or server, with its capacity and engine, however many pools use it.
///
/// # Contract
///
/// 1. *One namespace, one layout.* The name, digest and layout of a namespace are recorded at its first put;
///    `backend` refuses the same digest with another layout as
///    [`Incompatible`](crate::ErrorKind::Incompatible).
/// 2. *Nothing of others.* `clear` removes the pages of its namespace and nothing else. What the store did not
///    lay down it neither serves, counts as a page, nor deletes.
/// 3. *Close* ends what was accepted, then refuses: everything after it is
///    [`Closed`](crate::ErrorKind::Closed). Closing twice is fine. Dropping the last of the store's and its
///    backends' handles ends what was accepted, too.
/// 4. *Told.* What was asked for and not got is in [`Health::fallbacks`], and was logged once.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// The store seen through `namespace`. May read one small record, and blocks for that long.
    ///
    /// # Errors
    ///
    /// [`Incompatible`](crate::ErrorKind::Incompatible) by contract 1, [`Closed`](crate::ErrorKind::Closed), or
    /// what reading the record met.
    fn backend(&self, namespace: Namespace) -> Result<Arc<dyn StorageBackend>>;

    /// The namespaces recorded here, by name. This, `clear` and `close` begin when they are polled, in any runtime;
    /// on a plain thread [`StoreExt::namespaces_blocking`] and its like wait for them.
    async fn namespaces(&self) -> Result<Vec<Namespace>>;

    /// Removes every page of `namespace`, and its record. Returns how many pages. The digest says which: one without a
    /// record is cleared, too.
    ///
    /// # Errors
    ///
    /// What removing met; where it had begun, the fact `removed` says how many pages had gone by then. Where pages
    /// stay, the record does, so that it can be begun again.
    async fn clear(&self, namespace: &Namespace) -> Result<u64>;

    /// Walks over what is stored and hands each find to `visitor`, on a thread of the store's or on this one, until
    /// the visitor breaks. For operators: it reads directories, and with [`Depth::Contents`] every page.
    fn scan(&self, scan: Scan, visitor: Visitor) -> Pending<Result<()>>;

    /// Who moves pages with less work if they know the memory. [`StoreExt::pool`] makes a pool that they know; who lays
    /// out a pool otherwise gives them to [`HostPool::new`](crate::HostPool::new). Pages of other pools are moved, too.
    fn registrars(&self) -> Vec<Arc<dyn Registrar>> {
        Vec::new()
    }

    /// How it runs.
    fn health(&self) -> Health;

    /// Ends what was accepted and lets go of the medium.
    async fn close(&self) -> Result<()>;
}

/// What every store can do by way of what it says of itself.
pub trait StoreExt: Store {
    /// A pool of `slots` pages of `layout` in memory as `region` says, laid out as `backend` wants it
    /// ([`PageLayout::strides_for`](crate::PageLayout::strides_for)) and known to this store's engine
    /// ([`Store::registrars`]). `region.len` is what the memory has at least.
    ///
    /// # Errors
    ///
    /// As [`PageLayout::strides_for`](crate::PageLayout::strides_for), [`RegionSpec::map`] and [`HostPool::new`].
    fn pool(
        &self,
        backend: &dyn StorageBackend,
        layout: &PageLayout,
        slots: u32,
        region: RegionSpec,
    ) -> Result<HostPool> {
        let strides = layout.strides_for(slots, &backend.capabilities())?;
        let region = RegionSpec { len: strides.region_len().max(region.len), ..region }.map()?;
        let registrars = self.registrars();
        let registrars: Vec<&dyn Registrar> = registrars.iter().map(|registrar| &**registrar).collect();
        Ok(HostPool::new(region, strides, &registrars)?)
    }

    /// [`Store::namespaces`], waited for on this thread, without a runtime. Not for use inside an asynchronous task.
    ///
    /// # Errors
    ///
    /// As [`Store::namespaces`].
    fn namespaces_blocking(&self) -> Result<Vec<Namespace>> {
        pollster::block_on(self.namespaces())
    }

    /// [`Store::clear`], waited for on this thread, without a runtime. Not for use inside an asynchronous task.
    ///
    /// # Errors
    ///
    /// As [`Store::clear`].
    fn clear_blocking(&self, namespace: &Namespace) -> Result<u64> {
        pollster::block_on(self.clear(namespace))
    }

    /// [`Store::close`], waited for on this thread, without a runtime. Not for use inside an asynchronous task.
    ///
    /// ```
    /// use hicache_core::{MemoryStore, Namespace, PageLayout, Store, StoreExt};
    ///
    /// let store = MemoryStore::new(1 << 20);
    /// let namespace = Namespace::named("example", PageLayout::opaque(4096)?)?;
    /// assert_eq!(store.clear_blocking(&namespace)?, 0);
    /// assert!(store.namespaces_blocking()?.is_empty());
    /// store.close_blocking()?;
    /// assert!(store.backend(namespace).is_err(), "it is closed");
    /// # Ok::<(), hicache_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Store::close`].
    fn close_blocking(&self) -> Result<()> {
        pollster::block_on(self.close())
    }
}

impl<T: Store + ?Sized> StoreExt for T {}

/// How a store runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// What the store has to move bytes with: `io_uring` (rings, for the gets that suit them; threads do the rest),
    /// `threads` (also where rings are not to be had, which is told), `none`. What a ring has read is counted: where
    /// [`Stats::ring`] is 0, threads have moved all.
    ///
    /// [`Stats::ring`]: crate::Stats::ring
    pub engine: &'static str,
    /// How pages lie in it: `files`, `none`.
    pub format: &'static str,
    /// Sets can work: the medium is not read-only.
    pub writable: bool,
    /// Bytes that the medium could still take, where it says so.
    pub available_len: Option<u64>,
    /// Bytes of pools that the engine knows ([`Store::registrars`]).
    pub registered_len: u64,
    /// What was asked for and not got.
    pub fallbacks: Vec<Fallback>,
}

impl Health {
    /// Of a store with that engine and format.
    pub fn new(engine: &'static str, format: &'static str) -> Self {
        Self { engine, format, writable: true, available_len: None, registered_len: 0, fallbacks: Vec::new() }
    }
}

/// Who is handed the finds of a scan.
pub type Visitor = Box<dyn FnMut(Found) -> ControlFlow<()> + Send>;

/// What to walk over.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// Only this namespace.
    pub namespace: Option<Digest>,
    /// How closely to look.
    pub depth: Depth,
    /// Remove what is wrong or torn, so that the next set writes it anew, and what dead writers left.
    pub repair: bool,
}

/// How closely to look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// At names and sizes.
    #[default]
    Names,
    /// At every byte.
    Contents,
}

/// One find of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// Where it lies, as the store names places: a path, an object's key.
    pub place: String,
    /// The name of its namespace.
    pub namespace: Arc<str>,
    /// Its key, when its place names one.
    pub key: Option<PageKey>,
    /// Bytes of the page (of the file, where there is no page).
    pub len: u64,
    /// When it was written, by the medium's clock.
    pub written: Option<SystemTime>,
    /// What it is.
    pub state: State,
    /// It was removed ([`Scan::repair`]).
    pub repaired: bool,
}

impl Found {
    /// A find at `place` that nothing else is known of yet.
    pub fn new(place: String, namespace: Arc<str>, state: State) -> Self {
        Self { place, namespace, key: None, len: 0, written: None, state, repaired: false }
    }
}

/// What a find is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// A page by its name and length; not read.
    Listed,
    /// A page that passed its check.
    Sound,
    /// A page without a check of ours.
    Unverified,
    /// A page whose bytes fail their check, and why.
    Wrong(String),
    /// A page cut short or longer than its layout, and how.
    Torn(String),
    /// Something that is no page of its namespace: not ours, or of a layout that the namespace does not have.
    Orphan(String),
    /// Something that could not be looked at, and why. Who reads the scan must not call it sound.
    Unreadable(String),
}
