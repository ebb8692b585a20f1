//! A file store seen through one namespace: batches become jobs.

use crate::asked::Asked;
use crate::bounce::{Passage, Traffic, Ways};
use crate::engine::{self, Job, Lane, Turn, late};
use crate::options::Engine;
use crate::own::{Ending, OwnPages, Target, copy_page};
use crate::page_file::PageFiles;
use crate::ring::{Read, Rings};
use crate::store::Files;
use hicache_core::{
    Alignment, Call, Capabilities, Counters, Deadline, Error, ErrorKind, Get, Namespace, Outcomes, Page,
    PageKey, PageMut, Pending, Priority, Put, Reply, Result, Stats, StorageBackend, Stored, replies,
};
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Questions that one job asks. Each is one system call: a job for each would cost more than the answer.
const QUESTIONS: usize = 32;

/// Gets that a batch has at least to be worth the ring: a lone page is faster by plain calls.
const RING_BATCH_MIN: usize = 2;

/// Bytes of the largest page that `engine=auto` gives to a ring: from 256 KiB up, workers were faster.
const RING_PAGE_MAX: usize = 128 * 1024;

/// Bytes of the largest page that a lone get reads on its caller's thread.
const ALONE_PAGE_MAX: usize = 1 << 20;

/// Pages of one namespace, in files.
#[derive(Debug)]
pub(crate) struct FileBackend {
    engine: Arc<engine::Engine>,
    view: Arc<View>,
    own: OwnPages,
}

/// What a job needs to know of its namespace.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) files: Arc<Files>,
    pub(crate) namespace: Namespace,
    pub(crate) counters: Arc<Counters>,
    /// For each root: its record of the namespace is known to be there and to agree.
    pub(crate) recorded: Vec<AtomicBool>,
    /// What pages on base pages do.
    pub(crate) ways: Arc<Ways>,
}

/// How a ring reads a page: path, flags and bytes after it.
struct Plan {
    how: (String, i32, usize),
    /// What the page bounces through.
    slot: Option<PageMut>,
}

impl View {
    pub(crate) fn new(files: Arc<Files>, namespace: Namespace, rings: Option<&Rings>) -> Self {
        let recorded = files.roots.iter().map(|_| AtomicBool::new(false)).collect();
        let ways = Ways::new(Arc::clone(&files), &namespace, rings.map(Rings::registrar));
        Self { files, namespace, counters: Arc::default(), recorded, ways: Arc::new(ways) }
    }

    /// The page files of the directory that `key` belongs in.
    fn of(&self, key: &PageKey) -> PageFiles<'_> {
        self.at(self.files.root_of(key))
    }

    pub(crate) fn at(&self, root: usize) -> PageFiles<'_> {
        let options = &self.files.options;
        PageFiles {
            root: &self.files.roots[root],
            namespace: &self.namespace,
            counters: &self.counters,
            checksum: options.checksum,
            accept_unverified: options.common.accept_unverified,
            durability: options.durability,
            recorded: &self.recorded[root],
            ways: &self.ways,
        }
    }

    /// Counts and answers, where the deadline has not.
    pub(crate) fn answer<T>(&self, reply: Reply<T>, outcome: Result<T>) {
        if let Err(error) = &outcome
            && reply.hold()
        {
            Counters::add(&self.counters.errors, 1);
            Counters::add(&self.counters.timeouts, u64::from(error.kind() == ErrorKind::Timeout));
        }
        reply.send(outcome);
    }
}

impl FileBackend {
    pub(crate) fn new(engine: Arc<engine::Engine>, files: Arc<Files>, namespace: Namespace) -> Self {
        let view = Arc::new(View::new(files, namespace, engine.rings()));
        Self { engine, view, own: OwnPages::default() }
    }

    fn set_job(&self, put: Put, reply: Reply<Stored>, deadline: Option<Instant>) -> Job {
        let view = Arc::clone(&self.view);
        self.job(deadline, move |turn| match turn {
            Turn::Go(slot) => {
                let outcome = view.of(&put.key).set(&put, slot);
                // Who has the answer has the page back.
                drop(put);
                view.answer(reply, outcome);
            }
            Turn::Late => {
                drop(put);
                view.answer(reply, Err(late()));
            }
        })
    }

    fn get_job(
        &self,
        get: Get,
        reply: Reply<Option<Page>>,
        deadline: Option<Instant>,
        begun: Option<Passage>,
    ) -> Job {
        let view = Arc::clone(&self.view);
        self.job(deadline, move |turn| match turn {
            Turn::Go(slot) => {
                let outcome = view.of(&get.key).get(&get.key, get.into, slot, begun);
                view.answer(reply, outcome);
            }
            Turn::Late => {
                drop(get);
                view.answer(reply, Err(late()));
            }
        })
    }

