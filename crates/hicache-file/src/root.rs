//! One directory of a store: whose it is, what it can do, and where things lie in it.
//!
//! ```text
//! hicache.store                                   the marker: this is a store
//! ns/<namespace digest>/namespace                 the record: name, digest, layout
//! ns/<namespace digest>/<2 digits>/<key>          a page, in one of 256 folders
//! ns/<namespace digest>/<2 digits>/<key>.bad-<n>  a page that failed its check, set aside
//! tmp/<writer>.lock, tmp/<writer>/                temporaries of one writer
//! ```
//!
//! Names are digests, so that they fit NAME_MAX whatever the model is called.

use crate::draft::{Draft, Published, is_unsupported};
use crate::fail::io_error;
use crate::options::FileOptions;
use crate::probe::{self, Probe};
use crate::record::{self, MARKER, Marker};
use crate::sys::{Sys, WriteFrom};
use crate::writer::{Writer, random_hex, sweep};
use hicache_core::{Alignment, Digest, Error, ErrorKind, Fallback, Namespace, PageKey, Result};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Where namespaces have their folders.
pub(crate) const NAMESPACES: &str = "ns";

/// What follows a page's key once it failed its check.
pub(crate) const BAD: &str = ".bad-";

/// Block of new stores, in bytes: the largest sector of devices in the field. A device that wants more gets more.
const BLOCK_MIN: usize = 4096;

/// One directory, open.
#[derive(Debug)]
pub(crate) struct Root {
    sys: Sys,
    path: PathBuf,
    dir: OwnedFd,
    marker: Marker,
    probe: Probe,
    direct: AtomicBool,
    unnamed: AtomicBool,
    fallbacks: Mutex<Vec<Fallback>>,
    writer: Mutex<Option<Writer>>,
}

impl Root {
    /// Opens the store in `path`, or makes one where there is nothing yet.
    pub(crate) fn open(sys: Sys, path: &Path, options: &FileOptions) -> Result<Self> {
        let path = std::path::absolute(path)
            .map_err(|error| unopened(path, "its path is not valid").because(error))?;
        if !options.existing {
            std::fs::create_dir_all(&path).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => {
                    unopened(&path, "there is a file where a directory should be")
                }
                _ => fail_at(&sys, &path, error),
            })?;
        }
        let dir = open_dir(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => unopened(&path, "there is no such directory")
                .fix("check the path; a put, or a replay with --backend, makes a new store"),
            _ => fail_at(&sys, &path, error),
        })?;
        let marker = match read_marker(&path)? {
            Some(marker) => marker,
            None if options.existing => {
                return Err(
                    unopened(&path, "it holds no store").fix("a put, or a replay with --backend, makes one")
                );
            }
            None => make_marker(&sys, &path, dir.as_fd())?,
        };
        let mut probe = probe::look(&sys, &path, dir.as_fd(), &marker, options)?;
        let root = Self {
            sys,
            path,
            dir,
            direct: AtomicBool::new(probe.alignment.is_some()),
            unnamed: AtomicBool::new(probe.unnamed),
            fallbacks: Mutex::default(),
            writer: Mutex::new(probe.writer.take()),
            marker,
            probe,
        };
        root.probe.fallbacks.iter().for_each(|fallback| root.tell(fallback.clone()));
        if root.probe.writable {
            match sweep(&root.sys, &root.path) {
                Ok(0) => (),
                Ok(swept) => {
                    tracing::info!(path = %root.path.display(), swept, "removed what dead writers left")
                }
                Err(error) => {
                    tracing::warn!(path = %root.path.display(), %error, "could not look for leftovers")
                }
            }
        }
        Ok(root)
    }

    pub(crate) fn sys(&self) -> &Sys {
        &self.sys
    }

    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// How much `key` belongs here: as random as the directory's identity and the key are.
    pub(crate) fn score(&self, key: &PageKey) -> u64 {
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
        self.marker
            .id
            .as_bytes()
            .chunks_exact(8)
            .fold(word(key.as_bytes()), |score, part| mix(score ^ word(part)))
    }

    /// Random, and the directory's own wherever it is mounted.
    pub(crate) fn id(&self) -> &str {
        &self.marker.id
    }

    /// Block of its page files.
    pub(crate) fn block(&self) -> Alignment {
        Alignment::new(self.marker.block).expect("a marker with another block is refused")
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.probe.writable
    }

    /// What each transfer must be aligned to; `None`: pages go through the page cache, and nothing need be.
    pub(crate) fn direct(&self) -> Option<Alignment> {
        self.probe.alignment.filter(|_| self.direct.load(Ordering::Relaxed))
    }

    /// Goes on through the page cache, since the file system refuses direct transfers that are aligned; unless
    /// direct I/O is required.
    pub(crate) fn give_up_direct(&self, error: &io::Error) -> bool {
        if self.probe.required {
            return false;
        }
        if self.direct.swap(false, Ordering::Relaxed) {
            self.tell(Fallback {
                what: "direct",
                why: format!(
                    "{}: refuses an aligned transfer ({error}); buffered from now on",
                    self.path.display()
                ),
            });
        }
        true
    }

    pub(crate) fn has_unnamed(&self) -> bool {
        self.unnamed.load(Ordering::Relaxed)
    }

    pub(crate) fn give_up_unnamed(&self, error: &io::Error) {
        if self.unnamed.swap(false, Ordering::Relaxed) {
            self.tell(probe::no_unnamed(&self.path, error));
        }
    }

    pub(crate) fn fallbacks(&self) -> Vec<Fallback> {
        self.fallbacks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn tell(&self, fallback: Fallback) {
        tracing::warn!(what = fallback.what, why = fallback.why, "fallback");
        self.fallbacks.lock().unwrap_or_else(PoisonError::into_inner).push(fallback);
    }

    /// A new name among this writer's temporaries.
    pub(crate) fn temporary_name(&self) -> io::Result<String> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.is_none() {
            *writer = Some(Writer::create(&self.sys, &self.path, self.dir())?);
        }
        Ok(writer.as_ref().map(Writer::new_name).expect("made above"))
    }

    /// Removes this writer's temporaries and lets go of its lock.
    pub(crate) fn release(&self) {
        drop(self.writer.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// What `operation` at `place` met.
    pub(crate) fn failed(&self, operation: &'static str, place: &str, error: io::Error) -> Error {
        match error.downcast::<Error>() {
            Ok(error) => error,
            Err(error) => io_error(&self.sys, self.dir(), operation, &self.path.join(place), error),
        }
    }

    /// Publishes a small file.
    pub(crate) fn publish_text(&self, folder: &str, path: &str, text: &str) -> io::Result<Published> {
        let draft = Draft::create(self, folder, OFlags::empty())?;
        self.sys.write(draft.file(), WriteFrom::slice(text.as_bytes()), 0, Alignment::NONE)?;
        draft.publish(path)
    }

    /// The record of a namespace, if it has a sound one here.
    pub(crate) fn read_namespace(
        &self,
        digest: Digest,
    ) -> io::Result<std::result::Result<Namespace, String>> {
        let path = self.path.join(namespace_folder(digest)).join(record::NAMESPACE);
        Ok(record::decode_namespace(&String::from_utf8_lossy(&std::fs::read(path)?)))
    }
}

pub(crate) fn namespace_folder(digest: Digest) -> String {
    format!("{NAMESPACES}/{digest}")
}

/// One of 256 folders: no directory grows past what file systems take, and keys, being hashes, spread evenly.
pub(crate) fn page_folder(digest: Digest, key: &PageKey) -> String {
    format!("{NAMESPACES}/{digest}/{:02x}", key.as_bytes()[0])
}

pub(crate) fn page_path(digest: Digest, key: &PageKey) -> String {
    format!("{}/{key}", page_folder(digest, key))
}

/// The finalizer of splitmix64 (Steele, Lea, Flood 2014): every bit of the input moves every bit of the output.
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

fn unopened(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::InvalidConfig, "open store").why(why).with("path", path.display())
}

