//! Options from a configuration file in TOML or JSON.

use crate::document::Node;
use crate::extra_config::{self, PLUGIN};
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
///
/// Both shapes of SGLang's extra configuration are read, too. *Flat*, `{"use_direct_io": true, "threads": 4}`: where
/// there are no sections, options at top level are those of whichever store is opened. *Qualified*,
/// `{"plugin": {"posix": {"active": true, "threads": 4}}, "use_direct_io": true}`: the active plugin's section and the
/// top level are options of the store that stands for it, `posix` for `file:`. The plugin parameter `use_uring` is
/// `engine=io_uring`; one that means nothing here is refused by name. Keys that SGLang's controller reads
/// (`prefetch_threshold`, `backend_name`, `interface_v1`, ...) are checked for their kind, and left to it.
#[derive(Clone)]
pub struct ConfigFile {
    path: String,
    backend: Option<String>,
    sections: Vec<Section>,
}

#[derive(Clone)]
struct Section {
    /// Which stores it is for; `None`: whichever is opened.
    scheme: Option<String>,
    settings: Vec<Setting>,
}

/// One value of an option; a repeated one has several.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) name: String,
    pub(crate) value: String,
    /// Its place in the file.
    pub(crate) at: String,
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
        // The error's own text shows the line, and there may be a secret in it.
        let told = |error: toml::de::Error| {
            let before = error.span().map_or(0, |span| span.start);
            let line = 1 + text.bytes().take(before).filter(|byte| *byte == b'\n').count();
            let message = one_line(error.message());
            invalid(path, format_args!("{message} at line {line}")).fix("correct the TOML")
        };
        let node = toml::from_str(text).map_err(told)?;
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

    /// Reads what SGLang is given as a backend's extra configuration: JSON, or `@` and the path of a file.
    ///
    /// # Errors
    ///
    /// As [`ConfigFile::read`].
    pub fn parse_extra_config(text: &str) -> Result<Self> {
        match text.strip_prefix('@') {
            Some(path) => Self::read(path),
            None => Self::parse_json("extra configuration", text),
        }
    }

    fn of(path: &str, document: Node) -> Result<Self> {
        let mut config = Self { path: path.to_owned(), backend: None, sections: Vec::new() };
        let Node::Table(entries) = document else {
            return Err(invalid(path, "it does not hold a table").fix("write backend = \"URL\" and sections"));
        };
        let (mut plugins, mut top) = (None, Vec::new());
        for (key, value) in entries {
            if extra_config::is_controllers(path, &key, &value)? {
                continue;
            }
            match (key.as_str(), value) {
                (BACKEND, Node::Text(url)) => config.backend = Some(url),
                (BACKEND, other) => {
                    return Err(invalid(path, format_args!("backend is {}, not a URL", other.kind())));
                }
                (PLUGIN, Node::Table(sections)) => plugins = Some(sections),
                (_, Node::Table(options)) => config.sections.push(Section::of(path, key, options)?),
                (_, value) => top.push((key, value)),
            }
        }
        config.take_top(plugins, top)
    }

    /// Places what stands at top level.
    fn take_top(mut self, plugins: Option<Vec<(String, Node)>>, top: Vec<(String, Node)>) -> Result<Self> {
        let path = self.path.as_str();
        let (scheme, mut settings) = match plugins {
            Some(plugins) if self.sections.is_empty() => {
                let (scheme, settings) = extra_config::active_plugin(path, plugins)?;
                (Some(scheme.to_owned()), settings)
            }
            Some(_) => {
                return Err(invalid(path, "it has sections of stores and of plugins")
                    .with("at", PLUGIN)
                    .fix("write sections of one kind only"));
            }
            None => (None, Vec::new()),
        };
        if let Some((key, value)) = top.first().filter(|_| !self.sections.is_empty()) {
            return Err(invalid(path, format_args!("it has sections, and beside them {}", value.kind()))
                .with("at", key)
                .fix(format_args!("an option goes into its store's section, as in [file] {key}")));
        }
        for (key, value) in top {
            if [BACKEND, PLUGIN].iter().any(|known| strsim::jaro_winkler(&key, known) > 0.9) {
                let near = if key.starts_with('p') { PLUGIN } else { BACKEND };
                return Err(invalid(path, "it has a key that nothing reads")
                    .with("at", &key)
                    .fix(format_args!("did you mean {near}?")));
            }
            settings.extend(Setting::of(path, &key, &key, value)?);
        }
        if !settings.is_empty() || scheme.is_some() {
            let settings = extra_config::translate(path, settings)?;
            self.sections.push(Section { scheme, settings });
        }
        Ok(self)
    }

    /// The kinds of store that it has options for; `None` stands for any.
    pub(crate) fn schemes(&self) -> impl Iterator<Item = Option<&str>> {
        self.sections.iter().map(|section| section.scheme.as_deref())
    }

    /// Refuses a section that is of none of `schemes`.
    pub(crate) fn check(&self, schemes: impl Iterator<Item = &'static str>) -> Result<()> {
        let schemes: Vec<&str> = schemes.collect();
        let mut named = self.sections.iter().filter_map(|section| section.scheme.as_deref());
        let Some(unknown) = named.find(|scheme| !schemes.contains(scheme)) else { return Ok(()) };
        let likeness = |known: &str| strsim::jaro_winkler(unknown, known);
        let near = schemes.iter().chain(&[BACKEND]).max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
        let fix = match near.filter(|known| likeness(known) > 0.75) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("this build knows backend, {}", schemes.join(", ")),
        };
        Err(invalid(&self.path, "it has a key that nothing reads").with("at", unknown).fix(fix))
    }

    /// Sets what it says for stores of `scheme`.
    pub(crate) fn set(&self, scheme: &str, options: &mut StoreOptions) {
        let sections = self
            .sections
            .iter()
            .filter(|section| section.scheme.as_ref().is_none_or(|named| named == scheme));
        for Setting { name, value, at } in sections.flat_map(|section| &section.settings) {
            options.set(Source::File(format!("{}: {at}", self.path)), name, value);
        }
    }
}

impl Section {
    fn of(path: &str, scheme: String, entries: Vec<(String, Node)>) -> Result<Self> {
        let mut settings = Vec::new();
        for (name, value) in entries {
            settings.extend(Setting::of(path, &format!("{scheme}.{name}"), &name, value)?);
        }
        Ok(Self { scheme: Some(scheme), settings })
    }
}

impl Setting {
    /// The values of the option `name`, which stands at `at`.
    pub(crate) fn of(path: &str, at: &str, name: &str, value: Node) -> Result<Vec<Self>> {
        let one = |value| Self { name: name.to_owned(), value, at: at.to_owned() };
        let refused = |node: &Node| {
            invalid(path, format_args!("an option is {}", node.kind()))
                .with("at", at)
                .fix("give a text, a number, a boolean or a list of texts, or leave it out")
        };
        match value {
            Node::Text(text) | Node::Literal(text) => Ok(vec![one(text)]),
            Node::List(items) => {
                let text = |item| match item {
                    Node::Text(text) => Ok(one(text)),
                    other => Err(refused(&other)),
                };
                items.into_iter().map(text).collect()
            }
            other => Err(refused(&other)),
        }
    }
}

/// Names only: a value may be a secret.
impl fmt::Debug for ConfigFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |section: &Section| {
            let names: Vec<_> = section.settings.iter().map(|setting| setting.name.clone()).collect();
            (section.scheme.clone().unwrap_or_default(), names)
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

/// Messages of TOML errors may have several lines.
fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
