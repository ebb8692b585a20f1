//! A page's bytes: as one flat run, as pieces, and in another order.
//!
//! The flat run of a page is its pieces one after another, plane by plane. That is the tensor slice in C order, as
//! SGLang HiCache flattens it (`[2, L, P, H, D]` in `layer_first`, `[2, P, L, H, D]` in `page_first`, ...), and
//! what stores keep.

use super::{Axes, PageLayout, PageOrder};
use crate::{Error, ErrorKind, Result};

impl PageLayout {
    /// Rewrites a flat page of this layout as a flat page of `to`: same geometry, another order.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the geometries differ, or a length is not a page's. Then `into` is as it
    /// was.
    pub fn convert(&self, page: &[u8], to: &Self, into: &mut [u8]) -> Result<()> {
        if self.geometry != to.geometry {
            return Err(Error::new(ErrorKind::InvalidArgument, "convert page")
                .why("the layouts differ in more than their order")
                .with("from", self)
                .with("to", to));
        }
        self.check_len("convert page", page.len(), self.page_len())?;
        self.check_len("convert page", into.len(), to.page_len())?;
        if self.order == to.order {
            into.copy_from_slice(page);
            return Ok(());
        }
        let Axes { tensors, layers, tokens, heads, dim, element_len } = self.axes();
        let (from_steps, to_steps) = (self.steps(), to.steps());
        let vector = dim * element_len;
        // Heads that lie side by side in both move together.
        let together = if from_steps.head == vector && to_steps.head == vector { heads } else { 1 };
        let len = vector * together as usize;
        for tensor in 0..tensors {
            for layer in 0..layers {
                let start = |layout: &Self, step: usize| {
                    layout.plane(tensor, layer) as usize * layout.piece_len + layer as usize * step
                };
                let (from_start, to_start) = (start(self, from_steps.layer), start(to, to_steps.layer));
                for token in 0..tokens as usize {
                    for head in (0..heads).step_by(together as usize) {
                        let from = from_start + token * from_steps.token + head as usize * from_steps.head;
                        let at = to_start + token * to_steps.token + head as usize * to_steps.head;
                        into[at..at + len].copy_from_slice(&page[from..from + len]);
                    }
                }
            }
        }
        Ok(())
    }

    /// Copies a page's pieces, in the order of their planes, into a flat page.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when their number or a length is not the layout's. Then `flat` is as it was.
    pub fn flatten(&self, pieces: &[&[u8]], flat: &mut [u8]) -> Result<()> {
        self.check_pieces("flatten page", pieces.iter().map(|piece| piece.len()))?;
        self.check_len("flatten page", flat.len(), self.page_len())?;
        flat.chunks_exact_mut(self.piece_len).zip(pieces).for_each(|(at, piece)| at.copy_from_slice(piece));
        Ok(())
    }

    /// Copies a flat page into a page's pieces, in the order of their planes.
    ///
    /// # Errors
    ///
    /// As [`PageLayout::flatten`]. Then the pieces are as they were.
    pub fn unflatten(&self, flat: &[u8], pieces: &mut [&mut [u8]]) -> Result<()> {
        self.check_pieces("unflatten page", pieces.iter().map(|piece| piece.len()))?;
        self.check_len("unflatten page", flat.len(), self.page_len())?;
        flat.chunks_exact(self.piece_len).zip(pieces).for_each(|(from, piece)| piece.copy_from_slice(from));
        Ok(())
    }

    /// The planes in the order in which SGLang HiCache lists a page's buffers: in `layer_first` K and V of each layer
    /// follow one another (k0, v0, k1, v1, ...), elsewhere it is the planes' own order. What is written
    /// buffer by buffer there is no flat page in `layer_first`.
    pub fn buffer_planes(&self) -> impl Iterator<Item = u32> + use<> {
        let Axes { tensors, layers, .. } = self.axes();
        let by_layer = matches!(self.order, PageOrder::LayerFirst);
        (0..self.planes)
            .map(move |buffer| if by_layer { buffer % tensors * layers + buffer / tensors } else { buffer })
    }

    fn check_pieces(
        &self,
        operation: &'static str,
        lens: impl ExactSizeIterator<Item = usize>,
    ) -> Result<()> {
        let count = lens.len();
        if count != self.planes as usize {
            return Err(Error::new(ErrorKind::InvalidArgument, operation)
                .why(format_args!("{count} pieces are given, a page has {}", self.planes))
                .with("layout", self));
        }
        lens.into_iter().try_for_each(|len| self.check_len(operation, len, self.piece_len))
    }

    fn check_len(&self, operation: &'static str, given: usize, wanted: usize) -> Result<()> {
        if given == wanted {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidArgument, operation)
            .why(format_args!("{given} bytes are given where the layout has {wanted}"))
            .with("layout", self))
    }
}
