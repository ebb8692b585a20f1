//! The contents of a page, a fast function of its key: made, and compared.

use hicache::{Page, PageKey, PageMut};

/// A page's bytes come in blocks of this length; the last may be shorter. Each opens with a word of its own.
const BLOCK_LEN: usize = 4096;
/// Noise that blocks take their bytes from, in bytes.
const NOISE_LEN: usize = 256 << 10;
const WORD_LEN: usize = size_of::<u64>();
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Makes and compares contents. A block is its word, which no other block of any key has but by chance, and then a
/// stretch of noise that the word chooses: pages that were exchanged, moved or cut are told from their own.
#[derive(Debug)]
pub(crate) struct Workload {
    noise: Box<[u8]>,
}

impl Workload {
    /// The same on every machine and in every run.
    pub(crate) fn new() -> Self {
        let words = (1..=(NOISE_LEN / WORD_LEN) as u64)
            .flat_map(|index| mix(index.wrapping_mul(GOLDEN)).to_le_bytes());
        Self { noise: words.collect() }
    }

    /// Writes the contents of `key`.
    pub(crate) fn fill(&self, key: &PageKey, page: &mut PageMut) {
        let mut number = 0;
        for plane in 0..page.planes() {
            let mut piece = page.piece_mut(plane);
            for start in (0..piece.len()).step_by(BLOCK_LEN) {
                let (word, noise) = self.block(key, number, BLOCK_LEN.min(piece.len() - start));
                let head = WORD_LEN.min(piece.len() - start);
                piece.copy_from(start, &word[..head]);
                piece.copy_from(start + head, noise);
                number += 1;
            }
        }
    }

    /// Whether a page has the contents of `key`.
    pub(crate) fn matches(&self, key: &PageKey, page: &Page) -> bool {
        let mut number = 0;
        let mut is_next = |block: &[u8]| {
            let (word, noise) = self.block(key, number, block.len());
            let (head, tail) = block.split_at(WORD_LEN.min(block.len()));
            number += 1;
            head == &word[..head.len()] && tail == noise
        };
        (0..page.planes()).all(|plane| match page.bytes(plane) {
            Some(bytes) => bytes.chunks(BLOCK_LEN).all(&mut is_next),
            // Memory that others can map is read by copies only.
            None => {
                let (piece, mut block) = (page.piece(plane), [0; BLOCK_LEN]);
                (0..piece.len()).step_by(BLOCK_LEN).all(|start| {
                    let block = &mut block[..BLOCK_LEN.min(piece.len() - start)];
                    piece.copy_to(start, block);
                    is_next(block)
                })
            }
        })
    }

    /// The word and the noise of the block of that number in a page.
    fn block(&self, key: &PageKey, number: u64, len: usize) -> ([u8; WORD_LEN], &[u8]) {
        let (seed, _) = key.as_bytes().split_first_chunk().expect("a key has 32 bytes");
        let word = mix(u64::from_le_bytes(*seed) ^ number.wrapping_mul(GOLDEN));
        let start = (word >> 32) as usize % (NOISE_LEN - BLOCK_LEN) / WORD_LEN * WORD_LEN;
        (word.to_le_bytes(), &self.noise[start..start + len.saturating_sub(WORD_LEN)])
    }
}

/// Writes random bytes, other ones for every `seed`: no device or file system can store them in less.
pub(crate) fn randomise(page: &mut PageMut, seed: u64) {
    let mut block = [0; BLOCK_LEN];
    let mut state = mix(seed.wrapping_add(GOLDEN));
    for plane in 0..page.planes() {
        let mut piece = page.piece_mut(plane);
        for at in (0..piece.len()).step_by(BLOCK_LEN) {
            for word in block.chunks_exact_mut(WORD_LEN) {
                state = state.wrapping_add(GOLDEN);
                word.copy_from_slice(&mix(state).to_le_bytes());
            }
            let len = BLOCK_LEN.min(piece.len() - at);
            piece.copy_from(at, &block[..len]);
        }
    }
}

/// The output function of splitmix64, a permutation of the words.
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hicache::{HostPool, RegionSpec, Strides};

    fn pool(planes: u32, len: usize) -> HostPool {
        let strides = Strides::new(planes, 2, len, hicache::Alignment::NONE).unwrap();
        let region = RegionSpec { len: strides.region_len(), ..Default::default() }.map().unwrap();
        HostPool::new(region, strides, &[]).unwrap()
    }

    #[test]
    fn any_flipped_bit_another_key_or_an_exchanged_piece_is_told() {
        let workload = Workload::new();
        let (key, other) = (PageKey::new([1; 32]), PageKey::new([2; 32]));
        for len in [1, 7, 8, 9, 4096, 4097, 10_000] {
            let pool = pool(2, len);
            let filled = |edit: &dyn Fn(&mut PageMut)| {
                let mut page = pool.alloc(1).unwrap().remove(0);
                workload.fill(&key, &mut page);
                edit(&mut page);
                page.freeze()
            };
            assert!(workload.matches(&key, &filled(&|_| ())), "{len}");
            assert!(!workload.matches(&other, &filled(&|_| ())), "{len}");
            for at in [0, len / 2, len - 1] {
                assert!(
                    !workload.matches(&key, &filled(&|page| page.bytes_mut(1).unwrap()[at] ^= 1)),
                    "{len}"
                );
            }
            if len >= 8 {
                let first_twice = |page: &mut PageMut| {
                    let first = page.bytes_mut(0).unwrap().to_vec();
                    page.piece_mut(1).copy_from(0, &first);
                };
                assert!(!workload.matches(&key, &filled(&first_twice)), "{len}");
            }
        }
    }

    #[test]
    fn memory_that_others_can_map_is_filled_and_compared_too() {
        let workload = Workload::new();
        let (key, other) = (PageKey::new([1; 32]), PageKey::new([2; 32]));
        for len in [1, 7, 8, 9, 4096, 4097, 10_000] {
            let strides = Strides::new(2, 2, len, hicache::Alignment::NONE).unwrap();
            let backing = hicache::AllocatorType::Shm.backing();
            let spec = RegionSpec { len: strides.region_len(), backing, ..RegionSpec::default() };
            let pool = HostPool::new(spec.map().unwrap(), strides, &[]).unwrap();
            let filled = |at: Option<usize>| {
                let mut page = pool.alloc(1).unwrap().remove(0);
                assert!(page.bytes_mut(0).is_none(), "no reference to memory that others write");
                workload.fill(&key, &mut page);
                if let Some(at) = at {
                    let mut byte = [0];
                    page.piece(1).copy_to(at, &mut byte);
                    page.piece_mut(1).copy_from(at, &[byte[0] ^ 1]);
                }
                page.freeze()
            };
            assert!(
                workload.matches(&key, &filled(None)) && !workload.matches(&other, &filled(None)),
                "{len}"
            );
            for at in [0, len / 2, len - 1] {
                assert!(!workload.matches(&key, &filled(Some(at))), "{len} {at}");
            }
        }
    }
}
