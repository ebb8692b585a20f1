//! What the tests of faults stand on: a store on a stub server that checks signatures, and pages with known bytes.
#![allow(dead_code, reason = "each test binary uses its part")]

use crate::stub::{Access, Action, Authority, Request, Settings, Stub};
use hicache_core::{
    Backing, Depth, Error, Found, HostPool, Namespace, Page, PageKey, PageLayout, Put, Result, Scan, Stats,
    StorageBackend, StorageBackendExt, Store, Stored,
};
use hicache_obj::{Credentials, Endpoint, ObjOptions, ObjStore, Proxy};
use hicache_testkit::pages;
use std::io::Write;
use std::ops::ControlFlow;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(crate) const MIB: usize = 1 << 20;

/// Bytes behind a page in its object.
pub(crate) const TAIL: usize = 64;

const CHILD: &str = "HICACHE_TEST_CHILD";

/// A store on a stub, one namespace of it, and a pool.
pub(crate) struct Stage {
    // The store goes before the server that it talks to.
    pub(crate) backend: Arc<dyn StorageBackend>,
    pub(crate) store: ObjStore,
    pub(crate) pool: HostPool,
    pub(crate) namespace: Namespace,
    pub(crate) stub: Stub,
}

impl Stage {
    /// With pages of `len` bytes in the bucket `b`, on a server where nothing goes wrong yet.
    pub(crate) fn new(len: usize) -> Self {
        Self::with(len, Settings::default(), |_| ())
    }

    /// On a server and with options that differ from the plain ones.
    pub(crate) fn with(len: usize, settings: Settings, edit: impl FnOnce(&mut ObjOptions)) -> Self {
        let stub = guarded(settings);
        let mut options = options(&stub);
        edit(&mut options);
        Self::open(stub, "//b", len, options).unwrap()
    }

    pub(crate) fn open(stub: Stub, location: &str, len: usize, options: ObjOptions) -> Result<Self> {
        let layout = PageLayout::opaque(len)?;
        let namespace = Namespace::named("test", layout)?;
        let store = ObjStore::open(location, options)?;
        let backend = store.backend(namespace.clone())?;
        // Every slot is touched when the pool is made: few of them where they are long.
        let slots = (64 * MIB / len).clamp(4, 64) as u32;
        let pool = pages::pool(&layout, slots, backend.capabilities().alignment, Backing::Private);
        Ok(Self { backend, store, pool, namespace, stub })
    }

    /// A store that believes itself on AWS: no endpoint, and the stub as the proxy that leads there.
    pub(crate) fn on_aws(bucket: &'static str, edit: impl FnOnce(&mut ObjOptions)) -> Result<Self> {
        Self::on_aws_at("s3.us-east-1.amazonaws.com", bucket, |_| (), edit)
    }

    /// The same with the bucket in another domain; `prepare` is given the stub before anything is asked of it.
    pub(crate) fn on_aws_at(
        domain: &'static str,
        bucket: &'static str,
        prepare: impl FnOnce(&Stub),
        edit: impl FnOnce(&mut ObjOptions),
    ) -> Result<Self> {
        let authority = Authority::signing(&[domain, &format!("*.{domain}")]);
        let pem = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(pem.path(), &authority.pem).unwrap();
        let buckets = vec![bucket];
        let stub = guarded(Settings { buckets, domain, tunnel: Some(authority), ..Settings::default() });
        prepare(&stub);
        let mut options = ObjOptions {
            endpoint: None,
            region: Some("us-east-1".to_string()),
            proxy: Proxy::Url(stub.endpoint()),
            ca_bundle: Some(pem.path().to_path_buf()),
            ..options(&stub)
        };
        edit(&mut options);
        Self::open(stub, &format!("//{bucket}"), 65_536, options)
    }

    /// As [`with`](Self::with), with the namespace's record written, so that only page requests follow.
    pub(crate) fn settled(len: usize, settings: Settings, edit: impl FnOnce(&mut ObjOptions)) -> Self {
        let stage = Self::with(len, settings, edit);
        assert_eq!(stage.set(SETTLED).unwrap(), Stored::Written);
        stage.stub.forget();
        stage
    }

    /// Puts `script` in charge of requests for pages, of which it sees the head and the count.
    pub(crate) fn on_pages(&self, script: impl Fn(&Request, usize) -> Action + Send + Sync + 'static) {
        let seen = AtomicUsize::new(0);
        self.stub.forget();
        self.stub.script(move |request, _| match is_page(request) {
            true => script(request, seen.fetch_add(1, Ordering::SeqCst)),
            false => Action::normal(),
        });
    }

    /// Page requests since the script was set.
    pub(crate) fn page_requests(&self) -> Vec<Request> {
        self.stub.requests().into_iter().filter(is_page).collect()
    }

    pub(crate) fn put(&self, n: u64) -> Put {
        let mut page = self.pool.alloc(1).expect("a free slot").remove(0);
        pages::fill(&mut page, self.seed(n));
        Put { key: pages::key(n), parent: n.checked_sub(1).map(pages::key), page: page.freeze() }
    }

    pub(crate) fn set(&self, n: u64) -> Result<Stored> {
        self.backend.set(self.put(n)).wait()
    }

