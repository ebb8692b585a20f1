//! Files dropped from the kernel's page cache, so that what reads them next reads the device.

use rustix::fs::{Advice, fadvise, syncfs};
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Writes out what waits to be written on the file system of `folder`, then drops every file below it from the cache.
/// How many files.
pub(crate) fn drop_files(folder: &Path) -> io::Result<u64> {
    syncfs(File::open(folder)?)?;
    drop_below(folder)
}

fn drop_below(folder: &Path) -> io::Result<u64> {
    let mut files = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            files += drop_below(&entry.path())?;
        } else if kind.is_file() {
            fadvise(File::open(entry.path())?, 0, None, Advice::DontNeed)?;
            files += 1;
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_below_is_dropped_and_stays_whole() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("inner")).unwrap();
        for name in ["one", "inner/two"] {
            fs::write(folder.path().join(name), [7; 10_000]).unwrap();
        }
        assert_eq!(drop_files(folder.path()).unwrap(), 2);
        assert_eq!(fs::read(folder.path().join("inner/two")).unwrap(), [7; 10_000]);
    }
}
