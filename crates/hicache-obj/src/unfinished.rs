//! Uploads in parts that writers left behind when they were killed: they take room, and no listing of objects has them.

use crate::bucket::Bucket;
use crate::tries::{Ask, Tries};
use crate::trouble::{Kind, Trouble};
use hicache_core::ErrorKind;
use std::time::{Duration, SystemTime};

/// No upload of ours takes so long: its writer is gone.
pub(crate) const ABANDONED: Duration = Duration::from_secs(24 * 3600);

/// An upload in parts that is neither ended nor given up.
#[derive(Clone, Debug)]
pub(crate) struct Unfinished {
    /// The object that it would make.
    pub(crate) name: String,
    pub(crate) id: String,
    /// How long ago it was begun.
    pub(crate) age: Duration,
}

/// Where a listing goes on.
#[derive(Clone, Debug)]
pub(crate) struct Marker {
    pub(crate) name: Option<String>,
    pub(crate) id: Option<String>,
}

impl Unfinished {
    /// Whether its writer is gone.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.age >= ABANDONED
    }
}

/// The unfinished uploads under `prefix`, up to a thousand of them, and where there are more. `None` where the service
/// does not list them to us.
pub(crate) async fn list(
    bucket: &Bucket,
    ask: &Ask<'_>,
    prefix: &str,
    from: Option<&Marker>,
) -> Result<Option<(Vec<Unfinished>, Option<Marker>)>, Trouble> {
    let mut tries = Tries::of(bucket, *ask)?;
    let output = loop {
        let outcome = tries.once(bucket.list_uploads(prefix, from)).await;
        match tries.judge(outcome).await {
            Ok(Some(output)) => break output,
            Ok(None) => (),
            Err(trouble) if is_refused(&trouble) => {
                tracing::debug!(why = trouble.why, "the service does not list unfinished uploads");
                return Ok(None);
            }
            Err(trouble) => return Err(trouble),
        }
    };
    let now = SystemTime::now();
    let unfinished = output.uploads().iter().filter_map(|upload| {
        let begun = SystemTime::try_from(*upload.initiated()?).ok()?;
        let (name, id) = (upload.key()?.to_string(), upload.upload_id()?.to_string());
        Some(Unfinished { name, id, age: now.duration_since(begun).unwrap_or_default() })
    });
    // Not every service keeps to the prefix.
    let unfinished = unfinished.filter(|upload| upload.name.starts_with(prefix)).collect();
    let more = output.is_truncated().unwrap_or(false) && output.next_key_marker().is_some();
    let marker = Marker { name: output.next_key_marker, id: output.next_upload_id_marker };
    Ok(Some((unfinished, more.then_some(marker))))
}

/// Gives the parts of an upload up. Whether they are gone.
pub(crate) async fn give_up(bucket: &Bucket, ask: &Ask<'_>, upload: &Unfinished) -> bool {
    let Ok(mut tries) = Tries::of(bucket, Ask { name: &upload.name, ..*ask }) else { return false };
    loop {
        let outcome = tries.once(bucket.abort_upload(&upload.name, &upload.id)).await;
        match tries.judge(outcome).await {
            Ok(Some(())) | Err(Trouble { kind: Kind::Absent, .. }) => return true,
            Ok(None) => (),
            Err(trouble) => {
                tracing::warn!(name = upload.name, why = trouble.why, "an unfinished upload stays");
                return false;
            }
        }
    }
}

fn is_refused(trouble: &Trouble) -> bool {
    matches!(
        trouble.kind,
        Kind::Absent | Kind::Forbidden | Kind::Refused(ErrorKind::Unsupported | ErrorKind::Io)
    )
}

/// An age, to tell: in days, hours or minutes.
pub(crate) fn told(age: Duration) -> String {
    let minutes = age.as_secs() / 60;
    match minutes {
        0..120 => format!("{minutes} min"),
        120..2_880 => format!("{} h", minutes / 60),
        _ => format!("{} days", minutes / (24 * 60)),
    }
}
