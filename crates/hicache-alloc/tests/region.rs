//! What a region is made of and what outlives it.

use hicache_alloc::{
    Alignment, AllocError, Backing, HostPool, HugePages, Prefault, Region, RegionSpec, Strides,
};
use rustix::fs::SealFlags;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

const BACKINGS: [Backing; 3] = [Backing::Private, Backing::Shared, Backing::Memfd];

fn map(len: usize, backing: Backing) -> Region {
    RegionSpec { len, backing, huge_pages: HugePages::Off, ..Default::default() }.map().unwrap()
}

#[test]
fn a_region_can_move_between_threads() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Region>();
    check::<HostPool>();
    check::<AllocError>();
}

#[test]
fn len_is_what_was_asked_and_capacity_what_is_mapped() {
    let page = Alignment::base_page();
    for backing in BACKINGS {
        for len in [1, page.bytes() - 1, page.bytes(), page.bytes() + 1, 3 << 20] {
            let region = map(len, backing);
            assert_eq!(region.len(), len);
            assert_eq!(region.capacity(), page.align_up(len).unwrap());
            assert_eq!(region.page_size(), page);
            assert_eq!(region.backing(), backing);
            assert!(page.is_aligned(region.as_ptr().addr()));
            assert!(region.fallbacks().is_empty());
        }
    }
}

#[test]
fn prefault_has_every_page_resident() {
    for backing in BACKINGS {
        for (prefault, kib) in [(Prefault::On, 1024), (Prefault::Off, 0)] {
            let region = mapped(backing, prefault);
            assert_eq!(resident_kib(&region), kib, "{backing:?} {prefault:?}");
        }
    }
}

/// 1 MiB on base pages, whatever huge pages others have reserved.
fn mapped(backing: Backing, prefault: Prefault) -> Region {
    let huge_pages = HugePages::Off;
    RegionSpec { len: 1 << 20, backing, prefault, huge_pages, ..Default::default() }.map().unwrap()
}

fn resident_kib(region: &Region) -> usize {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let start = format!("{:x}-", region.as_ptr().addr());
    let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&start));
    let resident = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
    resident.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_memfd_has_its_blocks_before_the_first_touch() {
    let region = mapped(Backing::Memfd, Prefault::Off);
    let stat = rustix::fs::fstat(region.fd().unwrap()).unwrap();
    assert_eq!(stat.st_size, 1 << 20);
    assert_eq!(stat.st_blocks * 512, 1 << 20);
}

#[test]
fn a_memfd_cannot_be_cut_grown_or_unsealed() {
    let region = map(8192, Backing::Memfd);
    let fd = region.fd().unwrap();
    let seals = rustix::fs::fcntl_get_seals(fd).unwrap();
    assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL), "{seals:?}");
    for len in [0, 4096, 16384] {
        assert_eq!(rustix::fs::ftruncate(fd, len), Err(rustix::io::Errno::PERM));
    }
    assert!(map(8192, Backing::Private).fd().is_none());
    assert!(map(8192, Backing::Shared).fd().is_none());
}

#[test]
fn a_memfd_carries_the_bytes_of_the_pages() {
    let strides = Strides::new(1, 2, 4096, Alignment::base_page()).unwrap();
    let pool = HostPool::new(map(strides.region_len(), Backing::Memfd), strides, &[]).unwrap();
    let mut pages = pool.alloc(2).unwrap();
    pages[1].piece_mut(0).copy_from(100, b"over there");
    let file = File::from(pool.region().fd().unwrap().try_clone_to_owned().unwrap());
    let at = strides.piece(pages[1].index(), 0).start as u64 + 100;
    let mut back = [0; 10];
    file.read_exact_at(&mut back, at).unwrap();
    assert_eq!(&back, b"over there");
    file.write_all_at(b"and back", at).unwrap();
    pages[1].piece(0).copy_to(100, &mut back);
    assert_eq!(&back, b"and backre");
}

#[test]
fn a_memfd_is_closed_on_exec() {
    let region = map(4096, Backing::Memfd);
    let flags = rustix::io::fcntl_getfd(region.fd().unwrap()).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
}
