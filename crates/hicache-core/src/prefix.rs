//! The longest stored run of a key chain, loaded in batches with a bounded number under way.

use crate::{
    Call, Error, ErrorKind, Get, HostPool, Outcomes, Page, PageKey, Pending, Result, STORAGE_BATCH_SIZE,
    StorageBackend,
};
use futures_core::Stream;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The pages of the longest stored run of `keys`, in order: a stream that ends before the first miss, or after
/// the first error. Stop polling to stop fetching; pages already given stay good.
///
/// Pages are taken from the pool as batches start. Where the pool has fewer free than a batch wants, the batch
/// is smaller; where it has none, the next batch waits until the caller has been given, and has dropped, pages
/// of the batches before. So a run may be longer than the pool. When nothing is under way and the pool is still
/// dry, others hold its pages: the run ends with [`ErrorKind::Exhausted`].
///
/// It is a run of one pool, any part of which is of use. With several pools it would not be: how long a prefix is
/// loaded must be known, and among ranks agreed on, before its first page is. So of a [`PoolSet`](crate::PoolSet)
/// exactly the prefix is loaded that its lookup has found.
#[derive(Debug)]
pub struct Prefix {
    backend: Arc<dyn StorageBackend>,
    pool: HostPool,
    call: Call,
    keys: VecDeque<PageKey>,
    batches_max: usize,
    asked: Option<Pending<Outcomes<bool>>>,
    batches: VecDeque<Pending<Outcomes<Option<Page>>>>,
    at_hand: VecDeque<Result<Option<Page>>>,
    over: bool,
}

/// [`Prefix`] on a plain thread.
#[derive(Debug)]
pub struct PrefixWait(Prefix);

impl Prefix {
    /// Pages are fetched into `pool`, at most `batches_max` batches of [`STORAGE_BATCH_SIZE`] at once.
    pub fn new(
        backend: Arc<dyn StorageBackend>,
        keys: impl IntoIterator<Item = PageKey>,
        pool: HostPool,
        batches_max: NonZeroUsize,
        call: Call,
    ) -> Self {
        let keys: VecDeque<PageKey> = keys.into_iter().collect();
        let asked = (backend.capabilities().cheap_exists && !keys.is_empty())
            .then(|| backend.batch_exists(&Vec::from_iter(keys.iter().copied()), call));
        Self {
            backend,
            pool,
            call,
            keys,
            batches_max: batches_max.get(),
            asked,
            batches: VecDeque::new(),
            at_hand: VecDeque::new(),
            over: false,
        }
    }

    /// The same run as an iterator that blocks this thread.
    pub fn wait(self) -> PrefixWait {
        PrefixWait(self)
    }

    fn start_batches(&mut self) {
        while !self.over && self.batches.len() < self.batches_max && !self.keys.is_empty() {
            let count = self.keys.len().min(STORAGE_BATCH_SIZE).min(self.pool.available());
            let Some(pages) = self.pool.alloc(count).filter(|pages| !pages.is_empty()) else { return };
            let gets = self.keys.drain(..count).zip(pages).map(|(key, into)| Get { key, into }).collect();
            self.batches.push_back(self.backend.batch_get(gets, self.call));
        }
    }

    /// Starts nothing more. What is under way is waited for, so that its pages are back when the stream has ended.
    fn end(&mut self) {
        self.over = true;
        self.keys.clear();
        self.at_hand.clear();
    }

    /// The end of the run, after what was read ahead of it came back.
    fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Page>>> {
        while let Some(batch) = self.batches.front_mut() {
            drop(ready!(Pin::new(batch).poll(context)));
            self.batches.pop_front();
        }
        Poll::Ready(None)
    }

    /// Drops the keys that are not there, where asking costs nothing.
    fn poll_asked(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(asked) = &mut self.asked {
            // What could not be told is fetched all the same; the get says why.
            let outcomes = ready!(Pin::new(asked).poll(context));
            self.keys.truncate(outcomes.iter().take_while(|outcome| !matches!(outcome, Ok(false))).count());
            self.asked = None;
        }
        Poll::Ready(())
    }

    fn dry(&self) -> Error {
        Error::new(ErrorKind::Exhausted, "load prefix")
            .why("the pool has no free page, and none of this run's are under way")
            .with("slots", self.pool.slots())
            .retryable()
    }
}

impl Stream for Prefix {
    type Item = Result<Page>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        ready!(this.poll_asked(context));
        while !this.over {
            this.start_batches();
            match this.at_hand.pop_front() {
                Some(Ok(Some(page))) => return Poll::Ready(Some(Ok(page))),
                Some(Ok(None)) => this.end(),
                Some(Err(error)) => {
                    this.end();
                    return Poll::Ready(Some(Err(error)));
                }
                None => match this.batches.front_mut() {
                    Some(batch) => {
                        this.at_hand = ready!(Pin::new(batch).poll(context)).into_iter().collect();
                        this.batches.pop_front();
                    }
                    None if this.keys.is_empty() => this.end(),
                    None => {
                        this.end();
                        return Poll::Ready(Some(Err(this.dry())));
                    }
                },
            }
        }
        this.poll_over(context)
    }
}

impl Iterator for PrefixWait {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        pollster::block_on(poll_fn(|context| Pin::new(&mut self.0).poll_next(context)))
    }
}
