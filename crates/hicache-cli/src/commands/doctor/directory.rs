//! What a directory and its file system allow: files, direct I/O, space.

use super::Check;
#[cfg(feature = "file")]
use super::Folder;
use crate::report::Size;
use hicache::{Alignment, AllocError, HostPool, PageMut, RegionSpec, Strides};
use rustix::fs::{AtFlags, OFlags, StatxFlags};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes that are written to a file there: a block of any device, and one more.
const TRIED_LEN: usize = 128 << 10;

const SPACE_WANTED: u64 = 10 << 30;
const INODES_WANTED: u64 = 100_000;

/// Whether the store can be opened, as far as the directory with that `index` says.
#[cfg(feature = "file")]
pub(super) fn store(folders: &[Folder], index: usize) -> Option<Check> {
    let further: Vec<_> = folders.iter().skip(1).map(|folder| folder.path.clone()).collect();
    let looked = hicache::file::look_at(&folders.first()?.path, &further).into_iter().nth(index)?;
    let wanted = "a store, or nothing".to_owned();
    Some(match looked {
        Ok(true) => Check::new("store", true, "a store".to_owned(), wanted, String::new()),
        Ok(false) => {
            let found = "nothing; the first put makes it".to_owned();
            Check::new("store", true, found, wanted, String::new())
        }
        Err(error) => {
            let fix = error.advice().unwrap_or("name another directory with --backend").to_owned();
            Check::new("store", false, error.reason().to_owned(), wanted, fix)
        }
    })
}

/// Asks a file that nobody sees and that goes with its descriptor, and writes to it.
pub(super) fn files(folder: &Path, checks: &mut Vec<Check>) {
    let made = tempfile::tempfile_in(folder).and_then(|mut file| {
        // Room for what is tried: whether that works is another question than whether the disk is full.
        file.write_all(&vec![0; TRIED_LEN])?;
        file.sync_data()?;
        Ok(file)
    });
    let (found, fix) = match &made {
        Ok(_) => ("yes".to_owned(), String::new()),
        Err(error) => (cannot_write(error), how_to_write(folder, error)),
    };
    checks.push(Check::new("writable", made.is_ok(), found, "yes".to_owned(), fix));
    match made {
        Ok(file) => direct(folder, &file, checks),
        Err(_) => checks.extend(DIRECT_CHECKS.map(|name| {
            let (found, wanted) = ("not tried".to_owned(), "a file to try it on".to_owned());
            Check::new(name, false, found, wanted, "first what fixes the row writable".to_owned())
        })),
    }
}

/// Whether there is no room, which says nothing of what was tried.
fn is_shortage(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Why no file can be written there.
fn cannot_write(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::StorageFull => format!("the disk is full: {error}"),
        ErrorKind::QuotaExceeded => format!("this user's disk quota is used up: {error}"),
        _ => format!("no file can be made there: {error}"),
    }
}

/// What lets this user make files in a folder.
fn how_to_write(folder: &Path, error: &io::Error) -> String {
    let path = folder.display();
    match (error.kind(), folder.metadata()) {
        (ErrorKind::PermissionDenied, Ok(there)) => {
            let (owner, mode, user) =
                (there.uid(), there.mode() & 0o7777, rustix::process::geteuid().as_raw());
            let how = if owner == user { "chmod u+wx".to_owned() } else { format!("chown {user}") };
            format!(
                "{how} {path} (it belongs to user {owner} with mode {mode:o}, this is user {user}), or name another \
                 directory with --backend"
            )
        }
        (ErrorKind::ReadOnlyFilesystem, _) => {
            format!("mount the file system of {path} for writing, or name another directory with --backend")
        }
        (ErrorKind::StorageFull, _) => format!(
            "free space or inodes on the file system of {path} (see free_space and free_inodes), or name another \
             directory with --backend"
        ),
        (ErrorKind::QuotaExceeded, _) => format!(
            "remove files of user {} from the file system of {path}, have its quota raised, or name another directory \
             with --backend",
            rustix::process::geteuid().as_raw()
        ),
        _ => "name another directory with --backend".to_owned(),
    }
}

const DIRECT_CHECKS: [&str; 3] = ["o_direct", "dio_mem_align", "dio_offset_align"];

