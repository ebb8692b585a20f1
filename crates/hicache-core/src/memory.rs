//! The reference store: pages copied into maps. The model of the tests, and a store for those who have no disk.

use crate::{
    Alignment, Call, Capabilities, CommonOptions, Counters, Depth, Digest, Error, ErrorKind, Found, Get,
    Health, Namespace, OptionSpec, Outcomes, Page, PageKey, PageMut, Pending, Put, Result, Scan, State,
    Stats, StorageBackend, Store, StoreFactory, StoreOptions, Stored, Visitor, parse_size, without_secrets,
};
use async_trait::async_trait;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const CAPACITY: OptionSpec = OptionSpec {
    name: "capacity",
    aliases: &[],
    kind: "bytes",
    default: "1GiB; of the command and of open(), a quarter of the memory available",
    about: "most bytes of pages held; a set beyond it is refused",
    secret: false,
    guarded: false,
};

/// Pages in this process's memory. Clones share them.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    shared: Arc<Mutex<Shared>>,
    len_max: u64,
}

#[derive(Debug, Default)]
struct Shared {
    namespaces: BTreeMap<Digest, Held>,
    len: u64,
    closed: bool,
}

#[derive(Debug)]
struct Held {
    namespace: Namespace,
    pages: HashMap<PageKey, Box<[u8]>>,
}

#[derive(Debug)]
struct MemoryBackend {
    store: MemoryStore,
    namespace: Namespace,
    counters: Counters,
}

impl MemoryStore {
    /// A store of at most `len_max` bytes of pages.
    pub fn new(len_max: u64) -> Self {
        Self { shared: Arc::default(), len_max }
    }

    /// How a registry opens it: scheme `memory`, no location.
    pub const FACTORY: StoreFactory = StoreFactory {
        scheme: "memory",
        options: &[CAPACITY],
        stores: &[],
        open: |location, options| {
            locate(location)?;
            Ok(Arc::new(Self::new(len_max(options)?)))
        },
        locate,
        check: |options| len_max(options).map(drop),
    };

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_shared(&self) -> Result<MutexGuard<'_, Shared>> {
        let shared = self.lock();
        if shared.closed {
            return Err(Error::new(ErrorKind::Closed, "use memory store").why("the store was closed"));
        }
        Ok(shared)
    }
}

fn len_max(mut options: StoreOptions) -> Result<u64> {
    CommonOptions::take(&mut options)?;
    let len_max = options.take(&CAPACITY, parse_size)?.unwrap_or(1 << 30);
    options.finish(&[&[CAPACITY]])?;
    Ok(len_max)
}

fn locate(location: &str) -> Result<()> {
    if location.is_empty() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidConfig, "open store")
        .why("a memory store has no location; write memory:")
        .with("location", without_secrets(location)))
}

#[async_trait]
impl Store for MemoryStore {
    fn backend(&self, namespace: Namespace) -> Result<Arc<dyn StorageBackend>> {
        if let Some(held) = self.open_shared()?.namespaces.get(&namespace.digest()) {
            held.namespace.check_layout(&namespace)?;
        }
        Ok(Arc::new(MemoryBackend { store: self.clone(), namespace, counters: Counters::default() }))
    }

    async fn namespaces(&self) -> Result<Vec<Namespace>> {
        let mut all: Vec<_> =
            self.open_shared()?.namespaces.values().map(|held| held.namespace.clone()).collect();
        all.sort_by(|a, b| a.name().cmp(b.name()));
        Ok(all)
    }

    async fn clear(&self, namespace: &Namespace) -> Result<u64> {
        let mut shared = self.open_shared()?;
        let Some(held) = shared.namespaces.remove(&namespace.digest()) else { return Ok(0) };
        shared.len -= held.pages.values().map(|page| page.len() as u64).sum::<u64>();
        Ok(held.pages.len() as u64)
    }

    fn scan(&self, scan: Scan, mut visitor: Visitor) -> Pending<Result<()>> {
        let shared = match self.open_shared() {
            Ok(shared) => shared,
            Err(error) => return Pending::ready(Err(error)),
        };
        let mut finds = Vec::new();
        for (digest, held) in &shared.namespaces {
            if scan.namespace.is_some_and(|wanted| wanted != *digest) {
                continue;
            }
            let name: Arc<str> = held.namespace.name().into();
            for (key, page) in &held.pages {
                let state = if scan.depth == Depth::Names { State::Listed } else { State::Sound };
                let find = Found::new(format!("memory:{key}"), Arc::clone(&name), state);
                finds.push(Found { key: Some(*key), len: page.len() as u64, ..find });
            }
        }
        // The visitor may use the store.
        drop(shared);
        let _ = finds.into_iter().try_for_each(&mut visitor);
        Pending::ready(Ok(()))
    }

    fn health(&self) -> Health {
        let available = self.len_max.saturating_sub(self.lock().len);
        Health { available_len: Some(available), ..Health::new("none", "none") }
    }

