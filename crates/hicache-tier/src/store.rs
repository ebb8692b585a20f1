//! A store made of two: which they are, and what an operator asks of them together.

use crate::backend::{self, TierBackend, View};
use crate::driver::{Driver, Tasks};
use crate::late;
use crate::ledger::Ledger;
use crate::options::{FIRST, OPTIONS, SECOND, TIERS, TierOptions};
use crate::queue::{Queue, Slots};
use crate::removal::{still_under_way, still_written};
use crate::scan;
use crate::tier::{Half, Place, Tier};
use async_trait::async_trait;
use hicache_core::{
    Alignment, Counters, Digest, Error, ErrorKind, Fallback, Health, Namespace, OptionSpec, Pending, Result,
    Scan, StorageBackend, Store, StoreFactory, StoreOptions, Visitor, without_secrets,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// One store made of two. Clones are handles of one store.
///
/// * *Reads* ask the first tier, then the second for what the first has not. A page that only the second had is
///   written into the first afterwards (promoted), unless it was removed meanwhile.
/// * *Writes* go to both tiers at once, and are answered when both have answered; or, behind, they are answered by the
///   first and carried to the second from a queue. What the queue has no room for goes through. Nobody asks the second
///   tier then, so a page that only it has counts as written.
/// * *A lost tier degrades.* Where one tier fails, what the other says is the answer, also that it has no such page;
///   only where both fail is there an error. It is counted ([`degraded`](hicache_core::Stats::degraded)) and told
///   ([`Health::fallbacks`]). A tier whose batches fail whole, three in a row, is not asked for a while. One
///   that is not there when the whole is opened is opened when it is.
/// * *Removals are strict*: [`batch_remove`](StorageBackend::batch_remove) and [`clear`](Store::clear) fail where one
///   tier fails, since the page would come back with it. They wait for copies of the page that are under way.
/// * *Deadline.* A tier that is asked before the other has half of the call's time, so that the other has some, too.
/// * *Close* carries what is in the queue to the second tier, for as long as the option `deadline` says; what does not
///   reach it then is an error of the close. The pages are in the first tier all the same.
#[derive(Clone, Debug)]
pub struct TierStore(Arc<Tiers>);

/// Field order is drop order: what was accepted is ended before the tiers are let go of.
#[derive(Debug)]
pub(crate) struct Tiers {
    driver: Driver,
    carried: Arc<Carried>,
    first: Arc<Tier>,
    second: Arc<Tier>,
    options: TierOptions,
    queue: Arc<Queue>,
    ledgers: Mutex<HashMap<Digest, Ledger>>,
}

/// Pages that were answered as stored before the second tier had them.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    /// On their way.
    pub(crate) behind: AtomicU64,
    lost: AtomicU64,
    last: Mutex<Option<Error>>,
}

impl TierStore {
    /// How a registry opens it: scheme `tier`, no location; the options `first` and `second` are URLs.
    pub const FACTORY: StoreFactory = StoreFactory {
        scheme: "tier",
        options: OPTIONS,
        stores: TIERS,
        open: |location, options| open(location, options),
        locate,
        check: |options| TierOptions::from_options(options).map(drop),
    };

    /// A store of `first`, which is asked first, and `second`. Both are used through it alone: what others remove from
    /// one of them may be brought back from the other.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Exhausted`] when its thread cannot be started.
    pub fn new(first: Arc<dyn Store>, second: Arc<dyn Store>, options: TierOptions) -> Result<Self> {
        let driver = Driver::start(options.common.deadline).map_err(|error| {
            Error::new(ErrorKind::Exhausted, "open store")
                .why("the store's thread could not be started")
                .fix("raise ulimit -u")
                .because(error)
        })?;
        let queue = Arc::new(Queue::new(options.queue, options.common.own_memory()));
        Ok(Self(Arc::new(Tiers {
            driver,
            carried: Arc::default(),
            first: Arc::new(Tier::new(Place::First, first)),
            second: Arc::new(Tier::new(Place::Second, second)),
            options,
            queue,
            ledgers: Mutex::default(),
        })))
    }
}

fn open(location: &str, mut options: StoreOptions) -> Result<Arc<dyn Store>> {
    // A registry refuses a store whose tiers are not named before it comes here.
    let mut tier = |spec: &OptionSpec| {
        options.take_store(spec).ok_or_else(|| {
            Error::new(ErrorKind::InvalidConfig, "open store")
                .why("nobody says how a tier is opened")
                .with("tier", spec.name)
                .fix("hand it over with StoreOptions::set_store, or open the store by its URL")
        })
    };
    let tiers = (tier(&FIRST), tier(&SECOND));
    let options = TierOptions::from_options(options)?;
    locate(location)?;
    let [first, second] = late::open_both(tiers.0?, tiers.1?)?;
    Ok(Arc::new(TierStore::new(first, second, options)?))
}

