//! Several pools of one page chain: a page is there only with all that it needs.

use crate::{
    Call, Error, ErrorKind, Get, HitPolicy, Outcomes, Page, PageKey, PageMut, Pending, PoolPresence, Put,
    Result, StorageBackend, Stored, UsablePrefix, usable_prefix,
};
use std::sync::Arc;

mod halves;

use halves::{Half, Parts, both_stored, ended, presence, started};

/// A pool beside the anchor: where its pages go, under the keys of the anchor's pages.
#[derive(Clone, Debug)]
pub struct Sidecar {
    /// What errors call it: `indexer`, `swa`, `mamba`, ...
    pub name: Arc<str>,
    /// Where its pages go.
    pub backend: Arc<dyn StorageBackend>,
    /// What it must hold for a prefix to be usable.
    pub policy: HitPolicy,
}

/// One page of the chain in each pool: the anchor's, and one place for each sidecar, in the set's order.
#[derive(Clone, Debug, Default)]
pub struct PoolPages<T> {
    /// The anchor's; `None` where the anchor is logical.
    pub anchor: Option<T>,
    /// The sidecars'. One that holds all pages has one here; one with a trailing window may have none.
    pub sidecars: Vec<Option<T>>,
}

/// A page of the chain to store.
#[derive(Clone, Debug)]
pub struct PoolPut {
    /// Its name, in every pool.
    pub key: PageKey,
    /// The page before it in its chain; `None` for the first.
    pub parent: Option<PageKey>,
    /// Its bytes.
    pub pages: PoolPages<Page>,
}

/// A page of the chain to fetch.
#[derive(Debug)]
pub struct PoolGet {
    /// Its name, in every pool.
    pub key: PageKey,
    /// Where the bytes go. Unless all of them are found, all of these go back to their pools.
    pub into: PoolPages<PageMut>,
}

/// What [`PoolSet::lookup`] found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolLookup {
    /// How much is usable. A page of which a pool could not tell counts as absent there.
    pub usable: UsablePrefix,
    /// The first page of which a pool could not tell.
    pub first_error: Option<Error>,
}

