//! One request after the other: load the longest stored prefix, store the rest.

use crate::args::replay_namespace;
use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;
use crate::report::Count;
use crate::session::{PoolSlots, Session};
use crate::workload::Workload;
use hicache::{
    Call, Error, ErrorKind, Fallback, HostPool, KeyUnits, Outcomes, PageKey, PageLayout, PageMut, Pending,
    Prefix, Put, STORAGE_BATCH_SIZE, Stats, StorageBackend, Stored,
};
use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Batches under way at once, of loads and of stores.
const BATCHES_MAX: NonZeroUsize = NonZeroUsize::new(2).unwrap();
/// How long a slot is waited for that an operation past its deadline still holds.
const SLOT_WAIT: Duration = Duration::from_secs(60);

/// What pages are, and what is done to them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Of every page.
    pub(crate) layout: PageLayout,
    /// Slots of the pool.
    pub(crate) pool_pages: PoolSlots,
    /// Compare every page loaded.
    pub(crate) verify: bool,
}

/// Replays requests against a store.
#[derive(Debug)]
pub(crate) struct Replayer<'a> {
    session: &'a mut Session,
    backend: Arc<dyn StorageBackend>,
    pool: HostPool,
    rules: Rules,
    workload: Workload,
    interrupt: &'a Interrupt,
    counts: Counts,
    /// Of backends that a restart has closed.
    stats: Stats,
    /// Of stores that a restart has closed, one of each kind: each says the same again.
    fallbacks: Vec<Fallback>,
}

/// What has been counted and timed so far.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) blocks: u64,
    pub(crate) hits: u64,
    pub(crate) stored: u64,
    pub(crate) wrong: u64,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<Error>,
    /// Waiting for pages.
    pub(crate) reading: Duration,
    /// From the first batch of a request to its last outcome.
    pub(crate) writing: Duration,
    /// Microseconds that each request waited for its pages.
    pub(crate) loads: Vec<u32>,
}

/// Batches of sets under way.
type Sets = VecDeque<Pending<Outcomes<Stored>>>;

impl<'a> Replayer<'a> {
    /// On a store that is open.
    pub(crate) fn new(session: &'a mut Session, rules: Rules, interrupt: &'a Interrupt) -> Result<Self> {
        let namespace = replay_namespace(rules.layout)?;
        let backend = session.backend(namespace.clone()).map_err(|failure| match failure {
            // The layout is the run's, not the user's choice of a namespace.
            Failure::Store(error) if error.kind() == ErrorKind::Incompatible => {
                let when = if session.is_whole() { "" } else { ", once both tiers answer" };
                Failure::Store(error.fix(format_args!(
                    "`hicache drop {} {}` removes its pages{when}; or name another --backend",
                    namespace.name(),
                    session.flags()
                )))
            }
            other => other,
        })?;
        let slots = session.pool_slots(&*backend, &rules.layout, rules.pool_pages)?;
        let pool = session.pool(&*backend, &rules.layout, slots, session.memory())?;
        let (workload, counts, stats) = (Workload::new(), Counts::default(), Stats::default());
        let fallbacks = Vec::new();
        Ok(Self { session, backend, pool, rules, workload, interrupt, counts, stats, fallbacks })
    }

    /// The pool that pages lie in.
    pub(crate) fn pool(&self) -> &HostPool {
        &self.pool
    }

    /// The open store.
    pub(crate) fn session(&self) -> &Session {
        self.session
    }

    /// What has been counted so far.
    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// What the backends have counted, over all restarts.
    pub(crate) fn stats(&self) -> Stats {
        self.stats.plus(&self.backend.stats())
    }

    /// What the pool and the store asked for and did not get; also stores before a restart.
    pub(crate) fn fallbacks(&self) -> Vec<Fallback> {
        let of_pool = |fallback: &Fallback| Fallback {
            what: fallback.what,
            why: format!("the host pool: {}", fallback.why),
        };
        let mut all: Vec<_> = self.pool.region().fallbacks().iter().map(of_pool).collect();
        all.extend(self.session.store().health().fallbacks);
        add_kinds(&mut all, &self.fallbacks);
        all.extend(self.copies());
        all
    }

    /// Pages that moved through a slot of the store's, since the device could not reach them where they lie. Of those
    /// that it could reach, and that went so because it is faster, the store tells.
    fn copies(&self) -> Option<Fallback> {
        let (piece, alignment) = (self.rules.layout.piece_len(), self.backend.capabilities().alignment);
        let copied = Some(self.stats().bounced).filter(|copied| *copied > 0)?;
        if self.pool.is_aligned(alignment) {
            return None;
        }
        let why = format!(
            "{} moved through an aligned slot: pieces of {piece} bytes are no multiples of the device's alignment of \
             {} bytes; pad them, or choose another page size",
            Count(copied, "page"),
            alignment.bytes()
        );
        Some(Fallback { what: "copy", why })
    }

    /// Bytes of a page.
    pub(crate) fn page_len(&self) -> u64 {
        self.rules.layout.page_len() as u64
    }

