//! The bucket: the ways to it, and what was learned of the service behind it.

use crate::breaker::Breaker;
use crate::client::Reach;
use crate::options::{ChecksumMode, ObjOptions, parse_region};
use crate::place::Place;
use crate::tries::Ask;
use crate::trouble::{Kind, Trouble};
use crate::wire::Wire;
use aws_sdk_s3::Client;
use hicache_core::{Error, ErrorKind, Fallback, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Reads refused one after another, and none granted, before the store says so of itself.
const FORBIDDEN_MANY: u64 = 16;

/// What helps where a deadline passed.
pub(crate) const MORE_TIME: &str =
    "a longer deadline, fewer bytes under way (smaller batches, or another concurrency), or a faster service";

/// A bucket, or a part of one, at a service.
#[derive(Debug)]
pub(crate) struct Bucket {
    reach: RwLock<Reach>,
    place: Place,
    options: ObjOptions,
    breaker: Breaker,
    /// The service is given a checksum of an upload.
    gives_checksum: AtomicBool,
    /// Uploads are conditional on nothing being there.
    gives_condition: AtomicBool,
    /// Many objects are removed by one request.
    deletes_many: AtomicBool,
    /// Reads refused since one was granted.
    forbidden: AtomicU64,
    fallbacks: Mutex<Vec<Fallback>>,
}

impl Bucket {
    pub(crate) fn new(place: Place, options: ObjOptions) -> Result<Self> {
        let gives_checksum = match options.checksum_mode {
            ChecksumMode::Off => false,
            ChecksumMode::Crc64Nvme => true,
            ChecksumMode::Auto => !options.is_custom(),
        };
        let reach = Reach::new(&place, &options)?;
        Ok(Self {
            reach: RwLock::new(reach),
            place,
            options,
            breaker: Breaker::default(),
            gives_checksum: AtomicBool::new(gives_checksum),
            gives_condition: AtomicBool::new(true),
            deletes_many: AtomicBool::new(true),
            forbidden: AtomicU64::new(0),
            fallbacks: Mutex::default(),
        })
    }

    /// For what is asked of more than one object.
    pub(crate) fn client(&self) -> Client {
        self.reach.read().unwrap_or_else(PoisonError::into_inner).client.clone()
    }

    /// For single objects.
    pub(crate) fn wire(&self) -> Arc<Wire> {
        Arc::clone(&self.reach.read().unwrap_or_else(PoisonError::into_inner).wire)
    }

    /// Closes the connections that nobody uses.
    pub(crate) fn hang_up(&self) {
        self.wire().hang_up();
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn name(&self) -> &str {
        &self.place.bucket
    }

    /// Where the service is, for messages.
    pub(crate) fn service(&self) -> String {
        match &self.options.endpoint {
            Some(endpoint) => endpoint.url().to_string(),
            None => format!("AWS, region {}", self.options.region.as_deref().unwrap_or("none")),
        }
    }

    pub(crate) fn options(&self) -> &ObjOptions {
        &self.options
    }

    pub(crate) fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    pub(crate) fn gives_checksum(&self) -> bool {
        self.gives_checksum.load(Ordering::Relaxed)
    }

    pub(crate) fn gives_condition(&self) -> bool {
        self.gives_condition.load(Ordering::Relaxed)
    }

    pub(crate) fn deletes_many(&self) -> bool {
        self.deletes_many.load(Ordering::Relaxed)
    }

    /// Removes objects one by one from now on.
    pub(crate) fn deletes_singly(&self, refused: &str) {
        if self.deletes_many.swap(false, Ordering::Relaxed) {
            let why = format!("the service refuses to remove many objects at once ({refused}): one by one");
            self.tell("delete_objects", why);
        }
    }

    /// What was asked for and not got, and what holds the store up now.
    pub(crate) fn fallbacks(&self) -> Vec<Fallback> {
        let mut told = self.fallbacks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(why) = self.breaker.why_open() {
            told.push(Fallback { what: "s3", why: format!("the service does not answer: {why}") });
        }
        if self.forbidden.load(Ordering::Relaxed) >= FORBIDDEN_MANY {
            let why =
                "every page asked for was refused (403) and none granted: these may be refusals, not misses";
            told.push(Fallback { what: "s3_permission", why: why.to_string() });
        }
        told
    }

    fn tell(&self, what: &'static str, why: String) {
        tracing::warn!(what, why, "fallback");
        self.fallbacks.lock().unwrap_or_else(PoisonError::into_inner).push(Fallback { what, why });
    }

    /// A read was granted, or found nothing.
    pub(crate) fn is_permitted(&self) {
        if self.forbidden.load(Ordering::Relaxed) > 0 {
            self.forbidden.store(0, Ordering::Relaxed);
        }
    }

    /// A read was refused. Whether that is a miss.
    pub(crate) fn is_forbidden_miss(&self) -> bool {
        if self.forbidden.fetch_add(1, Ordering::Relaxed) + 1 == FORBIDDEN_MANY {
            tracing::warn!(bucket = self.name(), "every page asked for is refused (403)");
        }
        self.options.forbidden_is_miss
    }

    /// Signs for another region from now on. False where that is not a region, or the one already signed for.
    pub(crate) fn move_to(&self, region: &str) -> bool {
        let Ok(region) = parse_region(region) else { return false };
        let mut reach = self.reach.write().unwrap_or_else(PoisonError::into_inner);
        if reach.is_signed_for(&region) {
            return false;
        }
        let Ok(moved) = reach.moved(&self.place, &self.options, &region) else { return false };
        *reach = moved;
        self.tell("s3_region", format!("the bucket is in {region}: requests are signed for it from now on"));
        true
    }

    /// Whether requests are signed for that region already.
    pub(crate) fn is_signed_for(&self, region: &str) -> bool {
        self.reach.read().unwrap_or_else(PoisonError::into_inner).is_signed_for(region)
    }

    /// Asks for credentials anew. False where there are no others to be had.
    pub(crate) fn renew_credentials(&self) -> bool {
        use crate::options::Credentials::{Anonymous, Static};
        if matches!(self.options.credentials, Static { .. } | Anonymous) {
            return false;
        }
        let reach = self.reach.read().unwrap_or_else(PoisonError::into_inner);
        reach.keys.iter().for_each(|keys| keys.forget());
        reach.wire.forget_keys();
        true
    }

    /// Leaves out from now on what the service refused. False where it was not sent, or was asked for.
    pub(crate) fn go_without(&self, what: &str) -> bool {
        let checksum = self.gives_checksum() && self.options.checksum_mode == ChecksumMode::Auto;
        match what {
            // It may be the checksum, which was asked for: trying other ways would hide that.
            "" if self.gives_checksum() && !checksum => false,
            "checksum" | "" if checksum => {
                self.gives_checksum.store(false, Ordering::Relaxed);
                let why = "the service refuses x-amz-checksum-crc64nvme; the page's own checksum protects it";
                self.tell("checksum_mode", why.to_string());
                true
            }
            "condition" | "" if self.gives_condition() => {
                self.gives_condition.store(false, Ordering::Relaxed);
                let why =
                    "the service does not know If-None-Match: pages are asked for before they are stored";
                self.tell("conditional_write", why.to_string());
                true
            }
            _ => false,
        }
    }

    /// Whether there are credentials. Asked when the store is opened, not at the first page.
    pub(crate) async fn check_credentials(&self) -> std::result::Result<(), Trouble> {
        let keys = self.reach.read().unwrap_or_else(PoisonError::into_inner).keys.clone();
        let Some(keys) = keys else { return Ok(()) };
        match keys.in_time().await {
            Err(trouble) if trouble.kind == Kind::Unsigned => {
                Err(Trouble { kind: Kind::Refused(ErrorKind::InvalidConfig), ..trouble })
            }
            had => had.map(drop),
        }
    }

    /// Trouble, to the caller.
    pub(crate) fn error(&self, ask: &Ask<'_>, trouble: Trouble) -> Error {
        let kind = match &trouble.kind {
            Kind::Absent | Kind::Condition => ErrorKind::Io,
            Kind::Forbidden | Kind::Expired | Kind::Skewed => ErrorKind::PermissionDenied,
            Kind::Throttled => ErrorKind::Throttled,
            Kind::Outage | Kind::Unsigned | Kind::NotAsked => ErrorKind::Unavailable,
            Kind::Stalled | Kind::Late => ErrorKind::Timeout,
            Kind::Region(_) => ErrorKind::InvalidConfig,
            Kind::Unknown(_) => ErrorKind::Unsupported,
            Kind::Refused(kind) => *kind,
            Kind::Flaw(_) => ErrorKind::Corrupt,
        };
        let mut error = Error::new(kind, ask.operation).why(&trouble.why).with("bucket", self.name());
        if !ask.name.is_empty() {
            error = error.with("key", ask.name);
        }
        if let Some(status) = trouble.told.status {
            error = error.with("status", status);
        }
        if let Some(code) = &trouble.told.code {
            error = error.with("code", code);
        }
        if let Some(request_id) = &trouble.told.request_id {
            error = error.with("request_id", request_id);
        }
        if let Some(fix) = &trouble.told.fix {
            error = error.fix(fix);
        }
        match &trouble.kind {
            Kind::Outage if trouble.told.status.is_none() => {
                error = error.with("endpoint", self.service());
                error = match self.wire().proxy() {
                    Some(proxy) => error.with("proxy", proxy).fix("check the proxy, or set proxy=off"),
                    None if trouble.told.fix.is_some() => error,
                    None => error.fix("check that the service runs, and endpoint: host, port, http or https"),
                };
            }
            Kind::Region(region) => {
                let signed = self.client();
                let signed = signed.config().region().map_or("none", |region| region.as_ref()).to_string();
                error = error.with("region", signed).with("expected_region", region);
                error = error.fix("set region to the bucket's");
            }
            Kind::Unknown(_) if self.gives_checksum() => {
                error = error.with("header", "x-amz-checksum-crc64nvme").with("checksum_mode", "crc64nvme");
                error = error.fix("set checksum_mode=off");
            }
            Kind::Stalled => {
                error = error.with("endpoint", self.service());
                error = error.with("read_timeout", format_args!("{:?}", self.options.read_timeout));
                error = error.fix("check the service and the network to it, or raise read_timeout");
            }
            Kind::Late => error = error.with("endpoint", self.service()).fix(MORE_TIME),
            _ if trouble.told.status.is_some() && !trouble.told.is_of_s3 => {
                // It may be the proxy's word.
                if let Some(proxy) = self.wire().proxy() {
                    error = error.with("proxy", proxy);
                }
            }
            _ => (),
        }
        let later = matches!(
            trouble.kind,
            Kind::Throttled | Kind::Outage | Kind::Unsigned | Kind::NotAsked | Kind::Stalled | Kind::Late
        );
        if later { error.retryable() } else { error }
    }
}