/// Several backends of one page chain: an anchor, whose page makes a page of the chain be there, and sidecars.
///
/// # Contract
///
/// 1. *One outcome per item*, as [`StorageBackend`] has it. An item of the wrong shape (a place too many or too
///    few, none for a pool that holds all pages) is [`InvalidArgument`](ErrorKind::InvalidArgument) before any I/O.
/// 2. *Anchor last.* A set writes a page's sidecars first, all pools at once, and its anchor when they are written.
///    Where a sidecar fails, the item is that failure, and the anchor is not written: the page is not there. Other
///    pages of the batch go on. A remove goes the other way, anchor first. A set and a remove of one page at the
///    same time may leave its anchor without a sidecar; that is a miss, too, since nobody asks for the anchor alone.
/// 3. *All or miss.* A get gives a page in every place asked for, or none: then it is a miss, and each page goes
///    back to its pool. It is an error only where no pool missed and one failed.
/// 4. *Eager, in halves.* Gets and lookups start whole at the call. A set and a remove start their first half at
///    the call; the second half starts at the call, too, if the first is done by then, else when the [`Pending`] is
///    polled and the first half is done. Core has no thread that could do it sooner.
/// 5. *Dropped early*, a `Pending` drops the interest in what has started, which goes on, and a second half that
///    has not started never does: its pages go back to their pools at once. Nothing is torn: after a set, sidecar
///    pages may be there without an anchor, so the page is not there, and the next set finds them present. After a
///    remove, the page is gone, and sidecar pages may be left, which nobody sees. Who has several sets under way
///    polls them together, so that no anchor waits for the set before it.
/// 6. *Deadline.* Each half has the call's deadline from its own start: a set or remove that is polled is answered
///    after twice that at most.
///
/// An anchor without bytes is *logical* ([`PoolSet::logical`]): then the sidecars that hold all pages stand for it.
///
/// # Loading a prefix
///
/// Ask [`PoolSet::lookup`], agree with the other ranks on one of the lengths that all can restore
/// ([`Restorable::intersect`](crate::Restorable::intersect)), then get that many pages, in batches of
/// [`STORAGE_BATCH_SIZE`](crate::STORAGE_BATCH_SIZE), each with a place in those sidecars whose
/// [`HitPolicy::needs`] says so. There is no stream as [`Prefix`](crate::Prefix) is one: with a trailing window
/// only the whole length can be restored, and it must be known before the first page. A miss on the way (a page
/// removed since, or found damaged) voids the length; the next lookup finds a shorter one.
///
/// Models whose K and V differ in size, and states of several tensors, are sets too: one pool for each tensor.
/// That is how engines hold them, so each still moves without a copy.
///
/// ```
/// use hicache_core::{
///     Alignment, Call, HitPolicy, HostPool, MemoryStore, Namespace, PageKey, PageLayout, PoolGet, PoolPages, PoolPut,
///     PoolSet, RegionSpec, Sidecar, Store,
/// };
///
/// // KV, and an index that every page of it needs, as two namespaces of one store.
/// let store = MemoryStore::new(1 << 20);
/// let [kv, index] = [PageLayout::opaque(4_096)?, PageLayout::opaque(132)?];
/// let backend = store.backend(Namespace::named("indexer", index)?)?;
/// let sidecar = Sidecar { name: "indexer".into(), backend, policy: HitPolicy::AllPages };
/// let set = PoolSet::new(store.backend(Namespace::named("kv", kv)?)?, vec![sidecar])?;
///
/// // Each pool has host memory of its own.
/// let slot = |layout: PageLayout| -> Result<_, hicache_core::Error> {
///     let strides = layout.strides(1, Alignment::NONE)?;
///     let region = RegionSpec { len: strides.region_len(), ..Default::default() }.map()?;
///     Ok(HostPool::new(region, strides, &[])?.alloc(1).expect("one slot is free").remove(0))
/// };
/// let key = PageKey::new([1; 32]);
/// let pages = PoolPages { anchor: Some(slot(kv)?.freeze()), sidecars: vec![Some(slot(index)?.freeze())] };
/// let stored = set.batch_set(vec![PoolPut { key, parent: None, pages }], Call::default()).wait();
/// assert!(stored.first_error().is_none());
///
/// // Of a chain, as much as every pool can restore is loaded: one page here.
/// let absent = PageKey::new([2; 32]);
/// let pages = set.lookup(&[key, absent], Call::default()).wait().usable.pages();
/// assert_eq!(pages, 1);
/// let index_of = |number| set.sidecars()[0].policy.needs(number, pages).then(|| slot(index)).transpose();
/// let into = PoolPages { anchor: Some(slot(kv)?), sidecars: vec![index_of(0)?] };
/// let found = set.batch_get(vec![PoolGet { key, into }], Call::default()).wait();
/// assert!(found.into_iter().all(|page| matches!(page, Ok(Some(_)))));
/// # Ok::<(), hicache_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PoolSet {
    anchor: Option<Arc<dyn StorageBackend>>,
    sidecars: Vec<Sidecar>,
}

impl PoolSet {
    /// A set whose anchor is `anchor`. Each pool goes to a namespace of its own: all use the chain's keys, so two
    /// pools of one namespace and layout would be given each other's bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for a sidecar of block groups: its pages have keys of their own, not the
    /// chain's, so it is moved through its own backend and counted by [`usable_prefix`]. Likewise where one backend
    /// is given for two pools; that two backends are of one namespace cannot be seen here.
    pub fn new(anchor: Arc<dyn StorageBackend>, sidecars: Vec<Sidecar>) -> Result<Self> {
        check_policies(&sidecars)?;
        check_distinct(Some(&anchor), &sidecars)?;
        Ok(Self { anchor: Some(anchor), sidecars })
    }

