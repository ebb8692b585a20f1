//! The kernel says no, late, or something else: what a store makes of it.

mod stage;

use hicache_core::{
    Call, Deadline, Depth, ErrorKind, Get, Namespace, PageIndex, PageLayout, Put, StorageBackendExt, Store,
    Stored,
};
use hicache_file::{Direct, Durability, Engine, FileOptions, FileStore, Seam, SysCall, Verdict};
use stage::{Stage, in_child, key, put, seam};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

fn options(direct: Direct) -> FileOptions {
    FileOptions { direct, ..Default::default() }
}

/// A switch that a seam's rule looks at.
fn switch() -> (Arc<AtomicBool>, Arc<AtomicBool>) {
    let switch = Arc::new(AtomicBool::new(false));
    (Arc::clone(&switch), switch)
}

#[test]
fn b036_direct_io_refused_after_open_goes_on_buffered_once_and_told() {
    for refused in [SysCall::Write, SysCall::Read] {
        let (on, armed) = switch();
        let refusals = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&refusals);
        let rule = seam(move |call, _| {
            // The first call of the kind is the direct one; the buffered one after it passes.
            let refuse = call == refused && on.swap(false, Ordering::SeqCst);
            refuse.then(|| {
                counted.fetch_add(1, Ordering::SeqCst);
                Verdict::Fail(libc::EINVAL)
            })
        });
        let stage = Stage::with(65_536, options(Direct::Prefer), rule);
        if stage.store.health().fallbacks.iter().any(|fallback| fallback.what == "direct") {
            return stage::skip(
                "b036_direct_io_refused_after_open",
                "needs direct I/O in the temporary directory",
            );
        }
        (0..5).for_each(|n| drop(stage.set(n).map(drop)));
        std::fs::remove_file(stage.file(1)).unwrap();
        armed.store(true, Ordering::SeqCst);
        for n in 0..5 {
            // Page 0 is present, which a set finds out by reading it.
            stage.set(n).unwrap();
            assert!(stage.get(n).unwrap());
        }
        let stats = stage.backend.stats();
        assert_eq!((stats.hits, stats.written, stats.errors, stats.damaged), (5, 6, 0, 0), "{refused:?}");
        assert!(stats.buffered >= 4, "{refused:?}: {stats:?}");
        let told = stage.store.health().fallbacks.into_iter().filter(|fallback| fallback.what == "direct");
        assert_eq!(told.count(), 1);
        assert_eq!(refusals.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn unnamed_files_refused_after_open_give_way_to_temporary_names_and_direct_io_stays() {
    for errno in [libc::EOPNOTSUPP, libc::EISDIR, libc::EINVAL, libc::ENOSYS] {
        let (on, armed) = switch();
        let rule = seam(move |call, _| {
            let refuse = call == SysCall::OpenUnnamed && on.load(Ordering::SeqCst);
            refuse.then_some(Verdict::Fail(errno))
        });
        let stage = Stage::with(65_536, options(Direct::Prefer), rule);
        let direct = stage.store.health().fallbacks.iter().all(|fallback| fallback.what != "direct");
        armed.store(true, Ordering::SeqCst);
        for n in 0..5 {
            assert_eq!(stage.set(n).unwrap(), Stored::Written);
            assert!(stage.get(n).unwrap());
        }
        let told =
            stage.store.health().fallbacks.into_iter().filter(|fallback| fallback.what == "unnamed_files");
        assert_eq!(told.count(), 1, "{errno}");
        assert_eq!(stage.backend.stats().direct, if direct { 10 } else { 0 }, "{errno}");
    }
}

#[test]
fn a_call_that_signals_interrupt_for_ever_ends() {
    for call in [SysCall::Write, SysCall::OpenUnnamed, SysCall::Link, SysCall::Stat] {
        let (on, armed) = switch();
        let rule = seam(move |each, _| {
            (each == call && on.load(Ordering::SeqCst)).then_some(Verdict::Fail(libc::EINTR))
        });
        let stage = Stage::with(4096, FileOptions::default(), rule);
        stage.set(0).unwrap();
        armed.store(true, Ordering::SeqCst);
        assert_eq!(stage.set(1).unwrap_err().kind(), ErrorKind::Io, "{call:?}");
        armed.store(false, Ordering::SeqCst);
        assert_eq!(stage.set(1).unwrap(), Stored::Written);
    }
    // Once is no error at all.
    let rule = seam(|_, number| (number % 2 == 0).then_some(Verdict::Fail(libc::EINTR)));
    let stage = Stage::with(4096, FileOptions { engine: Engine::Threads, ..Default::default() }, rule);
    (0..20).for_each(|n| assert!(stage.set(n).is_ok() && stage.get(n).unwrap()));
}

/// Panics when it is woken.
struct Panics;

impl std::task::Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a defect of the caller");
    }
}

