//! What stands at a page's name: looking at it, and taking away what is damaged without touching what is not.

use crate::page_file::PageFiles;
use crate::root::BAD;
use crate::slot::Slot;
use crate::sys::ReadInto;
use crate::trailer::{Flaw, Shape, Trailer};
use hicache_core::{Alignment, Checksum, Error, ErrorKind, PageKey};
use rustix::fs::{FileType, OFlags, Stat};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{SystemTime, UNIX_EPOCH};

/// What to do about a directory in a page's place.
pub(crate) const BY_HAND: &str =
    "hicache removes none that it did not make: look at what is in it, and remove it by hand";

/// What stands at a page's name.
#[derive(Debug)]
pub(crate) enum Standing {
    Nothing,
    /// A file of the right kind and length, not read.
    Listed,
    Sound(Trailer),
    /// Something else, and the file that was looked at.
    Flawed(Flaw, Stat),
    /// It could not be looked at.
    Unreadable(io::Error),
}

/// What opening a page file gave.
pub(crate) enum Opened {
    File(OwnedFd, Stat),
    Nothing,
    Flawed(Flaw, Stat),
}

impl PageFiles<'_> {
    /// What stands at `path`, every byte of it checked. `key` is what its name says, if it says one.
    pub(crate) fn look(&self, path: &str, key: Option<&PageKey>, slot: &mut Slot) -> io::Result<Standing> {
        let direct = self.root.direct();
        match self.look_aligned(path, key, slot, direct) {
            // Aligned, and refused all the same: as in a get.
            Err(error)
                if direct.is_some()
                    && error.raw_os_error() == Some(libc::EINVAL)
                    && self.root.give_up_direct(&error) =>
            {
                self.look_aligned(path, key, slot, None)
            }
            looked => looked,
        }
    }

    fn look_aligned(
        &self,
        path: &str,
        key: Option<&PageKey>,
        slot: &mut Slot,
        direct: Option<Alignment>,
    ) -> io::Result<Standing> {
        // Most often nothing: asked by name, which is cheaper than opening.
        match self.root.sys().stat(self.root.dir(), path) {
            Err(error) if is_absence(&error) => return Ok(Standing::Nothing),
            Err(error) => return Err(error),
            Ok(_) => (),
        }
        let flags = if direct.is_some() { OFlags::DIRECT } else { OFlags::empty() };
        let (file, stat) = match self.open(path, flags)? {
            Opened::Nothing => return Ok(Standing::Nothing),
            Opened::Flawed(flaw, stat) => return Ok(Standing::Flawed(flaw, stat)),
            Opened::File(file, stat) => (file, stat),
        };
        let shape = self.shape();
        let (bounce, tail) = slot.split();
        let tail = &mut tail[..shape.tail_len()];
        let mut checksum = Checksum::new();
        for part in shape.parts(bounce.len()) {
            let bytes = &mut bounce[..part.len];
            let alignment = direct.unwrap_or(Alignment::NONE);
            match self.root.sys().read(&file, ReadInto::slice(bytes), part.at as u64, alignment) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    let flaw = Flaw::Torn("it was cut short while it was read".to_string());
                    return Ok(Standing::Flawed(flaw, stat));
                }
                read => read?,
            }
            let (payload, rest) = bytes.split_at(part.payload_len);
            checksum.add(payload);
            tail[part.tail].copy_from_slice(rest);
        }
        let judged = Trailer::decode(tail, shape.block).and_then(|trailer| {
            trailer.check(self.namespace, key.unwrap_or(&trailer.key))?;
            match trailer.checksum {
                Some(written) if written != checksum.finish() => {
                    Err(Flaw::Wrong("its bytes fail their checksum".to_string()))
                }
                // A get would not serve it, so a set must not take it for the page.
                None if self.checksum && !self.accept_unverified => Err(Flaw::Unverified),
                _ => Ok(trailer),
            }
        });
        Ok(judged.map_or_else(|flaw| Standing::Flawed(flaw, stat), Standing::Sound))
    }

    /// Opens a page file to read it, if it has the kind and length of one.
    pub(crate) fn open(&self, path: &str, flags: OFlags) -> io::Result<Opened> {
        let (sys, dir) = (self.root.sys(), self.root.dir());
        // NONBLOCK: what stands there may be a FIFO, whose opening waits for a writer.
        let opened = sys.open(dir, path, flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK);
        let (file, stat) = match opened {
            Ok(file) => {
                let stat = sys.stat_file(&file)?;
                (Some(file), stat)
            }
            Err(error) if is_absence(&error) => return Ok(Opened::Nothing),
            Err(error) => match sys.stat(dir, path) {
                Ok(stat) if self.flaw_of(&stat).is_some() => (None, stat),
                _ => return Err(error),
            },
        };
        Ok(match (self.flaw_of(&stat), file) {
            (None, Some(file)) => Opened::File(file, stat),
            (None, None) => Opened::Nothing,
            (Some(Flaw::Torn(_)), _) if self.is_foreign(path, &stat) => Opened::Flawed(Flaw::Foreign, stat),
            (Some(flaw), _) => Opened::Flawed(flaw, stat),
        })
    }

    /// What is wrong with a file by its kind and length alone.
    pub(crate) fn flaw_of(&self, stat: &Stat) -> Option<Flaw> {
        let (len, expected) = (stat.st_size as u64, self.shape().file_len() as u64);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile if len == expected => None,
            FileType::RegularFile => {
                Some(Flaw::Torn(format!("it has {len} bytes; a page file here has {expected}")))
            }
            FileType::Directory => Some(Flaw::Wrong(format!("a directory stands in its place; {BY_HAND}"))),
            _ => Some(Flaw::Wrong("it is no regular file".to_string())),
        }
    }

    /// Whether a file of another length is a whole page file of this namespace, with another layout.
    pub(crate) fn is_foreign(&self, path: &str, stat: &Stat) -> bool {
        let (sys, block) = (self.root.sys(), self.root.block());
        let len = stat.st_size as usize;
        if len < 2 * block.bytes() || !block.is_aligned(len) {
            return false;
        }
        let mut last = vec![0; block.bytes()];
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let read = sys.open(self.root.dir(), path, flags).and_then(|file| {
            sys.read(&file, ReadInto::slice(&mut last), (len - block.bytes()) as u64, Alignment::NONE)
        });
        let Ok(trailer) = read.map_err(drop).and_then(|()| Trailer::decode(&last, block).map_err(drop))
        else {
            return false;
        };
        let shape = Shape { payload_len: trailer.payload_len as usize, block };
        trailer.namespace == self.namespace.digest()
            && trailer.layout != self.namespace.layout().mark()
            && trailer.payload_len < len as u64
            && shape.file_len() == len
    }

    /// The error of a set where a page of another layout stands.
    pub(crate) fn foreign(&self, path: &str) -> Error {
        Error::new(ErrorKind::Incompatible, "set page")
            .why("a page of another layout has that key in this namespace")
            .with("path", path)
            .with("layout", self.namespace.layout())
            .fix("use another namespace, or drop this one")
    }

    /// Renames what is damaged, so that it is asked for no more, a set can replace it, and an operator can look at
    /// it. What was never checked is removed: nothing says that it is damaged.
    pub(crate) fn set_aside(&self, path: &str, seen: &Stat, flaw: &Flaw) -> io::Result<()> {
        if *flaw == Flaw::Unverified {
            return self.discard(path, seen, flaw);
        }
        tracing::warn!(path, %flaw, "damaged page");
        self.move_aside(path, seen).map(drop)
    }

    /// Removes what was judged. A directory stays where it is: nobody here knows what is in it.
    pub(crate) fn discard(&self, path: &str, seen: &Stat, flaw: &Flaw) -> io::Result<()> {
        let moved = match FileType::from_raw_mode(seen.st_mode) {
            FileType::Directory => Err(io::ErrorKind::IsADirectory.into()),
            _ => self.move_aside(path, seen),
        };
        let removed = moved
            .and_then(|aside| aside.map_or(Ok(()), |aside| self.root.sys().unlink(self.root.dir(), &aside)));
        match &removed {
            Ok(()) => tracing::warn!(path, %flaw, "page removed"),
            Err(error) => tracing::warn!(path, %flaw, %error, "a damaged page could not be removed"),
        }
        removed
    }

    /// Moves the file that was judged away from its name. Others may set and remove pages meanwhile: what was moved is
    /// looked at again, and goes back if it is not the one that was judged. Returns its new name, if it is.
    fn move_aside(&self, path: &str, seen: &Stat) -> io::Result<Option<String>> {
        let (sys, dir) = (self.root.sys(), self.root.dir());
        let unique = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let aside = format!("{path}{BAD}{:x}-{unique:x}", seen.st_ino);
        match sys.rename_to_own(dir, path, &aside) {
            Err(error) if is_absence(&error) => return Ok(None),
            // No room for another name: what is damaged is not worth keeping.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT)) => {
                sys.unlink(dir, path)?;
                return Ok(None);
            }
            renamed => renamed?,
        }
        let moved = match sys.stat(dir, &aside) {
            Err(error) if is_absence(&error) => return Ok(None),
            moved => moved?,
        };
        if is_same(seen, &moved) {
            return Ok(Some(aside));
        }
        // Whoever has the name by now has set it later still; else the page goes back. Both leave one file.
        let _ = sys.link_name(dir, &aside, path);
        sys.unlink(dir, &aside)?;
        Ok(None)
    }
}

/// Inode numbers are used again: length and time must agree, too.
fn is_same(seen: &Stat, now: &Stat) -> bool {
    let mark = |stat: &Stat| (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
    mark(seen) == mark(now)
}

/// Whether the error says that nothing stands there. A stale handle is of a file that its server has removed.
pub(crate) fn is_absence(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESTALE)
}
