//! Failures that real users of such systems met, by the numbers of their reports.

mod machine;

use hicache_alloc::HugePageSize::{Size1G, Size2M};
use hicache_alloc::{
    Alignment, AllocError, Backing, Budget, HostPool, HugePageSize, HugePages, Prefault, RegionSpec,
    Shortage, Strides,
};
use machine::{
    ReservedPages, account, child, child_under, in_child, leftovers, skip, status_kib, use_all, warnings,
};
use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const MIB: usize = 1 << 20;
const BACKINGS: [Backing; 3] = [Backing::Private, Backing::Shared, Backing::Memfd];

fn spec(len: usize, backing: Backing, huge_pages: HugePages) -> RegionSpec {
    RegionSpec { len, backing, huge_pages, prefault: Prefault::On, ..Default::default() }
}

#[test]
fn b001_no_huge_pages_is_a_clean_refusal() {
    let Some(_pages) =
        ReservedPages::hold("b001_no_huge_pages_is_a_clean_refusal", &[(Size2M, 0), (Size1G, 0)])
    else {
        return;
    };
    child("b001_no_huge_pages_is_a_clean_refusal", || {
        for (backing, prefault) in BACKINGS.into_iter().flat_map(|b| [(b, Prefault::On), (b, Prefault::Off)])
        {
            let spec = RegionSpec { prefault, ..spec(16 * MIB, backing, HugePages::Require(Size2M)) };
            let error = spec.map().unwrap_err();
            let text = error.to_string();
            for word in ["8 pages", "2MiB", "0 free", "echo 8 > ", "nr_hugepages"] {
                assert!(text.contains(word), "{backing:?}: {text}");
            }
            let AllocError::Exhausted { shortage: Shortage::HugePages { size, wanted, free, total }, .. } =
                error
            else {
                panic!("{backing:?}: {error:?}");
            };
            assert_eq!((size, wanted, free, total), (Size2M, 8, 0, 0));
        }
    });
}

#[test]
fn b001_preferred_huge_pages_fall_back_with_one_warning() {
    let Some(_pages) = ReservedPages::hold(
        "b001_preferred_huge_pages_fall_back_with_one_warning",
        &[(Size2M, 0), (Size1G, 0)],
    ) else {
        return;
    };
    child("b001_preferred_huge_pages_fall_back_with_one_warning", || {
        for (backing, size) in BACKINGS.into_iter().flat_map(|b| [(b, Size2M), (b, Size1G)]) {
            let (region, events) =
                warnings(|| spec(16 * MIB, backing, HugePages::Prefer(size)).map().unwrap());
            assert_eq!(region.page_size(), Alignment::base_page());
            assert_eq!(region.capacity(), 16 * MIB);
            assert_eq!(events.len(), 1, "{events:?}");
            assert!(events[0].contains("WARN") && events[0].contains("0 free"), "{events:?}");
            let [fallback] = region.fallbacks() else { panic!("{region:?}") };
            assert_eq!(fallback.what, "huge_pages");
            assert!(fallback.why.contains(&size.to_string()), "{fallback}");
            use_all(region);
        }
    });
}

#[test]
fn b001_transparent_pages_are_counted_by_the_kernels_account() {
    let Some(_pages) = ReservedPages::hold(
        "b001_transparent_pages_are_counted_by_the_kernels_account",
        &[(Size2M, 0), (Size1G, 0)],
    ) else {
        return;
    };
    // Regions side by side, so that an account of the neighbour's would show.
    let map = |huge_pages| spec(6 * MIB + 4096, Backing::Private, huge_pages).map().unwrap();
    let regions = [map(HugePages::Prefer(Size2M)), map(HugePages::Off), map(HugePages::Prefer(Size2M))];
    for region in &regions {
        let told = account(region.as_ptr(), "AnonHugePages")[0].parse::<usize>().unwrap() * 1024;
        assert_eq!(region.huge_len(), told);
        let mapped = account(region.as_ptr(), "Size")[0].parse::<usize>().unwrap() * 1024;
        assert_eq!(region.capacity(), mapped, "merged with a neighbour");
    }
    assert_eq!(regions[1].huge_len(), 0);
    assert!(regions[1].fallbacks().is_empty());
    let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if enabled.contains("[madvise]") || enabled.contains("[always]") {
        assert!(regions[0].huge_len() > 0, "{:?}", regions[0]);
    } else {
        eprintln!("transparent huge pages are off: {enabled}");
    }
}

