//! A file store: its directories, its engine, and what an operator asks of it.

use crate::backend::FileBackend;
use crate::bounce::Allowance;
use crate::engine::{Engine, Lane, closed};
use crate::options::{self, FileOptions, OPTIONS};
use crate::record::MARKER;
use crate::ring::{DEPTH, Rings, Setup};
use crate::root::{Root, namespace_folder, unopened};
use crate::scan;
use crate::slot::Slots;
use crate::sys::{Seam, Sys};
use crate::writer;
use async_trait::async_trait;
use hicache_core::{
    Alignment, Digest, Error, ErrorKind, Fallback, Health, Namespace, PageKey, Pending, Registrar, Result,
    Scan, StorageBackend, Store, StoreFactory, Visitor, parse_path, without_secrets,
};
use std::collections::BTreeMap;
use std::io;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Workers a core where the options do not say: small pages need several under way, since each waits for the device.
const WORKERS_PER_CORE: usize = 4;

/// Most workers where the options do not say.
const WORKERS_MAX: usize = 32;

/// Fallbacks that are kept of those that come while pages move.
const TOLD_MAX: usize = 16;

/// Pages in files, one file a page, in one directory or several. Clones are handles of one store.
#[derive(Clone, Debug)]
pub struct FileStore {
    files: Arc<Files>,
    engine: Arc<Engine>,
}

/// The directories, and how they are used.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) roots: Vec<Root>,
    pub(crate) options: FileOptions,
    /// Of the slots' memory.
    fallbacks: Vec<Fallback>,
    /// What was told since.
    told: Mutex<Vec<Fallback>>,
    /// Of memory to bounce through.
    pub(crate) allowance: Allowance,
}

impl FileStore {
    /// How a registry opens it: scheme `file`, the location a path.
    pub const FACTORY: StoreFactory = StoreFactory {
        scheme: "file",
        options: OPTIONS,
        stores: &[],
        open: |location, options| {
            let path = path_of(location)?;
            Ok(Arc::new(Self::open(path, FileOptions::from_options(options)?)?))
        },
        locate: |location| path_of(location).map(drop),
        check: |options| FileOptions::from_options(options).map(drop),
    };

    /// Opens the store in `path` (and in `options.dirs`), or makes one in an empty or a new directory. Probes
    /// what the directory allows with one real write. No scan: it takes as long with a million pages as with none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Incompatible`] for a directory that holds something else, which is left untouched;
    /// [`ErrorKind::Unsupported`] when direct I/O is required and does not work;
    /// [`ErrorKind::InvalidConfig`] for directories that are the same or cannot be used; what the file system
    /// answered, otherwise.
    pub fn open(path: impl AsRef<Path>, options: FileOptions) -> Result<Self> {
        Self::open_with(path, options, None)
    }

    /// As [`FileStore::open`], with every system call of the store's pages going past `seam`. For tests.
    ///
    /// # Errors
    ///
    /// As [`FileStore::open`].
    pub fn open_with(path: impl AsRef<Path>, options: FileOptions, seam: Option<Seam>) -> Result<Self> {
        let sys = Sys(seam);
        check_all_there(path.as_ref(), &options.dirs)?;
        let paths = std::iter::once(path.as_ref()).chain(options.dirs.iter().map(PathBuf::as_path));
        let opened = paths.map(|path| Root::open(sys.clone(), path, &options));
        let roots = opened.collect::<Result<Vec<_>>>()?;
        tell_added(&roots);
        check_distinct(&roots)?;
        let block = roots.iter().map(Root::block).max().unwrap_or(Alignment::NONE);
        let slots = Slots::map(workers(&options), block, options.common.own_memory())?;
        let mut fallbacks = slots.fallbacks();
        let mut engine = Engine::start(slots.take()).map_err(|error| {
            Error::new(ErrorKind::Exhausted, "open store")
                .why("the engine's threads could not be started")
                .fix("raise ulimit -u, or set threads to fewer")
                .because(error)
        })?;
        if options.engine != options::Engine::Threads {
            let depth = match options.depth {
                Some(depth) => depth.get(),
                None => {
                    let (depth, lowered) = default_depth(sys.files_max());
                    fallbacks.extend(lowered);
                    depth
                }
            };
            let reads_wait = roots.iter().any(Root::reads_wait);
            let beyond =
                roots.iter().filter_map(Root::direct).max().map_or(block, |direct| direct.min(block));
            let memory = options.common.own_memory();
            let setup = Setup { depth, block, beyond, memory, reads_wait, sys };
            fallbacks.extend(add_rings(&mut engine, &options, &setup)?);
        }
        let files =
            Files { roots, options, fallbacks, told: Mutex::default(), allowance: Allowance::default() };
        let store = Self { files: Arc::new(files), engine: Arc::new(engine) };
        store.sweep_beside();
        Ok(store)
    }
}

