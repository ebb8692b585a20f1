//! Options from a configuration file in TOML or JSON.

use crate::document::Node;
use crate::{Error, ErrorKind, Result, Source, StoreOptions};
use std::fmt;
use std::path::Path;

/// The largest configuration file that is read, in bytes.
const LEN_MAX: u64 = 1 << 20;
/// The key that names the store.
const BACKEND: &str = "backend";

/// What a configuration file says: `backend = "URL"`, and for each kind of store a section named by its scheme with
/// that store's options, named as in a URL.
///
/// ```toml
/// backend = "file:cache"
///
/// [file]
/// direct = true
/// dir = ["second", "third"]
/// ```
///
/// In JSON, the same: `{"backend": "file:cache", "file": {"direct": true}}`. Numbers and booleans are their texts;
/// a list of texts repeats its option. Relative paths start at the working directory, as those of flags do.
#[derive(Clone)]
pub struct ConfigFile {
    path: String,
    backend: Option<String>,
    sections: Vec<Section>,
}

#[derive(Clone)]
struct Section {
    scheme: String,
    /// Name and value; a repeated option several times.
    options: Vec<(String, String)>,
}

impl ConfigFile {
    /// Reads the file at `path`, whose extension (`.toml`, `.json`) says what it is.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for a file that cannot be read or is malformed, for a key that is there twice,
    /// and for a value that is no text, number, boolean or list of texts; with the place in the file.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let parse = match path.extension().and_then(|extension| extension.to_str()) {
            Some("toml") => Self::parse_toml,
            Some("json") => Self::parse_json,
            _ => {
                return Err(invalid(&name, "its name ends neither in .toml nor in .json")
                    .fix("rename it, so that its syntax is known"));
            }
        };
        let unread = |error| invalid(&name, "it cannot be read").because(error);
        let len = std::fs::metadata(path).map_err(unread)?.len();
        if len > LEN_MAX {
            return Err(invalid(&name, "it is larger than 1 MiB").with("bytes", len));
        }
        parse(&name, &std::fs::read_to_string(path).map_err(unread)?)
    }

    /// Reads TOML; `path` is what errors call it.
    ///
    /// # Errors
    ///
    /// As [`ConfigFile::read`].
    pub fn parse_toml(path: &str, text: &str) -> Result<Self> {
        let node = toml::from_str(text)
            .map_err(|error| invalid(path, one_line(&error.to_string())).fix("correct the TOML"))?;
        Self::of(path, node)
    }

    /// Reads JSON; `path` is what errors call it.
    ///
    /// # Errors
    ///
    /// As [`ConfigFile::read`].
    pub fn parse_json(path: &str, text: &str) -> Result<Self> {
        let node =
            serde_json::from_str(text).map_err(|error| invalid(path, error).fix("correct the JSON"))?;
        Self::of(path, node)
    }

    /// The URL of the store, if the file names one.
    pub fn backend(&self) -> Option<&str> {
        self.backend.as_deref()
    }

    fn of(path: &str, document: Node) -> Result<Self> {
        let mut config = Self { path: path.to_owned(), backend: None, sections: Vec::new() };
        let Node::Table(entries) = document else {
            return Err(invalid(path, "it does not hold a table").fix("write backend = \"URL\" and sections"));
        };
        for (key, value) in entries {
            match value {
                Node::Text(url) if key == BACKEND => config.backend = Some(url),
                Node::Table(options) if key != BACKEND => {
                    config.sections.push(Section::of(path, key, options)?);
                }
                other if key == BACKEND => {
                    return Err(invalid(path, format_args!("backend is {}, not a URL", other.kind())));
                }
                other => {
                    return Err(invalid(
                        path,
                        format_args!("it has no such key, and it is {}", other.kind()),
                    )
                    .with("at", &key)
                    .fix(format_args!("an option goes into its store's section, as in [file] {key}")));
                }
            }
        }
        Ok(config)
    }

    /// Refuses a section that is of none of `schemes`.
    pub(crate) fn check(&self, schemes: impl Iterator<Item = &'static str>) -> Result<()> {
        let schemes: Vec<&str> = schemes.collect();
        let unknown = |section: &&Section| !schemes.contains(&section.scheme.as_str());
        let Some(section) = self.sections.iter().find(unknown) else { return Ok(()) };
        let likeness = |known: &str| strsim::jaro_winkler(&section.scheme, known);
        let near = schemes.iter().chain(&[BACKEND]).max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
        let fix = match near.filter(|known| likeness(known) > 0.75) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("this build knows backend, {}", schemes.join(", ")),
        };
        Err(invalid(&self.path, "it has a key that nothing reads").with("at", &section.scheme).fix(fix))
    }

    /// Sets what the section of `scheme` says.
    pub(crate) fn set(&self, scheme: &str, options: &mut StoreOptions) {
        for section in self.sections.iter().filter(|section| section.scheme == scheme) {
            for (name, value) in &section.options {
                let place = format!("{}: {scheme}.{name}", self.path);
                options.set(Source::File(place), name, value);
            }
        }
    }
}

impl Section {
    fn of(path: &str, scheme: String, entries: Vec<(String, Node)>) -> Result<Self> {
        let mut options = Vec::new();
        for (name, value) in entries {
            let refused = |node: &Node| {
                invalid(path, format_args!("an option is {}", node.kind()))
                    .with("at", format_args!("{scheme}.{name}"))
                    .fix("give a text, a number, a boolean or a list of texts, or leave it out")
            };
            match value {
                Node::Text(text) | Node::Literal(text) => options.push((name, text)),
                Node::List(items) => {
                    for item in items {
                        let Node::Text(text) = item else { return Err(refused(&item)) };
                        options.push((name.clone(), text));
                    }
                }
                other => return Err(refused(&other)),
            }
        }
        Ok(Self { scheme, options })
    }
}

/// Names only: a value may be a secret.
impl fmt::Debug for ConfigFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |section: &Section| {
            let options: Vec<_> = section.options.iter().map(|(name, _)| name.clone()).collect();
            (section.scheme.clone(), options)
        };
        f.debug_struct("ConfigFile")
            .field("path", &self.path)
            .field("sections", &self.sections.iter().map(named).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

fn invalid(path: &str, why: impl fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidConfig, "read configuration").why(why).with("file", path)
}

/// TOML errors are drawings of several lines.
fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
