//! Where the pieces of a slot lie: every page layout comes down to these numbers.

use crate::{Alignment, AllocError};
use std::ops::Range;

/// A slot's number in its pool, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageIndex(u32);

/// `planes` x `slots` pieces of `slot_len` bytes: piece `(i, p)` starts at `p * plane_stride + i * slot_stride`.
///
/// No two pieces overlap, and all of them lie in the first [`Strides::region_len`] bytes, which fit an `isize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Strides {
    planes: u32,
    slots: u32,
    slot_len: usize,
    slot_stride: usize,
    plane_stride: usize,
    room: usize,
    region_len: usize,
}

impl PageIndex {
    /// The slot with this number.
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl Strides {
    /// Plane after plane of `slots` slots, each piece `slot_len` bytes and padded up to `alignment`. The padding of
    /// the last piece belongs to the region too.
    ///
    /// # Errors
    ///
    /// [`AllocError::InvalidShape`] if a count or the length is zero, or if the whole does not fit an `isize`.
    pub fn new(planes: u32, slots: u32, slot_len: usize, alignment: Alignment) -> Result<Self, AllocError> {
        Self::with_room(planes, slots, slot_len, alignment, 0)
    }

    /// As [`Strides::new`], with `room` bytes after every piece that belong to its slot. What follows the last piece is
    /// at the disposal of whoever moves the page ([`PageMut::room_mut`](crate::PageMut::room_mut)).
    ///
    /// # Errors
    ///
    /// As [`Strides::new`].
    pub fn with_room(
        planes: u32,
        slots: u32,
        slot_len: usize,
        alignment: Alignment,
        room: usize,
    ) -> Result<Self, AllocError> {
        check_not_zero(planes, slots, slot_len)?;
        let sizes = || {
            let slot_stride = alignment.align_up(slot_len.checked_add(room)?)?;
            let plane_stride = slot_stride.checked_mul(slots as usize)?;
            let region_len = fits(plane_stride.checked_mul(planes as usize)?)?;
            Some((slot_stride, plane_stride, region_len))
        };
        let (slot_stride, plane_stride, region_len) =
            sizes().ok_or_else(|| too_large(planes, slots, slot_len))?;
        Ok(Self { planes, slots, slot_len, slot_stride, plane_stride, room, region_len })
    }

    /// Distances that come from outside, where nothing between the pieces belongs to the slots.
    ///
    /// Either the planes lie one after another and each holds all slots, or the
    /// slots lie one after another and each holds all planes. A stride that is never used (one slot, one plane) may
    /// be anything. The region ends with the last piece.
    ///
    /// # Errors
    ///
    /// [`AllocError::InvalidShape`] as for [`Strides::new`], and if pieces overlap or interleave in another way.
    pub fn with_stride(
        planes: u32,
        slots: u32,
        slot_len: usize,
        slot_stride: usize,
        plane_stride: usize,
    ) -> Result<Self, AllocError> {
        check_not_zero(planes, slots, slot_len)?;
        let sizes = || {
            let slots_span = slot_stride.checked_mul(slots as usize - 1)?;
            let planes_span = plane_stride.checked_mul(planes as usize - 1)?;
            let region_len = fits(slots_span.checked_add(planes_span)?.checked_add(slot_len)?)?;
            Some((slots_span, planes_span, region_len))
        };
        let (slots_span, planes_span, region_len) =
            sizes().ok_or_else(|| too_large(planes, slots, slot_len))?;
        let slots_apart = |inner: usize| slots == 1 || slot_stride >= inner + slot_len;
        let planes_apart = |inner: usize| planes == 1 || plane_stride >= inner + slot_len;
        let plane_by_plane = slots_apart(0) && planes_apart(slots_span);
        let slot_by_slot = planes_apart(0) && slots_apart(planes_span);
        if !plane_by_plane && !slot_by_slot {
            let what = format!(
                "pieces of {slot_len} bytes overlap: {slots} slots {slot_stride} bytes apart, {planes} planes \
                 {plane_stride} bytes apart"
            );
            return Err(AllocError::InvalidShape { what });
        }
        Ok(Self { planes, slots, slot_len, slot_stride, plane_stride, room: 0, region_len })
    }

    /// Pieces in a slot.
    pub fn planes(&self) -> u32 {
        self.planes
    }

    /// Number of slots.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Bytes in a piece, without padding.
    pub fn slot_len(&self) -> usize {
        self.slot_len
    }

    /// Bytes from a piece to the same plane's piece of the next slot.
    pub fn slot_stride(&self) -> usize {
        self.slot_stride
    }

    /// Bytes from a piece to the next plane's piece of the same slot.
    pub fn plane_stride(&self) -> usize {
        self.plane_stride
    }

    /// Bytes after a slot's last piece that belong to the slot and to no piece.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Bytes that a region must have.
    pub fn region_len(&self) -> usize {
        self.region_len
    }

    /// Bytes in a page: all its pieces, without padding.
    pub fn page_len(&self) -> usize {
        self.planes as usize * self.slot_len
    }

    /// The bytes of piece `plane` of slot `index`, from the start of the region.
    ///
    /// # Panics
    ///
    /// If there is no such slot or plane.
    pub fn piece(&self, index: PageIndex, plane: u32) -> Range<usize> {
        assert!(index.0 < self.slots, "no slot {} among {}", index.0, self.slots);
        assert!(plane < self.planes, "no plane {plane} among {}", self.planes);
        let start = plane as usize * self.plane_stride + index.0 as usize * self.slot_stride;
        start..start + self.slot_len
    }

    /// Whether the piece length and both strides are multiples of `alignment`. In a region whose address is one too,
    /// every piece then starts and ends at a multiple.
    pub fn is_aligned(&self, alignment: Alignment) -> bool {
        [self.slot_len, self.slot_stride, self.plane_stride]
            .into_iter()
            .all(|bytes| alignment.is_aligned(bytes))
    }
}

fn check_not_zero(planes: u32, slots: u32, slot_len: usize) -> Result<(), AllocError> {
    if planes != 0 && slots != 0 && slot_len != 0 {
        return Ok(());
    }
    let what = format!("{planes} planes, {slots} slots, {slot_len} bytes; none of them may be 0");
    Err(AllocError::InvalidShape { what })
}

fn fits(len: usize) -> Option<usize> {
    isize::try_from(len).is_ok().then_some(len)
}

fn too_large(planes: u32, slots: u32, slot_len: usize) -> AllocError {
    let what = format!("{planes} planes of {slots} slots of {slot_len} bytes do not fit an address space");
    AllocError::InvalidShape { what }
}