fn locate(location: &str) -> Result<()> {
    if location.is_empty() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidConfig, "open store")
        .why("a tier: store has no location; its tiers are options")
        .with("location", without_secrets(location))
        .fix("write tier:?first=URL&second=URL, with % in a URL as %25, ? as %3F and & as %26"))
}

impl Tiers {
    fn tasks(&self) -> &Tasks {
        self.driver.tasks()
    }

    fn both(&self) -> [Arc<Tier>; 2] {
        [Arc::clone(&self.first), Arc::clone(&self.second)]
    }

    fn ledger(&self, digest: Digest) -> Ledger {
        let mut ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        ledgers.entry(digest).or_default().clone()
    }

    fn check_open(&self) -> Result<()> {
        if self.tasks().is_closed() { Err(closed()) } else { Ok(()) }
    }

    /// When something that begins now is given up.
    fn limit(&self) -> Option<Instant> {
        Instant::now().checked_add(self.options.common.deadline)
    }

    /// Asks both tiers at once; of one that takes longer than until `limit`, that it was late.
    fn of_both<T: Send + 'static>(
        &self,
        limit: Option<Instant>,
        ask: impl Fn(Arc<dyn Store>) -> Pending<Result<T>>,
    ) -> Pending<Result<[Result<T>; 2]>> {
        let [first, second] = self.both();
        // Each is a task: what begins when it is polled does not begin when the other has ended.
        let mut asked = [&first, &second].map(|tier| self.tasks().run(ask(Arc::clone(&tier.store))));
        let tasks = self.tasks().clone();
        self.tasks().run(async move {
            let [of_first, of_second] = &mut asked;
            let of_first = tasks.within(of_first, limit).await.unwrap_or_else(|| Err(backend::late()));
            let of_second = tasks.within(of_second, limit).await.unwrap_or_else(|| Err(backend::late()));
            let named = |outcome: Result<T>, tier| outcome.map_err(|error| with_tier(error, tier));
            Ok([named(of_first, &first), named(of_second, &second)])
        })
    }
}

/// Says what was not carried to the second tier.
impl Drop for Carried {
    fn drop(&mut self) {
        let left = self.behind.load(Ordering::Acquire);
        if left > 0 {
            tracing::warn!(pages = left, "pages written behind did not reach the second tier in time");
        }
    }
}

impl Carried {
    /// So many pages did not reach the second tier.
    pub(crate) fn lost(&self, count: u64, error: &Error) {
        let before = self.lost.fetch_add(count, Ordering::AcqRel);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
        if before == 0 {
            tracing::warn!(pages = count, %error, "pages written behind did not reach the second tier");
        }
    }

    fn fallback(&self) -> Option<Fallback> {
        let lost = self.lost.load(Ordering::Acquire);
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let why = last.map(|last| {
            format!(
                "{lost} pages are in the first tier only: they did not reach the second; the last: {last}"
            )
        });
        why.map(|why| Fallback { what: "write_behind", why })
    }
}

#[async_trait]
impl Store for TierStore {
    fn backend(&self, namespace: Namespace) -> Result<Arc<dyn StorageBackend>> {
        let tiers = &self.0;
        tiers.check_open()?;
        let first = Arc::new(Half::open(&tiers.first, &namespace)?);
        let second = Arc::new(Half::open(&tiers.second, &namespace)?);
        if let (Err(first), Err(second)) = (first.backend(), second.backend()) {
            return Err(crate::backend::both_failed(first, second));
        }
        let alignment = [&first, &second]
            .into_iter()
            .filter_map(|half| half.backend().ok())
            .map(|backend| backend.capabilities().alignment)
            .max();
        let slots = Slots::new(&tiers.queue, &namespace, alignment.unwrap_or(Alignment::NONE));
        let view = View {
            ledger: tiers.ledger(namespace.digest()),
            namespace,
            first,
            second,
            options: tiers.options.clone(),
            tasks: tiers.tasks().clone(),
            slots,
            counters: Counters::default(),
            carried: Arc::clone(&tiers.carried),
        };
        Ok(Arc::new(TierBackend::new(Arc::clone(tiers), view)))
    }