/// Of each directory of a store, the first and the further ones in their order, whether a store is in it, or would be
/// made there. Touches nothing.
///
/// # Errors
///
/// For a directory, why [`FileStore::open`] would refuse the store because of it.
pub fn look_at(store: impl AsRef<Path>, further: &[PathBuf]) -> Vec<Result<bool>> {
    let mut ids = Vec::new();
    let mut look = |path: &Path| {
        let marker = Root::look(path)?;
        if let Some(first) = marker.as_ref().and_then(|marker| ids.iter().find(|(id, _)| *id == marker.id)) {
            let (_, first): &(String, PathBuf) = first;
            return Err(same_store(first, path));
        }
        ids.extend(marker.iter().map(|marker| (marker.id.clone(), path.to_owned())));
        Ok(marker.is_some())
    };
    let mut all = vec![look(store.as_ref())];
    let there = |path: &PathBuf| check_all_there(store.as_ref(), std::slice::from_ref(path));
    all.extend(further.iter().map(|path| there(path).and_then(|()| look(path))));
    all
}

/// Of a store that is there, no further directory is made anew: where a disk is not mounted, it would fill what lies
/// under its mount point, and everything that is on the disk would be missed.
fn check_all_there(store: &Path, further: &[PathBuf]) -> Result<()> {
    let absent = further.iter().find(|path| !path.exists());
    let Some(absent) = absent.filter(|_| store.join(MARKER).exists()) else { return Ok(()) };
    Err(unopened(absent, "there is no such directory, though the store is there")
        .with("store", store.display())
        .fix("mount it; or make it, and it is added to the store"))
}

fn tell_added(roots: &[Root]) {
    if roots.iter().all(|root| root.is_new) {
        return;
    }
    for root in roots.iter().filter(|root| root.is_new) {
        tracing::warn!(path = %root.path().display(), "an empty directory is added to a store that is there");
    }
}

impl FileStore {
    /// Removes cleared namespaces that a dead writer left, beside other work: they may have many pages.
    fn sweep_beside(&self) {
        for (index, root) in self.files.roots.iter().enumerate() {
            for leftover in root.take_leftovers() {
                let files = Arc::clone(&self.files);
                // Nobody waits for it; what is not swept now is found by the next open.
                drop(self.engine.run(Lane::BackgroundWrite, move |_| {
                    let root = &files.roots[index];
                    writer::sweep(root.sys(), root.dir(), &leftover);
                    Ok(())
                }));
            }
        }
    }
}

/// Adds rings to the engine. Where there are none to be had, the threads do, which is told, unless they were asked for.
fn add_rings(engine: &mut Engine, options: &FileOptions, setup: &Setup) -> Result<Option<Fallback>> {
    let added = engine.add_rings(|sink| Rings::start(options.rings.get(), setup, sink));
    let Err(why) = added else { return Ok(None) };
    if options.engine == options::Engine::IoUring {
        return Err(Error::new(ErrorKind::Unsupported, "open store")
            .why(format_args!("the engine io_uring is asked for and does not work here: {why}"))
            .fix("set engine=auto to let it fall back to threads"));
    }
    let fallback = Fallback { what: "io_uring", why: format!("{why}; threads instead") };
    tracing::warn!(what = fallback.what, why = fallback.why, "fallback");
    Ok(Some(fallback))
}

