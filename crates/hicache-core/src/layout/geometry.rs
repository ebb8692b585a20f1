//! What a page holds (its geometry) and how that follows on itself (its order).

use crate::{Error, ErrorKind, Result};
use std::str::FromStr;

/// Element type. Types of equal size differ: their bytes mean different numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// 16-bit brain float.
    Bf16,
    /// 16-bit IEEE float.
    F16,
    /// 32-bit IEEE float.
    F32,
    /// 8-bit float, 4 exponent bits.
    F8E4m3,
    /// 8-bit float, 5 exponent bits.
    F8E5m2,
    /// Raw bytes.
    U8,
}

/// How tokens, layers and heads follow one another inside a page; names as SGLang HiCache has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PageOrder {
    /// `[layer, page, token, head, dim]`: a page is one piece a layer (two with K and V).
    LayerFirst,
    /// `[page, token, layer, head, dim]`.
    #[default]
    PageFirst,
    /// `[page, layer, token, head, dim]`.
    PageFirstDirect,
    /// `[page, head, token, layer, dim]`.
    PageHead,
}

/// The shape of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Geometry {
    /// K and V of every head, equally long: two tensors, so two planes, or two a layer.
    Mha {
        /// Layers on this rank.
        layers: u32,
        /// Tokens in a page.
        tokens: u32,
        /// KV heads on this rank.
        heads: u32,
        /// Elements of a head.
        head_dim: u32,
        /// Element type.
        dtype: DType,
    },
    /// One latent vector a token and layer: one plane, or one a layer.
    Mla {
        /// Layers on this rank.
        layers: u32,
        /// Tokens in a page.
        tokens: u32,
        /// Elements of the latent vector, its rotary part included.
        latent_dim: u32,
        /// Element type.
        dtype: DType,
    },
    /// K alone or V alone of every head: one tensor. For models that keep only keys (an index of MiniMax's kind),
    /// and, as two pools of one chain ([`PoolSet`](crate::PoolSet)), for those whose K and V differ in length.
    HalfMha {
        /// Layers on this rank.
        layers: u32,
        /// Tokens in a page.
        tokens: u32,
        /// KV heads on this rank.
        heads: u32,
        /// Elements of a head.
        head_dim: u32,
        /// Element type.
        dtype: DType,
    },
    /// The sparse-attention index of a page: for each layer all its tokens' bytes, keys and scales together, so that
    /// tokens do not lie one by one. One tensor.
    Indexer {
        /// Layers on this rank that have an index.
        layers: u32,
        /// Tokens in a page.
        tokens: u32,
        /// Bytes of a token ([`Geometry::indexer_token_len`]).
        token_len: u32,
    },
    /// A state: not of a page's tokens but of all before its end, so one slot a node of the prefix tree, in a pool
    /// with a trailing window of 1. One tensor of those a state has (temporal, convolutions): each is a pool.
    State {
        /// Layers on this rank that have a state.
        layers: u32,
        /// Bytes of a layer's state.
        layer_len: usize,
    },
    /// Bytes whose meaning is the caller's: one plane.
    Opaque {
        /// Bytes in a page.
        len: usize,
    },
}

/// A page as tensors of `[layer, token, head, dim]`, in whatever order these lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axes {
    pub(super) tensors: u32,
    pub(super) layers: u32,
    pub(super) tokens: u32,
    pub(super) heads: u32,
    pub(super) dim: usize,
    pub(super) element_len: usize,
}

impl DType {
    pub(super) const ALL: [Self; 6] =
        [Self::Bf16, Self::F16, Self::F32, Self::F8E4m3, Self::F8E5m2, Self::U8];

    /// Bytes of an element.
    pub const fn len(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
            Self::F8E4m3 | Self::F8E5m2 | Self::U8 => 1,
        }
    }

    /// Never: an element has bytes.
    pub const fn is_empty(self) -> bool {
        false
    }

    /// The name, as in `bf16`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::F8E4m3 => "f8e4m3",
            Self::F8E5m2 => "f8e5m2",
            Self::U8 => "u8",
        }
    }
}

