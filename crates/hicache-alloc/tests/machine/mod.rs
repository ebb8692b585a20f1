//! The machine under a test: its huge pages, a child process, the kernel's account, the events told.

use hicache_alloc::HugePageSize;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const CHILD: &str = "HICACHE_ALLOC_TEST_CHILD";
const CEILING: Duration = Duration::from_secs(30);

/// Threads of this binary take turns by the mutex, processes by the file.
static TURN: Mutex<()> = Mutex::new(());

/// The numbers of reserved huge pages, held at a value and put back on drop.
pub(crate) struct ReservedPages {
    before: Vec<(PathBuf, String)>,
    _file: Option<File>,
    _turn: Option<MutexGuard<'static, ()>>,
}

impl ReservedPages {
    /// `None`, with the reason printed, where this process cannot set them. A child inherits its parent's hold.
    pub(crate) fn hold(wanted: &[(HugePageSize, usize)]) -> Option<Self> {
        if in_child() {
            return Some(Self { before: Vec::new(), _file: None, _turn: None });
        }
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let file = File::create(std::env::temp_dir().join("hicache-huge-pages.lock")).unwrap();
        file.lock().unwrap();
        let mut held = Self { before: Vec::new(), _file: Some(file), _turn: Some(turn) };
        for (size, pages) in wanted {
            let kib = size.alignment().bytes() / 1024;
            let path = PathBuf::from(format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages"));
            let before = fs::read_to_string(&path).unwrap_or_else(|_| "0".to_owned()).trim().to_owned();
            let wanted = pages.to_string();
            if before == wanted {
                continue;
            }
            let written = fs::write(&path, &wanted);
            if written.is_ok() {
                held.before.push((path.clone(), before));
            }
            let got = fs::read_to_string(&path).unwrap_or_default();
            if got.trim() != wanted {
                eprintln!("skipped: {wanted} pages of {size} wanted, {} had ({written:?})", got.trim());
                return None;
            }
        }
        Some(held)
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

/// Runs `body` in a process of its own, which must end normally within the ceiling. `test` is the calling test.
pub(crate) fn child(test: &str, body: impl FnOnce()) {
    if in_child() {
        return body();
    }
    let mut output = tempfile::tempfile().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
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

fn in_child() -> bool {
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
