//! The ring: what it reads is right, what it cannot read somebody else reads, and what it has is nobody else's.

mod stage;

use hicache_core::{Call, Deadline, ErrorKind, Get, Outcomes, Page, PageIndex, Pending, Store};
use hicache_file::{Bounce, Engine, FileOptions, FileStore, Seam, SysCall, Verdict};
use stage::{Stage, bytes, content, eventually, key, repeats, skip};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const PAGE_LEN: usize = 65_536;

/// What bounces is tried in traffic of a certain length, and read by workers at first.
fn options() -> FileOptions {
    FileOptions { engine: Engine::IoUring, bounce: Bounce::Off, ..Default::default() }
}

/// A stage whose gets go through the ring, or `None` where there is none, or no direct I/O for it.
fn stage(test: &str, rule: impl Fn(SysCall, &str) -> Verdict + Send + Sync + 'static) -> Option<Stage> {
    let temporary = tempfile::tempdir().unwrap();
    if let Err(error) = FileStore::open(temporary.path().join("probe"), options()) {
        skip(test, &format!("needs io_uring: {error}"));
        return None;
    }
    let stage = Stage::with(PAGE_LEN, options(), Some(Seam::new(rule)));
    if stage.store.health().fallbacks.iter().any(|fallback| fallback.what == "direct") {
        skip(test, "needs direct I/O in the temporary directory");
        return None;
    }
    assert_eq!(stage.store.health().engine, "io_uring");
    Some(stage)
}

fn get_all(stage: &Stage, pages: std::ops::Range<u64>, call: Call) -> Pending<Outcomes<Option<Page>>> {
    let gets = pages.map(|n| Get { key: key(n), into: stage.page() }).collect();
    stage.backend.batch_get(gets, call)
}

fn all_right(outcomes: Outcomes<Option<Page>>, first: u64) {
    for (n, outcome) in (first..).zip(outcomes) {
        let page = outcome.unwrap().unwrap_or_else(|| panic!("page {n} is there"));
        assert!(content(&page) == bytes(n, PAGE_LEN), "page {n}");
    }
}

#[test]
fn a_batch_reads_what_is_there_and_misses_what_is_not() {
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    let test = "a_batch_reads_what_is_there_and_misses_what_is_not";
    let rule = move |call, _: &str| {
        counted.fetch_add(usize::from(call == SysCall::Completion), Ordering::SeqCst);
        Verdict::Pass
    };
    let Some(stage) = stage(test, rule) else { return };
    (0..40).for_each(|n| assert!(stage.set(n).is_ok()));
    for round in 0..20 {
        all_right(get_all(&stage, 0..40, Call::default()).wait(), 0);
        assert_eq!(reads.load(Ordering::SeqCst), 40 * (round + 1), "the ring read them");
    }
    let outcomes = get_all(&stage, 30..60, Call::default()).wait();
    assert_eq!(outcomes.prefix_len(Option::is_some), 10);
    assert!(outcomes.iter().skip(10).all(|outcome| matches!(outcome, Ok(None))));
    assert_eq!(stage.backend.stats().misses, 20);
    drop(outcomes);
    stage.all_slots_come_back();
}

#[test]
fn b043_a_completion_that_is_short_wrong_or_an_error_is_read_again_by_a_worker() {
    let verdicts = [
        Verdict::Fail(libc::EAGAIN),
        Verdict::Fail(libc::EINTR),
        Verdict::Fail(libc::EIO),
        Verdict::Fail(libc::EINVAL),
        Verdict::AtMost(PAGE_LEN - 1),
        Verdict::AtMost(0),
        Verdict::Claim(1 << 30),
    ];
    for verdict in verdicts {
        let rule = move |call, _: &str| if call == SysCall::Completion { verdict } else { Verdict::Pass };
        let test = "b043_a_completion_that_is_short_wrong_or_an_error_is_read_again_by_a_worker";
        let Some(stage) = stage(test, rule) else { return };
        (0..30).for_each(|n| assert!(stage.set(n).is_ok()));
        all_right(get_all(&stage, 0..30, Call::default()).wait(), 0);
        let stats = stage.backend.stats();
        assert_eq!((stats.hits, stats.errors, stats.damaged), (30, 0, 0), "{verdict:?}");
        assert!(!stage.store.health().fallbacks.iter().any(|fallback| fallback.what == "direct"));
        stage.all_slots_come_back();
    }
}

