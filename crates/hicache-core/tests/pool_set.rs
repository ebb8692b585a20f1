//! Several pools of one chain: anchor last, all or miss, and what is left when somebody stops listening.

use hicache_core::{
    Alignment, Backing, Call, Error, ErrorKind, HitPolicy, HostPool, MemoryStore, Namespace, Outcomes, Page,
    PageKey, PageLayout, PoolGet, PoolPages, PoolPut, PoolSet, Result, Sidecar, StorageBackend, Store,
    Stored,
};
use hicache_testkit::fault::{Fault, FaultBackend, Item, Operation};
use hicache_testkit::gate::{Gate, GateBackend};
use hicache_testkit::{pages, poll_once, wait};
use proptest::prelude::*;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::task::Poll;

const SLOTS: u32 = 16;
/// Seeds of page contents, one for each pool.
const POOLS: [(&str, usize, u64); 3] = [("kv", 4_096, 1), ("indexer", 132, 2), ("mamba", 1_000, 3)];

/// KV, an indexer for every page, and a state at the end of a prefix, each a namespace of one memory store.
struct Chain {
    set: PoolSet,
    plain: Vec<Arc<dyn StorageBackend>>,
    pools: Vec<HostPool>,
}

type Decorate = dyn Fn(&str, Arc<dyn StorageBackend>) -> Arc<dyn StorageBackend>;

impl Chain {
    fn new() -> Self {
        Self::decorated(&|_, backend| backend)
    }

    fn decorated(decorate: &Decorate) -> Self {
        let store = MemoryStore::new(1 << 20);
        let layouts = POOLS.map(|(_, len, _)| pages::opaque(len));
        let backend = |(name, layout): (&str, PageLayout)| {
            store.backend(Namespace::named(name, layout).unwrap()).unwrap()
        };
        let names = POOLS.map(|(name, ..)| name);
        let plain: Vec<_> = names.into_iter().zip(layouts).map(backend).collect();
        let [kv, indexer, mamba] = [0, 1, 2].map(|at| decorate(names[at], Arc::clone(&plain[at])));
        let sidecars = vec![
            sidecar("indexer", indexer, HitPolicy::AllPages),
            sidecar("mamba", mamba, HitPolicy::TrailingPages(NonZeroUsize::MIN)),
        ];
        let pools = layouts.map(|layout| pages::pool(&layout, SLOTS, Alignment::NONE, Backing::Private));
        Self { set: PoolSet::new(kv, sidecars).unwrap(), plain, pools: pools.into() }
    }

    fn page(&self, pool: usize, n: u64) -> Page {
        let mut page = self.pools[pool].alloc(1).unwrap().remove(0);
        pages::fill(&mut page, 1_000 * POOLS[pool].2 + n);
        page.freeze()
    }

    /// Page `n`, with a state or without.
    fn put(&self, n: u64, state: bool) -> PoolPut {
        let sidecars = vec![Some(self.page(1, n)), state.then(|| self.page(2, n))];
        let pages = PoolPages { anchor: Some(self.page(0, n)), sidecars };
        PoolPut { key: pages::key(n), parent: n.checked_sub(1).map(pages::key), pages }
    }

    fn get(&self, n: u64, state: bool) -> PoolGet {
        let slot = |pool: usize| self.pools[pool].alloc(1).unwrap().remove(0);
        let sidecars = vec![Some(slot(1)), state.then(|| slot(2))];
        PoolGet { key: pages::key(n), into: PoolPages { anchor: Some(slot(0)), sidecars } }
    }

    fn set(&self, numbers: &[(u64, bool)]) -> Outcomes<Stored> {
        let batch = numbers.iter().map(|(n, state)| self.put(*n, *state)).collect();
        wait("set", self.set.batch_set(batch, Call::default()))
    }

