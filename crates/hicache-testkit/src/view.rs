//! An open store, one namespace of it, and a pool for its pages: what most tests start with.

use crate::{Medium, pages, until, until_some, wait};
use hicache_core::{
    Alignment, Backing, Call, Get, HostPool, Namespace, Outcomes, Page, PageKey, PageLayout, PageMut, Put,
    Result, StorageBackend, Store, Stored,
};
use std::sync::Arc;

/// An open store, one namespace of it, and a pool for its pages. Clones share all of them.
#[derive(Clone, Debug)]
pub struct View {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The namespace.
    pub namespace: Namespace,
    /// The store through the namespace.
    pub backend: Arc<dyn StorageBackend>,
    /// Pages of the namespace's layout, with the alignment that the backend asks for.
    pub pool: HostPool,
    /// What every call says.
    pub call: Call,
}

impl View {
    /// Opens `medium`, the namespace `name` in it, and maps a pool of `slots` pages.
    ///
    /// # Panics
    ///
    /// If the namespace is refused.
    #[track_caller]
    pub fn open(medium: &Medium, name: &str, layout: PageLayout, slots: u32) -> Self {
        Self::of(&medium.open(), name, layout, slots)
    }

    /// The namespace `name` of a store that is open, and a pool of `slots` pages.
    ///
    /// # Panics
    ///
    /// If the namespace is refused.
    #[track_caller]
    pub fn of(store: &Arc<dyn Store>, name: &str, layout: PageLayout, slots: u32) -> Self {
        let namespace = Namespace::named(name, layout).expect("a namespace of the tests has a fine name");
        let backend = store.backend(namespace.clone()).expect("the store opens the namespace");
        let alignment = backend.capabilities().alignment;
        let pool = pages::pool(&layout, slots, alignment, Backing::Private);
        Self { store: Arc::clone(store), namespace, backend, pool, call: Call::default() }
    }

    /// The same with another pool.
    pub fn with_pool(&self, slots: u32, alignment: Alignment, backing: Backing) -> Self {
        let pool = pages::pool(self.namespace.layout(), slots, alignment, backing);
        Self { pool, ..self.clone() }
    }

    /// The same with other calls.
    pub fn with_call(&self, call: Call) -> Self {
        Self { call, ..self.clone() }
    }

    /// Pages of the pool, as soon as it has so many.
    ///
    /// # Panics
    ///
    /// If the pool stays dry.
    #[track_caller]
    pub fn take(&self, count: usize) -> Vec<PageMut> {
        until_some("contract 2: pages come back to their pool", || self.pool.alloc(count))
    }

    /// A page of `key`, with its bytes in it.
    ///
    /// # Panics
    ///
    /// If the pool stays dry.
    #[track_caller]
    pub fn page(&self, key: &PageKey) -> Page {
        let mut page = self.take(1).remove(0);
        pages::fill(&mut page, self.seed(key));
        page.freeze()
    }

    /// A chain of pages to set, each the parent of the next.
    ///
    /// # Panics
    ///
    /// If the pool stays dry.
    #[track_caller]
    pub fn puts(&self, keys: &[PageKey]) -> Vec<Put> {
        let mut parent = None;
        let put = |key: &PageKey| Put { key: *key, parent: parent.replace(*key), page: self.page(key) };
        keys.iter().map(put).collect()
    }

    /// Pages to get, full of stale bytes.
    ///
    /// # Panics
    ///
    /// If the pool stays dry.
    #[track_caller]
    pub fn gets(&self, keys: &[PageKey]) -> Vec<Get> {
        let pages = self.take(keys.len());
        let get = |(key, mut into): (&PageKey, _)| {
            pages::spoil(&mut into);
            Get { key: *key, into }
        };
        keys.iter().zip(pages).map(get).collect()
    }

    /// Sets a chain of pages.
    #[track_caller]
    pub fn set(&self, keys: &[PageKey]) -> Vec<Result<Stored>> {
        let outcomes = wait("batch_set", self.backend.batch_set(self.puts(keys), self.call));
        items(outcomes, keys.len())
    }