    /// A get whose page is copied when it is there, if its answer is wanted then.
    fn copying_job(
        &self,
        get: Get,
        reply: Reply<Option<Page>>,
        deadline: Option<Instant>,
        ending: &mut Ending,
    ) -> Job {
        let view = Arc::clone(&self.view);
        let Get { key, into } = get;
        let shaped = view.namespace.check_shape("get page", into.planes(), into.len());
        let own = shaped.and_then(|()| self.own.take(&view.files, view.namespace.layout()));
        let target = Target::new(into);
        ending.include(&target);
        self.job(deadline, move |turn| match turn {
            Turn::Go(slot) => {
                let read = own.and_then(|own| view.of(&key).get(&key, own, slot, None));
                // From here on no deadline answers, so that nobody has the memory back while it is copied to.
                if !reply.hold() {
                    return;
                }
                // Gone where the deadline is passing right now.
                let Some(mut into) = target.take() else { return view.answer(reply, Err(late())) };
                let outcome = read.map(|page| {
                    page.map(|page| {
                        copy_page(&page, &mut into);
                        into.freeze()
                    })
                });
                view.answer(reply, outcome);
            }
            Turn::Late => {
                drop(target.take());
                view.answer(reply, Err(late()));
            }
        })
    }

    /// How a ring reads a page, if it does: straight, or into a slot.
    fn plan(&self, root: usize, get: &Get, begun: Option<&Passage>) -> Option<Plan> {
        let slot = match begun.filter(|begun| begun.bounces()) {
            None => None,
            Some(_) => Some(self.view.ways.slot_of_ring()?),
        };
        let how = self.view.at(root).plan_read(&get.key, &get.into, slot.as_ref())?;
        Some(Plan { how, slot })
    }

    /// A get for a ring.
    fn read(
        &self,
        root: usize,
        Plan { how: (path, flags, tail_len), slot }: Plan,
        get: Get,
        reply: Reply<Option<Page>>,
        deadline: Option<Instant>,
        begun: Option<Passage>,
    ) -> Read {
        let path = CString::new(path).expect("digests and keys have no zero byte");
        let (page, into) = match slot {
            None => (get.into, None),
            Some(slot) => (slot, Some(get.into)),
        };
        let asked =
            Asked { view: Arc::clone(&self.view), root, key: get.key, reply, begun, into, registered: false };
        Read { asked, path, flags, tail_len, page, deadline }
    }

    /// One job for every few keys, each of which `act` does.
    fn ask(
        &self,
        lane: Lane,
        keys: &[PageKey],
        call: Call,
        act: fn(&PageFiles<'_>, &PageKey) -> Result<bool>,
    ) -> Pending<Outcomes<bool>> {
        let (replies, outcomes, expiry) = replies(keys.len());
        let deadline = self.deadline(call);
        let mut replies = replies.into_iter();
        let jobs = keys.chunks(QUESTIONS).map(|keys| {
            let asked: Vec<(PageKey, Reply<bool>)> = keys.iter().copied().zip(replies.by_ref()).collect();
            let view = Arc::clone(&self.view);
            self.job(deadline, move |turn| {
                for (key, reply) in asked {
                    match turn {
                        Turn::Go(_) => view.answer(reply, act(&view.of(&key), &key)),
                        Turn::Late => view.answer(reply, Err(late())),
                    }
                }
            })
        });
        let jobs = jobs.collect();
        self.submit(lane, (jobs, Vec::new()), outcomes, deadline, expiry.into())
    }

    fn job(&self, deadline: Option<Instant>, run: impl FnOnce(Turn<'_>) + Send + 'static) -> Job {
        Job { deadline, run: Box::new(run), counters: Arc::clone(&self.view.counters), waits: true }
    }

    fn submit<T: Send + 'static>(
        &self,
        lane: Lane,
        (jobs, reads): (Vec<Job>, Vec<Read>),
        outcomes: Pending<Outcomes<T>>,
        deadline: Option<Instant>,
        ending: Ending,
    ) -> Pending<Outcomes<T>> {
        let begun = self.engine.submit(lane, jobs, reads);
        self.submitted(begun, outcomes, deadline, ending)
    }

    fn submitted<T: Send + 'static>(
        &self,
        begun: std::result::Result<(), (Error, Vec<Job>, Vec<Read>)>,
        outcomes: Pending<Outcomes<T>>,
        deadline: Option<Instant>,
        ending: Ending,
    ) -> Pending<Outcomes<T>> {
        match begun {
            Ok(()) => {
                if let Some(deadline) = deadline.filter(|_| !ending.expiry.is_over()) {
                    self.engine.expire_at(deadline, ending, &self.view.counters);
                }
            }
            // Nothing was begun: every item, held or not, is answered, and its page goes back.
            Err((error, jobs, reads)) => {
                let refused = ending.expiry.refuse(&error);
                Counters::add(&self.view.counters.errors, refused as u64);
                drop((jobs, reads));
            }
        }
        outcomes
    }

