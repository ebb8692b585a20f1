//! Reads that really hang in the kernel: who waits is answered, what the kernel has is nobody else's, and all of it
//! comes back when the medium lets go.

mod mirror;
mod stage;

use hicache_core::{
    Call, Deadline, ErrorKind, Get, HostPool, Outcomes, Page, PageIndex, PageMut, Pending, StorageBackendExt,
    Store,
};
use hicache_file::{Engine, FileOptions};
use hicache_testkit::poll_once;
use mirror::{BOTH_WAYS, Held, Mirror, Waits, folder};
use stage::{Stage, adopted_pool, bytes, content, eventually, key, skip};
use std::num::NonZeroU32;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const PAGE_LEN: usize = 65_536;
const PAGES: u64 = 24;

/// A store on a medium that can hang. The medium goes first, so that a test that fails is stuck in nothing.
struct Hung {
    mirror: Mirror,
    stage: Stage,
}

impl Hung {
    /// Its pages are stored where the mirror looks, and have been read once.
    fn new(test: &str, dir: &Path, engine: Engine, waits: Waits) -> Self {
        Self::of_depth(None, test, dir, engine, waits)
    }

    fn of_depth(depth: Option<u32>, test: &str, dir: &Path, engine: Engine, waits: Waits) -> Self {
        let dir = dir.join(format!("{engine:?}-{waits:?}"));
        let (real, mount) = (dir.join("real"), dir.join("mount"));
        let writer = Stage::at(&real, PAGE_LEN, stage::threads(), None).unwrap();
        (0..PAGES).for_each(|n| assert!(writer.set(n).is_ok()));
        drop(writer);
        let mirror = Mirror::start(test, &real, &mount, waits);
        let depth = depth.and_then(NonZeroU32::new);
        let options = FileOptions { engine, threads: NonZeroU32::new(8), depth, ..Default::default() };
        let stage = Stage::at(&mount, PAGE_LEN, options, None).unwrap();
        let health = stage.store.health();
        assert!(!health.fallbacks.iter().any(|told| told.what == "direct"), "{health:?}");
        let told = health.fallbacks.iter().any(|told| told.what == "nowait");
        assert_eq!(told, engine == Engine::IoUring, "{health:?}");
        // Once: from then on the namespace's record is known, and a ring may read.
        assert!(stage.get(0).unwrap());
        Self { mirror, stage }
    }

    fn hold(&self, pages: Range<u64>) {
        self.mirror.hold(Held::Reads, pages.map(|n| key(n).to_string()));
    }

    fn get_all(&self, pages: Range<u64>, call: Call) -> Pending<Outcomes<Option<Page>>> {
        let gets = pages.map(|n| Get { key: key(n), into: self.stage.page() }).collect();
        self.stage.backend.batch_get(gets, call)
    }

    fn free(&self) -> usize {
        self.stage.pool.available()
    }

    fn slots(&self) -> usize {
        self.stage.pool.slots() as usize
    }

    /// What hung is over, and the medium is as good as before.
    fn is_well_again(&self) {
        self.mirror.release();
        self.stage.all_slots_come_back();
        all_right(self.get_all(0..PAGES, Call::default()).wait(), 0);
        assert!(self.stage.get(3).unwrap());
        self.stage.all_slots_come_back();
    }
}

/// Runs `act` with every engine, however the kernel waits.
fn each_engine(test: &str, act: impl Fn(&Path, Engine, Waits)) {
    let Some(dir) = folder(test) else { return };
    if let Err(why) = hicache_file::probe_io_uring() {
        return skip(test, &format!("needs io_uring: {why}"));
    }
    for waits in BOTH_WAYS {
        act(&dir, Engine::IoUring, waits);
    }
    // A worker waits in its call either way.
    act(&dir, Engine::Threads, Waits::OnThread);
}

/// Long enough for reads to begin on a busy machine.
fn soon() -> Call {
    Call { deadline: Deadline::After(Duration::from_secs(1)), ..Default::default() }
}

fn all_right(outcomes: Outcomes<Option<Page>>, first: u64) {
    for (n, outcome) in (first..).zip(outcomes) {
        let page = outcome.unwrap().unwrap_or_else(|| panic!("page {n} is there"));
        assert!(content(&page) == bytes(n, PAGE_LEN), "page {n}");
    }
}