    /// Which of these pages a get gives, each checked byte by byte, and that the others went back.
    fn hits(&self, numbers: &[(u64, bool)]) -> Vec<bool> {
        let batch = numbers.iter().map(|(n, state)| self.get(*n, *state)).collect();
        let outcomes = wait("get", self.set.batch_get(batch, Call::default()));
        let check = |((n, state), outcome): (&(u64, bool), Result<Option<PoolPages<Page>>>)| {
            let Some(found) = outcome.unwrap() else { return false };
            let parts = [found.anchor, found.sidecars[0].clone(), found.sidecars[1].clone()];
            for (pool, part) in parts.iter().enumerate() {
                assert_eq!(part.is_some(), pool < 2 || *state);
                let seed = 1_000 * POOLS[pool].2 + n;
                assert!(part.iter().all(|page| pages::matches(page, seed)), "page {n} of {pool}");
            }
            true
        };
        let hits = numbers.iter().zip(outcomes).map(check).collect();
        self.rest();
        hits
    }

    fn exists(&self, numbers: &[u64]) -> Vec<bool> {
        let outcomes = wait("exists", self.set.batch_exists(&keys(numbers), Call::default()));
        outcomes.into_iter().map(Result::unwrap).collect()
    }

    /// Which of the pages a pool's own backend holds.
    fn held(&self, pool: usize, numbers: &[u64]) -> Vec<bool> {
        let outcomes = wait("exists", self.plain[pool].batch_exists(&keys(numbers), Call::default()));
        outcomes.into_iter().map(Result::unwrap).collect()
    }

    /// Every slot is back.
    fn rest(&self) {
        for pool in &self.pools {
            assert_eq!(pool.available(), SLOTS as usize);
        }
    }
}

fn sidecar(name: &str, backend: Arc<dyn StorageBackend>, policy: HitPolicy) -> Sidecar {
    Sidecar { name: name.into(), backend, policy }
}

fn keys(numbers: &[u64]) -> Vec<PageKey> {
    numbers.iter().map(|n| pages::key(*n)).collect()
}

fn broken() -> Error {
    Error::new(ErrorKind::Io, "write page").why("the test says so")
}

/// One pool answers one operation on one page with an error.
fn failing(pool: &'static str, operation: Operation, n: u64) -> Chain {
    Chain::decorated(&move |name, backend| {
        if name != pool {
            return backend;
        }
        let rule = move |item: &Item| match item.operation == operation && item.key == pages::key(n) {
            true => Fault::Fail(broken()),
            false => Fault::Pass,
        };
        Arc::new(FaultBackend::new(backend, rule))
    })
}

fn gated(pool: &'static str, gate: &Gate) -> Chain {
    let gate = gate.clone();
    Chain::decorated(&move |name, backend| match name == pool {
        true => Arc::new(GateBackend::new(backend, gate.clone())),
        false => backend,
    })
}

#[test]
fn a_page_comes_back_whole_in_every_pool() {
    let chain = Chain::new();
    let numbers = [(0, false), (1, true), (2, false)];
    let written = chain.set(&numbers);
    assert!(written.iter().all(|outcome| *outcome.as_ref().unwrap() == Stored::Written));
    assert_eq!(chain.hits(&numbers), [true; 3]);
    assert_eq!(chain.hits(&[(0, true), (1, true), (7, false)]), [false, true, false], "no state at page 0");
    assert_eq!(chain.exists(&[0, 1, 2, 7]), [true, true, true, false]);
    let again = chain.set(&numbers);
    assert!(again.iter().all(|outcome| *outcome.as_ref().unwrap() == Stored::Present));
    let more = chain.set(&[(0, true)]);
    assert_eq!(*more.iter().next().unwrap().as_ref().unwrap(), Stored::Written, "the state is new");
    assert_eq!(chain.hits(&[(0, true)]), [true]);
    chain.rest();
}

