//! Pages of pools on base pages: straight, or through a few slots of the store's own on huge pages, as a trial says.
//!
//! A device takes memory in segments, and what one huge page is to it are hundreds of base pages. Where a pool cannot
//! be put on huge pages, a copy through memory that is can be the faster way, and costs CPU. A slot is the operation's:
//! it goes back when the kernel has let go of it (invariant 4), and nothing but the copy ever writes to the page.

use crate::options::Bounce;
use crate::ring::RingRegistrar;
use crate::store::{Files, workers};
use crate::trailer::Shape;
use crate::trial::{Trial, Verdict, Way};
use hicache_core::{
    Fallback, HostPool, Namespace, PageMut, Prefault, Region, RegionSpec, RegisterError, Registrar,
    Registration, Strides,
};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

/// Bytes of all slots of a store, at most: eight of the largest.
const SLOTS_LEN: usize = 34 << 20;

/// Slots of a namespace, at most: what rings have under way, and some that wait to be copied.
const SLOTS_MAX: usize = 256;

/// Bytes of a slot, least and most: of a page that is longer so many bounce at once. Devices move the least at full
/// speed; within these bounds each worker has a slot.
const SLOT_LEN: [usize; 2] = [1 << 20, 4 << 20];

/// What the region of the slots is a multiple of, so that it can lie on huge pages whole.
const HUGE_LEN: usize = 2 << 20;

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    Read,
    Write,
}

/// What pages on base pages do, of one namespace.
#[derive(Debug)]
pub(crate) struct Ways {
    files: Arc<Files>,
    /// Of the namespace, to be told.
    name: String,
    page_len: usize,
    reads: Side,
    writes: Side,
    /// Of the rings that read into the slots.
    registrar: Option<RingRegistrar>,
    slots: RwLock<Slots>,
}

/// Bytes of slots that the namespaces of a store may still map.
#[derive(Clone, Debug)]
pub(crate) struct Allowance(Arc<Mutex<usize>>);

/// What one of them has of it. Goes back on drop; as a registrar it sees to it that this is after the last slot.
#[derive(Debug)]
struct Share(Arc<Taken>);

#[derive(Debug)]
struct Taken {
    of: Allowance,
    len: usize,
}

/// Memory to bounce through.
#[derive(Debug)]
enum Slots {
    /// Nothing has bounced yet.
    Unmade,
    Made(HostPool),
    /// It got no huge pages, or is of no use. What is under way keeps its own.
    Gone,
}

#[derive(Debug)]
struct Side {
    /// [`TRIED`], or what is settled.
    settled: AtomicU8,
    trial: Mutex<Trial>,
}

const TRIED: u8 = 0;
const STRAIGHT: u8 = 1;
const BOUNCE: u8 = 2;

/// One page on its way that could go two ways. Dropped, it is over and has moved nothing.
pub(crate) struct Passage {
    ways: Arc<Ways>,
    traffic: Traffic,
    way: Way,
    /// Of the trial, if there is one.
    window: Option<usize>,
}

/// How a page goes.
#[derive(Default)]
pub(crate) struct Going {
    passage: Option<Passage>,
    /// What it goes through.
    pub(crate) slot: Option<PageMut>,
}

impl Ways {
    pub(crate) fn new(files: Arc<Files>, namespace: &Namespace, registrar: Option<RingRegistrar>) -> Self {
        let page_len = namespace.layout().page_len();
        let settled = match files.options.bounce {
            Bounce::Auto => TRIED,
            Bounce::On => BOUNCE,
            Bounce::Off => STRAIGHT,
        };
        let workers = workers(&files.options) as usize;
        let side =
            || Side { settled: AtomicU8::new(settled), trial: Mutex::new(Trial::new(page_len, workers)) };
        let (reads, writes) = (side(), side());
        Self {
            files,
            name: namespace.name().to_string(),
            page_len,
            reads,
            writes,
            registrar,
            slots: RwLock::new(Slots::Unmade),
        }
    }

    fn side(&self, traffic: Traffic) -> &Side {
        match traffic {
            Traffic::Read => &self.reads,
            Traffic::Write => &self.writes,
        }
    }

    /// Whether pages on base pages may do anything but go straight.
    pub(crate) fn has_choice(&self, traffic: Traffic) -> bool {
        self.side(traffic).settled.load(Ordering::Relaxed) != STRAIGHT
    }

