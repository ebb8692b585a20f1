//! Whatever is not got is in the returned region, in one event, and in a count, and the three agree.

mod machine;

use hicache_alloc::HugePageSize::{Size1G, Size2M};
use hicache_alloc::{
    Alignment, AllocError, Backing, HugePages, Lock, Machine, Numa, NumaNode, Prefault, Region, RegionSpec,
    Shortage,
};
use machine::refuse::{CLONE, CLONE3, MBIND, MEMFD_CREATE, MLOCK, POPULATE, Refused, refuse};
use machine::{ReservedPages, account, child, child_under, leftovers, machine_of, skip, use_all, warnings};
use std::collections::BTreeMap;
use std::num::NonZeroU32;

const MIB: usize = 1 << 20;
const BACKINGS: [Backing; 3] = [Backing::Private, Backing::Shared, Backing::Memfd];

fn plain(backing: Backing) -> RegionSpec {
    RegionSpec { len: 4 * MIB, backing, huge_pages: HugePages::Off, ..Default::default() }
}

/// Maps, and checks that region, events and counts tell of just these fallbacks. The region works.
fn falls_back(spec: &RegionSpec, machine: &Machine, wanted: &[&'static str]) -> Region {
    let before = machine.counts();
    let (region, events) = warnings(|| spec.map_on(machine).unwrap());
    let returned: Vec<&str> = region.fallbacks().iter().map(|fallback| fallback.what).collect();
    assert_eq!(returned, wanted, "{region:?}");
    assert_eq!(events.len(), wanted.len(), "{events:?}");
    for (event, fallback) in events.iter().zip(region.fallbacks()) {
        assert!(
            event.contains(&format!("what={:?}", fallback.what)) && event.contains(&fallback.why),
            "{event}"
        );
    }
    let after = machine.counts();
    let mut counted = BTreeMap::new();
    for (what, count) in &after.fallbacks {
        if count - before.fallbacks_of(what) > 0 {
            counted.insert(*what, count - before.fallbacks_of(what));
        }
    }
    assert_eq!(counted, wanted.iter().map(|what| (*what, 1)).collect());
    assert_eq!((after.mapped, after.refused), (before.mapped + 1, before.refused));
    region
}

/// For each of `errnos`, in one child: the filter that is installed last has the say.
fn refused_in_a_child(test: &str, calls: &[Refused], errnos: &[i32], body: impl Fn(&Machine)) {
    child(test, || {
        for errno in errnos {
            refuse(calls, *errno);
            body(&Machine::default());
        }
    });
}

#[test]
fn nothing_refused_is_nothing_told() {
    let machine = Machine::default();
    for backing in BACKINGS {
        let region = falls_back(&plain(backing), &machine, &[]);
        assert_eq!(region.is_sealed(), backing == Backing::Memfd);
        use_all(region);
    }
    let clone = machine.clone();
    assert!(RegionSpec { len: 0, ..plain(Backing::Private) }.map_on(&clone).is_err());
    let counts = machine.counts();
    assert_eq!((counts.mapped, counts.refused, counts.unmap_failures, counts.fallbacks.len()), (3, 1, 0, 0));
}

#[test]
fn huge_pages_that_are_not_there() {
    let root = tempfile::tempdir().unwrap();
    let machine = machine_of(root.path(), &[]);
    for (backing, size) in BACKINGS.into_iter().flat_map(|b| [(b, Size2M), (b, Size1G)]) {
        let spec = RegionSpec { huge_pages: HugePages::Prefer(size), ..plain(backing) };
        let region = falls_back(&spec, &machine, &["huge_pages"]);
        assert_eq!(region.page_size(), Alignment::base_page());
        use_all(region);
    }
}

#[test]
fn a_memfd_that_is_refused() {
    let Some(_pages) = ReservedPages::hold("a_memfd_that_is_refused", &[]) else { return };
    refused_in_a_child("a_memfd_that_is_refused", &[MEMFD_CREATE], &[libc::EPERM, libc::ENOSYS], |machine| {
        let region = falls_back(&plain(Backing::Memfd), machine, &["memfd"]);
        assert!(!region.is_sealed() && !region.is_exclusive());
        let file = rustix::fs::fstat(region.fd().unwrap()).unwrap();
        assert_eq!((file.st_nlink, file.st_size, file.st_blocks * 512), (0, 4 << 20, 4 << 20));
        let flags = rustix::io::fcntl_getfd(region.fd().unwrap()).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        use_all(region);

        let spec = RegionSpec { huge_pages: HugePages::default(), ..plain(Backing::Memfd) };
        use_all(falls_back(&spec, machine, &["huge_pages", "memfd"]));
        let spec = RegionSpec { huge_pages: HugePages::Require(Size2M), ..spec };
        let error = spec.map_on(machine).unwrap_err();
        assert!(matches!(error, AllocError::Unsupported { .. } | AllocError::Exhausted { .. }), "{error:?}");
        for backing in [Backing::Private, Backing::Shared] {
            falls_back(&plain(backing), machine, &[]);
        }
    });
}

#[test]
fn a_memfd_that_cannot_be_had_for_want_of_descriptors_is_an_error() {
    let test = "a_memfd_that_cannot_be_had_for_want_of_descriptors_is_an_error";
    refused_in_a_child(test, &[MEMFD_CREATE], &[libc::EMFILE], |machine| {
        let error = plain(Backing::Memfd).map_on(machine).unwrap_err();
        assert!(matches!(error, AllocError::Os { call: "memfd_create", .. }), "{error:?}");
        assert_eq!(machine.counts().refused, 1);
    });
}

#[test]
fn a_binding_that_is_refused() {
    refused_in_a_child("a_binding_that_is_refused", &[MBIND], &[libc::EPERM], |machine| {
        for backing in BACKINGS {
            let spec = RegionSpec { numa: Numa::Prefer(NumaNode::new(0)), ..plain(backing) };
            assert!(!falls_back(&spec, machine, &["numa"]).numa_bound());
        }
    });
}

#[test]
fn a_kernel_that_cannot_populate() {
    let test = "a_kernel_that_cannot_populate";
    refused_in_a_child(test, &[POPULATE], &[libc::EINVAL, libc::ENOSYS], |machine| {
        for (backing, prefault) in BACKINGS
            .into_iter()
            .flat_map(|b| [(b, Prefault::On), (b, Prefault::With(NonZeroU32::new(3).unwrap()))])
        {
            let spec = RegionSpec { len: 40 * MIB, prefault, ..plain(backing) };
            let region = falls_back(&spec, machine, &["populate"]);
            let resident: usize = account(region.as_ptr(), "Rss")[0].parse().unwrap();
            assert_eq!(resident * 1024, region.capacity(), "{backing:?}");
            use_all(region);
        }
        falls_back(&RegionSpec { prefault: Prefault::Off, ..plain(Backing::Private) }, machine, &[]);
    });
}

#[test]
fn a_kernel_that_cannot_populate_huge_pages() {
    let test = "a_kernel_that_cannot_populate_huge_pages";
    let Some(_pages) = ReservedPages::hold(test, &[(Size2M, 2)]) else { return };
    refused_in_a_child(test, &[POPULATE], &[libc::EINVAL], |machine| {
        for backing in BACKINGS {
            let spec = RegionSpec { huge_pages: HugePages::Require(Size2M), ..plain(backing) };
            use_all(falls_back(&spec, machine, &["populate"]));
        }
    });
}

#[test]
fn any_other_refusal_to_populate_is_an_error() {
    child("any_other_refusal_to_populate_is_an_error", || {
        for (errno, is_shortage) in [(libc::EFAULT, true), (libc::ENOMEM, true), (libc::EPERM, false)] {
            refuse(&[POPULATE], errno);
            for backing in BACKINGS {
                let before = leftovers();
                let error = plain(backing).map().unwrap_err();
                assert_eq!(matches!(error, AllocError::Exhausted { .. }), is_shortage, "{error:?}");
                assert_eq!(leftovers(), before);
            }
        }
    });
}

#[test]
fn threads_that_are_not_to_be_had() {
    refused_in_a_child("threads_that_are_not_to_be_had", &[CLONE, CLONE3], &[libc::EAGAIN], |machine| {
        let prefault = Prefault::With(NonZeroU32::new(4).unwrap());
        let spec = RegionSpec { len: 80 * MIB, prefault, ..plain(Backing::Private) };
        let region = falls_back(&spec, machine, &["prefault_threads"]);
        assert_eq!(region.prefault_threads(), 1);
        use_all(region);
    });
}

#[test]
fn an_account_that_is_not_to_be_read() {
    let root = tempfile::tempdir().unwrap();
    let machine = machine_of(root.path(), &[]);
    std::fs::remove_file(root.path().join("proc/self/smaps")).unwrap();
    let region = falls_back(&plain(Backing::Private), &machine, &["page_account"]);
    assert_eq!((region.page_size(), region.huge_len()), (Alignment::base_page(), 0));
}

#[test]
fn memory_that_may_not_be_locked() {
    let script = "ulimit -l 64; exec \"$0\" \"$@\"";
    let wrap = ["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock", "sh", "-c", script];
    // Only root has the capability, and only root can drop it like this.
    let wrap = if rustix::process::geteuid().is_root() { &wrap[..] } else { &wrap[3..] };
    child_under("memory_that_may_not_be_locked", wrap, || {
        let machine = Machine::default();
        for (backing, prefault) in BACKINGS.into_iter().flat_map(|b| [(b, Prefault::On), (b, Prefault::Off)])
        {
            let spec = RegionSpec { lock: Lock::Prefer, prefault, ..plain(backing) };
            let region = falls_back(&spec, &machine, &["lock"]);
            assert!(!region.is_locked());
            assert!(region.fallbacks()[0].why.contains("ulimit -l"), "{region:?}");
            use_all(region);
            let error = RegionSpec { lock: Lock::Require, ..spec }.map_on(&machine).unwrap_err();
            let AllocError::Exhausted { shortage: Shortage::Locked { wanted, limit }, .. } = error else {
                panic!("{error:?}")
            };
            assert_eq!((wanted, limit), (4 * MIB, Some(65536)));
            let small =
                RegionSpec { len: Alignment::base_page().bytes(), lock: Lock::Require, ..plain(backing) };
            assert!(small.map_on(&machine).unwrap().is_locked());
        }
    });
}

#[test]
fn a_lock_that_a_profile_refuses() {
    refused_in_a_child("a_lock_that_a_profile_refuses", &[MLOCK], &[libc::EPERM], |machine| {
        falls_back(&RegionSpec { lock: Lock::Prefer, ..plain(Backing::Private) }, machine, &["lock"]);
        let error =
            RegionSpec { lock: Lock::Require, ..plain(Backing::Private) }.map_on(machine).unwrap_err();
        assert!(error.to_string().contains("RLIMIT_MEMLOCK"), "{error}");
    });
}

#[test]
fn locked_memory_is_locked_by_the_kernels_account() {
    let test = "locked_memory_is_locked_by_the_kernels_account";
    let len = 4 * Alignment::base_page().bytes();
    for (backing, prefault) in BACKINGS.into_iter().flat_map(|b| [(b, Prefault::On), (b, Prefault::Off)]) {
        for lock in [Lock::Off, Lock::Require] {
            let region = match (RegionSpec { len, lock, prefault, ..plain(backing) }).map() {
                Ok(region) => region,
                Err(error) => return skip(test, &format!("needs {len} bytes that may be locked: {error}")),
            };
            let flags = account(region.as_ptr(), "VmFlags");
            assert_eq!(flags.iter().any(|flag| flag == "lo"), lock == Lock::Require, "{flags:?}");
            assert_eq!(region.is_locked(), lock == Lock::Require);
            let resident: usize = account(region.as_ptr(), "Rss")[0].parse().unwrap();
            // Locking is not prefaulting.
            assert_eq!(resident > 0, prefault == Prefault::On, "{backing:?} {prefault:?} {lock:?}");
        }
    }
}
