//! What an object says of itself: the metadata that every page carries, and whether it is the page that was asked for.
//!
//! The metadata `x-amz-meta-hicache` is one line of ASCII, `name=value` with spaces between:
//!
//! | name | value |
//! | --- | --- |
//! | `v` | format version, 1 |
//! | `key` | the page's key, 64 hexadecimal digits |
//! | `parent` | the key before it; left out without one |
//! | `ns` | the namespace's digest |
//! | `layout` | [`PageLayout::mark`](hicache_core::PageLayout::mark), 16 hexadecimal digits |
//! | `len` | bytes of the page |
//! | `at` | write time, milliseconds since 1970 |
//! | `tail` | what the tail behind the page holds: `crc64nvme`, its checksum, or `none` |
//! | `seal` | checksum of the line before ` seal=`, 16 hexadecimal digits |
//!
//! It is what can be said before the page's bytes are read. The signature of a signed upload covers it.

use crate::tail::{self, Tail};
use hicache_core::{Checksum, Digest, Namespace, PageKey, Put};
use std::collections::HashMap;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// The header of the metadata, and what follows `x-amz-meta-` in it.
pub(crate) const HEADER: &str = "x-amz-meta-hicache";
pub(crate) const NAME: &str = "hicache";

const VERSION: &str = "1";

/// What the tail holds.
const CHECKED: &str = "crc64nvme";
const UNCHECKED: &str = "none";

/// What the metadata says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) key: PageKey,
    pub(crate) parent: Option<PageKey>,
    pub(crate) namespace: Digest,
    pub(crate) layout: u64,
    pub(crate) len: u64,
    pub(crate) written_ms: u64,
    /// The tail holds a checksum of the page; false when it was written without.
    pub(crate) checked: bool,
}

/// Why an object is not the page it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// It has another length.
    Torn(String),
    /// Its bytes are not what its metadata, or its name, says.
    Wrong(String),
    /// It has no check of ours.
    Unverified,
    /// It is a sound page of another layout: others may want it, so it is not touched.
    Foreign,
}

impl Flaw {
    /// Whether it may have come about on the way: then it is worth another look.
    pub(crate) fn may_be_of_the_way(&self) -> bool {
        matches!(self, Self::Torn(_) | Self::Wrong(_))
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Torn(why) | Self::Wrong(why) => f.write_str(why),
            Self::Unverified => f.write_str("it has no checksum of ours"),
            Self::Foreign => f.write_str("it is a page of another layout"),
        }
    }
}

