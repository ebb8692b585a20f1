//! Several rings, rings that fail, lone gets on their caller's thread, and pools that rings know.

mod stage;

use hicache_core::{
    Backing, Call, Deadline, ErrorKind, Get, HostPool, HugePages, Outcomes, Page, PageIndex, PageLayout,
    RegionSpec, Registrar, StorageBackendExt, Store, StoreExt, Strides,
};
use hicache_file::{Bounce, Engine, FileOptions, FileStore, Seam, SysCall, Verdict};
use stage::{Stage, bytes, content, eventually, key, repeats, skip};
use std::collections::HashSet;
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

const PAGE_LEN: usize = 65_536;

/// What bounces is tried in traffic of a certain length, and read by workers at first.
fn options(rings: u32) -> FileOptions {
    let rings = NonZeroU32::new(rings).unwrap();
    FileOptions { engine: Engine::IoUring, bounce: Bounce::Off, rings, ..Default::default() }
}

/// A stage whose gets go through rings, or `None` where there are none, or no direct I/O for them.
fn stage(
    test: &str,
    options: FileOptions,
    rule: impl Fn(SysCall, &str) -> Verdict + Send + Sync + 'static,
) -> Option<Stage> {
    let temporary = tempfile::tempdir().unwrap();
    if let Err(error) = FileStore::open(temporary.path().join("probe"), options.clone()) {
        skip(test, &format!("needs io_uring: {error}"));
        return None;
    }
    let stage = Stage::with(PAGE_LEN, options, Some(Seam::new(rule)));
    if stage.store.health().fallbacks.iter().any(|fallback| fallback.what == "direct") {
        skip(test, "needs direct I/O in the temporary directory");
        return None;
    }
    Some(stage)
}

fn get_all(stage: &Stage, pool: &HostPool, pages: std::ops::Range<u64>) -> Outcomes<Option<Page>> {
    let into = pool.alloc(pages.clone().count()).expect("free slots");
    let gets = pages.zip(into).map(|(n, into)| Get { key: key(n), into }).collect();
    stage.backend.batch_get(gets, Call::default()).wait()
}

fn all_right(outcomes: Outcomes<Option<Page>>) {
    for (n, outcome) in (0..).zip(outcomes) {
        let page = outcome.unwrap().unwrap_or_else(|| panic!("page {n} is there"));
        assert!(content(&page) == bytes(n, PAGE_LEN), "page {n}");
    }
}

/// The threads that completions come to.
type Seen = Arc<Mutex<HashSet<ThreadId>>>;

fn note_threads(seen: &Seen) -> impl Fn(SysCall, &str) -> Verdict + use<> {
    let seen = Arc::clone(seen);
    move |call, _: &str| {
        if call == SysCall::Completion {
            seen.lock().unwrap().insert(std::thread::current().id());
        }
        Verdict::Pass
    }
}

#[test]
fn batches_are_dealt_among_all_rings() {
    let seen = Seen::default();
    let test = "batches_are_dealt_among_all_rings";
    let Some(stage) = stage(test, options(3), note_threads(&seen)) else { return };
    (0..8).for_each(|n| assert!(stage.set(n).is_ok()));
    (0..9).for_each(|_| all_right(get_all(&stage, &stage.pool, 0..8)));
    assert_eq!(seen.lock().unwrap().len(), 3);
    assert_eq!(stage.backend.stats().ring, 72);
    stage.all_slots_come_back();
}

#[test]
fn b047_a_ring_that_fails_is_replaced_and_the_others_go_on() {
    let test = "b047_a_ring_that_fails_is_replaced_and_the_others_go_on";
    for _ in 0..repeats() {
        // The next turn of any ring fails, once.
        let broken = Arc::new(AtomicBool::new(false));
        let breaks = Arc::clone(&broken);
        let rule = move |call, _: &str| match call {
            SysCall::Enter if breaks.swap(false, Ordering::SeqCst) => Verdict::Fail(libc::EBADF),
            _ => Verdict::Pass,
        };
        let Some(stage) = stage(test, options(2), rule) else { return };
        (0..10).for_each(|n| assert!(stage.set(n).is_ok()));
        broken.store(true, Ordering::SeqCst);
        let lost = get_all(&stage, &stage.pool, 0..10).iter().filter(|outcome| outcome.is_err()).count();
        (0..4).for_each(|_| all_right(get_all(&stage, &stage.pool, 0..10)));
        let health = stage.store.health();
        assert_eq!(health.engine, "io_uring");
        let told =
            health.fallbacks.iter().filter(|told| told.what == "io_uring" && told.why.contains("replaced"));
        assert_eq!(told.count(), 1, "{health:?}");
        eventually(|| stage.pool.available() == stage.pool.slots() as usize - lost);
    }
}

