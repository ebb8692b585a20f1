//! An S3 store: its bucket, its runtime, and what an operator asks of it.

use crate::backend::{ObjBackend, View};
use crate::bucket::Bucket;
use crate::crew::Crew;
use crate::known::Known;
use crate::options::{OPTIONS, ObjOptions};
use crate::place::Place;
use crate::records::{self, Records};
use crate::removal;
use crate::scan;
use crate::tries::{Ask, Limit, Tries};
use crate::trouble::{Kind, Trouble};
use async_trait::async_trait;
use hicache_core::{
    Counters, Digest, Health, Namespace, Pending, Result, Scan, StorageBackend, Store, StoreFactory, Visitor,
};
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Threads of the runtime where the options do not say.
const THREADS_MAX: usize = 4;

/// How long the service may take to answer when the store is opened, where the deadline is not shorter.
const OPEN_WAIT: Duration = Duration::from_secs(10);

/// How often a service that does not answer is asked again then: a mistyped port is told in a second.
const OPEN_RETRIES: u32 = 4;

/// An object that is asked for when a store is opened, to hear what the service says. It is never written.
pub(crate) const NOBODY: &str = "hicache-nothing";

/// Pages in a bucket, one object a page. Clones are handles of one store.
#[derive(Clone, Debug)]
pub struct ObjStore {
    bucket: Arc<Bucket>,
    records: Arc<Records>,
    known: Arc<Mutex<HashMap<Digest, Arc<Known>>>>,
    // Dropped last: what was accepted is still done.
    crew: Arc<Crew>,
}

impl ObjStore {
    /// How a registry opens it: scheme `s3`, the location `//bucket/prefix`.
    pub const FACTORY: StoreFactory = StoreFactory {
        scheme: "s3",
        options: OPTIONS,
        stores: &[],
        open: |location, options| Ok(Arc::new(Self::open(location, ObjOptions::from_options(options)?)?)),
        locate: |location| Place::parse(location).map(drop),
        check: |options| ObjOptions::from_options(options).map(drop),
    };

    /// Opens the store in a bucket: `//bucket`, or `//bucket/prefix`. Asks for credentials, and the service for one
    /// object that is not there: what is wrong with the endpoint, the bucket or the credentials is said now.
    ///
    /// Blocks for that long, at most 10 s and the timeouts; not to be called inside an asynchronous task.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](hicache_core::ErrorKind::InvalidConfig) for a location or an option that cannot be used, for
    /// a bucket that is not there or is in another region that was not told, where what answers is no S3, and where
    /// there are no credentials;
    /// [`PermissionDenied`](hicache_core::ErrorKind::PermissionDenied) where these are refused;
    /// [`Unavailable`](hicache_core::ErrorKind::Unavailable) where the service does not answer.
    pub fn open(location: &str, options: ObjOptions) -> Result<Self> {
        let place = Place::parse(location)?;
        let threads = options.threads.map_or_else(threads, |threads| threads.get() as usize);
        let jobs = options.concurrency.get() as usize;
        let crew = Crew::start(threads, jobs)?;
        let bucket = Arc::new(Bucket::new(place, options)?);
        let asked = Arc::clone(&bucket);
        crew.run(async move { greet(&asked).await }).wait()?;
        Ok(Self { bucket, records: Arc::default(), known: Arc::default(), crew: Arc::new(crew) })
    }

    fn known(&self, digest: Digest) -> Arc<Known> {
        let ttl = self.bucket.options().exists_ttl;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.entry(digest).or_insert_with(|| Arc::new(Known::new(ttl))))
    }
}

/// Hears what the service says to these credentials of this bucket.
async fn greet(bucket: &Bucket) -> Result<()> {
    let counters = Counters::default();
    let name = format!("{}{NOBODY}", bucket.place().prefix());
    let limit = Limit::At(Some(Instant::now() + OPEN_WAIT.min(bucket.options().common.deadline)));
    let ask = Ask { operation: "open store", name: "", counters: &counters, limit };
    let error = |trouble| bucket.error(&ask, trouble);
    bucket.check_credentials().await.map_err(error)?;
    let mut tries = Tries::of(bucket, ask).map_err(error)?.at_most(OPEN_RETRIES);
    loop {
        let outcome = tries.once(bucket.greet(&name)).await;
        match tries.judge(outcome).await {
            Ok(None) => (),
            Ok(Some(())) | Err(Trouble { kind: Kind::Absent, .. }) => return Ok(()),
            // It may be only that this object is not there: without the right to list, S3 does not say.
            Err(Trouble { kind: Kind::Forbidden, why, .. }) => {
                tracing::warn!(bucket = bucket.name(), why, "the service refuses what is not there");
                return Ok(());
            }
            Err(trouble) => return Err(error(trouble)),
        }
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(THREADS_MAX)
}

#[async_trait]
impl Store for ObjStore {
    fn backend(&self, namespace: Namespace) -> Result<Arc<dyn StorageBackend>> {
        let (bucket, asked) = (Arc::clone(&self.bucket), namespace.clone());
        let recorded = self.crew.run(async move {
            let counters = Counters::default();
            let ask = Ask { operation: "open namespace", name: "", counters: &counters, limit: Limit::Each };
            records::read(&bucket, asked.digest(), &ask).await
        });
        if let Some(recorded) = recorded.wait()? {
            recorded.check_layout(&namespace)?;
        }
        let view = View {
            bucket: Arc::clone(&self.bucket),
            known: self.known(namespace.digest()),
            records: Arc::clone(&self.records),
            namespace,
            counters: Arc::default(),
        };
        Ok(Arc::new(ObjBackend::new(Arc::clone(&self.crew), view)))
    }

    async fn namespaces(&self) -> Result<Vec<Namespace>> {
        let bucket = Arc::clone(&self.bucket);
        self.crew.run(async move { scan::namespaces(&bucket).await }).await
    }

    async fn clear(&self, namespace: &Namespace) -> Result<u64> {
        let (bucket, records, digest) =
            (Arc::clone(&self.bucket), Arc::clone(&self.records), namespace.digest());
        let known = self.known(digest);
        self.crew
            .run(async move {
                let cleared = removal::clear(&bucket, digest).await;
                records.forget(digest).await;
                known.forget_all();
                cleared
            })
            .await
    }

    fn scan(&self, scan: Scan, visitor: Visitor) -> Pending<Result<()>> {
        let bucket = Arc::clone(&self.bucket);
        self.crew.run(async move { scan::scan(&bucket, &scan, visitor).await })
    }

    fn health(&self) -> Health {
        let mut health = Health::new("none", "none");
        health.fallbacks = self.bucket.fallbacks();
        health
    }

    async fn close(&self) -> Result<()> {
        let closed = self.crew.close().await;
        self.bucket.hang_up();
        closed
    }
}
