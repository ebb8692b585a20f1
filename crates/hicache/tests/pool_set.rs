//! A hybrid model's pages in a file store: several pools in one directory, across a restart, and with damage.
#![cfg(feature = "file")]

use hicache::{
    Backing, Call, DType, Geometry, HitPolicy, HostPool, Identity, Namespace, PageLayout, PageOrder, PoolGet,
    PoolPages, PoolPut, PoolSet, Rank, Sidecar, StorageBackend, Store, StoreExt,
};
use hicache_testkit::pages;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PAGES: u64 = 200;
/// Pages that are the end of a node, and have a state.
const ENDS: [u64; 3] = [63, 127, 180];
const POOLS: [&str; 3] = ["kv", "indexer", "mamba"];

fn geometries() -> [Geometry; 3] {
    [
        Geometry::Mla { layers: 2, tokens: 16, latent_dim: 576, dtype: DType::Bf16 },
        Geometry::Indexer { layers: 2, tokens: 16, token_len: Geometry::indexer_token_len(128) },
        Geometry::State { layers: 3, layer_len: 1_000 },
    ]
}

/// The pools of one rank, on a store.
struct Rig {
    set: PoolSet,
    pools: Vec<HostPool>,
    namespaces: Vec<Namespace>,
}

fn namespace(pool: &str, layout: PageLayout) -> Namespace {
    let alone = Rank::ALONE;
    let (model, pool) = ("some/hybrid".to_owned(), pool.to_owned());
    let ranks = Identity {
        model,
        revision: None,
        pool,
        layout,
        tp: alone,
        pp: alone,
        cp: alone,
        dcp: alone,
        replicated: true,
        heads: None,
    };
    Namespace::of(&ranks).unwrap()
}

impl Rig {
    fn open(folder: &Path) -> (Arc<dyn Store>, Self) {
        let store = hicache::open(&format!("file:{}", folder.display())).unwrap();
        let layouts = geometries().map(|geometry| PageLayout::new(geometry, PageOrder::PageFirst).unwrap());
        let namespaces: Vec<Namespace> =
            POOLS.iter().zip(layouts).map(|(pool, layout)| namespace(pool, layout)).collect();
        let backends: Vec<Arc<dyn StorageBackend>> =
            namespaces.iter().map(|namespace| store.backend(namespace.clone()).unwrap()).collect();
        let pool = |(layout, backend): (&PageLayout, &Arc<dyn StorageBackend>)| {
            pages::pool(layout, PAGES as u32, backend.capabilities().alignment, Backing::Private)
        };
        let pools = layouts.iter().zip(&backends).map(pool).collect();
        let sidecar = |at: usize, policy| {
            let backend = Arc::clone(&backends[at]);
            Sidecar { name: POOLS[at].into(), backend, policy }
        };
        let state = HitPolicy::TrailingPages(NonZeroUsize::MIN);
        let sidecars = vec![sidecar(1, HitPolicy::AllPages), sidecar(2, state)];
        let set = PoolSet::new(Arc::clone(&backends[0]), sidecars).unwrap();
        (store, Self { set, pools, namespaces })
    }

    fn seed(&self, pool: usize, n: u64) -> u64 {
        pages::seed(&self.namespaces[pool], &pages::key(n))
    }

    fn store_all(&self) {
        let page = |pool: usize, n: u64| {
            let mut page = self.pools[pool].alloc(1).unwrap().remove(0);
            pages::fill(&mut page, self.seed(pool, n));
            page.freeze()
        };
        let put = |n: u64| {
            let sidecars = vec![Some(page(1, n)), ENDS.contains(&n).then(|| page(2, n))];
            let pages = PoolPages { anchor: Some(page(0, n)), sidecars };
            PoolPut { key: pages::key(n), parent: n.checked_sub(1).map(pages::key), pages }
        };
        let outcomes = self.set.batch_set((0..PAGES).map(put).collect(), Call::default()).wait();
        assert!(outcomes.first_error().is_none(), "{:?}", outcomes.first_error());
    }

    /// How much is usable, and that a get of that much, with the state at its end, gives every byte.
    fn usable(&self) -> usize {
        let keys: Vec<_> = (0..PAGES).map(pages::key).collect();
        let usable = self.set.lookup(&keys, Call::default()).wait().usable.pages();
        let slot = |pool: usize| self.pools[pool].alloc(1).unwrap().remove(0);
        let get = |n: u64| {
            let needs = |at: usize| self.set.sidecars()[at].policy.needs(n as usize, usable);
            let sidecars = (0..2).map(|at| needs(at).then(|| slot(at + 1))).collect();
            PoolGet { key: pages::key(n), into: PoolPages { anchor: Some(slot(0)), sidecars } }
        };
        let outcomes = self.set.batch_get((0..usable as u64).map(get).collect(), Call::default()).wait();
        for (n, outcome) in (0..).zip(outcomes) {
            let found = outcome.unwrap().unwrap_or_else(|| panic!("page {n} of {usable}"));
            assert!(pages::matches(&found.anchor.unwrap(), self.seed(0, n)));
            assert!(pages::matches(found.sidecars[0].as_ref().unwrap(), self.seed(1, n)));
            if let Some(state) = &found.sidecars[1] {
                assert!(pages::matches(state, self.seed(2, n)));
            }
        }
        usable
    }
}

/// The file of a page.
fn file_of(folder: &Path, namespace: &Namespace, n: u64) -> PathBuf {
    let key = pages::key(n).to_string();
    let namespace = folder.join("ns").join(namespace.digest().to_string());
    let mut found = std::fs::read_dir(namespace).unwrap().map(|entry| entry.unwrap().path().join(&key));
    found.find(|path| path.exists()).unwrap()
}

fn close(store: Arc<dyn Store>) {
    store.close_blocking().unwrap();
}

#[test]
fn pages_of_several_pools_survive_a_restart_and_damage_shortens_what_is_usable() {
    let folder = tempfile::tempdir().unwrap();
    let (store, rig) = Rig::open(folder.path());
    rig.store_all();
    assert_eq!(rig.usable(), 181, "up to the last state");
    close(store);

    let (store, rig) = Rig::open(folder.path());
    assert_eq!(rig.usable(), 181);
    // One sidecar page is gone: prefixes end before it, at the last state there.
    std::fs::remove_file(file_of(folder.path(), &rig.namespaces[1], 150)).unwrap();
    assert_eq!(rig.usable(), 128);
    // One is damaged, which only a get finds: the page is a miss as a whole, and from then on it is absent.
    let path = file_of(folder.path(), &rig.namespaces[1], 100);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[7] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let slot = |pool: usize| Some(rig.pools[pool].alloc(1).unwrap().remove(0));
    let get = |n| {
        let into = PoolPages { anchor: slot(0), sidecars: vec![slot(1), None] };
        PoolGet { key: pages::key(n), into }
    };
    let outcomes = rig.set.batch_get(vec![get(99), get(100), get(101)], Call::default()).wait();
    let there: Vec<bool> = outcomes.into_iter().map(|outcome| outcome.unwrap().is_some()).collect();
    assert_eq!(there, [true, false, true]);
    assert_eq!(rig.usable(), 64);
    // The next set puts back what is missing and nothing else.
    let written = rig.set.sidecars()[0].backend.stats().written;
    rig.store_all();
    assert_eq!(rig.set.sidecars()[0].backend.stats().written - written, 2);
    assert_eq!(rig.usable(), 181);
    for pool in &rig.pools {
        assert_eq!(pool.available(), PAGES as usize);
    }
    close(store);
}
