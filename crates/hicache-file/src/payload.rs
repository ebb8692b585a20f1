//! The bytes of one page and their tail, between a file and memory: straight, or copied on the way.

use crate::page_file::PageFiles;
use crate::slot::{Slot, copy_in, copy_out};
use crate::sys::{ReadInto, WriteFrom};
use crate::trailer::{Flaw, Trailer};
use hicache_core::{Alignment, Checksum, Page, PageMut};
use rustix::fs::OFlags;
use std::io;
use std::os::fd::OwnedFd;

/// How a page's bytes get to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// From and to where the page lies.
    Direct(Alignment),
    /// The page is not aligned: with its tail, in parts, through the worker's slot.
    Bounce(Alignment),
    /// The page lies on base pages: through a slot on huge pages.
    Through(Alignment),
    Buffered,
}

impl Mode {
    pub(crate) fn flags(self) -> OFlags {
        if self == Self::Buffered { OFlags::empty() } else { OFlags::DIRECT }
    }

    /// What each transfer must be aligned to.
    fn alignment(self) -> Alignment {
        match self {
            Self::Direct(alignment) | Self::Bounce(alignment) | Self::Through(alignment) => alignment,
            Self::Buffered => Alignment::NONE,
        }
    }
}

/// What a page goes through, and where its tail stands.
pub(crate) struct Memory<'a> {
    through: &'a mut [u8],
    tail: &'a mut [u8],
}

impl<'a> Memory<'a> {
    /// The worker's own, or `huge` if there is one.
    pub(crate) fn of(slot: &'a mut Slot, huge: Option<&'a mut PageMut>) -> Self {
        let (own, tail) = slot.split();
        Self { through: huge.and_then(|page| page.bytes_mut(0)).unwrap_or(own), tail }
    }
}

/// A trailer, and the checksum of the page's bytes where it was made while they were copied.
pub(crate) type Read = (Trailer, Option<u64>);

impl PageFiles<'_> {
    /// Writes the page and its trailer, which gets its checksum here: while the bytes are copied, if they are.
    pub(crate) fn write_payload(
        &self,
        file: &OwnedFd,
        page: &Page,
        trailer: &mut Trailer,
        (mode, Memory { through, tail }): (Mode, Memory<'_>),
    ) -> io::Result<()> {
        let (shape, sys, alignment) = (self.shape(), self.root.sys(), mode.alignment());
        let tail = &mut tail[..shape.tail_len()];
        let mut seal = |tail: &mut [u8], sum| {
            trailer.checksum = sum;
            trailer.encode(tail, shape.block);
        };
        let mut checksum = self.checksum.then(Checksum::new);
        match mode {
            Mode::Buffered | Mode::Direct(_) => {
                seal(tail, self.checksum.then(|| Checksum::of(page)));
                sys.write(file, WriteFrom::page(page, tail), 0, alignment)?;
            }
            Mode::Through(_) => {
                let len_max = through.len();
                for at in (0..page.len()).step_by(len_max) {
                    let part = &mut through[..len_max.min(page.len() - at)];
                    copy_out(page, at, part, checksum.as_mut());
                    let is_last = at + part.len() == page.len();
                    if is_last {
                        seal(tail, checksum.as_ref().map(Checksum::finish));
                    }
                    let rest = if is_last { &*tail } else { &[] };
                    sys.write(file, WriteFrom::slices(part, rest), at as u64, alignment)?;
                }
            }
            Mode::Bounce(_) => {
                for part in shape.parts(through.len()) {
                    let bytes = &mut through[..part.len];
                    let (payload, rest) = bytes.split_at_mut(part.payload_len);
                    copy_out(page, part.at, payload, checksum.as_mut());
                    if part.tail.start == 0 && !part.tail.is_empty() {
                        seal(tail, checksum.as_ref().map(Checksum::finish));
                    }
                    rest.copy_from_slice(&tail[part.tail]);
                    sys.write(file, WriteFrom::slice(bytes), part.at as u64, alignment)?;
                }
            }
        }
        Ok(())
    }

    /// Reads the page, and what its file says of it.
    pub(crate) fn read_payload(
        &self,
        file: &OwnedFd,
        into: &mut PageMut,
        (mode, Memory { through, tail }): (Mode, Memory<'_>),
    ) -> io::Result<Result<Read, Flaw>> {
        let (shape, sys, alignment) = (self.shape(), self.root.sys(), mode.alignment());
        let tail = &mut tail[..shape.tail_len()];
        let mut checksum = None;
        match mode {
            Mode::Buffered | Mode::Direct(_) => sys.read(file, ReadInto::page(into, tail), 0, alignment)?,
            Mode::Through(_) => {
                checksum = self.checksum.then(Checksum::new);
                let (page_len, len_max) = (into.len(), through.len());
                for at in (0..page_len).step_by(len_max) {
                    let part = &mut through[..len_max.min(page_len - at)];
                    let rest = if at + part.len() == page_len { &mut *tail } else { &mut [] };
                    sys.read(file, ReadInto::slices(part, rest), at as u64, alignment)?;
                    copy_in(into, at, part, checksum.as_mut());
                }
            }
            Mode::Bounce(_) => {
                checksum = self.checksum.then(Checksum::new);
                for part in shape.parts(through.len()) {
                    let bytes = &mut through[..part.len];
                    sys.read(file, ReadInto::slice(bytes), part.at as u64, alignment)?;
                    let (payload, rest) = bytes.split_at(part.payload_len);
                    copy_in(into, part.at, payload, checksum.as_mut());
                    tail[part.tail].copy_from_slice(rest);
                }
            }
        }
        let sum = checksum.as_ref().map(Checksum::finish);
        Ok(Trailer::decode(tail, shape.block).map(|trailer| (trailer, sum)))
    }
}
