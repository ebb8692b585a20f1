//! A writer's folder of temporary files under its lock, and the sweep of what dead writers left.
//!
//! A writer is one store opened by one process. `tmp/<id>.lock` is locked as long as it lives, `tmp/<id>/` holds
//! its temporaries. Who gets the lock of another writer knows that it is gone: locks end with their process, also
//! after kill -9, and on shared file systems with their host. A folder has a lock file as long as it exists.
//!
//! Only names that a writer makes are touched: 32 hexadecimal digits, in a real folder.

use crate::sys::Sys;
use rustix::fs::{FileType, OFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Where writers have their folders, in a store's directory.
pub(crate) const TMP: &str = "tmp";

const LOCK_SUFFIX: &str = ".lock";

/// This process's folder in one directory. Dropped, it is removed.
#[derive(Debug)]
pub(crate) struct Writer {
    sys: Sys,
    dir: OwnedFd,
    id: String,
    names: AtomicU64,
    /// Held, not used.
    _lock: OwnedFd,
}

/// What a dead writer left, under its lock.
#[derive(Debug)]
pub(crate) struct Leftover {
    id: String,
    /// It holds folders: cleared namespaces, which may have many pages.
    pub(crate) is_large: bool,
    _lock: OwnedFd,
}

impl Writer {
    /// Makes the folder of a new writer.
    pub(crate) fn create(sys: &Sys, dir: BorrowedFd<'_>) -> io::Result<Self> {
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
            let dir = dir.try_clone_to_owned()?;
            return Ok(Self { sys: sys.clone(), dir, id, names: AtomicU64::new(0), _lock: lock });
        }
    }

    /// A name that nobody has used, relative to the store's directory.
    pub(crate) fn new_name(&self) -> String {
        format!("{TMP}/{}/{}", self.id, self.names.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether the folder is still there: somebody may have removed it by hand.
    pub(crate) fn has_folder(&self) -> bool {
        self.sys.stat(self.dir.as_fd(), &format!("{TMP}/{}", self.id)).is_ok()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        remove(&self.sys, self.dir.as_fd(), &self.id);
    }
}

/// What dead writers left. What is not a writer's is not looked at.
pub(crate) fn leftovers(sys: &Sys, dir: BorrowedFd<'_>) -> io::Result<Vec<Leftover>> {
    let names = match sys.names(dir, TMP) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        names => names?,
    };
    let mut found = Vec::new();
    for id in names.iter().filter_map(|name| name.strip_suffix(LOCK_SUFFIX)).filter(|id| is_id(id)) {
        let path = format!("{TMP}/{id}{LOCK_SUFFIX}");
        let Ok(lock) = sys.open(dir, &path, OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK) else {
            continue;
        };
        let regular = sys.stat_file(&lock).is_ok_and(|stat| is_kind(stat.st_mode, FileType::RegularFile));
        if !regular || sys.lock(&lock).is_err() {
            continue;
        }
        let folder = format!("{TMP}/{id}");
        let is_folder = |name: &String| {
            let stat = sys.stat(dir, &format!("{folder}/{name}"));
            stat.is_ok_and(|stat| is_kind(stat.st_mode, FileType::Directory))
        };
        let is_large = sys.names(dir, &folder).is_ok_and(|names| names.iter().any(is_folder));
        found.push(Leftover { id: id.to_string(), is_large, _lock: lock });
    }
    Ok(found)
}

/// Removes what a dead writer left.
pub(crate) fn sweep(sys: &Sys, dir: BorrowedFd<'_>, leftover: &Leftover) {
    remove(sys, dir, &leftover.id);
}

/// The folder first, its lock last: a folder without a lock would never be found again.
fn remove(sys: &Sys, dir: BorrowedFd<'_>, id: &str) {
    let folder = format!("{TMP}/{id}");
    match sys.remove_tree(dir, &folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(folder, %error, "could not remove a writer's temporary files");
            return;
        }
        Ok(files) if files > 0 => tracing::info!(folder, files, "removed a writer's temporary files"),
        _ => (),
    }
    match sys.unlink(dir, &format!("{folder}{LOCK_SUFFIX}")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(folder, %error, "could not remove a writer's lock file");
        }
        _ => (),
    }
}

/// Whether a name is one of [`random_hex`].
pub(crate) fn is_id(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_kind(mode: u32, kind: FileType) -> bool {
    FileType::from_raw_mode(mode) == kind
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