#[test]
fn what_needs_no_waiting_is_done_at_the_call() {
    let chain = Chain::new();
    drop(chain.set.batch_set(vec![chain.put(0, true)], Call::default()));
    assert_eq!(chain.hits(&[(0, true)]), [true], "the anchor too, though nobody polled");
    drop(chain.set.batch_remove(&keys(&[0]), Call::default()));
    assert_eq!([chain.held(0, &[0]), chain.held(1, &[0]), chain.held(2, &[0])], [[false]; 3]);
}

#[test]
fn w8_a_lookup_gives_the_lengths_that_all_pools_can_restore() {
    let chain = Chain::new();
    for n in 0..8 {
        let plain = |pool: usize| {
            let put = hicache_core::Put { key: pages::key(n), parent: None, page: chain.page(pool, n) };
            assert!(
                wait("set", chain.plain[pool].batch_set(vec![put], Call::default())).first_error().is_none()
            );
        };
        plain(0);
        (n != 5).then(|| plain(1));
        [3, 6].contains(&n).then(|| plain(2));
    }
    let found = wait("lookup", chain.set.lookup(&keys(&Vec::from_iter(0..10)), Call::default()));
    assert!(found.first_error.is_none());
    assert_eq!((found.usable.anchor, found.usable.pages()), (8, 4));
    assert_eq!(found.usable.pools, [Some(5), Some(7)]);
    assert_eq!(chain.exists(&[4, 5, 6, 8]), [true, false, true, false]);
}

#[test]
fn b022_a_sidecar_that_fails_keeps_its_anchor_away_and_the_others_go_on() {
    for (pool, at) in [("indexer", 1), ("mamba", 2)] {
        let chain = failing(pool, Operation::Set, 4);
        let numbers: Vec<_> = (0..8).map(|n| (n, true)).collect();
        let outcomes = chain.set(&numbers);
        let failed: Vec<usize> =
            outcomes.iter().enumerate().filter(|(_, one)| one.is_err()).map(|(index, _)| index).collect();
        assert_eq!((failed, outcomes.len(), outcomes.prefix_len(|_| true)), (vec![4], 8, 4));
        assert_eq!((chain.held(0, &[3, 4, 5]), chain.held(at, &[4])), (vec![true, false, true], vec![false]));
        assert_eq!(chain.exists(&[3, 4, 5]), [true, false, true]);
        chain.rest();
    }
}

#[test]
fn an_anchor_that_fails_leaves_no_page_that_anybody_sees() {
    let chain = failing("kv", Operation::Set, 0);
    assert_eq!(chain.set(&[(0, true)]).first_error().unwrap().kind(), ErrorKind::Io);
    assert_eq!(
        (chain.held(1, &[0]), chain.exists(&[0]), chain.hits(&[(0, true)])),
        (vec![true], vec![false], vec![false])
    );
    let found = wait("lookup", chain.set.lookup(&keys(&[0]), Call::default()));
    assert_eq!(found.usable.pages(), 0);
}

#[test]
fn a_get_that_one_pool_cannot_answer_is_no_page_at_all() {
    for (pool, at) in [("kv", 0), ("indexer", 1), ("mamba", 2)] {
        let chain = failing(pool, Operation::Get, 1);
        chain.set(&[(0, true), (1, true)]);
        let batch = vec![chain.get(0, true), chain.get(1, true)];
        let outcomes = Vec::from_iter(wait("get", chain.set.batch_get(batch, Call::default())));
        assert!(matches!(&outcomes[0], Ok(Some(_))));
        assert_eq!(outcomes[1].as_ref().unwrap_err().kind(), ErrorKind::Io);
        drop(outcomes);
        chain.rest();
        // A miss is sure, whatever the pool that failed would have said.
        let other = if at == 0 { 1 } else { 0 };
        wait("remove", chain.plain[other].batch_remove(&keys(&[1]), Call::default()));
        assert_eq!(chain.hits(&[(1, true)]), [false]);
    }
}

