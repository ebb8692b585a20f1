//! What memory there is, and of which kind.

use super::Check;
use crate::report::Size;
use hicache::{HugePageSize, HugePages, Machine, Numa, NumaNode, RegionSpec, ReservedPages};
use std::error::Error;
use std::fs::read_to_string;
use std::path::Path;

/// Pages of 2 MiB that the default pool of `demo` and the slots of a store take.
const PAGES_2MB_WANTED: usize = 64;
const PAGES_1GB_WANTED: usize = 1;
/// What a pool of some use takes.
const MEMORY_WANTED: u64 = 1 << 30;
/// A limit above this is the kernel's way to say that there is none.
const NO_LIMIT: u64 = 1 << 60;

/// `asked` is what the option says of each store that is looked at.
pub(super) fn rows(machine: &Machine, asked: &[HugePages], checks: &mut Vec<Check>) {
    checks.push(huge_pages_2mb(machine, asked));
    checks.push(huge_pages_1gb(machine, asked));
    checks.push(transparent(machine));
    checks.push(shared(machine));
    checks.push(numa(machine));
    checks.push(cgroup(machine));
}

fn huge_pages_2mb(machine: &Machine, asked: &[HugePages]) -> Check {
    huge_pages("huge_pages_2mb", machine, (HugePageSize::Size2M, PAGES_2MB_WANTED), asked, |_| String::new())
}

fn huge_pages_1gb(machine: &Machine, asked: &[HugePages]) -> Check {
    // The pieces of memory that are free may be smaller.
    let boot = |count| format!(", or boot with hugepagesz=1G hugepages={count}");
    huge_pages("huge_pages_1gb", machine, (HugePageSize::Size1G, PAGES_1GB_WANTED), asked, boot)
}

fn huge_pages(
    name: &'static str,
    machine: &Machine,
    (size, wanted): (HugePageSize, usize),
    asked: &[HugePages],
    or: fn(usize) -> String,
) -> Check {
    let reserved = machine.reserved(size);
    let found = reserved.as_ref().map_or_else(
        || "not offered by this kernel or processor".to_owned(),
        |ReservedPages { total, free, .. }| {
            let promised = if free < total { ", the others in use or promised" } else { "" };
            format!("{free} free of {total}{promised}")
        },
    );
    if asked.iter().all(|asked| *asked != HugePages::Prefer(size) && *asked != HugePages::Require(size)) {
        return Check::unasked(name, found, "huge_pages");
    }
    let wanted_text = format!("{wanted} free, or as many as the pools take");
    let Some(ReservedPages { total, free, .. }) = reserved else {
        let fix = format!("none here; set huge_pages to another size than {size}, or to off");
        return Check::new(name, false, found, wanted_text, fix);
    };
    let more = total + wanted.saturating_sub(free);
    let kib = size.alignment().bytes() / 1024;
    let folder = machine.paths().sysfs.join(format!("kernel/mm/hugepages/hugepages-{kib}kB"));
    let fix = format!("echo {more} > {}/nr_hugepages{}", folder.display(), or(more));
    Check::new(name, free >= wanted, found, wanted_text, fix)
}

fn transparent(machine: &Machine) -> Check {
    let path = machine.paths().sysfs.join("kernel/mm/transparent_hugepage/enabled");
    let text = read_to_string(&path).unwrap_or_default();
    let chosen = text.split(['[', ']']).nth(1).unwrap_or("not offered by this kernel");
    let ok = matches!(chosen, "always" | "madvise");
    let fix = format!("echo madvise > {}", path.display());
    Check::new("thp", ok, chosen.to_owned(), "madvise or always".to_owned(), fix)
}

