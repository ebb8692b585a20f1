//! Huge page sizes and what to ask of them.

use crate::Alignment;
use std::fmt;
use std::str::FromStr;

/// A huge page size.
///
/// Its text is `2MiB` or `1GiB`. `2MB` and `1GB` are read as the same sizes, because SGLang writes them so and
/// means powers of two; upper and lower case are not told apart. Nothing else is a huge page size here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HugePageSize {
    /// 2 MiB.
    Size2M,
    /// 1 GiB.
    Size1G,
}

/// What to ask of the huge pages of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HugePages {
    /// Base pages only.
    Off,
    /// Reserved huge pages (hugetlb) if enough are free, else base pages and a [`Fallback`](crate::Fallback).
    /// Private memory then asks for transparent huge pages; [`Region::huge_len`](crate::Region::huge_len) says
    /// how many bytes got them.
    Prefer(HugePageSize),
    /// Reserved huge pages (hugetlb) or an error. Transparent huge pages do not count: the kernel may split them.
    Require(HugePageSize),
}

impl Default for HugePages {
    /// 2 MiB if they can be had: devices and copies are up to twice as fast on them.
    fn default() -> Self {
        Self::Prefer(HugePageSize::Size2M)
    }
}

/// A text that names no huge page size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no huge page size {given:?}: give 2MiB (or 2MB) or 1GiB (or 1GB), in upper or lower case")]
pub struct UnknownHugePageSize {
    /// The text.
    pub given: String,
}

impl HugePageSize {
    /// The size, which is also the alignment of every such page.
    pub const fn alignment(self) -> Alignment {
        match Alignment::new(1 << self.log2()) {
            Some(alignment) => alignment,
            None => unreachable!(),
        }
    }

    /// How the kernel takes the size: log2 of its bytes.
    pub(crate) const fn log2(self) -> u32 {
        match self {
            Self::Size2M => 21,
            Self::Size1G => 30,
        }
    }
}

impl fmt::Display for HugePageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Size2M => "2MiB",
            Self::Size1G => "1GiB",
        })
    }
}

impl FromStr for HugePageSize {
    type Err = UnknownHugePageSize;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_ascii_lowercase().as_str() {
            "2mib" | "2mb" => Ok(Self::Size2M),
            "1gib" | "1gb" => Ok(Self::Size1G),
            _ => Err(UnknownHugePageSize { given: text.to_owned() }),
        }
    }
}