#[test]
fn b024_a_pool_that_lies_or_breaks_off_is_never_a_page() {
    for (pool, at) in [("kv", 0), ("indexer", 1), ("mamba", 2)] {
        for (operation, fault, said) in [
            (Operation::Set, Fault::Miss, Some(ErrorKind::Closed)),
            (Operation::Get, Fault::Drop, Some(ErrorKind::Closed)),
            (Operation::Get, Fault::Half(broken()), Some(ErrorKind::Io)),
            (Operation::Get, Fault::Miss, None),
        ] {
            let lying = matches!((operation, &fault), (Operation::Set, Fault::Miss));
            let chain = Chain::decorated(&move |name, backend| {
                if name != pool {
                    return backend;
                }
                let fault = fault.clone();
                let rule = move |item: &Item| match item.operation == operation && item.key == pages::key(1) {
                    true => fault.clone(),
                    false => Fault::Pass,
                };
                Arc::new(FaultBackend::new(backend, rule))
            });
            assert!(chain.set(&[(0, true), (1, true), (2, true)]).first_error().is_none());
            let batch = (0..3).map(|n| chain.get(n, true)).collect();
            let outcomes = Vec::from_iter(wait("get", chain.set.batch_get(batch, Call::default())));
            assert!(matches!((&outcomes[0], &outcomes[2]), (Ok(Some(_)), Ok(Some(_)))));
            match said.filter(|_| !lying) {
                Some(kind) => assert_eq!(outcomes[1].as_ref().unwrap_err().kind(), kind),
                None => assert!(matches!(outcomes[1], Ok(None)), "{pool} {operation:?}"),
            }
            if lying && at < 2 {
                assert_eq!(chain.exists(&[0, 1, 2]), [true, false, true]);
            }
            drop(outcomes);
            chain.rest();
        }
    }
}

#[test]
fn a_page_that_could_not_be_asked_for_is_an_error_and_absent_in_a_lookup() {
    for pool in ["kv", "indexer"] {
        let chain = failing(pool, Operation::Exists, 1);
        chain.set(&[(0, true), (1, true), (2, true)]);
        let outcomes = wait("exists", chain.set.batch_exists(&keys(&[0, 1, 9]), Call::default()));
        let outcomes = Vec::from_iter(outcomes);
        assert!(*outcomes[0].as_ref().unwrap() && outcomes[1].is_err() && !*outcomes[2].as_ref().unwrap());
        let found = wait("lookup", chain.set.lookup(&keys(&[0, 1, 2]), Call::default()));
        assert_eq!((found.usable.pages(), found.first_error.unwrap().kind()), (1, ErrorKind::Io));
    }
}

#[test]
fn no_page_is_there_before_its_anchor() {
    let gate = Gate::shut();
    let chain = gated("kv", &gate);
    let set = chain.set.batch_set(vec![chain.put(0, true)], Call::default());
    gate.wait_held(1);
    assert_eq!((chain.held(1, &[0]), chain.held(2, &[0])), (vec![true], vec![true]));
    assert_eq!(chain.held(0, &[0]), [false]);
    gate.release();
    assert!(wait("set", set).first_error().is_none());
    assert_eq!(chain.hits(&[(0, true)]), [true]);
}

#[test]
fn an_anchor_waits_for_the_last_sidecar() {
    let gate = Gate::shut();
    let chain = gated("mamba", &gate);
    let mut set = chain.set.batch_set(vec![chain.put(0, true), chain.put(1, false)], Call::default());
    assert!(poll_once(&mut set).is_pending());
    assert_eq!((chain.held(0, &[0, 1]), chain.held(1, &[0, 1])), (vec![false; 2], vec![true; 2]));
    gate.release();
    let Poll::Ready(outcomes) = poll_once(&mut set) else { panic!("nothing is left to wait for") };
    assert!(outcomes.first_error().is_none());
    assert_eq!(chain.held(0, &[0, 1]), [true; 2]);
    chain.rest();
}