#[test]
fn a_waker_that_panics_stops_neither_the_workers_nor_the_deadlines() {
    let (stage, gate, armed) = gated(SysCall::Read, stage::threads());
    stage.set(1).unwrap();
    armed.store(true, Ordering::SeqCst);
    let mut pending = stage.backend.batch_get(vec![Get { key: key(1), into: stage.page() }], soon());
    let waker = std::task::Waker::from(Arc::new(Panics));
    let polled = std::pin::Pin::new(&mut pending).poll(&mut std::task::Context::from_waker(&waker));
    assert!(polled.is_pending());
    std::thread::sleep(Duration::from_millis(150));
    let outcome = stage.backend.batch_get(vec![Get { key: key(1), into: stage.page() }], soon()).wait();
    assert_eq!(outcome.first_error().unwrap().kind(), ErrorKind::Timeout, "the watch goes on");
    gate.open();
    stage.all_slots_come_back();
    assert!(stage.get(1).unwrap());
}

#[test]
fn a_batch_may_have_any_length() {
    let stage = Stage::new(64);
    stage.set(7).unwrap();
    let call = Call { deadline: Deadline::After(Duration::from_secs(120)), ..Default::default() };
    let keys: Vec<_> = (0..200_000).map(|n| key(n % 10)).collect();
    let outcomes = stage.backend.batch_exists(&keys, call).wait();
    assert!(outcomes.first_error().is_none());
    assert_eq!(outcomes.iter().filter(|outcome| matches!(outcome, Ok(true))).count(), 20_000);
    let pool = stage::pool(&stage.layout, 70_000, hicache_core::Alignment::NONE);
    let gets = pool.alloc(70_000).unwrap().into_iter().map(|into| Get { key: key(7), into }).collect();
    assert_eq!(stage.backend.batch_get(gets, call).wait().prefix_len(Option::is_some), 70_000);
}

#[test]
fn b036_required_direct_io_that_is_refused_is_an_error() {
    let (on, armed) = switch();
    let rule = seam(move |call, _| {
        (call == SysCall::Write && on.load(Ordering::SeqCst)).then_some(Verdict::Fail(libc::EINVAL))
    });
    let dir = tempfile::tempdir().unwrap();
    let Ok(stage) = Stage::at(&dir.path().join("store"), 65_536, options(Direct::Require), rule) else {
        return stage::skip("b036_required_direct_io", "no direct I/O in the temporary directory");
    };
    armed.store(true, Ordering::SeqCst);
    assert!(stage.set(1).is_err());
    assert!(!stage.exists(1));
    armed.store(false, Ordering::SeqCst);
    assert_eq!(stage.set(1).unwrap(), Stored::Written);
    assert_eq!(stage.backend.stats().buffered, 0);
}

#[test]
fn b027_required_direct_io_is_found_missing_at_open() {
    // The probe opens once without and once with O_DIRECT; the second is refused.
    let rule = || {
        seam(|call, number| {
            (call == SysCall::OpenUnnamed && number % 4 == 3).then_some(Verdict::Fail(libc::EINVAL))
        })
    };
    let dir = tempfile::tempdir().unwrap();
    let error = FileStore::open_with(dir.path(), options(Direct::Require), rule()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("direct=true"), "{error} says what makes it optional");
    let store = FileStore::open_with(dir.path(), options(Direct::Prefer), refuse_direct()).unwrap();
    assert!(store.health().fallbacks.iter().any(|fallback| fallback.what == "direct"));
}

/// Refuses the second unnamed file of a probe, the direct one.
fn refuse_direct() -> Option<Seam> {
    seam(|call, number| (call == SysCall::OpenUnnamed && number == 1).then_some(Verdict::Fail(libc::EINVAL)))
}

