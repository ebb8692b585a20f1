//! Memory for pages on their way to a tier while nobody waits for them.
//!
//! They are copies in the store's own slots, never pages of the caller's pool. Who has an answer may use its page
//! again: a claimed slot is claimed anew, and a run that is longer than the pool takes a dry pool for the end
//! ([`Prefix`](hicache_core::Prefix)). And a slow tier must not drain the host memory of an engine. A copy costs what a
//! memory copy costs, the tier behind many times that.

use hicache_core::{
    Alignment, Error, Fallback, HostPool, Loan, Namespace, Page, PageMut, Prefault, RegionSpec,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What [`Fallback::what`] calls it.
const WHAT: &str = "queue";

/// Most slots of a namespace: what is in the ledger has a limit, too.
const SLOTS_MAX: u64 = 16 * 1024;

/// Bytes that may be on their way, over all namespaces of a store.
#[derive(Debug)]
pub(crate) struct Queue {
    len_max: u64,
    len: AtomicU64,
    /// How its memory is mapped.
    memory: RegionSpec,
    fallbacks: Mutex<Vec<Fallback>>,
}

/// The slots of one namespace. Address space until they are used; what was used once stays.
#[derive(Debug)]
pub(crate) struct Slots {
    queue: Arc<Queue>,
    namespace: Namespace,
    alignment: Alignment,
    pool: OnceLock<Option<HostPool>>,
}

/// A slot of the queue, and its share of the bytes.
#[derive(Debug)]
pub(crate) struct Slot {
    page: PageMut,
    share: Share,
}

/// Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    queue: Arc<Queue>,
    len: u64,
}

impl Queue {
    pub(crate) fn new(len_max: u64, memory: RegionSpec) -> Self {
        Self { len_max, len: AtomicU64::new(0), memory, fallbacks: Mutex::default() }
    }

    /// What was asked of its memory and not got.
    pub(crate) fn fallbacks(&self) -> Vec<Fallback> {
        self.fallbacks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells it once.
    fn tell(&self, fallback: Fallback) {
        if self.add(fallback.clone()) {
            tracing::warn!(what = fallback.what, why = fallback.why, "fallback");
        }
    }

    /// Whether it is new.
    fn add(&self, fallback: Fallback) -> bool {
        let mut fallbacks = self.fallbacks.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !fallbacks.contains(&fallback);
        if is_new {
            fallbacks.push(fallback);
        }
        is_new
    }

    fn share(self: &Arc<Self>, len: u64) -> Option<Share> {
        let add = |held: u64| held.checked_add(len).filter(|sum| *sum <= self.len_max);
        let taken = self.len.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
        taken.ok().map(|_| Share { queue: Arc::clone(self), len })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.queue.len.fetch_sub(self.len, Ordering::AcqRel);
    }
}

impl Slots {
    pub(crate) fn new(queue: &Arc<Queue>, namespace: &Namespace, alignment: Alignment) -> Self {
        let (queue, namespace) = (Arc::clone(queue), namespace.clone());
        Self { queue, namespace, alignment, pool: OnceLock::new() }
    }

    /// A slot, if the queue has room.
    pub(crate) fn take(&self) -> Option<Slot> {
        let pool = self.pool.get_or_init(|| self.map()).as_ref()?;
        let share = self.queue.share(self.page_len())?;
        let page = pool.alloc(1)?.pop()?;
        Some(Slot { page, share })
    }

    fn page_len(&self) -> u64 {
        self.namespace.layout().page_len() as u64
    }

    /// `None`, and told, where there are no slots to be had.
    fn map(&self) -> Option<HostPool> {
        let count = (self.queue.len_max / self.page_len()).min(SLOTS_MAX);
        if count == 0 {
            let (len, len_max) = (self.page_len(), self.queue.len_max);
            let why = format!(
                "a page of {len} bytes is larger than the queue of {len_max}: none is written behind or promoted; \
                 raise the option queue"
            );
            self.queue.tell(Fallback { what: WHAT, why });
            return None;
        }
        let map = || -> Result<HostPool, Error> {
            let strides = self.namespace.layout().strides(count as u32, self.alignment)?;
            // A slot that is never used takes no memory.
            let spec = RegionSpec {
                len: strides.region_len(),
                prefault: Prefault::Off,
                ..self.queue.memory.clone()
            };
            Ok(HostPool::new(spec.map()?, strides, &[])?)
        };
        match map() {
            Ok(pool) => {
                // Logged when the region was mapped.
                for Fallback { what, why } in pool.region().fallbacks().iter().cloned() {
                    self.queue.add(Fallback { what, why: format!("the queue: {why}") });
                }
                Some(pool)
            }
            Err(error) => {
                let why = format!("it has no memory, so nothing is written behind or promoted: {error:?}");
                self.queue.tell(Fallback { what: WHAT, why });
                None
            }
        }
    }
}

impl Slot {
    /// Copies a page in.
    pub(crate) fn fill(&mut self, from: &Page) {
        for plane in 0..from.planes() {
            let into = self.page.bytes_mut(plane).expect("the queue's memory is private");
            from.piece(plane).copy_to(0, into);
        }
    }

    /// The page to hand to a tier, and how to know that the tier has let go of it.
    pub(crate) fn send(self) -> (Page, Loan, Share) {
        let (lent, loan) = self.page.lend();
        (lent.freeze(), loan, self.share)
    }
}
