//! An open store, and the memory that its pages lie in.

use crate::args::Place;
use crate::failure::{Failure, Result};
use crate::interrupt::{Interrupt, Leftover};
use crate::output;
use crate::report::Size;
use crate::temporary::{self, Temporary};
use hicache::{
    CommonOptions, ConfigFile, Digest, Environment, ErrorKind, HostPool, Machine, Namespace, Opener,
    PageLayout, PageMut, RegionSpec, Scan, StorageBackend, Store, StoreExt, memory_available,
};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A store that a command opened. [`Session::close`] ends it; a temporary one is removed on drop.
#[derive(Debug)]
pub(crate) struct Session {
    opener: Opener,
    url: String,
    store: Arc<dyn Store>,
    common: CommonOptions,
    /// The removal of a temporary store is told.
    tells: bool,
    interrupt: Interrupt,
    // Dropped last: the store lies in it.
    temporary: Option<Temporary>,
}

/// What to do where there is no store yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// Make one.
    Make,
    /// Refuse: a mistyped place makes no directory.
    Refuse,
}

/// How many slots a pool is to have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PoolSlots {
    /// So many, or the command fails.
    Just(NonZeroU32),
    /// So many, or as many as are a pool's share of the memory.
    AtMost(NonZeroU32),
}

/// Bytes of a pool whose slots nobody has counted, at most: what keeps a device busy, and is soon faulted in.
const POOL_LEN_MAX: u64 = 2 << 30;

/// Of the memory that is available, such a pool takes one part in so many; so does a store in memory.
const POOL_PART: u64 = 4;

impl Session {
    /// Opens the store that the flags, the configuration or SGLang's variables name, else the user's own.
    pub(crate) fn open(place: &Place, absent: Absent) -> Result<Self> {
        let (opener, url) = named(place, absent)?;
        let url = match url {
            Some(url) => url,
            None => opener.url()?.map_or_else(default_url, Ok)?,
        };
        Self::open_with(opener, url, None, Interrupt::default())
    }

    /// Opens the store that the flags or the configuration name, else a fresh one that goes with the session, and
    /// says so then unless `quiet`. What is left of it where a signal ends the process is told by `interrupt`.
    pub(crate) fn open_or_temporary(place: &Place, quiet: bool, interrupt: &Interrupt) -> Result<Self> {
        let (opener, url) = named(place, Absent::Make)?;
        let mut session = match url {
            Some(url) => Self::open_with(opener, url, None, interrupt.clone()),
            None => Self::open_in(opener, temporary_folder(interrupt)?, interrupt),
        }?;
        session.tells = !quiet;
        Ok(session)
    }

    /// Opens the store that the flags or the configuration name; else, or with `dir`, a fresh one (in `dir`) that goes
    /// with the session. `flags` are options of the store.
    pub(crate) fn open_measured(
        place: &Place,
        dir: Option<&Path>,
        flags: Vec<(String, String)>,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let (mut opener, url) = named(place, Absent::Make)?;
        opener.flags = flags;
        match (dir, url) {
            (Some(dir), _) => Self::open_in(opener, Temporary::in_folder(dir, interrupt)?, interrupt),
            (None, Some(url)) => Self::open_with(opener, url, None, interrupt.clone()),
            (None, None) => Self::open_in(opener, temporary_folder(interrupt)?, interrupt),
        }
    }

    fn open_in(opener: Opener, folder: Temporary, interrupt: &Interrupt) -> Result<Self> {
        let url = file_url(folder.path())?;
        Self::open_with(opener, url, Some(folder), interrupt.clone())
    }

    fn open_with(
        opener: Opener,
        url: String,
        temporary: Option<Temporary>,
        interrupt: Interrupt,
    ) -> Result<Self> {
        let common = opener.common(&url)?;
        let store = opener.open(&url)?;
        Ok(Self { opener, url, store, common, tells: false, interrupt, temporary })
    }

    /// Host memory as `spec` says, of at least its length, for `slots` pages of `layout` as the store moves them best;
    /// not more than half of what is available.
    pub(crate) fn pool(
        &self,
        backend: &dyn StorageBackend,
        layout: &PageLayout,
        slots: u32,
        spec: RegionSpec,
    ) -> Result<HostPool> {
        let len = layout.strides_for(slots, &backend.capabilities())?.region_len();
        if let Some(available) = memory_available().filter(|available| len as u64 > available / 2) {
            return Err(hicache::Error::new(ErrorKind::InvalidArgument, "make pool")
                .why("the pool would take more than half of the memory that is available")
                .with("slots", slots)
                .with("bytes", len)
                .with("available", available)
                .with("limit", limit_of_memory(available))
                .fix("fewer slots (--pool-pages, --batch), or smaller pages")
                .into());
        }
        Ok(self.store.pool(backend, layout, slots, spec)?)
    }

