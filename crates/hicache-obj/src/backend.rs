//! An S3 store seen through one namespace: batches become jobs.

use crate::bucket::{Bucket, MORE_TIME};
use crate::crew::{Alarm, Crew, Job, Lane};
use crate::known::{Known, Standing};
use crate::leading::Asking;
use crate::listing;
use crate::objects::Objects;
use crate::records::Records;
use hicache_core::{
    Alignment, Call, Capabilities, Counters, Deadline, Error, ErrorKind, Expiry, Get, LeadingRun, Namespace,
    Outcomes, Page, PageKey, Pending, Put, Reply, Result, Stats, StorageBackend, Stored, replies,
};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use tokio::time::Instant;

/// Keys of a batch that are not known, from which on one listing is tried before they are asked for one by one.
const LISTING_MIN: usize = 64;

/// Pages of one namespace, in a bucket.
#[derive(Debug)]
pub(crate) struct ObjBackend {
    crew: Arc<Crew>,
    view: Arc<View>,
}

/// What a job needs to know of its namespace.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) namespace: Namespace,
    pub(crate) known: Arc<Known>,
    pub(crate) records: Arc<Records>,
    pub(crate) counters: Arc<Counters>,
}

impl View {
    pub(crate) fn objects(&self, deadline: Option<Instant>) -> Objects<'_> {
        Objects {
            bucket: &self.bucket,
            namespace: &self.namespace,
            counters: &self.counters,
            known: &self.known,
            records: &self.records,
            deadline,
        }
    }

    /// Counts and answers.
    fn answer<T>(&self, reply: Reply<T>, outcome: Result<T>) {
        self.count(outcome.as_ref().err());
        reply.send(outcome);
    }

    pub(crate) fn count(&self, error: Option<&Error>) {
        match error.map(Error::kind) {
            Some(ErrorKind::Timeout) => Counters::add(&self.counters.timeouts, 1),
            Some(_) => Counters::add(&self.counters.errors, 1),
            None => (),
        }
    }
}

/// A batch under way: what all of its jobs share.
#[derive(Clone)]
struct Batch {
    deadline: Option<Instant>,
    /// Answers those that wait in line when the deadline passes; called off with the last of the jobs. Where none has
    /// to wait it is not set: a job that has begun answers itself, and an alarm costs as much as a small request.
    alarm: Option<Arc<Alarm>>,
}

impl Batch {
    /// Queues jobs of it; those that are refused come back.
    fn queue(&self, crew: &Crew, lane: Lane, jobs: Vec<Job>) -> Result<(), (Error, Vec<Job>)> {
        let some_wait = crew.submit(lane, jobs)?;
        if let (true, Some(alarm)) = (some_wait, &self.alarm) {
            alarm.set();
        }
        Ok(())
    }
}

impl ObjBackend {
    pub(crate) fn new(crew: Arc<Crew>, view: View) -> Self {
        Self { crew, view: Arc::new(view) }
    }

    fn begin(&self, call: Call, expiry: &Expiry) -> Batch {
        let (expiry, view) = (expiry.clone(), Arc::clone(&self.view));
        self.begin_with(call, move || {
            let expired = expiry.expire(&late());
            Counters::add(&view.counters.timeouts, expired as u64);
        })
    }

    /// `expire` answers at the deadline.
    fn begin_with(&self, call: Call, expire: impl FnOnce() + Send + 'static) -> Batch {
        let after = match call.deadline {
            Deadline::Store => self.view.bucket.options().common.deadline,
            Deadline::After(after) => after,
        };
        // Too far away to be told is none.
        let Some(deadline) = Instant::now().checked_add(after) else {
            return Batch { deadline: None, alarm: None };
        };
        let alarm = self.crew.at(deadline, expire);
        Batch { deadline: Some(deadline), alarm: Some(Arc::new(alarm)) }
    }

