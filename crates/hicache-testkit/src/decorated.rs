//! A store whose backends each stand behind a decorator.

use async_trait::async_trait;
use hicache_core::{Health, Namespace, Pending, Registrar, Result, Scan, StorageBackend, Store, Visitor};
use std::fmt;
use std::sync::Arc;

type Decorate = dyn Fn(Arc<dyn StorageBackend>) -> Arc<dyn StorageBackend> + Send + Sync;

/// A store whose backends each stand behind a decorator, as [`FaultBackend`](crate::fault::FaultBackend) or
/// [`GateBackend`](crate::gate::GateBackend). All else goes to the store itself.
pub struct DecoratedStore {
    inner: Arc<dyn Store>,
    decorate: Box<Decorate>,
}

impl DecoratedStore {
    /// `inner`, with `decorate` around each of its backends.
    pub fn new(
        inner: Arc<dyn Store>,
        decorate: impl Fn(Arc<dyn StorageBackend>) -> Arc<dyn StorageBackend> + Send + Sync + 'static,
    ) -> Self {
        Self { inner, decorate: Box::new(decorate) }
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Store for DecoratedStore {
    fn backend(&self, namespace: Namespace) -> Result<Arc<dyn StorageBackend>> {
        self.inner.backend(namespace).map(|backend| (self.decorate)(backend))
    }

    async fn namespaces(&self) -> Result<Vec<Namespace>> {
        self.inner.namespaces().await
    }

    async fn clear(&self, namespace: &Namespace) -> Result<u64> {
        self.inner.clear(namespace).await
    }

    fn scan(&self, scan: Scan, visitor: Visitor) -> Pending<Result<()>> {
        self.inner.scan(scan, visitor)
    }

    fn registrars(&self) -> Vec<Arc<dyn Registrar>> {
        self.inner.registrars()
    }

    fn health(&self) -> Health {
        self.inner.health()
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

impl fmt::Debug for DecoratedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecoratedStore").field("inner", &self.inner).finish_non_exhaustive()
    }
}
