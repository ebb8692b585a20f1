//! Kernels and sandboxes that refuse a ring, or parts of one.

mod stage;

use hicache_core::{
    Call, DType, ErrorKind, Geometry, Get, HostPool, HugePages, Namespace, Outcomes, Page, PageLayout,
    PageOrder, RegionSpec, Registrar, StorageBackend, Store,
};
use hicache_file::{Engine, FileOptions};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use stage::{Stage, bytes, content, key, skip};
use std::process::Command;

const PAGE_LEN: usize = 65_536;

fn options() -> FileOptions {
    FileOptions { engine: Engine::IoUring, ..Default::default() }
}

fn get_all(backend: &dyn StorageBackend, pool: &HostPool, count: usize) -> Outcomes<Option<Page>> {
    let gets = (0..).zip(pool.alloc(count).unwrap()).map(|(n, into)| Get { key: key(n), into }).collect();
    backend.batch_get(gets, Call::default()).wait()
}

fn all_right(outcomes: Outcomes<Option<Page>>) {
    for (n, outcome) in (0..).zip(outcomes) {
        assert!(content(&outcome.unwrap().expect("it is there")) == bytes(n, PAGE_LEN), "page {n}");
    }
}

/// Lets the kernel answer a call with that errno, as a container's profile does, to this thread and those it starts.
fn refuse(call: libc::c_long, errno: i32) {
    let filter = SeccompFilter::new(
        [(call, Vec::new())].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(errno as u32),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

#[test]
fn b044_where_a_seccomp_filter_forbids_io_uring_threads_do_and_it_is_named() {
    if !stage::in_child("b044_where_a_seccomp_filter_forbids_io_uring_threads_do_and_it_is_named") {
        return;
    }
    refuse(libc::SYS_io_uring_setup, libc::EPERM);
    let stage = Stage::new(PAGE_LEN);
    (0..20).for_each(|n| assert!(stage.set(n).is_ok()));
    all_right(get_all(&*stage.backend, &stage.pool, 20));
    let health = stage.store.health();
    assert_eq!(health.engine, "threads");
    let told = health.fallbacks.iter().find(|told| told.what == "io_uring").expect("it is told");
    for word in ["seccomp", "kernel.io_uring_disabled", "threads instead"] {
        assert!(told.why.contains(word), "{}", told.why);
    }
}

/// As under a container's profile of before the call was there, which says that there is none.
#[test]
fn where_openat2_is_refused_pages_are_stored_and_it_is_told() {
    if !stage::in_child("where_openat2_is_refused_pages_are_stored_and_it_is_told") {
        return;
    }
    let told = |stage: &Stage| {
        let fallbacks = stage.store.health().fallbacks;
        fallbacks.into_iter().find(|told| told.what == "openat2").map(|told| told.why)
    };
    for errno in [libc::ENOSYS, libc::EPERM] {
        refuse(libc::SYS_openat2, errno);
        let stage = Stage::new(PAGE_LEN);
        (0..20).for_each(|n| assert!(stage.set(n).is_ok()));
        all_right(get_all(&*stage.backend, &stage.pool, 20));
        let why = told(&stage).expect("it is told");
        assert!(why.contains("seccomp") && why.contains("a link"), "{why}");
    }
}

/// Its kernel says that operations beyond a number are not there, as older ones do: strace rewrites the first byte of
/// what the first IORING_REGISTER_PROBE of each thread answers.
#[test]
fn b044_operations_that_a_kernel_has_not_are_named_or_done_without() {
    let test = "b044_operations_that_a_kernel_has_not_are_named_or_done_without";
    if let Some(last) = stage::child_argument() {
        let folder = tempfile::tempdir().unwrap();
        let opened = Stage::at(&folder.path().join("store"), PAGE_LEN, options(), None);
        let missing = match last.as_str() {
            "17" => "this kernel's io_uring has no openat; it is too old",
            "18" => "this kernel's io_uring has no close; it is too old",
            _ => {
                // Without vectored reads of registered memory, pages of several pieces are read without.
                let stage = opened.unwrap();
                assert_eq!(stage.store.health().engine, "io_uring");
                read_in_pieces(&stage);
                return;
            }
        };
        let error = opened.map(drop).unwrap_err();
        assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains(missing), "{error}");
        return;
    }
    if Command::new("strace").arg("-V").output().is_err() {
        return skip(test, "needs strace");
    }
    if hicache_file::probe_io_uring().is_err() {
        return skip(test, "needs io_uring");
    }
    for last in ["17", "18", "59"] {
        let inject =
            format!("inject=io_uring_register:poke_exit=@arg3={:02x}:when=1", last.parse::<u8>().unwrap());
        let wrap = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=io_uring_register", "-e", &inject];
        let output = stage::child(test, last, &wrap).output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{last}: {text}");
    }
}

/// What a ring that was just closed had locked, some kernels count for a moment longer: strace refuses the first rings.
#[test]
fn a_ring_that_there_is_no_memory_to_lock_for_is_asked_for_again_and_not_for_ever() {
    let test = "a_ring_that_there_is_no_memory_to_lock_for_is_asked_for_again_and_not_for_ever";
    if let Some(times) = stage::child_argument() {
        let store = Stage::with(PAGE_LEN, FileOptions::default(), None).store;
        let (health, soon) = (store.health(), times == "1..3");
        assert_eq!(health.engine, if soon { "io_uring" } else { "threads" }, "{health:?}");
        let told = health.fallbacks.iter().find(|told| told.what == "io_uring");
        assert_eq!(told.is_some(), !soon, "{told:?}");
        assert!(told.is_none_or(|told| told.why.contains("ulimit -l")), "{told:?}");
        return;
    }
    if Command::new("strace").arg("-V").output().is_err() {
        return skip(test, "needs strace");
    }
    if hicache_file::probe_io_uring().is_err() {
        return skip(test, "needs io_uring");
    }
    for times in ["1..3", "1+"] {
        let inject = format!("inject=io_uring_setup:error=ENOMEM:when={times}");
        let wrap = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=io_uring_setup", "-e", &inject];
        let output = stage::child(test, times, &wrap).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert!(output.status.success() && text.contains("1 passed"), "{times}: {text}");
    }
}

/// Gets pages of four pieces, and pages of one, into memory that the ring knows as far as it can.
fn read_in_pieces(stage: &Stage) {
    let geometry = Geometry::Mla { layers: 4, tokens: 1, latent_dim: 16_384, dtype: DType::U8 };
    let layout = PageLayout::new(geometry, PageOrder::LayerFirst).unwrap();
    let backend = stage.store.backend(Namespace::named("pieces", layout).unwrap()).unwrap();
    for (backend, layout, known) in [(&backend, &layout, 0), (&stage.backend, &stage.layout, 2)] {
        let strides = layout.strides_for(8, &backend.capabilities()).unwrap();
        let registrars = stage.store.registrars();
        let registrars: Vec<&dyn Registrar> = registrars.iter().map(|registrar| &**registrar).collect();
        let spec = RegionSpec { len: strides.region_len(), huge_pages: HugePages::Off, ..Default::default() };
        let pool = HostPool::new(spec.map().unwrap(), strides, &registrars).unwrap();
        (0..2).for_each(|n| assert!(stage::set(&**backend, &pool, n).is_ok()));
        all_right(get_all(&**backend, &pool, 2));
        let stats = backend.stats();
        assert_eq!((stats.ring, stats.registered), (2, known), "{layout:?}");
    }
}

#[test]
fn where_a_process_may_have_few_files_a_ring_has_fewer_reads_in_flight_and_it_is_told() {
    let test = "where_a_process_may_have_few_files_a_ring_has_fewer_reads_in_flight_and_it_is_told";
    if !stage::in_child(test) {
        return;
    }
    let limit = std::process::Command::new("prlimit")
        .args([&format!("--pid={}", std::process::id()), "--nofile=64:64"])
        .status();
    if !limit.is_ok_and(|status| status.success()) {
        return stage::skip(test, "needs prlimit of util-linux");
    }
    let stage = Stage::new(PAGE_LEN);
    (0..60).for_each(|n| assert!(stage.set(n).is_ok()));
    all_right(get_all(&*stage.backend, &stage.pool, 60));
    let health = stage.store.health();
    if health.engine != "io_uring" {
        return stage::skip(test, "needs io_uring");
    }
    let told = health.fallbacks.iter().find(|told| told.what == "depth").expect("it is told");
    assert!(told.why.contains("32 reads") && told.why.contains("ulimit -n"), "{}", told.why);
    assert!(health.fallbacks.iter().all(|told| told.what != "registered_files"), "{health:?}");
}
