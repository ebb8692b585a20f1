//! As much of the kernel's protocol for file systems in user space as a mirror that is only read needs.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

pub(super) const ROOT: u64 = 1;

pub(super) const LOOKUP: u32 = 1;
pub(super) const FORGET: u32 = 2;
pub(super) const GETATTR: u32 = 3;
pub(super) const OPEN: u32 = 14;
pub(super) const READ: u32 = 15;
pub(super) const STATFS: u32 = 17;
pub(super) const RELEASE: u32 = 18;
pub(super) const FLUSH: u32 = 25;
pub(super) const INIT: u32 = 26;
pub(super) const OPENDIR: u32 = 27;
pub(super) const RELEASEDIR: u32 = 29;
pub(super) const INTERRUPT: u32 = 36;
pub(super) const BATCH_FORGET: u32 = 42;

/// Direct reads may be under way without a thread that waits for them.
const ASYNC_DIO: u32 = 1 << 15;

/// Longest message that comes: a read-only mirror is sent no data.
pub(super) const MESSAGE_MAX: usize = 64 << 10;

/// A message of the kernel's.
pub(super) struct Request<'a> {
    pub(super) opcode: u32,
    pub(super) unique: u64,
    pub(super) node: u64,
    body: &'a [u8],
}

impl<'a> Request<'a> {
    pub(super) fn decode(message: &'a [u8]) -> Self {
        let (header, body) = message.split_at(40);
        let header = Request { opcode: 0, unique: 0, node: 0, body: header };
        Self { opcode: header.u32(4), unique: header.u64(8), node: header.u64(16), body }
    }

    pub(super) fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.body[at..at + 4].try_into().unwrap())
    }

    pub(super) fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.body[at..at + 8].try_into().unwrap())
    }

    /// The name that a lookup asks for.
    pub(super) fn name(&self) -> &str {
        std::str::from_utf8(self.body).unwrap().trim_end_matches('\0')
    }
}

/// An answer, put together field by field.
#[derive(Default)]
pub(super) struct Answer(Vec<u8>);

impl Answer {
    pub(super) fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub(super) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub(super) fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    pub(super) fn zeros(mut self, count: usize) -> Self {
        self.0.resize(self.0.len() + count, 0);
        self
    }

    pub(super) fn bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// To the INIT of a kernel with those `flags`.
    pub(super) fn init(flags: u32, async_dio: bool) -> Self {
        let flags = if async_dio { flags & ASYNC_DIO } else { 0 };
        let (major, minor, background) = (7, 31, 1000);
        let answer = Self::default().u32(major).u32(minor).u32(0).u32(flags);
        answer.u16(background).u16(background).u32(4096).u32(1).zeros(36)
    }

    pub(super) fn entry(node: u64, metadata: &Metadata) -> Self {
        // Valid for no time: each opening asks.
        Self::default().u64(node).zeros(32).attributes(metadata)
    }

    pub(super) fn getattr(metadata: &Metadata) -> Self {
        Self::default().zeros(16).attributes(metadata)
    }

    fn attributes(self, of: &Metadata) -> Self {
        let times = [of.atime(), of.mtime(), of.ctime()].map(|time| time as u64);
        let nanos = [of.atime_nsec(), of.mtime_nsec(), of.ctime_nsec()].map(|nanos| nanos as u32);
        let answer = self.u64(of.ino()).u64(of.size()).u64(of.blocks());
        let answer = times.into_iter().fold(answer, Self::u64);
        let answer = nanos.into_iter().fold(answer, Self::u32);
        answer.u32(of.mode()).u32(of.nlink() as u32).u32(of.uid()).u32(of.gid()).u32(0).u32(4096).u32(0)
    }

    /// The message that answers `unique`.
    pub(super) fn message(self, unique: u64) -> Vec<u8> {
        Self::default().u32(16 + self.0.len() as u32).u32(0).u64(unique).0.into_iter().chain(self.0).collect()
    }
}

/// The message that fails `unique`.
pub(super) fn failure(unique: u64, errno: i32) -> Vec<u8> {
    Answer::default().u32(16).u32((-errno) as u32).u64(unique).0
}
