//! The folders of a namespace, and the record that must stand in them before any page does.

use crate::options::Durability;
use crate::page_file::{ATTEMPTS_MAX, PageFiles};
use crate::record;
use crate::root::{BAD, NAMESPACES, namespace_folder, page_folder};
use crate::standing::is_absence;
use hicache_core::{PageKey, Result};
use rustix::fs::FileType;
use std::io;
use std::sync::atomic::Ordering;

impl PageFiles<'_> {
    /// Makes the folders of a key, and the namespace's record before any page of it.
    pub(crate) fn make_folders(&self, key: &PageKey) -> io::Result<()> {
        let digest = self.namespace.digest();
        self.make_folder(NAMESPACES, ".")?;
        let folder = namespace_folder(digest);
        self.make_folder(&folder, NAMESPACES)?;
        if let Err(error) = self.record_namespace(&folder) {
            // No folder without a record is left, if it is empty.
            let _ = self.root.sys().remove_dir(self.root.dir(), &folder);
            return Err(error);
        }
        self.make_folder(&page_folder(digest, key), &folder)
    }

    fn make_folder(&self, folder: &str, parent: &str) -> io::Result<()> {
        match self.root.sys().make_dir(self.root.dir(), folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.check_folder(folder),
            Err(error) => Err(error),
            Ok(()) if self.durability == Durability::Sync => {
                self.root.sys().sync_dir(self.root.dir(), parent)
            }
            Ok(()) => Ok(()),
        }
    }

    /// What stands there already must not lead out of the store.
    fn check_folder(&self, folder: &str) -> io::Result<()> {
        let stat = self.root.sys().stat(self.root.dir(), folder)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Ok(()),
            FileType::Symlink => Err(io::Error::from_raw_os_error(libc::ELOOP)),
            _ => Err(io::Error::from_raw_os_error(libc::ENOTDIR)),
        }
    }

    /// Whether the pages here have the layout that this backend was opened with: another may have made the record
    /// since. Without a record there is nothing to mix up; a damaged one is for the next set.
    pub(crate) fn check_record(&self) -> Result<()> {
        if self.recorded.load(Ordering::Acquire) {
            return Ok(());
        }
        let digest = self.namespace.digest();
        match self.root.read_namespace(digest) {
            Ok(Ok(held)) => {
                held.check_layout(self.namespace)?;
                self.recorded.store(true, Ordering::Release);
                Ok(())
            }
            Ok(Err(_)) => Ok(()),
            Err(error) if is_absence(&error) => Ok(()),
            Err(error) => Err(self.root.failed("open namespace", &namespace_folder(digest), error)),
        }
    }

    /// Makes the record, or checks the one that is there.
    fn record_namespace(&self, folder: &str) -> io::Result<()> {
        let path = format!("{folder}/{}", record::NAMESPACE);
        let text = self.namespace.to_record();
        for _ in 0..ATTEMPTS_MAX {
            match self.root.read_namespace(self.namespace.digest()) {
                Ok(Ok(held)) => return held.check_layout(self.namespace).map_err(io::Error::other),
                Ok(Err(why)) => {
                    tracing::warn!(path, why, "a namespace's record is damaged; it is made anew");
                    self.root.sys().rename_to_own(self.root.dir(), &path, &format!("{path}{BAD}record"))?;
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => (),
                Err(error) => return Err(error),
            }
            // Taken: another writer was faster; its record is to be checked.
            self.root.publish_text(folder, &path, &text)?;
        }
        Err(io::Error::other("others keep changing the namespace's record"))
    }
}