#[test]
fn b038_damage_in_a_batch_is_a_miss_and_its_neighbours_are_served() {
    let test = "b038_damage_in_a_batch_is_a_miss_and_its_neighbours_are_served";
    let Some(stage) = stage(test, |_, _| Verdict::Pass) else { return };
    (0..12).for_each(|n| assert!(stage.set(n).is_ok()));
    let sound = std::fs::read(stage.file(5)).unwrap();
    let mut flipped = sound.clone();
    flipped[70_000 % sound.len()] ^= 1;
    let fifo = |path: &std::path::Path| {
        std::fs::remove_file(path).unwrap();
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    std::fs::write(stage.file(1), b"").unwrap();
    std::fs::write(stage.file(3), &sound[..sound.len() - 1]).unwrap();
    std::fs::write(stage.file(5), &flipped).unwrap();
    std::fs::write(stage.file(7), [sound.as_slice(), b"x"].concat()).unwrap();
    fifo(&stage.file(9));
    std::fs::copy(stage.file(0), stage.file(11)).unwrap();
    for _ in 0..2 {
        let outcomes = get_all(&stage, 0..12, Call::default()).wait();
        for (n, outcome) in outcomes.iter().enumerate() {
            assert_eq!(matches!(outcome, Ok(Some(_))), n % 2 == 0, "page {n}");
        }
    }
    assert_eq!(stage.backend.stats().damaged, 6);
    (0..12).filter(|n| n % 2 == 1).for_each(|n| assert!(stage.set(n).is_ok() && stage.get(n).unwrap()));
}

/// Holds the ring's thread at its completions.
#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
}

impl Gate {
    fn pass(&self) {
        let mut closed = self.closed.lock().unwrap();
        if *closed {
            self.waiting.fetch_add(1, Ordering::SeqCst);
        }
        while *closed {
            closed = self.opened.wait(closed).unwrap();
        }
    }

    fn set(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.opened.notify_all();
    }
}

fn gated(test: &str) -> Option<(Stage, Arc<Gate>)> {
    let gate = Arc::new(Gate::default());
    let at_gate = Arc::clone(&gate);
    let stage = stage(test, move |call, _| {
        if call == SysCall::Completion {
            at_gate.pass();
        }
        Verdict::Pass
    })?;
    (0..20).for_each(|n| assert!(stage.set(n).is_ok()));
    Some((stage, gate))
}

fn soon() -> Call {
    Call { deadline: Deadline::After(Duration::from_millis(250)), ..Default::default() }
}

#[test]
fn a_deadline_answers_while_the_ring_keeps_the_pages() {
    let Some((stage, gate)) = gated("a_deadline_answers_while_the_ring_keeps_the_pages") else { return };
    for _ in 0..repeats() {
        gate.set(true);
        let outcomes = get_all(&stage, 0..10, soon()).wait();
        assert!(
            outcomes
                .iter()
                .all(|outcome| outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Timeout))
        );
        assert_eq!(stage.pool.available(), stage.pool.slots() as usize - 10, "the ring has them still");
        gate.set(false);
        stage.all_slots_come_back();
        all_right(get_all(&stage, 0..10, Call::default()).wait(), 0);
    }
}

