//! Some heads of a page: one contiguous run of each piece, where the order is `page_head`.

use super::{Geometry, PageLayout, PageOrder};
use crate::{Error, ErrorKind, Result};
use std::ops::Range;

/// Some heads of a page of order `page_head`: the same bytes of each of its pieces. They are a whole page of
/// [`HeadRange::layout`], so that a rank with other heads than the writer's can store or load just its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadRange {
    layout: PageLayout,
    bytes: Range<usize>,
}

impl PageLayout {
    /// The bytes of `heads` in each piece: with `P` tokens, `L` layers and vectors of `D` elements of `b` bytes, head
    /// `h` starts at `h * P * L * D * b`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] when the order is not `page_head`, the geometry has no heads, or there are no
    /// such heads.
    pub fn head_range(&self, heads: Range<u32>) -> Result<HeadRange> {
        let refused = |why: &str| {
            Error::new(ErrorKind::InvalidArgument, "view heads")
                .why(why)
                .with("heads", format_args!("{}..{}", heads.start, heads.end))
                .with("layout", self)
        };
        let mut geometry = self.geometry;
        let (Geometry::Mha { heads: held, .. } | Geometry::HalfMha { heads: held, .. }) = &mut geometry
        else {
            return Err(refused("its pages have no heads"));
        };
        if self.order != PageOrder::PageHead {
            return Err(refused("a head's bytes lie together in the order page_head only"));
        }
        if heads.is_empty() || heads.end > *held {
            return Err(refused("the page has no such heads"));
        }
        *held = heads.end - heads.start;
        let step = self.steps().head;
        let bytes = heads.start as usize * step..heads.end as usize * step;
        Ok(HeadRange { layout: Self::new(geometry, self.order)?, bytes })
    }
}

impl HeadRange {
    /// The layout of a page of just these heads.
    pub fn layout(&self) -> &PageLayout {
        &self.layout
    }

    /// The bytes of these heads in each piece of the whole page.
    pub fn bytes(&self) -> Range<usize> {
        self.bytes.clone()
    }
}