    /// Sets a chain of pages that are not there yet.
    ///
    /// # Panics
    ///
    /// If not every one of them is written.
    #[track_caller]
    pub fn write(&self, keys: &[PageKey]) {
        for (key, outcome) in keys.iter().zip(self.set(keys)) {
            match outcome {
                Ok(Stored::Written) => (),
                other => panic!("set of a page that was not there: {other:?} for {key}"),
            }
        }
    }

    /// Gets pages. Those that come are whole and right.
    ///
    /// # Panics
    ///
    /// If a byte is wrong (contracts 3 and 4).
    #[track_caller]
    pub fn get(&self, keys: &[PageKey]) -> Vec<Result<Option<Page>>> {
        let outcomes = wait("batch_get", self.backend.batch_get(self.gets(keys), self.call));
        let outcomes = items(outcomes, keys.len());
        for (key, outcome) in keys.iter().zip(&outcomes) {
            if let Ok(Some(page)) = outcome {
                self.check(key, page);
            }
        }
        outcomes
    }

    /// Which pages are there, asked by getting them.
    ///
    /// # Panics
    ///
    /// If a get fails, or brings a wrong byte.
    #[track_caller]
    pub fn hits(&self, keys: &[PageKey]) -> Vec<bool> {
        let hit = |outcome: Result<Option<Page>>| outcome.expect("a get of a page or a miss").is_some();
        self.get(keys).into_iter().map(hit).collect()
    }

    /// Which pages are there, asked by name.
    ///
    /// # Panics
    ///
    /// If a question fails.
    #[track_caller]
    pub fn exists(&self, keys: &[PageKey]) -> Vec<bool> {
        let outcomes = wait("batch_exists", self.backend.batch_exists(keys, self.call));
        items(outcomes, keys.len()).into_iter().map(|outcome| outcome.expect("an answer")).collect()
    }

    /// How many of `keys` are there, from the first on.
    ///
    /// # Panics
    ///
    /// If the key behind them could not be told of.
    #[track_caller]
    pub fn leading_run(&self, keys: &[PageKey]) -> usize {
        let run = wait("leading_run", self.backend.leading_run(keys, self.call));
        assert!(run.error.is_none(), "an answer: {:?}", run.error);
        run.len
    }

    /// Removes pages; which were there.
    ///
    /// # Panics
    ///
    /// If a removal fails.
    #[track_caller]
    pub fn remove(&self, keys: &[PageKey]) -> Vec<bool> {
        let outcomes = wait("batch_remove", self.backend.batch_remove(keys, self.call));
        items(outcomes, keys.len()).into_iter().map(|outcome| outcome.expect("an answer")).collect()
    }

    /// What the bytes of `key` are made from here.
    pub fn seed(&self, key: &PageKey) -> u64 {
        pages::seed(&self.namespace, key)
    }

    /// Checks that `page` is `key`'s.
    ///
    /// # Panics
    ///
    /// If a byte is wrong.
    #[track_caller]
    pub fn check(&self, key: &PageKey, page: &Page) {
        if let Some((plane, place)) = pages::difference(page, self.seed(key)) {
            let layout = self.namespace.layout();
            panic!("contract 4: a wrong byte was served: piece {plane}, byte {place} of {key} ({layout})");
        }
    }

    /// Waits until every page is back in the pool.
    ///
    /// # Panics
    ///
    /// If one stays away.
    #[track_caller]
    pub fn rest(&self) {
        let slots = self.pool.slots() as usize;
        until("contract 2: every page comes back to its pool", || self.pool.available() == slots);
    }

    /// Checks that every page is back in the pool by now.
    ///
    /// # Panics
    ///
    /// If one is away.
    #[track_caller]
    pub fn at_rest(&self, when: &str) {
        let (free, slots) = (self.pool.available(), self.pool.slots() as usize);
        assert_eq!(free, slots, "contract 2: every page is back in its pool {when}");
    }
}

/// The items of a batch of `len`.
#[track_caller]
fn items<T>(outcomes: Outcomes<T>, len: usize) -> Vec<Result<T>> {
    assert_eq!(outcomes.len(), len, "contract 1: one outcome per item");
    outcomes.into_iter().collect()
}
