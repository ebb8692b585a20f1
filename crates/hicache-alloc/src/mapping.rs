//! One range of address space: made, advised, populated and unmapped.
//!
//! `unsafe` stands here because mapping and unmapping are system calls on raw addresses. Every block relies on one
//! invariant, called *owned*: `span` and `span_len` are exactly what this value got from `mmap` and has not given
//! back, so nobody else unmaps or replaces them, and `base..base + len` lies inside and is readable and writable.
#![allow(unsafe_code)]

use crate::counts::Tally;
use crate::error::Failed;
use crate::{Alignment, HugePageSize, NumaNode};
use std::ffi::{c_int, c_long, c_uint, c_ulong};
use std::fs::File;
use std::ops::Range;
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
    tally: Tally,
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
    pub(crate) fn private(len: usize, alignment: Alignment, tally: &Tally) -> Result<Self, Failed> {
        let guard = Alignment::base_page().bytes();
        let slack = alignment.bytes() - guard;
        let span_len = len.checked_add(2 * guard + slack).ok_or_else(out_of_range)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mut mapping = Self::map(span_len, libc::PROT_NONE, flags, None, tally)?;
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
    pub(crate) fn shared(len: usize, tally: &Tally) -> Result<Self, Failed> {
        Self::map(len, READ_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS, None, tally)
    }

    /// Anonymous reserved huge pages. `len` is a multiple of the page size, because munmap needs it so. The kernel
    /// sets the pages aside here (there is no MAP_NORESERVE), so that a later touch finds them.
    pub(crate) fn hugetlb(
        len: usize,
        size: HugePageSize,
        sharing: Sharing,
        tally: &Tally,
    ) -> Result<Self, Failed> {
        let sharing = match sharing {
            Sharing::Private => libc::MAP_PRIVATE,
            Sharing::Shared => libc::MAP_SHARED,
        };
        // The size goes into the flags; the offset stays 0.
        let size = (size.log2() as i32) << libc::MAP_HUGE_SHIFT;
        Self::map(len, READ_WRITE, sharing | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | size, None, tally)
    }

    /// The first `len` bytes of a file, shared with whoever else maps it. The caller sees to it that the file keeps
    /// that length and has its blocks before anybody touches the range.
    pub(crate) fn file(file: BorrowedFd<'_>, len: usize, tally: &Tally) -> Result<Self, Failed> {
        Self::map(len, READ_WRITE, libc::MAP_SHARED, Some(file), tally)
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
        let advice = match advice {
            Advice::DontFork => libc::MADV_DONTFORK,
            Advice::Transparent => libc::MADV_HUGEPAGE,
            Advice::NotTransparent => libc::MADV_NOHUGEPAGE,
        };
        self.madvise(0..self.len, advice)
    }

    /// Has the pages of the range placed on `node` from now on, or there if it can be. It takes no page.
    pub(crate) fn bind(&self, node: NumaNode, is_strict: bool) -> Result<(), Failed> {
        let (word, bit) = (node.get() / c_ulong::BITS, node.get() % c_ulong::BITS);
        let mut nodes: Vec<c_ulong> = vec![0; word as usize + 1];
        nodes[word as usize] = 1 << bit;
        // The kernel looks at one bit less than it is told of.
        let bits = nodes.len() as c_ulong * c_ulong::from(c_ulong::BITS) + 1;
        let mode: c_int = if is_strict { libc::MPOL_BIND } else { libc::MPOL_PREFERRED };
        let no_flags: c_uint = 0;
        // SAFETY: *owned*; the policy changes no bytes, and `nodes` is as long as told.
        let done: c_long = unsafe {
            libc::syscall(libc::SYS_mbind, self.base.as_ptr(), self.len, mode, nodes.as_ptr(), bits, no_flags)
        };
        if done == 0 { Ok(()) } else { Err(Failed::last("mbind")) }
    }

    /// Locks the pages of the range, those that are not there yet `on_fault` only, else all.
    pub(crate) fn lock(&self, on_fault: bool) -> Result<(), Failed> {
        let flags = if on_fault { libc::MLOCK_ONFAULT as c_uint } else { 0 };
        // The library's function would do, but sanitizers put one in its place that does nothing.
        // SAFETY: *owned*; locking changes no bytes, and unmapping undoes it.
        let done: c_long = unsafe { libc::syscall(libc::SYS_mlock2, self.base.as_ptr(), self.len, flags) };
        if done == 0 { Ok(()) } else { Err(Failed::last("mlock2")) }
    }

    /// Faults in every page of `range`, which counts from the base, for writing. The bytes stay as they are.
    ///
    /// # Panics
    ///
    /// If the range leaves the mapping.
    pub(crate) fn populate(&self, range: Range<usize>) -> Result<(), Failed> {
        loop {
            match self.madvise(range.clone(), libc::MADV_POPULATE_WRITE) {
                Err(failed) if matches!(failed.errno(), libc::EINTR | libc::EAGAIN) => {}
                done => return done,
            }
        }
    }

    /// Faults in every page of `range` by having the kernel write a zero to each. A write by hand that finds no page
    /// would be a SIGBUS; the kernel's is an EFAULT. `step` is the smallest page, `zeros` the device of zeros.
    ///
    /// Only for a mapping that nobody has seen yet: its bytes are zero, and nobody else writes them.
    ///
    /// # Panics
    ///
    /// If the range leaves the mapping.
    pub(crate) fn touch(&self, range: Range<usize>, step: Alignment, zeros: &File) -> Result<(), Failed> {
        assert!(range.start <= range.end && range.end <= self.len);
        let pages: Vec<usize> = range.step_by(step.bytes()).collect();
        let mut left = pages.as_slice();
        while !left.is_empty() {
            // SAFETY: *owned*: every offset lies in the usable range.
            let byte = |offset: &usize| unsafe { self.base.add(*offset) }.as_ptr().cast();
            let vectors: Vec<libc::iovec> = left
                .iter()
                .take(TOUCHES)
                .map(|offset| libc::iovec { iov_base: byte(offset), iov_len: 1 })
                .collect();
            // SAFETY: *owned*, and nobody has seen the memory: each vector is one byte of it that no reference is to.
            let read = unsafe { libc::readv(zeros.as_raw_fd(), vectors.as_ptr(), vectors.len() as c_int) };
            match usize::try_from(read) {
                Ok(1..) => left = &left[read as usize..],
                Ok(0) => return Err(no_page()),
                Err(_) => {
                    let failed = Failed::last("readv");
                    if !matches!(failed.errno(), libc::EINTR | libc::EAGAIN) {
                        return Err(failed);
                    }
                }
            }
        }
        Ok(())
    }

    fn map(
        len: usize,
        access: i32,
        flags: i32,
        file: Option<BorrowedFd<'_>>,
        tally: &Tally,
    ) -> Result<Self, Failed> {
        let fd = file.map_or(-1, |file| file.as_raw_fd());
        // SAFETY: with a null hint and without MAP_FIXED the kernel chooses a range that nothing else uses.
        let address = unsafe { libc::mmap(null_mut(), len, access, flags, fd, 0) };
        if address == libc::MAP_FAILED {
            return Err(Failed::last("mmap"));
        }
        let span = NonNull::new(address.cast()).ok_or_else(out_of_range)?;
        Ok(Self { span, span_len: len, base: span, len, tally: tally.clone() })
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

    fn madvise(&self, range: Range<usize>, advice: i32) -> Result<(), Failed> {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: *owned* and the check above. None of the advices given in this file changes the bytes of the range.
        let done = unsafe { libc::madvise(self.base.add(range.start).as_ptr().cast(), range.len(), advice) };
        if done == 0 { Ok(()) } else { Err(Failed::last("madvise")) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Err(failed) = unmap(self.span, self.span_len) {
            // The memory stays mapped until the process ends: nothing else can be done, so it must be seen.
            self.tally.not_unmapped();
            tracing::error!(address = ?self.span, len = self.span_len, error = %failed.source, "munmap failed");
        }
    }
}

/// Pages that one call touches; the kernel takes so many vectors (`IOV_MAX`).
const TOUCHES: usize = 1024;
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Private to this file: the range is one that a [`Mapping`] owns and that nothing will touch again.
fn unmap(start: NonNull<u8>, len: usize) -> Result<(), Failed> {
    // SAFETY: *owned*: every caller passes a part of its own span, and drops it from its span or itself ends.
    let done = unsafe { libc::munmap(start.as_ptr().cast(), len) };
    if done == 0 { Ok(()) } else { Err(Failed::last("munmap")) }
}

fn no_page() -> Failed {
    Failed { call: "readv", source: std::io::Error::from_raw_os_error(libc::EFAULT) }
}

fn out_of_range() -> Failed {
    Failed { call: "mmap", source: std::io::Error::from_raw_os_error(libc::ENOMEM) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};
    use std::os::fd::AsFd;
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

    fn zeros() -> File {
        File::open("/dev/zero").unwrap()
    }

    #[test]
    fn touching_works_where_the_kernel_cannot_populate() {
        let (tally, page) = (Tally::default(), Alignment::base_page());
        for mapping in [Mapping::private(LEN, page, &tally), Mapping::shared(LEN, &tally)] {
            let mapping = mapping.unwrap();
            mapping.touch(0..LEN / 2, page, &zeros()).unwrap();
            mapping.populate(LEN / 2..LEN).unwrap();
            mapping.populate(0..LEN).unwrap();
        }
    }

    #[test]
    fn a_touch_that_finds_no_page_is_an_error_and_no_signal() {
        // A file that is shorter than its mapping has no page there, as a full memory file system would have none.
        let (tally, page) = (Tally::default(), Alignment::base_page());
        let file = tempfile::tempfile().unwrap();
        file.set_len(page.bytes() as u64).unwrap();
        let mapping = Mapping::file(file.as_fd(), LEN, &tally).unwrap();
        mapping.touch(0..page.bytes(), page, &zeros()).unwrap();
        let failed = mapping.touch(0..LEN, page, &zeros()).unwrap_err();
        assert_eq!(failed.errno(), libc::EFAULT);
        assert_eq!(mapping.populate(0..LEN).unwrap_err().errno(), libc::EFAULT);
        assert_eq!(tally.read().unmap_failures, 0);
    }

    #[test]
    fn private_memory_stands_between_two_pages_without_access() {
        let alignment = HugePageSize::Size2M.alignment();
        let mapping = Mapping::private(LEN, alignment, &Tally::default()).unwrap();
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
        let tally = Tally::default();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(writer).finish();
        tracing::subscriber::with_default(subscriber, || {
            // The kernel refuses an address that is no multiple of the page, before it looks at what lies there.
            let odd = NonNull::<u8>::dangling();
            drop(Mapping { span: odd, span_len: LEN, base: odd, len: LEN, tally: tally.clone() });
        });
        let mut text = String::new();
        log.rewind().unwrap();
        log.read_to_string(&mut text).unwrap();
        assert!(text.contains("ERROR") && text.contains("munmap failed"), "{text}");
        assert_eq!(tally.read().unmap_failures, 1);
    }
}