/// Reads that a ring has in flight where nobody says, in a process that may have `files_max` files: a table of more is
/// refused, and without one each read takes a descriptor.
fn default_depth(files_max: u32) -> (u32, Option<Fallback>) {
    let depth = DEPTH.min(files_max / 2).max(1);
    let lowered = (depth < DEPTH).then(|| {
        let why = format!(
            "the process may have {files_max} files: a ring has {depth} reads in flight instead of {DEPTH}; raise \
             ulimit -n to {} or more",
            2 * DEPTH
        );
        tracing::warn!(what = "depth", why, "fallback");
        Fallback { what: "depth", why }
    });
    (depth, lowered)
}

/// A path as a URL has it: `file:/path`, `file:relative`, or `file:///path`.
fn path_of(location: &str) -> Result<&str> {
    let invalid = |why: &str| {
        Err(Error::new(ErrorKind::InvalidConfig, "open store")
            .why(why)
            .with("location", without_secrets(location)))
    };
    match location.strip_prefix("//") {
        _ if location.is_empty() => invalid("a file store needs a path: file:/path/to/directory"),
        Some(path) if path.starts_with('/') => Ok(path),
        Some(_) => invalid("a file store is on this host: write file:/path or file:///path"),
        None => parse_path(location).map_or_else(|why| invalid(&why), |_| Ok(location)),
    }
}

pub(crate) fn workers(options: &FileOptions) -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let workers = (cores * WORKERS_PER_CORE).min(WORKERS_MAX) as u32;
    options.threads.map_or(workers, NonZeroU32::get)
}

/// Two directories with one identity are one directory under two names, or one is a copy: either way pages would
/// be looked for in the wrong one.
fn check_distinct(roots: &[Root]) -> Result<()> {
    let mut seen = BTreeMap::new();
    for root in roots {
        if let Some(first) = seen.insert(root.id(), root.path()) {
            return Err(same_store(first, root.path()));
        }
    }
    Ok(())
}

fn same_store(first: &Path, second: &Path) -> Error {
    Error::new(ErrorKind::InvalidConfig, "open store")
        .why("two directories are the same store")
        .with("first", first.display())
        .with("second", second.display())
        .fix("name each directory once")
}

impl Files {
    /// The directory that `key` belongs in: the one that scores highest for it (rendezvous hashing), so that a
    /// directory more, or less, moves only its own share of the keys.
    pub(crate) fn root_of(&self, key: &PageKey) -> usize {
        let score = |index: &usize| self.roots[*index].score(key);
        (0..self.roots.len()).max_by_key(score).expect("at least one directory")
    }

    /// The largest block of any directory.
    pub(crate) fn block(&self) -> Alignment {
        self.roots.iter().map(Root::block).max().unwrap_or(Alignment::NONE)
    }

