//! Pools on base pages: through slots on huge pages, where that is asked for or measured to be faster, and told.

mod stage;

use hicache_core::{
    Alignment, Backing, Call, DType, Depth, Error, ErrorKind, Geometry, Get, HostPool, Namespace, PageLayout,
    PageOrder, Put, RegionSpec, Source, State, Stats, Store, StoreOptions,
};
use hicache_file::{Bounce, Engine, FileOptions, FileStore, Seam, SysCall, Verdict};
use stage::{Stage, bytes, content, get, key, pool_of, put, set, skip};
use std::fs::OpenOptions;
use std::num::NonZeroU32;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const PAGE_LEN: usize = 65_536;

fn options(bounce: Bounce, engine: Engine) -> FileOptions {
    FileOptions { bounce, engine, ..Default::default() }
}

/// A stage, or `None` where there is no direct I/O, no ring that is asked for, or no huge page to go through.
fn stage(test: &str, len: usize, options: FileOptions, seam: Option<Seam>) -> Option<Stage> {
    let spec = RegionSpec { len: 2 << 20, ..Default::default() };
    if spec.map().unwrap().huge_len() == 0 {
        skip(test, "needs huge pages");
        return None;
    }
    let temporary = tempfile::tempdir().unwrap();
    if let Err(error) = FileStore::open(temporary.path().join("probe"), options.clone()) {
        skip(test, &format!("needs io_uring: {error}"));
        return None;
    }
    let stage = Stage::with(len, options, seam);
    if stage.backend.capabilities().alignment == Alignment::NONE {
        skip(test, "needs direct I/O in the temporary directory");
        return None;
    }
    Some(stage)
}

/// Fetches pages of the stage in one batch, each of which must be right.
fn get_all(stage: &Stage, count: u64) {
    get_these(stage, &contents(stage, count));
}

fn contents(stage: &Stage, count: u64) -> Vec<Vec<u8>> {
    (0..count).map(|n| bytes(n, stage.layout.page_len())).collect()
}

fn get_these(stage: &Stage, contents: &[Vec<u8>]) {
    let count = contents.len() as u64;
    let into = stage.pool.alloc(count as usize).expect("free slots");
    let gets = (0..count).zip(into).map(|(n, into)| Get { key: key(n), into }).collect();
    for (n, outcome) in (0..).zip(stage.backend.batch_get(gets, Call::default()).wait()) {
        let page = outcome.unwrap().unwrap_or_else(|| panic!("page {n} is there"));
        assert!(content(&page) == contents[n as usize], "page {n}");
    }
}

fn set_all(stage: &Stage, count: u64) {
    let puts: Vec<Put> = (0..count).map(|n| put(&stage.pool, n)).collect();
    stage
        .backend
        .batch_set(puts, Call::default())
        .wait()
        .into_iter()
        .for_each(|outcome| assert!(outcome.is_ok(), "{outcome:?}"));
}

/// Whys of one kind that the store has told.
fn told(store: &FileStore, what: &str, part: &str) -> Vec<String> {
    let all = store.health().fallbacks.into_iter().filter(|told| told.what == what);
    all.map(|told| told.why).filter(|why| why.contains(part)).collect()
}

fn moved(stats: &Stats) -> (u64, u64, u64) {
    (stats.direct, stats.bounced, stats.buffered)
}

#[test]
fn a_pool_on_base_pages_bounces_and_comes_back_exact() {
    let test = "a_pool_on_base_pages_bounces_and_comes_back_exact";
    for (engine, checksum) in [(Engine::Threads, true), (Engine::Threads, false), (Engine::IoUring, true)] {
        // The last is more than a slot.
        for len in [4096, PAGE_LEN, 1 << 20, (4 << 20) + 4096] {
            let options = FileOptions { checksum, ..options(Bounce::On, engine) };
            let Some(stage) = stage(test, len, options, None) else { return };
            set_all(&stage, 4);
            // The first bring the slots; rings use what is there.
            (0..3).for_each(|_| get_all(&stage, 4));
            assert!(stage.get(1).unwrap() && !stage.get(99).unwrap());
            let stats = stage.backend.stats();
            assert_eq!(moved(&stats), (0, 17, 0), "{engine:?} {len}");
            let by_ring = engine == Engine::IoUring && len <= 4 << 20;
            assert_eq!(stats.ring > 0, by_ring, "{engine:?} {len}");
            assert!(
                stage
                    .scan(Depth::Contents, false)
                    .iter()
                    .all(|found| found.state == State::Sound || !checksum)
            );
            stage.all_slots_come_back();
            // What went through slots is what goes straight.
            let other = FileOptions { checksum, bounce: Bounce::Off, ..Default::default() };
            let straight = Stage::at(&stage.dir, len, other, None).unwrap();
            get_all(&straight, 4);
            assert_eq!(moved(&straight.backend.stats()), (4, 0, 0));
        }
    }
}

