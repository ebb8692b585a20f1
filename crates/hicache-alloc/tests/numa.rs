//! Memory on one NUMA node: bound before it is touched, confirmed after, and never claimed when it is not so.

mod machine;

use hicache_alloc::HugePageSize::Size2M;
use hicache_alloc::{
    AllocError, Backing, HugePages, Machine, MachinePaths, Numa, NumaNode, Prefault, Region, RegionSpec,
};
use machine::refuse::{GET_MEMPOLICY, MBIND, SET_MEMPOLICY, refuse};
use machine::{ReservedPages, child, leftovers, machine_of, skip, use_all, warnings};
use std::fs;

const MIB: usize = 1 << 20;
const BACKINGS: [Backing; 3] = [Backing::Private, Backing::Shared, Backing::Memfd];
const ZERO: NumaNode = NumaNode::new(0);

fn spec(backing: Backing, numa: Numa) -> RegionSpec {
    RegionSpec { len: 4 * MIB, backing, huge_pages: HugePages::Off, numa, ..Default::default() }
}

/// The policy of the region's mapping, by the kernel's account.
fn policy(region: &Region) -> String {
    let maps = fs::read_to_string("/proc/self/numa_maps").unwrap();
    let start = format!("{:x} ", region.as_ptr().addr());
    let line = maps.lines().find(|line| line.starts_with(&start)).unwrap();
    line.split(' ').nth(1).unwrap().to_owned()
}

fn has_numa(test: &str) -> bool {
    let has = fs::exists("/proc/self/numa_maps").unwrap();
    if !has {
        skip(test, "needs a kernel with NUMA");
    }
    has
}

#[test]
fn pages_are_bound_to_the_node_and_the_policy_is_read_back() {
    if !has_numa("pages_are_bound_to_the_node_and_the_policy_is_read_back") {
        return;
    }
    for (numa, wanted) in
        [(Numa::Any, "default"), (Numa::Prefer(ZERO), "prefer:0"), (Numa::Require(ZERO), "bind:0")]
    {
        for (backing, prefault) in BACKINGS.into_iter().flat_map(|b| [(b, Prefault::On), (b, Prefault::Off)])
        {
            let (region, events) = warnings(|| RegionSpec { prefault, ..spec(backing, numa) }.map().unwrap());
            assert_eq!(policy(&region), wanted, "{backing:?} {prefault:?}");
            assert_eq!(region.numa_bound(), numa != Numa::Any);
            assert_eq!((region.fallbacks().len(), events.len()), (0, 0), "{events:?}");
            use_all(region);
        }
    }
}

#[test]
fn huge_pages_are_bound_to_the_node() {
    let test = "huge_pages_are_bound_to_the_node";
    let Some(_pages) = ReservedPages::hold(test, &[(Size2M, 2)]) else { return };
    if !has_numa(test) {
        return;
    }
    for backing in BACKINGS {
        let spec =
            RegionSpec { huge_pages: HugePages::Require(Size2M), ..spec(backing, Numa::Require(ZERO)) };
        let region = spec.map().unwrap();
        assert_eq!((policy(&region).as_str(), region.numa_bound()), ("bind:0", true));
        assert_eq!(region.huge_len(), 4 * MIB);
        use_all(region);
    }
}

#[test]
fn b012_preferred_and_refused_is_a_pool_that_says_so_once() {
    child("b012_preferred_and_refused_is_a_pool_that_says_so_once", || {
        refuse(&[MBIND, SET_MEMPOLICY, GET_MEMPOLICY], libc::EPERM);
        let machine = Machine::default();
        for backing in BACKINGS {
            let (region, events) = warnings(|| spec(backing, Numa::Prefer(ZERO)).map_on(&machine).unwrap());
            assert!(!region.numa_bound());
            let [fallback] = region.fallbacks() else { panic!("{region:?}") };
            assert_eq!(fallback.what, "numa");
            assert!(fallback.why.contains("mbind") && fallback.why.contains("seccomp"), "{fallback}");
            assert_eq!(events.len(), 1, "{events:?}");
            assert!(events[0].contains("WARN") && events[0].contains("what=\"numa\""), "{events:?}");
            use_all(region);
        }
        assert_eq!(machine.counts().fallbacks_of("numa"), 3);
    });
}