#[test]
fn b039_an_error_or_a_panic_on_one_page_stops_nothing_else() {
    let cases = [
        (SysCall::Read, libc::EIO, Some(ErrorKind::Io)),
        (SysCall::Open, libc::EACCES, Some(ErrorKind::PermissionDenied)),
        (SysCall::Open, libc::EMFILE, Some(ErrorKind::Exhausted)),
        (SysCall::Open, libc::ENOENT, None),
        (SysCall::Open, libc::ESTALE, None),
        (SysCall::Read, libc::ESTALE, None),
        (SysCall::Read, 0, Some(ErrorKind::Closed)),
    ];
    for (faulty, errno, kind) in cases {
        let (on, armed) = switch();
        // One worker: the fourth call of a kind is the fourth page.
        let calls = AtomicUsize::new(0);
        let rule = seam(move |call, _| {
            if call != faulty || !on.load(Ordering::SeqCst) || calls.fetch_add(1, Ordering::SeqCst) != 3 {
                return None;
            }
            assert!(errno != 0, "a defect in the worker");
            Some(Verdict::Fail(errno))
        });
        let options = FileOptions {
            threads: std::num::NonZeroU32::new(1),
            engine: Engine::Threads,
            ..Default::default()
        };
        let stage = Stage::with(4096, options, rule);
        (0..8).for_each(|n| assert_eq!(stage.set(n).unwrap(), Stored::Written));
        armed.store(true, Ordering::SeqCst);
        let gets = (0..8).map(|n| Get { key: key(n), into: stage.page() }).collect();
        let outcomes = stage.backend.batch_get(gets, Call::default()).wait();
        armed.store(false, Ordering::SeqCst);
        assert_eq!(outcomes.len(), 8);
        for (n, outcome) in outcomes.into_iter().enumerate() {
            match (n, kind) {
                (3, Some(kind)) => assert_eq!(outcome.unwrap_err().kind(), kind, "{faulty:?} {errno}"),
                (3, None) => assert!(outcome.unwrap().is_none(), "{faulty:?} {errno}"),
                _ => assert!(outcome.unwrap().is_some(), "{faulty:?} {errno}: page {n}"),
            }
        }
        (0..100).for_each(|n| assert!(stage.get(n % 8).unwrap(), "the page is there still"));
        assert_eq!(stage.backend.stats().worker_restarts, u64::from(errno == 0));
        stage.all_slots_come_back();
    }
}

#[test]
fn b056_durability_sync_orders_data_before_name_before_answer() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&calls);
    let rule = Seam::new(move |call, path| {
        let told = matches!(
            call,
            SysCall::Write | SysCall::Sync | SysCall::Link | SysCall::SyncDir | SysCall::MakeDir
        );
        if told {
            log.lock().unwrap().push((call, path.to_string()));
        }
        Verdict::Pass
    });
    let sync = FileOptions { durability: Durability::Sync, ..Default::default() };
    let stage = Stage::with(4096, sync, Some(rule.clone()));
    calls.lock().unwrap().clear();
    stage.set(1).unwrap();
    let first = std::mem::take(&mut *calls.lock().unwrap());
    let made = |log: &[(SysCall, String)], call| log.iter().filter(|(each, _)| *each == call).count();
    assert_eq!(made(&first, SysCall::MakeDir), 3, "ns, the namespace, the page's folder");
    // The parents of the three, and of the page.
    assert_eq!(made(&first, SysCall::SyncDir), 4);
    std::fs::remove_file(stage.file(1)).unwrap();
    stage.set(1).unwrap();
    let kinds: Vec<SysCall> = calls.lock().unwrap().drain(..).map(|(call, _)| call).collect();
    assert_eq!(kinds, [SysCall::Write, SysCall::Sync, SysCall::Link, SysCall::SyncDir]);

    let stage = Stage::with(4096, FileOptions::default(), Some(rule));
    calls.lock().unwrap().clear();
    stage.set(1).unwrap();
    let syncs = calls
        .lock()
        .unwrap()
        .iter()
        .filter(|(call, _)| *call == SysCall::Sync || *call == SysCall::SyncDir)
        .count();
    assert_eq!(syncs, 0, "durability none");
    // What a power cut may leave: the name, the length, and zeros.
    let file = stage.file(1);
    std::fs::write(&file, vec![0; file.metadata().unwrap().len() as usize]).unwrap();
    assert!(!stage.get(1).unwrap());
    assert_eq!(stage.backend.stats().damaged, 1);
}

