//! Options from a configuration file in TOML or JSON.

use crate::document::Node;
use crate::{Error, ErrorKind, Result, Source, StoreOptions, StoreRegistry, names};
use rustix::fs::OFlags;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The largest configuration file that is read, in bytes.
const LEN_MAX: u64 = 1 << 20;
/// The key that names the store.
const BACKEND: &str = "backend";
/// How much of a file an error quotes, in characters.
const QUOTE_LEN_MAX: usize = 200;

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
        let bytes = read(path).map_err(|error| invalid(&name, "it cannot be read").because(error))?;
        if bytes.len() as u64 > LEN_MAX {
            return Err(invalid(&name, "it is larger than 1 MiB"));
        }
        let text =
            String::from_utf8(bytes).map_err(|error| invalid(&name, "it is not UTF-8").because(error))?;
        parse(&name, &text)
    }

    /// Reads TOML; `path` is what errors call it.
    ///
    /// # Errors
    ///
    /// As [`ConfigFile::read`].
    pub fn parse_toml(path: &str, text: &str) -> Result<Self> {
        let node = toml::from_str(text).map_err(|error| {
            // Its own text draws the whole line, however long, and whatever secret is on it.
            let start = error.span().map(|span| span.start);
            let place = start.and_then(|start| text.get(..start)).map_or_else(String::new, place_after);
            invalid(path, format_args!("{place}{}", shortened(error.message()))).fix("correct the TOML")
        })?;
        Self::of(path, node)
    }

    /// Reads JSON; `path` is what errors call it.
    ///
    /// # Errors
    ///
    /// As [`ConfigFile::read`].
    pub fn parse_json(path: &str, text: &str) -> Result<Self> {
        let node = serde_json::from_str(text)
            .map_err(|error| invalid(path, shortened(&error.to_string())).fix("correct the JSON"))?;
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
                    .with("at", shortened(&key))
                    .fix(format_args!(
                        "an option goes into its store's section, as in [file] {}",
                        shortened(&key)
                    )));
                }
            }
        }
        Ok(config)
    }

    /// Refuses a section that is of no store of `registry`, and in any section an option that its store does not have.
    pub(crate) fn check(&self, registry: &StoreRegistry) -> Result<()> {
        for section in &self.sections {
            let mut factories = registry.factories();
            let Some(factory) = factories.find(|factory| factory.scheme == section.scheme) else {
                return Err(self.unknown(&section.scheme, registry));
            };
            for (name, _) in &section.options {
                let name = shortened(name);
                names::check(factory, self.place(factory.scheme, &name), &name)?;
            }
        }
        Ok(())
    }

    fn unknown(&self, key: &str, registry: &StoreRegistry) -> Error {
        let schemes: Vec<&str> = registry.factories().map(|factory| factory.scheme).collect();
        let all = schemes.iter().chain(&[BACKEND]);
        let fix = match names::nearest(all.map(|known| (strsim::jaro_winkler(key, known), known))) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("this build knows backend, {}", schemes.join(", ")),
        };
        invalid(&self.path, "it has a key that nothing reads").with("at", shortened(key)).fix(fix)
    }

    fn place(&self, scheme: &str, option: &str) -> Source {
        Source::File(format!("{}: {scheme}.{option}", self.path))
    }

    /// Sets what the section of `scheme` says.
    pub(crate) fn set(&self, scheme: &str, options: &mut StoreOptions) {
        for section in self.sections.iter().filter(|section| section.scheme == scheme) {
            for (name, value) in &section.options {
                options.set(self.place(scheme, name), name, value);
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
                    .with("at", shortened(&format!("{scheme}.{name}")))
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

/// A regular file, up to one byte more than may be. Of a pipe nothing is waited for.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(LEN_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The line and column that follow `text`, which is a document's beginning.
fn place_after(text: &str) -> String {
    let line = text.matches('\n').count() + 1;
    let column = text.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("line {line}, column {column}: ")
}

/// Without its middle where it is long: what a document says ends up in errors.
fn shortened(text: &str) -> String {
    let len = text.chars().count();
    if len <= QUOTE_LEN_MAX {
        return text.to_owned();
    }
    let end = QUOTE_LEN_MAX / 4;
    let head: String = text.chars().take(QUOTE_LEN_MAX - end).collect();
    let tail: String = text.chars().skip(len - end).collect();
    format!("{head} ... {tail}")
}

#[cfg(test)]
mod tests;