    async fn close(&self) -> Result<()> {
        let mut shared = self.lock();
        *shared = Shared { closed: true, ..Shared::default() };
        Ok(())
    }
}

impl MemoryBackend {
    fn set(&self, put: &Put) -> Result<Stored> {
        self.namespace.check_shape("set page", put.page.planes(), put.page.len())?;
        let mut shared = self.store.open_shared()?;
        let len = put.page.len() as u64;
        let full = shared.len + len > self.store.len_max;
        if self.held(&shared)?.is_some_and(|held| held.pages.contains_key(&put.key)) {
            Counters::add(&self.counters.present, 1);
            return Ok(Stored::Present);
        }
        if full {
            return Err(Error::new(ErrorKind::NoSpace, "set page")
                .why("the memory store is full")
                .with("capacity", self.store.len_max)
                .fix("raise its capacity option"));
        }
        let fresh = || Held { namespace: self.namespace.clone(), pages: HashMap::new() };
        shared
            .namespaces
            .entry(self.namespace.digest())
            .or_insert_with(fresh)
            .pages
            .insert(put.key, flatten(&put.page));
        shared.len += len;
        Counters::add(&self.counters.written, 1);
        Counters::add(&self.counters.bytes_written, len);
        Ok(Stored::Written)
    }

    fn get(&self, key: &PageKey, mut into: PageMut) -> Result<Option<Page>> {
        self.namespace.check_shape("get page", into.planes(), into.len())?;
        let shared = self.store.open_shared()?;
        let held = self.held(&shared)?;
        let Some(page) = held.and_then(|held| held.pages.get(key)) else {
            Counters::add(&self.counters.misses, 1);
            return Ok(None);
        };
        let piece_len = self.namespace.layout().piece_len();
        for (plane, piece) in (0..into.planes()).zip(page.chunks(piece_len)) {
            into.piece_mut(plane).copy_from(0, piece);
        }
        Counters::add(&self.counters.hits, 1);
        Counters::add(&self.counters.bytes_read, page.len() as u64);
        Ok(Some(into.freeze()))
    }

    fn exists(&self, key: &PageKey) -> Result<bool> {
        let shared = self.store.open_shared()?;
        Ok(self.held(&shared)?.is_some_and(|held| held.pages.contains_key(key)))
    }

    fn remove(&self, key: &PageKey) -> Result<bool> {
        let mut shared = self.store.open_shared()?;
        self.held(&shared)?;
        let held = shared.namespaces.get_mut(&self.namespace.digest());
        let Some(page) = held.and_then(|held| held.pages.remove(key)) else { return Ok(false) };
        shared.len -= page.len() as u64;
        Counters::add(&self.counters.removed, 1);
        Ok(true)
    }

    /// The namespace as it was recorded, maybe after this backend was opened, and then maybe with another layout.
    fn held<'a>(&self, shared: &'a Shared) -> Result<Option<&'a Held>> {
        let held = shared.namespaces.get(&self.namespace.digest());
        held.map_or(Ok(()), |held| held.namespace.check_layout(&self.namespace))?;
        Ok(held)
    }

    fn each<I, T: Send + 'static>(
        &self,
        items: impl IntoIterator<Item = I>,
        act: impl Fn(I) -> Result<T>,
    ) -> Pending<Outcomes<T>> {
        let outcomes: Outcomes<T> = items.into_iter().map(act).collect();
        let errors = outcomes.iter().filter(|outcome| outcome.is_err()).count();
        Counters::add(&self.counters.errors, errors as u64);
        Pending::ready(outcomes)
    }
}

fn flatten(page: &Page) -> Box<[u8]> {
    let piece_len = page.len() / page.planes() as usize;
    let mut bytes = vec![0; page.len()].into_boxed_slice();
    for (plane, piece) in (0..page.planes()).zip(bytes.chunks_mut(piece_len)) {
        page.piece(plane).copy_to(0, piece);
    }
    bytes
}

impl StorageBackend for MemoryBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Alignment::NONE, true)
    }

    fn batch_set(&self, batch: Vec<Put>, _: Call) -> Pending<Outcomes<Stored>> {
        self.each(batch, |put| self.set(&put))
    }

    fn batch_get(&self, batch: Vec<Get>, _: Call) -> Pending<Outcomes<Option<Page>>> {
        self.each(batch, |get| self.get(&get.key, get.into))
    }

    fn batch_exists(&self, keys: &[PageKey], _: Call) -> Pending<Outcomes<bool>> {
        self.each(keys, |key| self.exists(key))
    }

    fn batch_remove(&self, keys: &[PageKey], _: Call) -> Pending<Outcomes<bool>> {
        self.each(keys, |key| self.remove(key))
    }

    fn stats(&self) -> Stats {
        self.counters.snapshot()
    }
}