    /// Begins so many pages of pools on base pages. They go one way, together; none is given where that is straight,
    /// and is not measured.
    pub(crate) fn begin(self: &Arc<Self>, traffic: Traffic, count: usize) -> Vec<Passage> {
        let side = self.side(traffic);
        let (way, window) = match side.settled.load(Ordering::Relaxed) {
            _ if count == 0 => return Vec::new(),
            STRAIGHT => return Vec::new(),
            BOUNCE => (Way::Bounce, None),
            _ => match side.trial.lock().unwrap_or_else(PoisonError::into_inner).begin(count, Instant::now())
            {
                Some((way, window)) => (way, Some(window)),
                None => return Vec::new(),
            },
        };
        let passage = || Passage { ways: Arc::clone(self), traffic, way, window };
        (0..count).map(|_| passage()).collect()
    }

    /// How a page goes that has two ways.
    pub(crate) fn go(self: &Arc<Self>, traffic: Traffic, begun: Option<Passage>) -> Going {
        let passage = begun.or_else(|| self.begin(traffic, 1).pop());
        let slot = passage.as_ref().filter(|passage| passage.bounces()).and_then(|_| self.slot());
        // Without a slot it goes straight, and is an example of neither way.
        Going { passage: passage.filter(|passage| slot.is_some() == passage.bounces()), slot }
    }

    /// A free slot. Where there can be none, all other pages go straight.
    fn slot(&self) -> Option<PageMut> {
        let is_unmade = |slots: &Slots| matches!(slots, Slots::Unmade);
        let first = is_unmade(&read(&self.slots));
        if first {
            let mut slots = write(&self.slots);
            if is_unmade(&slots) {
                *slots = self.make();
            }
        }
        read(&self.slots).take()
    }

    /// A free slot that a ring reads a whole page into, if there are slots already: a worker makes them.
    pub(crate) fn slot_of_ring(&self) -> Option<PageMut> {
        let slots = self.slots.try_read().ok().filter(|_| self.page_len <= self.slot_len())?;
        slots.take()
    }

    fn make(&self) -> Slots {
        match self.map() {
            Ok(slots) => {
                if self.files.options.bounce == Bounce::On {
                    self.tell("reads and writes", "as bounce=on says");
                }
                Slots::Made(slots)
            }
            Err(why) => {
                for side in [&self.reads, &self.writes] {
                    side.settled.store(STRAIGHT, Ordering::Relaxed);
                }
                let why = format!("{}: {why}; pages on base pages go straight", self.name);
                self.files.tell(Fallback { what: "bounce", why });
                Slots::Gone
            }
        }
    }

    /// Bytes of a slot.
    fn slot_len(&self) -> usize {
        let [least, most] = SLOT_LEN;
        let share = SLOTS_LEN / workers(&self.files.options) as usize / least * least;
        self.page_len.min(share.clamp(least, most))
    }

    fn map(&self) -> Result<HostPool, String> {
        let block = self.files.block();
        // For rings: tail, and the block beyond that shows when a file is longer.
        let room = Shape { payload_len: self.page_len, block }.tail_len() + block.bytes();
        let len = self.slot_len();
        let workers = workers(&self.files.options) as usize;
        // Those without one would go straight, and a trial would compare a mixture.
        let least = if self.files.options.bounce == Bounce::Auto { workers } else { 1 };
        let most = SLOTS_LEN / (len + room);
        if least > most {
            return Err(format!("{workers} workers have {most} slots to bounce through"));
        }
        let taken = self.files.allowance.take(len + room, least, workers);
        let (count, share) = taken.ok_or("other namespaces have the store's slots to bounce through")?;
        let strides =
            Strides::with_room(1, count as u32, len, block, room).map_err(|error| error.to_string())?;
        let len = strides.region_len().next_multiple_of(HUGE_LEN);
        let spec = RegionSpec { len, prefault: Prefault::On, ..self.files.options.common.own_memory() };
        let region = spec.map().map_err(|error| format!("there is no memory to bounce through: {error}"))?;
        let huge_len = region.huge_len();
        if huge_len < strides.region_len() {
            return Err(format!("of {len} bytes to bounce through {huge_len} got huge pages"));
        }
        let rings = self.registrar.iter().map(|registrar| registrar as &dyn Registrar);
        let registrars: Vec<&dyn Registrar> =
            std::iter::once(&share as &dyn Registrar).chain(rings).collect();
        HostPool::new(region, strides, &registrars).map_err(|error| error.to_string())
    }

