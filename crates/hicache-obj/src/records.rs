//! The records of namespaces: name, digest and layout, an object beside the pages.

use crate::bucket::Bucket;
use crate::tries::{Ask, Tries};
use crate::trouble::{Kind, Trouble};
use hicache_core::{Digest, Namespace, Result};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How long it is believed that a record is there. Another process may clear the namespace meanwhile; then it is in no
/// list until somebody looks again, and its pages are served all the same.
const BELIEVED: Duration = Duration::from_secs(60);

/// Bytes of a record at most: a name of 1,024 bytes, and the rest.
const LEN_MAX: usize = 4096;

/// What this store knows of records.
#[derive(Debug, Default)]
pub(crate) struct Records(Mutex<HashMap<Digest, (Namespace, Instant)>>);

impl Records {
    /// Makes sure that the namespace is recorded, with this layout.
    pub(crate) async fn ensure(&self, bucket: &Bucket, namespace: &Namespace, ask: &Ask<'_>) -> Result<()> {
        // Held while one asks: the others of a batch wait for its answer rather than ask the same.
        let waiting = async {
            match ask.limit.beginning_now(bucket) {
                None => Some(self.0.lock().await),
                Some(deadline) => tokio::time::timeout_at(deadline, self.0.lock()).await.ok(),
            }
        };
        let Some(mut held) = waiting.await else {
            let why = "the deadline passed while the namespace's record was asked for";
            return Err(bucket.error(ask, Trouble::new(Kind::Late, why)));
        };
        let digest = namespace.digest();
        if let Some((recorded, seen)) = held.get(&digest)
            && seen.elapsed() < BELIEVED
        {
            return recorded.check_layout(namespace);
        }
        let name = bucket.place().record(digest);
        let ask = Ask { name: &name, ..*ask };
        let recorded = match read(bucket, digest, &ask).await? {
            Some(recorded) => recorded,
            None => {
                write(bucket, namespace, &ask).await?;
                // Who wrote first is who is recorded, also where the service knows no conditions.
                read(bucket, digest, &ask).await?.unwrap_or_else(|| namespace.clone())
            }
        };
        let checked = recorded.check_layout(namespace);
        held.insert(digest, (recorded, Instant::now()));
        checked
    }

    /// The namespace was cleared here.
    pub(crate) async fn forget(&self, digest: Digest) {
        self.0.lock().await.remove(&digest);
    }
}

/// The recorded namespace of that digest. A damaged record is none, and a set makes it anew.
pub(crate) async fn read(bucket: &Bucket, digest: Digest, ask: &Ask<'_>) -> Result<Option<Namespace>> {
    let name = bucket.place().record(digest);
    let ask = Ask { name: &name, ..*ask };
    let error = |trouble| bucket.error(&ask, trouble);
    let mut tries = Tries::of(bucket, ask).map_err(error)?;
    let text = loop {
        let outcome = tries.once(bucket.get_text(&name, LEN_MAX)).await;
        match tries.judge(outcome).await {
            Ok(Some(text)) => break text,
            Ok(None) => (),
            Err(Trouble { kind: Kind::Absent, .. }) => return Ok(None),
            Err(Trouble { kind: Kind::Forbidden, .. }) if bucket.options().forbidden_is_miss => {
                return Ok(None);
            }
            Err(Trouble { kind: Kind::Flaw(flaw), .. }) => return Ok(damaged(&name, &flaw.to_string())),
            Err(trouble) => return Err(error(trouble)),
        }
    };
    Ok(match Namespace::from_record(&text) {
        Ok(namespace) if namespace.digest() == digest => Some(namespace),
        Ok(_) => damaged(&name, "it is of another namespace"),
        Err(why) => damaged(&name, &why),
    })
}

fn damaged(name: &str, why: &str) -> Option<Namespace> {
    tracing::warn!(name, why, "a namespace's record is damaged; a set makes it anew");
    None
}

async fn write(bucket: &Bucket, namespace: &Namespace, ask: &Ask<'_>) -> Result<()> {
    let error = |trouble| bucket.error(ask, trouble);
    let text = namespace.to_record();
    let mut tries = Tries::of(bucket, *ask).map_err(error)?;
    let mut fresh = true;
    loop {
        let conditional = fresh && bucket.gives_condition();
        let outcome = tries.once(bucket.put_text(ask.name, &text, conditional)).await;
        match tries.judge(outcome).await {
            Ok(Some(())) => return Ok(()),
            Ok(None) => (),
            // Somebody else's is there, or a damaged one: which is found by reading it.
            Err(Trouble { kind: Kind::Condition, .. }) => {
                if read(bucket, namespace.digest(), ask).await?.is_some() {
                    return Ok(());
                }
                fresh = false;
                tries = Tries::of(bucket, *ask).map_err(error)?;
            }
            Err(trouble) => return Err(error(trouble)),
        }
    }
}
