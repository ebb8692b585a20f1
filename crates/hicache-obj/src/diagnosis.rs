//! What an endpoint and a bucket allow, for an operator: each question by itself, and what fixes what is not as wanted.

use crate::bucket::Bucket;
use crate::crew::Crew;
use crate::options::{ChecksumMode, Credentials, ObjOptions};
use crate::place::{Place, is_path_style};
use crate::store::NOBODY;
use crate::tries::{Ask, Limit};
use crate::trouble::{Kind, Trouble};
use crate::unfinished;
use hicache_core::{Checksum, Counters, ErrorKind, Result};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// How far apart the clocks may be: S3 refuses requests that are 15 minutes off.
const SKEW_MAX: Duration = Duration::from_secs(60);

/// How long each question may take.
const WAIT: Duration = Duration::from_secs(10);

/// What is written, read back and removed.
const TEXT: &str = "hicache doctor was here\n";

/// One question: what was found, whether it is as wanted, and what makes it so.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// `s3_reachable`, `s3_credentials`, `s3_bucket`, `s3_addressing`, `s3_checksum_mode`, `s3_uploads`,
    /// `s3_clock_skew`.
    pub name: &'static str,
    /// It is as wanted.
    pub ok: bool,
    /// What was found.
    pub found: String,
    /// What is wanted.
    pub wanted: &'static str,
    /// What makes it so; empty where it is.
    pub fix: String,
}

impl Finding {
    fn good(name: &'static str, wanted: &'static str, found: impl Into<String>) -> Self {
        Self { name, ok: true, found: found.into(), wanted, fix: String::new() }
    }

    fn bad(
        name: &'static str,
        wanted: &'static str,
        found: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { name, ok: false, found: found.into(), wanted, fix: fix.into() }
    }

    fn of(name: &'static str, wanted: &'static str, trouble: &Trouble, fix: &str) -> Self {
        Self::bad(name, wanted, &trouble.why, trouble.told.fix.as_deref().unwrap_or(fix))
    }
}

/// Asks the service everything, and writes, reads and removes one small object. Blocks.
///
/// # Errors
///
/// [`InvalidConfig`](ErrorKind::InvalidConfig) for a location or an option that cannot be used: then there is nobody to
/// ask.
pub fn diagnose(location: &str, options: ObjOptions) -> Result<Vec<Finding>> {
    let crew = Crew::start(1, 1)?;
    let bucket = Bucket::new(Place::parse(location)?, options)?;
    crew.run(async move { Ok(examine(&bucket).await) }).wait()
}

async fn examine(bucket: &Bucket) -> Vec<Finding> {
    let keys = bucket.check_credentials().await;
    if keys.is_err() {
        // No request can be signed: nothing is known of the service, nor of the bucket.
        return credentials(bucket, keys.as_ref(), None, false).into_iter().collect();
    }
    let nothing = format!("{}{NOBODY}", bucket.place().prefix());
    let answer = within(bucket.greet(&nothing)).await;
    let trouble = answer.err();
    let reached = trouble.as_ref().is_none_or(|trouble| trouble.is_answer() && !is_of_stranger(trouble));
    let heard = trouble.as_ref().is_none_or(|trouble| trouble.told.is_of_s3);
    let mut findings = vec![reachable(bucket, trouble.as_ref())];
    // What nobody has said anything of has no row.
    findings.extend(credentials(bucket, keys.as_ref(), trouble.as_ref(), heard));
    if reached {
        findings.push(of_bucket(bucket, trouble.as_ref()));
    }
    if heard {
        findings.push(addressing(bucket));
    }
    // Some services make a bucket for whoever writes to it.
    if findings.iter().all(|finding| finding.ok) {
        findings.push(checksum_mode(bucket).await);
        findings.extend(uploads(bucket).await);
    }
    if let Some(theirs) = trouble.and_then(|trouble| trouble.told.server_time) {
        findings.push(clock_skew(theirs));
    }
    findings
}

