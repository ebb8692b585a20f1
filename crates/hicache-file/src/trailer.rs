//! How a page lies in a file: its bytes, zeros up to a block, then one trailer block that says what they are.
//!
//! ```text
//! 0            payload_len      padded to block              + block
//! | payload ... | zeros ........ | trailer .................... |
//! ```
//!
//! All numbers are little-endian. The trailer block:
//!
//! | offset | bytes | what |
//! | ---: | ---: | --- |
//! | 0 | 8 | magic `HICACHEP` |
//! | 8 | 4 | format version, 1 |
//! | 12 | 4 | flags: bit 0, there is a parent |
//! | 16 | 8 | payload length |
//! | 24 | 32 | key |
//! | 56 | 32 | parent key, zeros without one |
//! | 88 | 32 | namespace digest |
//! | 120 | 8 | write time, milliseconds since 1970 |
//! | 128 | 4 | checksum kind: 0 none, 1 CRC-64/NVME over the payload |
//! | 132 | 4 | zero |
//! | 136 | 8 | checksum |
//! | 144 | 8 | CRC-64/NVME of the layout's text: equal lengths may have other orders |
//! | 152 | | zeros, reserved |
//! | block - 8 | 8 | CRC-64/NVME over the block before it |

use hicache_core::{Alignment, Checksum, Digest, Namespace, Page, PageKey};
use std::fmt;
use std::ops::Range;

const MAGIC: &[u8; 8] = b"HICACHEP";
const VERSION: u32 = 1;
const HAS_PARENT: u32 = 1;

/// Where the parts of a page file lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) payload_len: usize,
    pub(crate) block: Alignment,
}

/// What a trailer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) key: PageKey,
    pub(crate) parent: Option<PageKey>,
    pub(crate) namespace: Digest,
    /// [`PageLayout::mark`](hicache_core::PageLayout::mark) of the page's layout.
    pub(crate) layout: u64,
    pub(crate) payload_len: u64,
    pub(crate) written_ms: u64,
    /// CRC-64/NVME over the payload; `None` when it was written without.
    pub(crate) checksum: Option<u64>,
}

/// Why a page file is not the page it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// It is no regular file, or has another length.
    Torn(String),
    /// Its bytes are not what its trailer, or its name, says.
    Wrong(String),
    /// It has no checksum.
    Unverified,
    /// It is a sound page of another layout: others may want it, so it is not touched.
    Foreign,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Torn(why) | Self::Wrong(why) => f.write_str(why),
            Self::Unverified => f.write_str("it was written without a checksum"),
            Self::Foreign => f.write_str("it is a page of another layout"),
        }
    }
}

impl Shape {
    /// Bytes of the payload and its padding.
    pub(crate) fn padded_len(&self) -> usize {
        self.block.align_up(self.payload_len).expect("a page that is in memory leaves room to round up")
    }

    /// Bytes of the file.
    pub(crate) fn file_len(&self) -> usize {
        self.padded_len() + self.block.bytes()
    }

    /// Bytes after the payload: padding and trailer. At most two blocks.
    pub(crate) fn tail_len(&self) -> usize {
        self.file_len() - self.payload_len
    }

    /// The file cut into parts of at most `len_max` bytes, a multiple of the block.
    pub(crate) fn parts(&self, len_max: usize) -> impl Iterator<Item = Part> + use<> {
        let (payload_len, file_len) = (self.payload_len, self.file_len());
        (0..file_len).step_by(len_max).map(move |at| {
            let len = len_max.min(file_len - at);
            let payload = payload_len.saturating_sub(at).min(len);
            let tail_at = (at + payload).saturating_sub(payload_len);
            Part { at, len, payload_len: payload, tail: tail_at..tail_at + len - payload }
        })
    }
}

/// A part of a page file: first bytes of the payload, then bytes of the tail; either may be none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Where it starts, in the file; where its payload starts, in the page.
    pub(crate) at: usize,
    pub(crate) len: usize,
    pub(crate) payload_len: usize,
    /// Which bytes of the tail follow.
    pub(crate) tail: Range<usize>,
}

impl Trailer {
    /// Writes the padding and the trailer, all of `tail`, whose last block is the trailer.
    pub(crate) fn encode(&self, tail: &mut [u8], block: Alignment) {
        tail.fill(0);
        let trailer_at = tail.len() - block.bytes();
        let (sealed, seal) = tail[trailer_at..].split_at_mut(block.bytes() - 8);
        let mut put = |at: usize, bytes: &[u8]| sealed[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(16, &self.payload_len.to_le_bytes());
        put(24, self.key.as_bytes());
        if let Some(parent) = &self.parent {
            put(12, &HAS_PARENT.to_le_bytes());
            put(56, parent.as_bytes());
        }
        put(88, self.namespace.as_bytes());
        put(120, &self.written_ms.to_le_bytes());
        put(144, &self.layout.to_le_bytes());
        if let Some(checksum) = self.checksum {
            put(128, &1u32.to_le_bytes());
            put(136, &checksum.to_le_bytes());
        }
        seal.copy_from_slice(&Checksum::of_bytes(sealed).to_le_bytes());
    }

    /// Reads padding and trailer. Every bit of them is checked.
    pub(crate) fn decode(tail: &[u8], block: Alignment) -> Result<Self, Flaw> {
        let wrong = |why: &str| Err(Flaw::Wrong(why.to_string()));
        let (padding, trailer) = tail.split_at(tail.len() - block.bytes());
        let (sealed, seal) = trailer.split_at(block.bytes() - 8);
        if &sealed[..8] != MAGIC {
            return wrong("it has no trailer of ours");
        }
        if Checksum::of_bytes(sealed).to_le_bytes() != seal {
            return wrong("its trailer fails its checksum");
        }
        if word(sealed, 8) != VERSION {
            return Err(Flaw::Wrong(format!("it has format version {}; this is {VERSION}", word(sealed, 8))));
        }
        if padding.iter().any(|byte| *byte != 0) {
            return wrong("its padding is not zero");
        }
        let bytes32 = |at: usize| <[u8; 32]>::try_from(&sealed[at..at + 32]).expect("32 bytes");
        let checksum = match word(sealed, 128) {
            0 => None,
            1 => Some(long(sealed, 136)),
            kind => return Err(Flaw::Wrong(format!("it has a checksum of unknown kind {kind}"))),
        };
        Ok(Self {
            key: PageKey::new(bytes32(24)),
            parent: (word(sealed, 12) & HAS_PARENT != 0).then(|| PageKey::new(bytes32(56))),
            namespace: Digest::new(bytes32(88)),
            layout: long(sealed, 144),
            payload_len: long(sealed, 16),
            written_ms: long(sealed, 120),
            checksum,
        })
    }

    /// Whether it is the trailer of that page.
    pub(crate) fn check(&self, namespace: &Namespace, key: &PageKey) -> Result<(), Flaw> {
        let wrong = |why: String| Err(Flaw::Wrong(why));
        if self.key != *key {
            return wrong(format!("it holds another key, {}", self.key));
        }
        if self.namespace != namespace.digest() {
            return wrong(format!("it holds a page of another namespace, {}", self.namespace));
        }
        let payload_len = namespace.layout().page_len();
        if self.layout != namespace.layout().mark() {
            return Err(Flaw::Foreign);
        }
        if self.payload_len != payload_len as u64 {
            return wrong(format!("it holds {} bytes; the layout has {payload_len}", self.payload_len));
        }
        Ok(())
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// The checksum that a page's file carries: CRC-64/NVME over its bytes, piece by piece.
pub fn checksum(page: &Page) -> u64 {
    Checksum::of(page)
}