#[test]
fn b012_required_and_refused_is_an_error_about_permission() {
    let Some(_pages) = ReservedPages::hold("b012_required_and_refused_is_an_error_about_permission", &[])
    else {
        return;
    };
    child("b012_required_and_refused_is_an_error_about_permission", || {
        refuse(&[MBIND, SET_MEMPOLICY, GET_MEMPOLICY], libc::EPERM);
        let before = leftovers();
        for (backing, huge_pages) in
            BACKINGS.into_iter().flat_map(|b| [(b, HugePages::Off), (b, HugePages::default())])
        {
            let spec = RegionSpec { huge_pages, ..spec(backing, Numa::Require(ZERO)) };
            let (error, events) = warnings(|| spec.map().unwrap_err());
            let AllocError::Denied { what, source } = &error else { panic!("{error:?}") };
            assert!(what.contains("node 0") && what.contains("SYS_NICE"), "{what}");
            assert_eq!((source.raw_os_error(), events.len()), (Some(libc::EPERM), 0));
        }
        assert_eq!(leftovers(), before);
    });
}

#[test]
fn b012_a_node_that_is_not_there_is_refused_with_those_that_are() {
    let machine = Machine::default();
    let online: Vec<String> = machine.numa_nodes().iter().map(NumaNode::to_string).collect();
    assert!(!online.is_empty());
    let check = |error: AllocError, name: &str| {
        let AllocError::UnknownNode { given, online: listed } = &error else { panic!("{error:?}") };
        assert_eq!((given.as_str(), listed.as_str()), (name, online.join(", ").as_str()));
        assert!(error.to_string().contains(listed), "{error}");
    };
    for number in [1023, u32::MAX] {
        let node = NumaNode::new(number);
        for numa in [Numa::Prefer(node), Numa::Require(node)] {
            for backing in BACKINGS {
                check(spec(backing, numa).map().unwrap_err(), &number.to_string());
            }
        }
    }
    for text in ["-1", "1023", "", "zero", "0-1", "4294967296"] {
        check(machine.numa_node(text).unwrap_err(), text);
    }
    assert_eq!(machine.numa_node(&online[0]).unwrap().to_string(), online[0]);
    if online.len() == 1 {
        check(machine.numa_node("5").unwrap_err(), "5");
    }
}

/// The node is online by the (made up) list, but the kernel has none such.
#[test]
fn what_the_kernel_does_not_bind_is_not_called_bound() {
    let root = tempfile::tempdir().unwrap();
    let machine = machine_of(root.path(), &[("sys/devices/system/node/online", "0-1,63,1000\n")]);
    assert_eq!(machine.numa_nodes().len(), 4);
    for number in [63, 1000] {
        let node = NumaNode::new(number);
        if Machine::default().numa_nodes().contains(&node) {
            continue;
        }
        let region = spec(Backing::Private, Numa::Prefer(node)).map_on(&machine).unwrap();
        assert!(!region.numa_bound());
        assert_eq!(region.fallbacks()[0].what, "numa");
        let error = spec(Backing::Private, Numa::Require(node)).map_on(&machine).unwrap_err();
        assert!(matches!(error, AllocError::Unsupported { .. }), "{error:?}");
    }
}

/// The kernel takes the policy, but does not tell whether it is in force.
#[test]
fn what_cannot_be_confirmed_is_not_called_bound() {
    let test = "what_cannot_be_confirmed_is_not_called_bound";
    if !has_numa(test) {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let machine = machine_of(root.path(), &[]);
    fs::remove_file(root.path().join("proc/self/numa_maps")).unwrap();
    let region = spec(Backing::Private, Numa::Prefer(ZERO)).map_on(&machine).unwrap();
    assert!(!region.numa_bound() && region.fallbacks()[0].what == "numa", "{region:?}");
    // What nobody could read is not said to be otherwise.
    let why = &region.fallbacks()[0].why;
    assert!(why.contains("numa_maps does not confirm it (No such file"), "{why}");
    // Or it tells another.
    fs::write(root.path().join("proc/self/numa_maps"), "").unwrap();
    let error = spec(Backing::Private, Numa::Require(ZERO)).map_on(&machine).unwrap_err();
    assert!(matches!(error, AllocError::Unsupported { .. }), "{error:?}");
    let paths = MachinePaths { procfs: root.path().join("absent"), ..Default::default() };
    assert!(spec(Backing::Memfd, Numa::Require(ZERO)).map_on(&Machine::new(paths)).is_err());
}