async fn within<T>(
    work: impl Future<Output = std::result::Result<T, Trouble>>,
) -> std::result::Result<T, Trouble> {
    let late = || Trouble::new(Kind::Outage, format!("there was no answer in {WAIT:?}"));
    tokio::time::timeout(WAIT, work).await.unwrap_or_else(|_| Err(late()))
}

fn reachable(bucket: &Bucket, trouble: Option<&Trouble>) -> Finding {
    const NAME: &str = "s3_reachable";
    let wanted = "an answer of S3";
    let place = bucket.service();
    match trouble {
        Some(trouble) if is_of_stranger(trouble) => {
            let found = format!("{place}: {}", trouble.why);
            Finding { found, ..Finding::of(NAME, wanted, trouble, "check endpoint: host and port") }
        }
        Some(trouble) if !trouble.is_answer() => Finding::bad(
            NAME,
            wanted,
            format!("{place}: {}", trouble.why),
            "check that the service runs, endpoint (host, port, http or https), proxy, and ca_bundle",
        ),
        _ => Finding::good(NAME, wanted, format!("{place} answers")),
    }
}

/// Whether something answered that is no S3.
fn is_of_stranger(trouble: &Trouble) -> bool {
    let known = trouble.told.is_of_s3 || trouble.told.status.is_none();
    !known && trouble.kind == Kind::Refused(ErrorKind::InvalidConfig)
}

/// Nothing, where keys are there and no service was heard of them.
fn credentials(
    bucket: &Bucket,
    keys: std::result::Result<&(), &Trouble>,
    trouble: Option<&Trouble>,
    heard: bool,
) -> Option<Finding> {
    const NAME: &str = "s3_credentials";
    let wanted = "accepted by the service";
    let from = match &bucket.options().credentials {
        Credentials::Auto => "by the chain (environment, profile, container, instance)",
        Credentials::Static { .. } => "static",
        Credentials::Environment => "from the environment",
        Credentials::Profile(_) => "from a profile",
        Credentials::Container => "from the container's service",
        Credentials::Instance => "from the instance",
        Credentials::Anonymous => "none: anonymous",
    };
    let refused = |trouble: &&Trouble| {
        matches!(trouble.kind, Kind::Expired | Kind::Refused(ErrorKind::PermissionDenied))
    };
    match (keys, trouble.filter(refused)) {
        (Err(missing), _) => Some(Finding::of(NAME, wanted, missing, "set access_key and secret_key")),
        (Ok(()), Some(trouble)) => {
            Some(Finding::of(NAME, wanted, trouble, "check access_key and secret_key"))
        }
        (Ok(()), None) => heard.then(|| Finding::good(NAME, wanted, from)),
    }
}

fn of_bucket(bucket: &Bucket, trouble: Option<&Trouble>) -> Finding {
    const NAME: &str = "s3_bucket";
    let wanted = "there, in this region, and readable";
    let name = bucket.name();
    match trouble {
        None => Finding::good(NAME, wanted, format!("{name} is there")),
        Some(trouble) => match &trouble.kind {
            Kind::Absent => Finding::good(NAME, wanted, format!("{name} is there")),
            Kind::Region(region) => Finding::bad(
                NAME,
                wanted,
                format!("{name} is in the region {region}"),
                format!("set region={region}"),
            ),
            _ => Finding::of(NAME, wanted, trouble, "check the bucket's name and policy"),
        },
    }
}

fn addressing(bucket: &Bucket) -> Finding {
    let (path, why) = is_path_style(bucket.options(), bucket.name());
    let style = if path { "path style" } else { "virtual-host style" };
    Finding::good("s3_addressing", "the style that the service knows", format!("{style} ({why})"))
}