    /// A set whose anchor has no bytes. Nothing is stored for it; asking for it costs nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] as [`PoolSet::new`], and when no sidecar holds all pages: then nothing would
    /// say which pages are there.
    pub fn logical(sidecars: Vec<Sidecar>) -> Result<Self> {
        check_policies(&sidecars)?;
        check_distinct(None, &sidecars)?;
        if !sidecars.iter().any(Sidecar::holds_all) {
            return Err(invalid("a set with a logical anchor has no sidecar that holds all pages"));
        }
        Ok(Self { anchor: None, sidecars })
    }

    /// The anchor's backend; `None` where it is logical.
    pub fn anchor(&self) -> Option<&Arc<dyn StorageBackend>> {
        self.anchor.as_ref()
    }

    /// The sidecars, in the order of their places in [`PoolPages`].
    pub fn sidecars(&self) -> &[Sidecar] {
        &self.sidecars
    }

    /// Stores pages (contract 2). [`Stored::Present`] where no pool had anything to write.
    pub fn batch_set(&self, batch: Vec<PoolPut>, call: Call) -> Pending<Outcomes<Stored>> {
        let mut outcomes = Vec::with_capacity(batch.len());
        let mut anchors = Vec::new();
        let mut sidecars: Vec<(Vec<usize>, Vec<Put>)> = vec![Default::default(); self.sidecars.len()];
        for (index, PoolPut { key, parent, pages }) in batch.into_iter().enumerate() {
            let checked = self.check("set page", &key, &pages);
            outcomes.push(checked.as_ref().map(|()| Stored::Present).map_err(Error::clone));
            if checked.is_err() {
                continue;
            }
            let put = |page| Put { key, parent, page };
            for ((indices, puts), page) in sidecars.iter_mut().zip(pages.sidecars) {
                if let Some(page) = page {
                    indices.push(index);
                    puts.push(put(page));
                }
            }
            anchors.extend(pages.anchor.map(|page| (index, put(page))));
        }
        let first = self.start(sidecars, |sidecar, puts| sidecar.backend.batch_set(puts, call));
        let anchor = self.anchor.clone();
        started(async move {
            let whole = |outcomes: &mut Vec<Result<Stored>>, index: usize, outcome| {
                let before = std::mem::replace(&mut outcomes[index], Ok(Stored::Present));
                outcomes[index] = both_stored(before, outcome);
            };
            for half in first {
                ended(half, |index, outcome| whole(&mut outcomes, index, outcome)).await;
            }
            let (indices, puts): (Vec<_>, Vec<_>) =
                anchors.into_iter().filter(|(index, _)| outcomes[*index].is_ok()).unzip();
            if let Some(anchor) = anchor.filter(|_| !puts.is_empty()) {
                let half = (indices, anchor.batch_set(puts, call));
                ended(half, |index, outcome| whole(&mut outcomes, index, outcome)).await;
            }
            outcomes.into_iter().collect()
        })
    }

    /// Fetches pages (contract 3).
    pub fn batch_get(&self, batch: Vec<PoolGet>, call: Call) -> Pending<Outcomes<Option<PoolPages<Page>>>> {
        let mut found: Vec<Parts> = Vec::with_capacity(batch.len());
        let mut anchors = (Vec::new(), Vec::new());
        let mut sidecars: Vec<(Vec<usize>, Vec<Get>)> = Vec::new();
        sidecars.resize_with(self.sidecars.len(), Default::default);
        for (index, PoolGet { key, into }) in batch.into_iter().enumerate() {
            let checked = self.check("get page", &key, &into);
            found.push(Parts::new(checked.clone(), self.sidecars.len()));
            if checked.is_err() {
                continue;
            }
            let places = sidecars.iter_mut().zip(into.sidecars).chain([(&mut anchors, into.anchor)]);
            for ((indices, gets), into) in places {
                if let Some(into) = into {
                    indices.push(index);
                    gets.push(Get { key, into });
                }
            }
        }
        let halves = self.start(sidecars, |sidecar, gets| sidecar.backend.batch_get(gets, call));
        let (indices, gets) = anchors;
        let anchor = self.anchor.as_ref().filter(|_| !gets.is_empty());
        let anchor = anchor.map(|anchor| (indices, anchor.batch_get(gets, call)));
        started(async move {
            for (place, half) in halves.into_iter().enumerate() {
                ended(half, |index, outcome| found[index].add(Some(place), outcome)).await;
            }
            if let Some(half) = anchor {
                ended(half, |index, outcome| found[index].add(None, outcome)).await;
            }
            found.into_iter().map(Parts::outcome).collect()
        })
    }

