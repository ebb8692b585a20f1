//! A writer's folder of temporary files under its lock, and the sweep of what dead writers left.
//!
//! A writer is one store opened by one process. `tmp/<id>.lock` is locked as long as it lives, `tmp/<id>/` holds
//! its temporaries. Who gets the lock of another writer knows that it is gone: locks end with their process, also
//! after kill -9, and on shared file systems with their host. A folder has a lock file as long as it exists.

use crate::sys::Sys;
use rustix::fs::OFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Where writers have their folders, in a store's directory.
pub(crate) const TMP: &str = "tmp";

const LOCK_SUFFIX: &str = ".lock";

/// This process's folder in one directory. Dropped, it is removed.
#[derive(Debug)]
pub(crate) struct Writer {
    store: PathBuf,
    id: String,
    names: AtomicU64,
    /// Held, not used.
    _lock: OwnedFd,
}

impl Writer {
    /// Makes the folder of a new writer.
    pub(crate) fn create(sys: &Sys, store: &Path, dir: BorrowedFd<'_>) -> io::Result<Self> {
        match sys.make_dir(dir, TMP) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => (),
        }
        loop {
            let id = random_hex()?;
            let lock_path = format!("{TMP}/{id}{LOCK_SUFFIX}");
            let lock = sys.open(dir, &lock_path, OFlags::CREATE | OFlags::EXCL | OFlags::RDWR)?;
            let locked = sys.lock(&lock).and_then(|()| sys.stat_file(&lock));
            match locked {
                // A sweep may have taken the file for a dead writer's between its making and its locking.
                Ok(stat) if stat.st_nlink == 0 => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => {
                    let _ = sys.unlink(dir, &lock_path);
                    return Err(error);
                }
                Ok(_) => (),
            }
            if let Err(error) = sys.make_dir(dir, &format!("{TMP}/{id}")) {
                let _ = sys.unlink(dir, &lock_path);
                return Err(error);
            }
            return Ok(Self { store: store.to_path_buf(), id, names: AtomicU64::new(0), _lock: lock });
        }
    }

    /// A name that nobody has used, relative to the store's directory.
    pub(crate) fn new_name(&self) -> String {
        format!("{TMP}/{}/{}", self.id, self.names.fetch_add(1, Ordering::Relaxed))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let tmp = self.store.join(TMP);
        remove_writer(&tmp, &self.id);
    }
}

/// Removes what dead writers left. Returns how many files and folders.
pub(crate) fn sweep(sys: &Sys, store: &Path) -> io::Result<u64> {
    let tmp = store.join(TMP);
    let entries = match std::fs::read_dir(&tmp) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let mut swept = 0;
    for entry in entries {
        let name = entry?.file_name();
        let Some(id) = name.to_str().and_then(|name| name.strip_suffix(LOCK_SUFFIX)) else { continue };
        let flags = OFlags::RDWR | OFlags::NOFOLLOW;
        let Ok(lock) = sys.open(rustix::fs::CWD.as_fd(), &tmp.join(&name).to_string_lossy(), flags) else {
            continue;
        };
        if sys.lock(&lock).is_ok() {
            swept += remove_writer(&tmp, id);
        }
    }
    Ok(swept)
}

/// The folder first, its lock last: a folder without a lock would never be found again.
fn remove_writer(tmp: &Path, id: &str) -> u64 {
    let folder = tmp.join(id);
    let left = std::fs::read_dir(&folder).map_or(0, |entries| entries.count() as u64);
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(folder = %folder.display(), %error, "could not remove a writer's temporary files");
            return 0;
        }
        _ => (),
    }
    if let Err(error) = std::fs::remove_file(tmp.join(format!("{id}{LOCK_SUFFIX}"))) {
        tracing::warn!(folder = %folder.display(), %error, "could not remove a writer's lock file");
    }
    left
}

/// 32 random hexadecimal digits.
pub(crate) fn random_hex() -> io::Result<String> {
    let mut bytes = [0u8; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