    pub(crate) fn set_all(&self, numbers: std::ops::Range<u64>) {
        for n in numbers {
            self.set(n).unwrap_or_else(|error| panic!("page {n}: {error:?}"));
        }
    }

    /// Whether page `n` is served, which must then be right.
    pub(crate) fn get(&self, n: u64) -> Result<bool> {
        let mut into = self.pool.alloc(1).expect("a free slot").remove(0);
        pages::spoil(&mut into);
        let got = self.backend.get(pages::key(n), into).wait()?;
        Ok(got.inspect(|page| self.check(n, page)).is_some())
    }

    pub(crate) fn check(&self, n: u64, page: &Page) {
        let wrong = pages::difference(page, self.seed(n));
        assert_eq!(wrong, None, "page {n} was served with a wrong byte (piece, place)");
    }

    pub(crate) fn exists(&self, n: u64) -> Result<bool> {
        self.backend.exists(pages::key(n)).wait()
    }

    pub(crate) fn remove(&self, n: u64) -> Result<bool> {
        self.backend.remove(pages::key(n)).wait()
    }

    pub(crate) fn stats(&self) -> Stats {
        self.backend.stats()
    }

    /// The key of the object of page `n`, which is in the bucket `b`.
    pub(crate) fn object(&self, n: u64) -> String {
        let name = pages::key(n).to_string();
        let found = self.stub.buckets().keys("b").into_iter().find(|key| key.ends_with(&name));
        found.unwrap_or_else(|| panic!("page {n} has no object"))
    }

    pub(crate) fn is_stored(&self, n: u64) -> bool {
        let name = pages::key(n).to_string();
        self.stub.buckets().keys("b").iter().any(|key| key.ends_with(&name))
    }

    pub(crate) fn scan(&self, depth: Depth) -> Result<Vec<Found>> {
        let finds = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&finds);
        let visitor = move |found| {
            sink.lock().unwrap().push(found);
            ControlFlow::Continue(())
        };
        self.store.scan(Scan { depth, ..Scan::default() }, Box::new(visitor)).wait()?;
        let mut finds = finds.lock().unwrap();
        Ok(std::mem::take(&mut *finds))
    }

    /// The universal rule: nothing is left in flight, and the next operation works.
    pub(crate) fn goes_on(&self) {
        self.stub.script(|_, _| Action::normal());
        hicache_testkit::until("slots come back", || self.pool.available() == self.pool.slots() as usize);
        let last = 1_000_000 + self.stub.requests().len() as u64;
        hicache_testkit::until("the store works again", || self.set(last).is_ok());
        assert!(self.get(last).unwrap());
    }

    fn seed(&self, n: u64) -> u64 {
        pages::seed(&self.namespace, &pages::key(n))
    }
}

/// The page that [`Stage::settled`] writes.
pub(crate) const SETTLED: u64 = 999_999;

/// A server that lets in only who signs rightly as `test`.
pub(crate) fn guarded(settings: Settings) -> Stub {
    let keys = if settings.keys.is_empty() { vec![Access::new("test", "secret")] } else { settings.keys };
    Stub::with(Settings { keys, ..settings })
}

/// What reaches that server.
pub(crate) fn options(stub: &Stub) -> ObjOptions {
    ObjOptions {
        endpoint: Some(Endpoint::parse(&stub.endpoint()).unwrap()),
        credentials: keys("test", "secret"),
        connect_timeout: Duration::from_secs(1),
        ..ObjOptions::default()
    }
}

pub(crate) fn keys(id: &str, secret: &str) -> Credentials {
    Credentials::Static { access_key: id.to_string(), secret_key: secret.to_string(), session_token: None }
}

/// Whether it is about a page, and not about a record or the bucket.
pub(crate) fn is_page(request: &Request) -> bool {
    request.key.rsplit('/').next().is_some_and(|name| name.parse::<PageKey>().is_ok())
}

/// What `call` gives, and how long it took.
pub(crate) fn timed<T>(call: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = call();
    (value, start.elapsed())
}

/// The whole story of an error, causes included.
pub(crate) fn story(error: &Error) -> String {
    format!("{error:?}")
}

/// Says that `test` cannot run here.
pub(crate) fn skip(test: &str, reason: &str) {
    let line = format!("skipped: {test}: {reason}");
    eprintln!("{line}");
    if let Some(path) = std::env::var_os("HICACHE_TEST_SKIPS") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        writeln!(file.unwrap(), "{line}").unwrap();
    }
}

/// Whether this process was started by [`alone`].
pub(crate) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// This test binary again, to run `test` alone with an environment that holds nothing but `variables`. `wrap` is put
/// before the command.
pub(crate) fn alone(test: &str, variables: &[(&str, &str)], wrap: &[&str]) -> String {
    let exe = std::env::current_exe().unwrap();
    let mut words: Vec<&str> = wrap.to_vec();
    words.push(exe.to_str().unwrap());
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env_clear().env(CHILD, "alone").envs(variables.iter().copied()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{test} ended with {}\n{text}", output.status);
    assert!(text.contains("1 passed"), "there is no test {test}\n{text}");
    text
}
