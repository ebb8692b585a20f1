//! A file store seen through one namespace: batches become jobs.

use crate::engine::{Engine, Job, Lane, Turn, late};
use crate::page_file::PageFiles;
use crate::slot::Slot;
use crate::store::Files;
use hicache_core::{
    Alignment, Call, Capabilities, Counters, Deadline, Error, Expiry, Get, Namespace, Outcomes, Page,
    PageKey, Pending, Priority, Put, Reply, Result, Stats, StorageBackend, Stored, replies,
};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Questions that one job asks. Each is one system call: a job for each would cost more than the answer.
const QUESTIONS: usize = 32;

/// Pages of one namespace, in files.
#[derive(Debug)]
pub(crate) struct FileBackend {
    engine: Arc<Engine>,
    view: Arc<View>,
}

/// What a job needs to know of its namespace.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) files: Arc<Files>,
    pub(crate) namespace: Namespace,
    pub(crate) counters: Arc<Counters>,
    /// For each root: its record of the namespace is known to be there and to agree.
    pub(crate) recorded: Vec<AtomicBool>,
}

impl View {
    pub(crate) fn new(files: Arc<Files>, namespace: Namespace) -> Self {
        let recorded = files.roots.iter().map(|_| AtomicBool::new(false)).collect();
        Self { files, namespace, counters: Arc::default(), recorded }
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
        }
    }

    fn answer<T>(&self, reply: Reply<T>, outcome: Result<T>) {
        if outcome.is_err() {
            Counters::add(&self.counters.errors, 1);
        }
        reply.send(outcome);
    }
}

impl FileBackend {
    pub(crate) fn new(engine: Arc<Engine>, files: Arc<Files>, namespace: Namespace) -> Self {
        Self { engine, view: Arc::new(View::new(files, namespace)) }
    }

    /// One job for each item, which `act` does.
    fn each<I: Send + 'static, T: Send + 'static>(
        &self,
        lane: Lane,
        items: Vec<I>,
        call: Call,
        act: fn(&View, I, &mut Slot) -> Result<T>,
        hold: fn(&I) -> bool,
    ) -> Pending<Outcomes<T>> {
        let (replies, outcomes, expiry) = replies(items.len());
        let deadline = self.deadline(call);
        let jobs = items.into_iter().zip(replies).map(|(item, reply)| {
            if hold(&item) {
                reply.hold();
            }
            let view = Arc::clone(&self.view);
            self.job(deadline, move |turn| match turn {
                Turn::Go(slot) => {
                    let outcome = act(&view, item, slot);
                    view.answer(reply, outcome);
                }
                Turn::Late => reply.send(Err(late())),
            })
        });
        self.submit(lane, jobs.collect(), outcomes, deadline, expiry)
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
                        Turn::Late => reply.send(Err(late())),
                    }
                }
            })
        });
        let jobs = jobs.collect();
        self.submit(lane, jobs, outcomes, deadline, expiry)
    }

    fn job(&self, deadline: Option<Instant>, run: impl FnOnce(Turn<'_>) + Send + 'static) -> Job {
        Job { deadline, run: Box::new(run), counters: Arc::clone(&self.view.counters) }
    }

    fn submit<T: Send + 'static>(
        &self,
        lane: Lane,
        jobs: Vec<Job>,
        outcomes: Pending<Outcomes<T>>,
        deadline: Option<Instant>,
        expiry: Expiry,
    ) -> Pending<Outcomes<T>> {
        match self.engine.submit(lane, jobs) {
            Ok(()) => {
                if let Some(deadline) = deadline {
                    self.engine.expire_at(deadline, expiry, &self.view.counters);
                }
            }
            Err((error, jobs)) => self.refuse(&expiry, &error, jobs),
        }
        outcomes
    }

    /// Nothing was queued: every item, held or not, ends now, and its page goes back.
    fn refuse(&self, expiry: &Expiry, error: &Error, jobs: Vec<Job>) {
        let refused = expiry.expire(error);
        Counters::add(&self.view.counters.errors, refused as u64);
        drop(jobs);
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
        Capabilities::new(aligned.unwrap_or(Alignment::NONE), false)
    }

    fn batch_set(&self, batch: Vec<Put>, call: Call) -> Pending<Outcomes<Stored>> {
        let lane = lane(call.priority, Lane::Write, Lane::BackgroundWrite);
        self.each(lane, batch, call, |view, put, slot| view.of(&put.key).set(&put, slot), |_| false)
    }

    fn batch_get(&self, batch: Vec<Get>, call: Call) -> Pending<Outcomes<Option<Page>>> {
        let lane = lane(call.priority, Lane::Read, Lane::BackgroundRead);
        let get = |view: &View, get: Get, slot: &mut Slot| view.of(&get.key).get(&get.key, get.into, slot);
        // Contract 6: a claimed slot may be used again once its get is answered.
        self.each(lane, batch, call, get, |get| get.into.is_claimed())
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
