//! Pages that move in parts, several at once.

use crate::bucket::Bucket;
use crate::download::{Came, Intake, Target};
use crate::facts::{Facts, Flaw};
use crate::objects::Objects;
use crate::requests::{Seen, Upload};
use crate::tail;
use crate::tries::{Ask, Tries};
use crate::trouble::{Kind, Trouble};
use crate::wire::Answer;
use aws_sdk_s3::types::CompletedPart;
use futures_util::{StreamExt, TryStreamExt, stream};
use hicache_core::{PageKey, PageMut};
use std::ops::Range;
use std::sync::PoisonError;
use std::time::Duration;

/// Parts of one page under way at once.
const AT_ONCE: usize = 4;

/// Parts that S3 takes of one object.
const PARTS_MAX: u64 = 10_000;

/// How long giving up the parts of a failed upload may take.
const GIVE_UP: Duration = Duration::from_secs(5);

/// Where the object of a page is cut: in parts of `part_len`, or longer where there would be too many. The tail goes
/// with the last one.
fn cut(page_len: u64, part_len: u64) -> impl Iterator<Item = Range<u64>> {
    let part_len = part_len.max(page_len.div_ceil(PARTS_MAX));
    (0..page_len).step_by(part_len as usize).map(move |at| match at + part_len {
        end if end < page_len => at..end,
        _ => at..page_len + tail::LEN as u64,
    })
}

/// Uploads a page in parts; it is an object when the last step has succeeded, and not before.
pub(crate) async fn upload(bucket: &Bucket, upload: &Upload<'_>, ask: &Ask<'_>) -> Result<(), Trouble> {
    let id = {
        let mut tries = Tries::of(bucket, *ask)?;
        loop {
            let outcome = tries.once(bucket.begin_parts(upload)).await;
            if let Some(id) = tries.judge(outcome).await? {
                break id;
            }
        }
    };
    let ended = match send(bucket, upload, &id, ask).await {
        Ok(parts) => end(bucket, upload, &id, parts, ask).await,
        Err(trouble) => Err(trouble),
    };
    if ended.is_err() {
        // Left there, they would be paid for until a lifecycle rule takes them.
        match tokio::time::timeout(GIVE_UP, bucket.abort_upload(upload.name, &id)).await {
            Ok(Ok(())) => (),
            Ok(Err(trouble)) if trouble.kind == Kind::Absent => (),
            _ => tracing::warn!(name = upload.name, id, "the parts of a failed upload stay at the service"),
        }
    }
    ended
}

async fn send(
    bucket: &Bucket,
    upload: &Upload<'_>,
    id: &str,
    ask: &Ask<'_>,
) -> Result<Vec<CompletedPart>, Trouble> {
    let ranges = cut(upload.page.len() as u64, bucket.options().part_len);
    let parts = ranges.zip(1..).map(|(range, number)| async move {
        let mut tries = Tries::of(bucket, *ask)?;
        loop {
            let range = range.start as usize..range.end as usize;
            let outcome = tries.once(bucket.put_part(upload, id, number, range)).await;
            if let Some(part) = tries.judge(outcome).await? {
                return Ok(part);
            }
        }
    });
    stream::iter(parts).buffered(AT_ONCE).try_collect().await
}

async fn end(
    bucket: &Bucket,
    upload: &Upload<'_>,
    id: &str,
    parts: Vec<CompletedPart>,
    ask: &Ask<'_>,
) -> Result<(), Trouble> {
    let mut tries = Tries::of(bucket, *ask)?;
    loop {
        let upload = upload.now(bucket);
        let outcome = match tries.once(bucket.end_parts(&upload, id, parts.clone())).await {
            // Half an answer looks like a whole one to the SDK, and servers have lost parts: one question more is
            // little for so long a page.
            Ok(()) => bucket.confirm(&upload).await,
            // Ended before, and the answer was lost.
            Err(trouble) if trouble.kind == Kind::Absent => match bucket.confirm(&upload).await {
                Err(torn @ Trouble { kind: Kind::Flaw(_), .. }) => Err(torn),
                confirmed => confirmed.map_err(|_| Trouble { kind: Kind::Outage, ..trouble }),
            },
            Err(trouble) => Err(trouble),
        };
        if let Some(()) = tries.judge(outcome).await? {
            return Ok(());
        }
    }
}

