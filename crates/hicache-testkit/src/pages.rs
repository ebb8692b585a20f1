//! Pools, keys and page contents for tests: every byte of a page follows from its namespace and its key.

use hicache_core::{
    Alignment, Backing, DType, Geometry, HostPool, HugePages, Namespace, Page, PageKey, PageLayout, PageMut,
    PageOrder, RegionSpec,
};
use std::ops::Range;

/// What pages are filled with before something is read into them, so that what was not read is found.
pub const STALE: u8 = 0xAA;

/// The `n`-th key of the tests. Keys spread evenly over all values.
pub fn key(n: u64) -> PageKey {
    let mut digest = [0; 32];
    for (word, bytes) in (0..).zip(digest.chunks_mut(8)) {
        bytes.copy_from_slice(&mix(mix(n) ^ word).to_le_bytes());
    }
    PageKey::new(digest)
}

/// The keys of `numbers`.
pub fn keys(numbers: Range<u64>) -> Vec<PageKey> {
    numbers.map(key).collect()
}

/// What the bytes of the page `key` in `namespace` are made from.
pub fn seed(namespace: &Namespace, key: &PageKey) -> u64 {
    let first = |bytes: &[u8; 32]| bytes.iter().fold(0_u64, |hash, byte| mix(hash ^ u64::from(*byte)));
    first(namespace.digest().as_bytes()) ^ first(key.as_bytes()).rotate_left(1)
}

/// A pool of `slots` pages of `layout` on base pages.
///
/// # Panics
///
/// If the machine has not the memory.
pub fn pool(layout: &PageLayout, slots: u32, alignment: Alignment, backing: Backing) -> HostPool {
    let strides = layout.strides(slots, alignment).expect("a layout of the tests has strides");
    let spec =
        RegionSpec { len: strides.region_len(), backing, huge_pages: HugePages::Off, ..Default::default() };
    let region = spec.map().expect("a pool of the tests fits the machine");
    HostPool::new(region, strides, &[]).expect("the region was made for these strides")
}

/// Fills a page: the bytes run on over its pieces, so that none of them can stand in for another.
pub fn fill(page: &mut PageMut, seed: u64) {
    let mut bytes = Bytes::new(seed);
    for plane in 0..page.planes() {
        let mut piece = page.piece_mut(plane);
        let content = bytes.take(piece.len());
        piece.copy_from(0, &content);
    }
}

/// Overwrites a page with [`STALE`].
pub fn spoil(page: &mut PageMut) {
    for plane in 0..page.planes() {
        let mut piece = page.piece_mut(plane);
        piece.copy_from(0, &vec![STALE; piece.len()]);
    }
}

/// Whether every byte is what [`fill`] wrote.
pub fn matches(page: &Page, seed: u64) -> bool {
    difference(page, seed).is_none()
}

/// The first byte that [`fill`] did not write: its piece, and its place in the piece.
pub fn difference(page: &Page, seed: u64) -> Option<(u32, usize)> {
    let mut bytes = Bytes::new(seed);
    (0..page.planes()).find_map(|plane| {
        let piece = page.piece(plane);
        let mut content = vec![0; piece.len()];
        piece.copy_to(0, &mut content);
        let wanted = bytes.take(content.len());
        if content == wanted {
            return None;
        }
        content.iter().zip(&wanted).position(|(is, want)| is != want).map(|place| (plane, place))
    })
}

/// Page layouts that tell stores apart: whole blocks and odd lengths, one piece and many, aligned and not. Each
/// with a name.
pub fn layouts() -> Vec<(String, PageLayout)> {
    let lens = [65_536, 1, 511, 513, 4_095, 4_097, 65_535, 515_328];
    let opaque = lens.map(|len| (format!("opaque {len}"), opaque(len)));
    let named = [("two planes", two_planes()), ("many pieces", many_pieces()), ("latent", latent())];
    opaque.into_iter().chain(named.map(|(name, layout)| (name.to_owned(), layout))).collect()
}

/// One piece of `len` bytes.
///
/// # Panics
///
/// If `len` is 0.
pub fn opaque(len: usize) -> PageLayout {
    PageLayout::opaque(len).expect("a page has bytes")
}

/// K and V, each one piece of 32 KiB.
pub fn two_planes() -> PageLayout {
    attention(4, 64, PageOrder::PageFirst)
}

/// K and V of each of 3 layers: six pieces of 1,776 bytes, none of them aligned to anything that a device wants.
pub fn many_pieces() -> PageLayout {
    attention(3, 37, PageOrder::LayerFirst)
}

/// One latent plane of 9,216 bytes.
pub fn latent() -> PageLayout {
    let geometry = Geometry::Mla { layers: 2, tokens: 4, latent_dim: 576, dtype: DType::Bf16 };
    PageLayout::new(geometry, PageOrder::PageFirst).expect("no dimension is 0")
}

fn attention(layers: u32, head_dim: u32, order: PageOrder) -> PageLayout {
    let (tokens, heads) = if head_dim == 64 { (32, 2) } else { (12, 2) };
    let geometry = Geometry::Mha { layers, tokens, heads, head_dim, dtype: DType::Bf16 };
    PageLayout::new(geometry, order).expect("no dimension is 0")
}

/// An endless run of bytes from a seed.
struct Bytes {
    state: u64,
    rest: Vec<u8>,
}

impl Bytes {
    fn new(seed: u64) -> Self {
        Self { state: seed, rest: Vec::new() }
    }

    fn take(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.rest);
        bytes.reserve(len + 8);
        while bytes.len() < len {
            self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            bytes.extend_from_slice(&mix(self.state).to_le_bytes());
        }
        self.rest = bytes.split_off(len);
        bytes
    }
}

/// The finaliser of SplitMix64.
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}