#[test]
fn b047_a_ring_that_fails_between_opening_and_reading_answers_everybody() {
    let test = "b047_a_ring_that_fails_between_opening_and_reading_answers_everybody";
    for _ in 0..repeats() {
        // The turn after the next fails, once; and how many reads were told of before.
        let (turns, read) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (left, seen) = (Arc::clone(&turns), Arc::clone(&read));
        let rule = move |call, _: &str| match call {
            SysCall::Enter if left.load(Ordering::SeqCst) > 0 && left.fetch_sub(1, Ordering::SeqCst) == 1 => {
                Verdict::Fail(libc::EBADF)
            }
            SysCall::Completion => {
                seen.fetch_add(1, Ordering::SeqCst);
                Verdict::Pass
            }
            _ => Verdict::Pass,
        };
        let Some(stage) = stage(test, options(1), rule) else { return };
        (0..10).for_each(|n| assert!(stage.set(n).is_ok()));
        all_right(get_all(&stage, &stage.pool, 0..10));
        let before = read.load(Ordering::SeqCst);
        turns.store(2, Ordering::SeqCst);
        let lost = get_all(&stage, &stage.pool, 0..10);
        assert!(lost.iter().all(|outcome| outcome.as_ref().is_err_and(|error| error.is_retryable())));
        assert_eq!(read.load(Ordering::SeqCst), before, "files were opened, and nothing read");
        all_right(get_all(&stage, &stage.pool, 0..10));
        eventually(|| stage.pool.available() == stage.pool.slots() as usize - 10);
    }
}

#[test]
fn a_lone_get_is_over_on_its_callers_thread() {
    let seen = Seen::default();
    let test = "a_lone_get_is_over_on_its_callers_thread";
    let Some(stage) = stage(test, FileOptions::default(), note_threads(&seen)) else { return };
    (0..4).for_each(|n| assert!(stage.set(n).is_ok()));
    // A slow machine may take its time now and then, and then workers read for a while.
    eventually(|| {
        (0..4).for_each(|n| assert!(stage.get(n).unwrap()));
        seen.lock().unwrap().contains(&std::thread::current().id()) && stage.backend.stats().ring > 0
    });
    assert!(!stage.get(99).unwrap(), "and a miss is a miss");
    stage.all_slots_come_back();
}

#[test]
fn a_lone_get_that_takes_long_is_a_workers_and_holds_nobody_up() {
    let test = "a_lone_get_that_takes_long_is_a_workers_and_holds_nobody_up";
    for _ in 0..repeats() {
        let slow = Arc::new(AtomicBool::new(false));
        let slows = Arc::clone(&slow);
        // A kernel that does not take the entry, as long as it is slow.
        let rule = move |call, _: &str| match call {
            SysCall::Enter if slows.load(Ordering::SeqCst) => Verdict::Fail(libc::EAGAIN),
            _ => Verdict::Pass,
        };
        let Some(stage) = stage(test, FileOptions::default(), rule) else { return };
        stage.set(1).unwrap();
        slow.store(true, Ordering::SeqCst);
        let soon = Call { deadline: Deadline::After(Duration::from_millis(30)), ..Default::default() };
        let late = stage.backend.batch_get(vec![Get { key: key(1), into: stage.page() }], soon);
        let pending = stage.backend.get(key(1), stage.page());
        let error = late.wait().into_iter().next().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        slow.store(false, Ordering::SeqCst);
        assert!(pending.wait().unwrap().is_some());
        stage.all_slots_come_back();
    }
}