    /// Closes the store and opens it again, with a pool that its engine knows, as a process that starts anew has it.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.stats = self.stats();
        add_kinds(&mut self.fallbacks, &self.session.store().health().fallbacks);
        self.session.reopen()?;
        self.backend = self.session.backend(replay_namespace(self.rules.layout)?)?;
        let (slots, memory) = (self.pool.slots(), self.session.memory());
        self.pool = self.session.pool(&*self.backend, &self.rules.layout, slots, memory)?;
        Ok(())
    }

    /// Replays one request for the blocks `ids`.
    pub(crate) fn request(&mut self, ids: &[u64]) -> Result<()> {
        self.interrupt.check()?;
        // Equal ids stand for equal blocks with equal blocks before them, so the id alone makes the key.
        let key = |id: &u64| PageKey::of_page(None, &[*id], KeyUnits::Token);
        let keys = ids.iter().map(key).collect::<hicache::Result<Vec<_>>>()?;
        self.counts.requests += 1;
        self.counts.blocks += keys.len() as u64;
        if keys.is_empty() {
            return Ok(());
        }
        let hits = self.load(&keys);
        self.counts.hits += hits as u64;
        self.store(&keys, hits)
    }

    /// Loads the longest stored run of `keys`; how many pages it has.
    fn load(&mut self, keys: &[PageKey]) -> usize {
        let mut waited = Duration::ZERO;
        let mut started = Instant::now();
        let (backend, pool) = (Arc::clone(&self.backend), self.pool.clone());
        let mut run = Prefix::new(backend, keys.iter().copied(), pool, BATCHES_MAX, Call::default()).wait();
        let mut hits = 0;
        loop {
            let next = run.next();
            waited += started.elapsed();
            match next {
                Some(Ok(page)) => {
                    if self.rules.verify && !self.workload.matches(&keys[hits], &page) {
                        self.counts.wrong += 1;
                    }
                    hits += 1;
                }
                Some(Err(error)) => self.counts.failed(error),
                None => break,
            }
            started = Instant::now();
        }
        self.counts.reading += waited;
        self.counts.loads.push(u32::try_from(waited.as_micros()).unwrap_or(u32::MAX));
        hits
    }

    /// Stores the pages of `keys` from number `from` on.
    fn store(&mut self, keys: &[PageKey], from: usize) -> Result<()> {
        let mut first_submit = None;
        let batch_len = STORAGE_BATCH_SIZE.min(self.pool.slots() as usize / BATCHES_MAX).max(1);
        let mut sets = Sets::new();
        let mut next = from;
        while next < keys.len() {
            let count = batch_len.min(keys.len() - next);
            let pages = self.slots(count, &mut sets)?;
            let batch = pages.into_iter().zip(next..).map(|(mut page, at)| {
                self.workload.fill(&keys[at], &mut page);
                let parent = at.checked_sub(1).map(|before| keys[before]);
                Put { key: keys[at], parent, page: page.freeze() }
            });
            let batch = batch.collect();
            first_submit.get_or_insert_with(Instant::now);
            sets.push_back(self.backend.batch_set(batch, Call::default()));
            next += count;
        }
        while self.settle(&mut sets) {}
        self.counts.writing += first_submit.map_or(Duration::ZERO, |started| started.elapsed());
        Ok(())
    }

    /// Free slots, as soon as no more than the allowed batches are under way and the pool has them.
    fn slots(&mut self, count: usize, sets: &mut Sets) -> Result<Vec<PageMut>> {
        while sets.len() >= BATCHES_MAX.get() {
            self.settle(sets);
        }
        let started = Instant::now();
        loop {
            if let Some(pages) = self.pool.alloc(count) {
                return Ok(pages);
            }
            if !self.settle(sets) {
                if started.elapsed() > SLOT_WAIT {
                    return Err(Error::new(ErrorKind::Exhausted, "store pages")
                        .why("operations past their deadline still hold the pool's slots")
                        .with("slots", self.pool.slots())
                        .into());
                }
                self.interrupt.sleep(Duration::from_millis(10))?;
            }
        }
    }

    /// Waits for the oldest batch; whether there was one.
    fn settle(&mut self, sets: &mut Sets) -> bool {
        let Some(oldest) = sets.pop_front() else { return false };
        for outcome in oldest.wait() {
            match outcome {
                Ok(Stored::Written) => self.counts.stored += 1,
                Ok(Stored::Present) => (),
                Err(error) => self.counts.failed(error),
            }
        }
        true
    }
}

/// Adds those of kinds that are not there yet.
fn add_kinds(all: &mut Vec<Fallback>, more: &[Fallback]) {
    for fallback in more {
        if all.iter().all(|known| known.what != fallback.what) {
            all.push(fallback.clone());
        }
    }
}

impl Counts {
    fn failed(&mut self, error: Error) {
        self.errors += 1;
        self.first_error.get_or_insert(error);
    }

    /// The first error, for people.
    pub(crate) fn tell_errors(&self) {
        if let Some(error) = &self.first_error {
            crate::output::note(format_args!("{} operations failed; the first:", self.errors));
            Failure::Store(error.clone()).tell();
        }
    }
}