fn direct(folder: &Path, file: &File, checks: &mut Vec<Check>) {
    let told = alignments(file);
    let refused = write_direct(file, told).err();
    // Some file systems want other room for what is written again.
    let (refused, fix) = match refused {
        Some(error) if is_shortage(&error) => (Some(cannot_write(&error)), how_to_write(folder, &error)),
        refused => (
            refused.map(|error| error.to_string()),
            "use a directory on ext4, xfs or a local NVMe; until then direct=false says that it is meant"
                .to_owned(),
        ),
    };
    let [o_direct, of_memory, of_offset] = DIRECT_CHECKS;
    let found = refused.clone().unwrap_or_else(|| "works".to_owned());
    checks.push(Check::new(o_direct, refused.is_none(), found, "works".to_owned(), fix.clone()));
    let base_page = Alignment::base_page().bytes() as u32;
    let mut align = |name: &'static str, value: Option<u32>| {
        let ok = refused.is_none() && value.is_none_or(|value| (1..=base_page).contains(&value));
        let found = match (refused.is_some(), value) {
            (true, _) => "none".to_owned(),
            (false, None) => "not told by this kernel (before 6.1) or file system".to_owned(),
            (false, Some(value)) => value.to_string(),
        };
        checks.push(Check::new(name, ok, found, format!("at most {base_page}"), fix.clone()));
    };
    align(of_memory, told.map(|(memory, _)| memory));
    align(of_offset, told.map(|(_, offset)| offset));
}

/// What direct transfers must be aligned to, of memory and in the file, where the kernel tells.
fn alignments(file: &File) -> Option<(u32, u32)> {
    let told = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let known = told.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    known.then_some((told.stx_dio_mem_align, told.stx_dio_offset_align))
}

/// One direct write: file systems say yes to the flag and no to the write.
fn write_direct(file: &File, told: Option<(u32, u32)>) -> io::Result<()> {
    if matches!(told, Some((0, _) | (_, 0))) {
        return Err(io::Error::other("not supported by the file system"));
    }
    let refused = |error: rustix::io::Errno| match io::Error::from(error) {
        error if is_shortage(&error) => error,
        error => io::Error::other(format!("refused: {error}")),
    };
    rustix::fs::fcntl_setfl(file, OFlags::DIRECT).map_err(refused)?;
    let base_page = Alignment::base_page();
    let len = base_page.bytes().max(told.map_or(0, |(_, offset)| offset as usize));
    let page = || -> Result<PageMut, AllocError> {
        let strides = Strides::new(1, 1, len, base_page)?;
        let pool = HostPool::new(RegionSpec { len, ..RegionSpec::default() }.map()?, strides, &[])?;
        Ok(pool.alloc(1).expect("the pool is new and has one slot").remove(0))
    };
    let page = page().map_err(io::Error::other)?;
    let bytes = page.bytes(0).expect("the memory is private");
    match rustix::io::pwrite(file, bytes, 0).map_err(refused)? {
        written if written == len => Ok(()),
        written => Err(io::Error::other(format!("{written} of {len} bytes were written"))),
    }
}

/// Of the file system that holds the folder.
pub(super) fn space(folder: &Path, checks: &mut Vec<Check>) {
    let told = rustix::fs::statvfs(folder);
    let mut check =
        |name: &'static str, found: Result<u64, String>, wanted: u64, show: fn(u64) -> String, fix: &str| {
            let ok = found.as_ref().is_ok_and(|found| *found >= wanted);
            let found = found.map_or_else(|error| error, show);
            checks.push(Check::new(name, ok, found, format!("{} or more", show(wanted)), fix.to_owned()));
        };
    let bytes = |len| Size(len).to_string();
    let free = told.as_ref().map(|told| told.f_bavail * told.f_frsize).map_err(ToString::to_string);
    check("free_space", free, SPACE_WANTED, bytes, "free space there, or use a larger file system");
    // A file system that counts none has no limit.
    let inodes = told.as_ref().map(|told| if told.f_files == 0 { u64::MAX } else { told.f_favail });
    let plain = |count: u64| if count == u64::MAX { "no limit".to_owned() } else { count.to_string() };
    let fix = "remove files, or make the file system with more inodes";
    check("free_inodes", inodes.map_err(ToString::to_string), INODES_WANTED, plain, fix);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_a_quota_that_is_used_up_are_told_apart_each_with_its_cure() {
        let folder = Path::new("/kv");
        let of = |errno: rustix::io::Errno| {
            let error = io::Error::from(errno);
            (cannot_write(&error), how_to_write(folder, &error))
        };
        let (found, fix) = of(rustix::io::Errno::NOSPC);
        assert!(found.starts_with("the disk is full: ") && fix.contains("free space"), "{found} {fix}");
        let (found, fix) = of(rustix::io::Errno::DQUOT);
        assert!(found.contains("quota is used up") && fix.contains("quota raised"), "{found} {fix}");
        let (found, fix) = of(rustix::io::Errno::IO);
        assert!(found.starts_with("no file can be made there: ") && !fix.contains("space"), "{found} {fix}");
    }
}
