//! Names of pages: the hash chain over tokens.
//!
//! The formula is SGLang HiCache's, so that keys made by either side are equal: the digest of a page is
//! `SHA256(parent's 32 bytes, if any ‖ 0xFF if wide ‖ tokens)`, where a narrow page (every token below 2^32)
//! writes its tokens as `u32` and a wide one as `u64`, both little-endian. A unit of several words writes them in turn.

use crate::{Error, ErrorKind, Result};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

/// A page's content hash: of its tokens and of every token before them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageKey([u8; 32]);

/// What one unit of a page is, when keys are made of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyUnits {
    /// One token.
    #[default]
    Token,
    /// A token and the one after it, as speculative decoding (EAGLE) keys its pages: `n` units read `n + 1`
    /// tokens, and neighbouring pages share the boundary token.
    Bigram,
    /// So many words, none shared: tokens that are tuples. `n` units read `n` times as many words.
    Tuple(NonZeroUsize),
}

impl PageKey {
    /// Wraps a digest.
    pub const fn new(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// The digest.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key of one page, whole or partial, after `parent`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] for a token above 2^63 - 1 (it was a negative number), and for words that end
    /// within a tuple.
    pub fn of_page(parent: Option<&Self>, tokens: &[u64], units: KeyUnits) -> Result<Self> {
        if let Some(token) = tokens.iter().find(|token| **token > i64::MAX as u64) {
            return Err(Error::new(ErrorKind::InvalidArgument, "hash page")
                .why("a token id is negative or above 2^63 - 1")
                .with("token", *token as i64));
        }
        if let KeyUnits::Tuple(width) = units
            && !tokens.len().is_multiple_of(width.get())
        {
            return Err(Error::new(ErrorKind::InvalidArgument, "hash page")
                .why("the words end within a tuple")
                .with("words", tokens.len())
                .with("width", width));
        }
        let wide = tokens.iter().any(|token| *token > u64::from(u32::MAX));
        let mut hasher = Sha256::new();
        if let Some(parent) = parent {
            hasher.update(parent.0);
        }
        if wide {
            hasher.update([0xFF]);
        }
        let mut word = |token: u64| {
            let bytes = token.to_le_bytes();
            hasher.update(if wide { &bytes[..] } else { &bytes[..4] });
        };
        match units {
            KeyUnits::Token | KeyUnits::Tuple(_) => tokens.iter().for_each(|token| word(*token)),
            KeyUnits::Bigram => tokens.windows(2).for_each(|pair| {
                word(pair[0]);
                word(pair[1]);
            }),
        }
        Ok(Self(hasher.finalize().into()))
    }

    /// The key as the events of inference engines name it: the first 8 bytes, the first 16 hexadecimal digits, as a
    /// signed number.
    pub fn event_hash(&self) -> i64 {
        let [first, ..] = self.0.as_chunks().0 else { unreachable!("a digest has 32 bytes") };
        i64::from_be_bytes(*first)
    }

    /// The keys of all whole pages of `page_len` units in `tokens`, after `parent`. A trailing partial page
    /// has no key.
    ///
    /// # Errors
    ///
    /// As [`PageKey::of_page`].
    pub fn of_pages(
        parent: Option<Self>,
        tokens: &[u64],
        page_len: NonZeroUsize,
        units: KeyUnits,
    ) -> Result<Vec<Self>> {
        let (width, overlap) = match units {
            KeyUnits::Token => (1, 0),
            KeyUnits::Bigram => (1, 1),
            KeyUnits::Tuple(width) => (width.get(), 0),
        };
        // A page of more words than there are addresses is longer than any list of tokens.
        let page_len = page_len.get().saturating_mul(width);
        let pages = tokens.len().saturating_sub(overlap) / page_len;
        let mut keys = Vec::with_capacity(pages);
        let mut parent = parent;
        for page in 0..pages {
            let start = page * page_len;
            let key = Self::of_page(parent.as_ref(), &tokens[start..start + page_len + overlap], units)?;
            keys.push(key);
            parent = Some(key);
        }
        Ok(keys)
    }
}

/// The parent of a first page when an extra key (a LoRA adapter, say) or a cache salt separates tenants; `None`
/// when there is neither. `SHA256("sglang-cache-namespace-v1" ‖ part(extra_key) ‖ part(cache_salt))` with
/// `part(None) = 0x00` and `part(s) = 0x01 ‖ u64le(len) ‖ s`.
pub fn namespace_seed(extra_key: Option<&str>, cache_salt: Option<&str>) -> Option<PageKey> {
    if extra_key.is_none() && cache_salt.is_none() {
        return None;
    }
    let mut hasher = Sha256::new();
    hasher.update(b"sglang-cache-namespace-v1");
    for part in [extra_key, cache_salt] {
        match part {
            None => hasher.update([0]),
            Some(text) => {
                hasher.update([1]);
                hasher.update((text.len() as u64).to_le_bytes());
                hasher.update(text);
            }
        }
    }
    Some(PageKey(hasher.finalize().into()))
}

/// At once, since stores make a path of every key.
pub(crate) fn write_hex(bytes: &[u8; 32], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; 64];
    for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    f.write_str(str::from_utf8(&text).expect("digits"))
}

pub(crate) fn parse_hex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let high = (pair[0] as char).to_digit(16)?;
        let low = (pair[1] as char).to_digit(16)?;
        *byte = (high << 4 | low) as u8;
    }
    Some(bytes)
}

impl fmt::Display for PageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for PageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageKey({self})")
    }
}

impl FromStr for PageKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse_hex(text).map(Self).ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, "parse key")
                .why("a key is 64 hexadecimal digits")
                .with("characters", text.chars().count())
                .with("key", text)
        })
    }
}
