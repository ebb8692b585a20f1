//! What the machine has, where that is read, and what its kernel's refusals mean.

use crate::counts::Tally;
use crate::error::Failed;
use crate::{Alignment, AllocError, HugePageSize, MachineCounts, Shortage};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where facts about a machine are read, and where a file stands in for a memfd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachinePaths {
    /// `/proc`: memory, mounts, the process's cgroups, and the account of its mappings.
    pub procfs: PathBuf,
    /// `/sys`: huge pages and NUMA nodes.
    pub sysfs: PathBuf,
    /// `/sys/fs/cgroup`: the limits of containers and services, version 1 or 2 or both.
    pub cgroupfs: PathBuf,
    /// `/dev/shm`: a memory file system for [`Backing::Memfd`](crate::Backing::Memfd) where memfds are refused.
    pub shm: PathBuf,
}

impl Default for MachinePaths {
    /// Where Linux has them.
    fn default() -> Self {
        Self {
            procfs: "/proc".into(),
            sysfs: "/sys".into(),
            cgroupfs: "/sys/fs/cgroup".into(),
            shm: "/dev/shm".into(),
        }
    }
}

/// The machine that regions are mapped on: where its facts are read, and counts of what became of the regions.
/// Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    paths: MachinePaths,
    tally: Tally,
}

/// The huge pages of one size that a machine reserves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReservedPages {
    /// All of them.
    pub total: usize,
    /// Free and not promised to a mapping that has not touched them yet.
    pub free: usize,
    /// What the kernel may still add to the pool when it is asked.
    pub surplus: usize,
}

impl Machine {
    /// A machine whose facts are read at `paths`; the default is the one that this process runs on. Memory always
    /// comes from that one, whatever is read elsewhere.
    pub fn new(paths: MachinePaths) -> Self {
        Self { paths, tally: Tally::default() }
    }

    /// Where its facts are read.
    pub fn paths(&self) -> &MachinePaths {
        &self.paths
    }

    /// What became of the regions so far.
    pub fn counts(&self) -> MachineCounts {
        self.tally.read()
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Refuses what no amount of waiting or reclaim can give: a reservation larger than RAM and swap would end in
    /// the out-of-memory killer, not in an error.
    pub(crate) fn check_exists(&self, len: usize) -> Result<(), AllocError> {
        if len as u64 <= memory_total() { Ok(()) } else { Err(out_of_memory(len, no_memory())) }
    }

    /// What a failed call means for a region of `len` bytes, on `huge` pages or on base pages.
    pub(crate) fn refusal(&self, failed: Failed, len: usize, huge: Option<HugePageSize>) -> AllocError {
        // MADV_POPULATE_WRITE answers EFAULT where the touch would have been a SIGBUS, and fallocate on hugetlb
        // answers ENOSPC: both say that there is no more.
        let short = matches!(failed.errno(), libc::ENOMEM | libc::EFAULT | libc::ENOSPC);
        let unknown = matches!(failed.errno(), libc::EINVAL | libc::ENODEV | libc::ENOSYS | libc::EOPNOTSUPP);
        match huge {
            Some(size) if unknown => AllocError::Unsupported {
                what: format!(
                    "huge pages of {size}: this machine offers {}; ask for one of those, or for base pages",
                    self.offered()
                ),
                source: failed.source,
            },
            Some(size) if short => {
                let ReservedPages { total, free, .. } = self.reserved(size).unwrap_or_default();
                let wanted = len / size.alignment().bytes();
                let shortage = Shortage::HugePages { size, wanted, free, total };
                AllocError::Exhausted { shortage, source: failed.source }
            }
            None if short => out_of_memory(len, failed.source),
            _ => failed.into(),
        }
    }

    /// The size of a transparent huge page, or `None` if the kernel has none.
    pub(crate) fn transparent_size(&self) -> Option<Alignment> {
        number(&self.paths.sysfs.join("kernel/mm/transparent_hugepage/hpage_pmd_size"))
            .and_then(Alignment::new)
    }

    /// The reserved pages of `size`; `None` where the machine has no pages of that size.
    pub fn reserved(&self, size: HugePageSize) -> Option<ReservedPages> {
        let folder = self.huge_pages().join(format!("hugepages-{}kB", size.alignment().bytes() / 1024));
        let read = |name| number::<usize>(&folder.join(name)).unwrap_or(0);
        folder.is_dir().then(|| ReservedPages {
            total: read("nr_hugepages"),
            free: read("free_hugepages").saturating_sub(read("resv_hugepages")),
            surplus: read("nr_overcommit_hugepages").saturating_sub(read("surplus_hugepages")),
        })
    }

    fn offered(&self) -> String {
        let mut sizes: Vec<String> = fs::read_dir(self.huge_pages())
            .into_iter()
            .flatten()
            .filter_map(|entry| {
                Some(entry.ok()?.file_name().to_str()?.strip_prefix("hugepages-")?.to_owned())
            })
            .collect();
        sizes.sort();
        if sizes.is_empty() { "none".to_owned() } else { sizes.join(", ") }
    }

    fn huge_pages(&self) -> PathBuf {
        self.paths.sysfs.join("kernel/mm/hugepages")
    }
}

/// What the kernel answers when it has no memory.
pub(crate) fn no_memory() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOMEM)
}