#[test]
fn b003_a_failed_populate_leaves_nothing() {
    let Some(_pages) =
        ReservedPages::hold("b003_a_failed_populate_leaves_nothing", &[(Size2M, 0), (Size1G, 0)])
    else {
        return;
    };
    child("b003_a_failed_populate_leaves_nothing", || {
        let before = leftovers();
        for (backing, size) in BACKINGS.into_iter().flat_map(|b| [(b, Size2M), (b, Size1G)]) {
            let error = spec(4 * MIB, backing, HugePages::Require(size)).map().unwrap_err();
            assert!(matches!(error, AllocError::Exhausted { .. }), "{error:?}");
            let source = error.source().unwrap().downcast_ref::<std::io::Error>().unwrap();
            assert!(source.raw_os_error().is_some(), "{source:?}");
            assert_eq!(leftovers(), before);
        }
        for backing in BACKINGS {
            assert_eq!(spec(4 * MIB, backing, HugePages::Off).map().unwrap().capacity(), 4 * MIB);
        }
        assert_eq!(leftovers(), before);
    });
}

#[test]
fn b005_an_unrounded_length_is_unmapped_whole() {
    let Some(_pages) = ReservedPages::hold("b005_an_unrounded_length_is_unmapped_whole", &[(Size2M, 4)])
    else {
        return;
    };
    child("b005_an_unrounded_length_is_unmapped_whole", || {
        let asked = 6 * MIB + 4096;
        for backing in BACKINGS {
            let spec =
                RegionSpec { prefault: Prefault::Off, ..spec(asked, backing, HugePages::Require(Size2M)) };
            let region = spec.map().unwrap();
            assert_eq!((region.len(), region.capacity()), (asked, 8 * MIB));
            drop(region);
            let (before, (_, events)) = (
                status_kib("VmSize"),
                warnings(|| {
                    for _ in 0..1000 {
                        // Some twenty pages are all there are: a leak would be met at once.
                        drop(spec.map().unwrap());
                    }
                }),
            );
            assert_eq!(events, Vec::<String>::new());
            assert!(status_kib("VmSize") < before + 2048, "{backing:?}");
        }
    });
}

#[test]
fn b006_the_page_size_asked_for_is_the_one_mapped() {
    for (size, pages) in [(Size2M, 2), (Size1G, 1)] {
        let Some(_pages) =
            ReservedPages::hold("b006_the_page_size_asked_for_is_the_one_mapped", &[(size, pages)])
        else {
            continue;
        };
        for backing in BACKINGS {
            for huge_pages in [HugePages::Require(size), HugePages::Prefer(size)] {
                // A gibibyte is not worth clearing to read its size.
                let prefault = if size == Size2M { Prefault::On } else { Prefault::Off };
                let region = RegionSpec { prefault, ..spec(1, backing, huge_pages) }.map().unwrap();
                assert_eq!(region.page_size(), size.alignment());
                assert_eq!((region.len(), region.capacity()), (1, size.alignment().bytes()));
                assert_eq!(region.huge_len(), region.capacity());
                assert!(region.fallbacks().is_empty());
                assert!(size.alignment().is_aligned(region.as_ptr().addr()));
                let told = account(region.as_ptr(), "KernelPageSize")[0].parse::<usize>().unwrap() * 1024;
                assert_eq!(told, size.alignment().bytes());
            }
        }
    }
}