    /// Asks which pages are there: their anchor, and every sidecar that holds all pages. What a trailing window
    /// allows is no matter of single pages; [`PoolSet::lookup`] says it.
    pub fn batch_exists(&self, keys: &[PageKey], call: Call) -> Pending<Outcomes<bool>> {
        let holders = self.sidecars.iter().filter(|sidecar| sidecar.holds_all()).map(|one| &one.backend);
        let halves: Vec<Half<bool>> = self
            .anchor
            .iter()
            .chain(holders)
            .map(|backend| ((0..keys.len()).collect(), backend.batch_exists(keys, call)))
            .collect();
        let mut outcomes: Vec<Result<bool>> = vec![Ok(true); keys.len()];
        started(async move {
            for half in halves {
                ended(half, |index, outcome| match (&outcomes[index], &outcome) {
                    // Absent anywhere is absent, whatever others could not tell.
                    (Ok(false), _) | (Err(_), Ok(true) | Err(_)) => (),
                    _ => outcomes[index] = outcome,
                })
                .await;
            }
            outcomes.into_iter().collect()
        })
    }

    /// Asks all pools which of a chain's pages they hold, and how much of the chain is usable.
    pub fn lookup(&self, keys: &[PageKey], call: Call) -> Pending<PoolLookup> {
        let len = keys.len();
        let ask = |backend: &Arc<dyn StorageBackend>| ((0..len).collect(), backend.batch_exists(keys, call));
        // Of the anchor nothing counts but its leading run.
        let anchor = self.anchor.as_ref().map(|anchor| anchor.leading_run(keys, call));
        let sidecars: Vec<(HitPolicy, Half<bool>)> =
            self.sidecars.iter().map(|sidecar| (sidecar.policy, ask(&sidecar.backend))).collect();
        started(async move {
            let mut first_error = None;
            let anchor = match anchor {
                Some(run) => {
                    let run = run.await;
                    first_error = run.error;
                    (0..len).map(|index| index < run.len).collect()
                }
                None => vec![true; len],
            };
            let mut pools = Vec::with_capacity(sidecars.len());
            for (policy, half) in sidecars {
                pools.push((policy, presence(len, half, &mut first_error).await));
            }
            let pools: Vec<_> =
                pools.iter().map(|(policy, present)| PoolPresence { policy: *policy, present }).collect();
            PoolLookup { usable: usable_prefix(&anchor, &pools), first_error }
        })
    }