#[test]
fn claimed_slots_are_answered_only_when_the_ring_is_done_with_them() {
    let Some((stage, gate)) = gated("claimed_slots_are_answered_only_when_the_ring_is_done_with_them") else {
        return;
    };
    for _ in 0..repeats() {
        gate.set(true);
        let claim = |n: u64| stage.pool.claim(PageIndex::new(40 + n as u32)).unwrap();
        let gets = (0..4).map(|n| Get { key: key(n), into: claim(n) }).collect();
        let pending = stage.backend.batch_get(gets, soon());
        eventually(|| gate.waiting.swap(0, Ordering::SeqCst) > 0);
        std::thread::sleep(Duration::from_millis(300));
        assert!((0..4).all(|n| stage.pool.claim(PageIndex::new(40 + n)).is_err()), "the ring has them");
        gate.set(false);
        drop(pending.wait());
        (0..4).for_each(|n| drop(claim(n)));
    }
}

#[test]
fn b046_dropped_interest_leaves_the_pages_to_the_ring_until_it_is_done() {
    let Some((stage, gate)) = gated("b046_dropped_interest_leaves_the_pages_to_the_ring_until_it_is_done")
    else {
        return;
    };
    for _ in 0..repeats() {
        gate.set(true);
        drop(get_all(&stage, 0..10, Call::default()));
        assert!(
            stage.pool.available() <= stage.pool.slots() as usize - 9,
            "at most the one before the gate is back"
        );
        gate.set(false);
        stage.all_slots_come_back();
    }
}

#[test]
fn a_dropped_store_ends_the_reads_it_accepted_and_pools_outlive_it() {
    for _ in 0..repeats() {
        let test = "a_dropped_store_ends_the_reads_it_accepted_and_pools_outlive_it";
        let Some(stage) = stage(test, |_, _| Verdict::Pass) else { return };
        (0..20).for_each(|n| assert!(stage.set(n).is_ok()));
        let pending = get_all(&stage, 0..20, Call::default());
        drop(stage);
        all_right(pending.wait(), 0);
    }
}

#[test]
fn b047_a_ring_that_fails_answers_everybody_leaks_what_the_kernel_has_and_gives_way_to_threads() {
    let test = "b047_a_ring_that_fails_answers_everybody_leaks_what_the_kernel_has_and_gives_way_to_threads";
    for errno in [libc::EBADF, libc::ENXIO].into_iter().cycle().take(2 * repeats()) {
        let broken = Arc::new(AtomicBool::new(false));
        let breaks = Arc::clone(&broken);
        let rule = move |call, _: &str| match call {
            SysCall::Enter if breaks.load(Ordering::SeqCst) => Verdict::Fail(errno),
            _ => Verdict::Pass,
        };
        let Some(stage) = stage(test, rule) else { return };
        (0..20).for_each(|n| assert!(stage.set(n).is_ok()));
        all_right(get_all(&stage, 0..20, Call::default()).wait(), 0);
        broken.store(true, Ordering::SeqCst);
        let outcomes = get_all(&stage, 0..20, Call::default()).wait();
        assert_eq!(outcomes.len(), 20);
        let lost = outcomes.iter().filter(|outcome| outcome.is_err()).count();
        drop(outcomes);
        eventually(|| stage.pool.available() == stage.pool.slots() as usize - lost);
        all_right(get_all(&stage, 0..20, Call::default()).wait(), 0);
        assert_eq!(stage.store.health().engine, "threads");
        assert!(stage.store.health().fallbacks.iter().any(|fallback| fallback.what == "io_uring"));
    }
}

