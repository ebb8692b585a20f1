//! Memory that is not there is refused by name before it is touched.

mod machine;

use hicache_alloc::HugePageSize::{Size1G, Size2M};
use hicache_alloc::{
    AllocError, Backing, Budget, HugePages, Machine, MachinePaths, Numa, NumaNode, Prefault, RegionSpec,
    Shortage,
};
use machine::refuse::{MEMFD_CREATE, refuse};
use machine::{ReservedPages, child, child_on_tmpfs, leftovers, machine_of, warnings};
use std::fs;
use std::path::Path;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const BACKINGS: [Backing; 3] = [Backing::Private, Backing::Shared, Backing::Memfd];
/// A host with 76 GiB free, whatever the container may have.
const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal: 99614720 kB\nMemAvailable: 79691776 kB\n");

fn spec(len: usize) -> RegionSpec {
    RegionSpec { len, huge_pages: HugePages::Off, ..Default::default() }
}

fn shortage(error: &AllocError) -> &Shortage {
    let AllocError::Exhausted { shortage, source } = error else { panic!("{error:?}") };
    assert!(source.raw_os_error().is_some());
    shortage
}

/// The files of the report's container, an eight-thousandth of its size where `unit` is a KiB instead of a MiB.
fn container(version: u32, unit: u64, limit: Option<&str>) -> Vec<(&'static str, String)> {
    let limit = limit.map_or_else(|| (8192 * unit).to_string(), str::to_owned);
    let used = (8090 * unit).to_string();
    let (inactive, active) = (4096 * unit, 2048 * unit);
    let mut files = vec![(MEMINFO.0, MEMINFO.1.to_owned())];
    if version == 2 {
        let stat = format!("anon 1\nfile 1\ninactive_file {inactive}\nactive_file {active}\n");
        files.push(("proc/self/cgroup", "0::/pod/worker\n".to_owned()));
        files.push(("cgroup/pod/worker/memory.max", limit));
        files.push(("cgroup/pod/worker/memory.current", used));
        files.push(("cgroup/pod/worker/memory.stat", stat));
    } else {
        let stat = format!(
            "cache 1\ninactive_file 0\nactive_file 0\ntotal_inactive_file {inactive}\ntotal_active_file {active}\n"
        );
        files.push(("proc/self/cgroup", "9:cpu:/x\n4:memory:/pod/worker\n0::/\n".to_owned()));
        files.push(("cgroup/memory/pod/worker/memory.limit_in_bytes", limit));
        files.push(("cgroup/memory/pod/worker/memory.usage_in_bytes", used));
        files.push(("cgroup/memory/pod/worker/memory.stat", stat));
    }
    files
}

