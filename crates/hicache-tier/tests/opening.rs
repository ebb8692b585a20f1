//! A tier that is not there when the whole is opened, and one that takes its time when the whole is cleared.

use async_trait::async_trait;
use hicache_core::{
    Error, ErrorKind, Health, MemoryStore, Namespace, Pending, Result, Scan, StorageBackend,
    StorageBackendExt, Store, StoreOpener, StoreOptions, Visitor, replies,
};
use hicache_testkit::{View, pages, until, wait};
use hicache_tier::{TierOptions, TierStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(1 << 30))
}

fn told(view: &View, what: &str) -> bool {
    view.store.health().fallbacks.iter().any(|one| one.what == what)
}

/// The first tier is there; the second cannot be opened as long as it is broken.
fn open_with_second(
    broken: Arc<AtomicBool>,
    kind: ErrorKind,
    inner: &Arc<dyn Store>,
) -> Result<Arc<dyn Store>> {
    let inner = Arc::clone(inner);
    let second = StoreOpener::new(move || match broken.load(Ordering::SeqCst) {
        true => Err(Error::new(kind, "open store").why("nobody is there")),
        false => Ok(Arc::clone(&inner)),
    });
    let mut options = StoreOptions::default();
    for (spec, opener) in TierStore::FACTORY.stores.iter().zip([StoreOpener::new(|| Ok(memory())), second]) {
        options.set_store(spec, opener);
    }
    (TierStore::FACTORY.open)("", options)
}

#[test]
fn a_tier_that_is_lost_when_the_whole_is_opened_degrades_it_and_is_opened_when_it_is_back() {
    let (inner, broken) = (memory(), Arc::new(AtomicBool::new(true)));
    let store =
        open_with_second(Arc::clone(&broken), ErrorKind::Unavailable, &inner).expect("one tier is there");
    let view = View::of(&store, "tiers", pages::two_planes(), 16);
    view.write(&pages::keys(0..1));
    assert!(view.exists(&pages::keys(0..1))[0]);
    assert_eq!(view.backend.stats().degraded, 1);
    assert!(told(&view, "store") && told(&view, "second tier"), "{:?}", view.store.health());
    let takes_none = |one: &hicache_core::Fallback| one.why.contains("takes no pages");
    assert!(!view.store.health().fallbacks.iter().any(takes_none), "{:?}", view.store.health());
    let removed = view.backend.remove(pages::keys(0..1)[0]).wait();
    assert_eq!(removed.unwrap_err().kind(), ErrorKind::Unavailable, "removals are strict");
    broken.store(false, Ordering::SeqCst);
    let numbers = AtomicU64::new(10);
    until("the second tier is opened", || {
        let number = numbers.fetch_add(1, Ordering::SeqCst);
        let keys = pages::keys(number..number + 1);
        view.write(&keys);
        View::of(&inner, "tiers", pages::two_planes(), 4).exists(&keys) == [true]
    });
    assert!(!told(&view, "store"), "{:?}", view.store.health());
    wait("close", view.store.close()).unwrap();
}

/// Counts the warnings of the thread that it is the default of.
struct Warnings(Arc<AtomicU64>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_tier_that_is_lost_at_open_is_warned_of_once_however_many_namespaces_are_opened() {
    let warned = Arc::new(AtomicU64::new(0));
    tracing::subscriber::with_default(Warnings(Arc::clone(&warned)), || {
        let broken = Arc::new(AtomicBool::new(true));
        let store = open_with_second(broken, ErrorKind::Unavailable, &memory()).expect("one tier is there");
        for name in ["one", "other"] {
            let view = View::of(&store, name, pages::two_planes(), 16);
            view.write(&pages::keys(0..1));
        }
        let whys: Vec<_> = store.health().fallbacks.into_iter().map(|one| one.why).collect();
        assert!(!whys.iter().any(|why| why.contains(" 1 items")), "{whys:?}");
        wait("close", store.close()).unwrap();
    });
    assert_eq!(warned.load(Ordering::SeqCst), 1);
}

#[test]
fn a_tier_that_no_waiting_mends_or_both_lost_are_an_error_at_open() {
    let opened = open_with_second(Arc::new(AtomicBool::new(true)), ErrorKind::InvalidConfig, &memory());
    assert_eq!(opened.map(drop).unwrap_err().kind(), ErrorKind::InvalidConfig);
    let lost = || StoreOpener::new(|| Err(Error::new(ErrorKind::Unavailable, "open store")));
    let mut options = StoreOptions::default();
    for spec in TierStore::FACTORY.stores {
        options.set_store(spec, lost());
    }
    let error = (TierStore::FACTORY.open)("", options).map(drop).unwrap_err();
    assert!(error.kind() == ErrorKind::Unavailable && error.fact("first_tier").is_some(), "{error:?}");
}

/// A store whose clear takes its time.
#[derive(Debug)]
struct SlowToClear(Arc<dyn Store>);

#[async_trait]
impl Store for SlowToClear {
    fn backend(&self, namespace: Namespace) -> Result<Arc<dyn StorageBackend>> {
        self.0.backend(namespace)
    }

    async fn namespaces(&self) -> Result<Vec<Namespace>> {
        self.0.namespaces().await
    }

    async fn clear(&self, namespace: &Namespace) -> Result<u64> {
        let (mut replies, slept, _) = replies(1);
        let reply = replies.remove(0);
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(600));
            reply.send(Ok(()));
        });
        drop(slept.await);
        self.0.clear(namespace).await
    }

    fn scan(&self, scan: Scan, visitor: Visitor) -> Pending<Result<()>> {
        self.0.scan(scan, visitor)
    }

    fn health(&self) -> Health {
        self.0.health()
    }

    async fn close(&self) -> Result<()> {
        self.0.close().await
    }
}

#[test]
fn a_clear_that_takes_longer_than_a_call_may_is_not_given_up() {
    let mut options = TierOptions::default();
    options.common.deadline = Duration::from_millis(200);
    let store = TierStore::new(memory(), Arc::new(SlowToClear(memory())), options).unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let view = View::of(&store, "tiers", pages::two_planes(), 16);
    view.write(&pages::keys(0..3));
    assert_eq!(wait("clear", view.store.clear(&view.namespace)).unwrap(), 3);
}
