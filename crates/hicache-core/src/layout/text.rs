//! A layout as a line of text, which stores record.

use super::{DType, Geometry, PageLayout};
use crate::{Error, ErrorKind, Result};
use std::fmt;
use std::str::FromStr;

/// The layout as a line of text, which is also its fingerprint: equal lines, equal bytes.
impl fmt::Display for PageLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, dtype, order) = (self.geometry.kind(), self.geometry.dtype().name(), self.order.name());
        write!(f, "{kind} dtype={dtype} order={order}")?;
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
        let len = |name: &str| field(name)?.parse::<usize>().map_err(|_| malformed());
        let dtype = field("dtype")?;
        let dtype = DType::ALL.into_iter().find(|known| known.name() == dtype).ok_or_else(malformed)?;
        let geometry = match kind {
            "opaque" => Geometry::Opaque { len: len("len")? },
            "state" => Geometry::State { layers: count("layers")?, layer_len: len("layer_len")? },
            "indexer" => {
                let token_len = count("token_len")?;
                Geometry::Indexer { layers: count("layers")?, tokens: count("tokens")?, token_len }
            }
            "half_mha" => {
                let (layers, tokens) = (count("layers")?, count("tokens")?);
                Geometry::HalfMha {
                    layers,
                    tokens,
                    heads: count("heads")?,
                    head_dim: count("head_dim")?,
                    dtype,
                }
            }
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