    /// A job: from its beginning on, it answers itself, by its deadline and when its page is let go of.
    fn job<T, W, F>(&self, batch: &Batch, reply: Reply<T>, work: W) -> Job
    where
        T: Send + 'static,
        W: FnOnce(Arc<View>, Option<Instant>) -> F + Send + 'static,
        F: Future<Output = Result<T>> + Send,
    {
        let (view, alarm, deadline) = (Arc::clone(&self.view), batch.alarm.clone(), batch.deadline);
        Box::pin(async move {
            reply.hold();
            let outcome = if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                drop(work);
                Err(late())
            } else {
                work(Arc::clone(&view), deadline).await
            };
            view.answer(reply, outcome);
            drop(alarm);
        })
    }

    fn submit<T: Send + 'static>(
        &self,
        batch: &Batch,
        lane: Lane,
        jobs: Vec<Job>,
        outcomes: Pending<Outcomes<T>>,
        expiry: &Expiry,
    ) -> Pending<Outcomes<T>> {
        if let Err((error, jobs)) = batch.queue(&self.crew, lane, jobs) {
            // Nothing was begun: every item is answered, and its page goes back.
            Counters::add(&self.view.counters.errors, expiry.refuse(&error) as u64);
            drop(jobs);
        }
        outcomes
    }

    /// One listing for all keys, then whoever it could not answer is asked for.
    fn list_first(&self, batch: &Batch, keys: Vec<(PageKey, Reply<bool>)>, lane: Lane) -> Job {
        let (view, alarm, deadline) = (Arc::clone(&self.view), batch.alarm.clone(), batch.deadline);
        let crew = Arc::downgrade(&self.crew);
        Box::pin(async move {
            let since = view.known.removals();
            let listed = listing::first(&view, deadline).await;
            let mut left = Vec::new();
            for (key, reply) in keys {
                // A listing knows names and lengths: not what a get has found out.
                let answer = match view.known.of(&key) {
                    Standing::Damaged => Some(false),
                    _ => listed.as_ref().and_then(|listed| listed.answer(&key)),
                };
                match answer {
                    Some(there) => {
                        if there {
                            view.known.note_there(key, since);
                        }
                        view.answer(reply, Ok(there));
                    }
                    None => left.push((key, reply)),
                }
            }
            let batch = Batch { deadline, alarm };
            match crew.upgrade() {
                Some(crew) => {
                    let backend = ObjBackend { crew, view };
                    let jobs = left.into_iter().map(|(key, reply)| backend.exists_job(&batch, key, reply));
                    if let Err((error, jobs)) = batch.queue(&backend.crew, lane, jobs.collect()) {
                        tracing::debug!(%error, "the questions after a listing were refused");
                        drop(jobs);
                    }
                }
                None => {
                    for (key, reply) in left {
                        let outcome = view.objects(deadline).exists(&key).await;
                        view.answer(reply, outcome);
                    }
                }
            }
        })
    }

    fn exists_job(&self, batch: &Batch, key: PageKey, reply: Reply<bool>) -> Job {
        self.job(batch, reply, move |view, deadline| async move { view.objects(deadline).exists(&key).await })
    }
}

/// One question of a leading run, and then those that its answer lets others ask.
fn question(crew: &Arc<Crew>, lane: Lane, batch: Batch, asking: Arc<Asking>, first: (usize, PageKey)) -> Job {
    let crew = Arc::downgrade(crew);
    Box::pin(async move {
        let mut mine = VecDeque::from([first]);
        while let Some((index, key)) = mine.pop_front() {
            if batch.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                asking.end(late());
            }
            if asking.wants(index) {
                asking.put(index, asking.view().objects(batch.deadline).exists(&key).await);
            }
            let more = asking.take();
            let refused = match crew.upgrade() {
                Some(crew) if !more.is_empty() => ask(&crew, lane, &batch, &asking, &more).is_err(),
                _ => true,
            };
            // Where the line is full or closed, what was accepted is gone on with here.
            mine.extend(more.into_iter().filter(|_| refused));
        }
    })
}

fn ask(
    crew: &Arc<Crew>,
    lane: Lane,
    batch: &Batch,
    asking: &Arc<Asking>,
    keys: &[(usize, PageKey)],
) -> Result<()> {
    let job = |key: &(usize, PageKey)| question(crew, lane, batch.clone(), Arc::clone(asking), *key);
    batch.queue(crew, lane, keys.iter().map(job).collect()).map_err(|(error, jobs)| {
        drop(jobs);
        error
    })
}

fn late() -> Error {
    Error::new(ErrorKind::Timeout, "wait for service")
        .why("the batch's deadline passed")
        .fix(MORE_TIME)
        .retryable()
}

