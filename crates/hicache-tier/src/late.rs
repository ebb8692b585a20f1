//! A tier that could not be opened so far: one that is lost when the whole is opened degrades it, as one lost later.

use crate::store::closed;
use crate::tier::{PROBE_EVERY, is_outage};
use async_trait::async_trait;
use hicache_core::{
    Error, Fallback, Health, Namespace, Pending, Result, Scan, StorageBackend, Store, StoreOpener, Visitor,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a tier is called that is not open, in its own account.
pub(crate) const NOT_OPEN: &str = "store";

/// A store that is opened when it is there again: whoever asks for a backend tries, every so often.
#[derive(Debug)]
pub(crate) struct LateStore {
    opener: StoreOpener,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Is(Arc<dyn Store>),
    /// Until then, nobody tries again.
    Not(Error, Option<Instant>),
    Closed,
}

/// Opens the two tiers. One that is not there is opened later, if the other is there.
///
/// # Errors
///
/// What is wrong with how a tier is named or may be used, which no waiting mends; and where neither is there, what both
/// say.
pub(crate) fn open_both(first: StoreOpener, second: StoreOpener) -> Result<[Arc<dyn Store>; 2]> {
    match (first.open(), second.open()) {
        (Ok(one), Ok(other)) => Ok([one, other]),
        (Err(error), _) | (_, Err(error)) if !is_outage(&error, Duration::MAX) => Err(error),
        (Ok(one), Err(error)) => Ok([one, later(second, error)]),
        (Err(error), Ok(other)) => Ok([later(first, error), other]),
        (Err(one), Err(other)) => Err(crate::backend::both_failed(one, other)),
    }
}

fn later(opener: StoreOpener, error: Error) -> Arc<dyn Store> {
    tracing::warn!(%error, "a tier cannot be opened; the other does what it can");
    let state = Mutex::new(State::Not(error, Instant::now().checked_add(PROBE_EVERY)));
    Arc::new(LateStore { opener, state })
}

impl LateStore {
    /// The store, if it is open.
    fn store(&self) -> Result<Arc<dyn Store>> {
        match &*self.lock() {
            State::Is(store) => Ok(Arc::clone(store)),
            State::Not(error, _) => Err(error.clone()),
            State::Closed => Err(closed()),
        }
    }

    /// The store, opened if that is due. Blocks for that long.
    fn store_or_open(&self) -> Result<Arc<dyn Store>> {
        {
            let mut state = self.lock();
            match &mut *state {
                State::Is(store) => return Ok(Arc::clone(store)),
                State::Closed => return Err(closed()),
                State::Not(_, again) if again.is_some_and(|again| again <= Instant::now()) => {
                    // Whoever else asks meanwhile does not wait.
                    *again = None;
                }
                State::Not(error, _) => return Err(error.clone()),
            }
        }
        let opened = self.opener.open();
        let mut state = self.lock();
        if matches!(*state, State::Closed) {
            drop(state);
            drop(opened);
            return Err(closed());
        }
        match opened {
            Ok(store) => {
                *state = State::Is(Arc::clone(&store));
                Ok(store)
            }
            Err(error) => {
                *state = State::Not(error.clone(), Instant::now().checked_add(PROBE_EVERY));
                Err(error)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for LateStore {
    fn backend(&self, namespace: Namespace) -> Result<Arc<dyn StorageBackend>> {
        self.store_or_open()?.backend(namespace)
    }

    async fn namespaces(&self) -> Result<Vec<Namespace>> {
        self.store()?.namespaces().await
    }

    async fn clear(&self, namespace: &Namespace) -> Result<u64> {
        self.store()?.clear(namespace).await
    }

    fn scan(&self, scan: Scan, visitor: Visitor) -> Pending<Result<()>> {
        match self.store() {
            Ok(store) => store.scan(scan, visitor),
            Err(error) => Pending::ready(Err(error)),
        }
    }

    fn health(&self) -> Health {
        match self.store() {
            Ok(store) => store.health(),
            Err(error) => {
                let mut health = Health::new("none", "none");
                health.writable = false;
                health
                    .fallbacks
                    .push(Fallback { what: NOT_OPEN, why: format!("it could not be opened: {error}") });
                health
            }
        }
    }

    async fn close(&self) -> Result<()> {
        let held = std::mem::replace(&mut *self.lock(), State::Closed);
        match held {
            State::Is(store) => store.close().await,
            State::Not(..) | State::Closed => Ok(()),
        }
    }
}