#[test]
fn b051_keys_spread_over_256_folders_and_asking_lists_none() {
    let stats = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&stats);
    let rule = seam(move |call, _| {
        counted.fetch_add(usize::from(call == SysCall::Stat || call == SysCall::Open), Ordering::SeqCst);
        None
    });
    let stage = Stage::with(64, options(Direct::Off), rule);
    for first in (0..5_000).step_by(50) {
        let batch = (first..first + 50).map(|n| put(&stage.pool, n)).collect();
        let outcomes = stage.backend.batch_set(batch, Call::default()).wait();
        assert!(outcomes.first_error().is_none());
    }
    let mut folders = std::collections::HashMap::<_, usize>::new();
    for found in stage.scan(Depth::Names, false) {
        let folder = std::path::Path::new(&found.place).parent().unwrap().to_path_buf();
        *folders.entry(folder).or_default() += 1;
    }
    assert_eq!(folders.values().sum::<usize>(), 5_000);
    assert_eq!(folders.len(), 256);
    assert!(*folders.values().max().unwrap() as f64 <= 3.0 * 5_000.0 / 256.0);
    stats.store(0, Ordering::SeqCst);
    let keys: Vec<_> = (4_936..5_064).map(key).collect();
    let outcomes = stage.backend.batch_exists(&keys, Call::default()).wait();
    assert_eq!(outcomes.prefix_len(|there| *there), 64);
    assert!(stats.load(Ordering::SeqCst) <= 128);
}

#[test]
fn b057_descriptors_come_back_after_every_phase() {
    if !in_child("b057_descriptors_come_back_after_every_phase") {
        return;
    }
    descriptors_come_back(FileOptions { engine: Engine::Auto, ..Default::default() });
    let stage = descriptors_come_back(stage::threads());
    // Somebody else takes all descriptors.
    let mut taken = Vec::new();
    let limit = std::process::Command::new("prlimit")
        .args([&format!("--pid={}", std::process::id()), "--nofile=64:64"])
        .status();
    if !limit.is_ok_and(|status| status.success()) {
        return stage::skip("b057_descriptors_come_back_after_every_phase", "needs prlimit of util-linux");
    }
    while let Ok(file) = std::fs::File::open("/dev/null") {
        taken.push(file);
    }
    let error = stage.get(200).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    assert!(error.to_string().contains("ulimit -n"), "{error}");
    drop(taken);
    assert!(stage.get(200).unwrap());
}

fn descriptors_come_back(options: FileOptions) -> Stage {
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let (on, armed) = switch();
    let rule = seam(move |call, _| {
        (call == SysCall::Write && on.load(Ordering::SeqCst)).then_some(Verdict::Fail(libc::ENOSPC))
    });
    let stage = Stage::with(4096, options, rule);
    stage.set(0).unwrap();
    // A lone get leaves its ring for the next.
    assert!(stage.get(0).unwrap());
    let baseline = open();
    for n in 0..2_000 {
        let _ = stage.set(n % 300).unwrap();
        let _ = stage.get(n % 600).unwrap();
    }
    assert_eq!(open(), baseline, "sets, hits and misses");
    armed.store(true, Ordering::SeqCst);
    for n in 1_000..1_200 {
        assert_eq!(stage.set(n).unwrap_err().kind(), ErrorKind::NoSpace);
        assert!(!stage.exists(n));
    }
    armed.store(false, Ordering::SeqCst);
    assert_eq!(open(), baseline, "sets that found no space");
    for n in 0..100 {
        std::fs::write(stage.file(n), b"short").unwrap();
        assert!(!stage.get(n).unwrap());
    }
    assert_eq!(open(), baseline, "gets of damaged files");
    assert!(stage::leftovers(&stage.dir).iter().all(|file| file.to_str().unwrap().contains(".bad-")));
    stage
}

/// A gate that a seam's reads wait at.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
}

