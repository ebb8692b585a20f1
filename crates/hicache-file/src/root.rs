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

use crate::claim;
use crate::draft::{Draft, Published};
use crate::fail::io_error;
use crate::options::FileOptions;
use crate::probe::{self, Probe};
use crate::record::{self, Marker};
use crate::sys::{Sys, WriteFrom};
use crate::writer::{self, Leftover, Writer};
use hicache_core::{Alignment, Digest, Error, ErrorKind, Fallback, Namespace, PageKey, Result};
use rustix::fs::{Mode, OFlags};
use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Where namespaces have their folders.
pub(crate) const NAMESPACES: &str = "ns";

/// What follows a page's key once it failed its check.
pub(crate) const BAD: &str = ".bad-";

const MAKES_ONE: &str = "check the path; a put, or a replay with --backend, makes a new store";

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
    leftovers: Mutex<Vec<Leftover>>,
    /// It was made a store's just now.
    pub(crate) is_new: bool,
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
            io::ErrorKind::NotFound => unopened(&path, "there is no such directory").fix(MAKES_ONE),
            _ => fail_at(&sys, &path, error),
        })?;
        let found = claim::read_marker(&sys, &path, dir.as_fd())?;
        let is_new = found.is_none();
        let marker = match found {
            Some(marker) => marker,
            None if options.existing => {
                return Err(unopened(&path, "it holds no store").fix(MAKES_ONE));
            }
            None => claim::make_marker(&sys, &path, dir.as_fd())?,
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
            leftovers: Mutex::default(),
            marker,
            is_new,
            probe,
        };
        root.probe.fallbacks.iter().for_each(|fallback| root.tell(fallback.clone()));
        if root.probe.writable {
            claim::sweep_drafts(&root.sys, root.dir());
            root.sweep();
        }
        Ok(root)
    }

    /// The marker of the store in `path`; none where one would be made. Touches nothing.
    pub(crate) fn look(path: &Path) -> Result<Option<Marker>> {
        let sys = Sys::default();
        match open_dir(path) {
            Ok(dir) => claim::read_marker(&sys, path, dir.as_fd()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(fail_at(&sys, path, error)),
        }
    }

    /// Removes what dead writers left, but for what would take long, which [`Root::take_leftovers`] gives.
    fn sweep(&self) {
        match writer::leftovers(&self.sys, self.dir()) {
            Ok(found) => {
                let (large, small): (Vec<_>, Vec<_>) =
                    found.into_iter().partition(|leftover| leftover.is_large);
                small.iter().for_each(|leftover| writer::sweep(&self.sys, self.dir(), leftover));
                self.leftovers.lock().unwrap_or_else(PoisonError::into_inner).extend(large);
            }
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "could not look for leftovers");
            }
        }
    }

    /// What is left to be swept beside other work.
    pub(crate) fn take_leftovers(&self) -> Vec<Leftover> {
        std::mem::take(&mut *self.leftovers.lock().unwrap_or_else(PoisonError::into_inner))
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

    /// Whoever starts a read here waits for it.
    pub(crate) fn reads_wait(&self) -> bool {
        self.probe.reads_wait
    }

    /// Block of its page files.
    pub(crate) fn block(&self) -> Alignment {
        Alignment::new(self.marker.block).expect("a marker with another block is refused")
    }

    /// As it was at open; not any more once the directory is deleted.
    pub(crate) fn is_writable(&self) -> bool {
        self.probe.writable && rustix::fs::fstat(&self.dir).is_ok_and(|stat| stat.st_nlink > 0)
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
        if !writer.as_ref().is_some_and(Writer::has_folder) {
            *writer = Some(Writer::create(&self.sys, self.dir())?);
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
        self.sys.check_file_len(text.len())?;
        let draft = Draft::create(self, folder, OFlags::empty())?;
        self.sys.write(draft.file(), WriteFrom::slice(text.as_bytes()), 0, Alignment::NONE)?;
        draft.publish(path)
    }

    /// The record of a namespace, or why it is none.
    pub(crate) fn read_namespace(
        &self,
        digest: Digest,
    ) -> io::Result<std::result::Result<Namespace, String>> {
        let path = format!("{}/{}", namespace_folder(digest), record::NAMESPACE);
        let bytes = match self.sys.read_small(self.dir(), &path) {
            // A link, a folder, a FIFO, or something far too long.
            Err(error)
                if error.kind() == io::ErrorKind::InvalidData
                    || error.raw_os_error() == Some(libc::ELOOP) =>
            {
                return Ok(Err("it is no small regular file".to_string()));
            }
            bytes => bytes?,
        };
        Ok(Namespace::from_record(&String::from_utf8_lossy(&bytes)).and_then(|namespace| {
            if namespace.digest() == digest {
                Ok(namespace)
            } else {
                Err(format!("it is the record of another namespace, {:?}", namespace.name()))
            }
        }))
    }
}

/// Bytes of a page's path, and of the zero that ends it for the kernel: made for every page, so allocated once.
const PAGE_PATH_LEN: usize = NAMESPACES.len() + "/".len() + 64 + "/xx/".len() + 64 + 1;

pub(crate) fn namespace_folder(digest: Digest) -> String {
    format!("{NAMESPACES}/{digest}")
}

/// One of 256 folders: no directory grows past what file systems take, and keys, being hashes, spread evenly.
pub(crate) fn page_folder(digest: Digest, key: &PageKey) -> String {
    format!("{NAMESPACES}/{digest}/{:02x}", key.as_bytes()[0])
}

pub(crate) fn page_path(digest: Digest, key: &PageKey) -> String {
    let mut path = String::with_capacity(PAGE_PATH_LEN);
    write!(path, "{NAMESPACES}/{digest}/{:02x}/{key}", key.as_bytes()[0])
        .expect("a text takes what is written");
    path
}

/// The finalizer of splitmix64 (Steele, Lea, Flood 2014): every bit of the input moves every bit of the output.
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

pub(crate) fn unopened(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::InvalidConfig, "open store").why(why).with("path", path.display())
}

/// What opening the store met, with the space of the file system that it met it on.
pub(crate) fn fail_at(sys: &Sys, path: &Path, error: io::Error) -> Error {
    let nearest = path.ancestors().find_map(|path| open_dir(path).ok());
    let dir = nearest.as_ref().map_or(rustix::fs::CWD, OwnedFd::as_fd);
    io_error(sys, dir, "open store", path, error)
}

fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}
