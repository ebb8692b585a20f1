//! Page layouts: geometry and order, and the strides they give.

use crate::{Alignment, Capabilities, Checksum, Error, ErrorKind, Result, Strides};

mod convert;
mod element;
mod geometry;
mod heads;
mod text;

pub use element::{Element, LayerView};
pub use geometry::{DType, Geometry, PageOrder};
pub use heads::HeadRange;

use geometry::Axes;

/// Geometry and order, and what follows from them. The only place that computes a page's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageLayout {
    geometry: Geometry,
    order: PageOrder,
    planes: u32,
    piece_len: usize,
    mark: u64,
}

impl PageLayout {
    /// Works out the planes and piece length of `geometry` in `order`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] naming the dimension that is zero, or when sizes overflow.
    pub fn new(geometry: Geometry, order: PageOrder) -> Result<Self> {
        let invalid = |why: String| Error::new(ErrorKind::InvalidConfig, "lay out page").why(why);
        for (name, value) in geometry.dimensions() {
            if value == 0 {
                return Err(invalid(format!("{name} is 0; a page has at least one")));
            }
        }
        let overflow = || invalid("the page's size overflows".to_string());
        let Axes { tensors, layers, tokens, heads, dim, element_len } =
            geometry.axes().ok_or_else(overflow)?;
        let times = |len: usize, count: u32| len.checked_mul(count as usize);
        let layer_len = times(element_len, tokens).and_then(|len| times(len, heads));
        let layer_len = layer_len.and_then(|len| len.checked_mul(dim)).ok_or_else(overflow)?;
        let (planes, piece_len) = match order {
            PageOrder::LayerFirst => (layers.checked_mul(tensors), Some(layer_len)),
            _ => (Some(tensors), times(layer_len, layers)),
        };
        let planes = planes.ok_or_else(overflow)?;
        let piece_len = piece_len.ok_or_else(overflow)?;
        piece_len
            .checked_mul(planes as usize)
            .filter(|len| *len <= isize::MAX as usize)
            .ok_or_else(overflow)?;
        let mut layout = Self { geometry, order, planes, piece_len, mark: 0 };
        layout.mark = Checksum::of_bytes(layout.to_string().as_bytes());
        Ok(layout)
    }

    /// One piece of `len` bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] when `len` is 0.
    pub fn opaque(len: usize) -> Result<Self> {
        Self::new(Geometry::Opaque { len }, PageOrder::PageFirst)
    }

    /// K and V of different head dimensions, as two layouts for two pools of one chain: K's and V's.
    ///
    /// # Errors
    ///
    /// As [`PageLayout::new`].
    pub fn split_kv(
        [layers, tokens, heads]: [u32; 3],
        [k_dim, v_dim]: [u32; 2],
        dtype: DType,
        order: PageOrder,
    ) -> Result<[Self; 2]> {
        let half = |head_dim| Self::new(Geometry::HalfMha { layers, tokens, heads, head_dim, dtype }, order);
        Ok([half(k_dim)?, half(v_dim)?])
    }

    /// The geometry.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The order.
    pub fn order(&self) -> PageOrder {
        self.order
    }

    /// Pieces in a page.
    pub fn planes(&self) -> u32 {
        self.planes
    }

    /// Bytes of a piece.
    pub fn piece_len(&self) -> usize {
        self.piece_len
    }

    /// Bytes of a page: all its pieces.
    pub fn page_len(&self) -> usize {
        self.planes as usize * self.piece_len
    }

    /// What tells this layout from others where a page is stored: the checksum of its text. Equal lengths may have
    /// other orders.
    pub fn mark(&self) -> u64 {
        self.mark
    }

    /// Whether every piece of an unpadded pool of such pages starts and ends at a multiple of `alignment`, in a
    /// region that starts at one: then direct I/O moves them as they are, and else through aligned slots. Which
    /// alignment the device wants is told by [`Capabilities::alignment`](crate::Capabilities::alignment).
    ///
    /// SGLang HiCache's method of this name also says no to `layer_first`, whatever its lengths, since it wants
    /// one buffer a tensor; here a page of many pieces is one vectored call.
    pub fn is_stride_page_aligned(&self, alignment: Alignment) -> bool {
        alignment.is_aligned(self.piece_len)
    }

    /// Strides of `slots` pages of this layout, each piece padded to start on `alignment`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] when there are no slots, or the total overflows.
    pub fn strides(&self, slots: u32, alignment: Alignment) -> Result<Strides> {
        Ok(Strides::new(self.planes, slots, self.piece_len, alignment)?)
    }

    /// Strides of `slots` pages as a backend wants them: of its alignment, and with its room where that makes the pool
    /// larger by no more than an eighth.
    ///
    /// # Errors
    ///
    /// As [`PageLayout::strides`].
    pub fn strides_for(&self, slots: u32, wanted: &Capabilities) -> Result<Strides> {
        let fits = wanted.room <= self.piece_len / 8;
        let room = if fits { wanted.room } else { 0 };
        Ok(Strides::with_room(self.planes, slots, self.piece_len, wanted.alignment, room)?)
    }
}
