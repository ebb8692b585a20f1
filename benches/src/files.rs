//! One plain file a page, in one directory, past the page cache.

use hicache_alloc::PageMut;
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A directory of pages, each named by its number.
#[derive(Debug)]
pub(crate) struct Files(OwnedFd);

impl Files {
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        Ok(Self(OwnedFd::from(File::open(dir)?)))
    }

    /// Creates, writes, closes, renames.
    pub(crate) fn write(&self, number: u64, page: &mut PageMut) -> io::Result<()> {
        let name = name(number);
        let temporary = format!(".{name}.tmp");
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let file = File::from(openat(&self.0, &temporary, flags, Mode::from_raw_mode(0o644))?);
        file.write_all_at(bytes(page)?, 0)?;
        drop(file);
        renameat(&self.0, &temporary, &self.0, &name)?;
        Ok(())
    }

    /// Opens, reads, closes.
    pub(crate) fn read(&self, number: u64, page: &mut PageMut) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let file = File::from(openat(&self.0, name(number), flags, Mode::empty())?);
        file.read_exact_at(bytes(page)?, 0)
    }

    pub(crate) fn remove(&self, number: u64) -> io::Result<()> {
        Ok(unlinkat(&self.0, name(number), AtFlags::empty())?)
    }

    pub(crate) fn exists(&self, number: u64) -> io::Result<bool> {
        match statat(&self.0, name(number), AtFlags::empty()) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

fn bytes(page: &mut PageMut) -> io::Result<&mut [u8]> {
    page.bytes_mut(0).ok_or_else(|| io::Error::other("the memory is not private"))
}

/// 64 digits, spread as those of content hashes are.
fn name(number: u64) -> String {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    format!("{:016x}{:016x}{:016x}{number:016x}", mixed ^ (mixed >> 31), !mixed, mixed.rotate_left(17))
}