impl Gate {
    fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut open = self.open.lock().unwrap();
        while !*open {
            open = self.opened.wait(open).unwrap();
        }
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

fn gated(call: SysCall, options: FileOptions) -> (Stage, Arc<Gate>, Arc<AtomicBool>) {
    let gate = Arc::new(Gate::default());
    let (on, armed) = switch();
    let at_gate = Arc::clone(&gate);
    let rule = seam(move |each, _| {
        if each == call && on.load(Ordering::SeqCst) {
            at_gate.pass();
        }
        None
    });
    (Stage::with(4096, options, rule), gate, armed)
}

fn soon() -> Call {
    Call { deadline: Deadline::After(Duration::from_millis(50)), ..Default::default() }
}

#[test]
fn a_read_that_outlives_its_deadline_answers_in_time_and_keeps_its_page_until_it_ends() {
    let (stage, gate, armed) = gated(SysCall::Read, stage::threads());
    stage.set(1).unwrap();
    armed.store(true, Ordering::SeqCst);
    let into = stage.page();
    let start = Instant::now();
    let mut outcomes = stage.backend.batch_get(vec![Get { key: key(1), into }], soon()).wait().into_iter();
    assert!(start.elapsed() >= Duration::from_millis(50));
    assert_eq!(outcomes.next().unwrap().unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(gate.waiting.load(Ordering::SeqCst), 1, "the kernel still has it");
    assert_eq!(stage.pool.available(), stage.pool.slots() as usize - 1, "and so the page is not free");
    gate.open();
    stage.all_slots_come_back();
    assert_eq!(stage.backend.stats().timeouts, 1);
    assert!(stage.get(1).unwrap());
}

#[test]
fn every_item_that_ends_at_its_deadline_is_counted_once_whoever_answers_it() {
    let options = FileOptions { threads: Some(NonZeroU32::MIN), ..stage::threads() };
    let (stage, gate, armed) = gated(SysCall::Read, options);
    stage.set(1).unwrap();
    armed.store(true, Ordering::SeqCst);
    let held = stage.backend.batch_get(vec![Get { key: key(1), into: stage.page() }], Call::default());
    // Too late before it is asked for: the watch may answer, or the worker that finds it so.
    let late = Call { deadline: Deadline::After(Duration::ZERO), ..Default::default() };
    let keys: Vec<_> = (0..200).map(|number| key(number + 2)).collect();
    let asked = [stage.backend.batch_exists(&keys, late), stage.backend.batch_remove(&keys, late)];
    gate.open();
    let outcomes = asked.map(|pending| pending.wait().into_iter().collect::<Vec<_>>());
    let timeouts = outcomes.iter().flatten().filter(|outcome| outcome.is_err()).count() as u64;
    assert!(held.wait().into_iter().all(|outcome| outcome.unwrap().is_some()));
    let stats = stage.backend.stats();
    assert_eq!((stats.timeouts, stats.errors), (timeouts, timeouts));
    assert_eq!(timeouts, 400);
}

#[test]
fn a_get_into_a_claimed_slot_answers_only_when_nothing_can_write_to_it() {
    let (stage, gate, armed) = gated(SysCall::Read, stage::threads());
    stage.set(1).unwrap();
    armed.store(true, Ordering::SeqCst);
    let into = stage.pool.claim(PageIndex::new(5)).unwrap();
    let pending = stage.backend.batch_get(vec![Get { key: key(1), into }], soon());
    let opener = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        gate.open();
    });
    let start = Instant::now();
    let outcome = pending.wait().into_iter().next().unwrap();
    assert!(start.elapsed() >= Duration::from_millis(150), "not at its deadline, but when the read was over");
    drop(outcome);
    opener.join().unwrap();
    drop(stage.pool.claim(PageIndex::new(5)).expect("the caller has its slot back at once"));
}

#[test]
fn a_hard_deadline_answers_a_claimed_get_and_nothing_is_written_to_its_slot_after_it() {
    let (stage, gate, armed) = gated(SysCall::Read, stage::threads());
    stage.set(1).unwrap();
    armed.store(true, Ordering::SeqCst);
    let mut into = stage.pool.claim(PageIndex::new(5)).unwrap();
    into.piece_mut(0).copy_from(0, &[0x5A; 4096]);
    let gets = vec![Get { key: key(1), into }];
    let start = Instant::now();
    // Long enough for the read to begin on a busy machine.
    let second = Deadline::After(Duration::from_secs(1));
    let call = Call { hard: true, deadline: second, ..Call::default() };
    let pending = stage.backend.batch_get(gets, call);
    stage::eventually(|| gate.waiting.load(Ordering::SeqCst) == 1);
    let outcome = pending.wait().into_iter().next().unwrap();
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Timeout);
    assert!(start.elapsed() >= Duration::from_secs(1));
    gate.open();
    stage.all_slots_come_back();
    let into = stage.pool.claim(PageIndex::new(5)).unwrap();
    assert_eq!(into.bytes(0).unwrap(), [0x5A; 4096], "the read that ended later left it alone");
    let gets = vec![Get { key: key(1), into }];
    let patient = Call { hard: true, ..Call::default() };
    let page = stage.backend.batch_get(gets, patient).wait().into_iter().next().unwrap().unwrap().unwrap();
    assert!(stage::content(&page) == stage::bytes(1, 4096) && page.index() == PageIndex::new(5));
    let into = stage.pool.claim(PageIndex::new(6)).unwrap();
    let gets = vec![Get { key: key(2), into }];
    assert!(stage.backend.batch_get(gets, patient).wait().into_iter().next().unwrap().unwrap().is_none());
}