    /// How many slots that comes to for pages of `layout`: one at least.
    pub(crate) fn pool_slots(
        &self,
        backend: &dyn StorageBackend,
        layout: &PageLayout,
        pages: PoolSlots,
    ) -> Result<u32> {
        let most = match pages {
            PoolSlots::Just(count) => return Ok(count.get()),
            PoolSlots::AtMost(most) => most.get(),
        };
        let share = memory_available().map_or(POOL_LEN_MAX, |available| available / POOL_PART);
        let page_len = layout.strides_for(1, &backend.capabilities())?.region_len() as u64;
        let count = POOL_LEN_MAX.min(share) / page_len;
        Ok(u32::try_from(count).unwrap_or(most).clamp(1, most))
    }

    /// The store.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The store's URL, without secrets.
    pub(crate) fn url(&self) -> String {
        self.opener.registry.redact(&self.url)
    }

    /// What an option of the store is set to, whoever says so, or its default. `None` where it has no such option.
    pub(crate) fn option(&self, name: &str) -> Result<Option<String>> {
        let options = self.opener.effective(&self.url)?;
        let option = options.into_iter().find(|option| option.tier.is_none() && option.spec.name == name);
        Ok(option.map(|mut option| option.values.pop().unwrap_or_else(|| option.spec.default.to_owned())))
    }

    /// The flags that name it to another command, without secrets.
    pub(crate) fn flags(&self) -> String {
        flags(&self.opener, &self.url)
    }

    /// Whether none of the stores that it is made of is lost: some commands need all of them.
    pub(crate) fn is_whole(&self) -> bool {
        const LOST: [&str; 3] = ["store", "first tier", "second tier"];
        self.store.health().fallbacks.iter().all(|one| !LOST.contains(&one.what))
    }

    /// Whether pages are kept in this process's memory only.
    pub(crate) fn is_memory(&self) -> bool {
        self.url.starts_with("memory:")
    }

    /// The folder of a temporary store.
    pub(crate) fn temporary(&self) -> Option<&Path> {
        self.temporary.as_ref().map(Temporary::path)
    }

    /// What the command's host pools are made of, by the store's options.
    pub(crate) fn memory(&self) -> RegionSpec {
        self.common.pool_memory()
    }

    /// Host memory for one page, this command's own whatever the option `allocator` says: nobody else is to map it.
    pub(crate) fn one_page(&self, layout: &PageLayout, backend: &dyn StorageBackend) -> Result<PageMut> {
        let pool = self.pool(backend, layout, 1, self.common.own_memory())?;
        Ok(pool.alloc(1).expect("the pool is new and has one slot").remove(0))
    }

    /// Closes the store and opens it again.
    pub(crate) fn reopen(&mut self) -> Result<()> {
        self.close()?;
        self.store = self.opener.open(&self.url)?;
        Ok(())
    }

    /// Removes the pages of `namespace`: with a temporary store, the store, and a fresh one takes its place beside it.
    pub(crate) fn renew(&mut self, namespace: &Namespace) -> Result<()> {
        let Some(parent) = self.temporary().and_then(Path::parent) else { return self.clear(namespace) };
        let folder = Temporary::in_folder(parent, &self.interrupt)?;
        self.close()?;
        self.url = file_url(folder.path())?;
        self.store = self.opener.open(&self.url)?;
        if let Some(old) = &mut self.temporary {
            folder.replace(old);
        }
        Ok(())
    }

    /// Removes the pages of `namespace`.
    pub(crate) fn clear(&self, namespace: &Namespace) -> Result<()> {
        self.store.clear_blocking(namespace)?;
        Ok(())
    }

    /// Removes what a measurement has written into a namespace of its own. Where that fails, it is told what is left,
    /// and how to remove it: nobody else knows of it.
    pub(crate) fn clear_measured(&self, namespace: &Namespace) -> Result<()> {
        self.clear(namespace)
            .inspect_err(|_| output::note(format_args!("note: {}", self.left_of_measurement(namespace))))
    }

