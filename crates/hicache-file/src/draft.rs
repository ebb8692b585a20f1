//! A file that nobody sees until it is whole.

use crate::root::Root;
use rustix::fs::OFlags;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// A file under way. Dropped before it is published, it leaves nothing.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    root: &'a Root,
    file: OwnedFd,
    /// Its temporary name, where the file system has no unnamed files.
    name: Option<String>,
}

/// What came of publishing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Published {
    /// It has its name.
    Done,
    /// Somebody has that name already; the draft is gone.
    Taken,
}

impl<'a> Draft<'a> {
    /// A new file for a name in `folder`, with `flags` (O_DIRECT or nothing).
    pub(crate) fn create(root: &'a Root, folder: &str, flags: OFlags) -> io::Result<Self> {
        let flags = flags | OFlags::RDWR;
        if root.has_unnamed() {
            match root.sys().open(root.dir(), folder, flags | OFlags::TMPFILE) {
                Ok(file) => return Ok(Self { root, file, name: None }),
                // Should the same be refused for a file with a name, it is the flags that are refused.
                Err(error) if is_unsupported(&error) => {
                    let draft = Self::create_named(root, flags)?;
                    root.give_up_unnamed(&error);
                    return Ok(draft);
                }
                Err(error) => return Err(error),
            }
        }
        Self::create_named(root, flags)
    }

    fn create_named(root: &'a Root, flags: OFlags) -> io::Result<Self> {
        let name = root.temporary_name()?;
        let file = root.sys().open(root.dir(), &name, flags | OFlags::CREATE | OFlags::EXCL)?;
        Ok(Self { root, file, name: Some(name) })
    }

    /// The file, to write.
    pub(crate) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Gives it the name `path`, unless somebody has it.
    pub(crate) fn publish(mut self, path: &str) -> io::Result<Published> {
        let published = match &self.name {
            None => self.root.sys().link(&self.file, self.root.dir(), path),
            Some(name) => publish_named(self.root, name, path),
        };
        match published {
            Ok(()) => {
                self.name = None;
                Ok(Published::Done)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Published::Taken),
            Err(error) => Err(error),
        }
    }
}

/// Renames without replacing, or links and unlinks where the file system cannot do that in one step.
fn publish_named(root: &Root, name: &str, path: &str) -> io::Result<()> {
    match root.sys().rename(root.dir(), name, path) {
        Err(error) if is_unsupported(&error) => (),
        renamed => return renamed,
    }
    root.sys().link_name(root.dir(), name, path)?;
    root.sys().unlink(root.dir(), name)
}

/// Whether the file system says that it has no such operation.
pub(crate) fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL | libc::ENOSYS))
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name
            && let Err(error) = self.root.sys().unlink(self.root.dir().as_fd(), name)
        {
            tracing::warn!(name, %error, "could not remove a temporary file; the next open will");
        }
    }
}
