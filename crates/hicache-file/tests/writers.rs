//! Many writers, and writers that die: nobody reads a torn or a foreign page, and nothing of the dead stays.

mod stage;

use hicache_core::{
    Backing, DType, Depth, Geometry, Identity, Namespace, PageLayout, PageOrder, Rank, State, Store, Stored,
};
use hicache_file::{FileOptions, FileStore, Seam, SysCall, Verdict};
use stage::{Stage, child, child_argument, eventually, files, get, leftovers, pool_of, set};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PAGE_LEN: usize = 40_000;

/// A seam of a file system that has no unnamed files.
fn no_unnamed() -> Option<Seam> {
    Some(Seam::new(|call, _| match call {
        SysCall::OpenUnnamed => Verdict::Fail(libc::EOPNOTSUPP),
        _ => Verdict::Pass,
    }))
}

fn spawn(test: &str, argument: &str) -> Child {
    child(test, argument, &[]).stdout(Stdio::null()).spawn().unwrap()
}

fn opened(argument: &str) -> Stage {
    let (dir, named) = argument.rsplit_once('|').unwrap();
    let seam = if named == "named" { no_unnamed() } else { None };
    Stage::at(Path::new(dir), PAGE_LEN, FileOptions::default(), seam).unwrap()
}

#[test]
fn a_writer_killed_at_any_moment_leaves_no_torn_page_no_phantom_and_no_file() {
    let test = "a_writer_killed_at_any_moment_leaves_no_torn_page_no_phantom_and_no_file";
    if let Some(argument) = child_argument() {
        let stage = opened(&argument);
        let mut n = 0;
        loop {
            // Old pages are present, new ones are written; never an end.
            stage.set(n % 500).unwrap();
            n += 1;
            if n % 40 == 0 {
                stage.backend_remove(n % 500);
            }
        }
    }
    for named in ["unnamed", "named"] {
        let temporary = tempfile::tempdir().unwrap();
        let dir = temporary.path().join("store");
        let argument = format!("{}|{named}", dir.display());
        for round in 0..50 {
            let mut writer = spawn(test, &argument);
            eventually(|| dir.join("ns").exists());
            std::thread::sleep(Duration::from_millis(1 + round * 7 % 40));
            writer.kill().unwrap();
            writer.wait().unwrap();
            let start = Instant::now();
            let stage = Stage::at(&dir, PAGE_LEN, FileOptions::default(), None).unwrap();
            assert!(start.elapsed() < Duration::from_secs(2), "an open scans nothing");
            assert!(leftovers(&dir).is_empty(), "{named}: {:?}", leftovers(&dir));
            if round % 10 == 9 {
                for n in 0..500 {
                    let there = stage.exists(n);
                    assert_eq!(
                        stage.get(n).unwrap(),
                        there,
                        "page {n}: what is there is served, what is not is not"
                    );
                }
                let finds = stage.scan(Depth::Contents, false);
                assert!(finds.iter().all(|found| found.state == State::Sound), "{finds:?}");
            }
            assert_eq!(stage.backend.stats().damaged, 0);
        }
    }
}

impl Stage {
    fn backend_remove(&self, n: u64) {
        use hicache_core::StorageBackendExt;
        self.backend.remove(stage::key(n)).wait().unwrap();
    }
}

#[test]
fn b050_eight_writers_of_the_same_keys_never_fail_or_tear_and_one_dies() {
    let test = "b050_eight_writers_of_the_same_keys_never_fail_or_tear_and_one_dies";
    if let Some(argument) = child_argument() {
        let stage = opened(&argument);
        for n in 0..200 {
            stage.set(n % 16).unwrap();
            // Every third time the page is made new, so that writers race for its name.
            if n % 3 == 0 {
                stage.backend_remove(n * 7 % 16);
            }
            stage.get(n * 5 % 16).unwrap();
        }
        return;
    }
    for named in ["unnamed", "named"] {
        let temporary = tempfile::tempdir().unwrap();
        let dir = temporary.path().join("store");
        let argument = format!("{}|{named}", dir.display());
        let mut writers: Vec<Child> = (0..8).map(|_| spawn(test, &argument)).collect();
        let stage = opened(&argument);
        std::thread::sleep(Duration::from_millis(30));
        writers[3].kill().unwrap();
        for n in 0..400 {
            stage.get(n % 16).unwrap();
        }
        for (number, writer) in writers.iter_mut().enumerate() {
            let status = writer.wait().unwrap();
            assert!(status.success() || number == 3, "writer {number}: {status}");
        }
        assert_eq!(stage.backend.stats().damaged, 0);
        drop(stage);
        let stage = Stage::at(&dir, PAGE_LEN, FileOptions::default(), None).unwrap();
        assert!(leftovers(&dir).is_empty(), "{:?}", leftovers(&dir));
        (0..16).for_each(|n| assert!(stage.set(n).is_ok() && stage.get(n).unwrap()));
    }
}