/// Writes with the checksum and the condition that an upload has, and reads back what was stored.
async fn checksum_mode(bucket: &Bucket) -> Finding {
    const NAME: &str = "s3_checksum_mode";
    let wanted = "what is stored is what was sent";
    let name = format!("{}hicache-doctor-{:016x}", bucket.place().prefix(), fastrand::u64(..));
    let mut mode =
        if bucket.gives_checksum() { "crc64nvme is accepted" } else { "off: the page's own protects it" };
    let written = match within(bucket.put_text(&name, TEXT, true)).await {
        Err(trouble) if matches!(trouble.kind, Kind::Unknown("checksum")) => {
            if bucket.options().checksum_mode == ChecksumMode::Crc64Nvme {
                return Finding::of(NAME, wanted, &trouble, "set checksum_mode=off");
            }
            bucket.go_without("checksum");
            mode = "crc64nvme is refused, so off: the page's own protects it";
            within(bucket.put_text(&name, TEXT, true)).await
        }
        written => written,
    };
    let conditional = match written {
        Ok(()) => true,
        Err(trouble) if matches!(trouble.kind, Kind::Unknown(_)) => {
            match within(bucket.put_text(&name, TEXT, false)).await {
                Ok(()) => false,
                Err(trouble) => return Finding::of(NAME, wanted, &trouble, "allow s3:PutObject there"),
            }
        }
        Err(trouble) => return Finding::of(NAME, wanted, &trouble, "allow s3:PutObject there"),
    };
    let again = conditional && within(bucket.put_text(&name, TEXT, true)).await.is_err();
    let read = within(bucket.get_text(&name, TEXT.len() * 4)).await;
    let removed = within(bucket.delete(&name)).await;
    match (read, removed) {
        (Ok(text), _) if Checksum::of_bytes(text.as_bytes()) != Checksum::of_bytes(TEXT.as_bytes()) => {
            Finding::bad(
                NAME,
                wanted,
                "other bytes came back than were sent",
                "look for a proxy that changes bodies; set checksum_mode=off",
            )
        }
        (Err(trouble), _) => Finding::of(NAME, wanted, &trouble, "allow s3:GetObject there"),
        (Ok(_), Err(trouble)) => Finding::of(NAME, wanted, &trouble, "allow s3:DeleteObject there"),
        (Ok(_), Ok(())) => {
            let conditions =
                if again { "kept" } else { "not kept: pages are asked for before they are stored" };
            Finding::good(NAME, wanted, format!("{mode}; conditions on writes are {conditions}"))
        }
    }
}

/// Uploads in parts that nobody ends any more, where the service lists them.
async fn uploads(bucket: &Bucket) -> Option<Finding> {
    const NAME: &str = "s3_uploads";
    let wanted = "none that is older than a day";
    let counters = Counters::default();
    let limit = Limit::At(Instant::now().checked_add(WAIT));
    let ask = Ask { operation: "list uploads", name: "", counters: &counters, limit };
    let (uploads, more) = match unfinished::list(bucket, &ask, bucket.place().prefix(), None).await {
        Ok(listed) => listed?,
        Err(trouble) => return Some(Finding::of(NAME, wanted, &trouble, "look again later")),
    };
    let Some(oldest) = uploads.iter().map(|upload| upload.age).max() else {
        return Some(Finding::good(NAME, wanted, "no upload in parts is unfinished"));
    };
    let (count, least) = (uploads.len(), if more.is_some() { "at least " } else { "" });
    let found = format!("{least}{count} unfinished, the oldest begun {} ago", unfinished::told(oldest));
    if oldest < unfinished::ABANDONED {
        return Some(Finding::good(NAME, wanted, found));
    }
    let fix = "hicache verify --repair gives them up; a lifecycle rule of the bucket does so by itself \
               (AbortIncompleteMultipartUpload)";
    Some(Finding::bad(NAME, wanted, found, fix))
}

fn clock_skew(theirs: SystemTime) -> Finding {
    const NAME: &str = "s3_clock_skew";
    let wanted = "below 60 s";
    let ours = SystemTime::now();
    let skew = ours.duration_since(theirs).unwrap_or_else(|early| early.duration());
    let found = format!("{} s", skew.as_secs());
    if skew <= SKEW_MAX {
        return Finding::good(NAME, wanted, found);
    }
    Finding::bad(NAME, wanted, found, "set this machine's clock (timedatectl set-ntp true)")
}
