//! Where pages lie: the service's endpoint, the bucket, and the names of objects in it.

use crate::options::{Addressing, ObjOptions};
use hicache_core::{Digest, Error, ErrorKind, PageKey, Result, without_secrets};
use http::Uri;
use std::fmt;
use std::net::IpAddr;

/// The name of a namespace's record, beside its pages.
pub(crate) const RECORD: &str = "namespace";

/// Bytes of an object's key that S3 takes at most.
const KEY_LEN_MAX: usize = 1024;

/// Bytes that a page's own part of its key takes: digest, slash, key.
const PAGE_NAME_LEN: usize = 64 + 1 + 64;

/// The address of a service: scheme, host, port, maybe a path before the bucket's name.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    url: String,
    host: String,
    secure: bool,
}

/// A bucket, and what the names of its objects begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) bucket: String,
    /// Empty, or ending in a slash.
    prefix: String,
}

/// What an object is, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Page(PageKey),
    Record,
    /// No name of ours, under the name of a namespace.
    Other,
}

impl Endpoint {
    /// Reads `http://host:port` or `https://host`, maybe with a path.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in a clause.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let form = "want http://host:port or https://host";
        let uri: Uri = text.parse().map_err(|_| format!("it is no URL; {form}"))?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(format!("it has no scheme; {form}")),
        };
        let authority = uri.authority().ok_or_else(|| format!("it has no host; {form}"))?;
        if authority.as_str().contains('@') {
            return Err("it names a user; credentials are options of their own".to_string());
        }
        if uri.query().is_some() || text.contains(['#', '&', ';']) {
            return Err(format!(
                "something follows host and path: options stand beside the endpoint; {form}"
            ));
        }
        let port = authority.as_str().rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
        if port.is_some_and(|(_, port)| port.parse::<u16>().is_err()) {
            return Err(format!("its port is no number up to 65535; {form}"));
        }
        let host =
            uri.host().filter(|host| !host.is_empty()).ok_or_else(|| format!("it has no host; {form}"))?;
        Ok(Self { url: text.trim_end_matches('/').to_string(), host: host.to_string(), secure })
    }

    /// As it was given, without a slash at its end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Over TLS.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// On this host itself.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = self.host.trim_matches(['[', ']']);
        host == "localhost"
            || host.ends_with(".localhost")
            || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

impl Place {
    /// Reads `//bucket/prefix`.
    pub(crate) fn parse(location: &str) -> Result<Self> {
        let invalid = |why: &str| {
            Err(Error::new(ErrorKind::InvalidConfig, "open store")
                .why(why)
                .with("location", shown(location))
                .fix("write s3://bucket/prefix"))
        };
        let Some(rest) = location.strip_prefix("//") else { return invalid("an S3 store is s3://bucket") };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if !(1..=255).contains(&bucket.len()) {
            return invalid("the bucket has no name, or one too long");
        }
        if bucket.contains('@') {
            return invalid("it names a user; credentials are options: access_key and secret_key");
        }
        if !bucket.chars().all(plain) || bucket.starts_with(['.', '-']) {
            return invalid("a bucket's name is letters, digits, dots and dashes");
        }
        if prefix.trim() != prefix {
            return invalid("the prefix begins or ends with a space");
        }
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        if prefix.len() + 1 + PAGE_NAME_LEN > KEY_LEN_MAX {
            return invalid("the prefix is too long: S3 takes keys of at most 1,024 bytes");
        }
        if prefix.chars().any(char::is_control) {
            return invalid("the prefix has control characters");
        }
        // Services and proxies resolve these as in a path, and would put pages elsewhere, or nowhere.
        if !prefix.is_empty() && prefix.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return invalid("the prefix has an empty part, or one that is . or ..");
        }
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Self { bucket: bucket.to_string(), prefix })
    }

    /// What the names of all objects begin with.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// What the names of a namespace's objects begin with.
    pub(crate) fn folder(&self, namespace: Digest) -> String {
        format!("{}{namespace}/", self.prefix)
    }

    pub(crate) fn page(&self, namespace: Digest, key: &PageKey) -> String {
        format!("{}{namespace}/{key}", self.prefix)
    }

    pub(crate) fn record(&self, namespace: Digest) -> String {
        format!("{}{namespace}/{RECORD}", self.prefix)
    }

    /// What an object in a namespace's folder is.
    pub(crate) fn named(&self, namespace: Digest, name: &str) -> Named {
        match name.strip_prefix(&self.folder(namespace)) {
            Some(RECORD) => Named::Record,
            Some(rest) if rest.len() == 64 && !rest.contains(|c: char| c.is_ascii_uppercase()) => {
                rest.parse().map_or(Named::Other, Named::Page)
            }
            _ => Named::Other,
        }
    }

    /// The namespace of a page by the name of its object.
    pub(crate) fn namespace_of_page(&self, name: &str) -> Option<Digest> {
        let folder = &name[..=name.rfind('/')?];
        let digest = self.namespace_of(folder)?;
        matches!(self.named(digest, name), Named::Page(_)).then_some(digest)
    }

    /// The namespace whose folder that is.
    pub(crate) fn namespace_of(&self, folder: &str) -> Option<Digest> {
        let name = folder.strip_prefix(&self.prefix)?.strip_suffix('/')?;
        if name.contains(|c: char| c.is_ascii_uppercase()) { None } else { name.parse().ok() }
    }
}

/// What of a location may be told: nothing that follows a bucket's name and is no prefix, for it may be a secret.
fn shown(location: &str) -> String {
    let shown = without_secrets(location);
    let is_end = |c: char| matches!(c, ';' | '&' | '#' | '?' | ',' | '=') || c.is_whitespace();
    match shown.find(is_end) {
        Some(at) => format!("{}***", &shown[..at]),
        None => shown.into_owned(),
    }
}

/// Whether the bucket is named in the path, and why so.
pub(crate) fn is_path_style(options: &ObjOptions, bucket: &str) -> (bool, &'static str) {
    match options.addressing {
        Addressing::Path => (true, "asked for"),
        Addressing::VirtualHost => (false, "asked for"),
        Addressing::Auto if options.is_custom() => (true, "an endpoint is given"),
        Addressing::Auto if bucket.contains('.') => {
            (true, "the bucket's name has a dot, which TLS names do not match")
        }
        Addressing::Auto if !is_host_name(bucket) => (true, "the bucket's name is no host name"),
        Addressing::Auto => (false, "AWS"),
    }
}

/// Whether a bucket can be named in a host's name. The SDK puts any other into the path, without a word.
pub(crate) fn is_host_name(bucket: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.iter().all(|&byte| plain(byte) || byte == b'-')
            && bytes.first().is_some_and(|&byte| plain(byte))
            && bytes.last().is_some_and(|&byte| plain(byte))
    };
    (3..=63).contains(&bucket.len()) && bucket.split('.').all(is_label)
}