fn is_late(outcome: &hicache_core::Result<Option<Page>>) -> bool {
    outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Timeout)
}

/// Whether the kernel can be seen to be asked to let go of a read.
fn shows_cancels(engine: Engine, waits: Waits) -> bool {
    engine == Engine::IoUring && waits == Waits::OnThread
}

#[test]
fn a_batch_that_hangs_is_answered_at_its_deadline_and_its_pages_come_back_when_the_medium_lets_go() {
    let test =
        "a_batch_that_hangs_is_answered_at_its_deadline_and_its_pages_come_back_when_the_medium_lets_go";
    each_engine(test, |dir, engine, waits| {
        let hung = Hung::new(test, dir, engine, waits);
        hung.hold(0..4);
        let pending = hung.get_all(0..4, soon());
        hung.mirror.until_held(4);
        let outcomes = pending.wait();
        assert!(outcomes.iter().all(is_late), "{engine:?} {waits:?}: {outcomes:?}");
        eventually(|| hung.stage.backend.stats().timeouts == 4);
        if shows_cancels(engine, waits) {
            eventually(|| hung.mirror.counts().interrupted == 4);
        }
        assert_eq!(hung.mirror.counts().held, 4, "the medium has them still");
        assert_eq!(hung.free(), hung.slots() - 4, "and so has the kernel");
        hung.is_well_again();
    });
}

#[test]
fn b047_a_cancelled_read_that_the_medium_gives_up_is_late_and_its_page_comes_back_at_once() {
    let test = "b047_a_cancelled_read_that_the_medium_gives_up_is_late_and_its_page_comes_back_at_once";
    give_up(test, None, 6);
}

#[test]
fn b047_more_late_reads_than_there_is_room_to_cancel_at_once_are_all_let_go_of() {
    let test = "b047_more_late_reads_than_there_is_room_to_cancel_at_once_are_all_let_go_of";
    give_up(test, Some(8), 8);
}

fn give_up(test: &str, depth: Option<u32>, count: u32) {
    let Some(dir) = folder(test) else { return };
    if let Err(why) = hicache_file::probe_io_uring() {
        return skip(test, &format!("needs io_uring: {why}"));
    }
    let hung = Hung::of_depth(depth, test, &dir, Engine::IoUring, Waits::OnThread);
    hung.mirror.heed_interrupts();
    hung.hold(0..count.into());
    let slots = 40..40 + count;
    let claim = |slot| hung.stage.pool.claim(PageIndex::new(slot)).unwrap();
    let claimed: Vec<PageMut> = slots.clone().map(claim).collect();
    let gets = (0..).zip(claimed).map(|(n, into)| Get { key: key(n), into }).collect();
    // Answered only when the kernel has let go: it must have been asked to, since nobody releases anything.
    let outcomes = hung.stage.backend.batch_get(gets, soon()).wait();
    assert!(outcomes.iter().all(is_late), "{outcomes:?}");
    slots.for_each(|slot| drop(claim(slot)));
    assert_eq!(hung.mirror.counts().held, 0);
    hung.is_well_again();
}

#[test]
fn a_claimed_slot_that_hangs_is_answered_when_the_medium_lets_go_and_not_before() {
    let test = "a_claimed_slot_that_hangs_is_answered_when_the_medium_lets_go_and_not_before";
    each_engine(test, |dir, engine, waits| {
        let hung = Hung::new(test, dir, engine, waits);
        hung.hold(0..2);
        let claim = |n: u64| hung.stage.pool.claim(PageIndex::new(40 + n as u32));
        let gets = (0..2).map(|n| Get { key: key(n), into: claim(n).unwrap() }).collect();
        let mut pending = hung.stage.backend.batch_get(gets, soon());
        // Same deadline, begun later: when it is answered, that of the claimed ones has passed.
        hung.mirror.until_held(2);
        hung.hold(0..3);
        let after = hung.get_all(2..3, soon()).wait();
        assert!(after.iter().all(is_late));
        assert!(poll_once(&mut pending).is_pending());
        assert!((0..2).all(|n| claim(n).is_err()));
        hung.mirror.release();
        drop(pending.wait());
        (0..2).for_each(|n| drop(claim(n).unwrap()));
        hung.is_well_again();
    });
}