#[test]
fn a_submitter_thread_that_exits_leaves_its_reads_to_the_ring() {
    let test = "a_submitter_thread_that_exits_leaves_its_reads_to_the_ring";
    let Some(stage) = stage(test, options(1), |_, _| Verdict::Pass) else { return };
    (0..10).for_each(|n| assert!(stage.set(n).is_ok()));
    for _ in 0..repeats() {
        let into = stage.pool.alloc(10).unwrap();
        let backend = Arc::clone(&stage.backend);
        let submit = move || {
            let gets = (0..10).zip(into).map(|(n, into)| Get { key: key(n), into }).collect();
            (backend.batch_get(gets, Call::default()), backend)
        };
        let (pending, backend) = std::thread::spawn(submit).join().unwrap();
        all_right(pending.wait());
        let into = stage.page();
        let lone = std::thread::spawn(move || backend.get(key(3), into)).join().unwrap();
        assert!(content(&lone.wait().unwrap().unwrap()) == bytes(3, PAGE_LEN));
    }
    stage.all_slots_come_back();
}

#[test]
fn b010_children_that_are_forked_while_reads_are_in_flight_change_no_byte_of_them() {
    let test = "b010_children_that_are_forked_while_reads_are_in_flight_change_no_byte_of_them";
    let Some(stage) = stage(test, options(1), |_, _| Verdict::Pass) else { return };
    (0..20).for_each(|n| assert!(stage.set(n).is_ok()));
    let uid = std::fs::metadata("/proc/self").unwrap().uid();
    for _ in 0..repeats() {
        let into = stage.pool.alloc(20).unwrap();
        let gets = (0..20).zip(into).map(|(n, into)| Get { key: key(n), into }).collect();
        let pending = stage.backend.batch_get(gets, Call::default());
        // Asked for a user, the library forks; else it would start a child that shares our memory, and copy none.
        let child = std::process::Command::new("true").uid(uid).status().unwrap();
        assert!(child.success());
        all_right(pending.wait());
    }
}

fn registered_pool(stage: &Stage, backing: Backing) -> HostPool {
    let strides = stage.layout.strides_for(40, &stage.backend.capabilities()).unwrap();
    pool_known_to(&stage.store, strides, backing)
}

fn pool_known_to(store: &FileStore, strides: Strides, backing: Backing) -> HostPool {
    let spec =
        RegionSpec { len: strides.region_len(), backing, huge_pages: HugePages::Off, ..Default::default() };
    let registrars = store.registrars();
    let registrars: Vec<&dyn Registrar> = registrars.iter().map(|registrar| &**registrar).collect();
    HostPool::new(spec.map().unwrap(), strides, &registrars).unwrap()
}

#[test]
fn pages_of_a_pool_that_the_rings_know_are_right_in_every_kind_of_memory() {
    let test = "pages_of_a_pool_that_the_rings_know_are_right_in_every_kind_of_memory";
    let Some(stage) = stage(test, options(2), |_, _| Verdict::Pass) else { return };
    (0..20).for_each(|n| assert!(stage.set(n).is_ok()));
    for backing in [Backing::Private, Backing::Shared, Backing::Memfd] {
        let room = registered_pool(&stage, backing);
        // A pool whose pages have no room for what is stored beside them, and one that was not registered.
        let none = pool_known_to(
            &stage.store,
            stage.layout.strides(40, stage.backend.capabilities().alignment).unwrap(),
            backing,
        );
        let known = (room.strides().region_len() + none.strides().region_len()) as u64;
        assert!(stage.store.health().registered_len > known / 2, "{:?}", stage.store.health());
        for _ in 0..4 {
            all_right(get_all(&stage, &room, 0..20));
            all_right(get_all(&stage, &none, 0..20));
        }
        drop((room, none));
        eventually(|| stage.store.health().registered_len == 0);
    }
    assert_eq!(stage.backend.stats().ring, 480);
    assert_eq!(stage.backend.stats().registered, 480);
    all_right(get_all(&stage, &stage.pool, 0..20));
    let stats = stage.backend.stats();
    assert_eq!((stats.ring, stats.registered), (500, 480), "and a pool that they do not know counts as none");
}

#[test]
fn a_file_that_is_longer_than_its_page_is_no_page_for_a_pool_with_room_either() {
    let test = "a_file_that_is_longer_than_its_page_is_no_page_for_a_pool_with_room_either";
    let Some(stage) = stage(test, options(1), |_, _| Verdict::Pass) else { return };
    let pool = registered_pool(&stage, Backing::Private);
    for more in [1, 4096, 8192, 100_000] {
        (0..4).for_each(|n| assert!(stage.set(n).is_ok()));
        let longer = [std::fs::read(stage.file(2)).unwrap(), vec![0; more]].concat();
        std::fs::write(stage.file(2), longer).unwrap();
        let there: Vec<bool> =
            get_all(&stage, &pool, 0..4).iter().map(|got| got.as_ref().unwrap().is_some()).collect();
        assert_eq!(there, [true, true, false, true]);
    }
}