#[test]
fn a_set_that_nobody_waits_for_leaves_no_page_and_the_next_finds_its_sidecars() {
    let gate = Gate::shut();
    let chain = gated("mamba", &gate);
    drop(chain.set.batch_set(vec![chain.put(0, true)], Call::default()));
    gate.release();
    assert_eq!(
        (chain.held(0, &[0]), chain.held(1, &[0]), chain.held(2, &[0])),
        (vec![false], vec![true], vec![true])
    );
    assert_eq!((chain.exists(&[0]), chain.hits(&[(0, true)])), (vec![false], vec![false]));
    assert!(chain.set(&[(0, true)]).first_error().is_none());
    assert_eq!(chain.plain[1].stats().present, 1);
    assert_eq!(chain.hits(&[(0, true)]), [true]);
}

#[test]
fn a_backend_that_gives_up_fails_the_page_and_every_slot_comes_back() {
    let gate = Gate::shut();
    let chain = gated("indexer", &gate);
    let set = chain.set.batch_set(vec![chain.put(0, true)], Call::default());
    let get = chain.set.batch_get(vec![chain.get(1, true)], Call::default());
    gate.wait_held(2);
    gate.abandon();
    assert_eq!(wait("set", set).first_error().unwrap().kind(), ErrorKind::Closed);
    assert!(matches!(wait("get", get).iter().next(), Some(Ok(None))));
    assert_eq!(chain.held(0, &[0]), [false]);
    chain.rest();
}

#[test]
fn a_get_that_nobody_waits_for_gives_every_slot_back() {
    let gate = Gate::shut();
    let chain = gated("kv", &gate);
    drop(chain.set.batch_get(vec![chain.get(0, true)], Call::default()));
    assert_eq!(chain.pools[0].available(), SLOTS as usize - 1, "the call that is held keeps its page");
    gate.release();
    chain.rest();
}

#[test]
fn a_remove_takes_the_anchor_first() {
    let gate = Gate::shut();
    let chain = gated("kv", &gate);
    gate.release();
    chain.set(&[(0, true), (1, false)]);
    gate.close();
    let remove = chain.set.batch_remove(&keys(&[0, 1, 2]), Call::default());
    gate.wait_held(1);
    assert_eq!(chain.held(1, &[0, 1]), [true; 2], "as long as the anchor is there");
    gate.release();
    let removed: Vec<bool> = wait("remove", remove).into_iter().map(Result::unwrap).collect();
    assert_eq!(removed, [true, true, false]);
    for pool in 0..3 {
        assert_eq!(chain.held(pool, &[0, 1]), [false; 2]);
    }
    let chain = failing("kv", Operation::Remove, 0);
    chain.set(&[(0, true)]);
    assert!(wait("remove", chain.set.batch_remove(&keys(&[0]), Call::default())).first_error().is_some());
    assert_eq!(chain.exists(&[0]), [true], "nothing was removed before its anchor");
}

#[test]
fn b020_an_item_of_the_wrong_shape_is_refused_alone_before_any_io() {
    let chain = Chain::new();
    let mut short = chain.put(0, true);
    short.pages.sidecars.pop();
    let mut no_indexer = chain.put(1, true);
    no_indexer.pages.sidecars[0] = None;
    let mut no_anchor = chain.put(2, true);
    no_anchor.pages.anchor = None;
    let said = ["1 places for sidecars, the set has 2", "no page for indexer", "no page for the anchor"];
    let batch = vec![short, no_indexer, no_anchor, chain.put(3, true)];
    let outcomes = Vec::from_iter(wait("set", chain.set.batch_set(batch, Call::default())));
    for (outcome, said) in outcomes.iter().zip(said) {
        let error = outcome.as_ref().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(said), "{error}");
    }
    assert!(outcomes[3].is_ok() && outcomes.len() == 4);
    for pool in 0..3 {
        assert_eq!(chain.held(pool, &[0, 1, 2, 3]), [false, false, false, true]);
    }
    let mut bad = chain.get(3, true);
    bad.into.sidecars.clear();
    let outcomes = wait("get", chain.set.batch_get(vec![bad], Call::default()));
    assert_eq!(outcomes.first_error().unwrap().kind(), ErrorKind::InvalidArgument);
    drop(outcomes);
    assert!(wait("none", chain.set.batch_set(vec![], Call::default())).is_empty());
    assert!(wait("none", chain.set.batch_get(vec![], Call::default())).is_empty());
    assert!(wait("none", chain.set.batch_exists(&[], Call::default())).is_empty());
    let twice = wait("twice", chain.set.batch_exists(&keys(&[3, 3]), Call::default()));
    assert_eq!(twice.len(), 2);
    chain.rest();
}