#[test]
fn pages_of_many_pieces_and_of_shared_memory_bounce_in_the_right_order() {
    let test = "pages_of_many_pieces_and_of_shared_memory_bounce_in_the_right_order";
    for engine in [Engine::Threads, Engine::IoUring] {
        for backing in [Backing::Private, Backing::Shared, Backing::Memfd] {
            let Some(stage) = stage(test, 64, options(Bounce::On, engine), None) else { return };
            let alignment = stage.backend.capabilities().alignment;
            // 60 pieces: those of 12 KiB lie across the steps that are copied at once.
            let geometry = Geometry::Mla { layers: 60, tokens: 12, latent_dim: 1024, dtype: DType::U8 };
            let layout = PageLayout::new(geometry, PageOrder::LayerFirst).unwrap();
            let backend = stage.store.backend(Namespace::named("layers", layout).unwrap()).unwrap();
            let pool = pool_of(layout.strides(4, alignment).unwrap(), backing);
            for n in 0..4 {
                set(&*backend, &pool, n).unwrap();
            }
            for _ in 0..2 {
                let into = pool.alloc(4).unwrap();
                let gets = (0..).zip(into).map(|(n, into)| Get { key: key(n), into }).collect();
                for (n, outcome) in (0..).zip(backend.batch_get(gets, Call::default()).wait()) {
                    assert!(content(&outcome.unwrap().unwrap()) == bytes(n, layout.page_len()), "page {n}");
                }
            }
            assert_eq!(moved(&backend.stats()), (0, 12, 0), "{engine:?} {backing:?}");
        }
    }
}

#[test]
fn damage_is_found_in_what_bounced() {
    let test = "damage_is_found_in_what_bounced";
    for engine in [Engine::Threads, Engine::IoUring] {
        let Some(stage) = stage(test, PAGE_LEN, options(Bounce::On, engine), None) else { return };
        set_all(&stage, 5);
        get_all(&stage, 5);
        // In the first and the last byte of the page, in the trailer, and a file too short.
        for (n, at) in [(0, 0), (1, PAGE_LEN - 1), (2, PAGE_LEN + 100), (3, 0)] {
            let file = OpenOptions::new().read(true).write(true).open(stage.file(n)).unwrap();
            if n == 3 {
                file.set_len(PAGE_LEN as u64).unwrap();
                continue;
            }
            let mut byte = [0];
            file.read_exact_at(&mut byte, at as u64).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at as u64).unwrap();
            file.sync_all().unwrap();
        }
        let into = stage.pool.alloc(5).unwrap();
        let gets = (0..).zip(into).map(|(n, into)| Get { key: key(n), into }).collect();
        let served: Vec<bool> = stage
            .backend
            .batch_get(gets, Call::default())
            .wait()
            .into_iter()
            .map(|outcome| outcome.unwrap().is_some())
            .collect();
        assert_eq!(served, [false, false, false, false, true], "{engine:?}");
        assert_eq!(stage.backend.stats().damaged, 4);
        stage.all_slots_come_back();
    }
}

