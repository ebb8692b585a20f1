//! What the machine has: memory, reserved huge pages, transparent huge pages.

use crate::error::Failed;
use crate::{Alignment, AllocError, HugePageSize, Shortage};
use std::fs;
use std::io;
use std::path::Path;
use std::str::FromStr;

const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages";
const TRANSPARENT: &str = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";

/// The reserved pages of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReservedPages {
    pub(crate) total: usize,
    /// Free and not promised to a mapping that has not touched them yet.
    pub(crate) free: usize,
}

/// Refuses what no amount of waiting or reclaim can give: a reservation larger than RAM and swap would end in the
/// out-of-memory killer, not in an error.
pub(crate) fn check_exists(len: usize) -> Result<(), AllocError> {
    if len as u64 <= memory_total() {
        return Ok(());
    }
    Err(out_of_memory(len, io::Error::from_raw_os_error(libc::ENOMEM)))
}

/// What a failed call means for a region of `len` bytes, on `huge` pages or on base pages.
pub(crate) fn refusal(failed: Failed, len: usize, huge: Option<HugePageSize>) -> AllocError {
    // MADV_POPULATE_WRITE answers EFAULT where the touch would have been a SIGBUS, and fallocate on hugetlb answers
    // ENOSPC: both say that there is no more.
    let short = matches!(failed.errno(), libc::ENOMEM | libc::EFAULT | libc::ENOSPC);
    let unknown = matches!(failed.errno(), libc::EINVAL | libc::ENODEV | libc::ENOSYS | libc::EOPNOTSUPP);
    match huge {
        Some(size) if unknown => AllocError::Unsupported {
            what: format!(
                "huge pages of {size}: this machine offers {}; ask for one of those, or for base pages",
                offered(Path::new(HUGE_PAGES))
            ),
            source: failed.source,
        },
        Some(size) if short => {
            let ReservedPages { total, free } = reserved(Path::new(HUGE_PAGES), size);
            let wanted = len / size.alignment().bytes();
            let shortage = Shortage::HugePages { size, wanted, free, total };
            AllocError::Exhausted { shortage, source: failed.source }
        }
        None if short => out_of_memory(len, failed.source),
        _ => failed.into(),
    }
}

/// The size of a transparent huge page, or `None` if the kernel has none.
pub(crate) fn transparent_size() -> Option<Alignment> {
    number(Path::new(TRANSPARENT)).and_then(Alignment::new)
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

/// A size whose folder or numbers are missing has no pages.
fn reserved(root: &Path, size: HugePageSize) -> ReservedPages {
    let folder = root.join(format!("hugepages-{}kB", size.alignment().bytes() / 1024));
    let read = |name| number::<usize>(&folder.join(name)).unwrap_or(0);
    ReservedPages {
        total: read("nr_hugepages"),
        free: read("free_hugepages").saturating_sub(read("resv_hugepages")),
    }
}

fn offered(root: &Path) -> String {
    let mut sizes: Vec<String> = fs::read_dir(root)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_prefix("hugepages-")?.to_owned()))
        .collect();
    sizes.sort();
    if sizes.is_empty() { "none".to_owned() } else { sizes.join(", ") }
}

fn number<T: FromStr>(path: &Path) -> Option<T> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promised_pages_are_not_free() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("hugepages-2048kB");
        fs::create_dir(&folder).unwrap();
        for (name, pages) in [("nr_hugepages", "9\n"), ("free_hugepages", "7\n"), ("resv_hugepages", "5\n")] {
            fs::write(folder.join(name), pages).unwrap();
        }
        assert_eq!(reserved(root.path(), HugePageSize::Size2M), ReservedPages { total: 9, free: 2 });
        assert_eq!(reserved(root.path(), HugePageSize::Size1G), ReservedPages::default());
        assert_eq!(offered(root.path()), "2048kB");
        assert_eq!(offered(&root.path().join("absent")), "none");
    }

    #[test]
    fn more_than_the_machine_has_is_refused_before_it_is_reserved() {
        assert!(check_exists(4096).is_ok());
        let AllocError::Exhausted { shortage, .. } = check_exists(1 << 47).unwrap_err() else { panic!() };
        assert!(matches!(shortage, Shortage::Memory { wanted, .. } if wanted == 1 << 47));
    }

    #[test]
    fn populate_errors_are_translated_and_keep_their_errno() {
        for errno in [libc::EFAULT, libc::ENOMEM] {
            let failed = || Failed { call: "madvise", source: io::Error::from_raw_os_error(errno) };
            for huge in [None, Some(HugePageSize::Size2M)] {
                match refusal(failed(), 4 << 20, huge) {
                    AllocError::Exhausted { source, .. } => assert_eq!(source.raw_os_error(), Some(errno)),
                    other => panic!("{other:?}"),
                }
            }
        }
        let failed = Failed { call: "mmap", source: io::Error::from_raw_os_error(libc::EINVAL) };
        assert!(matches!(
            refusal(failed, 2 << 20, Some(HugePageSize::Size2M)),
            AllocError::Unsupported { .. }
        ));
        let failed = Failed { call: "mmap", source: io::Error::from_raw_os_error(libc::EPERM) };
        assert!(matches!(refusal(failed, 2 << 20, None), AllocError::Os { call: "mmap", .. }));
    }
}
