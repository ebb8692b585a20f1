//! The prefixes of a key chain that can be restored whole: a set, since pools with a window leave gaps in it.

use std::fmt;

const WORD_BITS: usize = u64::BITS as usize;

/// Prefix lengths, in pages, that every pool asked can restore. Length 0 restores nothing and is always in it.
///
/// Ranks of one deployment agree by [`Restorable::intersect`], never by the minimum of their longest: with a pool
/// that keeps a trailing window, the minimum may be a length that no rank can restore.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Restorable {
    /// Bit `p - 1` stands for length `p`. The last word is not 0, so that equal sets are equal values.
    words: Vec<u64>,
}

impl Restorable {
    /// Lengths 1 to `pages`: what a pool restores that needs every page of a prefix.
    pub fn up_to(pages: usize) -> Self {
        (1..=pages).collect()
    }

    /// Nothing but length 0.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// How many lengths there are besides 0.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether a prefix of `pages` pages can be restored.
    pub fn contains(&self, pages: usize) -> bool {
        let Some(bit) = pages.checked_sub(1) else { return true };
        self.words.get(bit / WORD_BITS).is_some_and(|word| word >> (bit % WORD_BITS) & 1 == 1)
    }

    /// The longest, 0 where there is none.
    pub fn longest(&self) -> usize {
        let Some(last) = self.words.last() else { return 0 };
        self.words.len() * WORD_BITS - last.leading_zeros() as usize
    }

    /// The lengths besides 0, shortest first.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (1..=self.longest()).filter(|pages| self.contains(*pages))
    }

    /// What both can restore: of two pools, or of two ranks.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        Self::trimmed(self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect())
    }

    /// Flags for a reduction over ranks, as SGLang HiCache makes them: `requested + 1`, flag `p` for length `p`,
    /// flag 0 always true. The element-wise minimum of the ranks' flags is their intersection.
    pub fn to_flags(&self, requested: usize) -> Vec<bool> {
        (0..=requested).map(|pages| self.contains(pages)).collect()
    }

    /// The set that flags stand for, as [`Restorable::to_flags`] makes them.
    pub fn from_flags(flags: &[bool]) -> Self {
        flags.iter().enumerate().filter(|(_, flag)| **flag).map(|(pages, _)| pages).collect()
    }

    fn trimmed(mut words: Vec<u64>) -> Self {
        while words.last() == Some(&0) {
            words.pop();
        }
        Self { words }
    }
}

/// Lengths in any order; 0 is in every set.
impl FromIterator<usize> for Restorable {
    fn from_iter<I: IntoIterator<Item = usize>>(lengths: I) -> Self {
        let mut words = Vec::new();
        for bit in lengths.into_iter().filter_map(|pages| pages.checked_sub(1)) {
            let word = bit / WORD_BITS;
            if words.len() <= word {
                words.resize(word + 1, 0);
            }
            words[word] |= 1 << (bit % WORD_BITS);
        }
        Self { words }
    }
}

impl fmt::Debug for Restorable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