#[test]
fn a_panic_on_the_rings_thread_frees_nothing_that_the_kernel_has_and_hangs_nobody() {
    let test = "a_panic_on_the_rings_thread_frees_nothing_that_the_kernel_has_and_hangs_nobody";
    for _ in 0..repeats() {
        let broken = Arc::new(AtomicBool::new(false));
        let breaks = Arc::clone(&broken);
        let rule = move |call, _: &str| {
            assert!(call != SysCall::Completion || !breaks.load(Ordering::SeqCst), "a defect");
            Verdict::Pass
        };
        let Some(stage) = stage(test, rule) else { return };
        (0..20).for_each(|n| assert!(stage.set(n).is_ok()));
        let mut lost = 0;
        let mut get = |broken_now| {
            broken.store(broken_now, Ordering::SeqCst);
            // Few: what a ring had when it failed is gone for good.
            let outcomes = get_all(&stage, 0..6, Call::default()).wait();
            assert_eq!(outcomes.len(), 6);
            let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
            lost += failed;
            failed
        };
        assert!(get(true) > 0);
        assert_eq!(get(false), 0);
        assert_eq!(stage.store.health().engine, "io_uring", "the ring was replaced");
        assert!(stage.store.health().fallbacks.iter().any(|told| told.why.contains("replaced")));
        while stage.store.health().engine == "io_uring" {
            get(true);
        }
        assert_eq!(get(true), 0, "threads read");
        stage::eventually(|| stage.pool.available() == stage.pool.slots() as usize - lost);
        close(&stage);
    }
}

fn close(stage: &Stage) {
    Pending::new({
        let store = stage.store.clone();
        async move { store.close().await }
    })
    .wait()
    .unwrap();
}

#[test]
fn a_batch_of_any_length_is_taken_whole() {
    let test = "a_batch_of_any_length_is_taken_whole";
    if stage(test, |_, _| Verdict::Pass).is_none() {
        return;
    }
    let stage = Stage::with(4096, options(), None);
    stage.set(7).unwrap();
    let pool = stage::pool(&stage.layout, 70_000, stage.backend.capabilities().alignment);
    let gets = pool.alloc(70_000).unwrap().into_iter().map(|into| Get { key: key(7), into }).collect();
    let outcomes = stage.backend.batch_get(gets, Call::default()).wait();
    assert_eq!(outcomes.prefix_len(Option::is_some), 70_000);
    assert_eq!(stage.backend.stats().ring, 70_000);
}

#[test]
fn a_refused_batch_says_why_to_claimed_slots_too() {
    let Some((stage, _)) = gated("a_refused_batch_says_why_to_claimed_slots_too") else { return };
    close(&stage);
    let into = (0..2).map(|n| stage.pool.claim(PageIndex::new(n)).unwrap());
    let gets = into.map(|into| Get { key: key(1), into }).collect();
    for outcome in stage.backend.batch_get(gets, Call::default()).wait() {
        assert!(outcome.unwrap_err().to_string().contains("the store was closed"));
    }
    stage.all_slots_come_back();
}

#[test]
fn b047_a_turn_that_is_refused_for_a_moment_loses_nothing() {
    let test = "b047_a_turn_that_is_refused_for_a_moment_loses_nothing";
    let turns = AtomicUsize::new(0);
    let rule = move |call, _: &str| match call {
        SysCall::Enter => match turns.fetch_add(1, Ordering::SeqCst) % 4 {
            0 => Verdict::Fail(libc::EBUSY),
            1 => Verdict::Fail(libc::EAGAIN),
            2 => Verdict::Fail(libc::EINTR),
            _ => Verdict::Pass,
        },
        _ => Verdict::Pass,
    };
    let Some(stage) = stage(test, rule) else { return };
    (0..40).for_each(|n| assert!(stage.set(n).is_ok()));
    (0..20).for_each(|_| all_right(get_all(&stage, 0..40, Call::default()).wait(), 0));
    assert_eq!(stage.backend.stats().hits, 800);
    stage.all_slots_come_back();
}

#[test]
fn b048_five_thousand_reads_at_depth_eight_complete_once_each() {
    let test = "b048_five_thousand_reads_at_depth_eight_complete_once_each";
    if stage(test, |_, _| Verdict::Pass).is_none() {
        return;
    }
    let options = FileOptions { depth: std::num::NonZeroU32::new(8), ..options() };
    let stage = Stage::with(4096, options, None);
    (0..60).for_each(|n| assert!(stage.set(n).is_ok()));
    let pool = stage::pool(&stage.layout, 5_000, stage.backend.capabilities().alignment);
    let gets =
        pool.alloc(5_000).unwrap().into_iter().zip(0..).map(|(into, n)| Get { key: key(n % 60), into });
    let outcomes = stage.backend.batch_get(gets.collect(), Call::default()).wait();
    assert_eq!(outcomes.len(), 5_000);
    for (n, outcome) in outcomes.into_iter().enumerate() {
        assert!(content(&outcome.unwrap().unwrap()) == bytes(n as u64 % 60, 4096));
    }
    assert_eq!((stage.backend.stats().hits, pool.available()), (5_000, 5_000));
}

