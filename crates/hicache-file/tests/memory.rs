//! A store's own memory: on the node and locked as its options say, or else told, or refused.

mod stage;

use hicache_core::{Error, ErrorKind, Fallback, Source, Store, StoreOptions};
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
    let plain = Stage::with(PAGE_LEN, options(&[("engine", "threads")]), None);
    assert_eq!(locked(), 0);
    let stage = Stage::with(PAGE_LEN, options(&[("mlock", "require"), ("engine", "threads")]), None);
    assert!(locked() >= 2 << 20, "the slots of two threads, of 1 MiB and more");
    assert_eq!(told(&stage, "lock"), []);
    assert!(stage.set(1).is_ok() && stage.get(1).unwrap());
    drop((plain, stage));
    stage::eventually(|| locked() == 0);
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