#[test]
fn a_pool_that_goes_while_its_rings_read_for_others_is_let_go_of() {
    let test = "a_pool_that_goes_while_its_rings_read_for_others_is_let_go_of";
    let Some(stage) = stage(test, options(1), |_, _| Verdict::Pass) else { return };
    (0..10).for_each(|n| assert!(stage.set(n).is_ok()));
    for _ in 0..repeats() {
        let pool = registered_pool(&stage, Backing::Private);
        let into = pool.alloc(10).unwrap();
        drop(pool);
        let gets = (0..10).zip(into).map(|(n, into)| Get { key: key(n), into }).collect();
        let pending = stage.backend.batch_get(gets, Call::default());
        // The last page undoes the registration, on whatever thread it ends.
        all_right(pending.wait());
        all_right(get_all(&stage, &registered_pool(&stage, Backing::Private), 0..10));
        eventually(|| stage.store.health().registered_len == 0);
    }
}

#[test]
fn a_pool_outlives_the_store_that_knew_it() {
    let test = "a_pool_outlives_the_store_that_knew_it";
    let Some(stage) = stage(test, options(1), |_, _| Verdict::Pass) else { return };
    let pool = registered_pool(&stage, Backing::Private);
    drop(stage);
    let page = pool.alloc(1).unwrap().remove(0);
    drop(pool);
    assert!(page.freeze().bytes(0).is_some());
}

#[test]
fn a_replaced_ring_knows_the_pools_of_the_one_before() {
    let test = "a_replaced_ring_knows_the_pools_of_the_one_before";
    let broken = Arc::new(AtomicBool::new(false));
    let breaks = Arc::clone(&broken);
    let rule = move |call, _: &str| match call {
        SysCall::Enter if breaks.swap(false, Ordering::SeqCst) => Verdict::Fail(libc::EBADF),
        _ => Verdict::Pass,
    };
    let Some(stage) = stage(test, options(1), rule) else { return };
    (0..4).for_each(|n| assert!(stage.set(n).is_ok()));
    let pool = registered_pool(&stage, Backing::Private);
    let known = stage.store.health().registered_len;
    broken.store(true, Ordering::SeqCst);
    drop(get_all(&stage, &pool, 0..4));
    all_right(get_all(&stage, &pool, 0..4));
    assert_eq!(stage.store.health().registered_len, known);
}

