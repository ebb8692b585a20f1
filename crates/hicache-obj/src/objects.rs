//! Pages as objects: storing, fetching, asking and removing, with the rules of each.

use crate::bucket::Bucket;
use crate::download::{Intake, Target};
use crate::facts::{Facts, Flaw};
use crate::known::{Known, Standing};
use crate::parts;
use crate::records::Records;
use crate::requests::{Seen, Upload};
use crate::tries::{Ask, Limit, Tries};
use crate::trouble::{Kind, Trouble};
use hicache_core::{Counters, Error, ErrorKind, Namespace, Page, PageKey, PageMut, Put, Result, Stored};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// The pages of one namespace, for one item of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Objects<'a> {
    pub(crate) bucket: &'a Bucket,
    pub(crate) namespace: &'a Namespace,
    pub(crate) counters: &'a Counters,
    pub(crate) known: &'a Known,
    pub(crate) records: &'a Records,
    pub(crate) deadline: Option<Instant>,
}

/// What stands at a page's name, as far as can be told without its bytes.
enum Head {
    Nothing,
    /// And when it was stored, by the service's clock.
    Sound(Option<SystemTime>),
    Flawed(Flaw),
}

/// How far the whole seconds in which a service tells two times may be from what they stand for.
const WHOLE_SECONDS: Duration = Duration::from_secs(2);

impl<'a> Objects<'a> {
    /// Stores a page, unless it is there and sound.
    pub(crate) async fn set(&self, put: &Put) -> Result<Stored> {
        const SET: &str = "set page";
        self.namespace.check_shape(SET, put.page.planes(), put.page.len())?;
        let name = self.bucket.place().page(self.namespace.digest(), &put.key);
        let ask = self.ask(SET, &name);
        let since = self.known.removals();
        self.records.ensure(self.bucket, self.namespace, &ask).await?;
        let stored = self.set_at(put, &ask).await.map_err(|trouble| self.error(&ask, trouble))?;
        self.known.note_there(put.key, since);
        match stored {
            Stored::Present => Counters::add(&self.counters.present, 1),
            Stored::Written => {
                Counters::add(&self.counters.written, 1);
                Counters::add(&self.counters.network, 1);
                Counters::add(&self.counters.bytes_written, put.page.len() as u64);
            }
        }
        Ok(stored)
    }

    /// Asks first where the page is believed to be there, or where the service knows no conditions; else uploads on
    /// condition that nothing is there, which is one request instead of two.
    async fn set_at(&self, put: &Put, ask: &Ask<'_>) -> std::result::Result<Stored, Trouble> {
        let begun = Instant::now();
        let standing = self.known.of(&put.key);
        let mut fresh = standing != Standing::Damaged;
        if fresh && (standing == Standing::There || !self.bucket.gives_condition()) {
            match self.look(&put.key, ask).await? {
                Head::Sound(_) => return Ok(Stored::Present),
                Head::Nothing => (),
                Head::Flawed(flaw) => fresh = self.must_replace(&flaw, ask)?,
            }
        }
        let facts = Facts::of(put, self.namespace, self.bucket.options().checksum);
        let mut upload = Upload::of(self.bucket, ask.name, put, &facts, fresh);
        let refused = match self.upload(&upload, ask).await {
            Err(trouble) if trouble.kind == Kind::Condition => trouble,
            uploaded => return uploaded.map(|()| Stored::Written),
        };
        match self.look(&put.key, ask).await? {
            Head::Sound(at) => return Ok(by_whom(&refused, at, begun)),
            // Removed between the two.
            Head::Nothing => (),
            Head::Flawed(flaw) => upload.fresh = self.must_replace(&flaw, ask)?,
        }
        match self.upload(&upload, ask).await {
            Err(refused) if refused.kind == Kind::Condition => match self.look(&put.key, ask).await? {
                Head::Sound(at) => Ok(by_whom(&refused, at, begun)),
                Head::Nothing | Head::Flawed(_) => Ok(Stored::Present),
            },
            uploaded => uploaded.map(|()| Stored::Written),
        }
    }

    /// False, since what is there is to be replaced; or the refusal, where others may want it.
    fn must_replace(&self, flaw: &Flaw, ask: &Ask<'_>) -> std::result::Result<bool, Trouble> {
        if *flaw == Flaw::Foreign {
            let why = "a page of another layout has that key in this namespace";
            return Err(Trouble::new(Kind::Refused(ErrorKind::Incompatible), why)
                .fix("use another namespace, or drop this one"));
        }
        tracing::warn!(name = ask.name, %flaw, "a damaged page is replaced");
        Ok(false)
    }

