//! Removing many objects: in requests of up to a thousand, or one by one where the service knows no such requests.

use crate::bucket::Bucket;
use crate::listing::list;
use crate::place::Named;
use crate::tries::{Ask, Limit, Tries};
use crate::trouble::{Kind, Trouble};
use aws_sdk_s3::operation::delete_objects::DeleteObjectsOutput;
use futures_util::{StreamExt, stream};
use hicache_core::{Counters, Digest, Error, ErrorKind, Result};
use std::collections::HashSet;

/// Objects removed at once where each has a request of its own.
const AT_ONCE: usize = 16;

/// How often a namespace that is cleared is listed before whoever writes to it is taken to go on.
const PASSES: u32 = 16;

/// What came of removing objects.
#[derive(Debug, Default)]
pub(crate) struct Removed {
    /// So many are gone.
    pub(crate) count: u64,
    /// So many are not, as far as is known.
    pub(crate) failed: u64,
    /// Why the first of those is not.
    pub(crate) trouble: Option<Trouble>,
}

impl Removed {
    fn fail(&mut self, count: usize, trouble: Trouble) {
        if count > 0 {
            self.failed += count as u64;
            self.trouble.get_or_insert(trouble);
        }
    }
}

/// What an answer leaves to do.
#[derive(Debug, Default)]
struct Rest {
    /// To be asked again, and why.
    again: Vec<String>,
    why: Option<Trouble>,
    /// The answer does not say what became of them.
    untold: Vec<String>,
}

/// Removes the namespace's pages until a listing has none, then its record: what breaks off halfway can be begun again,
/// and a page that was written meanwhile is not left without a record. How many pages.
pub(crate) async fn clear(bucket: &Bucket, digest: Digest) -> Result<u64> {
    let counters = Counters::default();
    let folder = bucket.place().folder(digest);
    let ask = Ask { operation: "clear namespace", name: &folder, counters: &counters, limit: Limit::Each };
    let mut removed = 0;
    let cleared = async {
        for _ in 0..PASSES {
            if !clear_listed(bucket, &ask, digest, &mut removed).await? {
                let record = remove(bucket, &ask, bucket.place().record(digest)).await;
                return record.map_err(|trouble| bucket.error(&ask, trouble));
            }
        }
        Err(Error::new(ErrorKind::AlreadyOpen, "clear namespace")
            .why("pages are written to it while it is cleared; its record stays")
            .with("bucket", bucket.name())
            .with("key", &folder)
            .fix("end who writes to it, then clear it again")
            .retryable())
    };
    let cleared = cleared.await;
    cleared.map(|()| removed).map_err(|error| error.with("removed", removed))
}

/// Removes the pages that the namespace is listed to have. Whether there were any.
async fn clear_listed(bucket: &Bucket, ask: &Ask<'_>, digest: Digest, removed: &mut u64) -> Result<bool> {
    let error = |trouble| bucket.error(ask, trouble);
    let mut from: Option<String> = None;
    let mut any = false;
    loop {
        let output = list(bucket, ask, ask.name, false, from.as_deref()).await.map_err(error)?;
        let names = output.contents().iter().filter_map(|object| object.key());
        let is_page = |name: &&str| matches!(bucket.place().named(digest, name), Named::Page(_));
        let pages: Vec<String> = names.filter(is_page).map(str::to_string).collect();
        any |= !pages.is_empty();
        let now = remove_all(bucket, ask, pages).await;
        *removed += now.count;
        if let Some(trouble) = now.trouble {
            return Err(error(trouble).with("failed", now.failed));
        }
        from = output.next_continuation_token;
        if from.is_none() {
            return Ok(any);
        }
    }
}

/// Removes up to a thousand objects, there or not.
pub(crate) async fn remove_all(bucket: &Bucket, ask: &Ask<'_>, names: Vec<String>) -> Removed {
    let mut removed = Removed::default();
    let left =
        if bucket.deletes_many() { remove_many(bucket, ask, names, &mut removed).await } else { names };
    let singly = left.into_iter().map(|name| remove(bucket, ask, name));
    let mut singly = stream::iter(singly).buffer_unordered(AT_ONCE);
    while let Some(outcome) = singly.next().await {
        match outcome {
            Ok(()) => removed.count += 1,
            Err(trouble) => removed.fail(1, trouble),
        }
    }
    removed
}

/// Removes an object, there or not.
pub(crate) async fn remove(bucket: &Bucket, ask: &Ask<'_>, name: String) -> std::result::Result<(), Trouble> {
    let mut tries = Tries::of(bucket, Ask { name: &name, ..*ask })?;
    loop {
        let outcome = tries.once(bucket.delete(&name)).await;
        if let Some(()) = tries.judge(outcome).await? {
            return Ok(());
        }
    }
}

/// Removes them by one request, and again what it may do another time. What is left is to be tried one by one.
async fn remove_many(
    bucket: &Bucket,
    ask: &Ask<'_>,
    mut names: Vec<String>,
    removed: &mut Removed,
) -> Vec<String> {
    let mut untold = Vec::new();
    let mut tries = match Tries::of(bucket, *ask) {
        Ok(tries) => tries,
        Err(trouble) => {
            removed.fail(names.len(), trouble);
            return untold;
        }
    };
    while !names.is_empty() {
        let outcome = match tries.once(bucket.delete_many(&names)).await {
            Ok(output) => {
                let rest = read(&output, std::mem::take(&mut names), removed);
                names = rest.again;
                untold.extend(rest.untold);
                rest.why.map_or(Ok(()), Err)
            }
            Err(trouble) if is_refused(&trouble) => {
                bucket.deletes_singly(&trouble.why);
                untold.append(&mut names);
                // An answer it was.
                Ok(())
            }
            Err(trouble) => Err(trouble),
        };
        if let Err(trouble) = tries.judge(outcome).await {
            removed.fail(names.len(), trouble);
            names.clear();
        }
    }
    untold
}

/// A success may tell of failures, and of less than was asked.
fn read(output: &DeleteObjectsOutput, names: Vec<String>, removed: &mut Removed) -> Rest {
    let mut left: HashSet<String> = names.into_iter().collect();
    let mut rest = Rest::default();
    for object in output.deleted() {
        removed.count += u64::from(object.key().is_some_and(|key| left.remove(key)));
    }
    for error in output.errors() {
        let Some(name) = error.key().and_then(|key| left.take(key)) else { continue };
        let trouble = Trouble::of_item(error.code(), error.message());
        match trouble.kind {
            Kind::Absent => removed.count += 1,
            Kind::Outage | Kind::Throttled => {
                rest.again.push(name);
                rest.why.get_or_insert(trouble);
            }
            _ => removed.fail(1, trouble),
        }
    }
    rest.untold.extend(left);
    rest
}

/// The service knows no such request, or wants a header that nothing else needs (Content-MD5).
fn is_refused(trouble: &Trouble) -> bool {
    let of_request = matches!(trouble.told.status, Some(400 | 405 | 411 | 501));
    of_request
        && matches!(trouble.kind, Kind::Unknown(_) | Kind::Refused(ErrorKind::Unsupported | ErrorKind::Io))
}
