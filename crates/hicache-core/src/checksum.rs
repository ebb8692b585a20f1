//! The checksum of pages and records: CRC-64/NVME.

use crate::Page;
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

    /// Of `before` and then `after`, of which there were `after_len` bytes, each begun anew.
    pub fn joined(before: u64, after: u64, after_len: u64) -> u64 {
        crc_fast::checksum_combine(Crc64Nvme, before, after, after_len)
    }

    /// Of a page, piece by piece. Memory that others may write is copied out first, a little at a time: no reference
    /// to it may exist.
    pub fn of(page: &Page) -> u64 {
        Self::over(page).finish()
    }

    /// As [`Checksum::of`], to be gone on with.
    pub fn over(page: &Page) -> Self {
        let mut checksum = Self::new();
        let mut copy = [0; COPY_LEN];
        for plane in 0..page.planes() {
            if let Some(bytes) = page.bytes(plane) {
                checksum.add(bytes);
                continue;
            }
            let piece = page.piece(plane);
            for at in (0..piece.len()).step_by(COPY_LEN) {
                let part = &mut copy[..COPY_LEN.min(piece.len() - at)];
                piece.copy_to(at, part);
                checksum.add(part);
            }
        }
        checksum
    }
}

impl Default for Checksum {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_parts_join_to_that_of_the_whole_wherever_it_is_cut() {
        let bytes: Vec<u8> = (0..1000_u32).map(|n| ((n * n) >> 3) as u8).collect();
        for cut in [0, 1, 7, 8, 255, 256, 999, 1000] {
            let (before, after) = bytes.split_at(cut);
            let joined =
                Checksum::joined(Checksum::of_bytes(before), Checksum::of_bytes(after), after.len() as u64);
            assert_eq!(joined, Checksum::of_bytes(&bytes), "{cut}");
        }
    }
}
