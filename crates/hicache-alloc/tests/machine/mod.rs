//! The machine under a test: its huge pages, a child process, the kernel's account, the events told.
#![allow(dead_code, reason = "no test binary uses all of it")]

pub(crate) mod refuse;

use hicache_alloc::{Alignment, HostPool, HugePageSize, Machine, MachinePaths, PageIndex, Region, Strides};
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const MOUNT: &str = "HICACHE_ALLOC_TEST_MOUNT";
const CHILD: &str = "HICACHE_ALLOC_TEST_CHILD";
/// How long somebody else may keep huge pages to themselves.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pages of 2 MiB beyond those wanted.
const SPARE: usize = 12;
const CEILING: Duration = Duration::from_secs(120);

/// Threads of this binary take turns by the mutex, processes by the file.
static TURN: Mutex<()> = Mutex::new(());

/// The numbers of reserved huge pages, held at a value and put back on drop.
pub(crate) struct ReservedPages {
    before: Vec<(PathBuf, String)>,
    _file: Option<File>,
    _turn: Option<MutexGuard<'static, ()>>,
}

impl ReservedPages {
    /// Just no pages, or so many free ones and some to spare: others on this machine may take what they find.
    /// `None`, with the reason told, where this process cannot set them. A child inherits its parent's hold.
    /// A test that may take such pages without asking for a number of them holds none (`&[]`), so that it takes none
    /// from one that does.
    pub(crate) fn hold(test: &str, wanted: &[(HugePageSize, usize)]) -> Option<Self> {
        if in_child() {
            return Some(Self { before: Vec::new(), _file: None, _turn: None });
        }
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // Another user's file cannot be opened, and who is not root sets nothing anyway.
        let file = File::create(std::env::temp_dir().join("hicache-huge-pages.lock")).ok();
        if let Some(file) = &file {
            file.lock().unwrap();
        }
        let mut held = Self { before: Vec::new(), _file: file, _turn: Some(turn) };
        for (size, pages) in wanted {
            if let Err(got) = held.set(*size, *pages) {
                let what =
                    if rustix::process::geteuid().is_root() { "needs" } else { "needs root to reserve" };
                skip(test, &format!("{what} {pages} free pages of {size}, got {got}"));
                return None;
            }
        }
        Some(held)
    }

    /// Sets the number, and waits for somebody else's pages to be given back if there are to be none.
    fn set(&mut self, size: HugePageSize, wanted: usize) -> Result<(), String> {
        let kib = size.alignment().bytes() / 1024;
        let folder = PathBuf::from(format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB"));
        let number = |name: &str| -> usize {
            let text = fs::read_to_string(folder.join(name)).unwrap_or_default();
            text.trim().parse().unwrap_or(0)
        };
        let path = folder.join("nr_hugepages");
        // Surplus pages are those of somebody who was using them when their number was put back.
        let before = number("nr_hugepages").saturating_sub(number("surplus_hugepages"));
        let start = Instant::now();
        let mut changed = false;
        loop {
            let (total, free) = (number("nr_hugepages"), number("free_hugepages"));
            let got = (total, free.saturating_sub(number("resv_hugepages")));
            if if wanted == 0 { got == (0, 0) } else { got.1 >= wanted } {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("{got:?}"));
            }
            match fs::write(&path, target(got, wanted, size).to_string()) {
                Ok(()) if !changed => {
                    changed = true;
                    self.before.push((path.clone(), before.to_string()));
                }
                Ok(()) => std::thread::sleep(Duration::from_millis(20)),
                Err(error) => return Err(format!("{got:?}: {error}")),
            }
        }
    }
}

/// The number to set where the pool has `total` pages, of which `free` are free, and so many are wanted.
fn target((total, free): (usize, usize), wanted: usize, size: HugePageSize) -> usize {
    match (wanted, size) {
        (0, _) => 0,
        (_, HugePageSize::Size2M) => total - free + wanted + SPARE,
        (_, HugePageSize::Size1G) => total - free + wanted,
    }
}

impl Drop for ReservedPages {
    fn drop(&mut self) {
        for (path, before) in &self.before {
            if let Err(error) = fs::write(path, before) {
                eprintln!("{} could not be put back to {before}: {error}", path.display());
            }
        }
    }
}

