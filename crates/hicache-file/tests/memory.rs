//! A store's own memory: on the node and locked as its options say, or else told, or refused.

mod stage;

use hicache_core::{Call, Error, ErrorKind, Fallback, Get, PageIndex, Source, Store, StoreOptions};
use hicache_file::FileOptions;
use stage::Stage;
use std::process::Command;

const PAGE_LEN: usize = 3 * 4096;

fn options(pairs: &[(&str, &str)]) -> FileOptions {
    let mut options = StoreOptions::default();
    for (name, value) in pairs.iter().chain(&[("threads", "2"), ("huge_pages", "off")]) {
        options.set(Source::Url, *name, *value);
    }
    FileOptions::from_options(options).unwrap()
}

/// What the store of `stage` does without, of one kind.
fn told(stage: &Stage, what: &str) -> Vec<Fallback> {
    let all = stage.store.health().fallbacks;
    all.into_iter().filter(|fallback| fallback.what == what).collect()
}

fn refused(pairs: &[(&str, &str)]) -> Error {
    let folder = tempfile::tempdir().unwrap();
    let opened = Stage::at(&folder.path().join("store"), PAGE_LEN, options(pairs), None);
    opened.map(drop).expect_err("what is insisted on is not there")
}

/// What is not got is told with the memory that it is of, and pages move all the same.
fn goes_on_without(what: &str, pairs: &[(&str, &str)]) {
    let stage = Stage::with(PAGE_LEN, options(pairs), None);
    let told = told(&stage, what);
    assert!(told[0].why.starts_with("the store's slots: "), "{told:?}");
    assert!(stage.set(1).is_ok() && stage.get(1).unwrap());
}

/// Memory of the store's own beside its slots, in bytes: the tails of its ring, and the pages for hard deadlines.
const TAILS_LEN: usize = 64 * 3 * 4096;
const OWN_LEN: usize = 64 * PAGE_LEN;

/// A get that is read into the store's own memory first.
fn get_hard(stage: &Stage) {
    let into = stage.pool.claim(PageIndex::new(5)).unwrap();
    let gets = vec![Get { key: stage::key(1), into }];
    let call = Call { hard: true, ..Default::default() };
    let page = stage.backend.batch_get(gets, call).wait().into_iter().next().unwrap().unwrap();
    assert!(stage::content(&page.expect("it is there")) == stage::bytes(1, PAGE_LEN));
}

/// What `measured` gives, in bytes, grows with each of the store's own memories when `asked` is.
fn grows_with_all_memory(asked: (&str, &str), measured: impl Fn() -> usize) {
    let of = |engine| Stage::with(PAGE_LEN, options(&[asked, ("engine", engine)]), None);
    let before = measured();
    let threads = of("threads");
    let slots_len = measured() - before;
    assert!(slots_len >= 2 << 20, "the slots of two threads, of 1 MiB and more: {slots_len}");
    threads.set(1).unwrap();
    get_hard(&threads);
    assert!(measured() - before >= slots_len + OWN_LEN, "the pages for hard deadlines");
    assert_eq!(told(&threads, asked.0), []);
    drop(threads);
    stage::eventually(|| measured() == before);
    if hicache_file::probe_io_uring().is_err() {
        return;
    }
    let ring = of("io_uring");
    let with_tails = measured() - before;
    assert!(with_tails >= slots_len + TAILS_LEN, "a ring's tails: {with_tails} of {slots_len}");
    ring.set(1).unwrap();
    assert!(ring.get(1).unwrap());
    drop(ring);
    stage::eventually(|| measured() == before);
}