/// Whether there are such pages or not, the kernel is asked for them in the flags and not in the offset.
#[test]
fn b006_the_page_size_is_in_the_flags() {
    let Some(_pages) = ReservedPages::hold("b006_the_page_size_is_in_the_flags", &[]) else { return };
    let test = "b006_the_page_size_is_in_the_flags";
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let wrap = [
        "strace",
        "-f",
        "-E",
        "ASAN_OPTIONS=detect_leaks=0",
        "-e",
        "trace=mmap,memfd_create",
        "-o",
        trace.to_str().unwrap(),
    ];
    child_under(test, &wrap, || {
        for (backing, size) in BACKINGS.into_iter().flat_map(|b| [(b, Size2M), (b, Size1G)]) {
            let spec = spec(1, backing, HugePages::Require(size));
            let _ = RegionSpec { prefault: Prefault::Off, budget: Budget::Skip, ..spec }.map();
        }
    });
    if in_child() || !trace.exists() {
        return;
    }
    let trace = fs::read_to_string(trace).unwrap();
    let lines: Vec<&str> = trace.lines().filter(|line| line.contains("HUGE")).collect();
    let has = |parts: &[&str]| lines.iter().any(|line| parts.iter().all(|part| line.contains(part)));
    for sharing in ["MAP_PRIVATE", "MAP_SHARED"] {
        for bits in ["21<<MAP_HUGE_SHIFT", "30<<MAP_HUGE_SHIFT"] {
            assert!(has(&["mmap(NULL", sharing, "MAP_HUGETLB", bits, ", -1, 0)"]), "{trace}");
        }
    }
    for bits in ["21<<MFD_HUGE_SHIFT", "30<<MFD_HUGE_SHIFT"] {
        assert!(has(&["memfd_create(", "MFD_HUGETLB", bits]), "{trace}");
    }
}

#[test]
fn b006_sizes_at_the_edges() {
    let Some(_pages) = ReservedPages::hold("b006_sizes_at_the_edges", &[]) else { return };
    let policies =
        [HugePages::Off, HugePages::Prefer(Size2M), HugePages::Require(Size2M), HugePages::Require(Size1G)];
    for (backing, huge_pages) in BACKINGS.into_iter().flat_map(|b| policies.map(|policy| (b, policy))) {
        for len in [0, usize::MAX, usize::MAX - 4095, isize::MAX as usize] {
            let error = spec(len, backing, huge_pages).map().unwrap_err();
            assert!(matches!(error, AllocError::InvalidSize { .. }), "{len}: {error:?}");
        }
        for prefault in [Prefault::On, Prefault::Off] {
            let error = RegionSpec { prefault, ..spec(1 << 47, backing, huge_pages) }.map().unwrap_err();
            let exhausted = matches!(error, AllocError::Exhausted { .. });
            assert!(exhausted, "{backing:?} {huge_pages:?} {prefault:?}: {error:?}");
        }
    }
    for backing in BACKINGS {
        let region = spec(1, backing, HugePages::Off).map().unwrap();
        assert_eq!((region.len(), region.capacity()), (1, Alignment::base_page().bytes()));
        assert!(!region.is_empty());
    }
    let overflow = Strides::new(u32::MAX, u32::MAX, usize::MAX / 2, Alignment::base_page());
    assert!(matches!(overflow, Err(AllocError::InvalidShape { .. })));
}

#[test]
fn b006_page_sizes_that_do_not_exist() {
    for text in ["2MiB", "2mib", "2MB", "2mb"] {
        assert_eq!(text.parse::<HugePageSize>().unwrap(), Size2M);
    }
    for text in ["1GiB", "1GB", "1gb"] {
        assert_eq!(text.parse::<HugePageSize>().unwrap(), Size1G);
    }
    for text in ["3MiB", "8KiB", "0", "", "2M", "2 MiB", "2097152", "-1"] {
        let error = text.parse::<HugePageSize>().unwrap_err().to_string();
        assert!(error.contains("2MiB") && error.contains("1GiB") && error.contains(text), "{error}");
    }
    for size in [Size2M, Size1G] {
        assert_eq!(size.to_string().parse::<HugePageSize>().unwrap(), size);
    }
}

