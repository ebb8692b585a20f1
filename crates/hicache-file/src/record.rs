//! Small sealed text files: the store's marker, and the name of the record of a namespace.

use hicache_core::{Unsealed, seal};

/// The marker's name in a store's directory.
pub(crate) const MARKER: &str = "hicache.store";

/// The record's name in a namespace's directory.
pub(crate) const NAMESPACE: &str = "namespace";

const MARKER_TITLE: &str = "hicache store";
const VERSION: u32 = 1;

/// What a store's marker says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    /// Random, so that a directory is known again wherever it is mounted. 32 hexadecimal digits.
    pub(crate) id: String,
    /// Block of every page file, in bytes: padding and trailer are made of it.
    pub(crate) block: usize,
}

impl Marker {
    pub(crate) fn encode(&self) -> String {
        let block = self.block.to_string();
        let version = VERSION.to_string();
        seal(MARKER_TITLE, &[("format", "files"), ("version", &version), ("id", &self.id), ("block", &block)])
    }

    /// Reads a marker, or says why it is none that this version works with.
    pub(crate) fn decode(text: &str) -> Result<Self, String> {
        let record = Unsealed::read(MARKER_TITLE, text)?;
        let version: u32 =
            record.field("version")?.parse().map_err(|_| "its version is no number".to_string())?;
        if version != VERSION {
            return Err(format!("it has store version {version}, and this hicache reads {VERSION}"));
        }
        let format = record.field("format")?;
        if format != "files" {
            return Err(format!("it has the format {format:?}, not files"));
        }
        let block: usize =
            record.field("block")?.parse().map_err(|_| "its block is no number".to_string())?;
        if !block.is_power_of_two() || block < 4096 {
            return Err(format!("its block is {block} bytes"));
        }
        Ok(Self { id: record.field("id")?.to_string(), block })
    }
}
