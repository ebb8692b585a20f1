//! One range of address space: made, advised, populated and unmapped.
//!
//! `unsafe` stands here because mapping and unmapping are system calls on raw addresses. Every block relies on one
//! invariant, called *owned*: `span` and `span_len` are exactly what this value got from `mmap` and has not given
//! back, so nobody else unmaps or replaces them, and `base..base + len` lies inside and is readable and writable.
#![allow(unsafe_code)]

use crate::error::Failed;
use crate::{Alignment, HugePageSize};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};

/// Memory that is mapped as long as this value lives. It hands out no references.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// Everything mapped: the usable range, and around private memory a page on either side that nobody may touch.
    span: NonNull<u8>,
    span_len: usize,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the value is an address range (*owned*) that no thread is tied to, and it hands out no references.
unsafe impl Send for Mapping {}
// SAFETY: as above; through `&self` it only makes system calls, which the kernel serialises.
unsafe impl Sync for Mapping {}

/// Who else may come to see the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    Private,
    Shared,
}

/// What may be told to the kernel about a mapping without changing its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    DontFork,
    Transparent,
    NotTransparent,
}

impl Mapping {
    /// Private base pages at an address that is a multiple of `alignment`, which is at least the base page.
    ///
    /// A page without access stands on either side. It keeps the kernel from merging the range with a neighbour's,
    /// so that the account of the range is about this memory only, and it turns an overrun into an error.
    pub(crate) fn private(len: usize, alignment: Alignment) -> Result<Self, Failed> {
        let guard = Alignment::base_page().bytes();
        let slack = alignment.bytes() - guard;
        let span_len = len.checked_add(2 * guard + slack).ok_or_else(out_of_range)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mut mapping = Self::map(span_len, libc::PROT_NONE, flags, None)?;
        let first = mapping.span.addr().get() + guard;
        let offset = alignment.align_up(first).ok_or_else(out_of_range)? - first;
        mapping.trim(offset, len + 2 * guard)?;
        // SAFETY: *owned*: the span is at least `guard + len + guard` bytes long.
        mapping.base = unsafe { mapping.span.add(guard) };
        mapping.len = len;
        // SAFETY: *owned*: the range is inside the span, and no reference into it exists yet.
        let done = unsafe { libc::mprotect(mapping.base.as_ptr().cast(), len, READ_WRITE) };
        if done == 0 { Ok(mapping) } else { Err(Failed::last("mprotect")) }
    }

    /// Anonymous shared base pages.
    pub(crate) fn shared(len: usize) -> Result<Self, Failed> {
        Self::map(len, READ_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS, None)
    }

    /// Anonymous reserved huge pages. `len` is a multiple of the page size, because munmap needs it so. The kernel
    /// sets the pages aside here (there is no MAP_NORESERVE), so that a later touch finds them.
    pub(crate) fn hugetlb(len: usize, size: HugePageSize, sharing: Sharing) -> Result<Self, Failed> {
        let sharing = match sharing {
            Sharing::Private => libc::MAP_PRIVATE,
            Sharing::Shared => libc::MAP_SHARED,
        };
        // The size goes into the flags; the offset stays 0.
        let size = (size.log2() as i32) << libc::MAP_HUGE_SHIFT;
        Self::map(len, READ_WRITE, sharing | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | size, None)
    }

    /// The first `len` bytes of a file, shared with whoever else maps it. The caller sees to it that the file keeps
    /// that length and has its blocks before anybody touches the range.
    pub(crate) fn file(file: BorrowedFd<'_>, len: usize) -> Result<Self, Failed> {
        Self::map(len, READ_WRITE, libc::MAP_SHARED, Some(file))
    }

