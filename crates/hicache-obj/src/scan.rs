//! What an operator asks of a bucket: every object of its namespaces, by name or by content.

use crate::bucket::Bucket;
use crate::download::Intake;
use crate::facts::Flaw;
use crate::listing::{digests, len_of, list};
use crate::place::Named;
use crate::records;
use crate::removal::remove;
use crate::requests::Seen;
use crate::tail;
use crate::tries::{Ask, Limit, Tries};
use crate::trouble::{Kind, Trouble};
use crate::unfinished;
use aws_sdk_s3::types::Object;
use hicache_core::{Counters, Depth, Digest, Found, Namespace, PageKey, Result, Scan, State, Visitor};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::SystemTime;

/// The namespaces recorded here, by name.
pub(crate) async fn namespaces(bucket: &Bucket) -> Result<Vec<Namespace>> {
    let counters = Counters::default();
    let ask = Ask { operation: "list namespaces", name: "", counters: &counters, limit: Limit::Each };
    let mut all = Vec::new();
    for digest in digests(bucket, &ask).await? {
        all.extend(records::read(bucket, digest, &ask).await?);
    }
    all.sort_by(|a, b| a.name().cmp(b.name()));
    Ok(all)
}

/// Pages in a row that do not come in time before a walk ends: each of the others would take as long.
const LATE_MAX: u32 = 3;

/// How far a walk has come.
struct Tally {
    visitor: Visitor,
    finds: u64,
    repaired: u64,
    /// Pages in a row that did not come in time.
    late: u32,
}

impl Tally {
    fn hand(&mut self, found: Found) -> ControlFlow<()> {
        self.finds += 1;
        self.repaired += u64::from(found.repaired);
        // The visitor may take its time, and use the store.
        tokio::task::block_in_place(|| (self.visitor)(found))
    }
}

/// Walks over what is stored. A service that does not answer ends it with an error that says how far it has come.
pub(crate) async fn scan(bucket: &Bucket, scan: &Scan, visitor: Visitor) -> Result<()> {
    let mut tally = Tally { visitor, finds: 0, repaired: 0, late: 0 };
    let walked = walk(bucket, scan, &mut tally).await;
    walked.map_err(|error| error.with("finds", tally.finds).with("repaired", tally.repaired))
}

async fn walk(bucket: &Bucket, scan: &Scan, tally: &mut Tally) -> Result<()> {
    let counters = Counters::default();
    let ask = Ask { operation: "scan store", name: "", counters: &counters, limit: Limit::Each };
    for digest in digests(bucket, &ask).await? {
        if scan.namespace.is_some_and(|wanted| wanted != digest) {
            continue;
        }
        let namespace = records::read(bucket, digest, &ask).await?;
        let walk = Walk { bucket, scan, digest, namespace, ask };
        if walk.all(tally).await?.is_break() {
            return Ok(());
        }
    }
    if scan.depth == Depth::Contents {
        left_behind(bucket, scan, &ask, tally).await?;
    }
    Ok(())
}

/// Uploads in parts that nobody ends any more.
async fn left_behind(bucket: &Bucket, scan: &Scan, ask: &Ask<'_>, tally: &mut Tally) -> Result<()> {
    let place = bucket.place();
    let prefix = scan.namespace.map_or(place.prefix().to_string(), |digest| place.folder(digest));
    let mut from = None;
    loop {
        let listed = unfinished::list(bucket, ask, &prefix, from.as_ref()).await;
        let listed = listed.map_err(|trouble| bucket.error(ask, trouble))?;
        let Some((uploads, more)) = listed else { return Ok(()) };
        for upload in uploads.iter().filter(|upload| upload.is_abandoned()) {
            let Some(digest) = place.namespace_of_page(&upload.name) else { continue };
            let at = format!("s3://{}/{}", bucket.name(), upload.name);
            let why = format!("an upload in parts, begun {} ago and not ended", unfinished::told(upload.age));
            let mut found = Found::new(at, digest.to_string().into(), State::Orphan(why));
            found.repaired = scan.repair && unfinished::give_up(bucket, ask, upload).await;
            if tally.hand(found).is_break() {
                return Ok(());
            }
        }
        from = more;
        if from.is_none() {
            return Ok(());
        }
    }
}

/// A walk over one namespace.
struct Walk<'a> {
    bucket: &'a Bucket,
    scan: &'a Scan,
    digest: Digest,
    /// `None` where its record is not there, or damaged: then nobody knows what its pages should be.
    namespace: Option<Namespace>,
    ask: Ask<'a>,
}

