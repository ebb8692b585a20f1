//! A file's memory, whose every block is there before anybody touches it.
//!
//! Setting a length on a memory file system takes no memory: the blocks are charged at the first touch, and a touch
//! that finds none is a SIGBUS. So the blocks are had by fallocate, which answers with an error instead.

use crate::error::Failed;
use crate::mapping::Mapping;
use crate::{AllocError, HugePageSize, Shortage, machine};
use rustix::fs::FallocateFlags;
use rustix::process::Resource;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

/// One fallocate call. A signal makes the kernel undo the whole call, so a large one might never end.
const STEP: u64 = 256 << 20;

/// Gives `file` the length `len`, maps it, and reserves every block of it. `huge` says that it is a hugetlb file of
/// that page size, and `len` is then a multiple of it. On failure the mapping is gone; the file is the caller's.
pub(crate) fn map_reserved(
    file: BorrowedFd<'_>,
    len: usize,
    huge: Option<HugePageSize>,
) -> Result<Mapping, AllocError> {
    check_size_limit(len)?;
    let before = space(file);
    rustix::fs::ftruncate(file, len as u64).map_err(failed("ftruncate"))?;
    // Mapped first: what does not fit the address space or the huge pages is refused here, as a whole.
    let mapping = Mapping::file(file, len).map_err(|failed| machine::refusal(failed, len, huge))?;
    reserve(file, len as u64).map_err(|failed| match failed.errno() {
        libc::ENOSPC | libc::EDQUOT if huge.is_none() => {
            let (total, free) = before.unwrap_or((0, 0));
            let shortage = Shortage::FileSystem { mount: mount(file), wanted: len, free, total };
            AllocError::Exhausted { shortage, source: failed.source }
        }
        libc::EOPNOTSUPP if huge.is_none() => AllocError::Unsupported {
            what: "reserving space: the file system has no fallocate; use a memory file system".to_owned(),
            source: failed.source,
        },
        _ => machine::refusal(failed, len, huge),
    })?;
    Ok(mapping)
}

fn reserve(file: BorrowedFd<'_>, len: u64) -> Result<(), Failed> {
    let mut start = 0;
    while start < len {
        let step = STEP.min(len - start);
        match rustix::fs::fallocate(file, FallocateFlags::empty(), start, step) {
            Ok(()) => start += step,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(failed("fallocate")(errno)),
        }
    }
    Ok(())
}

/// Above RLIMIT_FSIZE the kernel does not only fail the call, it also kills the process by SIGXFSZ.
fn check_size_limit(len: usize) -> Result<(), AllocError> {
    match rustix::process::getrlimit(Resource::Fsize).current {
        Some(limit) if limit < len as u64 => Err(AllocError::Exhausted {
            shortage: Shortage::FileSize { wanted: len, limit },
            source: io::Error::from_raw_os_error(libc::EFBIG),
        }),
        _ => Ok(()),
    }
}

/// Size and free bytes of the file system that `file` is on.
fn space(file: BorrowedFd<'_>) -> Option<(u64, u64)> {
    let stat = rustix::fs::fstatvfs(file).ok()?;
    Some((stat.f_blocks.saturating_mul(stat.f_frsize), stat.f_bavail.saturating_mul(stat.f_frsize)))
}

/// Where the file system of `file` is mounted. A memfd's is mounted nowhere.
fn mount(file: BorrowedFd<'_>) -> Option<PathBuf> {
    let device = rustix::fs::fstat(file.as_fd()).ok()?.st_dev;
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    // The third word of a line is the device, the fifth the place.
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&device))?;
    line.split(' ').nth(4).map(PathBuf::from)
}

/// Names the call that an error number came from.
pub(crate) fn failed(call: &'static str) -> impl Fn(rustix::io::Errno) -> Failed {
    move |errno| Failed { call, source: errno.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::path::Path;
    use std::process::Command;

    const MOUNT: &str = "HICACHE_ALLOC_TEST_MOUNT";

    /// The test runs itself again inside a mount namespace of its own, where a small tmpfs lies on a new folder.
    #[test]
    fn b009_a_pool_larger_than_its_tmpfs_is_refused() {
        if let Some(mount) = std::env::var_os(MOUNT) {
            return on_small_tmpfs(Path::new(&mount));
        }
        let folder = tempfile::tempdir().unwrap();
        let script = "mount -t tmpfs -o size=1m tmpfs \"$1\" || { echo cannot mount; exit 77; }; exec \"$0\" --exact \
                      file::tests::b009_a_pool_larger_than_its_tmpfs_is_refused --nocapture";
        let run = Command::new("unshare")
            .args(["--mount", "sh", "-c", script])
            .arg(std::env::current_exe().unwrap())
            .arg(folder.path())
            .env(MOUNT, folder.path())
            .output();
        let output = match run {
            Err(error) => return eprintln!("skipped: no unshare: {error}"),
            Ok(output) if rustix::process::geteuid().is_root() && output.status.code() != Some(77) => output,
            Ok(output) => return eprintln!("skipped, it takes root: {output:?}"),
        };
        // A SIGBUS has no code.
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
    }

    fn on_small_tmpfs(mount: &Path) {
        let mapped = || {
            let maps = fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines().filter(|line| line.contains(&*mount.to_string_lossy())).count()
        };
        let create =
            || File::options().read(true).write(true).create_new(true).open(mount.join("pool")).unwrap();
        let file = create();
        let error = map_reserved(file.as_fd(), 4 << 20, None).unwrap_err();
        let text = error.to_string();
        for part in [&*mount.to_string_lossy(), "4194304", "1048576", "size=", "--shm-size"] {
            assert!(text.contains(part), "{text}");
        }
        let AllocError::Exhausted { shortage: Shortage::FileSystem { wanted, total, .. }, source } = error
        else {
            panic!("{error:?}");
        };
        assert_eq!((wanted, total, source.raw_os_error()), (4 << 20, 1 << 20, Some(libc::ENOSPC)));
        assert_eq!(mapped(), 0);
        drop(file);
        fs::remove_file(mount.join("pool")).unwrap();

        let file = create();
        let mapping = map_reserved(file.as_fd(), 512 << 10, None).unwrap();
        assert_eq!(mapped(), 1);
        // Somebody else takes what is left: the reserved blocks stay ours.
        let rest = fs::write(mount.join("rest"), vec![1; 1 << 20]).unwrap_err();
        assert_eq!(rest.raw_os_error(), Some(libc::ENOSPC));
        mapping.populate().unwrap();
        drop(mapping);
        assert_eq!(mapped(), 0);
    }

    #[test]
    fn what_has_no_length_is_an_error() {
        let (_reader, pipe) = std::io::pipe().unwrap();
        let error = map_reserved(pipe.as_fd(), 4096, None).unwrap_err();
        assert!(matches!(error, AllocError::Os { call: "ftruncate", .. }), "{error:?}");
    }
}