/// Runs `test` anew under `wrap`, which answers for the kernel.
fn under(test: &str, wrap: &[&str]) {
    let output = stage::child(test, "under", wrap).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

fn has(program: &str) -> bool {
    Command::new(program).arg("-V").output().is_ok_and(|output| output.status.success())
}

#[test]
fn memory_that_may_not_be_locked_is_told_or_refused_with_the_way_out() {
    let test = "memory_that_may_not_be_locked_is_told_or_refused_with_the_way_out";
    if stage::child_argument().is_some() {
        goes_on_without("lock", &[("mlock", "true")]);
        let stage = Stage::with(PAGE_LEN, options(&[("mlock", "true")]), None);
        assert!(stage.set(1).is_ok());
        get_hard(&stage);
        let told = told(&stage, "lock");
        let has = |whose: &str| told.iter().any(|told| told.why.starts_with(whose));
        assert!(has("pages for hard deadlines: "), "{told:?}");
        assert_eq!(has("a ring's tails: "), stage.store.health().engine == "io_uring", "{told:?}");
        let error = refused(&[("mlock", "require")]);
        assert_eq!(error.kind(), ErrorKind::Exhausted);
        let text = format!("{error:?}");
        assert!(text.contains("mlock=true") && text.contains("ulimit -l"), "{text}");
        return;
    }
    if !has("setpriv") || !has("prlimit") {
        return stage::skip(test, "needs setpriv and prlimit");
    }
    let limit = ["prlimit", "--memlock=4096"];
    let may = ["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"];
    // Who may not drop a capability has none.
    let root = stage::is_root().then_some(may).into_iter().flatten();
    under(test, &root.chain(limit).collect::<Vec<_>>());
}

#[test]
fn memory_that_is_to_be_locked_is() {
    if !stage::in_child("memory_that_is_to_be_locked_is") {
        return;
    }
    let locked = || {
        let text = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    };
    let plain = Stage::with(PAGE_LEN, options(&[]), None);
    plain.set(1).unwrap();
    get_hard(&plain);
    assert_eq!(locked(), 0);
    grows_with_all_memory(("mlock", "require"), locked);
}

#[test]
fn b012_a_node_that_may_not_be_asked_for_is_told_or_refused_with_the_way_out() {
    let test = "b012_a_node_that_may_not_be_asked_for_is_told_or_refused_with_the_way_out";
    if stage::child_argument().is_some() {
        goes_on_without("numa", &[("numa", "prefer:0")]);
        let error = refused(&[("numa", "require:0")]);
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        let text = format!("{error:?}");
        assert!(text.contains("numa=prefer:NODE") && text.contains("SYS_NICE"), "{text}");
        return;
    }
    if !has("strace") {
        return stage::skip(test, "needs strace");
    }
    let inject = "inject=mbind:error=EPERM";
    under(test, &["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=mbind", "-e", inject]);
}

/// Bytes of this process that lie on `node` since they are bound to it.
fn bound_to(node: u32) -> usize {
    let maps = std::fs::read_to_string("/proc/self/numa_maps").unwrap();
    let bound = maps.lines().filter(|line| line.split_whitespace().nth(1) == Some(&*format!("bind:{node}")));
    let number = |line: &str, name: &str| {
        line.split_whitespace().find_map(|word| word.strip_prefix(name)?.parse::<usize>().ok()).unwrap_or(0)
    };
    bound.map(|line| number(line, &format!("N{node}=")) * number(line, "kernelpagesize_kB=") * 1024).sum()
}

#[test]
fn b012_all_memory_of_a_store_lies_on_its_node() {
    let test = "b012_all_memory_of_a_store_lies_on_its_node";
    if !std::fs::exists("/proc/self/numa_maps").unwrap() {
        return stage::skip(test, "needs a kernel with NUMA");
    }
    if !stage::in_child(test) {
        return;
    }
    let node = hicache_core::Machine::default().numa_nodes()[0].get();
    grows_with_all_memory(("numa", &format!("require:{node}")), || bound_to(node));
}

#[test]
fn b012_a_store_lies_on_the_node_that_is_there_and_on_no_other() {
    let nodes = hicache_core::Machine::default().numa_nodes();
    let node = nodes[0].get();
    if std::fs::exists("/proc/self/numa_maps").unwrap() {
        for numa in [format!("prefer:{node}"), format!("require:{node}")] {
            let stage = Stage::with(PAGE_LEN, options(&[("numa", &numa)]), None);
            assert_eq!(told(&stage, "numa"), []);
            assert!(stage.set(1).is_ok() && stage.get(1).unwrap());
        }
    } else {
        stage::skip(
            "b012_a_store_lies_on_the_node_that_is_there_and_on_no_other",
            "needs a kernel with NUMA",
        );
    }
    for numa in ["prefer:1023", "require:1023"] {
        let error = refused(&[("numa", numa)]);
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(format!("{error:?}").contains(&format!("online here: {node}")), "{error:?}");
    }
}
