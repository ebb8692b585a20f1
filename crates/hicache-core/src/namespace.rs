//! What a page's bytes depend on besides its tokens.

use crate::key::{parse_hex, write_hex};
use crate::{Error, ErrorKind, PageLayout, PageOrder, Result};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Names at most this long, in bytes. Stores use the digest in paths, so no file system limits them.
const NAME_LEN_MAX: usize = 1024;

/// The identity of a namespace: SHA-256 over what makes it differ from others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

/// A name for people, a digest for stores, and the layout of every page in it.
///
/// Two namespaces with one digest are the same namespace; a store refuses the second when their layouts differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    name: Arc<str>,
    digest: Digest,
    layout: PageLayout,
}

/// One coordinate of a parallel deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Which, from 0.
    pub rank: u32,
    /// Of how many.
    pub size: u32,
}

/// Everything that may change a page's bytes or their meaning. Data-parallel ranks are not in it: they hold the
/// same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The model's name or path.
    pub model: String,
    /// What identifies the weights, when known: then the model's name does not matter, and equal weights under
    /// another name share.
    pub revision: Option<String>,
    /// Which pool: `kv`, `indexer`, `mamba`, ...
    pub pool: String,
    /// Element type, shape and order of a page.
    pub layout: PageLayout,
    /// Tensor parallelism.
    pub tp: Rank,
    /// Pipeline parallelism.
    pub pp: Rank,
    /// Context parallelism at prefill.
    pub cp: Rank,
    /// Context parallelism at decode.
    pub dcp: Rank,
    /// Every tensor-parallel rank holds the same bytes, as with MLA.
    pub replicated: bool,
    /// With order `page_head`, the first KV head and the number of heads in a page, of all the model's heads:
    /// then they stand for the tensor-parallel rank.
    pub heads: Option<(u32, u32)>,
}

impl Rank {
    /// The only one.
    pub const ALONE: Self = Self { rank: 0, size: 1 };
}

impl Namespace {
    /// A namespace that is nothing but its name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] when `name` is empty, longer than 1,024 bytes, or has control characters.
    pub fn named(name: &str, layout: PageLayout) -> Result<Self> {
        check_name(name)?;
        Ok(Self::recorded(name, digest_of([("name", name)]), layout))
    }

    /// The namespace of a model's pool on one rank. Its name says so to people; its digest decides.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for a bad name of the model or the pool, or a rank that is not below its size.
    pub fn of(identity: &Identity) -> Result<Self> {
        check_name(&identity.model)?;
        check_name(&identity.pool)?;
        let mut facts = vec![
            match &identity.revision {
                Some(revision) => ("revision", revision.clone()),
                None => ("model", identity.model.clone()),
            },
            ("pool", identity.pool.clone()),
            ("layout", identity.layout.to_string()),
        ];
        let by_heads = identity.heads.filter(|_| identity.layout.order() == PageOrder::PageHead);
        let tp = match by_heads {
            _ if identity.replicated => Rank::ALONE,
            Some((first, count)) => {
                facts.push(("heads", format!("{first}+{count}")));
                Rank::ALONE
            }
            None => identity.tp,
        };
        for (name, rank) in [("tp", tp), ("pp", identity.pp), ("cp", identity.cp), ("dcp", identity.dcp)] {
            if rank.rank >= rank.size {
                return Err(Error::new(ErrorKind::InvalidConfig, "name namespace")
                    .why(format_args!("{name} rank {} is not below its size {}", rank.rank, rank.size)));
            }
            if rank.size > 1 {
                facts.push((name, format!("{}/{}", rank.rank, rank.size)));
            }
        }
        let digest = digest_of(facts.iter().map(|(name, value)| (*name, value.as_str())));
        let place = facts[3..].iter().map(|(name, value)| format!(" {name}{value}")).collect::<String>();
        Ok(Self::recorded(&format!("{} {}{place}", identity.model, identity.pool), digest, identity.layout))
    }

    /// A namespace as a store's record has it.
    pub fn recorded(name: &str, digest: Digest, layout: PageLayout) -> Self {
        Self { name: name.into(), digest, layout }
    }

    /// Whether pages of `asked` may go where this one's record is.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Incompatible`] when their layouts differ.
    pub fn check_layout(&self, asked: &Self) -> Result<()> {
        if self.layout == asked.layout {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Incompatible, "open namespace")
            .why("the namespace holds pages of another layout")
            .with("namespace", &self.name)
            .with("stored", self.layout)
            .with("asked", asked.layout)
            .fix("use another namespace, or drop this one"))
    }

    /// Whether a page of `planes` pieces and `len` bytes is one of this namespace.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] with both shapes.
    pub fn check_shape(&self, operation: &'static str, planes: u32, len: usize) -> Result<()> {
        if planes == self.layout.planes() && len == self.layout.page_len() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidArgument, operation)
            .why("the page is not of the namespace's layout")
            .with("namespace", &self.name)
            .with("page", format_args!("{planes} pieces, {len} bytes"))
            .with(
                "layout",
                format_args!("{} pieces, {} bytes", self.layout.planes(), self.layout.page_len()),
            ))
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The digest.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The layout of its pages.
    pub fn layout(&self) -> &PageLayout {
        &self.layout
    }
}

impl Digest {
    /// Wraps a digest that a store recorded.
    pub const fn new(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl FromStr for Digest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse_hex(text).map(Self).ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, "parse digest")
                .why("a digest is 64 hexadecimal digits")
                .with("digest", text)
        })
    }
}

fn check_name(name: &str) -> Result<()> {
    let why = if name.is_empty() {
        "it is empty"
    } else if name.len() > NAME_LEN_MAX {
        "it is longer than 1,024 bytes"
    } else if name.chars().any(char::is_control) {
        "it has control characters"
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::InvalidConfig, "name namespace").why(why).with("name", name.escape_debug()))
}

/// Each fact with its lengths before it, so that no two lists of facts write the same bytes.
fn digest_of<'a>(facts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Digest {
    let mut hasher = Sha256::new();
    hasher.update(b"hicache-namespace-v1");
    for (name, value) in facts {
        for part in [name, value] {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
    }
    Digest(hasher.finalize().into())
}
