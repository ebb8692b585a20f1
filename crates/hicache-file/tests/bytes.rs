//! Every byte comes back as it was, or not at all: alignments, short transfers, flipped bits.

mod stage;

use hicache_core::{
    Alignment, Backing, DType, Depth, ErrorKind, Found, Geometry, Namespace, PageLayout, PageOrder, State,
    StorageBackendExt, Store, Stored, Strides,
};
use hicache_file::{Direct, Engine, FileOptions, FileStore, SysCall, Verdict};
use stage::{Stage, files, get, key, pool_of, seam, set};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn every_length_round_trips_in_every_mode() {
    for direct in [Direct::Prefer, Direct::Off] {
        for len in [1, 511, 512, 513, 4095, 4096, 4097, 65_535, 65_536, 515_328, 1 << 20, (2 << 20) + 1] {
            let stage = Stage::with(len, FileOptions { direct, ..Default::default() }, None);
            for n in 0..3 {
                assert_eq!(stage.set(n).unwrap(), Stored::Written);
                assert_eq!(stage.set(n).unwrap(), Stored::Present);
                assert!(stage.get(n).unwrap());
            }
            assert!(!stage.get(99).unwrap());
            let stats = stage.backend.stats();
            assert_eq!(
                (stats.written, stats.present, stats.hits, stats.misses, stats.errors),
                (3, 3, 3, 1, 0)
            );
            let modes = stats.direct + stats.bounced + stats.buffered;
            assert_eq!(modes, 6, "each page that moved has a mode");
            assert_eq!(
                stats.buffered == 6,
                direct == Direct::Off || stage.store.health().fallbacks.len() > 1
            );
            let stage = stage.reopen();
            assert!((0..3).all(|n| stage.get(n).unwrap()));
        }
    }
}

#[test]
fn a_layer_first_pool_and_a_shared_one_come_back_whole() {
    let geometry = Geometry::Mha { layers: 5, tokens: 3, heads: 2, head_dim: 24, dtype: DType::Bf16 };
    for order in [PageOrder::LayerFirst, PageOrder::PageFirst] {
        for alignment in [1, 4096] {
            for backing in [Backing::Private, Backing::Shared, Backing::Memfd] {
                let stage = Stage::new(64);
                let layout = PageLayout::new(geometry, order).unwrap();
                let backend = stage.store.backend(Namespace::named("layers", layout).unwrap()).unwrap();
                let pool = pool_of(layout.strides(3, Alignment::new(alignment).unwrap()).unwrap(), backing);
                set(&*backend, &pool, 1).unwrap();
                assert!(get(&*backend, &pool, 1).unwrap());
                assert_eq!(pool.available(), 3);
            }
        }
    }
}

#[test]
fn b034_a_misaligned_page_bounces_and_comes_back_exact() {
    let stage = Stage::new(64);
    let device = stage.backend.capabilities().alignment.bytes();
    for skew in [1, 4, 16, 512, 2048] {
        for len in [65_536, 65_535, 1] {
            let layout = PageLayout::opaque(len).unwrap();
            let name = format!("{skew} {len}");
            let backend = stage.store.backend(Namespace::named(&name, layout).unwrap()).unwrap();
            let stride = 65_536 + skew;
            let strides = Strides::with_stride(1, 4, len, stride, 4 * stride).unwrap();
            let pool = pool_of(strides, Backing::Private);
            for n in 0..4 {
                set(&*backend, &pool, n).unwrap();
                assert!(get(&*backend, &pool, n).unwrap());
            }
            let stats = backend.stats();
            let fits = device > 1 && stride % device == 0 && len % device == 0;
            let bounced = if device == 1 || fits { 0 } else { 8 };
            assert_eq!(stats.bounced, bounced, "skew {skew}, length {len}, device {device}");
        }
    }
    in_page_cache(&stage);
}