impl Walk<'_> {
    async fn all(&self, tally: &mut Tally) -> Result<ControlFlow<()>> {
        let folder = self.bucket.place().folder(self.digest);
        let mut from: Option<String> = None;
        loop {
            let output = list(self.bucket, &self.ask, &folder, false, from.as_deref()).await;
            let output = output.map_err(|trouble| self.bucket.error(&self.ask, trouble))?;
            for object in output.contents() {
                let Some(found) = self.look(object, tally).await? else { continue };
                if tally.hand(found).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            from = output.next_continuation_token;
            if from.is_none() {
                return Ok(ControlFlow::Continue(()));
            }
        }
    }

    /// `None` for what is no find, or has gone meanwhile.
    async fn look(&self, object: &Object, tally: &mut Tally) -> Result<Option<Found>> {
        let Some(name) = object.key() else { return Ok(None) };
        let place = format!("s3://{}/{name}", self.bucket.name());
        let label: Arc<str> = match &self.namespace {
            Some(namespace) => namespace.name().into(),
            None => self.digest.to_string().into(),
        };
        let orphan =
            |why: &str| Found::new(place.clone(), Arc::clone(&label), State::Orphan(why.to_string()));
        let mut found = match (self.bucket.place().named(self.digest, name), &self.namespace) {
            (Named::Record, _) => return Ok(None),
            (Named::Other, _) => orphan("it has no name of a page"),
            (Named::Page(_), None) => orphan("its namespace has no record; dropped by its digest, it goes"),
            (Named::Page(key), Some(namespace)) => {
                let Some(state) = self.judge(object, name, &key, namespace, tally).await? else {
                    return Ok(None);
                };
                let flawed = matches!(state, State::Wrong(_) | State::Torn(_));
                let mut found = Found::new(place.clone(), Arc::clone(&label), state);
                found.key = Some(key);
                found.repaired = flawed
                    && self.scan.repair
                    && remove(self.bucket, &self.ask, name.to_string()).await.is_ok();
                found
            }
        };
        let len = len_of(object);
        let page_len = self.namespace.as_ref().map(|namespace| namespace.layout().page_len() as u64);
        found.len =
            match page_len.filter(|page_len| found.key.is_some() && len == tail::stored_len(*page_len)) {
                Some(page_len) => page_len,
                None => len,
            };
        found.written = object.last_modified().and_then(|at| SystemTime::try_from(*at).ok());
        Ok(Some(found))
    }

    /// `None` for what has gone meanwhile.
    async fn judge(
        &self,
        object: &Object,
        name: &str,
        key: &PageKey,
        namespace: &Namespace,
        tally: &mut Tally,
    ) -> Result<Option<State>> {
        if self.scan.depth == Depth::Names {
            let (len, page_len) = (len_of(object), namespace.layout().page_len() as u64);
            // What others wrote may be a page without a tail.
            if [page_len, tail::stored_len(page_len)].contains(&len) {
                return Ok(Some(State::Listed));
            }
            let torn = format!("it has {len} bytes; a page of the layout has {}", tail::stored_len(page_len));
            return Ok(Some(State::Torn(torn)));
        }
        let read = self.read(name, key, namespace).await;
        let is_late = matches!(&read, Err(Trouble { kind: Kind::Stalled | Kind::Late, .. }));
        tally.late = if is_late { tally.late + 1 } else { 0 };
        Ok(match read {
            Ok(true) => Some(State::Sound),
            Ok(false) => Some(State::Unverified),
            Err(Trouble { kind: Kind::Absent, .. }) => None,
            Err(Trouble { kind: Kind::Flaw(flaw), .. }) => Some(state_of(flaw)),
            Err(trouble) if trouble.kind == Kind::NotAsked || tally.late >= LATE_MAX => {
                return Err(self.bucket.error(&Ask { name, ..self.ask }, trouble));
            }
            Err(trouble) => Some(State::Unreadable(trouble.why)),
        })
    }

    /// Reads a page, every byte of it. Whether it has a checksum of ours.
    async fn read(
        &self,
        name: &str,
        key: &PageKey,
        namespace: &Namespace,
    ) -> std::result::Result<bool, Trouble> {
        let mut tries = Tries::of(self.bucket, Ask { name, ..self.ask })?;
        loop {
            let outcome = tries.once(self.read_once(name, key, namespace)).await;
            if let Some(verified) = tries.judge(outcome).await? {
                return Ok(verified);
            }
        }
    }

    async fn read_once(
        &self,
        name: &str,
        key: &PageKey,
        namespace: &Namespace,
    ) -> std::result::Result<bool, Trouble> {
        let answer = self.bucket.get(name, None).await?;
        let facts = Seen::of(&answer, answer.len()).judge(namespace, key).map_err(Trouble::flaw)?;
        let intake = Intake::whole(facts.as_ref(), namespace.layout().page_len());
        intake.take(self.bucket, answer.body, None).await?.check(facts.as_ref())?;
        Ok(facts.is_some_and(|facts| facts.checked))
    }
}

fn state_of(flaw: Flaw) -> State {
    match flaw {
        Flaw::Torn(why) => State::Torn(why),
        Flaw::Wrong(why) => State::Wrong(why),
        Flaw::Unverified => State::Unverified,
        Flaw::Foreign => State::Orphan("a page of a layout that the namespace does not have".to_string()),
    }
}
