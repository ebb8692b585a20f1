//! A file in a shared memory file system, for machines that refuse memfds. It never has a name for longer than a call.

use crate::error::Failed;
use crate::file::failed;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Names that are tried where a file cannot do without one.
const ATTEMPTS: u32 = 64;

/// An empty file in `folder` that is closed on exec and has no name, so that it ends with its last user.
pub(crate) fn create(folder: &Path) -> Result<OwnedFd, Failed> {
    let open = |path: &Path, flags: OFlags| {
        let flags = flags | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)
    };
    let file = match open(folder, OFlags::TMPFILE) {
        // A kernel or a file system without unnamed files.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            unlinked(folder, |path| open(path, OFlags::CREATE))
        }
        made => made,
    };
    let file = file.map_err(failed("open"))?;
    check_memory(&file)?;
    Ok(file)
}

fn unlinked(folder: &Path, create: impl Fn(&Path) -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    for attempt in 0..ATTEMPTS {
        let path = folder.join(format!(".hicache-{}-{attempt}", std::process::id()));
        match create(&path) {
            Err(Errno::EXIST) => {}
            made => {
                let file = made?;
                rustix::fs::unlink(&path)?;
                return Ok(file);
            }
        }
    }
    Err(Errno::EXIST)
}

/// On a disk, the kernel would write the pages back as it pleases.
fn check_memory(file: &OwnedFd) -> Result<(), Failed> {
    let stat = rustix::fs::fstatfs(file).map_err(failed("fstatfs"))?;
    // The field widths differ between architectures.
    #[allow(clippy::unnecessary_cast)]
    if stat.f_type as i64 == libc::TMPFS_MAGIC as i64 {
        return Ok(());
    }
    Err(Failed { call: "fstatfs", source: io::Error::other("it is no memory file system (tmpfs)") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const SHM: &str = "/dev/shm";

    #[test]
    fn a_file_that_needs_a_name_loses_it_at_once() {
        let folder = tempfile::tempdir_in(SHM).unwrap();
        let create = |path: &Path| {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
            rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)
        };
        // Somebody with our number left names behind.
        for attempt in 0..3 {
            fs::write(folder.path().join(format!(".hicache-{}-{attempt}", std::process::id())), "").unwrap();
        }
        let file = unlinked(folder.path(), create).unwrap();
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_nlink, 0);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_file_has_no_name_and_its_folder_is_on_memory() {
        let folder = tempfile::tempdir_in(SHM).unwrap();
        let file = create(folder.path()).unwrap();
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_nlink, 0);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let error = create(Path::new("/proc/self/no-such-folder")).unwrap_err();
        assert_eq!(error.call, "open");
    }
}