#[test]
fn what_waits_behind_a_stuck_read_is_answered_at_its_deadline_and_never_begun() {
    let options =
        FileOptions { threads: std::num::NonZeroU32::new(1), engine: Engine::Threads, ..Default::default() };
    let (stage, gate, armed) = gated(SysCall::Read, options);
    stage.set(1).unwrap();
    armed.store(true, Ordering::SeqCst);
    let stuck = stage.backend.get(key(1), stage.page());
    stage::eventually(|| gate.waiting.load(Ordering::SeqCst) == 1);
    let gets = (0..4).map(|_| Get { key: key(1), into: stage.page() }).collect();
    let late = stage.backend.batch_get(gets, soon()).wait();
    assert!(
        late.iter().all(|outcome| outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Timeout))
    );
    gate.open();
    assert!(stuck.wait().unwrap().is_some());
    stage.all_slots_come_back();
    assert_eq!(gate.waiting.load(Ordering::SeqCst), 1, "no read was begun for the late ones");
}

#[test]
fn b046_dropped_interest_leaves_the_work_and_the_page_to_the_engine() {
    let (stage, gate, armed) = gated(SysCall::Write, FileOptions::default());
    stage.set(0).unwrap();
    armed.store(true, Ordering::SeqCst);
    drop(stage.backend.set(put(&stage.pool, 1)));
    stage::eventually(|| gate.waiting.load(Ordering::SeqCst) == 1);
    assert_eq!(stage.pool.available(), stage.pool.slots() as usize - 1);
    gate.open();
    stage.all_slots_come_back();
    assert!(stage.get(1).unwrap(), "it was stored all the same");
}

#[test]
fn a_dropped_store_ends_what_it_accepted() {
    let stage = Stage::new(4096);
    let batch: Vec<Put> = (0..60).map(|n| put(&stage.pool, n)).collect();
    let pending = stage.backend.batch_set(batch, Call::default());
    let stage = stage.reopen();
    assert!(pending.wait().iter().all(|outcome| matches!(outcome, Ok(Stored::Written))));
    assert!((0..60).all(|n| stage.get(n).unwrap()));
}

#[test]
fn after_close_every_call_is_closed_and_pages_come_back() {
    let stage = Stage::new(4096);
    stage.set(1).unwrap();
    for _ in 0..2 {
        hicache_core::Pending::new({
            let store = stage.store.clone();
            async move { store.close().await }
        })
        .wait()
        .unwrap();
    }
    assert_eq!(stage.set(2).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(stage.get(1).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(stage.backend.exists(key(1)).wait().unwrap_err().kind(), ErrorKind::Closed);
    let namespace = Namespace::named("more", PageLayout::opaque(1).unwrap()).unwrap();
    assert_eq!(stage.store.backend(namespace).unwrap_err().kind(), ErrorKind::Closed);
    stage.all_slots_come_back();
}

#[test]
fn b040_a_short_write_is_no_write() {
    let (on, armed) = switch();
    let count = AtomicUsize::new(0);
    let rule = seam(move |call, _| {
        if call != SysCall::Write || !on.load(Ordering::SeqCst) {
            return None;
        }
        // As a disk that fills up: some of it, then none.
        Some(if count.fetch_add(1, Ordering::SeqCst) == 0 {
            Verdict::AtMost(1 << 20)
        } else {
            Verdict::Fail(libc::ENOSPC)
        })
    });
    let stage = Stage::with(3 << 20, FileOptions::default(), rule);
    stage.set(0).unwrap();
    armed.store(true, Ordering::SeqCst);
    let error = stage.set(1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(error.is_retryable());
    assert!(!stage.exists(1) && stage::leftovers(&stage.dir).is_empty());
    armed.store(false, Ordering::SeqCst);
    assert_eq!(stage.set(1).unwrap(), Stored::Written);
    assert!(stage.get(1).unwrap());
}
