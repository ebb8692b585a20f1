//! The checksum of pages and records: CRC-64/NVME.

use crate::{Page, PageMut, Piece};
use crc_fast::CrcAlgorithm::Crc64Nvme;

const COPY_LEN: usize = 16 * 1024;

/// CRC-64/NVME (NVM Command Set Specification, section 5.2.1.3.4), fed in parts. S3 knows it as `CRC64NVME`.
#[derive(Debug)]
pub struct Checksum(crc_fast::Digest);

impl Checksum {
    /// Of nothing yet.
    pub fn new() -> Self {
        Self(crc_fast::Digest::new(Crc64Nvme))
    }

    /// Goes on with `bytes`.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Of all bytes so far.
    pub fn finish(&self) -> u64 {
        self.0.finalize()
    }

    /// Of some bytes.
    pub fn of_bytes(bytes: &[u8]) -> u64 {
        crc_fast::checksum(Crc64Nvme, bytes)
    }

    /// Of a page, piece by piece. Memory that others may write is copied out first, a little at a time: no reference
    /// to it may exist.
    pub fn of(page: &Page) -> u64 {
        Self::of_pieces((0..page.planes()).map(|plane| (page.bytes(plane), page.piece(plane))))
    }

    /// As [`Checksum::of`], of a page that may still be written.
    pub fn of_unfrozen(page: &PageMut) -> u64 {
        Self::of_pieces((0..page.planes()).map(|plane| (page.bytes(plane), page.piece(plane))))
    }

    fn of_pieces<'a>(pieces: impl Iterator<Item = (Option<&'a [u8]>, Piece<'a>)>) -> u64 {
        let mut checksum = Self::new();
        let mut copy = [0; COPY_LEN];
        for (bytes, piece) in pieces {
            if let Some(bytes) = bytes {
                checksum.add(bytes);
                continue;
            }
            for at in (0..piece.len()).step_by(COPY_LEN) {
                let part = &mut copy[..COPY_LEN.min(piece.len() - at)];
                piece.copy_to(at, part);
                checksum.add(part);
            }
        }
        checksum.finish()
    }
}

impl Default for Checksum {
    fn default() -> Self {
        Self::new()
    }
}