#[test]
fn b055_temporaries_of_a_living_writer_stay_and_those_of_a_dead_one_go() {
    let test = "b055_temporaries_of_a_living_writer_stay_and_those_of_a_dead_one_go";
    if let Some(argument) = child_argument() {
        // Every write hangs, so that a temporary file is under way for as long as this process lives.
        let (dir, _) = argument.rsplit_once('|').unwrap();
        let seam = Seam::new(|call, place| match call {
            SysCall::OpenUnnamed => Verdict::Fail(libc::EOPNOTSUPP),
            SysCall::Link | SysCall::Rename if place.starts_with("ns/") && place.len() > 100 => {
                std::thread::sleep(Duration::from_secs(3600));
                Verdict::Pass
            }
            _ => Verdict::Pass,
        });
        let stage = Stage::at(Path::new(dir), PAGE_LEN, FileOptions::default(), Some(seam)).unwrap();
        let _ = stage.set(7);
        return;
    }
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("store");
    drop(Stage::at(&dir, PAGE_LEN, FileOptions::default(), None).unwrap());
    let mut writer = spawn(test, &format!("{}|named", dir.display()));
    let under_way = || files(&dir).into_iter().filter(|file| file.starts_with(dir.join("tmp"))).count();
    eventually(|| {
        under_way() == 2 && leftovers(&dir).iter().any(|file| file.metadata().is_ok_and(|m| m.len() > 4096))
    });
    let stage = Stage::at(&dir, PAGE_LEN, FileOptions::default(), None).unwrap();
    assert_eq!(under_way(), 2, "a lock and a file: the writer lives");
    assert!(!stage.exists(7));
    std::fs::write(dir.join("ns/foreign"), b"not ours").unwrap();
    writer.kill().unwrap();
    writer.wait().unwrap();
    let stage = stage.reopen_at(&dir);
    assert_eq!(under_way(), 0);
    assert!(dir.join("ns/foreign").exists(), "what is not ours stays");
    assert!(!stage.exists(7));
    stage.set(7).unwrap();
    assert!(stage.get(7).unwrap());
}

impl Stage {
    fn reopen_at(self, dir: &Path) -> Self {
        drop(self);
        Self::at(dir, PAGE_LEN, FileOptions::default(), None).unwrap()
    }
}

fn identity(layout: PageLayout, tp: u32, pp: u32, replicated: bool) -> Namespace {
    Namespace::of(&Identity {
        model: "org/model".to_string(),
        revision: None,
        pool: "kv".to_string(),
        layout,
        tp: Rank { rank: tp, size: 2 },
        pp: Rank { rank: pp, size: 2 },
        cp: Rank::ALONE,
        dcp: Rank::ALONE,
        replicated,
        heads: None,
    })
    .unwrap()
}

#[test]
fn b018_ranks_that_differ_never_mix_and_replicas_share() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("store");
    let mha = Geometry::Mha { layers: 2, tokens: 16, heads: 2, head_dim: 64, dtype: DType::Bf16 };
    let mla = Geometry::Mla { layers: 2, tokens: 16, latent_dim: 576, dtype: DType::Bf16 };
    for (geometry, replicated) in [(mha, false), (mla, true)] {
        let layout = PageLayout::new(geometry, PageOrder::PageFirst).unwrap();
        let pool = pool_of(layout.strides(64, hicache_core::Alignment::NONE).unwrap(), Backing::Private);
        // Keys are the same on every rank; a rank's pattern is the page number that its bytes are made of.
        let open = |tp, pp| {
            let store = FileStore::open(&dir, FileOptions::default()).unwrap();
            store.backend(identity(layout, tp, pp, replicated)).unwrap()
        };
        let ranks = [(0, 0), (1, 0), (0, 1), (0, 0)];
        std::thread::scope(|scope| {
            for (tp, pp) in ranks {
                let (backend, pool) = (open(tp, pp), &pool);
                scope.spawn(move || {
                    (0..50).for_each(|n| put_as(&*backend, pool, n, pattern(tp, pp, replicated)))
                });
            }
        });
        for (tp, pp) in ranks {
            let backend = open(tp, pp);
            for n in 0..50 {
                assert_eq!(got_as(&*backend, &pool, n), Some(pattern(tp, pp, replicated)), "tp {tp} pp {pp}");
            }
            assert_eq!(backend.stats().damaged, 0);
        }
    }
}