/// Direct I/O leaves at most a page in the cache.
fn in_page_cache(stage: &Stage) {
    if stage.store.health().fallbacks.iter().any(|fallback| fallback.what == "direct") {
        return;
    }
    let on_disk = files(&stage.dir).into_iter().filter(|file| file.metadata().unwrap().len() > 65_536);
    for file in on_disk {
        let output = std::process::Command::new("fincore").args(["-n", "-o", "PAGES"]).arg(&file).output();
        let Ok(output) = output else {
            return stage::skip(
                "b034_a_misaligned_page_bounces_and_comes_back_exact",
                "needs fincore of util-linux",
            );
        };
        let pages = String::from_utf8_lossy(&output.stdout).trim().parse::<u64>().unwrap_or(0);
        assert!(pages <= 1 || is_tmpfs(&file), "{pages} pages of {} are cached", file.display());
    }
}

fn is_tmpfs(file: &Path) -> bool {
    let output = std::process::Command::new("stat").args(["-f", "-c", "%T"]).arg(file).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim() == "tmpfs"
}

#[test]
fn b041_a_transfer_above_the_limit_of_one_call_goes_on() {
    const CAP: usize = 65_536;
    for len in [CAP - 1, CAP, CAP + 1, (1 << 20) + 1, 1 << 20] {
        for direct in [Direct::Prefer, Direct::Off] {
            let (reads, writes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let counted = (Arc::clone(&reads), Arc::clone(&writes));
            let seam = seam(move |call, _| {
                let counter = match call {
                    SysCall::Read => &counted.0,
                    SysCall::Write => &counted.1,
                    _ => return None,
                };
                counter.fetch_add(1, Ordering::SeqCst);
                Some(Verdict::AtMost(CAP))
            });
            let options = FileOptions { direct, engine: Engine::Threads, ..Default::default() };
            let stage = Stage::with(len, options, seam);
            stage.set(0).unwrap();
            writes.store(0, Ordering::SeqCst);
            stage.set(1).unwrap();
            let file_len = stage.file(1).metadata().unwrap().len() as usize;
            assert_eq!(writes.load(Ordering::SeqCst), file_len.div_ceil(CAP), "writes of {len}");
            reads.store(0, Ordering::SeqCst);
            assert!(stage.get(1).unwrap());
            assert_eq!(reads.load(Ordering::SeqCst), file_len.div_ceil(CAP), "reads of {len}");
        }
    }
}

#[test]
fn b043_eagain_eintr_and_short_transfers_end_well_or_as_an_error() {
    let page_len = 131_072;
    let once = |verdict: Verdict| move |number: usize| (number == 0).then_some(verdict);
    let finite: Vec<Box<dyn Fn(usize) -> Option<Verdict> + Send + Sync>> = vec![
        Box::new(once(Verdict::Fail(libc::EAGAIN))),
        Box::new(|number| (number < 5).then_some(Verdict::Fail(libc::EAGAIN))),
        Box::new(|number| (number < 5).then_some(Verdict::Fail(libc::EINTR))),
        Box::new(move |number| (number == 0).then_some(Verdict::AtMost(page_len - 1))),
        Box::new(move |number| (number == 0).then_some(Verdict::AtMost(page_len / 2))),
        Box::new(move |number| match number {
            0 => Some(Verdict::AtMost(page_len / 2 + 7)),
            1 => Some(Verdict::Fail(libc::EAGAIN)),
            _ => None,
        }),
    ];
    for (case, rule) in finite.into_iter().enumerate() {
        let rule = Arc::new(rule);
        let armed = Arc::new(AtomicUsize::new(usize::MAX));
        let (rule_in, armed_in) = (Arc::clone(&rule), Arc::clone(&armed));
        let seam = seam(move |call, _| {
            let moves = matches!(call, SysCall::Read | SysCall::Write);
            if !moves || armed_in.load(Ordering::SeqCst) == usize::MAX {
                return None;
            }
            rule_in(armed_in.fetch_add(1, Ordering::SeqCst))
        });
        let stage = Stage::with(page_len, stage::threads(), seam);
        stage.set(0).unwrap();
        armed.store(0, Ordering::SeqCst);
        assert_eq!(stage.set(1).unwrap(), Stored::Written, "case {case}");
        armed.store(0, Ordering::SeqCst);
        assert!(stage.get(1).unwrap(), "case {case}");
        assert!(stage.scan(Depth::Contents, false).iter().all(|found| found.state == State::Sound));
    }
    for verdict in [Verdict::Fail(libc::EAGAIN), Verdict::Claim(1 << 30)] {
        let armed = Arc::new(AtomicUsize::new(0));
        let armed_in = Arc::clone(&armed);
        let seam = seam(move |call, _| {
            let moves = matches!(call, SysCall::Read | SysCall::Write);
            (moves && armed_in.load(Ordering::SeqCst) == 1).then_some(verdict)
        });
        let stage = Stage::with(page_len, stage::threads(), seam);
        stage.set(0).unwrap();
        armed.store(1, Ordering::SeqCst);
        assert_eq!(stage.set(1).unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(stage.get(0).unwrap_err().kind(), ErrorKind::Io);
        armed.store(0, Ordering::SeqCst);
        assert_eq!(stage.set(1).unwrap(), Stored::Written);
        assert!(stage.get(0).unwrap() && stage.get(1).unwrap());
        stage.all_slots_come_back();
    }
}

#[test]
fn one_flipped_bit_anywhere_in_a_page_file_is_found() {
    let stage = Stage::new(100);
    stage.set(1).unwrap();
    let path = stage.file(1);
    let sound = std::fs::read(&path).unwrap();
    for at in 0..sound.len() {
        let mut flipped = sound.clone();
        flipped[at] ^= 1 << (at % 8);
        std::fs::write(&path, &flipped).unwrap();
        if at % 512 == 0 {
            let finds = stage.scan(Depth::Contents, false);
            assert!(matches!(&finds[0].state, State::Wrong(_)), "byte {at}: {finds:?}");
            assert_eq!(finds[0].key, Some(key(1)));
        }
        assert!(!stage.get(1).unwrap(), "byte {at}");
        let bad = path.parent().unwrap();
        for left in files(bad) {
            std::fs::remove_file(left).unwrap();
        }
    }
    assert_eq!(stage.backend.stats().damaged, sound.len() as u64);
    assert_eq!(stage.backend.stats().hits, 0);
}

type Damage = (&'static str, fn(&Path, &[u8], &[u8]));

const DAMAGES: [Damage; 12] = [
    ("emptied", |path, _, _| std::fs::write(path, b"").unwrap()),
    ("one byte", |path, _, _| std::fs::write(path, b"x").unwrap()),
    ("cut by one", |path, own, _| std::fs::write(path, &own[..own.len() - 1]).unwrap()),
    ("longer by one", |path, own, _| std::fs::write(path, [own, b"x"].concat()).unwrap()),
    ("first bit", |path, own, _| flip(path, own, 0)),
    ("middle bit", |path, own, _| flip(path, own, own.len() / 2)),
    ("last bit", |path, own, _| flip(path, own, own.len() - 1)),
    ("another key's file", |path, _, other| std::fs::write(path, other).unwrap()),
    ("zeros", |path, own, _| std::fs::write(path, vec![0; own.len()]).unwrap()),
    ("a folder", |path, _, _| {
        std::fs::remove_file(path).unwrap();
        std::fs::create_dir(path).unwrap();
        std::fs::write(path.join("kept"), b"not ours").unwrap();
    }),
    ("a dangling link", |path, _, _| {
        std::fs::remove_file(path).unwrap();
        std::os::unix::fs::symlink("/nonexistent/page", path).unwrap();
    }),
    ("a fifo", |path, _, _| {
        std::fs::remove_file(path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    }),
];

fn flip(path: &Path, own: &[u8], at: usize) {
    let mut flipped = own.to_vec();
    flipped[at] ^= 0x10;
    std::fs::write(path, flipped).unwrap();
}

#[test]
fn b038_a_damaged_file_is_a_miss_and_the_next_set_heals_it() {
    for (name, damage) in DAMAGES {
        for ask_first in [true, false] {
            let stage = Stage::new(20_000);
            (0..3).for_each(|n| assert_eq!(stage.set(n).unwrap(), Stored::Written));
            let (own, other) = (std::fs::read(stage.file(1)).unwrap(), std::fs::read(stage.file(2)).unwrap());
            damage(&stage.file(1), &own, &other);
            if ask_first {
                assert!(!stage.get(1).unwrap(), "{name}");
                assert_eq!(stage.backend.stats().damaged, 1, "{name}");
                assert!(!stage.exists(1), "{name}: gone once it was found damaged");
                assert!(!stage.get(1).unwrap(), "{name}");
            }
            assert!(stage.get(0).unwrap() && stage.get(2).unwrap(), "{name}: neighbours");
            assert_eq!(stage.set(1).unwrap(), Stored::Written, "{name}");
            assert!(stage.get(1).unwrap() && stage.exists(1), "{name}");
            let stage = stage.reopen();
            assert!((0..3).all(|n| stage.get(n).unwrap()), "{name}");
            let mut states = stage.scan(Depth::Contents, false);
            states.retain(|found| found.state != State::Sound);
            assert!(matches!(states[..], [_]), "{name}: what was set aside is told: {states:?}");
            stage.scan(Depth::Contents, true);
            let left = stage.scan(Depth::Contents, false).len();
            assert_eq!(
                left,
                if name == "a folder" { 4 } else { 3 },
                "{name}: repaired, but for what is not ours"
            );
        }
    }
}

#[test]
fn a_directory_in_a_pages_place_is_explained_and_kept_with_what_is_in_it() {
    let stage = Stage::new(20_000);
    stage.set(1).unwrap();
    let place = stage.file(1);
    std::fs::remove_file(&place).unwrap();
    std::fs::create_dir(&place).unwrap();
    let says = |repair| {
        let finds = stage.scan(Depth::Contents, repair);
        let [Found { state: State::Wrong(why), repaired: false, place, .. }] = &finds[..] else {
            panic!("{finds:?}")
        };
        assert!(why.contains("directory") && why.contains("remove it by hand"), "{why}");
        assert!(Path::new(place).is_dir(), "{place}");
        place.clone()
    };
    assert_eq!(Path::new(&says(false)), place);
    assert_eq!(Path::new(&says(true)), place, "an empty one stays, too: whoever made it may want it");
    let refused = stage.backend.remove(key(1)).wait().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Incompatible);
    assert!(refused.to_string().contains("directory stands in a page's place"), "{refused}");
    assert!(!stage.get(1).unwrap());
    // A get has set it aside.
    assert_ne!(Path::new(&says(true)), place);
    says(true);
}

#[test]
fn a_page_without_a_checksum_is_served_only_to_who_accepts_it() {
    let stage = Stage::with(5000, FileOptions { checksum: false, ..Default::default() }, None);
    stage.set(1).unwrap();
    assert!(stage.get(1).unwrap());
    let open = |options| {
        let store = FileStore::open(&stage.dir, options).unwrap();
        store.backend(Namespace::named("test", stage.layout).unwrap()).unwrap()
    };
    let mut trusting = FileOptions::default();
    trusting.common.accept_unverified = true;
    let backend = open(trusting);
    assert!(get(&*backend, &stage.pool, 1).unwrap());
    assert_eq!((backend.stats().unverified, backend.stats().hits), (1, 1));
    let backend = open(FileOptions::default());
    assert!(!get(&*backend, &stage.pool, 1).unwrap());
    assert_eq!((backend.stats().unverified, backend.stats().hits), (1, 0));
    assert_eq!(
        set(&*backend, &stage.pool, 1).unwrap(),
        Stored::Written,
        "a page that no get serves is replaced"
    );
    assert!(get(&*backend, &stage.pool, 1).unwrap());
}