/// The one number that a file of the kernel holds.
pub(crate) fn number<T: FromStr>(path: &Path) -> Option<T> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn out_of_memory(wanted: usize, source: io::Error) -> AllocError {
    AllocError::Exhausted { shortage: Shortage::Memory { wanted, total: memory_total() }, source }
}

fn memory_total() -> u64 {
    let info = rustix::system::sysinfo();
    // The field widths differ between architectures.
    #[allow(clippy::useless_conversion)]
    let pages = u64::from(info.totalram) + u64::from(info.totalswap);
    pages.saturating_mul(u64::from(info.mem_unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promised_pages_are_not_free() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("kernel/mm/hugepages/hugepages-2048kB");
        fs::create_dir_all(&folder).unwrap();
        for (name, pages) in [("nr_hugepages", "9\n"), ("free_hugepages", "7\n"), ("resv_hugepages", "5\n")] {
            fs::write(folder.join(name), pages).unwrap();
        }
        let machine = Machine::new(MachinePaths { sysfs: root.path().into(), ..Default::default() });
        let reserved = ReservedPages { total: 9, free: 2, surplus: 0 };
        assert_eq!(machine.reserved(HugePageSize::Size2M), Some(reserved));
        assert_eq!(machine.reserved(HugePageSize::Size1G), None);
        assert_eq!(machine.offered(), "2048kB");
        let bare = Machine::new(MachinePaths { sysfs: root.path().join("absent"), ..Default::default() });
        assert_eq!(bare.offered(), "none");
        assert_eq!(bare.transparent_size(), None);
    }

    #[test]
    fn more_than_the_machine_has_is_refused_before_it_is_reserved() {
        let machine = Machine::default();
        assert!(machine.check_exists(4096).is_ok());
        let error = machine.check_exists(1 << 47).unwrap_err();
        let AllocError::Exhausted { shortage: Shortage::Memory { wanted, .. }, .. } = error else {
            panic!("{error:?}")
        };
        assert_eq!(wanted, 1 << 47);
    }

    #[test]
    fn populate_errors_are_translated_and_keep_their_errno() {
        let machine = Machine::default();
        for errno in [libc::EFAULT, libc::ENOMEM] {
            let failed = || Failed { call: "madvise", source: io::Error::from_raw_os_error(errno) };
            for huge in [None, Some(HugePageSize::Size2M)] {
                match machine.refusal(failed(), 4 << 20, huge) {
                    AllocError::Exhausted { source, .. } => assert_eq!(source.raw_os_error(), Some(errno)),
                    other => panic!("{other:?}"),
                }
            }
        }
        let failed = Failed { call: "mmap", source: io::Error::from_raw_os_error(libc::EINVAL) };
        let refusal = machine.refusal(failed, 2 << 20, Some(HugePageSize::Size2M));
        assert!(matches!(refusal, AllocError::Unsupported { .. }));
        let failed = Failed { call: "mmap", source: io::Error::from_raw_os_error(libc::EPERM) };
        assert!(matches!(machine.refusal(failed, 2 << 20, None), AllocError::Os { call: "mmap", .. }));
    }
}
