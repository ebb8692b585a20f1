//! Listing what is there: a namespace's objects for operators, and one page of them instead of many questions.

use crate::backend::View;
use crate::bucket::Bucket;
use crate::place::Named;
use crate::tail;
use crate::tries::{Ask, Limit, Tries};
use crate::trouble::Trouble;
use aws_sdk_s3::operation::list_objects_v2::ListObjectsV2Output;
use aws_sdk_s3::types::Object;
use hicache_core::{Digest, PageKey, Result};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::time::Instant;

/// Objects of one answer. S3 gives no more.
const MOST: i32 = 1000;

/// Batches that do without a listing after one that did not pay.
const REST: u32 = 64;

/// When a listing is worth trying again.
#[derive(Debug, Default)]
pub(crate) struct Pays(AtomicU32);

/// The first objects of a namespace, in the order of their names.
#[derive(Debug)]
pub(crate) struct Listed {
    lens: HashMap<PageKey, u64>,
    stored_len: u64,
    /// Of what others wrote, where that is accepted: a page without a tail.
    bare_len: Option<u64>,
    /// The last name that is known of; `None`: there are no others.
    up_to: Option<PageKey>,
}

impl Listed {
    /// Whether the page is there, if the listing reaches that far.
    pub(crate) fn answer(&self, key: &PageKey) -> Option<bool> {
        match self.lens.get(key) {
            Some(len) => Some(*len == self.stored_len || Some(*len) == self.bare_len),
            None if self.up_to.is_none_or(|last| *key < last) => Some(false),
            None => None,
        }
    }
}

/// Whether one listing may answer more than single questions would.
pub(crate) fn may_pay(view: &View) -> bool {
    let left = &view.known.listing().0;
    left.load(Ordering::Relaxed) == 0
        || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) == Ok(1)
}

/// The first objects of the namespace. `None` where that fails: single questions will say why.
pub(crate) async fn first(view: &View, deadline: Option<Instant>) -> Option<Listed> {
    let bucket = &view.bucket;
    let folder = bucket.place().folder(view.namespace.digest());
    let ask =
        Ask { operation: "list pages", name: &folder, counters: &view.counters, limit: Limit::At(deadline) };
    let output = list(bucket, &ask, &folder, false, None).await.ok()?;
    let truncated = output.is_truncated().unwrap_or(false);
    let mut lens = HashMap::new();
    let mut last = None;
    for object in output.contents() {
        let name = object.key().unwrap_or_default();
        if let Named::Page(key) = bucket.place().named(view.namespace.digest(), name) {
            lens.insert(key, len_of(object));
            last = Some(key);
        }
    }
    if truncated {
        // It answers for the first thousand names only; asking one by one is cheaper until that may have changed.
        view.known.listing().0.store(REST, Ordering::Relaxed);
    }
    let page_len = view.namespace.layout().page_len() as u64;
    let up_to = if truncated { Some(last.unwrap_or(PageKey::new([0; 32]))) } else { None };
    let bare_len = bucket.options().common.accept_unverified.then_some(page_len);
    Some(Listed { lens, stored_len: tail::stored_len(page_len), bare_len, up_to })
}

/// One answer's worth of objects, or of folders.
pub(crate) async fn list(
    bucket: &Bucket,
    ask: &Ask<'_>,
    prefix: &str,
    folders: bool,
    from: Option<&str>,
) -> std::result::Result<ListObjectsV2Output, Trouble> {
    let mut tries = Tries::of(bucket, *ask)?;
    loop {
        let outcome = tries.once(bucket.list(prefix, folders, from, MOST)).await;
        if let Some(output) = tries.judge(outcome).await? {
            return Ok(output);
        }
    }
}

/// The namespaces that have anything.
pub(crate) async fn digests(bucket: &Bucket, ask: &Ask<'_>) -> Result<Vec<Digest>> {
    let mut digests = Vec::new();
    let mut from: Option<String> = None;
    loop {
        let output = list(bucket, ask, bucket.place().prefix(), true, from.as_deref()).await;
        let output = output.map_err(|trouble| bucket.error(ask, trouble))?;
        let folders = output.common_prefixes().iter().filter_map(|folder| folder.prefix());
        digests.extend(folders.filter_map(|folder| bucket.place().namespace_of(folder)));
        from = output.next_continuation_token;
        if from.is_none() {
            return Ok(digests);
        }
    }
}

pub(crate) fn len_of(object: &Object) -> u64 {
    object.size().and_then(|len| u64::try_from(len).ok()).unwrap_or(0)
}
