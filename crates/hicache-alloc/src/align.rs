//! Power-of-two alignment: the only place that rounds or masks.

/// A power-of-two alignment in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Alignment(usize);

impl Alignment {
    /// One byte: no requirement.
    pub const NONE: Self = Self(1);

    /// `bytes` as an alignment, or `None` unless it is a power of two.
    pub const fn new(bytes: usize) -> Option<Self> {
        if bytes.is_power_of_two() { Some(Self(bytes)) } else { None }
    }

    /// The base page of this machine, as the kernel tells it.
    ///
    /// # Panics
    ///
    /// If the kernel tells a page size that is no power of two, which no kernel does.
    pub fn base_page() -> Self {
        Self::new(rustix::param::page_size()).expect("the base page size is a power of two")
    }

    /// The alignment in bytes.
    pub const fn bytes(self) -> usize {
        self.0
    }

    /// Whether `value` is a multiple of this alignment.
    pub const fn is_aligned(self, value: usize) -> bool {
        value & (self.0 - 1) == 0
    }

    /// The smallest multiple that is not below `value`, or `None` if it does not fit a `usize`.
    pub const fn align_up(self, value: usize) -> Option<usize> {
        match value.checked_add(self.0 - 1) {
            Some(sum) => Some(self.align_down(sum)),
            None => None,
        }
    }

    /// The largest multiple that is not above `value`.
    pub const fn align_down(self, value: usize) -> usize {
        value & !(self.0 - 1)
    }
}