impl PageOrder {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::LayerFirst, Self::PageFirst, Self::PageFirstDirect, Self::PageHead];

    /// The name, as in `page_first`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LayerFirst => "layer_first",
            Self::PageFirst => "page_first",
            Self::PageFirstDirect => "page_first_direct",
            Self::PageHead => "page_head",
        }
    }
}

impl FromStr for PageOrder {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|order| order.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::new(ErrorKind::InvalidConfig, "parse order")
                .why(format_args!("{text:?} is not an order; the orders are {names}"))
        })
    }
}

impl Geometry {
    /// Bytes of a token in an index of keys of `index_head_dim` elements of 8 bits: the elements, and a scale of
    /// 4 bytes for each 128 of them.
    ///
    /// # Panics
    ///
    /// If that does not fit a `u32`: a length that wrapped around would be another layout's.
    pub const fn indexer_token_len(index_head_dim: u32) -> u32 {
        index_head_dim.checked_add(index_head_dim / 128 * 4).expect("the length of a token fits a u32")
    }

    /// The kind's name in a layout's text.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Mha { .. } => "mha",
            Self::HalfMha { .. } => "half_mha",
            Self::Mla { .. } => "mla",
            Self::Indexer { .. } => "indexer",
            Self::State { .. } => "state",
            Self::Opaque { .. } => "opaque",
        }
    }

    /// The element type; bytes where elements are no matter of ours.
    pub(super) fn dtype(&self) -> DType {
        match *self {
            Self::Mha { dtype, .. } | Self::HalfMha { dtype, .. } | Self::Mla { dtype, .. } => dtype,
            Self::Indexer { .. } | Self::State { .. } | Self::Opaque { .. } => DType::U8,
        }
    }

    /// The page as tensors; `None` where a dimension does not fit a `usize`.
    pub(super) fn axes(&self) -> Option<Axes> {
        let bytes = Axes { tensors: 1, layers: 1, tokens: 1, heads: 1, dim: 1, element_len: 1 };
        let element_len = self.dtype().len();
        Some(match *self {
            Self::Mha { layers, tokens, heads, head_dim, .. } => {
                Axes { tensors: 2, layers, tokens, heads, dim: head_dim as usize, element_len }
            }
            Self::HalfMha { layers, tokens, heads, head_dim, .. } => {
                Axes { tensors: 1, layers, tokens, heads, dim: head_dim as usize, element_len }
            }
            Self::Mla { layers, tokens, latent_dim, .. } => {
                Axes { layers, tokens, dim: latent_dim as usize, element_len, ..bytes }
            }
            Self::Indexer { layers, tokens, token_len } => {
                Axes { layers, dim: (tokens as usize).checked_mul(token_len as usize)?, ..bytes }
            }
            Self::State { layers, layer_len } => Axes { layers, dim: layer_len, ..bytes },
            Self::Opaque { len } => Axes { dim: len, ..bytes },
        })
    }

    pub(super) fn dimensions(&self) -> Vec<(&'static str, usize)> {
        match *self {
            Self::Opaque { len } => vec![("len", len)],
            Self::Mla { layers, tokens, latent_dim, .. } => {
                vec![
                    ("layers", layers as usize),
                    ("tokens", tokens as usize),
                    ("latent_dim", latent_dim as usize),
                ]
            }
            Self::Indexer { layers, tokens, token_len } => vec![
                ("layers", layers as usize),
                ("tokens", tokens as usize),
                ("token_len", token_len as usize),
            ],
            Self::State { layers, layer_len } => vec![("layers", layers as usize), ("layer_len", layer_len)],
            Self::Mha { layers, tokens, heads, head_dim, .. }
            | Self::HalfMha { layers, tokens, heads, head_dim, .. } => vec![
                ("layers", layers as usize),
                ("tokens", tokens as usize),
                ("heads", heads as usize),
                ("head_dim", head_dim as usize),
            ],
        }
    }
}