/// Gets page 0 into `into` with a hard deadline that passes while it hangs; then fills the memory, which `again` gives.
/// What the medium says afterwards must not be written there.
fn hard(hung: &Hung, into: PageMut, again: impl Fn() -> PageMut) {
    let gets = vec![Get { key: key(0), into }];
    let pending = hung.stage.backend.batch_get(gets, Call { hard: true, ..soon() });
    hung.mirror.until_held(1);
    let outcomes = pending.wait();
    assert!(outcomes.iter().all(is_late), "{outcomes:?}");
    assert_eq!(hung.mirror.counts().held, 1, "nobody let go of it yet");
    let mut page = again();
    page.piece_mut(0).copy_from(0, &[0x5A; PAGE_LEN]);
    hung.mirror.release();
    // Closed when the read is over.
    wait_for_close(&hung.stage);
    assert!(content(&page.freeze()) == [0x5A; PAGE_LEN], "written to after its deadline");
}

fn wait_for_close(stage: &Stage) {
    let store = stage.store.clone();
    hicache_testkit::wait("close", async move { store.close().await }).unwrap();
}

#[test]
fn a_hard_deadline_gives_a_claimed_slot_back_that_a_hung_read_never_writes_to() {
    let test = "a_hard_deadline_gives_a_claimed_slot_back_that_a_hung_read_never_writes_to";
    each_engine(test, |dir, engine, waits| {
        let hung = Hung::new(test, dir, engine, waits);
        hung.hold(0..1);
        let claim = || hung.stage.pool.claim(PageIndex::new(40)).unwrap();
        hard(&hung, claim(), claim);
    });
}

#[test]
fn a_hard_deadline_gives_adopted_memory_back_that_a_hung_read_never_writes_to() {
    let test = "a_hard_deadline_gives_adopted_memory_back_that_a_hung_read_never_writes_to";
    each_engine(test, |dir, engine, waits| {
        let hung = Hung::new(test, dir, engine, waits);
        let strides = hung.stage.layout.strides(1, hung.stage.backend.capabilities().alignment).unwrap();
        let pool: HostPool = adopted_pool(strides);
        let page = || pool.alloc(1).expect("the only slot is back").remove(0);
        let patient = Call { hard: true, ..Call::default() };
        let gets = vec![Get { key: key(5), into: page() }];
        all_right(hung.stage.backend.batch_get(gets, patient).wait(), 5);
        hung.hold(0..1);
        hard(&hung, page(), page);
    });
}

#[test]
fn b046_interest_that_is_dropped_while_reads_hang_leaves_them_their_pages() {
    let test = "b046_interest_that_is_dropped_while_reads_hang_leaves_them_their_pages";
    each_engine(test, |dir, engine, waits| {
        let hung = Hung::new(test, dir, engine, waits);
        hung.hold(0..4);
        let pending = hung.get_all(0..4, Call::default());
        hung.mirror.until_held(4);
        drop(pending);
        all_right(hung.get_all(4..5, Call::default()).wait(), 4);
        assert_eq!(hung.mirror.counts().held, 4);
        assert!(hung.free() <= hung.slots() - 4);
        hung.is_well_again();
    });
}

#[test]
fn a_store_that_is_closed_while_reads_hang_is_closed_when_the_medium_lets_go() {
    let test = "a_store_that_is_closed_while_reads_hang_is_closed_when_the_medium_lets_go";
    each_engine(test, |dir, engine, waits| {
        let hung = Hung::new(test, dir, engine, waits);
        hung.hold(0..3);
        let pending = hung.get_all(0..3, soon());
        hung.mirror.until_held(3);
        let store = hung.stage.store.clone();
        let mut close = Box::pin(async move { store.close().await });
        assert!(poll_once(&mut close).is_pending());
        let error = hung.stage.backend.get(key(1), hung.stage.page()).wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert!(pending.wait().iter().all(is_late), "deadlines pass all the same");
        assert!(poll_once(&mut close).is_pending());
        hung.mirror.release();
        hicache_testkit::wait("close", close).unwrap();
        assert_eq!(hung.free(), hung.slots());
    });
}

