//! What stands behind a page's bytes in its object: their checksum, made while they were sent.
//!
//! ```text
//! 0           page_len      + 64
//! | page ..... | tail ...... |
//! ```
//!
//! All numbers are little-endian.
//!
//! | offset | bytes | what |
//! | ---: | ---: | --- |
//! | 0 | 8 | magic `HICACHET` |
//! | 8 | 4 | format version, 1 |
//! | 12 | 4 | checksum kind: 0 none, 1 CRC-64/NVME over the page |
//! | 16 | 8 | checksum; zero without one |
//! | 24 | 8 | bytes of the page |
//! | 32 | 8 | the `seal` of the object's metadata, which says what page it is |
//! | 40 | 16 | zeros, reserved |
//! | 56 | 8 | CRC-64/NVME over the bytes before |
//!
//! All of it is known to who has the metadata and the page's bytes: a tail is right when it is that, bit by bit.

use crate::facts::Flaw;
use hicache_core::Checksum;

/// Bytes of a tail.
pub(crate) const LEN: usize = 64;

/// Bytes of an object that holds a page of `page_len` bytes and its tail.
pub(crate) fn stored_len(page_len: u64) -> u64 {
    page_len + LEN as u64
}

const MAGIC: &[u8; 8] = b"HICACHET";
const VERSION: u32 = 1;

/// Where the parts lie that tell one tail from another.
const METADATA_AT: usize = 32;
const SEAL_AT: usize = LEN - 8;

/// What a tail says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) page_len: u64,
    /// [`Facts::seal`](crate::facts::Facts::seal) of the metadata that it goes with.
    pub(crate) metadata: u64,
    /// CRC-64/NVME over the page; `None` when it was written without.
    pub(crate) checksum: Option<u64>,
}

impl Tail {
    pub(crate) fn encode(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        let (sealed, seal) = bytes.split_at_mut(SEAL_AT);
        let mut put = |at: usize, bytes: &[u8]| sealed[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, MAGIC);
        put(8, &VERSION.to_le_bytes());
        if let Some(checksum) = self.checksum {
            put(12, &1u32.to_le_bytes());
            put(16, &checksum.to_le_bytes());
        }
        put(24, &self.page_len.to_le_bytes());
        put(METADATA_AT, &self.metadata.to_le_bytes());
        seal.copy_from_slice(&Checksum::of_bytes(sealed).to_le_bytes());
        bytes
    }

    /// Whether `bytes` are this tail, which was made from what has come.
    pub(crate) fn check(&self, bytes: &[u8; LEN]) -> Result<(), Flaw> {
        let expected = self.encode();
        if *bytes == expected {
            return Ok(());
        }
        let (sealed, seal) = bytes.split_at(SEAL_AT);
        let why = if !sealed.starts_with(MAGIC) {
            "no tail of ours stands behind it"
        } else if Checksum::of_bytes(sealed).to_le_bytes() != seal {
            "its tail fails its checksum"
        } else if sealed[METADATA_AT..METADATA_AT + 8] != expected[METADATA_AT..METADATA_AT + 8] {
            "its tail is that of another page"
        } else if sealed[16..24] != expected[16..24] {
            "its bytes fail their checksum"
        } else {
            "its tail is not what its metadata says"
        };
        Err(Flaw::Wrong(why.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAIL: Tail = Tail { page_len: 5, metadata: 6, checksum: Some(7) };

    #[test]
    fn a_changed_bit_is_never_believed() {
        for tail in [TAIL, Tail { checksum: None, ..TAIL }] {
            let bytes = tail.encode();
            assert_eq!(tail.check(&bytes), Ok(()));
            for bit in 0..8 * LEN {
                let mut changed = bytes;
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(tail.check(&changed).is_err(), "bit {bit}");
            }
        }
    }

    #[test]
    fn a_sound_tail_of_something_else_is_told_apart() {
        for (other, told) in [
            (Tail { metadata: 9, ..TAIL }, "another page"),
            (Tail { checksum: Some(9), ..TAIL }, "its bytes fail their checksum"),
            (Tail { checksum: None, ..TAIL }, "its bytes fail their checksum"),
            (Tail { page_len: 9, ..TAIL }, "not what its metadata says"),
        ] {
            let flaw = TAIL.check(&other.encode()).unwrap_err();
            assert!(flaw.to_string().contains(told), "{flaw}");
        }
        assert!(TAIL.check(&[0; LEN]).unwrap_err().to_string().contains("no tail"));
    }
}