    /// Removes pages, anchor first (contract 2). True where the anchor was there; where it is logical, where any
    /// sidecar was. A sidecar's failure is the item's, though the page is gone.
    pub fn batch_remove(&self, keys: &[PageKey], call: Call) -> Pending<Outcomes<bool>> {
        let logical = self.anchor.is_none();
        let anchor: Option<Half<bool>> =
            self.anchor.as_ref().map(|anchor| ((0..keys.len()).collect(), anchor.batch_remove(keys, call)));
        let mut outcomes: Vec<Result<bool>> = vec![Ok(false); keys.len()];
        let backends: Vec<_> = self.sidecars.iter().map(|sidecar| Arc::clone(&sidecar.backend)).collect();
        let keys = keys.to_vec();
        started(async move {
            if let Some(half) = anchor {
                ended(half, |index, outcome| outcomes[index] = outcome).await;
            }
            let indices: Vec<usize> = (0..keys.len()).filter(|index| outcomes[*index].is_ok()).collect();
            let keys: Vec<PageKey> = indices.iter().map(|index| keys[*index]).collect();
            let halves: Vec<Half<bool>> = backends
                .into_iter()
                .filter(|_| !keys.is_empty())
                .map(|backend| (indices.clone(), backend.batch_remove(&keys, call)))
                .collect();
            for half in halves {
                ended(half, |index, outcome| match (&outcomes[index], outcome) {
                    (Ok(_), Err(error)) => outcomes[index] = Err(error),
                    (Ok(false), Ok(true)) if logical => outcomes[index] = Ok(true),
                    _ => (),
                })
                .await;
            }
            outcomes.into_iter().collect()
        })
    }

    fn check<T>(&self, operation: &'static str, key: &PageKey, pages: &PoolPages<T>) -> Result<()> {
        let refused =
            |why: String| Err(Error::new(ErrorKind::InvalidArgument, operation).why(why).with("key", key));
        if pages.sidecars.len() != self.sidecars.len() {
            let (given, have) = (pages.sidecars.len(), self.sidecars.len());
            return refused(format!("the item has {given} places for sidecars, the set has {have}"));
        }
        match (&self.anchor, &pages.anchor) {
            (Some(_), None) => return refused("the item has no page for the anchor".to_string()),
            (None, Some(_)) => return refused("the set's anchor is logical and takes no page".to_string()),
            _ => (),
        }
        let missing = |(sidecar, page): &(&Sidecar, &Option<T>)| sidecar.holds_all() && page.is_none();
        match self.sidecars.iter().zip(&pages.sidecars).find(missing) {
            Some((sidecar, _)) => refused(format!("the item has no page for {}", sidecar.name)),
            None => Ok(()),
        }
    }

    /// Starts the sidecars' part of a batch: no call for a pool without items.
    fn start<I, T>(
        &self,
        batches: Vec<(Vec<usize>, Vec<I>)>,
        call: impl Fn(&Sidecar, Vec<I>) -> Pending<Outcomes<T>>,
    ) -> Vec<Half<T>>
    where
        T: Send + 'static,
    {
        let start = |(sidecar, (indices, items)): (&Sidecar, (Vec<usize>, Vec<I>))| {
            let none = || Pending::ready(std::iter::empty().collect());
            let pending = if items.is_empty() { none() } else { call(sidecar, items) };
            (indices, pending)
        };
        self.sidecars.iter().zip(batches).map(start).collect()
    }
}

impl Sidecar {
    fn holds_all(&self) -> bool {
        self.policy == HitPolicy::AllPages
    }
}

fn check_policies(sidecars: &[Sidecar]) -> Result<()> {
    let groups = |sidecar: &&Sidecar| matches!(sidecar.policy, HitPolicy::BlockGroups { .. });
    match sidecars.iter().find(groups) {
        Some(sidecar) => Err(invalid("a pool of block groups has keys of its own and is no sidecar")
            .with("pool", &sidecar.name)
            .fix("move its pages through its own backend, and count them with usable_prefix")),
        None => Ok(()),
    }
}

fn check_distinct(anchor: Option<&Arc<dyn StorageBackend>>, sidecars: &[Sidecar]) -> Result<()> {
    for (place, sidecar) in sidecars.iter().enumerate() {
        let before = sidecars[..place].iter().map(|other| &other.backend);
        if anchor.into_iter().chain(before).any(|other| Arc::ptr_eq(other, &sidecar.backend)) {
            return Err(invalid("a pool has the backend of a pool before it, and would be given its pages")
                .with("pool", &sidecar.name)
                .fix("give each pool a namespace of its own"));
        }
    }
    Ok(())
}

fn invalid(why: &'static str) -> Error {
    Error::new(ErrorKind::InvalidConfig, "make pool set").why(why)
}
