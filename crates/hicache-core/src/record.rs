//! Small sealed texts that stores keep beside pages: a title line, `name = value` lines, and a last line with the
//! checksum of all lines before it. Text, so that an operator can read it; sealed, so that a damaged one is not
//! believed.

use crate::{Checksum, Digest, Namespace, PageLayout};

const NAMESPACE_TITLE: &str = "hicache namespace";

/// Writes a record.
pub fn seal(title: &str, fields: &[(&str, &str)]) -> String {
    let mut text = format!("{title}\n");
    for (name, value) in fields {
        text.push_str(&format!("{name} = {value}\n"));
    }
    let checksum = Checksum::of_bytes(text.as_bytes());
    text.push_str(&format!("checksum = {checksum:016x}\n"));
    text
}

/// A record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsealed<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Unsealed<'a> {
    /// Reads the record of that title.
    ///
    /// # Errors
    ///
    /// Why it is none, in a clause.
    pub fn read(title: &str, text: &'a str) -> Result<Self, String> {
        let rest = text.strip_prefix(title).and_then(|rest| rest.strip_prefix('\n'));
        let rest = rest.ok_or_else(|| format!("it does not begin with {title:?}"))?;
        let seal_at = text.rfind("checksum = ").ok_or("it has no checksum")?;
        let checksum = Checksum::of_bytes(&text.as_bytes()[..seal_at]);
        if text[seal_at..] != format!("checksum = {checksum:016x}\n") {
            return Err("it fails its checksum".to_string());
        }
        Ok(Self(rest.lines().filter_map(|line| line.split_once(" = ")).collect()))
    }

    /// The value of a field.
    ///
    /// # Errors
    ///
    /// That it has none, in a clause.
    pub fn field(&self, name: &str) -> Result<&'a str, String> {
        let found = self.0.iter().find(|(held, _)| *held == name);
        found.map(|(_, value)| *value).ok_or_else(|| format!("it has no {name}"))
    }
}

impl Namespace {
    /// The record that a store keeps of it: name, digest and layout.
    pub fn to_record(&self) -> String {
        let (digest, layout) = (self.digest().to_string(), self.layout().to_string());
        seal(NAMESPACE_TITLE, &[("name", self.name()), ("digest", &digest), ("layout", &layout)])
    }

    /// Reads such a record.
    ///
    /// # Errors
    ///
    /// Why it is none, in a clause.
    pub fn from_record(text: &str) -> Result<Self, String> {
        let record = Unsealed::read(NAMESPACE_TITLE, text)?;
        let digest: Digest =
            record.field("digest")?.parse().map_err(|_| "its digest is malformed".to_string())?;
        let layout: PageLayout =
            record.field("layout")?.parse().map_err(|_| "its layout is malformed".to_string())?;
        Ok(Self::recorded(record.field("name")?, digest, layout))
    }
}