/// Runs in a process whose `io_uring_setup` (or another call) is answered by strace.
#[test]
fn b044_where_io_uring_is_refused_threads_do_and_the_reason_is_told() {
    let test = "b044_where_io_uring_is_refused_threads_do_and_the_reason_is_told";
    if stage::child_argument().is_some() {
        let stage = Stage::new(PAGE_LEN);
        (0..20).for_each(|n| assert!(stage.set(n).is_ok()));
        all_right(get_all(&stage, 0..20, Call::default()).wait(), 0);
        let health = stage.store.health();
        let wanted = std::env::var("HICACHE_TEST_CAUSE").unwrap();
        if std::env::var("HICACHE_TEST_REGISTER").is_ok() {
            // Without tables it is a ring still.
            assert_eq!(health.engine, "io_uring");
            let told =
                |what| health.fallbacks.iter().any(|told| told.what == what && told.why.contains(&wanted));
            assert!(told("registered_files") && told("registered_buffers"), "{health:?}");
            assert_eq!(stage.backend.stats().ring, 20);
            assert!(hicache_file::probe_io_uring().unwrap().iter().all(|told| told.why.contains(&wanted)));
            return;
        }
        assert_eq!(health.engine, "threads");
        let told: Vec<_> = health.fallbacks.iter().filter(|fallback| fallback.what == "io_uring").collect();
        let [told] = told[..] else { panic!("told once: {health:?}") };
        assert!(told.why.contains(&wanted), "{}", told.why);
        assert!(hicache_file::probe_io_uring().unwrap_err().contains(&wanted));
        let error = FileStore::open(stage.dir.join("../other"), options()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(&wanted) && error.to_string().contains("engine=auto"), "{error}");
        return;
    }
    if Command::new("strace").arg("-V").output().is_err() {
        return skip(test, "needs strace");
    }
    let causes = [
        ("io_uring_setup:error=EPERM", "seccomp"),
        ("io_uring_setup:error=ENOSYS", "sandbox"),
        ("io_uring_setup:error=ENOMEM", "ulimit -l"),
        ("io_uring_setup:error=EINVAL", "too old"),
        ("io_uring_enter:error=EPERM", "seccomp"),
        ("io_uring_register:error=EPERM", "seccomp"),
        ("io_uring_register:error=ENOMEM", "ulimit -l"),
    ];
    for (inject, cause) in causes {
        let inject = format!("inject={inject}");
        let wrap = [
            "strace",
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            "trace=io_uring_setup,io_uring_register,io_uring_enter",
            "-e",
            &inject,
        ];
        let mut child = stage::child(test, "refused", &wrap);
        if inject.contains("register") {
            child.env("HICACHE_TEST_REGISTER", "1");
        }
        let output = child.env("HICACHE_TEST_CAUSE", cause).output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{inject}: {text}");
    }
}

/// Flags that an older kernel does not know are done without.
#[test]
fn b044_a_kernel_that_knows_fewer_flags_gets_a_ring_without_them() {
    let test = "b044_a_kernel_that_knows_fewer_flags_gets_a_ring_without_them";
    if Command::new("strace").arg("-V").output().is_err() {
        return skip(test, "needs strace");
    }
    let wrap = [
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=io_uring_setup",
        "-e",
        "inject=io_uring_setup:error=EINVAL:when=1",
    ];
    let output =
        stage::child("a_batch_reads_what_is_there_and_misses_what_is_not", "old", &wrap).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