#[test]
fn bounce_off_and_huge_pages_go_straight() {
    let test = "bounce_off_and_huge_pages_go_straight";
    for engine in [Engine::Threads, Engine::Auto] {
        let Some(off) = stage(test, PAGE_LEN, options(Bounce::Off, engine), None) else { return };
        set_all(&off, 8);
        (0..3).for_each(|_| get_all(&off, 8));
        assert_eq!(moved(&off.backend.stats()), (32, 0, 0));
        assert!(told(&off.store, "copy", "").is_empty());

        let Some(on) = stage(test, PAGE_LEN, options(Bounce::On, engine), None) else { return };
        let strides = on.layout.strides(32, on.backend.capabilities().alignment).unwrap();
        let spec = RegionSpec { len: strides.region_len(), ..Default::default() };
        let region = spec.map().unwrap();
        assert!(2 * region.huge_len() > region.len(), "huge pages were there");
        let pool = HostPool::new(region, strides, &[]).unwrap();
        for n in 0..8 {
            set(&*on.backend, &pool, n).unwrap();
            assert!(get(&*on.backend, &pool, n).unwrap());
        }
        assert_eq!(moved(&on.backend.stats()), (16, 0, 0));
    }
}

#[test]
fn what_bounces_is_told_once_with_the_way_out() {
    let test = "what_bounces_is_told_once_with_the_way_out";
    let Some(stage) = stage(test, PAGE_LEN, options(Bounce::On, Engine::Auto), None) else { return };
    assert!(told(&stage.store, "copy", "base pages, and").is_empty(), "nothing moved yet");
    set_all(&stage, 8);
    get_all(&stage, 8);
    let told = told(&stage.store, "copy", "base pages, and");
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("bounce=on") && told[0].contains("put the pool on huge pages"), "{told:?}");
}

#[test]
fn slots_without_huge_pages_are_not_gone_through_and_told() {
    let test = "slots_without_huge_pages_are_not_gone_through_and_told";
    let mut asked = StoreOptions::default();
    asked.set(Source::Url, "huge_pages", "off");
    asked.set(Source::Url, "bounce", "on");
    let Some(stage) = stage(test, PAGE_LEN, FileOptions::from_options(asked).unwrap(), None) else { return };
    set_all(&stage, 8);
    (0..2).for_each(|_| get_all(&stage, 8));
    assert_eq!(moved(&stage.backend.stats()), (24, 0, 0));
    let told = told(&stage.store, "bounce", "go straight");
    assert_eq!(told.len(), 1, "{told:?}");
}

#[test]
fn namespaces_share_the_slots_of_a_store_and_who_finds_none_goes_straight_and_told_once() {
    let test = "namespaces_share_the_slots_of_a_store_and_who_finds_none_goes_straight_and_told_once";
    let len = 4 << 20;
    // Eight slots of this length are all that a store has.
    let options = FileOptions { threads: NonZeroU32::new(8), ..options(Bounce::On, Engine::Threads) };
    let Some(stage) = stage(test, len, options, None) else { return };
    set_all(&stage, 2);
    assert_eq!(moved(&stage.backend.stats()), (0, 2, 0));
    let layout = PageLayout::opaque(len).unwrap();
    let backend = |name: &str| stage.store.backend(Namespace::named(name, layout).unwrap()).unwrap();
    for round in 0..3 {
        // A backend of its own each time.
        let other = backend("other");
        set(&*other, &stage.pool, round).unwrap();
        assert!(get(&*other, &stage.pool, round).unwrap());
        assert_eq!(moved(&other.stats()), (2, 0, 0), "round {round}");
    }
    let none = told(&stage.store, "bounce", "other namespaces have the store's slots");
    assert_eq!(none.len(), 1, "{none:?}");
    assert!(none[0].starts_with("other: ") && none[0].contains("go straight"), "{none:?}");
    // What the first had is there for others when it is gone.
    let Stage { store, backend, pool, dir: _, .. } = stage;
    drop(backend);
    stage::eventually(|| {
        let third = store.backend(Namespace::named("third", layout).unwrap()).unwrap();
        set(&*third, &pool, 7).unwrap();
        get(&*third, &pool, 7).unwrap() && third.stats().bounced > 0
    });
}

#[test]
fn more_workers_than_slots_go_straight_and_told() {
    let test = "more_workers_than_slots_go_straight_and_told";
    let options = FileOptions { threads: NonZeroU32::new(40), ..options(Bounce::Auto, Engine::Threads) };
    let Some(stage) = stage(test, 1 << 20, options, None) else { return };
    set_all(&stage, 8);
    for _ in 0..40 {
        get_all(&stage, 8);
    }
    assert_eq!(stage.backend.stats().bounced, 0);
    assert_eq!(told(&stage.store, "bounce", "40 workers").len(), 1);
}

