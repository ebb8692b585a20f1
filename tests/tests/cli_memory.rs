//! Memory of the commands: where it lies, how it is locked, and what limits it.

use hicache_tests::{Home, key, skip};
use std::fs;
use std::path::PathBuf;

/// A cgroup with a limit on memory, removed on drop, when the last process has left it.
struct Limited(PathBuf);

impl Limited {
    /// `None` where no group can be made.
    fn new(name: &str, limit: u64) -> Option<Self> {
        let kinds = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        kinds.into_iter().find_map(|(mount, file)| {
            let folder = PathBuf::from(mount).join(format!("hicache-test-{name}-{}", std::process::id()));
            fs::create_dir(&folder).ok()?;
            let group = Self(folder);
            let there = group.0.join(file).exists() && group.0.join("cgroup.procs").exists();
            (there && fs::write(group.0.join(file), limit.to_string()).is_ok()).then_some(group)
        })
    }

    /// A line of a shell that puts what runs behind it into the group.
    fn enter(&self) -> String {
        format!("echo $$ > '{}/cgroup.procs' || exit 99", self.0.display())
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn b008_commands_go_by_the_limit_of_their_container() {
    let test = "b008_commands_go_by_the_limit_of_their_container";
    let Some(group) = Limited::new("limit", 100 << 20) else {
        let is_root =
            fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
        let reason =
            if is_root { "needs a cgroup that limits memory" } else { "needs root to make a cgroup" };
        return skip(test, reason);
    };
    let home = Home::new();
    let run = |command: &str| home.shell(&format!("{}; exec $H {command}", group.enter()));
    // Of the machine's memory it would be a small part.
    let refused = run("demo -q --backend \"file:$HOME/store\"").ended(2);
    for part in ["more than half", "limit=", &group.0.display().to_string()] {
        assert!(refused.stderr.contains(part), "{}", refused.stderr);
    }
    // A store in memory holds a quarter of what the container leaves.
    let refused = run("demo -q --backend memory:").ended(1);
    assert!(
        refused.stderr.contains("no space") && refused.stderr.contains("capacity="),
        "{}",
        refused.stderr
    );
    let document = run("doctor --json").ended(0).json();
    let checks = document["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == "cgroup_memory").unwrap();
    assert_eq!(check["ok"], false);
    assert!(check["found"].as_str().unwrap().contains("left of 100.0 MiB"), "{check}");
    assert!(check["fix"].as_str().unwrap().contains(&group.0.display().to_string()), "{check}");
}

#[test]
fn memory_is_put_on_the_node_and_locked_as_the_options_say() {
    let home = Home::new();
    let page = home.file("in", "x");
    let name = key(1);
    let put = |options: &str| {
        home.run(["put", &name, &page, "--backend", &format!("{}?{options}", home.url("store"))])
    };
    put("numa=prefer:0&mlock=true").ended(0);
    for options in ["numa=prefer:1023", "numa=require:1023"] {
        let refused = put(options).ended(2);
        assert!(refused.stderr.contains("no NUMA node 1023: online here: 0"), "{}", refused.stderr);
    }
    for options in ["numa=0", "numa=prefer:-1", "numa=prefer", "mlock=maybe", "mlock=prefer:1"] {
        let refused = put(options).ended(2);
        let (option, _) = options.split_once('=').unwrap();
        assert!(refused.stderr.contains(&format!("option={option}")), "{}", refused.stderr);
    }
    // The command's own page is the command's memory, whatever the store is.
    let refused = home.run(["put", &name, &page, "--backend", "memory:?numa=require:1023"]).ended(2);
    assert!(refused.stderr.contains("no NUMA node 1023"), "{}", refused.stderr);
}
