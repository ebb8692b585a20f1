//! Options from a configuration file in TOML, JSON or YAML.

mod blame;

use crate::document::Node;
use crate::extra_config::{self, PLUGIN};
use crate::{Error, ErrorKind, Result, Source, StoreFactory, StoreOptions, StoreRegistry, names, yaml};
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
/// In JSON, the same: `{"backend": "file:cache", "file": {"direct": true}}`, and so in YAML, of which anchors and tags
/// are not read. Numbers, booleans and dates are their texts; a list of texts, which is not empty, repeats its option.
/// Relative paths start at the working directory, as those of flags do.
///
/// Both shapes of SGLang's extra configuration are read, too. *Flat*, `{"use_direct_io": true, "threads": 4}`: where
/// there are no sections, options at top level are those of whichever store is opened. *Qualified*,
/// `{"plugin": {"posix": {"active": true, "threads": 4}}, "use_direct_io": true}`: the active plugin's section and the
/// top level are options of the store that stands for it, `posix` for `file:`, `obj` for `s3:`, whose `bucket` names
/// the store ([`Opener::url`](crate::Opener::url)). The plugin parameter `use_uring` is `engine=io_uring`; one that
/// means nothing here is refused by name. Keys that SGLang's controller reads (`prefetch_threshold`, `backend_name`,
/// `interface_v1`, ...) are checked for their kind, and left to it.
#[derive(Clone)]
pub struct ConfigFile {
    path: String,
    backend: Option<String>,
    plugin: Option<&'static str>,
    /// What that plugin's section says.
    bucket: Option<String>,
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
    /// Reads the file at `path`, whose extension (`.toml`, `.json`, `.yaml`, `.yml`) says what it is.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for a file that cannot be read or is malformed, for a key that is there twice,
    /// and for a value that is no text, number, boolean or list of texts; with the place in the file.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let parse = match extension.to_ascii_lowercase().as_str() {
            "toml" => Self::parse_toml,
            "json" => Self::parse_json,
            "yaml" | "yml" => Self::parse_yaml,
            _ => {
                return Err(invalid(&name, "its name ends in none of .toml, .json, .yaml and .yml")
                    .fix("rename it, so that its syntax is known"));
            }
        };
        let bytes = read(path).map_err(|error| invalid(&name, "it cannot be read").because(error))?;
        if bytes.len() as u64 > LEN_MAX {
            return Err(invalid(&name, "it is larger than 1 MiB"));
        }
        let text = String::from_utf8(bytes)
            .map_err(|error| invalid(&name, "it is not UTF-8").because(error.utf8_error()))?;
        // Editors of other systems put a mark of the byte order in front.
        parse(&name, text.strip_prefix('\u{feff}').unwrap_or(&text))
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
            let message = one_line(error.message());
            invalid(path, format_args!("{message}{place}")).fix("correct the TOML")
        })?;
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

    /// Reads YAML; `path` is what errors call it.
    ///
    /// # Errors
    ///
    /// As [`ConfigFile::read`].
    pub fn parse_yaml(path: &str, text: &str) -> Result<Self> {
        let node = yaml::parse(text).map_err(|why| invalid(path, one_line(&why)).fix("correct the YAML"))?;
        Self::of(path, node)
    }

    /// Where it was read from.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The URL of the store, if the file names one.
    pub fn backend(&self) -> Option<&str> {
        self.backend.as_deref()
    }

    /// The bucket that the active plugin's section names.
    pub(crate) fn bucket(&self) -> Option<&str> {
        self.bucket.as_deref()
    }

    /// The kind of store that stands for the plugin that is active in it, if it has plugins.
    pub(crate) fn plugin_scheme(&self) -> Option<&'static str> {
        self.plugin
    }

    /// Reads what SGLang is given as a backend's extra configuration: JSON, or `@` and the path of a file, which
    /// [`ConfigFile::read`] reads.
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
        let mut config =
            Self { path: path.to_owned(), backend: None, plugin: None, bucket: None, sections: Vec::new() };
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
                (PLUGIN, other) => {
                    let why =
                        format!("plugin is {}, not a table with a section for each plugin", other.kind());
                    return Err(invalid(path, why));
                }
                (_, Node::Table(options)) => config.sections.push(Section::of(path, key, options)?),
                (_, value) => top.push((key, value)),
            }
        }
        config.take_top(plugins, top)
    }

    /// Places what stands at top level.
    fn take_top(mut self, plugins: Option<Vec<(String, Node)>>, top: Vec<(String, Node)>) -> Result<Self> {
        let path = self.path.as_str();
        let mut settings = match plugins {
            Some(plugins) if self.sections.is_empty() => {
                let (scheme, settings) = extra_config::active_plugin(path, plugins)?;
                self.plugin = Some(scheme);
                settings
            }
            Some(_) => {
                return Err(invalid(path, "it has sections of stores and of plugins")
                    .with("at", PLUGIN)
                    .fix("write sections of one kind only"));
            }
            None => Vec::new(),
        };
        if let Some((key, value)) = top.first().filter(|_| !self.sections.is_empty()) {
            return Err(invalid(path, format_args!("it has sections, and beside them {}", value.kind()))
                .with("at", key)
                .fix(format_args!("an option goes into its store's section, as in [file] {}", key)));
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
        if !settings.is_empty() || self.plugin.is_some() {
            let mut settings = extra_config::translate(path, settings)?;
            let scheme = self.plugin.map(str::to_owned);
            let bucket = settings.iter().position(|setting| setting.name == extra_config::BUCKET);
            match (self.plugin, bucket) {
                (Some("s3"), Some(at)) => self.bucket = Some(settings.remove(at).value),
                (None, Some(at)) => {
                    return Err(invalid(path, "a bucket is the store's place, not an option of it")
                        .with("at", &settings[at].at)
                        .fix(
                            "write backend = s3://BUCKET, or the bucket into the section of the plugin obj, or set \
                             AWS_DEFAULT_BUCKET",
                        ));
                }
                _ => (),
            }
            self.sections.push(Section { scheme, settings });
        }
        Ok(self)
    }

    /// The kinds of store that it has options for; `None` stands for any.
    pub(crate) fn schemes(&self) -> impl Iterator<Item = Option<&str>> {
        self.sections.iter().map(|section| section.scheme.as_deref())
    }

    /// Refuses a section that is of no store of `registry`, and in any section an option that its store does not have.
    /// Of options at top level, what no store has is refused. Sections of kinds of store that `registry` leaves out are
    /// passed over.
    pub(crate) fn check(&self, registry: &StoreRegistry) -> Result<()> {
        for section in self.sections.iter().filter(|section| section.left_out(registry).is_none()) {
            let meant = |factory: &&StoreFactory| {
                section.scheme.as_deref().is_none_or(|scheme| scheme == factory.scheme)
            };
            let factories: Vec<_> = registry.factories().filter(meant).collect();
            if let Some(scheme) = section.scheme.as_deref().filter(|_| factories.is_empty()) {
                return Err(self.unknown(scheme, registry));
            }
            for setting in &section.settings {
                names::check(&factories, self.place(setting), &setting.name)?;
            }
        }
        Ok(())
    }

    /// The sections of kinds of store that `registry` leaves out, each with what mends that.
    pub(crate) fn passed_over(&self, registry: &StoreRegistry) -> impl Iterator<Item = (String, String)> {
        self.sections.iter().filter_map(|section| {
            let (scheme, fix) = (section.scheme.as_deref()?, section.left_out(registry)?);
            Some((format!("{}: {scheme}", self.path), fix))
        })
    }

    fn unknown(&self, key: &str, registry: &StoreRegistry) -> Error {
        let schemes: Vec<&str> = registry.factories().map(|factory| factory.scheme).collect();
        let all = schemes.iter().chain(&[BACKEND]);
        let fix = match names::nearest(all.map(|known| (strsim::jaro_winkler(key, known), known))) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("this build knows backend, {}", schemes.join(", ")),
        };
        invalid(&self.path, "it has a key that nothing reads").with("at", key).fix(fix)
    }

    fn place(&self, setting: &Setting) -> Source {
        Source::File(format!("{}: {}", self.path, setting.at))
    }

    /// Sets what it says for stores of `scheme`.
    pub(crate) fn set(&self, scheme: &str, options: &mut StoreOptions) {
        let sections = self
            .sections
            .iter()
            .filter(|section| section.scheme.as_ref().is_none_or(|named| named == scheme));
        for setting in sections.flat_map(|section| &section.settings) {
            options.set(self.place(setting), setting.name.as_str(), setting.value.as_str());
        }
    }
}

impl Section {
    /// What mends that it is for a kind of store which `registry` leaves out, if it is.
    fn left_out(&self, registry: &StoreRegistry) -> Option<String> {
        let own = self.scheme.as_deref()?;
        let (scheme, feature) = registry.left_out().find(|(scheme, _)| *scheme == own)?;
        Some(names::in_builds_with(scheme, feature))
    }

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
            // No value would be no setting, and its name never looked at.
            Node::List(items) if items.is_empty() => Err(invalid(path, "an option is an empty list")
                .with("at", at)
                .fix("give its values, or leave it out")),
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
    format!(" at line {line}, column {column}")
}

#[cfg(test)]
mod tests;
