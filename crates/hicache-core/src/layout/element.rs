//! Where one element of a page lies: as a page has it, and as one layer of all pages has it.

use super::{Axes, PageLayout, PageOrder};
use crate::{Error, ErrorKind, PageIndex, Result, Strides};

/// One element of a page. What a geometry has only one of is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Element {
    /// 0 for K (or the only tensor), 1 for V.
    pub tensor: u32,
    /// Layer on this rank.
    pub layer: u32,
    /// Token in the page.
    pub token: u32,
    /// KV head on this rank.
    pub head: u32,
    /// Place in the vector; with bytes whose meaning is not known here, in the layer's bytes.
    pub dim: usize,
}

/// One layer of one tensor over all pages of a pool, as distances in bytes from the start of the pool's region: what
/// an attention kernel is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerView {
    /// From the start of the region to the layer's first element.
    pub start: usize,
    /// From a page to the next.
    pub page_stride: usize,
    /// From a token to the next of its page.
    pub token_stride: usize,
    /// From a head to the next.
    pub head_stride: usize,
    /// From an element of a vector to the next.
    pub dim_stride: usize,
}

/// Distances inside a piece, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steps {
    pub(super) layer: usize,
    pub(super) token: usize,
    pub(super) head: usize,
    pub(super) dim: usize,
}

impl PageLayout {
    /// The piece that holds `element`, and the element's first byte in it. In elements, with `L` layers, `P` tokens,
    /// `H` heads and `D` elements a head:
    ///
    /// | order | piece | place |
    /// | --- | --- | --- |
    /// | `layer_first` | `tensor * L + l` | `(t * H + h) * D + d` |
    /// | `page_first` | `tensor` | `((t * L + l) * H + h) * D + d` |
    /// | `page_first_direct` | `tensor` | `((l * P + t) * H + h) * D + d` |
    /// | `page_head` | `tensor` | `((h * P + t) * L + l) * D + d` |
    ///
    /// # Panics
    ///
    /// If the page has no such element.
    pub fn place(&self, element: Element) -> (u32, usize) {
        let axes = self.axes();
        let Element { tensor, layer, token, head, dim } = element;
        let inside = tensor < axes.tensors
            && layer < axes.layers
            && token < axes.tokens
            && head < axes.heads
            && dim < axes.dim;
        assert!(inside, "no {element:?} in a page of {self}");
        let steps = self.steps();
        let place = layer as usize * steps.layer
            + token as usize * steps.token
            + head as usize * steps.head
            + dim * steps.dim;
        (self.plane(tensor, layer), place)
    }

    /// One layer of one tensor over all pages of a pool with `strides`, padded or not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the pool's pages are not of this layout, or the page has no such layer.
    pub fn layer_view(&self, strides: &Strides, tensor: u32, layer: u32) -> Result<LayerView> {
        let refused =
            |why| Err(Error::new(ErrorKind::InvalidArgument, "view layer").why(why).with("layout", self));
        if (strides.planes(), strides.slot_len()) != (self.planes, self.piece_len) {
            return refused("the pool's pages are of another layout");
        }
        let axes = self.axes();
        if tensor >= axes.tensors || layer >= axes.layers {
            return refused("the page has no such layer");
        }
        let steps = self.steps();
        Ok(LayerView {
            start: self.plane(tensor, layer) as usize * strides.plane_stride() + layer as usize * steps.layer,
            page_stride: strides.slot_stride(),
            token_stride: steps.token,
            head_stride: steps.head,
            dim_stride: steps.dim,
        })
    }

    pub(super) fn axes(&self) -> Axes {
        self.geometry.axes().expect("a layout's sizes fit")
    }

    pub(super) fn plane(&self, tensor: u32, layer: u32) -> u32 {
        match self.order {
            PageOrder::LayerFirst => tensor * self.axes().layers + layer,
            _ => tensor,
        }
    }

    pub(super) fn steps(&self) -> Steps {
        let Axes { layers, tokens, heads, dim, element_len, .. } = self.axes();
        let [layers, tokens, heads] = [layers, tokens, heads].map(|count| count as usize);
        let vector = dim * element_len;
        let (layer, token, head) = match self.order {
            PageOrder::LayerFirst => (0, heads * vector, vector),
            PageOrder::PageFirst => (heads * vector, layers * heads * vector, vector),
            PageOrder::PageFirstDirect => (tokens * heads * vector, heads * vector, vector),
            PageOrder::PageHead => (vector, layers * vector, tokens * layers * vector),
        };
        Steps { layer, token, head, dim: element_len }
    }
}

impl LayerView {
    /// The first byte of an element, from the start of the region.
    pub fn offset(&self, page: PageIndex, token: u32, head: u32, dim: usize) -> usize {
        self.start
            + page.get() as usize * self.page_stride
            + token as usize * self.token_stride
            + head as usize * self.head_stride
            + dim * self.dim_stride
    }
}