impl StorageBackend for ObjBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Alignment::NONE, false)
    }

    fn batch_set(&self, batch: Vec<Put>, call: Call) -> Pending<Outcomes<Stored>> {
        let (replies, outcomes, expiry) = replies(batch.len());
        let begun = self.begin(call, &expiry);
        let jobs = batch.into_iter().zip(replies).map(|(put, reply)| {
            self.job(&begun, reply, move |view, deadline| async move {
                let outcome = view.objects(deadline).set(&put).await;
                // Who has the answer has the page back.
                drop(put);
                outcome
            })
        });
        self.submit(&begun, Lane::write(call.priority), jobs.collect(), outcomes, &expiry)
    }

    fn batch_get(&self, batch: Vec<Get>, call: Call) -> Pending<Outcomes<Option<Page>>> {
        let (replies, outcomes, expiry) = replies(batch.len());
        let begun = self.begin(call, &expiry);
        let jobs = batch.into_iter().zip(replies).map(|(Get { key, into }, reply)| {
            if into.is_claimed() {
                // Contract 6: a claimed slot may be used again once its get is answered.
                reply.hold();
            }
            self.job(&begun, reply, move |view, deadline| async move {
                view.objects(deadline).get(&key, into).await
            })
        });
        self.submit(&begun, Lane::read(call.priority), jobs.collect(), outcomes, &expiry)
    }

    fn batch_exists(&self, keys: &[PageKey], call: Call) -> Pending<Outcomes<bool>> {
        let lane = Lane::read(call.priority);
        let (replies, outcomes, expiry) = replies(keys.len());
        let begun = self.begin(call, &expiry);
        let asked: Vec<(PageKey, Reply<bool>)> = keys.iter().copied().zip(replies).collect();
        let unknown = keys.iter().filter(|key| self.view.known.of(key) == Standing::Unknown).count();
        let jobs = if unknown >= LISTING_MIN && listing::may_pay(&self.view) {
            vec![self.list_first(&begun, asked, lane)]
        } else {
            asked.into_iter().map(|(key, reply)| self.exists_job(&begun, key, reply)).collect()
        };
        self.submit(&begun, lane, jobs, outcomes, &expiry)
    }

    fn leading_run(&self, keys: &[PageKey], call: Call) -> Pending<LeadingRun> {
        let is_there = |key: &&PageKey| self.view.known.of(key) == Standing::There;
        let known = keys.iter().take_while(is_there).count();
        let (mut replies, answer, _) = replies(1);
        let reply = replies.pop().expect("one was asked for");
        let asking = Arc::new(Asking::new(keys, known, Arc::clone(&self.view), reply));
        let expiring = Arc::clone(&asking);
        let batch = self.begin_with(call, move || expiring.end(late()));
        let lane = Lane::read(call.priority);
        match ask(&self.crew, lane, &batch, &asking, &asking.take()) {
            Ok(()) => asking.settle(),
            Err(error) => asking.end(error),
        }
        Pending::new(async move {
            let answer = answer.await.into_iter().next().expect("one outcome for one reply");
            answer.unwrap_or_else(|error| LeadingRun { len: 0, error: Some(error) })
        })
    }

    fn batch_remove(&self, keys: &[PageKey], call: Call) -> Pending<Outcomes<bool>> {
        let (replies, outcomes, expiry) = replies(keys.len());
        let begun = self.begin(call, &expiry);
        let mut first = HashSet::new();
        let mut again: HashMap<PageKey, Vec<Reply<bool>>> = HashMap::new();
        let mut asked = Vec::new();
        for (key, reply) in keys.iter().copied().zip(replies) {
            if first.insert(key) {
                asked.push((key, reply));
            } else {
                again.entry(key).or_default().push(reply);
            }
        }
        let jobs = asked.into_iter().map(|(key, reply)| {
            let again = again.remove(&key).unwrap_or_default();
            let answering = Arc::clone(&self.view);
            self.job(&begun, reply, move |view, deadline| async move {
                let outcome = view.objects(deadline).remove(&key).await;
                // S3 does not say who removed it, so the mentions of one batch are told here: the first did.
                for reply in again {
                    answering.answer(reply, outcome.clone().map(|_| false));
                }
                outcome
            })
        });
        self.submit(&begun, Lane::write(call.priority), jobs.collect(), outcomes, &expiry)
    }

    fn stats(&self) -> Stats {
        self.view.counters.snapshot()
    }
}