/// Registers a pool under a limit of locked memory that holds a part of it, as another user.
#[test]
fn a_limit_of_locked_memory_leaves_the_rest_unregistered_and_told() {
    let test = "a_limit_of_locked_memory_leaves_the_rest_unregistered_and_told";
    if let Some(limit) = stage::child_argument() {
        let Some(stage) = stage(test, options(1), |_, _| Verdict::Pass) else { return };
        (0..20).for_each(|n| assert!(stage.set(n).is_ok()));
        let layout = PageLayout::opaque(PAGE_LEN).unwrap();
        let strides = layout.strides_for(400, &stage.backend.capabilities()).unwrap();
        let pool = pool_known_to(&stage.store, strides, Backing::Private);
        let health = stage.store.health();
        let some = limit != "0";
        assert_eq!(health.registered_len > 0, some, "{health:?}");
        assert!(health.registered_len < strides.region_len() as u64, "{health:?}");
        let told =
            health.fallbacks.iter().find(|told| told.what == "registered_buffers").expect("it is told");
        assert!(told.why.contains("ulimit -l"), "{told:?}");
        let claimed = (380..400).map(|n| pool.claim(PageIndex::new(n)).unwrap());
        let gets = (0..20).zip(claimed).map(|(n, into)| Get { key: key(n), into }).collect();
        all_right(stage.backend.batch_get(gets, Call::default()).wait());
        assert_eq!(stage.backend.stats().registered, 0, "the last slots are not known");
        all_right(get_all(&stage, &pool, 0..20));
        let stats = stage.backend.stats();
        assert_eq!((stats.ring, stats.registered), (40, if some { 20 } else { 0 }), "the first are");
        return;
    }
    let wrap = ["setpriv", "--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock", "prlimit"];
    if !std::process::Command::new(wrap[0])
        .args(&wrap[1..])
        .args(["--memlock=0", "true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        return skip(test, "needs setpriv and prlimit of util-linux");
    }
    for limit in ["8388608", "0"] {
        let memlock = format!("--memlock={limit}");
        let wrap = [&wrap[..], &[&memlock]].concat();
        let output = stage::child(test, limit, &wrap).output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{limit}: {text}");
    }
}

/// Bytes of locked memory with which a ring and a pool fit once, and with which a ring without its tails does.
const FOR_A_POOL: &str = "8388608";
const FOR_A_RING: &str = "65536";

/// The kernel counts what a user has locked over all processes: as root, the child is a user of its own. The closed
/// store's handle is there still when the next is opened, and so is a pool that its ring knew.
#[test]
fn a_store_opened_right_after_a_close_locks_as_much_memory_as_the_one_before() {
    let test = "a_store_opened_right_after_a_close_locks_as_much_memory_as_the_one_before";
    if let Some(limit) = stage::child_argument() {
        return reopen_at_once(limit == FOR_A_POOL);
    }
    if stage(test, options(1), |_, _| Verdict::Pass).is_none() {
        return;
    }
    let user = format!("{}", 1_000_000 + std::process::id());
    let user = ["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"];
    let user = if stage::is_root() { &user[..] } else { &[] };
    for limit in [FOR_A_POOL, FOR_A_RING] {
        let memlock = format!("--memlock={limit}");
        let wrap = [&["prlimit", &memlock], user].concat();
        let reaches = ["sh", "-c", "test -x \"$0\" && test -w \"$1\""];
        let mut command = std::process::Command::new(wrap[0]);
        command
            .args(&wrap[1..])
            .args(reaches)
            .arg(std::env::current_exe().unwrap())
            .arg(std::env::temp_dir());
        if !command.status().is_ok_and(|status| status.success()) {
            return skip(test, "needs prlimit and setpriv, and folders that other users may use");
        }
        let output = stage::child(test, limit, &wrap).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert!(output.status.success() && text.contains("1 passed"), "{limit}: {text}");
    }
}

fn reopen_at_once(with_pool: bool) {
    let first = Stage::with(PAGE_LEN, options(1), None);
    (0..20).for_each(|n| assert!(first.set(n).is_ok()));
    let strides = first.layout.strides_for(75, &first.backend.capabilities()).unwrap();
    let mut last = (first.store.clone(), None);
    for round in 0..40 {
        let (closed, old_pool) = last;
        closed.close_blocking().unwrap();
        assert_eq!(closed.health().registered_len, 0);
        let stage = Stage::at(&first.dir, PAGE_LEN, options(1), None)
            .unwrap_or_else(|error| panic!("round {round}: {error}"));
        let pool = with_pool.then(|| pool_known_to(&stage.store, strides, Backing::Private));
        if let Some(pool) = &pool {
            let health = stage.store.health();
            let locked = health.fallbacks.iter().find(|told| told.why.contains("locked memory"));
            assert!(locked.is_none(), "round {round}: {locked:?}");
            // A worker has to see the namespace's record first.
            assert!(stage.get(0).unwrap());
            all_right(get_all(&stage, pool, 0..20));
            let stats = stage.backend.stats();
            assert_eq!((stats.ring, stats.registered), (20, 20), "round {round}: {health:?} {stats:?}");
        }
        drop((closed, old_pool));
        last = (stage.store.clone(), pool);
    }
}

#[test]
fn b048_no_more_is_in_flight_than_the_depth_allows_and_no_completion_is_lost() {
    let test = "b048_no_more_is_in_flight_than_the_depth_allows_and_no_completion_is_lost";
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&turns);
    let start = Instant::now();
    // A thread that reaps late, now and then.
    let rule = move |call, _: &str| {
        if call == SysCall::Enter && counted.fetch_add(1, Ordering::SeqCst) % 50 == 49 {
            std::thread::sleep(Duration::from_millis(20));
        }
        Verdict::Pass
    };
    let options = FileOptions { depth: NonZeroU32::new(8), ..options(1) };
    let Some(stage) = stage(test, options, rule) else { return };
    (0..20).for_each(|n| assert!(stage.set(n).is_ok()));
    (0..40).for_each(|_| all_right(get_all(&stage, &stage.pool, 0..20)));
    assert_eq!(stage.backend.stats().ring, 800, "after {:?}", start.elapsed());
    stage.all_slots_come_back();
}