    /// The first usable byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Usable bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn advise(&self, advice: Advice) -> Result<(), Failed> {
        self.madvise(match advice {
            Advice::DontFork => libc::MADV_DONTFORK,
            Advice::Transparent => libc::MADV_HUGEPAGE,
            Advice::NotTransparent => libc::MADV_NOHUGEPAGE,
        })
    }

    /// Faults every page in for writing. The bytes stay zero.
    pub(crate) fn populate(&self) -> Result<(), Failed> {
        loop {
            match self.madvise(libc::MADV_POPULATE_WRITE) {
                Err(failed) if matches!(failed.errno(), libc::EINTR | libc::EAGAIN) => {}
                Err(failed) if failed.errno() == libc::EINVAL => {
                    // Linux before 5.14 does not know the advice. All memory is reserved by now, so a touch is safe.
                    self.touch();
                    return Ok(());
                }
                done => return done,
            }
        }
    }

    fn touch(&self) {
        for offset in (0..self.len).step_by(Alignment::base_page().bytes()) {
            // SAFETY: *owned*: the offset is inside the usable range. The mapping is fresh and not yet handed out, so
            // the byte is zero and nobody else writes it. Volatile, so that the write is not optimised away.
            unsafe { self.base.add(offset).write_volatile(0) };
        }
    }

    fn map(len: usize, access: i32, flags: i32, file: Option<BorrowedFd<'_>>) -> Result<Self, Failed> {
        let fd = file.map_or(-1, |file| file.as_raw_fd());
        // SAFETY: with a null hint and without MAP_FIXED the kernel chooses a range that nothing else uses.
        let address = unsafe { libc::mmap(null_mut(), len, access, flags, fd, 0) };
        if address == libc::MAP_FAILED {
            return Err(Failed::last("mmap"));
        }
        let span = NonNull::new(address.cast()).ok_or_else(out_of_range)?;
        Ok(Self { span, span_len: len, base: span, len })
    }

    /// Gives back all of the span but the `keep` bytes from `offset` on.
    fn trim(&mut self, offset: usize, keep: usize) -> Result<(), Failed> {
        let tail = self.span_len - offset - keep;
        if tail > 0 {
            // SAFETY: *owned*: the tail is inside the span, page aligned, and nothing refers to it.
            unmap(unsafe { self.span.add(offset + keep) }, tail)?;
            self.span_len -= tail;
        }
        if offset > 0 {
            unmap(self.span, offset)?;
            // SAFETY: *owned*: the offset is inside the span.
            self.span = unsafe { self.span.add(offset) };
            self.span_len -= offset;
        }
        Ok(())
    }

    fn madvise(&self, advice: i32) -> Result<(), Failed> {
        // SAFETY: *owned*. None of the advices given in this file changes the bytes of the range.
        let done = unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, advice) };
        if done == 0 { Ok(()) } else { Err(Failed::last("madvise")) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Err(failed) = unmap(self.span, self.span_len) {
            // The memory stays mapped until the process ends: nothing else can be done, so it must be seen.
            tracing::error!(address = ?self.span, len = self.span_len, error = %failed.source, "munmap failed");
        }
    }
}

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Private to this file: the range is one that a [`Mapping`] owns and that nothing will touch again.
fn unmap(start: NonNull<u8>, len: usize) -> Result<(), Failed> {
    // SAFETY: *owned*: every caller passes a part of its own span, and drops it from its span or itself ends.
    let done = unsafe { libc::munmap(start.as_ptr().cast(), len) };
    if done == 0 { Ok(()) } else { Err(Failed::last("munmap")) }
}

fn out_of_range() -> Failed {
    Failed { call: "mmap", source: std::io::Error::from_raw_os_error(libc::ENOMEM) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};
    use std::sync::Arc;

    const LEN: usize = 1 << 20;

    fn maps_of(address: NonNull<u8>) -> Vec<String> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let base_page = Alignment::base_page().bytes();
        let edge = |line: &str| {
            let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
            [start, end].map(|word| usize::from_str_radix(word, 16).unwrap())
        };
        let inside = |line: &&str| {
            let [start, end] = edge(line);
            start <= address.addr().get() + LEN && end >= address.addr().get() - base_page
        };
        maps.lines().filter(inside).map(str::to_owned).collect()
    }

    #[test]
    fn touching_works_where_the_kernel_cannot_populate() {
        for mapping in [Mapping::private(LEN, Alignment::base_page()), Mapping::shared(LEN)] {
            let mapping = mapping.unwrap();
            mapping.touch();
            mapping.populate().unwrap();
        }
    }

    #[test]
    fn private_memory_stands_between_two_pages_without_access() {
        let alignment = HugePageSize::Size2M.alignment();
        let mapping = Mapping::private(LEN, alignment).unwrap();
        assert!(alignment.is_aligned(mapping.base().addr().get()));
        assert_eq!(mapping.len(), LEN);
        let lines = maps_of(mapping.base());
        let at =
            lines.iter().position(|line| line.starts_with(&format!("{:x}-", mapping.base().addr()))).unwrap();
        assert!(lines[at].contains("rw-p"), "{lines:?}");
        assert!(lines[at - 1].contains("---p") && lines[at + 1].contains("---p"), "{lines:?}");
    }

    #[test]
    fn a_failed_munmap_is_told_and_is_no_panic() {
        let mut log = tempfile::tempfile().unwrap();
        let writer = Arc::new(log.try_clone().unwrap());
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(writer).finish();
        tracing::subscriber::with_default(subscriber, || {
            // The kernel refuses an address that is no multiple of the page, before it looks at what lies there.
            let odd = NonNull::<u8>::dangling();
            drop(Mapping { span: odd, span_len: LEN, base: odd, len: LEN });
        });
        let mut text = String::new();
        log.rewind().unwrap();
        log.read_to_string(&mut text).unwrap();
        assert!(text.contains("ERROR") && text.contains("munmap failed"), "{text}");
    }
}
