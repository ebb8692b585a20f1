//! What the tests of the file store stand on: stores in fresh folders, pages with known bytes, other processes.
#![allow(dead_code, unused_imports, reason = "each test binary uses its part")]

mod adopted;

pub(crate) use adopted::adopted_pool;

use hicache_core::{
    Alignment, Backing, Depth, Found, HostPool, HugePages, Namespace, Page, PageKey, PageLayout, PageMut,
    Put, RegionSpec, Result, Scan, StorageBackend, StorageBackendExt, Store, Stored, Strides,
};
use hicache_file::{Engine, FileOptions, FileStore, Seam, SysCall, Verdict};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const CHILD: &str = "HICACHE_TEST_CHILD";
const CEILING: Duration = Duration::from_secs(120);

/// A store in a folder of its own, one namespace of it, and a pool.
pub(crate) struct Stage {
    pub(crate) store: FileStore,
    pub(crate) backend: Arc<dyn StorageBackend>,
    pub(crate) pool: HostPool,
    pub(crate) layout: PageLayout,
    pub(crate) dir: PathBuf,
    temporary: Option<tempfile::TempDir>,
}

impl Stage {
    /// With pages of `len` bytes, in a pool that fits the device.
    pub(crate) fn new(len: usize) -> Self {
        Self::with(len, FileOptions::default(), None)
    }

    pub(crate) fn with(len: usize, options: FileOptions, seam: Option<Seam>) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let dir = temporary.path().join("store");
        let mut stage = Self::at(&dir, len, options, seam).unwrap();
        stage.temporary = Some(temporary);
        stage
    }

    pub(crate) fn at(dir: &Path, len: usize, options: FileOptions, seam: Option<Seam>) -> Result<Self> {
        let store = FileStore::open_with(dir, options, seam)?;
        let layout = PageLayout::opaque(len)?;
        let backend = store.backend(Namespace::named("test", layout)?)?;
        let pool = pool(&layout, 64, backend.capabilities().alignment);
        Ok(Self { store, backend, pool, layout, dir: dir.to_path_buf(), temporary: None })
    }

    /// The same directory, opened anew. Drop what uses the old one first.
    pub(crate) fn reopen(self) -> Self {
        let Self { store, backend, dir, layout, temporary, pool } = self;
        drop((store, backend, pool));
        let mut stage = Self::at(&dir, layout.page_len(), FileOptions::default(), None).unwrap();
        stage.temporary = temporary;
        stage
    }

    pub(crate) fn page(&self) -> PageMut {
        self.pool.alloc(1).expect("a free slot").remove(0)
    }

    pub(crate) fn set(&self, n: u64) -> Result<Stored> {
        set(&*self.backend, &self.pool, n)
    }

    /// Whether page `n` is served, which must then be right.
    pub(crate) fn get(&self, n: u64) -> Result<bool> {
        get(&*self.backend, &self.pool, n)
    }

    pub(crate) fn exists(&self, n: u64) -> bool {
        self.backend.exists(key(n)).wait().unwrap()
    }

    /// Where page `n` lies.
    pub(crate) fn file(&self, n: u64) -> PathBuf {
        let name = key(n).to_string();
        let found =
            files(&self.dir).into_iter().find(|file| file.file_name().unwrap().to_str() == Some(&name));
        found.unwrap_or_else(|| panic!("page {n} has no file"))
    }

    pub(crate) fn scan(&self, depth: Depth, repair: bool) -> Vec<Found> {
        let finds = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&finds);
        let scan = Scan { namespace: None, depth, repair };
        let visitor = move |found| {
            sink.lock().unwrap().push(found);
            std::ops::ControlFlow::Continue(())
        };
        self.store.scan(scan, Box::new(visitor)).wait().unwrap();
        let mut finds = finds.lock().unwrap();
        std::mem::take(&mut *finds)
    }

    /// Every slot is free, at once or soon.
    pub(crate) fn all_slots_come_back(&self) {
        eventually(|| self.pool.available() == self.pool.slots() as usize);
    }
}

pub(crate) fn key(n: u64) -> PageKey {
    PageKey::of_page(None, &[n], Default::default()).unwrap()
}

pub(crate) fn pool(layout: &PageLayout, slots: u32, alignment: Alignment) -> HostPool {
    pool_of(layout.strides(slots, alignment).unwrap(), Backing::Private)
}

pub(crate) fn pool_of(strides: Strides, backing: Backing) -> HostPool {
    let spec =
        RegionSpec { len: strides.region_len(), backing, huge_pages: HugePages::Off, ..Default::default() };
    HostPool::new(spec.map().unwrap(), strides, &[]).unwrap()
}

/// Byte `at` of page `n`.
fn byte(n: u64, at: usize) -> u8 {
    let word =
        (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (at as u64 / 8).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (word >> (8 * (at % 8))) as u8 ^ (word >> 56) as u8
}

pub(crate) fn bytes(n: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| byte(n, at)).collect()
}

pub(crate) fn fill(page: &mut PageMut, n: u64) {
    let (all, piece_len) = (bytes(n, page.len()), page.len() / page.planes() as usize);
    for (plane, piece) in (0..page.planes()).zip(all.chunks(piece_len)) {
        page.piece_mut(plane).copy_from(0, piece);
    }
}