#[test]
fn a_trial_serves_right_pages_both_ways_and_comes_to_an_end() {
    let test = "a_trial_serves_right_pages_both_ways_and_comes_to_an_end";
    // Twelve windows of four pages a worker at least, and of 16 MiB.
    let few = NonZeroU32::new(8);
    // A page of 2 MiB has no slot for itself where 32 workers are to have one each.
    let loads = [
        (Engine::Threads, few, PAGE_LEN, 120),
        (Engine::Auto, few, PAGE_LEN, 120),
        (Engine::Threads, NonZeroU32::new(32), 2 << 20, 60),
    ];
    for (engine, threads, len, batches) in loads {
        let options = FileOptions { threads, ..options(Bounce::Auto, engine) };
        let Some(stage) = stage(test, len, options, None) else { return };
        set_all(&stage, 32);
        let contents = contents(&stage, 32);
        (0..batches).for_each(|_| get_these(&stage, &contents));
        let trial = stage.backend.stats();
        let all = 32 + 32 * batches;
        assert_eq!(trial.direct + trial.bounced, all);
        assert!(trial.direct >= all / 4 && trial.bounced >= all / 4, "both ways were tried: {trial:?}");
        // From now on one way only.
        (0..4).for_each(|_| get_these(&stage, &contents));
        let after = stage.backend.stats();
        let (direct, bounced) = (after.direct - trial.direct, after.bounced - trial.bounced);
        assert!((direct, bounced) == (128, 0) || (direct, bounced) == (0, 128), "{direct} {bounced}");
        let told = told(&stage.store, "copy", "times as fast");
        assert_eq!(told.len(), usize::from(bounced > 0), "{told:?}");
        assert!(told.iter().all(|why| why.contains("reads") && why.contains("put the pool on huge pages")));
        stage.all_slots_come_back();
    }
}

#[test]
fn a_ring_that_fails_takes_slots_and_no_page() {
    let test = "a_ring_that_fails_takes_slots_and_no_page";
    let broken = Arc::new(AtomicBool::new(false));
    let breaks = Arc::clone(&broken);
    let seam = Seam::new(move |call, _| match call {
        SysCall::Enter if breaks.swap(false, Ordering::SeqCst) => Verdict::Fail(libc::EBADF),
        _ => Verdict::Pass,
    });
    let Some(stage) = stage(test, PAGE_LEN, options(Bounce::On, Engine::IoUring), Some(seam)) else { return };
    set_all(&stage, 8);
    (0..2).for_each(|_| get_all(&stage, 8));
    broken.store(true, Ordering::SeqCst);
    let into = stage.pool.alloc(8).unwrap();
    let gets = (0..).zip(into).map(|(n, into)| Get { key: key(n), into }).collect();
    let outcomes = stage.backend.batch_get(gets, Call::default()).wait();
    assert!(!broken.load(Ordering::SeqCst), "a ring failed");
    drop(outcomes);
    // Of the pages that it had, none is leaked: what the kernel may still write to are the store's slots.
    stage.all_slots_come_back();
    stage::eventually(|| told(&stage.store, "io_uring", "replaced").len() == 1);
    get_all(&stage, 8);
}

#[test]
fn the_option_is_auto_or_a_boolean_and_else_refused() {
    let parse = |value: &str| {
        let mut options = StoreOptions::default();
        options.set(Source::Url, "bounce", value);
        FileOptions::from_options(options).map(|options| options.bounce)
    };
    let got = ["auto", "on", "true", "off", "0"].map(|value| parse(value).unwrap());
    assert_eq!(got, [Bounce::Auto, Bounce::On, Bounce::On, Bounce::Off, Bounce::Off]);
    for value in ["", "always", "2"] {
        let error: Error = parse(value).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(format!("{error:?}").contains("bounce"), "{error:?}");
    }
    assert_eq!(FileOptions::default().bounce, Bounce::Auto);
}
