//! Page layouts: geometry and order, and the strides they give.

use crate::{Alignment, Error, ErrorKind, Result, Strides};
use std::fmt;
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
    /// K and V of every head: two planes, or two a layer.
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
    /// Bytes whose meaning is the caller's: one plane.
    Opaque {
        /// Bytes in a page.
        len: usize,
    },
}

/// Geometry and order, and what follows from them. The only place that computes a page's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageLayout {
    geometry: Geometry,
    order: PageOrder,
    planes: u32,
    piece_len: usize,
}

impl DType {
    const ALL: [Self; 6] = [Self::Bf16, Self::F16, Self::F32, Self::F8E4m3, Self::F8E5m2, Self::U8];

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
        let (layers, tensors, layer_len) = match geometry {
            Geometry::Opaque { len } => (1, 1, Some(len)),
            Geometry::Mla { layers, tokens, latent_dim, dtype } => {
                (layers, 1, product(dtype.len(), [tokens, latent_dim, 1]))
            }
            Geometry::Mha { layers, tokens, heads, head_dim, dtype } => {
                (layers, 2, product(dtype.len(), [tokens, heads, head_dim]))
            }
        };
        let layer_len = layer_len.ok_or_else(overflow)?;
        let (planes, piece_len) = match (order, geometry) {
            (PageOrder::LayerFirst, Geometry::Mha { .. } | Geometry::Mla { .. }) => {
                (layers.checked_mul(tensors), Some(layer_len))
            }
            _ => (Some(tensors), layer_len.checked_mul(layers as usize)),
        };
        let planes = planes.ok_or_else(overflow)?;
        let piece_len = piece_len.ok_or_else(overflow)?;
        piece_len
            .checked_mul(planes as usize)
            .filter(|len| *len <= isize::MAX as usize)
            .ok_or_else(overflow)?;
        Ok(Self { geometry, order, planes, piece_len })
    }

    /// One piece of `len` bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] when `len` is 0.
    pub fn opaque(len: usize) -> Result<Self> {
        Self::new(Geometry::Opaque { len }, PageOrder::PageFirst)
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

    /// Strides of `slots` pages of this layout, each piece padded to start on `alignment`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] when there are no slots, or the total overflows.
    pub fn strides(&self, slots: u32, alignment: Alignment) -> Result<Strides> {
        Ok(Strides::new(self.planes, slots, self.piece_len, alignment)?)
    }
}

impl Geometry {
    fn dimensions(&self) -> Vec<(&'static str, usize)> {
        match *self {
            Self::Opaque { len } => vec![("len", len)],
            Self::Mla { layers, tokens, latent_dim, .. } => {
                vec![
                    ("layers", layers as usize),
                    ("tokens", tokens as usize),
                    ("latent_dim", latent_dim as usize),
                ]
            }
            Self::Mha { layers, tokens, heads, head_dim, .. } => vec![
                ("layers", layers as usize),
                ("tokens", tokens as usize),
                ("heads", heads as usize),
                ("head_dim", head_dim as usize),
            ],
        }
    }
}

fn product(len: usize, counts: [u32; 3]) -> Option<usize> {
    counts.into_iter().try_fold(len, |len, count| len.checked_mul(count as usize))
}

/// The layout as a line of text, which is also its fingerprint: equal lines, equal bytes.
impl fmt::Display for PageLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, dtype) = match self.geometry {
            Geometry::Opaque { .. } => ("opaque", DType::U8),
            Geometry::Mla { dtype, .. } => ("mla", dtype),
            Geometry::Mha { dtype, .. } => ("mha", dtype),
        };
        write!(f, "{kind} dtype={} order={}", dtype.name(), self.order.name())?;
        self.geometry.dimensions().into_iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

impl FromStr for PageLayout {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let malformed = || {
            Error::new(ErrorKind::InvalidConfig, "parse layout").why("not a page layout").with("text", text)
        };
        let (kind, fields) = text.split_once(' ').ok_or_else(malformed)?;
        let field = |name: &str| {
            fields
                .split(' ')
                .find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
                .ok_or_else(malformed)
        };
        let count = |name: &str| field(name)?.parse::<u32>().map_err(|_| malformed());
        let dtype = field("dtype")?;
        let dtype = DType::ALL.into_iter().find(|known| known.name() == dtype).ok_or_else(malformed)?;
        let geometry = match kind {
            "opaque" => Geometry::Opaque { len: field("len")?.parse().map_err(|_| malformed())? },
            "mla" => {
                let latent_dim = count("latent_dim")?;
                Geometry::Mla { layers: count("layers")?, tokens: count("tokens")?, latent_dim, dtype }
            }
            "mha" => {
                let (layers, tokens) = (count("layers")?, count("tokens")?);
                Geometry::Mha { layers, tokens, heads: count("heads")?, head_dim: count("head_dim")?, dtype }
            }
            _ => return Err(malformed()),
        };
        let layout = Self::new(geometry, field("order")?.parse()?)?;
        // Anything more, or otherwise written, is not this fingerprint.
        if layout.to_string() == text { Ok(layout) } else { Err(malformed()) }
    }
}
