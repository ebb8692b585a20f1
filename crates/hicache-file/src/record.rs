//! Small sealed text files: the store's marker and the record of a namespace.
//!
//! A title line, `name = value` lines, and a last line with the CRC-64/NVME of all lines before it. Text, so that
//! an operator can read it; sealed, so that a damaged one is not believed.

use crate::trailer::Checksum;
use hicache_core::{Digest, Namespace, PageLayout};

/// The marker's name in a store's directory.
pub(crate) const MARKER: &str = "hicache.store";

/// The record's name in a namespace's directory.
pub(crate) const NAMESPACE: &str = "namespace";

const MARKER_TITLE: &str = "hicache store";
const NAMESPACE_TITLE: &str = "hicache namespace";
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
        let fields = unseal(MARKER_TITLE, text)?;
        let version: u32 =
            field(&fields, "version")?.parse().map_err(|_| "its version is no number".to_string())?;
        if version != VERSION {
            return Err(format!("it has store version {version}, and this hicache reads {VERSION}"));
        }
        let format = field(&fields, "format")?;
        if format != "files" {
            return Err(format!("it has the format {format:?}, not files"));
        }
        let block: usize =
            field(&fields, "block")?.parse().map_err(|_| "its block is no number".to_string())?;
        if !block.is_power_of_two() || block < 4096 {
            return Err(format!("its block is {block} bytes"));
        }
        Ok(Self { id: field(&fields, "id")?.to_string(), block })
    }
}

/// The record of a namespace.
pub(crate) fn encode_namespace(namespace: &Namespace) -> String {
    let (digest, layout) = (namespace.digest().to_string(), namespace.layout().to_string());
    seal(NAMESPACE_TITLE, &[("name", namespace.name()), ("digest", &digest), ("layout", &layout)])
}

/// Reads the record of a namespace.
pub(crate) fn decode_namespace(text: &str) -> Result<Namespace, String> {
    let fields = unseal(NAMESPACE_TITLE, text)?;
    let digest: Digest =
        field(&fields, "digest")?.parse().map_err(|_| "its digest is malformed".to_string())?;
    let layout: PageLayout =
        field(&fields, "layout")?.parse().map_err(|_| "its layout is malformed".to_string())?;
    Ok(Namespace::recorded(field(&fields, "name")?, digest, layout))
}

fn seal(title: &str, fields: &[(&str, &str)]) -> String {
    let mut text = format!("{title}\n");
    for (name, value) in fields {
        text.push_str(&format!("{name} = {value}\n"));
    }
    let checksum = checksum(&text);
    text.push_str(&format!("checksum = {checksum:016x}\n"));
    text
}

fn unseal<'a>(title: &str, text: &'a str) -> Result<Vec<(&'a str, &'a str)>, String> {
    let rest = text.strip_prefix(title).and_then(|rest| rest.strip_prefix('\n'));
    let rest = rest.ok_or_else(|| format!("it does not begin with {title:?}"))?;
    let seal_at = text.rfind("checksum = ").ok_or("it has no checksum")?;
    if text[seal_at..] != format!("checksum = {:016x}\n", checksum(&text[..seal_at])) {
        return Err("it fails its checksum".to_string());
    }
    Ok(rest.lines().filter_map(|line| line.split_once(" = ")).collect())
}

fn field<'a>(fields: &[(&'a str, &'a str)], name: &str) -> Result<&'a str, String> {
    let found = fields.iter().find(|(held, _)| *held == name);
    found.map(|(_, value)| *value).ok_or_else(|| format!("it has no {name}"))
}

fn checksum(text: &str) -> u64 {
    let mut checksum = Checksum::new();
    checksum.add(text.as_bytes());
    checksum.finish()
}