/// Says that `test` cannot run here.
pub(crate) fn skip(test: &str, reason: &str) {
    let line = format!("skipped: {test}: {reason}\n");
    eprint!("{line}");
    if let Some(path) = std::env::var_os("HICACHE_TEST_SKIPS") {
        let mut file = File::options().append(true).create(true).open(path).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
}

/// Runs `body` in a process of its own, which must end normally within the ceiling. `test` is the calling test.
pub(crate) fn child(test: &str, body: impl FnOnce()) {
    if in_child() {
        return body();
    }
    run(test, &[]);
}

/// As [`child`], in a process that `wrap`, a command that runs another, starts. Told as skipped if there is no such
/// command here.
pub(crate) fn child_under(test: &str, wrap: &[&str], body: impl FnOnce()) {
    if in_child() {
        return body();
    }
    match Command::new(wrap[0]).arg("--version").output() {
        Ok(_) => run(test, wrap),
        Err(error) => skip(test, &format!("needs {}: {error}", wrap[0])),
    }
}

/// As [`child`], in a mount namespace of its own, where a new tmpfs of that size lies on the folder given to `body`.
pub(crate) fn child_on_tmpfs(test: &str, size: &str, body: impl FnOnce(&Path)) {
    if in_child() {
        return body(Path::new(&std::env::var_os(MOUNT).unwrap()));
    }
    if !rustix::process::geteuid().is_root() {
        return skip(test, "needs root to mount");
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let script =
        format!("mount -t tmpfs -o size={size} tmpfs {folder} && {MOUNT}={folder} exec \"$0\" \"$@\"");
    run(test, &["unshare", "--mount", "sh", "-c", &script]);
}

fn run(test: &str, wrap: &[&str]) {
    let exe = std::env::current_exe().unwrap();
    let mut words = wrap.to_vec();
    words.push(exe.to_str().unwrap());
    let mut output = tempfile::tempfile().unwrap();
    let mut child = Command::new(words[0])
        .args(&words[1..])
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output.try_clone().unwrap())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if start.elapsed() > CEILING => {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let mut text = String::new();
    output.rewind().unwrap();
    output.read_to_string(&mut text).unwrap();
    // A signal has no code.
    assert_eq!(status.and_then(|status| status.code()), Some(0), "{status:?}\n{text}");
    assert!(text.contains("1 passed"), "no test {test}:\n{text}");
}

/// A machine whose facts lie in a folder of the test's: files by their path, the folders `proc`, `sys` and `cgroup`.
/// The accounts of this process's own mappings are the real ones.
pub(crate) fn machine_of(root: &Path, files: &[(&str, &str)]) -> Machine {
    let own = root.join("proc/self");
    fs::create_dir_all(&own).unwrap();
    for name in ["smaps", "numa_maps", "mountinfo"] {
        std::os::unix::fs::symlink(Path::new("/proc/self").join(name), own.join(name)).unwrap();
    }
    for (name, text) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let [procfs, sysfs, cgroupfs] = ["proc", "sys", "cgroup"].map(|name| root.join(name));
    Machine::new(MachinePaths { procfs, sysfs, cgroupfs, ..Default::default() })
}

/// Whether this process is the child of [`child`] and its like.
pub(crate) fn in_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs `body` and returns its value and the lines of all events of level WARN and above on this thread.
pub(crate) fn warnings<T>(body: impl FnOnce() -> T) -> (T, Vec<String>) {
    let mut file = tempfile::tempfile().unwrap();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_ansi(false)
        .with_writer(Arc::new(file.try_clone().unwrap()))
        .finish();
    let value = tracing::subscriber::with_default(subscriber, body);
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    (value, text.lines().map(str::to_owned).collect())
}

/// The words of one line of the account of the mapping that holds `address`, without its name.
pub(crate) fn account(address: *const u8, name: &str) -> Vec<String> {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    for line in smaps.lines() {
        let first = line.split(' ').next().unwrap();
        if let Some((start, end)) = first.split_once('-') {
            let [start, end] = [start, end].map(|word| usize::from_str_radix(word, 16).unwrap());
            inside = (start..end).contains(&address.addr());
        } else if let (true, Some(rest)) = (inside, line.strip_prefix(name)) {
            return rest.trim_start_matches(':').split_ascii_whitespace().map(str::to_owned).collect();
        }
    }
    panic!("no {name} of {address:?}");
}

/// A number of `/proc/self/status`, in KiB.
pub(crate) fn status_kib(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Lines of `/proc/self/maps` that look like a region, and open descriptors: neither may grow.
pub(crate) fn leftovers() -> (usize, usize) {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let regions =
        maps.lines().filter(|line| line.contains("hicache (deleted)") || line.contains("anon_hugepage"));
    (regions.count(), fs::read_dir("/proc/self/fd").unwrap().count())
}

/// Writes every page of the region and reads it back, through a pool of one slot.
pub(crate) fn use_all(region: Region) {
    let strides = Strides::new(1, 1, region.len(), Alignment::NONE).unwrap();
    let pool = HostPool::new(region, strides, &[]).unwrap();
    let mut page = pool.claim(PageIndex::new(0)).unwrap();
    for offset in (0..page.len()).step_by(Alignment::base_page().bytes()) {
        let mut back = [0xff];
        page.piece(0).copy_to(offset, &mut back);
        assert_eq!(back, [0], "fresh memory is zero");
        page.piece_mut(0).copy_from(offset, &[7]);
        page.piece(0).copy_to(offset, &mut back);
        assert_eq!(back, [7]);
    }
}