    /// Has a second signal tell of what a measurement writes into `namespace`, until the returned value goes. Of a
    /// temporary store that is told as a whole.
    pub(crate) fn leaves_measured(&self, namespace: &Namespace) -> Option<Leftover> {
        let kept = self.temporary.is_none() && !self.is_memory();
        kept.then(|| self.interrupt.leaves(self.left_of_measurement(namespace)))
    }

    fn left_of_measurement(&self, namespace: &Namespace) -> String {
        let (name, flags) = (namespace.name(), self.flags());
        format!(
            "what this measurement wrote is left in namespace {name}: `hicache drop {name} {flags}` removes it"
        )
    }

    /// The directory of a file store.
    pub(crate) fn folder(&self) -> Result<Option<PathBuf>> {
        folder_of(&self.url)
    }

    /// Refuses before it begins what would end in a full medium. `doing` says what.
    pub(crate) fn check_room(&self, doing: &'static str, bytes: u64) -> Result<()> {
        let available = self.store.health().available_len;
        match available.filter(|available| *available < bytes.saturating_add(bytes / 8)) {
            Some(available) => Err(hicache::Error::new(ErrorKind::NoSpace, doing)
                .why(format_args!("it needs {}, and {} are free", Size(bytes), Size(available)))
                .with("store", self.url())
                .fix(if self.is_memory() {
                    "let it hold more (memory:?capacity=SIZE), or name a store elsewhere with --backend"
                } else {
                    "free space there, or name a store elsewhere with --backend"
                })
                .into()),
            None => Ok(()),
        }
    }

    /// Ends what was accepted and lets go of the store.
    pub(crate) fn close(&self) -> Result<()> {
        Ok(self.store.close_blocking()?)
    }

    /// The namespaces recorded in the store.
    pub(crate) fn namespaces(&self) -> Result<Vec<Namespace>> {
        Ok(self.store.namespaces_blocking()?)
    }

    /// The recorded namespace of that name, or else of that digest.
    pub(crate) fn namespace(&self, name: &str) -> Result<Option<Namespace>> {
        let all = self.namespaces()?;
        let named: Vec<&Namespace> = all.iter().filter(|namespace| namespace.name() == name).collect();
        match named.as_slice() {
            [] => Ok(all.iter().find(|namespace| namespace.digest().to_string() == name).cloned()),
            [one] => Ok(Some((*one).clone())),
            several => {
                let digests: Vec<String> =
                    several.iter().map(|namespace| namespace.digest().to_string()).collect();
                Err(Failure::Usage(format!(
                    "{} namespaces of this store are called {name:?}; give the digest of one: {}",
                    several.len(),
                    digests.join(", ")
                )))
            }
        }
    }

    /// The recorded namespace of that name or digest, which must be there.
    pub(crate) fn known_namespace(&self, name: &str) -> Result<Namespace> {
        if let Some(namespace) = self.namespace(name)? {
            return Ok(namespace);
        }
        self.check_whole()?;
        let names: Vec<_> =
            self.namespaces()?.iter().map(|namespace| format!("{:?}", namespace.name())).collect();
        let known =
            if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
        Err(Failure::Usage(format!("the store has no namespace {name:?}; {known}")))
    }

    /// Fails where a part of the store cannot be asked, as a tier that is lost: what the rest does not know may be
    /// there. A walk needs all of it, also one that finds nothing.
    pub(crate) fn check_whole(&self) -> Result<()> {
        let nobodys: Digest = "0".repeat(64).parse()?;
        let scan = Scan { namespace: Some(nobodys), ..Scan::default() };
        Ok(self.store.scan(scan, Box::new(|_| ControlFlow::Break(()))).wait()?)
    }

    /// The digest of the recorded namespace of that name or digest, or else of one that has lost its record, and of
    /// which something is there.
    pub(crate) fn digest(&self, name: &str) -> Result<Digest> {
        match name.parse::<Digest>() {
            Ok(digest) if self.namespace(name)?.is_none() && self.holds(digest)? => Ok(digest),
            _ => Ok(self.known_namespace(name)?.digest()),
        }
    }

    /// Whether anything is there under that digest.
    fn holds(&self, digest: Digest) -> Result<bool> {
        let any = Arc::new(AtomicBool::new(false));
        let found = Arc::clone(&any);
        let note = move |_| {
            found.store(true, Ordering::SeqCst);
            ControlFlow::Break(())
        };
        let scan = Scan { namespace: Some(digest), ..Scan::default() };
        self.store.scan(scan, Box::new(note)).wait()?;
        Ok(any.load(Ordering::SeqCst))
    }

