//! SGLang's extra configuration of a storage backend: which keys are its own, and what its plugins are called here.

use crate::config::Setting;
use crate::document::Node;
use crate::{Error, ErrorKind, Result, parse_bool};

/// The key that holds a section for each plugin.
pub(crate) const PLUGIN: &str = "plugin";
/// The key of a plugin's section that selects it.
const ACTIVE: &str = "active";
/// Parameters of the plugin for S3 that are no options of a store: its bucket, and how its endpoint is spoken to.
pub(crate) const BUCKET: &str = "bucket";
const SCHEME: &str = "scheme";
const ENDPOINT: &str = "endpoint_override";
/// Plugins of NIXL that stores here stand for.
const PLUGINS: [(&str, &str); 2] = [("posix", "file"), ("obj", "s3")];

#[derive(Clone, Copy)]
enum Kind {
    Whole,
    Seconds,
    Bool,
    Text,
    Any,
}

/// Keys that SGLang's controller and its factory read and that say nothing about a store, with what they hold.
const CONTROLLER: [(&str, Kind); 9] = [
    ("prefetch_threshold", Kind::Whole),
    ("prefetch_timeout_base", Kind::Seconds),
    ("prefetch_timeout_per_ki_token", Kind::Seconds),
    ("hicache_storage_pass_prefix_keys", Kind::Bool),
    ("tp_lcm_size", Kind::Whole),
    ("backend_name", Kind::Text),
    ("module_path", Kind::Text),
    ("class_name", Kind::Text),
    ("interface_v1", Kind::Any),
];

/// Whether `key` is the controller's own, and then holds what it should.
///
/// # Errors
///
/// [`ErrorKind::InvalidConfig`] for a value of another kind.
pub(crate) fn is_controllers(path: &str, key: &str, value: &Node) -> Result<bool> {
    let Some((_, kind)) = CONTROLLER.iter().find(|(name, _)| *name == key) else { return Ok(false) };
    let (fits, wanted) = match (kind, value) {
        (Kind::Whole, Node::Literal(text)) => (text.parse::<u64>().is_ok(), "a whole number"),
        (Kind::Seconds, Node::Literal(text)) => {
            (text.parse::<f64>().is_ok_and(|seconds| seconds >= 0.0), "a number of seconds")
        }
        (Kind::Bool, Node::Literal(text)) => (matches!(text.as_str(), "true" | "false"), "true or false"),
        (Kind::Text, Node::Text(_)) | (Kind::Any, Node::Literal(_)) => (true, ""),
        (Kind::Whole, _) => (false, "a whole number"),
        (Kind::Seconds, _) => (false, "a number of seconds"),
        (Kind::Bool | Kind::Any, _) => (false, "true or false"),
        (Kind::Text, _) => (false, "a text"),
    };
    if fits {
        return Ok(true);
    }
    Err(invalid(path, key, &format!("SGLang wants {wanted} there")))
}

/// The scheme of the plugin that is active, and what its section says.
///
/// # Errors
///
/// [`ErrorKind::InvalidConfig`] when none is active or more than one, and for a plugin that no store stands for.
pub(crate) fn active_plugin(
    path: &str,
    plugins: Vec<(String, Node)>,
) -> Result<(&'static str, Vec<Setting>)> {
    let mut active = Vec::new();
    for (name, section) in plugins {
        let place = format!("{PLUGIN}.{name}");
        let Node::Table(entries) = section else {
            return Err(invalid(path, &place, "a plugin's section is a table"));
        };
        if is_active(path, &place, &entries)? {
            active.push((name, entries));
        }
    }
    let said = active.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    let Some((name, entries)) = active.pop() else {
        return Err(
            invalid(path, PLUGIN, "no plugin is active").fix("write \"active\": true into one section")
        );
    };
    if !active.is_empty() {
        return Err(invalid(path, PLUGIN, "more than one plugin is active").with("active", said));
    }
    let scheme = scheme_of(&name).map_err(|why| invalid(path, &format!("{PLUGIN}.{name}"), &why))?;
    let mut settings = Vec::new();
    for (key, value) in entries.into_iter().filter(|(key, _)| key != ACTIVE) {
        settings.extend(Setting::of(path, &format!("{PLUGIN}.{name}.{key}"), &key, value)?);
    }
    Ok((scheme, settings))
}

/// The store that stands for the plugin of that name, in any case.
///
/// # Errors
///
/// Why not, with the plugins that there are stores for.
pub(crate) fn scheme_of(plugin: &str) -> Result<&'static str, String> {
    let lower = plugin.to_ascii_lowercase();
    let found = PLUGINS.iter().find(|(known, _)| *known == lower);
    found.map(|(_, scheme)| *scheme).ok_or_else(|| {
        let known = PLUGINS.map(|(plugin, scheme)| format!("{plugin} ({scheme}:)")).join(" and ");
        format!("no store stands for the plugin {plugin}; there are those for {known}")
    })
}

fn is_active(path: &str, place: &str, entries: &[(String, Node)]) -> Result<bool> {
    match entries.iter().find(|(key, _)| key == ACTIVE) {
        None => Ok(false),
        Some((_, Node::Text(text) | Node::Literal(text))) => {
            parse_bool(text).map_err(|why| invalid(path, &format!("{place}.{ACTIVE}"), &why))
        }
        Some((_, other)) => Err(invalid(
            path,
            &format!("{place}.{ACTIVE}"),
            &format!("want true or false, not {}", other.kind()),
        )),
    }
}

/// Parameters of plugins under the names of options here. Those that mean nothing here stay what they are, and the
/// store refuses them by name.
///
/// # Errors
///
/// [`ErrorKind::InvalidConfig`] for a value that is no boolean where one is wanted, and for a scheme that is not the
/// endpoint's.
pub(crate) fn translate(path: &str, settings: Vec<Setting>) -> Result<Vec<Setting>> {
    let mut translated = Vec::with_capacity(settings.len());
    let settings = with_scheme(path, settings)?;
    for setting in settings {
        if setting.name != "use_uring" {
            translated.push(setting);
        } else if parse_bool(&setting.value).map_err(|why| invalid(path, &setting.at, &why))? {
            translated.push(Setting { name: "engine".to_owned(), value: "io_uring".to_owned(), ..setting });
        }
    }
    Ok(translated)
}

/// The endpoint as a URL: NIXL's plugin has its `scheme` (`https` unless said) as a parameter of its own.
fn with_scheme(path: &str, mut settings: Vec<Setting>) -> Result<Vec<Setting>> {
    let Some(endpoint) = settings.iter().position(|setting| setting.name == ENDPOINT) else {
        return Ok(settings);
    };
    let scheme = settings.iter().position(|setting| setting.name == SCHEME);
    let said = scheme.map(|scheme| settings[scheme].value.as_str());
    match settings[endpoint].value.split_once("://") {
        None => {
            settings[endpoint].value = format!("{}://{}", said.unwrap_or("https"), settings[endpoint].value);
        }
        Some((of_url, _)) if said.is_some_and(|said| !said.eq_ignore_ascii_case(of_url)) => {
            let at = scheme.map_or("", |scheme| settings[scheme].at.as_str());
            return Err(invalid(path, at, &format!("{ENDPOINT} has another scheme"))
                .fix("leave scheme out where the endpoint is a URL"));
        }
        Some(_) => (),
    }
    scheme.into_iter().for_each(|scheme| drop(settings.remove(scheme)));
    Ok(settings)
}

fn invalid(path: &str, at: &str, why: &str) -> Error {
    Error::new(ErrorKind::InvalidConfig, "read configuration").why(why).with("file", path).with("at", at)
}