/// Fetches a page in parts. All of them are of one generation of the object, or there is no page.
pub(crate) async fn download(
    objects: &Objects<'_>,
    key: &PageKey,
    into: &mut PageMut,
    ask: &Ask<'_>,
) -> Result<(), Trouble> {
    match download_once(objects, key, into, ask).await {
        // It was replaced meanwhile: from the start again, once.
        Err(trouble) if trouble.kind == Kind::Condition => match download_once(objects, key, into, ask).await
        {
            Err(trouble) if trouble.kind == Kind::Condition => {
                Err(Trouble::new(Kind::Outage, "the object was replaced while it was read, again and again"))
            }
            done => done,
        },
        done => done,
    }
}

async fn download_once(
    objects: &Objects<'_>,
    key: &PageKey,
    into: &mut PageMut,
    ask: &Ask<'_>,
) -> Result<(), Trouble> {
    let bucket = objects.bucket;
    let mut ranges = cut(into.len() as u64, bucket.options().part_len);
    let first = ranges.next().expect("a page is not empty");
    let target = Target::new(into);
    let (facts, tag, came) = {
        let mut tries = Tries::of(bucket, *ask)?;
        loop {
            let outcome = tries.once(fetch_first(objects, key, &target, first.clone(), ask)).await;
            if let Some(begun) = tries.judge(outcome).await? {
                break begun;
            }
        }
    };
    let (target, facts, tag) = (&target, facts.as_ref(), tag.as_deref());
    objects.admit(facts)?;
    let parts = ranges.map(|range| async move {
        let mut tries = Tries::of(bucket, *ask)?;
        loop {
            let attempt = async {
                let answer = bucket.get(ask.name, Some((range.clone(), tag))).await?;
                fill(bucket, target, facts, range.clone(), answer).await
            };
            let outcome = tries.once(attempt).await;
            if let Some(came) = tries.judge(outcome).await? {
                return Ok::<Came, Trouble>(came);
            }
        }
    });
    let rest = stream::iter(parts).buffered(AT_ONCE);
    let all = rest.try_fold(came, |before, came| std::future::ready(Ok(before.then(came)))).await?;
    all.check(facts)
}

async fn fetch_first(
    objects: &Objects<'_>,
    key: &PageKey,
    target: &Target<'_>,
    range: Range<u64>,
    ask: &Ask<'_>,
) -> Result<(Option<Facts>, Option<String>, Came), Trouble> {
    let answer = objects.bucket.get(ask.name, Some((range.clone(), None))).await?;
    let facts = Seen::of(&answer, total(&answer)).judge(objects.namespace, key).map_err(Trouble::flaw)?;
    // A weak one never matches by the rules, and pins nothing.
    let tag = answer.tag().filter(|tag| !tag.starts_with("W/")).map(str::to_string);
    let came = fill(objects.bucket, target, facts.as_ref(), range, answer).await?;
    Ok((facts, tag, came))
}

async fn fill(
    bucket: &Bucket,
    target: &Target<'_>,
    facts: Option<&Facts>,
    range: Range<u64>,
    answer: Answer,
) -> Result<Came, Trouble> {
    let page_len = target.lock().unwrap_or_else(PoisonError::into_inner).len();
    // A service that does not know ranges sends all of it.
    let whole = answer.range().is_none();
    if whole && (range.start > 0 || range.end < page_len as u64) {
        return Err(Trouble::flaw(Flaw::Wrong(
            "the service sends all of an object for a part of it".to_string(),
        )));
    }
    if let Some(told) = answer.range() {
        let end = total(&answer).map_or(range.end, |total| total.min(range.end));
        if told.split_once('/').map(|(told, _)| told) != Some(&format!("bytes {}-{}", range.start, end - 1)) {
            let why = format!("the service sends another part than was asked for ({told})");
            return Err(Trouble::flaw(Flaw::Wrong(why)));
        }
    }
    let intake = Intake::part(facts, page_len, range.start as usize..range.end as usize);
    intake.take(bucket, answer.body, Some(target)).await
}

/// Bytes of the whole object, as the answer to a question for a part says.
fn total(answer: &Answer) -> Option<u64> {
    match answer.range() {
        Some(range) => range.rsplit_once('/')?.1.parse().ok(),
        None => answer.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_every_byte_once_and_are_not_too_many() {
        for (len, part_len) in [(1, 5), (5, 5), (6, 5), (100_001, 5), (1 << 40, 5 << 20)] {
            let parts: Vec<_> = cut(len, part_len).collect();
            assert!(parts.len() as u64 <= PARTS_MAX);
            assert_eq!((parts[0].start, parts[parts.len() - 1].end), (0, len + tail::LEN as u64));
            assert!(parts[parts.len() - 1].start < len, "no part is a tail alone");
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
        }
    }
}
