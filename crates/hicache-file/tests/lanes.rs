//! What goes first where work queues, and that nobody's own code runs on a ring's thread.

mod stage;

use hicache_core::{
    Call, Deadline, ErrorKind, Get, HostPool, HugePages, Outcomes, Page, PageIndex, Pending, Priority,
    Region, RegionSpec, RegisterError, Registrar, Registration, Strides,
};
use hicache_file::{Engine, FileOptions, FileStore, SysCall};
use stage::{Stage, eventually, key, put, seam, skip};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

const PAGE_LEN: usize = 4096;

/// Work of each kind that is queued.
const EACH: u64 = 24;

/// What a store's only worker did, in its order, while the work was queued behind a stuck read.
#[derive(Default)]
struct Worker {
    log: Mutex<Vec<SysCall>>,
    stuck: Mutex<bool>,
    goes_on: Condvar,
}

/// The worker's reads and writes of `EACH` gets and `EACH` sets that were accepted together.
fn done(gets: Priority, sets: Priority) -> Vec<SysCall> {
    let worker = Arc::new(Worker::default());
    let seen = Arc::clone(&worker);
    // A get reads, a set links.
    let rule = seam(move |call, _| {
        if matches!(call, SysCall::Read | SysCall::Link) {
            seen.log.lock().unwrap().push(call);
            let stuck = seen.stuck.lock().unwrap();
            drop(seen.goes_on.wait_while(stuck, |stuck| *stuck).unwrap());
        }
        None
    });
    let options = FileOptions { engine: Engine::Threads, threads: NonZeroU32::new(1), ..Default::default() };
    let stage = Stage::with(PAGE_LEN, options, rule);
    // Their folders are there, so that each set links once.
    (0..=EACH).for_each(|n| assert!(stage.set(n).is_ok()));
    let keys: Vec<_> = (1..=EACH).map(key).collect();
    assert!(stage.backend.batch_remove(&keys, Call::default()).wait().iter().all(Result::is_ok));
    worker.log.lock().unwrap().clear();
    *worker.stuck.lock().unwrap() = true;
    let first = get_all(&stage, &stage.pool, 0..1, Call::default());
    eventually(|| worker.log.lock().unwrap().len() == 1);
    let of = |priority| Call { priority, ..Default::default() };
    // Sets first: it is not the order of arrival that decides.
    let stored = stage.backend.batch_set((1..=EACH).map(|n| put(&stage.pool, n)).collect(), of(sets));
    let served = {
        let into = stage.pool.alloc(EACH as usize).unwrap();
        let gets_of = into.into_iter().map(|into| Get { key: key(0), into }).collect();
        stage.backend.batch_get(gets_of, of(gets))
    };
    *worker.stuck.lock().unwrap() = false;
    worker.goes_on.notify_all();
    assert_eq!(first.wait().prefix_len(Option::is_some), 1);
    assert_eq!(served.wait().prefix_len(Option::is_some), EACH as usize);
    assert!(stored.wait().iter().all(Result::is_ok));
    let log = worker.log.lock().unwrap();
    assert_eq!(log.len() as u64, 1 + 2 * EACH);
    log[1..].to_vec()
}

/// How many of the other kind were done before the last of `kind`.
fn others_before_last(log: &[SysCall], kind: SysCall) -> usize {
    let last = log.iter().rposition(|call| *call == kind).unwrap();
    log[..last].iter().filter(|call| **call != kind).count()
}

#[test]
fn reads_go_before_writes_that_came_first_and_starve_none() {
    let log = done(Priority::Normal, Priority::Normal);
    let overtakers = others_before_last(&log, SysCall::Read);
    // Every eighth turn is a write's.
    assert!((2..=4).contains(&overtakers), "{log:?}");
}

#[test]
fn normal_writes_go_before_background_reads_and_starve_none() {
    let log = done(Priority::Background, Priority::Normal);
    let overtakers = others_before_last(&log, SysCall::Link);
    assert!((2..=4).contains(&overtakers), "{log:?}");
}

#[test]
fn a_panic_under_a_hard_deadline_gives_the_page_back_long_before_it() {
    let armed = Arc::new(AtomicBool::new(false));
    let panics = Arc::clone(&armed);
    let rule = seam(move |call, _| {
        assert!(call != SysCall::Read || !panics.load(Ordering::SeqCst), "a defect");
        None
    });
    let stage = Stage::with(PAGE_LEN, stage::threads(), rule);
    stage.set(0).unwrap();
    armed.store(true, Ordering::SeqCst);
    let into = stage.pool.claim(PageIndex::new(5)).unwrap();
    let far = Deadline::After(Duration::from_secs(3_600));
    let call = Call { hard: true, deadline: far, ..Default::default() };
    let outcomes = stage.backend.batch_get(vec![Get { key: key(0), into }], call).wait();
    assert_eq!(outcomes.first_error().unwrap().kind(), ErrorKind::Closed);
    stage.all_slots_come_back();
}