    async fn upload(&self, upload: &Upload<'_>, ask: &Ask<'_>) -> std::result::Result<(), Trouble> {
        if upload.is_in_parts(self.bucket) {
            return parts::upload(self.bucket, upload, ask).await;
        }
        let mut tries = Tries::of(self.bucket, *ask)?;
        loop {
            let outcome = tries.once(self.put_once(&upload.now(self.bucket))).await;
            if let Some(()) = tries.judge(outcome).await? {
                return Ok(());
            }
        }
    }

    /// A proxy may answer for the service: a success without an ETag, or before the body was sent, is looked at. What
    /// the kernels on both sides have room for counts as sent: of a page so short an early answer cannot be told.
    async fn put_once(&self, upload: &Upload<'_>) -> std::result::Result<(), Trouble> {
        if self.bucket.put(upload).await? {
            return Ok(());
        }
        self.bucket.confirm(upload).await
    }

    /// Fetches a page into its slot. What is not the page is a miss.
    pub(crate) async fn get(&self, key: &PageKey, mut into: PageMut) -> Result<Option<Page>> {
        const GET: &str = "get page";
        self.namespace.check_shape(GET, into.planes(), into.len())?;
        let name = self.bucket.place().page(self.namespace.digest(), key);
        let ask = self.ask(GET, &name);
        let len = into.len() as u64;
        let since = self.known.removals();
        let fetched = if len > self.bucket.options().multipart_threshold {
            parts::download(self, key, &mut into, &ask).await
        } else {
            self.fetch(key, &mut into, &ask).await
        };
        match fetched {
            Ok(()) => {
                self.bucket.is_permitted();
                self.known.note_there(*key, since);
                Counters::add(&self.counters.hits, 1);
                Counters::add(&self.counters.network, 1);
                Counters::add(&self.counters.bytes_read, len);
                Ok(Some(into.freeze()))
            }
            Err(trouble) => {
                // Who has the answer has the page back.
                drop(into);
                self.miss(key, &ask, trouble)
            }
        }
    }

    async fn fetch(
        &self,
        key: &PageKey,
        into: &mut PageMut,
        ask: &Ask<'_>,
    ) -> std::result::Result<(), Trouble> {
        let mut tries = Tries::of(self.bucket, *ask)?;
        loop {
            let outcome = tries.once(self.fetch_once(key, into, ask.name)).await;
            if let Some(()) = tries.judge(outcome).await? {
                return Ok(());
            }
        }
    }

    async fn fetch_once(
        &self,
        key: &PageKey,
        into: &mut PageMut,
        name: &str,
    ) -> std::result::Result<(), Trouble> {
        let answer = self.bucket.get(name, None).await?;
        let facts = Seen::of(&answer, answer.len()).judge(self.namespace, key).map_err(Trouble::flaw)?;
        self.admit(facts.as_ref())?;
        let intake = Intake::whole(facts.as_ref(), into.len());
        let came = intake.take(self.bucket, answer.body, Some(&Target::new(into))).await?;
        came.check(facts.as_ref())
    }

    /// Whether a page may be served whose metadata is that.
    pub(crate) fn admit(&self, facts: Option<&Facts>) -> std::result::Result<(), Trouble> {
        let options = self.bucket.options();
        if facts.is_some_and(|facts| facts.checked || !options.checksum) {
            return Ok(());
        }
        Counters::add(&self.counters.unverified, 1);
        if options.common.accept_unverified { Ok(()) } else { Err(Trouble::flaw(Flaw::Unverified)) }
    }

    /// Whether that is a miss, or an error.
    fn miss(&self, key: &PageKey, ask: &Ask<'_>, trouble: Trouble) -> Result<Option<Page>> {
        match &trouble.kind {
            Kind::Absent => {
                self.bucket.is_permitted();
                self.known.note_absent(key);
            }
            Kind::Forbidden if self.bucket.is_forbidden_miss() => self.known.note_absent(key),
            Kind::Flaw(Flaw::Foreign | Flaw::Unverified) => self.known.note_absent(key),
            Kind::Flaw(flaw) => {
                tracing::warn!(name = ask.name, %flaw, "damaged page");
                self.known.note_damaged(*key);
                Counters::add(&self.counters.damaged, 1);
                return Ok(None);
            }
            _ => return Err(self.error(ask, trouble)),
        }
        Counters::add(&self.counters.misses, 1);
        Ok(None)
    }