fn fail_at(sys: &Sys, path: &Path, error: io::Error) -> Error {
    io_error(sys, rustix::fs::CWD.as_fd(), "open store", path, error)
}

fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// The marker, `None` in an empty directory. What has no marker of ours is refused untouched.
fn read_marker(path: &Path) -> Result<Option<Marker>> {
    let foreign = |why: String| {
        Error::new(ErrorKind::Incompatible, "open store")
            .why(why)
            .with("path", path.display())
            .fix("nothing in it was touched; name an empty or a new directory")
    };
    let fail = |error| fail_at(&Sys::default(), path, error);
    match std::fs::read(path.join(MARKER)) {
        Ok(bytes) => match Marker::decode(&String::from_utf8_lossy(&bytes)) {
            Ok(marker) => return Ok(Some(marker)),
            Err(why) => return Err(foreign(format!("its marker {MARKER} cannot be used: {why}"))),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => (),
        Err(error) => return Err(fail(error)),
    }
    for entry in std::fs::read_dir(path).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        let name = name.to_string_lossy();
        // A fresh ext4 has lost+found; a process killed while it made the marker leaves the marker's draft.
        if name != "lost+found" && !name.starts_with(&draft_of_marker("")) {
            let why = format!("the directory is not empty ({name}, for one) and holds no store");
            // Another process may have made the store since we looked for its marker.
            return if path.join(MARKER).exists() { read_marker(path) } else { Err(foreign(why)) };
        }
    }
    Ok(None)
}

fn draft_of_marker(unique: &str) -> String {
    format!(".{MARKER}.{unique}")
}

/// Makes a directory a store. The marker comes first, whole, and only once, whoever else opens it now.
fn make_marker(sys: &Sys, path: &Path, dir: BorrowedFd<'_>) -> Result<Marker> {
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
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(fail(error)),
        _ => (),
    }
    read_marker(path)?.ok_or_else(|| unopened(path, "the marker just written cannot be read"))
}

/// For file systems without unnamed files.
fn make_marker_named(sys: &Sys, dir: BorrowedFd<'_>, marker: &Marker) -> io::Result<()> {
    let draft = draft_of_marker(&marker.id);
    let file = sys.open(dir, &draft, OFlags::CREATE | OFlags::EXCL | OFlags::RDWR)?;
    let named = write_marker(sys, &file, marker).and_then(|()| match sys.rename(dir, &draft, MARKER) {
        Err(error) if is_unsupported(&error) => sys.link_name(dir, &draft, MARKER),
        renamed => renamed,
    });
    // Gone already where it was renamed.
    let _ = sys.unlink(dir, &draft);
    named
}

fn write_marker(sys: &Sys, file: &OwnedFd, marker: &Marker) -> io::Result<()> {
    sys.write(file, WriteFrom::slice(marker.encode().as_bytes()), 0, Alignment::NONE)?;
    sys.sync(file)
}
