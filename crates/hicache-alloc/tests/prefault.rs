//! Every page is there after a prefault, whoever faulted it in, and not one more.

mod machine;

use hicache_alloc::HugePageSize::{Size1G, Size2M};
use hicache_alloc::{Alignment, Backing, HugePages, Machine, Prefault, RegionSpec};
use machine::{ReservedPages, account, machine_of, use_all};
use std::num::NonZeroU32;

const MIB: usize = 1 << 20;
const BACKINGS: [Backing; 3] = [Backing::Private, Backing::Shared, Backing::Memfd];

fn with(threads: u32) -> Prefault {
    Prefault::With(NonZeroU32::new(threads).unwrap())
}

#[test]
fn resident_is_what_was_asked_on_any_number_of_threads() {
    let Some(_pages) = ReservedPages::hold("resident_is_what_was_asked_on_any_number_of_threads", &[]) else {
        return;
    };
    let machine = Machine::default();
    for (backing, huge_pages) in
        BACKINGS.into_iter().flat_map(|b| [(b, HugePages::Off), (b, HugePages::Prefer(Size2M))])
    {
        for (prefault, threads) in [(with(1), 1), (with(2), 2), (with(7), 3), (Prefault::Off, 0)] {
            // Three chunks, the last of them neither whole nor whole huge pages.
            let len = 40 * MIB + Alignment::base_page().bytes();
            let spec = RegionSpec { len, backing, huge_pages, prefault, ..Default::default() };
            let region = spec.map_on(&machine).unwrap();
            let resident: usize = account(region.as_ptr(), "Rss")[0].parse().unwrap();
            if region.page_size() == Alignment::base_page() {
                assert_eq!(resident * 1024, if threads > 0 { len } else { 0 }, "{backing:?} {prefault:?}");
            }
            let tiled = region.prefault_threads();
            // An address in the middle of a chunk makes one chunk more.
            assert!(tiled == threads || tiled == threads + 1 && threads == 3, "{tiled} of {threads}");
            use_all(region);
        }
    }
}

#[test]
fn a_small_region_is_not_worth_a_thread() {
    let Some(_pages) = ReservedPages::hold("a_small_region_is_not_worth_a_thread", &[]) else { return };
    let spec = RegionSpec { len: MIB, ..Default::default() };
    // Two, if its address is in the middle of a chunk.
    assert!(spec.map().unwrap().prefault_threads() <= 2);
}

/// The threads stay beside the node, the caller where it was.
#[test]
fn threads_go_to_the_processors_of_the_node() {
    use hicache_alloc::{Numa, NumaNode};
    let root = tempfile::tempdir().unwrap();
    let before = rustix::thread::sched_getaffinity(None).unwrap();
    let first = (0..).find(|processor| before.is_set(*processor)).unwrap().to_string();
    let files = [
        ("sys/devices/system/node/online", "0\n"),
        ("sys/devices/system/node/node0/cpulist", first.as_str()),
    ];
    let machine = machine_of(root.path(), &files);
    let numa = Numa::Prefer(NumaNode::new(0));
    let spec = RegionSpec {
        len: 64 * MIB,
        numa,
        prefault: with(3),
        huge_pages: HugePages::Off,
        ..Default::default()
    };
    let region = spec.map_on(&machine).unwrap();
    assert!(region.prefault_threads() >= 3);
    assert_eq!(rustix::thread::sched_getaffinity(None).unwrap(), before);
    use_all(region);
}

#[test]
fn a_gibibyte_page_is_had_whole() {
    let Some(_pages) = ReservedPages::hold("a_gibibyte_page_is_had_whole", &[(Size1G, 1)]) else { return };
    for backing in BACKINGS {
        // Clearing it takes a second or so: once is enough.
        let prefault = if backing == Backing::Memfd { with(2) } else { Prefault::Off };
        let huge_pages = HugePages::Require(Size1G);
        let spec = RegionSpec { len: 3 * MIB, backing, huge_pages, prefault, ..Default::default() };
        let region = spec.map().unwrap();
        assert_eq!((region.capacity(), region.huge_len()), (1 << 30, 1 << 30));
        assert!(Size1G.alignment().is_aligned(region.as_ptr().addr()));
        if prefault != Prefault::Off {
            let held: usize = account(region.as_ptr(), "Shared_Hugetlb")[0].parse().unwrap();
            let alone: usize = account(region.as_ptr(), "Private_Hugetlb")[0].parse().unwrap();
            assert_eq!((held + alone) * 1024, 1 << 30);
            assert_eq!(region.prefault_threads(), 1);
            use_all(region);
        }
    }
}

#[test]
fn a_memfd_on_huge_pages_is_seen_through_its_descriptor() {
    let test = "a_memfd_on_huge_pages_is_seen_through_its_descriptor";
    let Some(_pages) = ReservedPages::hold(test, &[(Size2M, 4)]) else { return };
    use hicache_alloc::{HostPool, Strides};
    for prefault in [Prefault::On, Prefault::Off] {
        let strides = Strides::new(2, 4, MIB, Alignment::base_page()).unwrap();
        let huge_pages = HugePages::Require(Size2M);
        let spec = RegionSpec {
            len: strides.region_len(),
            backing: Backing::Memfd,
            huge_pages,
            prefault,
            ..Default::default()
        };
        let region = spec.map().unwrap();
        assert!(region.is_sealed() && region.huge_len() == 8 * MIB);
        let seals = rustix::fs::fcntl_get_seals(region.fd().unwrap()).unwrap();
        assert!(seals.contains(rustix::fs::SealFlags::SHRINK | rustix::fs::SealFlags::GROW));
        let pool = HostPool::new(region, strides, &[]).unwrap();
        let mut page = pool.alloc(4).unwrap().remove(3);
        page.piece_mut(1).copy_from(5, b"over there");
        let at = strides.piece(page.index(), 1).start + 5;
        let file = std::fs::File::from(pool.region().fd().unwrap().try_clone_to_owned().unwrap());
        let mut back = [0; 10];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut back, at as u64).unwrap();
        assert_eq!(&back, b"over there");
    }
}
