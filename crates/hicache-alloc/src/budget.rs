//! Whether there is memory for a region, asked before a page of it is touched.
//!
//! Memory that is not there is not refused when it is touched: the out-of-memory killer ends somebody. So each limit
//! that would be met then is looked at before, and the first that is too low is named. The answer is as good as the
//! moment: nothing is set aside, and others may take what was free.

use crate::ReservedPages;
use crate::machine::no_memory;
use crate::{AllocError, HugePageSize, Machine, MemoryLimit, Numa, NumaNode, Shortage, cgroup};
use std::fs;
use std::path::Path;

/// Refuses `wanted` bytes, on `huge` pages or on base pages, if a limit says that they cannot be had.
pub(crate) fn check(
    machine: &Machine,
    wanted: usize,
    huge: Option<HugePageSize>,
    numa: Numa,
) -> Result<(), AllocError> {
    let shortage = match huge {
        None => available(machine, wanted)
            .or_else(|| over_limit(&cgroup::memory(machine), wanted))
            .or_else(|| on_node(machine, wanted, numa)),
        Some(size) => reserved(machine, wanted, size)
            .or_else(|| over_limit(&cgroup::huge_pages(machine, size), wanted))
            .or_else(|| reserved_on_node(machine, wanted, size, numa)),
    };
    match shortage {
        None => Ok(()),
        Some(shortage) => Err(AllocError::Exhausted { shortage, source: no_memory() }),
    }
}

impl Machine {
    /// Bytes of base pages that can be taken now without swapping or the out-of-memory killer: the kernel's
    /// `MemAvailable`, or less where a cgroup of this process allows less. `None` if nothing tells.
    pub fn available_memory(&self) -> Option<u64> {
        let limit = self.memory_limit().map(|limit| limit.headroom());
        mem_available(self).into_iter().chain(limit).min()
    }

    /// Of the limits of this process's cgroups on base pages, the one that leaves least; `None` if there is none.
    pub fn memory_limit(&self) -> Option<MemoryLimit> {
        cgroup::memory(self).into_iter().min_by_key(MemoryLimit::headroom)
    }
}

fn available(machine: &Machine, wanted: usize) -> Option<Shortage> {
    let available = mem_available(machine)?;
    (wanted as u64 > available).then_some(Shortage::Available { wanted, available })
}

fn mem_available(machine: &Machine) -> Option<u64> {
    meminfo(&machine.paths().procfs.join("meminfo"), "", &["MemAvailable:"])
}

fn over_limit(limits: &[MemoryLimit], wanted: usize) -> Option<Shortage> {
    let lowest = limits.iter().min_by_key(|limit| limit.headroom())?;
    let MemoryLimit { file, limit, used, reclaimable } = lowest.clone();
    (wanted as u64 > lowest.headroom()).then_some(Shortage::Cgroup { file, wanted, limit, used, reclaimable })
}

fn on_node(machine: &Machine, wanted: usize, numa: Numa) -> Option<Shortage> {
    let node = required(numa)?;
    let path = node_folder(machine, node).join("meminfo");
    let names = ["MemFree:", "Active(file):", "Inactive(file):"];
    let free = meminfo(&path, &format!("Node {node} "), &names)?;
    (wanted as u64 > free).then_some(Shortage::Node { node, wanted, free })
}

fn reserved(machine: &Machine, wanted: usize, size: HugePageSize) -> Option<Shortage> {
    let ReservedPages { total, free, surplus } = machine.reserved(size).unwrap_or_default();
    let wanted = wanted / size.alignment().bytes();
    (wanted > free.saturating_add(surplus)).then_some(Shortage::HugePages { size, wanted, free, total })
}

/// The kernel promises pages of the machine, not of the node: a node that runs out is met at the touch.
fn reserved_on_node(machine: &Machine, wanted: usize, size: HugePageSize, numa: Numa) -> Option<Shortage> {
    let node = required(numa)?;
    let page = size.alignment().bytes();
    let folder = format!("hugepages/hugepages-{}kB/free_hugepages", page / 1024);
    let pages: u64 = crate::machine::number(&node_folder(machine, node).join(folder))?;
    let free = pages.saturating_mul(page as u64);
    (wanted as u64 > free).then_some(Shortage::Node { node, wanted, free })
}

fn required(numa: Numa) -> Option<NumaNode> {
    match numa {
        Numa::Require(node) => Some(node),
        Numa::Any | Numa::Prefer(_) => None,
    }
}

fn node_folder(machine: &Machine, node: NumaNode) -> std::path::PathBuf {
    machine.paths().sysfs.join(format!("devices/system/node/node{node}"))
}

/// The sum, in bytes, of the numbers of these names in a `meminfo`, each line of which opens with `prefix`. `None`
/// if one is missing.
fn meminfo(path: &Path, prefix: &str, names: &[&str]) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let kib = |name: &&str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(prefix)?.strip_prefix(*name))?;
        rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    names.iter().map(kib).sum::<Option<u64>>()?.checked_mul(1024)
}