    /// Of a tier that fails, the other's are all that are known.
    async fn namespaces(&self) -> Result<Vec<Namespace>> {
        self.0.check_open()?;
        let asked =
            self.0.of_both(self.0.limit(), |store| Pending::new(async move { store.namespaces().await }));
        let (mut all, more) = match asked.await? {
            [Ok(first), Ok(second)] => (first, second),
            [Ok(known), Err(error)] | [Err(error), Ok(known)] => {
                tracing::warn!(%error, "a tier does not say which namespaces it has");
                (known, Vec::new())
            }
            [Err(first), Err(second)] => return Err(crate::backend::both_failed(first, second)),
        };
        let is_new = |namespace: &Namespace| all.iter().all(|known| known.digest() != namespace.digest());
        let more: Vec<Namespace> = more.into_iter().filter(is_new).collect();
        all.extend(more);
        all.sort_by(|a, b| a.name().cmp(b.name()));
        Ok(all)
    }

    /// Removes the pages from both tiers. What it returns is the larger of their counts: a page is in both as a rule.
    async fn clear(&self, namespace: &Namespace) -> Result<u64> {
        self.0.check_open()?;
        let (clearing, under_way) = self.0.ledger(namespace.digest()).clear();
        let (tasks, limit) = (self.0.tasks().clone(), self.0.limit());
        let held = self.0.tasks().run(async move { Ok(still_under_way(&tasks, under_way, limit).await) });
        if !held.await?.is_empty() {
            return Err(still_written());
        }
        // However many pages there are.
        let cleared = self.0.of_both(None, |store| {
            let namespace = namespace.clone();
            Pending::new(async move { store.clear(&namespace).await })
        });
        let both = cleared.await?;
        drop(clearing);
        match both {
            [Ok(first), Ok(second)] => Ok(first.max(second)),
            // What the other has removed does not come back, whatever this one has left.
            [Err(error), Ok(removed)] | [Ok(removed), Err(error)] => {
                Err(error.with("removed_by_other_tier", removed))
            }
            [Err(first), Err(second)] => Err(backend::both_failed(first, second)),
        }
    }

    /// Each page once: one that is in both tiers where the first has it. The place of a find says which tier.
    fn scan(&self, scan: Scan, visitor: Visitor) -> Pending<Result<()>> {
        match self.0.check_open() {
            Ok(()) => scan::walk(self.0.both(), scan, visitor),
            Err(error) => Pending::ready(Err(error)),
        }
    }

    /// Engine and format are the first tier's that has one; it is writable while one tier is, and has the room of the
    /// roomier one, since a page is stored when either has it.
    fn health(&self) -> Health {
        let (first, second) = (self.0.first.store.health(), self.0.second.store.health());
        let named = |first: &'static str, second| if first == "none" { second } else { first };
        let engine = named(first.engine, second.engine);
        let mut health = Health::new(engine, named(first.format, second.format));
        health.writable = first.writable || second.writable;
        health.available_len = first.available_len.max(second.available_len);
        health.fallbacks = self.0.both().iter().flat_map(|tier| tier.fallbacks()).collect();
        health.fallbacks.extend(self.0.queue.fallbacks());
        health.fallbacks.extend(self.0.carried.fallback());
        health
    }

    async fn close(&self) -> Result<()> {
        let tiers = &self.0;
        tiers.tasks().close();
        let lost_before = tiers.carried.lost.load(Ordering::Acquire);
        let (tasks, limit) = (tiers.tasks().clone(), tiers.limit());
        let mut idle = tiers.tasks().idle();
        drop(tiers.tasks().run(async move { Ok(tasks.within(&mut idle, limit).await) }).await);
        let lost = tiers.carried.lost.load(Ordering::Acquire) - lost_before;
        let left = lost + tiers.carried.behind.load(Ordering::Acquire);
        let closed = tiers.of_both(tiers.limit(), |store| Pending::new(async move { store.close().await }));
        let [first, second] = closed.await?;
        if left > 0 {
            return Err(Error::new(ErrorKind::Timeout, "close store")
                .why("pages written behind did not reach the second tier; the first has them")
                .with("pages", left)
                .fix("a longer deadline, write=through, or a second tier that answers"));
        }
        first.and(second)
    }
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "use store").why("the store was closed")
}

pub(crate) fn with_tier(error: Error, tier: &Tier) -> Error {
    // What opens a tier has named it.
    if error.fact("tier").is_some() { error } else { error.with("tier", tier.place.name()) }
}