    fn suits_ring(&self, alone: bool) -> bool {
        let page_len = self.view.namespace.layout().page_len();
        if alone {
            return page_len <= ALONE_PAGE_MAX;
        }
        self.view.files.options.engine == Engine::IoUring || page_len <= RING_PAGE_MAX
    }

    /// `None` where it is too far away to be told.
    fn deadline(&self, call: Call) -> Option<Instant> {
        let after = match call.deadline {
            Deadline::Store => self.view.files.options.common.deadline,
            Deadline::After(after) => after,
        };
        Instant::now().checked_add(after)
    }
}

fn lane(priority: Priority, normal: Lane, background: Lane) -> Lane {
    if priority == Priority::Normal { normal } else { background }
}

impl StorageBackend for FileBackend {
    fn capabilities(&self) -> Capabilities {
        let aligned = self.view.files.roots.iter().filter_map(crate::root::Root::direct).max();
        let mut capabilities = Capabilities::new(aligned.unwrap_or(Alignment::NONE), false);
        if self.engine.rings().is_some() && aligned.is_some() {
            // The tail, and the block beyond that shows when a file is longer.
            let files = (0..self.view.files.roots.len()).map(|root| self.view.at(root).shape());
            let room = files.map(|shape| shape.tail_len() + shape.block.bytes());
            capabilities.room = room.max().unwrap_or(0);
        }
        capabilities
    }

    fn batch_set(&self, batch: Vec<Put>, call: Call) -> Pending<Outcomes<Stored>> {
        let lane = lane(call.priority, Lane::Write, Lane::BackgroundWrite);
        let (replies, outcomes, expiry) = replies(batch.len());
        let deadline = self.deadline(call);
        let jobs =
            batch.into_iter().zip(replies).map(|(put, reply)| self.set_job(put, reply, deadline)).collect();
        self.submit(lane, (jobs, Vec::new()), outcomes, deadline, expiry.into())
    }

    fn batch_get(&self, batch: Vec<Get>, call: Call) -> Pending<Outcomes<Option<Page>>> {
        let lane = lane(call.priority, Lane::Read, Lane::BackgroundRead);
        let (replies, outcomes, expiry) = replies(batch.len());
        let (deadline, mut ending) = (self.deadline(call), Ending::from(expiry));
        let (mut reads, mut jobs) = (Vec::new(), Vec::new());
        let alone = batch.len() < RING_BATCH_MIN;
        let ring = self.engine.rings().is_some() && self.suits_ring(alone);
        // What a ring could read goes one way as a batch; other pages go their ways when their turn comes.
        let two_ways = |get: &&Get| self.view.of(&get.key).has_two_ways(get.into.pool());
        let choice = ring && self.view.ways.has_choice(Traffic::Read);
        let tried = if choice { batch.iter().filter(two_ways).count() } else { 0 };
        let mut begun = self.view.ways.begin(Traffic::Read, tried);
        for (get, reply) in batch.into_iter().zip(replies) {
            let is_lent = get.into.is_claimed() || get.into.pool().region().is_adopted();
            if is_lent && call.hard {
                jobs.push(self.copying_job(get, reply, deadline, &mut ending));
                continue;
            }
            if get.into.is_claimed() {
                // Contract 6: a claimed slot may be used again once its get is answered.
                reply.hold();
            }
            let root = self.view.files.root_of(&get.key);
            // A caller that would wait in the kernel, for as long as it takes, is none that reads himself.
            let ring = ring && !(alone && self.view.files.roots[root].reads_wait());
            let files = self.view.at(root);
            let begun = if choice && files.has_two_ways(get.into.pool()) { begun.pop() } else { None };
            match ring.then(|| self.plan(root, &get, begun.as_ref())).flatten() {
                Some(plan) => reads.push(self.read(root, plan, get, reply, deadline, begun)),
                None => jobs.push(self.get_job(get, reply, deadline, begun)),
            }
        }
        if alone && let Some(read) = reads.pop() {
            let begun = self.engine.read_alone(read);
            return self.submitted(begun, outcomes, deadline, ending);
        }
        self.submit(lane, (jobs, reads), outcomes, deadline, ending)
    }

    fn batch_exists(&self, keys: &[PageKey], call: Call) -> Pending<Outcomes<bool>> {
        let lane = lane(call.priority, Lane::Read, Lane::BackgroundRead);
        self.ask(lane, keys, call, |files, key| files.exists(key))
    }

    fn batch_remove(&self, keys: &[PageKey], call: Call) -> Pending<Outcomes<bool>> {
        let lane = lane(call.priority, Lane::Write, Lane::BackgroundWrite);
        self.ask(lane, keys, call, |files, key| files.remove(key))
    }

    fn stats(&self) -> Stats {
        self.view.counters.snapshot()
    }
}