/// Where a memfd is refused, shared pools lie there.
fn shared(machine: &Machine) -> Check {
    let folder = &machine.paths().shm;
    let wanted = format!("{} free, or as much as shared pools take (allocator=shm)", Size(MEMORY_WANTED));
    let size =
        |free: u64, total: u64| total.saturating_add(MEMORY_WANTED.saturating_sub(free)).div_ceil(1 << 20);
    let found = match is_memory(folder) {
        Ok(true) => rustix::fs::statvfs(folder)
            .map(|told| {
                let bytes = |blocks: u64| blocks.saturating_mul(told.f_frsize);
                (bytes(told.f_bavail), bytes(told.f_blocks))
            })
            .map_err(|error| error.to_string()),
        Ok(false) => Err("no memory file system (tmpfs)".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    let folder = folder.display();
    let (ok, found, fix) = match found {
        // A tmpfs without a limit tells no blocks.
        Ok((_, 0)) => (true, "no limit".to_owned(), String::new()),
        Ok((free, total)) => {
            let size = size(free, total);
            let fix = format!("mount -o remount,size={size}m {folder} (docker run --shm-size={size}m)");
            (free >= MEMORY_WANTED, format!("{} free of {}", Size(free), Size(total)), fix)
        }
        Err(why) => (
            false,
            why,
            format!("mkdir -p {folder} && mount -t tmpfs -o size={}m tmpfs {folder}", size(0, 0)),
        ),
    };
    Check::new("dev_shm", ok, found, wanted, fix)
}

fn is_memory(folder: &Path) -> rustix::io::Result<bool> {
    const TMPFS: u64 = 0x0102_1994;
    // The field widths differ between architectures.
    #[allow(clippy::unnecessary_cast)]
    rustix::fs::statfs(folder).map(|told| told.f_type as u64 == TMPFS)
}

/// Maps a page on the first node: the answer of the kernel is the only one that counts.
fn numa(machine: &Machine) -> Check {
    let nodes = machine.numa_nodes();
    let list = nodes.iter().map(NumaNode::to_string).collect::<Vec<_>>().join(", ");
    let spec = RegionSpec {
        len: 1,
        huge_pages: HugePages::Off,
        numa: nodes.first().map_or(Numa::Any, |node| Numa::Require(*node)),
        ..RegionSpec::default()
    };
    let refused = spec.map_on(machine).err().map(|error| match error.source() {
        Some(source) => format!("{error} ({source})"),
        None => error.to_string(),
    });
    let (ok, found) = match (&refused, nodes.len()) {
        (None, 1) => (true, format!("one node, {list}")),
        (None, _) => (true, format!("nodes {list}; numa=prefer:NODE keeps memory beside its processors")),
        (Some(_), 1) => {
            (true, format!("one node, {list}; binding memory is refused, and with one node not needed"))
        }
        (Some(why), _) => (false, format!("nodes {list}; {why}")),
    };
    let fix =
        "allow mbind to this process (docker run --cap-add SYS_NICE); until then leave numa off".to_owned();
    Check::new("numa", ok, found, "memory can be bound to a node".to_owned(), fix)
}

/// The limit of the container or service that this process is in.
fn cgroup(machine: &Machine) -> Check {
    let wanted = format!("no limit, or {} left, or as much as the pools take", Size(MEMORY_WANTED));
    let limit = machine.memory_limit().filter(|limit| limit.limit < NO_LIMIT);
    let Some(limit) = limit else {
        return Check::new("cgroup_memory", true, "no limit".to_owned(), wanted, String::new());
    };
    let (left, file) = (limit.headroom(), limit.file.display());
    let found = format!("{} left of {} ({file})", Size(left), Size(limit.limit));
    let enough = limit.limit.saturating_add(MEMORY_WANTED.saturating_sub(left));
    let fix =
        format!("echo {enough} > {file} (docker update --memory, systemctl set-property UNIT MemoryMax=)");
    Check::new("cgroup_memory", left >= MEMORY_WANTED, found, wanted, fix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hicache::MachinePaths;
    use std::fs;

    /// A machine whose facts are these files.
    fn machine(root: &Path, files: &[(&str, &str)]) -> Machine {
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Machine::new(MachinePaths {
            procfs: root.join("proc"),
            sysfs: root.join("sys"),
            cgroupfs: root.join("cg"),
            shm: root.join("shm"),
        })
    }

    #[test]
    fn huge_pages_that_are_promised_to_others_are_not_free() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "100"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "80"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "30"),
        ];
        let machine = machine(root.path(), &files);
        let check = huge_pages_2mb(&machine, &[HugePages::Prefer(HugePageSize::Size2M)]);
        assert!(!check.ok && check.found.starts_with("50 free of 100"), "{check:?}");
        assert!(check.fix.starts_with("echo 114 > "), "{check:?}");
        let check = huge_pages_1gb(&machine, &[HugePages::Prefer(HugePageSize::Size1G)]);
        assert!(
            !check.ok && check.found.contains("not offered") && check.fix.contains("huge_pages"),
            "{check:?}"
        );
    }

    #[test]
    fn huge_pages_that_are_there_need_no_fix() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "2"),
            ("sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "1"),
        ];
        let asked = [HugePages::Require(HugePageSize::Size1G)];
        let check = huge_pages_1gb(&machine(root.path(), &files), &asked);
        assert!(check.ok && check.fix.is_empty() && !check.unasked, "{check:?}");
    }

    #[test]
    fn huge_pages_that_no_store_asks_for_are_told_and_not_missed() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0"),
            ("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0"),
        ];
        let machine = machine(root.path(), &files);
        let [small, large] = [HugePageSize::Size2M, HugePageSize::Size1G];
        for (asked, missed) in [
            (vec![HugePages::Prefer(small)], [true, false]),
            (vec![HugePages::Require(large)], [false, true]),
            (vec![HugePages::Off], [false, false]),
            (vec![HugePages::Off, HugePages::Prefer(large), HugePages::Prefer(small)], [true, true]),
        ] {
            let rows = [huge_pages_2mb(&machine, &asked), huge_pages_1gb(&machine, &asked)];
            assert_eq!([!rows[0].ok, !rows[1].ok], missed, "{rows:?}");
            for row in rows {
                assert_eq!(row.ok, row.unasked, "{row:?}");
                assert_eq!(row.found, "0 free of 0");
                assert!(row.fix.len() < 200, "{row:?}");
            }
        }
    }

    #[test]
    fn the_limit_of_the_container_is_told_with_what_raises_it() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("proc/self/cgroup", "0::/box"),
            ("cg/box/memory.max", "2147483648"),
            ("cg/box/memory.current", "2147483648"),
            ("cg/box/memory.stat", "inactive_file 0\nactive_file 536870912\n"),
        ];
        let check = cgroup(&machine(root.path(), &files));
        assert!(!check.ok && check.found.starts_with("512.0 MiB left of 2.0 GiB"), "{check:?}");
        assert!(
            check.fix.starts_with("echo 2684354560 > ") && check.fix.contains("cg/box/memory.max"),
            "{check:?}"
        );
        // What version 1 says where nothing is set.
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("cg/memory/memory.limit_in_bytes", "9223372036854771712"),
            ("cg/memory/memory.usage_in_bytes", "9223372036854771712"),
        ];
        let check = cgroup(&machine(root.path(), &files));
        assert!(check.ok && check.found == "no limit", "{check:?}");
    }

    #[test]
    fn a_folder_on_disk_or_none_is_no_shared_memory() {
        let root = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let machine = machine(root.path(), &[]);
        let check = shared(&machine);
        assert!(!check.ok && check.fix.contains("mount -t tmpfs -o size=1024m"), "{check:?}");
        fs::create_dir(root.path().join("shm")).unwrap();
        if !is_memory(&root.path().join("shm")).unwrap() {
            let check = shared(&machine);
            assert!(!check.ok && check.found.contains("tmpfs"), "{check:?}");
        }
    }

    #[test]
    fn every_row_is_there_once_and_says_what_to_do() {
        let mut checks = Vec::new();
        rows(&Machine::default(), &[HugePages::default()], &mut checks);
        let names: Vec<_> = checks.iter().map(|check| check.name.clone()).collect();
        assert_eq!(names, ["huge_pages_2mb", "huge_pages_1gb", "thp", "dev_shm", "numa", "cgroup_memory"]);
        for check in checks {
            assert_eq!(check.ok, check.fix.is_empty(), "{check:?}");
            assert!(!check.found.is_empty() && !check.wanted.is_empty(), "{check:?}");
        }
    }
}
