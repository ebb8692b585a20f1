//! Folders of temporary stores, each under its lock, and the sweep of those that killed runs left.

use crate::failure::{Failure, Result};
use crate::interrupt::{Interrupt, Leftover};
use crate::output;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::fs::{create_dir, create_dir_all};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// How their names begin.
const PREFIX: &str = "hicache-temporary-";
/// How often a fresh folder is made anew that a sweep took before it was locked.
const TRIES_MAX: usize = 8;

/// A folder that is removed on drop. As long as it lives, it is locked: one that is not was left by a run that was
/// killed, since locks end with their process.
#[derive(Debug)]
pub(crate) struct Temporary {
    /// None once it is being dropped.
    folder: Option<TempDir>,
    // Let go of after the folder is removed. None where the file system has no locks on folders: nor are there sweeps.
    _lock: Option<OwnedFd>,
    _left: Leftover,
    // Dropped last: it lies in them.
    made: MadeFolders,
}

/// Folders that were made for it to lie in, the deepest first. On drop those that are empty are removed.
#[derive(Debug, Default)]
struct MadeFolders(Vec<PathBuf>);

impl Temporary {
    /// A fresh one in `parent`, which is made if it is not there, once what killed runs left there is removed.
    pub(crate) fn in_folder(parent: &Path, interrupt: &Interrupt) -> Result<Self> {
        let failed = || Failure::file(format!("make a folder in {}", parent.display()));
        let made = MadeFolders::down_to(parent).map_err(failed())?;
        sweep(parent);
        for _ in 0..TRIES_MAX {
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent).map_err(failed())?;
            let place = folder.path().display();
            let left = interrupt
                .leaves(format!("the temporary store {place} is left: `rm -r '{place}'` removes it"));
            match lock(folder.path()) {
                Ok(lock) => return Ok(Self { folder: Some(folder), _lock: lock, _left: left, made }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => (),
                Err(error) => return Err(failed()(error)),
            }
        }
        Err(failed()(io::Error::other("sweeps of other runs take it each time")))
    }

    /// Takes the place of `old` beside it, which is dropped.
    pub(crate) fn replace(mut self, old: &mut Self) {
        self.made = std::mem::take(&mut old.made);
        *old = self;
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.folder.as_ref().expect("it is there until the drop").path()
    }
}

impl MadeFolders {
    fn down_to(folder: &Path) -> io::Result<Self> {
        let missing =
            folder.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
        let missing: Vec<&Path> = missing.collect();
        let mut made = Self::default();
        for folder in missing.into_iter().rev() {
            match create_dir(folder) {
                Ok(()) => made.0.insert(0, folder.to_owned()),
                // Another run has made it meanwhile, or the path has it twice (`new/../new`).
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
                Err(error) => return Err(error),
            }
        }
        Ok(made)
    }
}

impl Drop for MadeFolders {
    fn drop(&mut self) {
        for folder in &self.0 {
            // By now others may have put something there.
            if std::fs::remove_dir(folder).is_err() {
                return;
            }
        }
    }
}

/// What cannot be removed is told: it may be as large as a disk.
impl Drop for Temporary {
    fn drop(&mut self) {
        let Some(folder) = self.folder.take() else { return };
        let path = folder.path().to_owned();
        match folder.close() {
            Err(error) if error.kind() != io::ErrorKind::NotFound => output::note(format_args!(
                "note: the temporary store {} could not be removed ({error}); remove it by hand",
                path.display()
            )),
            _ => (),
        }
    }
}

/// The lock of a fresh folder; `None` where folders cannot be locked. "Not found" when a sweep was quicker.
fn lock(folder: &Path) -> io::Result<Option<OwnedFd>> {
    let opened = rustix::fs::open(folder, FOLDER, Mode::empty())?;
    match rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::NotFound.into()),
        Err(_) => Ok(None),
        // The sweep may have begun and ended between the two.
        Ok(()) => rustix::fs::stat(folder).map(|_| Some(opened)).map_err(io::Error::from),
    }
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Removes this user's temporary stores in `parent` that no process holds.
fn sweep(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    let ours = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(PREFIX.as_bytes());
    for entry in entries.flatten().filter(|entry| ours(&entry.file_name())) {
        let path = entry.path();
        let Ok(opened) = rustix::fs::open(&path, FOLDER, Mode::empty()) else { continue };
        let free = rustix::fs::fstat(opened.as_fd())
            .is_ok_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw())
            && rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive).is_ok();
        if free {
            tracing::warn!(path = %path.display(), "removing the temporary store of a run that was killed");
            if let Err(error) = std::fs::remove_dir_all(&path) {
                tracing::warn!(path = %path.display(), %error, "it could not be removed");
            }
        }
    }
}

/// Whether a folder is there or can be made, and its files are not kept in memory (tmpfs, ramfs).
pub(crate) fn is_on_disk(folder: &Path) -> bool {
    const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
    // The field's width differs between architectures.
    create_dir_all(folder).is_ok()
        && !rustix::fs::statfs(folder).is_ok_and(|stat| IN_MEMORY.contains(&(stat.f_type as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_a_sweep_took_before_it_was_locked_is_not_used() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("hicache-temporary-x");
        std::fs::create_dir(&folder).unwrap();
        let held = lock(&folder).unwrap();
        assert!(held.is_some());
        // A sweep holds it.
        assert_eq!(lock(&folder).unwrap_err().kind(), io::ErrorKind::NotFound);
        sweep(parent.path());
        assert!(folder.exists());
        drop(held);
        sweep(parent.path());
        assert!(!folder.exists());
        assert_eq!(lock(&folder).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_link_of_such_a_name_is_not_followed_by_a_sweep() {
        let parent = tempfile::tempdir().unwrap();
        let precious = parent.path().join("precious");
        std::fs::create_dir(&precious).unwrap();
        std::os::unix::fs::symlink(&precious, parent.path().join("hicache-temporary-x")).unwrap();
        sweep(parent.path());
        assert!(precious.exists());
    }
}
