//! A backend in which single items go wrong as a rule says, and the others go on to the backend behind it.

use crate::pages::STALE;
use hicache_core::{
    Call, Capabilities, Error, Get, LeadingRun, Outcomes, Page, PageKey, Pending, Put, Result, Stats,
    StorageBackend, Stored, replies,
};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What an item of a batch asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// To store a page.
    Set,
    /// To fetch one.
    Get,
    /// Whether one is there.
    Exists,
    /// To remove one.
    Remove,
}

/// An item that a rule decides on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Item {
    /// What it asks for.
    pub operation: Operation,
    /// Of which page.
    pub key: PageKey,
    /// Its place in its batch.
    pub index: usize,
    /// How many items this backend was asked for before it.
    pub nth: u64,
}

/// What becomes of an item.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// It goes on to the backend behind.
    Pass,
    /// It is answered with an error, and nothing is done.
    Fail(Error),
    /// It is answered as if the page were not there. A set is answered as written, and nothing is stored.
    Miss,
    /// The operation ends without an outcome: its [`Reply`](hicache_core::Reply) is dropped.
    Drop,
    /// The first half of the page is moved, then comes the error: of a get, the destination is written halfway; for
    /// all else as [`Fault::Fail`].
    Half(Error),
}

type Rule = dyn Fn(&Item) -> Fault + Send + Sync;

/// A backend in which items go wrong as a rule says. Clones share the backend and the count of items.
#[derive(Clone)]
pub struct FaultBackend {
    inner: Arc<dyn StorageBackend>,
    rule: Arc<Rule>,
    asked: Arc<AtomicU64>,
}

impl FaultBackend {
    /// `inner` behind `rule`.
    pub fn new(
        inner: Arc<dyn StorageBackend>,
        rule: impl Fn(&Item) -> Fault + Send + Sync + 'static,
    ) -> Self {
        Self { inner, rule: Arc::new(rule), asked: Arc::default() }
    }

    /// Splits a batch into outcomes that are known and items to pass on, and joins what comes back in order.
    fn split<I, T: Send + 'static>(
        &self,
        operation: Operation,
        batch: Vec<I>,
        key: impl Fn(&I) -> PageKey,
        absent: fn() -> T,
        halve: impl Fn(I),
        pass: impl FnOnce(Vec<I>) -> Pending<Outcomes<T>>,
    ) -> Pending<Outcomes<T>> {
        let mut known = Vec::with_capacity(batch.len());
        let mut passed = Vec::new();
        for (index, item) in batch.into_iter().enumerate() {
            let nth = self.asked.fetch_add(1, Ordering::Relaxed);
            known.push(match (self.rule)(&Item { operation, key: key(&item), index, nth }) {
                Fault::Pass => {
                    passed.push(item);
                    None
                }
                Fault::Fail(error) => Some(Err(error)),
                Fault::Miss => Some(Ok(absent())),
                Fault::Drop => Some(dropped()),
                Fault::Half(error) => {
                    halve(item);
                    Some(Err(error))
                }
            });
        }
        let outcomes = pass(passed);
        Pending::new(async move {
            let mut outcomes = outcomes.await.into_iter();
            let next = |known: Option<Result<T>>| {
                known.unwrap_or_else(|| outcomes.next().expect("contract 1: one outcome per item passed on"))
            };
            known.into_iter().map(next).collect()
        })
    }
}

/// What an operation that ends without an outcome is answered with.
fn dropped<T: Send + 'static>() -> Result<T> {
    let (replies, mut outcomes, _) = replies::<T>(1);
    drop(replies);
    match crate::poll_once(&mut outcomes) {
        std::task::Poll::Ready(outcomes) => outcomes.into_iter().next().expect("one outcome for one reply"),
        std::task::Poll::Pending => panic!("a dropped reply is an answer"),
    }
}

/// Writes the first half of a page, as a transfer does that breaks off.
fn halve(mut get: Get) {
    let mut left = get.into.len().div_ceil(2);
    for plane in 0..get.into.planes() {
        let mut piece = get.into.piece_mut(plane);
        let len = left.min(piece.len());
        piece.copy_from(0, &vec![!STALE; len]);
        left -= len;
    }
}

#[deny(clippy::missing_trait_methods)]
impl StorageBackend for FaultBackend {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn batch_set(&self, batch: Vec<Put>, call: Call) -> Pending<Outcomes<Stored>> {
        let pass = |batch| self.inner.batch_set(batch, call);
        self.split(Operation::Set, batch, |put| put.key, || Stored::Written, drop, pass)
    }

    fn batch_get(&self, batch: Vec<Get>, call: Call) -> Pending<Outcomes<Option<Page>>> {
        let pass = |batch| self.inner.batch_get(batch, call);
        self.split(Operation::Get, batch, |get| get.key, || None, halve, pass)
    }

    fn batch_exists(&self, keys: &[PageKey], call: Call) -> Pending<Outcomes<bool>> {
        let pass = |keys: Vec<PageKey>| self.inner.batch_exists(&keys, call);
        self.split(Operation::Exists, keys.to_vec(), |key| *key, || false, drop, pass)
    }

    fn leading_run(&self, keys: &[PageKey], call: Call) -> Pending<LeadingRun> {
        let answers = self.batch_exists(keys, call);
        Pending::new(async move { LeadingRun::of(answers.await) })
    }

    fn batch_remove(&self, keys: &[PageKey], call: Call) -> Pending<Outcomes<bool>> {
        let pass = |keys: Vec<PageKey>| self.inner.batch_remove(&keys, call);
        self.split(Operation::Remove, keys.to_vec(), |key| *key, || false, drop, pass)
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

impl fmt::Debug for FaultBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultBackend").field("inner", &self.inner).finish_non_exhaustive()
    }
}
