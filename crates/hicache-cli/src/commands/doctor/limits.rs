//! The limits of this process: what it may lock, and how many files it may open.

use super::Check;
use crate::report::Size;
use rustix::process::Resource;

const FILES_WANTED: u64 = 4096;
/// Nothing is locked or pinned by default; the kernel's own default is at least this.
const MEMLOCK_WANTED: u64 = 64 << 10;

pub(super) fn rows(checks: &mut Vec<Check>) {
    let mut limit =
        |name: &'static str, resource, wanted: u64, wanted_text: &str, show: fn(u64) -> String, fix: &str| {
            let current = rustix::process::getrlimit(resource).current;
            let ok = current.is_none_or(|current| current >= wanted);
            let found = current.map_or_else(|| "unlimited".to_owned(), show);
            checks.push(Check::new(name, ok, found, wanted_text.to_owned(), fix.to_owned()));
        };
    let bytes = |len| Size(len).to_string();
    limit(
        "memlock",
        Resource::Memlock,
        MEMLOCK_WANTED,
        "64 KiB or more; as much as the pools, where mlock or a device pins them",
        bytes,
        "ulimit -l unlimited (or LimitMEMLOCK=infinity, memlock in limits.conf)",
    );
    let plain = |count: u64| count.to_string();
    let fix = "ulimit -n 65536 (or LimitNOFILE=65536, nofile in limits.conf)";
    limit("nofile", Resource::Nofile, FILES_WANTED, "4096 or more", plain, fix);
}