    /// Whether a page is there, sound as far as can be told without its bytes.
    pub(crate) async fn exists(&self, key: &PageKey) -> Result<bool> {
        match self.known.of(key) {
            Standing::There => return Ok(true),
            Standing::Damaged => return Ok(false),
            Standing::Unknown => (),
        }
        let name = self.bucket.place().page(self.namespace.digest(), key);
        let ask = self.ask("ask for page", &name);
        let since = self.known.removals();
        match self.look(key, &ask).await {
            Ok(Head::Sound(_)) => {
                self.known.note_there(*key, since);
                Ok(true)
            }
            Ok(Head::Nothing | Head::Flawed(_)) => Ok(false),
            Err(trouble) if trouble.kind == Kind::Forbidden && self.bucket.is_forbidden_miss() => Ok(false),
            Err(trouble) => Err(self.error(&ask, trouble)),
        }
    }

    /// Removes a page. Whether one was there: S3 does not say, so it is asked first.
    pub(crate) async fn remove(&self, key: &PageKey) -> Result<bool> {
        let name = self.bucket.place().page(self.namespace.digest(), key);
        let ask = self.ask("remove page", &name);
        let error = |trouble| self.error(&ask, trouble);
        match self.look(key, &ask).await.map_err(error)? {
            Head::Nothing | Head::Flawed(Flaw::Foreign) => {
                self.known.note_absent(key);
                return Ok(false);
            }
            Head::Sound(_) | Head::Flawed(_) => (),
        }
        let mut tries = Tries::of(self.bucket, ask).map_err(error)?;
        loop {
            let outcome = tries.once(self.bucket.delete(&name)).await;
            if let Some(()) = tries.judge(outcome).await.map_err(error)? {
                self.known.note_removed(key);
                Counters::add(&self.counters.removed, 1);
                return Ok(true);
            }
        }
    }

    async fn look(&self, key: &PageKey, ask: &Ask<'_>) -> std::result::Result<Head, Trouble> {
        let mut tries = Tries::of(self.bucket, *ask)?;
        let seen = loop {
            let outcome = tries.once(self.bucket.head(ask.name)).await;
            match tries.judge(outcome).await {
                Ok(Some(seen)) => break seen,
                Ok(None) => (),
                Err(trouble) if trouble.kind == Kind::Absent => {
                    self.bucket.is_permitted();
                    return Ok(Head::Nothing);
                }
                Err(trouble) => return Err(trouble),
            }
        };
        self.bucket.is_permitted();
        let options = self.bucket.options();
        Ok(match seen.judge(self.namespace, key) {
            Ok(Some(facts)) if facts.checked || !options.checksum => Head::Sound(seen.stored_at),
            Ok(_) if options.common.accept_unverified => Head::Sound(seen.stored_at),
            // A get would not serve it, so a set must not take it for the page.
            Ok(_) => Head::Flawed(Flaw::Unverified),
            Err(flaw) => Head::Flawed(flaw),
        })
    }

    fn ask<'n>(&self, operation: &'static str, name: &'n str) -> Ask<'n>
    where
        'a: 'n,
    {
        Ask { operation, name, counters: self.counters, limit: Limit::At(self.deadline) }
    }

    fn error(&self, ask: &Ask<'_>, trouble: Trouble) -> Error {
        self.bucket.error(ask, trouble)
    }
}

/// Whose page it is that a set finds where it was to write, at the end of a call that has `begun` then: its own, where
/// the answer to an upload of it was lost, and the page is no older than the call by the service's clock. Where the
/// service tells no times, it is not taken for its own: a connection that was closed meanwhile loses answers, too.
fn by_whom(refused: &Trouble, stored_at: Option<SystemTime>, begun: Instant) -> Stored {
    let (Some(now), Some(stored_at)) = (refused.told.server_time, stored_at) else { return Stored::Present };
    let age = now.duration_since(stored_at).unwrap_or_default();
    let is_new = age <= begun.elapsed() + WHOLE_SECONDS;
    if refused.told.after_lost_answer && is_new { Stored::Written } else { Stored::Present }
}