#[test]
fn a_store_that_is_dropped_while_reads_hang_asks_for_them_back_and_ends_with_them() {
    let test = "a_store_that_is_dropped_while_reads_hang_asks_for_them_back_and_ends_with_them";
    each_engine(test, |dir, engine, waits| {
        for heeds in [true, false] {
            let hung = Hung::new(test, &dir.join(heeds.to_string()), engine, waits);
            if heeds {
                hung.mirror.heed_interrupts();
            }
            hung.hold(0..3);
            let pending = hung.get_all(0..3, soon());
            hung.mirror.until_held(3);
            let Hung { mirror, stage } = hung;
            let Stage { store, backend, pool, .. } = stage;
            let dropping = std::thread::spawn(move || drop((store, backend)));
            assert!(pending.wait().iter().all(is_late));
            if !(heeds && shows_cancels(engine, waits)) {
                assert!(!dropping.is_finished() && pool.available() == pool.slots() as usize - 3);
                mirror.release();
            }
            dropping.join().unwrap();
            assert_eq!(pool.available(), pool.slots() as usize);
        }
    });
}

#[test]
fn a_lone_get_that_hangs_is_a_workers_and_its_caller_goes_on() {
    let test = "a_lone_get_that_hangs_is_a_workers_and_its_caller_goes_on";
    each_engine(test, |dir, engine, waits| {
        let hung = Hung::new(test, dir, engine, waits);
        hung.hold(0..2);
        // Nobody releases it before the call is back.
        let pending = hung.stage.backend.get(key(0), hung.stage.page());
        hung.mirror.until_held(1);
        assert!(hung.stage.get(5).unwrap(), "others are served meanwhile");
        let gets = vec![Get { key: key(1), into: hung.stage.page() }];
        let late = hung.stage.backend.batch_get(gets, soon());
        hung.mirror.until_held(2);
        assert!(late.wait().iter().all(is_late));
        assert_eq!((hung.mirror.counts().held, hung.free()), (2, hung.slots() - 2));
        hung.mirror.release();
        assert!(content(&pending.wait().unwrap().unwrap()) == bytes(0, PAGE_LEN));
        hung.is_well_again();
    });
}

#[test]
fn a_thread_that_ends_while_its_lone_get_hangs_is_not_kept() {
    let test = "a_thread_that_ends_while_its_lone_get_hangs_is_not_kept";
    each_engine(test, |dir, engine, waits| {
        let hung = Hung::new(test, dir, engine, waits);
        hung.hold(0..1);
        let (backend, into) = (Arc::clone(&hung.stage.backend), hung.stage.page());
        let pending = std::thread::spawn(move || backend.get(key(0), into)).join().unwrap();
        hung.mirror.until_held(1);
        hung.mirror.release();
        assert!(content(&pending.wait().unwrap().unwrap()) == bytes(0, PAGE_LEN));
        hung.is_well_again();
    });
}

#[test]
fn files_that_hang_hold_up_no_other_page_of_their_ring() {
    let test = "files_that_hang_hold_up_no_other_page_of_their_ring";
    each_engine(test, |dir, engine, waits| {
        others_go_on(&Hung::new(test, dir, engine, waits), Held::Reads, engine);
    });
}

#[test]
fn files_whose_opening_hangs_hold_up_no_other_page_of_their_ring() {
    let test = "files_whose_opening_hangs_hold_up_no_other_page_of_their_ring";
    each_engine(test, |dir, engine, waits| {
        others_go_on(&Hung::new(test, dir, engine, waits), Held::Opens, engine);
    });
}

fn others_go_on(hung: &Hung, what: Held, engine: Engine) {
    // More than the kernel has threads for a ring's files where it is told nothing; fewer than the store has.
    let sick = if engine == Engine::IoUring { 20 } else { 3 };
    hung.mirror.hold(what, (0..sick).map(|n| key(n).to_string()));
    let mixed = hung.get_all(0..PAGES, soon());
    hung.mirror.until_held(sick as usize);
    for _ in 0..3 {
        all_right(hung.get_all(sick..PAGES, Call::default()).wait(), sick);
    }
    let outcomes = mixed.wait();
    for (n, outcome) in (0..).zip(outcomes.iter()) {
        assert_eq!(is_late(outcome), n < sick, "page {n}: {outcome:?}");
    }
    drop(outcomes);
    hung.is_well_again();
}