#[test]
fn b032_a_logical_anchor_is_there_with_its_sidecars_and_moves_nothing() {
    let chain = Chain::new();
    let set = PoolSet::logical(chain.set.sidecars().to_vec()).unwrap();
    assert!(set.anchor().is_none());
    let strip = |mut put: PoolPut| {
        put.pages.anchor = None;
        put
    };
    let refused = wait("set", set.batch_set(vec![chain.put(0, true)], Call::default()));
    assert_eq!(refused.first_error().unwrap().kind(), ErrorKind::InvalidArgument);
    let batch = vec![strip(chain.put(0, false)), strip(chain.put(1, true))];
    assert!(wait("set", set.batch_set(batch, Call::default())).first_error().is_none());
    assert_eq!(chain.held(0, &[0, 1]), [false; 2]);
    let exists = wait("exists", set.batch_exists(&keys(&[0, 1, 2]), Call::default()));
    assert_eq!(exists.prefix_len(|there| *there), 2);
    let found = wait("lookup", set.lookup(&keys(&[0, 1, 2]), Call::default()));
    assert_eq!(found.usable.pages(), 2);
    let mut get = chain.get(1, true);
    get.into.anchor = None;
    let got = Vec::from_iter(wait("get", set.batch_get(vec![get], Call::default())));
    let page = got.into_iter().next().unwrap().unwrap().unwrap();
    assert!(page.anchor.is_none() && page.sidecars.iter().all(Option::is_some));
    let removed = wait("remove", set.batch_remove(&keys(&[0, 2]), Call::default()));
    assert_eq!(Vec::from_iter(removed.into_iter().map(Result::unwrap)), [true, false]);
    drop(page);
    chain.rest();
}

#[test]
fn a_set_that_nobody_could_read_is_refused() {
    let backend = Arc::clone(&Chain::new().plain[1]);
    let window = HitPolicy::TrailingPages(NonZeroUsize::MIN);
    let groups = HitPolicy::BlockGroups { block_pages: NonZeroUsize::MIN, group_pages: NonZeroUsize::MIN };
    let with = |policy| vec![sidecar("c4", Arc::clone(&backend), policy)];
    let refused = [
        PoolSet::logical(vec![]),
        PoolSet::logical(with(window)),
        PoolSet::logical(with(groups)),
        PoolSet::new(Arc::clone(&backend), with(groups)),
    ];
    for set in refused {
        assert_eq!(set.unwrap_err().kind(), ErrorKind::InvalidConfig);
    }
    assert!(PoolSet::new(backend, vec![]).unwrap().sidecars().is_empty());
}

/// K and V of different head dimensions: two pools of one chain.
#[test]
fn two_pools_of_one_backend_are_refused_since_each_would_be_given_the_others_bytes() {
    let chain = Chain::new();
    let [index, window] = [0, 1].map(|place| Arc::clone(&chain.set.sidecars()[place].backend));
    let all =
        |name, backend: &Arc<dyn StorageBackend>| sidecar(name, Arc::clone(backend), HitPolicy::AllPages);
    let anchor = Arc::clone(chain.set.anchor().unwrap());
    for (refused, pool) in [
        (PoolSet::new(Arc::clone(&anchor), vec![all("index", &index), all("kv again", &anchor)]), "kv again"),
        (PoolSet::new(anchor, vec![all("k", &index), all("window", &window), all("v", &index)]), "v"),
        (PoolSet::logical(vec![all("k", &index), all("v", &index)]), "v"),
    ] {
        let error = refused.unwrap_err();
        assert_eq!((error.kind(), error.fact("pool")), (ErrorKind::InvalidConfig, Some(pool)), "{error}");
    }
}