    fn settle(&self, traffic: Traffic, verdict: &Verdict) {
        let name = if traffic == Traffic::Read { "reads" } else { "writes" };
        let settled = if verdict.way == Way::Bounce {
            self.tell(name, &format!("which was {verdict} here"));
            BOUNCE
        } else {
            let namespace = &self.name;
            tracing::info!(namespace, %verdict, "{name} of pages on base pages go straight: bouncing gains too little");
            STRAIGHT
        };
        self.side(traffic).settled.store(settled, Ordering::Relaxed);
        if [Traffic::Read, Traffic::Write].iter().all(|traffic| !self.has_choice(*traffic)) {
            *write(&self.slots) = Slots::Gone;
        }
    }

    fn tell(&self, traffic: &str, why: &str) {
        let why = format!(
            "{}: a pool lies on base pages, and its {traffic} go through the store's slots on huge pages, {why}; put \
             the pool on huge pages",
            self.name
        );
        self.files.tell(Fallback { what: "copy", why });
    }
}

impl Allowance {
    /// Takes half of what is left, in slots of `len` bytes, or `workers` of them where that is more, as far as there
    /// are so many. `None` where that is less than `least`.
    fn take(&self, len: usize, least: usize, workers: usize) -> Option<(usize, Share)> {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let slots = *left / len;
        let count = (slots / 2).max(workers).min(slots).min(SLOTS_MAX);
        if count < least {
            return None;
        }
        *left -= count * len;
        Some((count, Share(Arc::new(Taken { of: self.clone(), len: count * len }))))
    }
}

impl Default for Allowance {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(SLOTS_LEN)))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        *self.of.0.lock().unwrap_or_else(PoisonError::into_inner) += self.len;
    }
}

impl Registrar for Share {
    fn register(&self, _: &Region, _: &Strides) -> Result<Registration, RegisterError> {
        let taken = Arc::clone(&self.0);
        Ok(Registration::new(move || drop(taken)))
    }
}

impl Slots {
    fn take(&self) -> Option<PageMut> {
        match self {
            Self::Made(slots) => slots.alloc(1)?.pop(),
            Self::Unmade | Self::Gone => None,
        }
    }
}

fn write(slots: &RwLock<Slots>) -> RwLockWriteGuard<'_, Slots> {
    slots.write().unwrap_or_else(PoisonError::into_inner)
}

fn read(slots: &RwLock<Slots>) -> RwLockReadGuard<'_, Slots> {
    slots.read().unwrap_or_else(PoisonError::into_inner)
}

/// By the kernel's account when the memory was mapped. Of what was not faulted in then, nothing is known: it is tried.
pub(crate) fn lies_on_base_pages(pool: &HostPool) -> bool {
    2 * pool.region().huge_len() < pool.region().len()
}

impl Passage {
    pub(crate) fn bounces(&self) -> bool {
        self.way == Way::Bounce
    }

    /// The page is where it should be, `len` bytes of it.
    pub(crate) fn arrived(mut self, len: usize) {
        self.end(len);
    }

    fn end(&mut self, len: usize) {
        let Some(window) = self.window.take() else { return };
        let trial = &self.ways.side(self.traffic).trial;
        let verdict = trial.lock().unwrap_or_else(PoisonError::into_inner).end(window, len, Instant::now());
        if let Some(verdict) = verdict {
            self.ways.settle(self.traffic, &verdict);
        }
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        self.end(0);
    }
}

impl Going {
    /// As [`Passage::arrived`].
    pub(crate) fn arrived(self, len: usize) {
        if let Some(passage) = self.passage {
            passage.arrived(len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn namespaces_share_one_allowance_and_give_back_what_they_had() {
        let allowance = Allowance::default();
        let take = |least| allowance.take(MIB, least, 8);
        let (first, second, third) = (take(8).unwrap(), take(8).unwrap(), take(8).unwrap());
        assert_eq!([first.0, second.0, third.0], [17, 8, 8], "half of it, and a slot for each worker");
        assert!(take(8).is_none(), "one is left, which is too few for a trial");
        let last = take(1).unwrap();
        assert_eq!(last.0, 1, "who is to bounce whatever that gains takes what there is");
        assert!(take(1).is_none());
        drop(second);
        assert_eq!(take(8).unwrap().0, 8);
        drop((first, third, last));
        assert_eq!(allowance.take(4 << 10, 8, 8).unwrap().0, SLOTS_MAX);
        assert_eq!(*allowance.0.lock().unwrap(), SLOTS_LEN);
    }
}
