//! The limits of the cgroups that this process is in, version 1 and 2.
//!
//! Limits hold for a group and all below it, so every group from the process's own up to the root of what is mounted
//! counts. In a container the path that the kernel tells may not exist below the mount, whose root then is the
//! container's own group: so the root is always looked at.

use crate::{HugePageSize, Machine};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The limit of a cgroup on its memory. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryLimit {
    /// The file that holds it.
    pub file: PathBuf,
    /// The limit.
    pub limit: u64,
    /// What is charged to the group now.
    pub used: u64,
    /// How much of that is file cache, which the kernel drops when the group needs the room.
    pub reclaimable: u64,
}

impl MemoryLimit {
    /// What may still be taken.
    pub fn headroom(&self) -> u64 {
        self.limit.saturating_sub(self.used.saturating_sub(self.reclaimable))
    }
}

/// The limits on memory.
pub(crate) fn memory(machine: &Machine) -> Vec<MemoryLimit> {
    let one = folders(machine, Version::One("memory")).into_iter().filter_map(|folder| {
        let cache = cache(&folder, ["total_inactive_file", "total_active_file"])
            .or_else(|| cache(&folder, ["inactive_file", "active_file"]));
        read(&folder, "memory.limit_in_bytes", "memory.usage_in_bytes", cache.unwrap_or(0))
    });
    let two = folders(machine, Version::Two).into_iter().filter_map(|folder| {
        let cache = cache(&folder, ["inactive_file", "active_file"]);
        read(&folder, "memory.max", "memory.current", cache.unwrap_or(0))
    });
    one.chain(two).collect()
}

/// The limits on reserved huge pages of `size`.
pub(crate) fn huge_pages(machine: &Machine, size: HugePageSize) -> Vec<MemoryLimit> {
    let size = match size {
        HugePageSize::Size2M => "2MB",
        HugePageSize::Size1G => "1GB",
    };
    let file = |name: &str| format!("hugetlb.{size}.{name}");
    let one = folders(machine, Version::One("hugetlb"));
    let one =
        one.iter().filter_map(|folder| read(folder, &file("limit_in_bytes"), &file("usage_in_bytes"), 0));
    let two = folders(machine, Version::Two);
    let two = two.iter().filter_map(|folder| read(folder, &file("max"), &file("current"), 0));
    one.chain(two).collect()
}

#[derive(Clone, Copy)]
enum Version {
    /// A hierarchy of its own for each controller.
    One(&'static str),
    Two,
}

/// `None` where there is no limit: `max`, or no such file.
fn read(folder: &Path, limit: &str, used: &str, reclaimable: u64) -> Option<MemoryLimit> {
    let file = folder.join(limit);
    let number = |path: &Path| crate::machine::number::<u64>(path);
    Some(MemoryLimit { limit: number(&file)?, used: number(&folder.join(used))?, reclaimable, file })
}

/// The sum of two numbers of a group's `memory.stat`, if it has both.
fn cache(folder: &Path, names: [&str; 2]) -> Option<u64> {
    let stat = fs::read_to_string(folder.join("memory.stat")).ok()?;
    let number = |name| {
        let value = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        value.trim().parse::<u64>().ok()
    };
    Some(number(names[0])?.saturating_add(number(names[1])?))
}

/// The folders of this process's groups, from its own up to the mount, whether they exist or not.
fn folders(machine: &Machine, version: Version) -> Vec<PathBuf> {
    let text = fs::read_to_string(machine.paths().procfs.join("self/cgroup")).unwrap_or_default();
    let own = text.lines().find_map(|line| {
        let mut words = line.splitn(3, ':');
        let (number, controllers, path) = (words.next()?, words.next()?, words.next()?);
        let is_ours = match version {
            Version::One(controller) => controllers.split(',').any(|name| name == controller),
            Version::Two => number == "0" && controllers.is_empty(),
        };
        is_ours.then(|| below(path))
    });
    let own = own.unwrap_or_default();
    let root = &machine.paths().cgroupfs;
    let mounts = match version {
        Version::One(controller) => vec![root.join(controller)],
        Version::Two => vec![root.clone(), root.join("unified")],
    };
    mounts.iter().flat_map(|mount| own.ancestors().map(|path| mount.join(path))).collect()
}

/// A group's path relative to the mount. One that leaves the process's namespace upwards cannot be followed.
fn below(path: &str) -> PathBuf {
    let parts = Path::new(path).components();
    if parts.clone().any(|part| part == Component::ParentDir) {
        return PathBuf::new();
    }
    parts.filter(|part| matches!(part, Component::Normal(_))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MachinePaths;

    fn machine(root: &Path, cgroup: &str, files: &[(&str, &str)]) -> Machine {
        let paths =
            MachinePaths { procfs: root.join("proc"), cgroupfs: root.join("cg"), ..Default::default() };
        let mut all = vec![("proc/self/cgroup", cgroup)];
        all.extend(files);
        for (name, text) in all {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Machine::new(paths)
    }

    #[test]
    fn every_group_up_to_the_root_has_a_say() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("cg/a/memory.max", "100\n"),
            ("cg/a/memory.current", "90\n"),
            ("cg/a/memory.stat", "anon 1\ninactive_file 20\nactive_file 30\n"),
            ("cg/a/b/memory.max", "max\n"),
            ("cg/a/b/memory.current", "5\n"),
            ("cg/memory/c/memory.limit_in_bytes", "7\n"),
            ("cg/memory/c/memory.usage_in_bytes", "9\n"),
            ("cg/a/b/hugetlb.2MB.max", "4194304\n"),
            ("cg/a/b/hugetlb.2MB.current", "2097152\n"),
        ];
        let machine = machine(root.path(), "4:cpu,memory:/c\n0::/a/b\n", &files);
        let headrooms: Vec<u64> = memory(&machine).iter().map(MemoryLimit::headroom).collect();
        assert_eq!(headrooms, [0, 60]);
        assert_eq!(memory(&machine)[1].file, root.path().join("cg/a/memory.max"));
        assert_eq!(huge_pages(&machine, HugePageSize::Size2M)[0].headroom(), 2 << 20);
        assert_eq!(huge_pages(&machine, HugePageSize::Size1G), []);
    }

    #[test]
    fn the_root_of_the_mount_counts_where_the_path_is_not_below_it() {
        for cgroup in ["5:memory:/docker/0123\n", "5:memory:/../other\n", ""] {
            let root = tempfile::tempdir().unwrap();
            let files =
                [("cg/memory/memory.limit_in_bytes", "50"), ("cg/memory/memory.usage_in_bytes", "20")];
            let limits = memory(&machine(root.path(), cgroup, &files));
            assert_eq!(limits.iter().map(MemoryLimit::headroom).collect::<Vec<_>>(), [30], "{cgroup}");
        }
    }
}