#[test]
fn w12_a_model_whose_k_and_v_differ_in_size_is_stored_and_loaded() {
    let store = MemoryStore::new(1 << 20);
    let [k, v] = [192, 128].map(|dim| pages::opaque(2 * 4 * dim));
    let backend = |name: &str, layout| store.backend(Namespace::named(name, layout).unwrap()).unwrap();
    let set =
        PoolSet::new(backend("k", k), vec![sidecar("v", backend("v", v), HitPolicy::AllPages)]).unwrap();
    let pools = [k, v].map(|layout| pages::pool(&layout, 2, Alignment::NONE, Backing::Private));
    let slot = |at: usize| pools[at].alloc(1).unwrap().remove(0);
    let filled = |at: usize| {
        let mut page = slot(at);
        pages::fill(&mut page, at as u64);
        page.freeze()
    };
    let pages = PoolPages { anchor: Some(filled(0)), sidecars: vec![Some(filled(1))] };
    let put = PoolPut { key: pages::key(0), parent: None, pages };
    assert!(wait("set", set.batch_set(vec![put], Call::default())).first_error().is_none());
    let into = PoolPages { anchor: Some(slot(0)), sidecars: vec![Some(slot(1))] };
    let get = PoolGet { key: pages::key(0), into };
    let found = wait("get", set.batch_get(vec![get], Call::default())).into_iter().next().unwrap();
    let found = found.unwrap().unwrap();
    assert!(pages::matches(&found.anchor.unwrap(), 0));
    assert!(pages::matches(found.sidecars[0].as_ref().unwrap(), 1));
}

/// Which page, with a state or without, which pools fail, and whether it is a remove.
fn step() -> impl Strategy<Value = (u64, bool, [bool; 3], bool)> {
    (0..4_u64, any::<bool>(), prop::array::uniform3(prop::bool::weighted(0.2)), any::<bool>())
}

proptest! {
    #[test]
    fn whatever_fails_no_anchor_is_without_its_sidecars(
        steps in prop::collection::vec(step(), 1..24),
    ) {
        let broken_now = Arc::new(Mutex::new([false; 3]));
        let faults = Arc::clone(&broken_now);
        let chain = Chain::decorated(&move |name, backend| {
            let (at, faults) = (POOLS.iter().position(|(pool, ..)| *pool == name).unwrap(), Arc::clone(&faults));
            let changes = |item: &Item| matches!(item.operation, Operation::Set | Operation::Remove);
            let rule = move |item: &Item| match changes(item) && faults.lock().unwrap()[at] {
                true => Fault::Fail(broken()),
                false => Fault::Pass,
            };
            Arc::new(FaultBackend::new(backend, rule))
        });
        for (n, state, broken, remove) in steps {
            *broken_now.lock().unwrap() = broken;
            let before = chain.exists(&[n])[0];
            let failed = if remove {
                wait("remove", chain.set.batch_remove(&keys(&[n]), Call::default())).first_error().is_some()
            } else {
                chain.set(&[(n, state)]).first_error().is_some()
            };
            let there = chain.exists(&[n])[0];
            match (remove, failed) {
                (false, false) => prop_assert!(there, "what was set is there"),
                (true, false) => prop_assert!(!there, "what was removed is not"),
                (false, true) => prop_assert!(!there || before, "a set that failed made no page"),
                (true, true) => (),
            }
            for n in 0..4 {
                prop_assert!(!chain.held(0, &[n])[0] || chain.held(1, &[n])[0], "an anchor without its sidecar");
                prop_assert_eq!(chain.hits(&[(n, false)])[0], chain.exists(&[n])[0]);
            }
        }
    }
}