fn pattern(tp: u32, pp: u32, replicated: bool) -> u8 {
    (if replicated { 0 } else { tp as u8 } << 1) | pp as u8 | 0x40
}

fn put_as(backend: &dyn hicache_core::StorageBackend, pool: &hicache_core::HostPool, n: u64, pattern: u8) {
    use hicache_core::StorageBackendExt;
    let mut page = loop {
        // Four threads share the pool.
        if let Some(mut pages) = pool.alloc(1) {
            break pages.remove(0);
        }
        std::thread::yield_now();
    };
    let piece = vec![pattern; page.len() / page.planes() as usize];
    (0..page.planes()).for_each(|plane| page.piece_mut(plane).copy_from(0, &piece));
    backend.set(hicache_core::Put { key: stage::key(n), parent: None, page: page.freeze() }).wait().unwrap();
}

fn got_as(backend: &dyn hicache_core::StorageBackend, pool: &hicache_core::HostPool, n: u64) -> Option<u8> {
    use hicache_core::StorageBackendExt;
    let into = pool.alloc(1).unwrap().remove(0);
    let page = backend.get(stage::key(n), into).wait().unwrap()?;
    let content = stage::content(&page);
    assert!(content.iter().all(|byte| *byte == content[0]), "a torn page");
    Some(content[0])
}

#[test]
fn two_stores_in_one_process_share_a_directory() {
    let stage = Stage::new(PAGE_LEN);
    let other = Stage::at(&stage.dir, PAGE_LEN, FileOptions::default(), None).unwrap();
    (0..20).for_each(|n| drop(stage.set(n).map(drop)));
    (0..20).for_each(|n| assert!(get(&*other.backend, &other.pool, n).unwrap()));
    set(&*other.backend, &other.pool, 30).unwrap();
    assert!(stage.get(30).unwrap());
}

#[test]
fn a_page_set_while_damage_is_taken_away_is_not_taken_with_it() {
    for by in ["get", "set", "repair"] {
        let other = Arc::new(Mutex::new(None::<Stage>));
        let theirs = Arc::clone(&other);
        // Just before the damaged file is moved, another writer replaces it by a sound one.
        let seam = Seam::new(move |call, path| {
            if call == SysCall::Rename
                && path.contains(".bad-")
                && let Some(stage) = theirs.lock().unwrap().take()
            {
                std::fs::remove_file(stage.file(1)).unwrap();
                stage.set(1).unwrap();
            }
            Verdict::Pass
        });
        let stage = Stage::with(PAGE_LEN, FileOptions::default(), Some(seam));
        stage.set(1).unwrap();
        std::fs::write(stage.file(1), b"damaged").unwrap();
        *other.lock().unwrap() = Some(Stage::at(&stage.dir, PAGE_LEN, FileOptions::default(), None).unwrap());
        match by {
            "get" => assert!(!stage.get(1).unwrap()),
            "set" => assert_eq!(stage.set(1).unwrap(), Stored::Present),
            _ => drop(stage.scan(Depth::Contents, true)),
        }
        assert!(other.lock().unwrap().is_none(), "{by}: the other writer was there");
        assert!(stage.get(1).unwrap(), "{by}: its page is there");
        assert!(stage.scan(Depth::Contents, false).iter().all(|found| found.state == State::Sound), "{by}");
    }
}

/// The race itself, as `drop` of another process runs it: its rename falls between two folders of a set.
#[test]
fn a_namespace_that_is_dropped_while_a_set_makes_its_folders_is_made_anew_or_told() {
    for (gone, stays) in [(3, false), (u32::MAX, true)] {
        let left = Arc::new(AtomicU32::new(gone));
        let seam = Seam::new(move |call, _| match call {
            SysCall::MakeDir if left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() => {
                Verdict::Fail(libc::ENOENT)
            }
            _ => Verdict::Pass,
        });
        let stage = Stage::with(4096, FileOptions::default(), Some(seam));
        let set = stage.set(1);
        if !stays {
            set.unwrap();
            continue;
        }
        let error = set.unwrap_err();
        assert!(error.is_retryable() && error.reason().contains("drop the namespace"), "{error}");
        assert!(error.advice().unwrap().contains("do it again"), "{error}");
    }
}