    /// Tells of what pages go without, and how; once, however many backends there are of a namespace.
    pub(crate) fn tell(&self, fallback: Fallback) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.contains(&fallback) {
            return;
        }
        tracing::warn!(what = fallback.what, why = fallback.why, "fallback");
        if told.len() < TOLD_MAX {
            told.push(fallback);
        }
    }

    /// Bytes that the file systems could still take, each counted once however many directories are on it.
    fn available_len(&self) -> Option<u64> {
        let mut by_device = BTreeMap::new();
        for root in &self.roots {
            let device = rustix::fs::fstat(root.dir()).ok()?.st_dev;
            let space = root.sys().space(root.dir()).ok()?;
            by_device.insert(device, space.f_bavail.saturating_mul(space.f_frsize));
        }
        Some(by_device.into_values().sum())
    }

    /// The namespaces recorded in any directory. A record that cannot be read is no namespace; a scan names it.
    fn namespaces(&self) -> Result<Vec<Namespace>> {
        let mut all = BTreeMap::new();
        for root in &self.roots {
            for digest in scan::namespace_digests(root)? {
                match root.read_namespace(digest) {
                    Ok(Ok(namespace)) => drop(all.insert(digest, namespace)),
                    Ok(Err(_)) => (),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => (),
                    Err(error) => {
                        return Err(root.failed("list namespaces", &namespace_folder(digest), error));
                    }
                }
            }
        }
        let mut all: Vec<Namespace> = all.into_values().collect();
        all.sort_by(|a, b| a.name().cmp(b.name()));
        Ok(all)
    }

    fn recorded(&self, digest: Digest) -> Result<Option<Namespace>> {
        for root in &self.roots {
            match root.read_namespace(digest) {
                Ok(Ok(namespace)) => return Ok(Some(namespace)),
                Ok(Err(why)) => {
                    tracing::warn!(%digest, why, "a namespace's record is damaged; a set makes it anew")
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => (),
                Err(error) => return Err(root.failed("open namespace", &namespace_folder(digest), error)),
            }
        }
        Ok(None)
    }

    /// Moves the namespace out of everybody's sight first, then removes it: a crash leaves a leftover, not half of it.
    fn clear(&self, digest: Digest) -> Result<u64> {
        let mut removed = 0;
        for root in &self.roots {
            let folder = namespace_folder(digest);
            let fail = |removed: u64| {
                let failed = |error| root.failed("clear namespace", &folder, error);
                move |error| failed(error).with("removed", removed)
            };
            let grave = root.temporary_name().map_err(fail(removed))?;
            match root.sys().rename(root.dir(), &folder, &grave) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                renamed => renamed.map_err(fail(removed))?,
            }
            removed += scan::count_pages(root, &grave);
            root.sys().remove_tree(root.dir(), &grave).map_err(fail(removed))?;
        }
        Ok(removed)
    }
}

#[async_trait]
impl Store for FileStore {
    fn backend(&self, namespace: Namespace) -> Result<Arc<dyn StorageBackend>> {
        if self.engine.is_closed() {
            return Err(closed());
        }
        if let Some(held) = self.files.recorded(namespace.digest())? {
            held.check_layout(&namespace)?;
        }
        Ok(Arc::new(FileBackend::new(Arc::clone(&self.engine), Arc::clone(&self.files), namespace)))
    }

    async fn namespaces(&self) -> Result<Vec<Namespace>> {
        let files = Arc::clone(&self.files);
        self.engine.run(Lane::Read, move |_| files.namespaces()).await
    }

    async fn clear(&self, namespace: &Namespace) -> Result<u64> {
        let (files, digest) = (Arc::clone(&self.files), namespace.digest());
        self.engine.run(Lane::Write, move |_| files.clear(digest)).await
    }

    fn scan(&self, scan: Scan, visitor: Visitor) -> Pending<Result<()>> {
        let files = Arc::clone(&self.files);
        self.engine.run(Lane::BackgroundRead, move |slot| scan::walk(&files, &scan, slot, visitor))
    }

    fn registrars(&self) -> Vec<Arc<dyn Registrar>> {
        let registrar = self.engine.rings().map(|rings| Arc::new(rings.registrar()) as Arc<dyn Registrar>);
        registrar.into_iter().collect()
    }

    fn health(&self) -> Health {
        let rings = self.engine.rings();
        let engine = if rings.is_some() { "io_uring" } else { "threads" };
        let mut health = Health::new(engine, "files");
        health.writable = self.files.roots.iter().all(Root::is_writable);
        health.fallbacks.clone_from(&self.files.fallbacks);
        health.registered_len = rings.map_or(0, Rings::registered_len);
        health.fallbacks.extend(self.engine.ring_fallbacks());
        health.fallbacks.extend(self.files.roots.iter().flat_map(Root::fallbacks));
        health
            .fallbacks
            .extend(self.files.told.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned());
        health.available_len = self.files.available_len();
        health
    }

    async fn close(&self) -> Result<()> {
        self.engine.close().await?;
        // A store that is opened next, perhaps before this one's handles are gone, is to find that memory unlocked.
        self.engine.end_rings().await;
        self.files.roots.iter().for_each(Root::release);
        Ok(())
    }
}
