//! Options of memory: what the store's own and the host pools that go with it are mapped as.

use super::OptionSpec;
use crate::{CommonOptions, HugePageSize, HugePages, Lock, Numa, NumaNode, RegionSpec, parse_bool};

pub(super) const HUGE_PAGES: OptionSpec = OptionSpec {
    name: "huge_pages",
    aliases: &[],
    kind: "off, prefer, require, or either of these with a size, as in require:1GiB",
    default: "prefer:2MiB",
    about: "page size of the memory of the store and of its host pools",
    secret: false,
    guarded: false,
};

pub(super) const MLOCK: OptionSpec = OptionSpec {
    name: "mlock",
    aliases: &[],
    kind: "bool, or require",
    default: "false",
    about: "lock that memory, so that it is never swapped out; require: or not at all",
    secret: false,
    guarded: false,
};

pub(super) const NUMA: OptionSpec = OptionSpec {
    name: "numa",
    aliases: &[],
    kind: "off, prefer:NODE, require:NODE (strict:NODE is the same)",
    default: "off",
    about: "which NUMA node that memory lies on; prefer: as far as it has room",
    secret: false,
    guarded: false,
};

impl CommonOptions {
    /// How the store maps memory of its own: nobody outside this process sees it. [`RegionSpec::len`] is 0.
    pub fn own_memory(&self) -> RegionSpec {
        RegionSpec { huge_pages: self.huge_pages, numa: self.numa, lock: self.mlock, ..RegionSpec::default() }
    }

    /// How a host pool whose pages go to the store is mapped. [`RegionSpec::len`] is 0.
    pub fn pool_memory(&self) -> RegionSpec {
        RegionSpec { backing: self.allocator.backing(), ..self.own_memory() }
    }
}

pub(super) fn parse_huge_pages(text: &str) -> Result<HugePages, String> {
    let (policy, size) = text.split_once(':').unwrap_or((text, "2MiB"));
    let size = size.parse::<HugePageSize>().map_err(|error| error.to_string())?;
    match policy.to_ascii_lowercase().as_str() {
        "off" if !text.contains(':') => Ok(HugePages::Off),
        "prefer" => Ok(HugePages::Prefer(size)),
        "require" => Ok(HugePages::Require(size)),
        _ => Err("want off, prefer, require, prefer:SIZE or require:SIZE".to_string()),
    }
}

/// As of direct I/O: *true* asks for it, *require* insists.
pub(super) fn parse_mlock(text: &str) -> Result<Lock, String> {
    if text.eq_ignore_ascii_case("require") {
        return Ok(Lock::Require);
    }
    let asked = parse_bool(text).map_err(|why| format!("{why}, or require"))?;
    Ok(if asked { Lock::Prefer } else { Lock::Off })
}

/// Which nodes there are is known where memory is mapped.
pub(super) fn parse_numa(text: &str) -> Result<Numa, String> {
    if text.eq_ignore_ascii_case("off") {
        return Ok(Numa::Any);
    }
    let wanted = || {
        "want off, prefer:NODE or require:NODE, a NODE being a number of those that `hicache doctor` lists"
            .to_string()
    };
    let (policy, node) = text.split_once(':').ok_or_else(wanted)?;
    // A sign is no part of a node's number.
    let is_number = !node.is_empty() && node.bytes().all(|byte| byte.is_ascii_digit());
    let node = node.parse().ok().filter(|_| is_number).map(NumaNode::new).ok_or_else(wanted)?;
    match policy.to_ascii_lowercase().as_str() {
        "prefer" => Ok(Numa::Prefer(node)),
        "require" | "strict" => Ok(Numa::Require(node)),
        _ => Err(wanted()),
    }
}
