//! A backend that holds calls back until a test lets them go: for tests of order and of giving up.

use crate::until;
use hicache_core::{
    Call, Capabilities, Get, LeadingRun, Outcomes, Page, PageKey, Pending, Put, Stats, StorageBackend,
    Stored, replies,
};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Whether calls pass, and those that wait. Clones are the same gate, and several backends may share one.
#[derive(Clone, Default)]
pub struct Gate(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    shut: bool,
    held: VecDeque<Box<dyn FnOnce() + Send>>,
}

/// A backend behind a [`Gate`].
#[derive(Clone, Debug)]
pub struct GateBackend {
    inner: Arc<dyn StorageBackend>,
    gate: Gate,
}

impl Gate {
    /// A gate that lets everything pass.
    pub fn open() -> Self {
        Self::default()
    }

    /// A gate that holds every call.
    pub fn shut() -> Self {
        let gate = Self::default();
        gate.close();
        gate
    }

    /// From now on, calls wait.
    pub fn close(&self) {
        self.lock().shut = true;
    }

    /// From now on, calls pass; those that wait go first, in order.
    pub fn release(&self) {
        while self.release_one() {}
        self.lock().shut = false;
        while self.release_one() {}
    }

    /// Lets the call go that waits longest. False when none waits.
    pub fn release_one(&self) -> bool {
        let held = self.lock().held.pop_front();
        // The call itself may answer at once, and run whoever waits for it: not under the lock.
        held.map(|call| call()).is_some()
    }

    /// Lets the call go that waits shortest, so that calls overtake one another. False when none waits.
    pub fn release_last(&self) -> bool {
        let held = self.lock().held.pop_back();
        held.map(|call| call()).is_some()
    }

    /// Calls that wait.
    pub fn held(&self) -> usize {
        self.lock().held.len()
    }

    /// Blocks this thread until so many calls wait.
    ///
    /// # Panics
    ///
    /// If that takes longer than [`LIMIT`](crate::LIMIT).
    #[track_caller]
    pub fn wait_held(&self, count: usize) {
        until("calls at the gate", || self.held() == count);
    }

    /// Gives up every call that waits: each item is answered as closed, and its page goes back.
    pub fn abandon(&self) {
        let held = std::mem::take(&mut self.lock().held);
        drop(held);
    }

    fn pass<T: Send + 'static>(
        &self,
        len: usize,
        call: impl FnOnce() -> Pending<Outcomes<T>> + Send + 'static,
    ) -> Pending<Outcomes<T>> {
        let mut state = self.lock();
        if !state.shut {
            drop(state);
            return call();
        }
        let (mut replies, under_way, _) = replies(1);
        let reply = replies.pop().expect("one was asked for");
        state.held.push_back(Box::new(move || reply.send(Ok(call()))));
        drop(state);
        Pending::new(async move {
            match under_way.await.into_iter().next().expect("one outcome for one reply") {
                Ok(outcomes) => outcomes.await,
                Err(error) => Outcomes::failed(len, &error),
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GateBackend {
    /// `inner` behind `gate`.
    pub fn new(inner: Arc<dyn StorageBackend>, gate: Gate) -> Self {
        Self { inner, gate }
    }
}

#[deny(clippy::missing_trait_methods)]
impl StorageBackend for GateBackend {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn batch_set(&self, batch: Vec<Put>, call: Call) -> Pending<Outcomes<Stored>> {
        let inner = Arc::clone(&self.inner);
        self.gate.pass(batch.len(), move || inner.batch_set(batch, call))
    }

    fn batch_get(&self, batch: Vec<Get>, call: Call) -> Pending<Outcomes<Option<Page>>> {
        let inner = Arc::clone(&self.inner);
        self.gate.pass(batch.len(), move || inner.batch_get(batch, call))
    }

    fn batch_exists(&self, keys: &[PageKey], call: Call) -> Pending<Outcomes<bool>> {
        let (inner, keys) = (Arc::clone(&self.inner), keys.to_vec());
        self.gate.pass(keys.len(), move || inner.batch_exists(&keys, call))
    }

    fn leading_run(&self, keys: &[PageKey], call: Call) -> Pending<LeadingRun> {
        let (inner, keys) = (Arc::clone(&self.inner), keys.to_vec());
        let run = self.gate.pass(1, move || {
            let run = inner.leading_run(&keys, call);
            Pending::new(async move { [Ok(run.await)].into_iter().collect() })
        });
        Pending::new(async move {
            let run = run.await.into_iter().next().expect("one outcome for one question");
            run.unwrap_or_else(|error| LeadingRun { len: 0, error: Some(error) })
        })
    }

    fn batch_remove(&self, keys: &[PageKey], call: Call) -> Pending<Outcomes<bool>> {
        let (inner, keys) = (Arc::clone(&self.inner), keys.to_vec());
        self.gate.pass(keys.len(), move || inner.batch_remove(&keys, call))
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Gate").field("shut", &state.shut).field("held", &state.held.len()).finish()
    }
}