pub(crate) fn content(page: &Page) -> Vec<u8> {
    let piece_len = page.len() / page.planes() as usize;
    let mut all = vec![0; page.len()];
    for (plane, piece) in (0..page.planes()).zip(all.chunks_mut(piece_len)) {
        page.piece(plane).copy_to(0, piece);
    }
    all
}

pub(crate) fn put(pool: &HostPool, n: u64) -> Put {
    let mut page = pool.alloc(1).expect("a free slot").remove(0);
    fill(&mut page, n);
    Put { key: key(n), parent: n.checked_sub(1).map(key), page: page.freeze() }
}

pub(crate) fn set(backend: &dyn StorageBackend, pool: &HostPool, n: u64) -> Result<Stored> {
    backend.set(put(pool, n)).wait()
}

pub(crate) fn get(backend: &dyn StorageBackend, pool: &HostPool, n: u64) -> Result<bool> {
    let mut into = pool.alloc(1).expect("a free slot").remove(0);
    let stale = vec![0xAA; into.len() / into.planes() as usize];
    (0..into.planes()).for_each(|plane| into.piece_mut(plane).copy_from(0, &stale));
    let got = backend.get(key(n), into).wait()?;
    if let Some(page) = &got {
        assert!(content(page) == bytes(n, page.len()), "page {n} was served with wrong bytes");
    }
    Ok(got.is_some())
}

/// All that is no folder, under `dir`.
pub(crate) fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            all.extend(files(&entry.path()));
        } else {
            all.push(entry.path());
        }
    }
    all
}

/// Files that are neither the marker, a record, nor a page.
pub(crate) fn leftovers(dir: &Path) -> Vec<PathBuf> {
    let belongs = |file: &PathBuf| {
        let name = file.file_name().unwrap().to_str().unwrap();
        name == "hicache.store" || name == "namespace" || name.parse::<PageKey>().is_ok()
    };
    files(dir).into_iter().filter(|file| !belongs(file)).collect()
}

/// A seam that answers `verdict` to the calls `which` picks, by the call and its number among its kind from 0.
pub(crate) fn seam(
    which: impl Fn(SysCall, usize) -> Option<Verdict> + Send + Sync + 'static,
) -> Option<Seam> {
    let counts = Mutex::new(std::collections::HashMap::<SysCall, usize>::new());
    Some(Seam::new(move |call, _| {
        let number = {
            let mut counts = counts.lock().unwrap();
            let count = counts.entry(call).or_default();
            *count += 1;
            *count - 1
        };
        which(call, number).unwrap_or(Verdict::Pass)
    }))
}

/// With the engine whose system calls a seam sees one by one.
pub(crate) fn threads() -> FileOptions {
    FileOptions { engine: Engine::Threads, ..Default::default() }
}

/// How often a test of a race tries: `HICACHE_TEST_REPEAT` times, or a few.
pub(crate) fn repeats() -> usize {
    std::env::var("HICACHE_TEST_REPEAT")
        .map_or(5, |count| count.parse().expect("HICACHE_TEST_REPEAT is a number"))
}

pub(crate) fn eventually(holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < CEILING, "it never came true");
        std::thread::sleep(Duration::from_millis(1));
    }
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

/// The argument that this process was given by [`child`], when it is one.
pub(crate) fn child_argument() -> Option<String> {
    std::env::var(CHILD).ok()
}

/// This test binary again, to run `test` alone with an argument. `wrap` is put before the command.
pub(crate) fn child(test: &str, argument: &str, wrap: &[&str]) -> Command {
    let exe = std::env::current_exe().unwrap();
    let mut words: Vec<&str> = wrap.to_vec();
    words.push(exe.to_str().unwrap());
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env(CHILD, argument).stdin(Stdio::null());
    command
}

/// Runs the command of [`child`] to its end, which must be good and of one test.
fn run(test: &str, mut command: Command) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success(), "{test} ended with {}\n{text}", output.status);
    assert!(text.contains("1 passed"), "there is no test {test}\n{text}");
}

/// Runs `test` again in a process of its own; true in that process. The parent waits, and checks how it ended.
pub(crate) fn in_child(test: &str) -> bool {
    if child_argument().is_some() {
        return true;
    }
    run(test, child(test, "alone", &[]));
    false
}

/// Runs `test` again as root with mounts of its own, made by `script` on the folder `$D`; gives that folder in that
/// process, and `None` in the parent, which has then seen the outcome.
pub(crate) fn with_mounts(test: &str, script: &str) -> Option<PathBuf> {
    if let Some(dir) = child_argument() {
        return Some(dir.into());
    }
    if !is_root() {
        skip(test, "needs root for mounts");
        return None;
    }
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().to_str().unwrap();
    let script = format!("set -e; D={dir}; {script}; exec \"$@\"");
    let wrap = ["unshare", "--mount", "--propagation", "private", "sh", "-c", &script, "sh"];
    run(test, child(test, dir, &wrap));
    None
}

pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|proc| std::os::unix::fs::MetadataExt::uid(&proc) == 0)
}