impl Facts {
    /// Of a page about to be stored.
    pub(crate) fn of(put: &Put, namespace: &Namespace, checked: bool) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            key: put.key,
            parent: put.parent,
            namespace: namespace.digest(),
            layout: namespace.layout().mark(),
            len: put.page.len() as u64,
            written_ms: now.as_millis() as u64,
            checked,
        }
    }

    /// Bytes of the object: the page and its tail.
    pub(crate) fn stored_len(&self) -> u64 {
        tail::stored_len(self.len)
    }

    /// The tail of the page with that checksum.
    pub(crate) fn tail(&self, checksum: Option<u64>) -> Tail {
        Tail { page_len: self.len, metadata: self.seal(), checksum }
    }

    /// The checksum of all that is said here.
    pub(crate) fn seal(&self) -> u64 {
        Checksum::of_bytes(self.sealed().as_bytes())
    }

    pub(crate) fn encode(&self) -> String {
        let sealed = self.sealed();
        let seal = Checksum::of_bytes(sealed.as_bytes());
        format!("{sealed} seal={seal:016x}")
    }

    fn sealed(&self) -> String {
        let Self { key, namespace, layout, len, written_ms, .. } = self;
        let tail = if self.checked { CHECKED } else { UNCHECKED };
        let mut line = format!("v={VERSION} key={key}");
        if let Some(parent) = &self.parent {
            line.push_str(&format!(" parent={parent}"));
        }
        line.push_str(&format!(" ns={namespace} layout={layout:016x} len={len} at={written_ms} tail={tail}"));
        line
    }

    /// Reads what an object's header says. `None` where it has none of ours.
    pub(crate) fn of_header(line: Option<&str>) -> Option<Result<Self, Flaw>> {
        Some(Self::decode(line?).map_err(|why| Flaw::Wrong(format!("its metadata cannot be used: {why}"))))
    }

    fn decode(line: &str) -> Result<Self, String> {
        let (sealed, seal) = line.rsplit_once(" seal=").ok_or("it has no seal")?;
        if seal != format!("{:016x}", Checksum::of_bytes(sealed.as_bytes())) {
            return Err("it fails its checksum".to_string());
        }
        let fields: HashMap<&str, &str> = sealed.split(' ').filter_map(|part| part.split_once('=')).collect();
        let field = |name: &str| fields.get(name).copied().ok_or_else(|| format!("it has no {name}"));
        let version = field("v")?;
        if version != VERSION {
            return Err(format!("it has format version {version}; this is {VERSION}"));
        }
        let malformed = |name: &str| format!("its {name} is malformed");
        let number = |name: &str| field(name)?.parse::<u64>().map_err(|_| malformed(name));
        let hex = |name: &str| u64::from_str_radix(field(name)?, 16).map_err(|_| malformed(name));
        let key = |text: &str| text.parse::<PageKey>().map_err(|_| malformed("key"));
        Ok(Self {
            key: key(field("key")?)?,
            parent: fields.get("parent").map(|text| key(text)).transpose()?,
            namespace: field("ns")?.parse().map_err(|_| malformed("ns"))?,
            layout: hex("layout")?,
            len: number("len")?,
            written_ms: number("at")?,
            checked: match field("tail")? {
                CHECKED => true,
                UNCHECKED => false,
                _ => return Err(malformed("tail")),
            },
        })
    }

    /// Whether they are those of that page.
    pub(crate) fn check(&self, namespace: &Namespace, key: &PageKey) -> Result<(), Flaw> {
        if self.key != *key {
            return Err(Flaw::Wrong(format!("it holds another key, {}", self.key)));
        }
        if self.namespace != namespace.digest() {
            return Err(Flaw::Wrong(format!("it holds a page of another namespace, {}", self.namespace)));
        }
        if self.layout != namespace.layout().mark() {
            return Err(Flaw::Foreign);
        }
        let page_len = namespace.layout().page_len() as u64;
        if self.len != page_len {
            return Err(Flaw::Wrong(format!("it holds {} bytes; the layout has {page_len}", self.len)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            key: PageKey::new([1; 32]),
            parent: Some(PageKey::new([2; 32])),
            namespace: Digest::new([3; 32]),
            layout: 4,
            len: 5,
            written_ms: 6,
            checked: true,
        }
    }

    #[test]
    fn what_was_written_is_read() {
        for parent in [None, facts().parent] {
            for checked in [false, true] {
                let facts = Facts { parent, checked, ..facts() };
                let line = facts.encode();
                assert!(line.ends_with(&format!(" seal={:016x}", facts.seal())), "{line}");
                assert_eq!(Facts::decode(&line), Ok(facts));
            }
        }
    }

    #[test]
    fn a_changed_character_is_never_believed() {
        let line = facts().encode();
        for at in 0..line.len() {
            for other in [b'0', b'1', b' ', b'='] {
                let mut changed = line.clone().into_bytes();
                if changed[at] == other {
                    continue;
                }
                changed[at] = other;
                let changed = String::from_utf8(changed).unwrap();
                assert!(Facts::decode(&changed).is_err(), "{changed}");
            }
        }
    }

    #[test]
    fn another_version_is_said_to_be_one() {
        let line = "v=2 key=x";
        let sealed = format!("{line} seal={:016x}", Checksum::of_bytes(line.as_bytes()));
        assert_eq!(Facts::decode(&sealed), Err("it has format version 2; this is 1".to_string()));
    }
}