fn machine_in(root: &Path, files: &[(&'static str, String)]) -> Machine {
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    machine_of(root, &files)
}

#[test]
fn b008_the_limit_of_the_container_counts_without_its_file_cache() {
    child("b008_the_limit_of_the_container_counts_without_its_file_cache", || {
        for version in [1, 2] {
            let root = tempfile::tempdir().unwrap();
            let machine = machine_in(root.path(), &container(version, KIB as u64, None));
            for backing in BACKINGS {
                let spec = RegionSpec { backing, ..spec(4 * MIB) };
                let (region, events) = warnings(|| spec.map_on(&machine).unwrap());
                assert_eq!((region.capacity(), events.len(), region.fallbacks().len()), (4 * MIB, 0, 0));
                drop(region);
                let before = leftovers();
                let error = RegionSpec { len: 20 * MIB, ..spec }.map_on(&machine).unwrap_err();
                assert_eq!(leftovers(), before);
                names_the_limit(&error, version);
            }
            let counts = machine.counts();
            assert_eq!((counts.mapped, counts.refused), (3, 3));
        }
    });
}

fn names_the_limit(error: &AllocError, version: u32) {
    let text = error.to_string();
    let file = if version == 2 { "pod/worker/memory.max" } else { "pod/worker/memory.limit_in_bytes" };
    for word in [file, "cgroup limit", "8388608", "20971520", "--memory"] {
        assert!(text.contains(word), "{text}");
    }
    let Shortage::Cgroup { wanted, limit, used, reclaimable, .. } = *shortage(error) else {
        panic!("{error:?}")
    };
    assert_eq!((wanted, limit, used, reclaimable), (20 * MIB, 8 << 20, 8090 << 10, 6 << 20));
}

/// The report's own sizes; what can be had is asked without taking it.
#[test]
fn b008_the_reports_own_numbers() {
    for version in [1, 2] {
        let root = tempfile::tempdir().unwrap();
        let machine = machine_in(root.path(), &container(version, MIB as u64, None));
        let available = machine.available_memory().unwrap();
        assert_eq!(available, (8192 - 8090 + 6144) << 20);
        assert!((4 << 30..20 << 30).contains(&available));
        let error = spec(20 << 30).map_on(&machine).unwrap_err();
        assert!(matches!(shortage(&error), Shortage::Cgroup { limit, .. } if *limit == 8 << 30), "{error}");
    }
}

#[test]
fn b008_no_limit_is_no_check() {
    for version in [1, 2] {
        for limit in ["max", "9223372036854771712"] {
            let root = tempfile::tempdir().unwrap();
            let machine = machine_in(root.path(), &container(version, KIB as u64, Some(limit)));
            spec(20 * MIB).map_on(&machine).unwrap();
        }
    }
    let root = tempfile::tempdir().unwrap();
    let machine = machine_of(root.path(), &[]);
    assert_eq!(machine.available_memory(), None);
    assert!(spec(20 * MIB).map_on(&machine).unwrap().fallbacks().is_empty());
}

#[test]
fn what_takes_no_memory_yet_or_asks_for_no_check_is_mapped() {
    let root = tempfile::tempdir().unwrap();
    let machine = machine_in(root.path(), &container(2, KIB as u64, None));
    for backing in [Backing::Private, Backing::Shared] {
        RegionSpec { backing, prefault: Prefault::Off, ..spec(20 * MIB) }.map_on(&machine).unwrap();
    }
    let lazy = RegionSpec { backing: Backing::Memfd, prefault: Prefault::Off, ..spec(20 * MIB) };
    assert!(matches!(shortage(&lazy.map_on(&machine).unwrap_err()), Shortage::Cgroup { .. }));
    for backing in BACKINGS {
        RegionSpec { backing, budget: Budget::Skip, ..spec(20 * MIB) }.map_on(&machine).unwrap();
    }
    // What the machine could never hold is refused all the same.
    let never = RegionSpec { budget: Budget::Skip, ..spec(1 << 46) }.map_on(&machine).unwrap_err();
    assert!(matches!(shortage(&never), Shortage::Memory { .. }));
}

#[test]
fn more_than_is_available_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let machine = machine_of(root.path(), &[("proc/meminfo", "MemTotal: 1 kB\nMemAvailable: 1024 kB\n")]);
    spec(MIB).map_on(&machine).unwrap();
    let error = spec(MIB + 1).map_on(&machine).unwrap_err();
    assert!(matches!(shortage(&error), Shortage::Available { available: 1_048_576, .. }), "{error}");
    assert!(error.to_string().contains("MemAvailable"), "{error}");
}

#[test]
fn a_required_node_has_its_own_share() {
    let root = tempfile::tempdir().unwrap();
    let node = "Node 0 MemTotal: 9 kB\nNode 0 MemFree: 512 kB\nNode 0 Active(file): 256 kB\n\
                Node 0 Inactive(file): 256 kB\n";
    let files =
        [MEMINFO, ("sys/devices/system/node/online", "0\n"), ("sys/devices/system/node/node0/meminfo", node)];
    let machine = machine_of(root.path(), &files);
    let [prefer, require] = [Numa::Prefer, Numa::Require].map(|numa| numa(NumaNode::new(0)));
    RegionSpec { numa: prefer, ..spec(2 * MIB) }.map_on(&machine).unwrap();
    let error = RegionSpec { numa: require, ..spec(2 * MIB) }.map_on(&machine).unwrap_err();
    assert!(matches!(shortage(&error), Shortage::Node { free: 1_048_576, .. }), "{error}");
}

#[test]
fn the_pool_of_huge_pages_counts_without_the_promised_ones() {
    let root = tempfile::tempdir().unwrap();
    let folder = "sys/kernel/mm/hugepages/hugepages-1048576kB";
    let files = [("nr", "9"), ("free", "8"), ("resv", "7")]
        .map(|(name, pages)| (format!("{folder}/{name}_hugepages"), pages));
    let files: Vec<(&str, &str)> = files.iter().map(|(name, pages)| (name.as_str(), *pages)).collect();
    let machine = machine_of(root.path(), &files);
    let two = RegionSpec { huge_pages: HugePages::Require(Size1G), ..spec(2 << 30) };
    let error = two.map_on(&machine).unwrap_err();
    let Shortage::HugePages { wanted: 2, free: 1, total: 9, .. } = shortage(&error) else {
        panic!("{error:?}")
    };
}

#[test]
fn pages_promised_to_another_region_are_not_had_twice() {
    let test = "pages_promised_to_another_region_are_not_had_twice";
    let Some(_pages) = ReservedPages::hold(test, &[(Size2M, 12)]) else { return };
    child(test, || {
        let map = |pages: usize, backing, prefault, budget| {
            let huge_pages = HugePages::Require(Size2M);
            RegionSpec { backing, huge_pages, prefault, budget, ..spec(pages * 2 * MIB) }.map()
        };
        for backing in BACKINGS {
            let pages = pool_pages("nr_hugepages");
            let promised = map(12, backing, Prefault::Off, Budget::Check).unwrap();
            for (prefault, budget) in [(Prefault::On, Budget::Check), (Prefault::Off, Budget::Skip)] {
                // All that there are, touched by nobody.
                let error = map(pages, Backing::Private, prefault, budget).unwrap_err();
                let Shortage::HugePages { wanted, free, total, .. } = *shortage(&error) else {
                    panic!("{error:?}")
                };
                assert_eq!((wanted, total), (pages, pages));
                assert!(free <= pages - 12, "{free} of {pages}");
            }
            machine::use_all(promised);
        }
    });
}

fn pool_pages(name: &str) -> usize {
    let path = Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB").join(name);
    fs::read_to_string(path).unwrap().trim().parse().unwrap()
}

#[test]
fn a_limit_on_huge_pages_of_the_container_is_named() {
    let root = tempfile::tempdir().unwrap();
    let pages = "sys/kernel/mm/hugepages/hugepages-2048kB";
    let files = [
        (format!("{pages}/nr_hugepages"), "9"),
        (format!("{pages}/free_hugepages"), "9"),
        ("proc/self/cgroup".to_owned(), "0::/pod\n"),
        ("cgroup/pod/hugetlb.2MB.max".to_owned(), "4194304\n"),
        ("cgroup/pod/hugetlb.2MB.current".to_owned(), "2097152\n"),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
    let machine = machine_of(root.path(), &files);
    let error =
        RegionSpec { huge_pages: HugePages::Require(Size2M), ..spec(4 * MIB) }.map_on(&machine).unwrap_err();
    assert!(matches!(shortage(&error), Shortage::Cgroup { .. }), "{error:?}");
    assert!(error.to_string().contains("hugetlb.2MB.max"), "{error}");
}

#[test]
fn b003_a_populate_that_finds_no_room_leaves_nothing() {
    child_on_tmpfs("b003_a_populate_that_finds_no_room_leaves_nothing", "1m", |mount| {
        refuse(&[MEMFD_CREATE], libc::EPERM);
        let machine = Machine::new(MachinePaths { shm: mount.to_owned(), ..Default::default() });
        let before = leftovers();
        let spec = RegionSpec { backing: Backing::Memfd, budget: Budget::Skip, ..spec(4 * MIB) };
        let error = spec.map_on(&machine).unwrap_err();
        assert!(matches!(shortage(&error), Shortage::FileSystem { .. }), "{error:?}");
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!maps.contains(mount.to_str().unwrap()), "{maps}");
        assert_eq!(leftovers(), before);
    });
}

#[test]
fn b009_a_pool_larger_than_its_tmpfs_is_refused() {
    child_on_tmpfs("b009_a_pool_larger_than_its_tmpfs_is_refused", "1m", |mount| {
        refuse(&[MEMFD_CREATE], libc::EPERM);
        let machine = Machine::new(MachinePaths { shm: mount.to_owned(), ..Default::default() });
        let pool = |len| RegionSpec { backing: Backing::Memfd, ..spec(len) };
        let before = leftovers();
        // With the check the size is asked for, without it the reservation fails.
        for budget in [Budget::Check, Budget::Skip] {
            let error = RegionSpec { budget, ..pool(4 * MIB) }.map_on(&machine).unwrap_err();
            let text = error.to_string();
            for part in [mount.to_str().unwrap(), "4194304", "1048576", "size=", "--shm-size"] {
                assert!(text.contains(part), "{text}");
            }
            let AllocError::Exhausted { shortage: Shortage::FileSystem { wanted, total, .. }, source } =
                error
            else {
                panic!("{error:?}");
            };
            assert_eq!((wanted, total, source.raw_os_error()), (4 * MIB, MIB as u64, Some(libc::ENOSPC)));
            assert_eq!((leftovers(), fs::read_dir(mount).unwrap().count()), (before, 0));
        }
        for prefault in [Prefault::On, Prefault::Off] {
            let region = RegionSpec { prefault, ..pool(512 * KIB) }.map_on(&machine).unwrap();
            assert_eq!(region.fallbacks()[0].what, "memfd");
            assert_eq!(fs::read_dir(mount).unwrap().count(), 0, "it has no name");
            // Somebody else takes what is left: the reserved blocks stay ours.
            let rest = fs::write(mount.join("rest"), vec![1; MIB]).unwrap_err();
            assert_eq!(rest.raw_os_error(), Some(libc::ENOSPC));
            machine::use_all(region);
            fs::remove_file(mount.join("rest")).unwrap();
        }
        assert_eq!(leftovers(), before);
    });
}

#[test]
fn b009_a_folder_that_is_no_memory_is_refused() {
    child("b009_a_folder_that_is_no_memory_is_refused", || {
        refuse(&[MEMFD_CREATE], libc::EPERM);
        for shm in ["/proc/self", "/no-such-folder"] {
            let machine = Machine::new(MachinePaths { shm: shm.into(), ..Default::default() });
            let error = RegionSpec { backing: Backing::Memfd, ..spec(MIB) }.map_on(&machine).unwrap_err();
            assert!(matches!(error, AllocError::Unsupported { .. }), "{error:?}");
            assert!(error.to_string().contains(shm), "{error}");
        }
    });
}