#[test]
fn b009_a_file_size_limit_is_an_error_and_no_signal() {
    let limited = "HICACHE_ALLOC_TEST_LIMITED";
    if std::env::var_os(limited).is_some() {
        let error = spec(64 * MIB, Backing::Memfd, HugePages::Off).map().unwrap_err();
        let shortage = matches!(error, AllocError::Exhausted { shortage: Shortage::FileSize { .. }, .. });
        assert!(shortage && error.to_string().contains("ulimit -f"), "{error}");
        return;
    }
    let output = Command::new("sh")
        .args([
            "-c",
            "ulimit -f 2048 && exec \"$0\" --exact b009_a_file_size_limit_is_an_error_and_no_signal",
        ])
        .arg(std::env::current_exe().unwrap())
        .env(limited, "1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn b010_every_backing_is_shared_or_not_forked() {
    let Some(_pages) = ReservedPages::hold("b010_every_backing_is_shared_or_not_forked", &[]) else { return };
    for huge_pages in [HugePages::Off, HugePages::Prefer(Size2M)] {
        for backing in BACKINGS {
            let region = spec(4 * MIB, backing, huge_pages).map().unwrap();
            let flags = account(region.as_ptr(), "VmFlags");
            let has = |flag: &str| flags.iter().any(|have| have == flag);
            match backing {
                Backing::Private => assert!(has("dc") && !has("sh"), "{flags:?}"),
                Backing::Shared | Backing::Memfd => assert!(has("sh") && !has("dc"), "{flags:?}"),
            }
            assert_eq!(region.is_exclusive(), backing == Backing::Private);
        }
    }
}

#[test]
fn b010_forks_do_not_disturb_direct_reads() {
    let Some(_pages) = ReservedPages::hold("b010_forks_do_not_disturb_direct_reads", &[]) else { return };
    const PAGE: usize = 64 * 1024;
    const SLOTS: u32 = 8;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).or_else(|_| tempfile::tempdir()).unwrap();
    let path = folder.path().join("pattern");
    let byte = |slot: u32| 0x40 + slot as u8;
    let mut file = File::create(&path).unwrap();
    for slot in 0..SLOTS {
        file.write_all(&[byte(slot); PAGE]).unwrap();
    }
    file.sync_all().unwrap();
    let direct = match File::options().read(true).custom_flags(libc::O_DIRECT).open(&path) {
        Ok(direct) => direct,
        Err(error) => {
            let reason = format!("needs direct I/O in {}: {error}", path.display());
            return skip("b010_forks_do_not_disturb_direct_reads", &reason);
        }
    };
    let strides = Strides::new(1, SLOTS, PAGE, Alignment::base_page()).unwrap();
    let region = RegionSpec { len: strides.region_len(), ..Default::default() }.map().unwrap();
    let pool = HostPool::new(region, strides, &[]).unwrap();
    let done = AtomicBool::new(false);
    let user = folder.path().metadata().unwrap().uid();
    thread::scope(|scope| {
        let reads = scope.spawn(|| {
            let mut reads = 0;
            while !done.load(Ordering::Relaxed) || reads == 0 {
                for mut page in pool.alloc(SLOTS as usize).unwrap() {
                    let slot = page.index().get();
                    let bytes = page.bytes_mut(0).unwrap();
                    bytes.fill(0);
                    direct.read_exact_at(bytes, u64::from(slot) * PAGE as u64).unwrap();
                    assert!(bytes.iter().all(|have| *have == byte(slot)), "slot {slot}");
                    reads += 1;
                }
            }
            reads
        });
        for _ in 0..50 {
            // With a user to set, the standard library forks; without, it would use vfork, which copies nothing.
            let status = Command::new("true").uid(user).status().unwrap();
            assert_eq!(status.code(), Some(0));
        }
        done.store(true, Ordering::Relaxed);
        assert!(reads.join().unwrap() > 0);
    });
}