    /// The store seen through `namespace`.
    pub(crate) fn backend(&self, namespace: Namespace) -> Result<Arc<dyn StorageBackend>> {
        Ok(self.store.backend(namespace)?)
    }

    /// Runs `act`, then closes the store whatever came of it. What `act` met goes first.
    pub(crate) fn run<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let result = act(self);
        let closed = self.close();
        let value = result?;
        closed?;
        Ok(value)
    }
}

/// What takes a while is told before it begins, and how to go without.
impl Drop for Session {
    fn drop(&mut self) {
        if let Some(folder) = self.temporary().filter(|_| self.tells) {
            output::note(format_args!(
                "note: removing the temporary store {}; with --backend URL a store is kept",
                folder.display()
            ));
        }
    }
}

/// What sets that so much memory is available: the limit of a container, or the machine.
fn limit_of_memory(available: u64) -> String {
    // What is in use changes from one look to the next.
    let about = available.saturating_add(available / 8);
    let limit = Machine::default().memory_limit().filter(|limit| limit.headroom() <= about);
    limit.map_or_else(|| "MemAvailable".to_owned(), |limit| limit.file.display().to_string())
}

/// The sources of options, and the URL that the flags or the configuration name.
pub(crate) fn named(place: &Place, absent: Absent) -> Result<(Opener, Option<String>)> {
    let config = place.config.as_ref().map(ConfigFile::read).transpose()?;
    let url = place.backend.clone().or_else(|| config.as_ref()?.backend().map(str::to_owned));
    let environment = Environment::of_process();
    let existing = absent == Absent::Refuse;
    let opener = Opener { config, environment, existing, ..Opener::default() };
    opener.check_names()?;
    Ok((opener, url))
}

/// The URL that the flags, the configuration or SGLang's variables name, if they do.
#[cfg(feature = "obj")]
pub(crate) fn named_url(place: &Place) -> Result<Option<String>> {
    let (opener, url) = named(place, Absent::Refuse)?;
    Ok(url.map_or_else(|| opener.url(), |url| Ok(Some(url)))?)
}

/// The flags that name the store at `url` to another command, without secrets.
pub(crate) fn flags(opener: &Opener, url: &str) -> String {
    let named = format!("--backend '{}'", opener.registry.redact(url));
    opener.config.as_ref().map_or(named.clone(), |config| format!("{named} --config '{}'", config.path()))
}

/// The folder of this user's caches.
fn cache_folder() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))
}

/// Where the user's own store is.
pub(crate) fn default_folder() -> Result<PathBuf> {
    cache_folder().map(|folder| folder.join("hicache")).ok_or_else(|| {
        Failure::Usage("neither XDG_CACHE_HOME nor HOME is set; name a store with --backend".to_owned())
    })
}

pub(crate) fn default_url() -> Result<String> {
    file_url(&default_folder()?)
}

/// What a path in a URL does not hold as it is.
const IN_URL: &AsciiSet = &CONTROLS.add(b'%').add(b'?').add(b'&').add(b'=');

/// A path as a URL says it.
fn file_url(path: &Path) -> Result<String> {
    let text = path.to_str().ok_or_else(|| {
        Failure::Usage(format!("{} is not UTF-8; name a store with --backend", path.display()))
    })?;
    Ok(format!("file:{}", utf8_percent_encode(text, IN_URL)))
}

/// A fresh folder beside the user's own store, or among the temporary files where the caches are not on a disk.
fn temporary_folder(interrupt: &Interrupt) -> Result<Temporary> {
    let cached = cache_folder().filter(|folder| temporary::is_on_disk(folder));
    match cached.map(|folder| Temporary::in_folder(&folder, interrupt)) {
        Some(Ok(folder)) => Ok(folder),
        _ => Temporary::in_folder(&std::env::temp_dir(), interrupt),
    }
}

/// The directory of a file store; `None` for a URL of another kind.
pub(crate) fn folder_of(url: &str) -> Result<Option<PathBuf>> {
    let registry = hicache::registry();
    let (factory, rest) = registry.factory(url)?;
    if factory.scheme != "file" {
        return Ok(None);
    }
    let location = rest.split_once('?').map_or(rest, |(location, _)| location);
    let location = location.strip_prefix("//").unwrap_or(location);
    let decoded = percent_decode_str(location).decode_utf8_lossy();
    Ok(Some(decoded.into_owned().into()))
}