/// A store with one ring, or `None` where there is none, or no direct I/O for it.
fn ring(test: &str) -> Option<Stage> {
    let options = FileOptions { engine: Engine::IoUring, ..Default::default() };
    let folder = tempfile::tempdir().unwrap();
    if let Err(error) = FileStore::open(folder.path().join("probe"), options.clone()) {
        skip(test, &format!("needs io_uring: {error}"));
        return None;
    }
    let stage = Stage::with(PAGE_LEN, options, None);
    (0..8).for_each(|n| assert!(stage.set(n).is_ok()));
    assert!(stage.get(0).unwrap());
    get_all(&stage, &stage.pool, 0..8, Call::default()).wait();
    if stage.backend.stats().ring == 0 {
        skip(test, "needs direct I/O in the temporary directory");
        return None;
    }
    Some(stage)
}

fn get_all(
    stage: &Stage,
    pool: &HostPool,
    pages: std::ops::Range<u64>,
    call: Call,
) -> Pending<Outcomes<Option<Page>>> {
    let into = pool.alloc(pages.clone().count()).expect("free slots");
    let gets = pages.zip(into).map(|(n, into)| Get { key: key(n), into }).collect();
    stage.backend.batch_get(gets, call)
}

/// Blocks whoever wakes it until it may go on.
#[derive(Default)]
struct Blocks {
    woken: AtomicBool,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Wake for Blocks {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        drop(self.opened.wait_while(self.open.lock().unwrap(), |open| !*open).unwrap());
    }
}

#[test]
fn a_waker_that_blocks_holds_up_no_ring() {
    let Some(stage) = ring("a_waker_that_blocks_holds_up_no_ring") else { return };
    let blocks = Arc::new(Blocks::default());
    let waker = Waker::from(Arc::clone(&blocks));
    // Until one is not done when it is asked.
    let pending = (0..1_000).find_map(|_| {
        let mut pending = get_all(&stage, &stage.pool, 0..8, Call::default());
        let polled = Future::poll(std::pin::Pin::new(&mut pending), &mut Context::from_waker(&waker));
        polled.is_pending().then_some(pending)
    });
    eventually(|| blocks.woken.load(Ordering::SeqCst));
    let before = stage.backend.stats().ring;
    for _ in 0..20 {
        let outcomes = get_all(&stage, &stage.pool, 0..8, Call::default()).wait();
        assert_eq!(outcomes.prefix_len(Option::is_some), 8);
    }
    assert_eq!(stage.backend.stats().ring, before + 160);
    *blocks.open.lock().unwrap() = true;
    blocks.opened.notify_all();
    drop(pending);
    stage.all_slots_come_back();
}

/// Notes the threads on which pools are let go of.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Registrar for Notes {
    fn register(&self, _: &Region, _: &Strides) -> Result<Registration, RegisterError> {
        let notes = Arc::clone(&self.0);
        Ok(Registration::new(move || {
            let thread = std::thread::current().name().unwrap_or_default().to_owned();
            notes.lock().unwrap().push(thread);
        }))
    }
}

#[test]
fn the_last_page_of_a_pool_is_let_go_of_on_no_rings_thread() {
    let Some(stage) = ring("the_last_page_of_a_pool_is_let_go_of_on_no_rings_thread") else { return };
    let (notes, late) = (Notes::default(), Deadline::After(Duration::ZERO));
    let strides = stage.layout.strides(8, stage.backend.capabilities().alignment).unwrap();
    let spec = RegionSpec { len: strides.region_len(), huge_pages: HugePages::Off, ..Default::default() };
    let mut ends = 0;
    // Pages that are there, that are not, and that are too late.
    let calls = [
        (0..8, Call::default()),
        (100..108, Call::default()),
        (0..8, Call { deadline: late, ..Default::default() }),
    ];
    for (pages, call) in calls {
        for _ in 0..stage::repeats() {
            let pool = HostPool::new(spec.map().unwrap(), strides, &[&notes]).unwrap();
            drop(get_all(&stage, &pool, pages.clone(), call));
            drop(pool);
            ends += 1;
            eventually(|| notes.0.lock().unwrap().len() == ends);
        }
    }
    let threads = notes.0.lock().unwrap();
    assert!(!threads.iter().any(|name| name == "hicache-ring"), "{threads:?}");
}
