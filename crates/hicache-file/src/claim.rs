//! Whose directory it is: reading the marker that says so, and making it.

use crate::draft::is_unsupported;
use crate::probe;
use crate::record::{MARKER, Marker};
use crate::root::{fail_at, unopened};
use crate::sys::{Sys, WriteFrom};
use crate::writer::{is_id, random_hex};
use hicache_core::{Alignment, Error, ErrorKind, Result};
use rustix::fs::OFlags;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

/// Block of new stores, in bytes: the largest sector of devices in the field. A device that wants more gets more.
const BLOCK_MIN: usize = 4096;

/// The marker, `None` in an empty directory. What has no marker of ours is refused untouched.
pub(crate) fn read_marker(sys: &Sys, path: &Path, dir: BorrowedFd<'_>) -> Result<Option<Marker>> {
    let foreign =
        |why: String| Error::new(ErrorKind::Incompatible, "open store").why(why).with("path", path.display());
    let unusable = |why: &str| {
        foreign(format!("its marker {MARKER} cannot be used: {why}")).fix(
            "nothing in it was touched; empty it if all in it was a store of this version's, whose pages are then \
             stored anew, or name an empty or a new directory",
        )
    };
    let read = || match sys.read_small(dir, MARKER) {
        Ok(bytes) => Marker::decode(&String::from_utf8_lossy(&bytes)).map(Some).map_err(|why| unusable(&why)),
        Err(error) => match (error.kind(), error.raw_os_error()) {
            (io::ErrorKind::NotFound, _) => Ok(None),
            (io::ErrorKind::InvalidData, _) | (_, Some(libc::ELOOP)) => {
                Err(unusable("it is no small regular file"))
            }
            _ => Err(fail_at(sys, path, error)),
        },
    };
    if let Some(marker) = read()? {
        return Ok(Some(marker));
    }
    let names = sys.names(dir, ".").map_err(|error| fail_at(sys, path, error))?;
    // A fresh ext4 has lost+found; a process killed while it made the marker leaves the marker's draft.
    match names.iter().find(|name| *name != "lost+found" && !is_draft(name)) {
        None => Ok(None),
        // Another process may have made the store since we looked for its marker.
        Some(name) => match read()? {
            Some(marker) => Ok(Some(marker)),
            None => Err(foreign(format!("the directory is not empty ({name}, for one) and holds no store"))
                .fix("nothing in it was touched; name an empty or a new directory")),
        },
    }
}

/// Makes a directory a store. The marker comes first, whole, and only once, whoever else opens it now.
pub(crate) fn make_marker(sys: &Sys, path: &Path, dir: BorrowedFd<'_>) -> Result<Marker> {
    let fail = |error| fail_at(sys, path, error);
    let block = probe::block_of(sys, dir).max(BLOCK_MIN);
    let marker = Marker { id: random_hex().map_err(fail)?, block };
    let written = match sys.open(dir, ".", OFlags::TMPFILE | OFlags::RDWR) {
        Ok(file) => write_marker(sys, &file, &marker).and_then(|()| sys.link(&file, dir, MARKER)),
        Err(error) => Err(error),
    };
    let written = match written {
        Err(error) if is_unsupported(&error) => make_marker_named(sys, dir, &marker),
        written => written,
    };
    match written {
        // Another process was faster, or swept our draft since its marker was there.
        Err(error) if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => (),
        Err(error) => return Err(fail(error)),
        Ok(()) => (),
    }
    read_marker(sys, path, dir)?.ok_or_else(|| unopened(path, "the marker just written cannot be read"))
}

/// For file systems without unnamed files.
fn make_marker_named(sys: &Sys, dir: BorrowedFd<'_>, marker: &Marker) -> io::Result<()> {
    let draft = draft_of(&marker.id);
    let file = sys.open(dir, &draft, OFlags::CREATE | OFlags::EXCL | OFlags::RDWR)?;
    // Held until the draft is gone: an unlocked one is a dead writer's.
    let locked = sys.lock(&file);
    let named = locked.and_then(|()| write_marker(sys, &file, marker)).and_then(|()| {
        match sys.rename(dir, &draft, MARKER) {
            Err(error) if is_unsupported(&error) => sys.link_name(dir, &draft, MARKER),
            renamed => renamed,
        }
    });
    // Gone already where it was renamed.
    let _ = sys.unlink(dir, &draft);
    named
}

fn write_marker(sys: &Sys, file: &OwnedFd, marker: &Marker) -> io::Result<()> {
    let text = marker.encode();
    sys.check_file_len(text.len())?;
    sys.write(file, WriteFrom::slice(text.as_bytes()), 0, Alignment::NONE)?;
    sys.sync(file)
}

/// Removes drafts of the marker whose writers were killed.
pub(crate) fn sweep_drafts(sys: &Sys, dir: BorrowedFd<'_>) {
    let names = sys.names(dir, ".").unwrap_or_default();
    for draft in names.iter().filter(|name| is_draft(name)) {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        if sys.open(dir, draft, flags).and_then(|file| sys.lock(&file)).is_ok() {
            let _ = sys.unlink(dir, draft);
        }
    }
}

fn draft_of(id: &str) -> String {
    format!(".{MARKER}.{id}")
}

fn is_draft(name: &str) -> bool {
    name.strip_prefix(&draft_of("")).is_some_and(is_id)
}
