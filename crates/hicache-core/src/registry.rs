//! From a URL to a store.

use crate::{COMMON_OPTIONS, Error, ErrorKind, OptionSpec, Result, Source, Store, StoreOptions};
use percent_encoding::percent_decode_str;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How one kind of store is opened.
#[derive(Clone, Copy, Debug)]
pub struct StoreFactory {
    /// The part of the URL before its first colon.
    pub scheme: &'static str,
    /// Its options, besides the common ones.
    pub options: &'static [OptionSpec],
    /// Opens the store at a location (the URL between the colon and `?`, decoded). Checks every option before
    /// it touches anything.
    pub open: fn(location: &str, options: StoreOptions) -> Result<Arc<dyn Store>>,
    /// Checks every option, and touches nothing.
    pub check: fn(options: StoreOptions) -> Result<()>,
}

/// Factories by scheme. A plain value: the facade fills one in, tests fill in their own.
#[derive(Clone, Debug, Default)]
pub struct StoreRegistry(BTreeMap<&'static str, StoreFactory>);

impl StoreRegistry {
    /// Adds a kind of store; one already there with the same scheme gives way.
    pub fn register(&mut self, factory: StoreFactory) -> &mut Self {
        self.0.insert(factory.scheme, factory);
        self
    }

    /// The kinds of store there are, by scheme.
    pub fn factories(&self) -> impl Iterator<Item = &StoreFactory> {
        self.0.values()
    }

    /// Opens `scheme:location?option=value&...`. The URL is split at its first colon; location and values are
    /// percent-decoded. `options` are what other sources say; the URL's own are added to them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for an unknown scheme (listing those there are) or a malformed URL, and
    /// whatever opening the store meets. Blocks while the store looks at its medium.
    pub fn open(&self, url: &str, options: StoreOptions) -> Result<Arc<dyn Store>> {
        let (factory, rest) = self.factory(url)?;
        let options = self.options(url, options)?;
        (factory.open)(&decode_location(rest)?, options)
    }

    /// Where the store at `url` is: the URL between its first colon and `?`, decoded.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for an unknown scheme or a malformed URL.
    pub fn location(&self, url: &str) -> Result<String> {
        decode_location(self.factory(url)?.1)
    }

    /// `options` with those that the URL itself sets, and the kind of store that it names.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for an unknown scheme or a malformed URL.
    pub fn options(&self, url: &str, mut options: StoreOptions) -> Result<StoreOptions> {
        let (factory, rest) = self.factory(url)?;
        options.set_scheme(factory.scheme);
        let query = rest.split_once('?').map_or("", |(_, query)| query);
        // A value may be a secret, so errors name options, and by their place what may be a part of a value.
        for (index, pair) in query.split('&').enumerate().filter(|(_, pair)| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(|| {
                let known = factory.options.iter().chain(COMMON_OPTIONS).any(|spec| spec.name == pair);
                let option = if known { pair.to_string() } else { format!("number {}", index + 1) };
                Error::new(ErrorKind::InvalidConfig, "open store")
                    .why("an option in the URL has no value")
                    .with("option", option)
                    .fix("write option=value, and & in a value as %26")
            })?;
            let decoded = |text| decode(text).map_err(|why| undecoded(why).with("option", name));
            options.set(Source::Url, decoded(name)?, decoded(value)?);
        }
        Ok(options)
    }

    /// The factory that `url` names, and the URL after its first colon.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] listing the schemes there are.
    pub fn factory<'a>(&self, url: &'a str) -> Result<(&StoreFactory, &'a str)> {
        let split = url.split_once(':');
        let found = split.and_then(|(scheme, rest)| Some((self.0.get(scheme)?, rest)));
        found.ok_or_else(|| {
            let schemes = self.0.keys().map(|scheme| format!("{scheme}:")).collect::<Vec<_>>().join(", ");
            let error = Error::new(ErrorKind::InvalidConfig, "open store");
            match split {
                Some((scheme, _)) => {
                    error.why("no such kind of store").with("scheme", format_args!("{scheme:?}"))
                }
                None => {
                    let place = url.split_once('?').map_or(url, |(place, _)| place);
                    error.why("a store is named by a URL").with("given", format_args!("{place:?}"))
                }
            }
            .fix(format_args!("this build has {schemes}"))
        })
    }

    /// `url` without the values of secret options, to print.
    pub fn redact(&self, url: &str) -> String {
        let Some((place, query)) = url.split_once('?') else { return url.to_string() };
        let Ok((factory, _)) = self.factory(url) else { return format!("{place}?***") };
        let specs = || factory.options.iter().chain(COMMON_OPTIONS);
        let public = |name: &str| {
            let named = |spec: &&OptionSpec| spec.name == name || spec.aliases.contains(&name);
            specs().find(named).is_some_and(|spec| !spec.secret)
        };
        let redact = |pair: &str| match pair.split_once('=') {
            Some((name, value)) if public(name) => format!("{name}={value}"),
            Some((name, _)) => format!("{name}=***"),
            None if pair.is_empty() => String::new(),
            None => "***".to_string(),
        };
        format!("{place}?{}", query.split('&').map(redact).collect::<Vec<_>>().join("&"))
    }
}

fn decode_location(rest: &str) -> Result<String> {
    let location = rest.split_once('?').map_or(rest, |(location, _)| location);
    decode(location).map_err(|why| undecoded(why).with("location", location))
}

/// The text without its percent signs, or why that cannot be.
fn decode(text: &str) -> Result<String, &'static str> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    if (0..bytes.len()).any(|at| bytes[at] == b'%' && !(digit(at + 1) && digit(at + 2))) {
        return Err("a % in the URL is not followed by two hexadecimal digits");
    }
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| "the URL does not decode to UTF-8")?;
    if decoded.contains('\0') {
        return Err("the URL has a zero byte");
    }
    Ok(decoded.into_owned())
}

fn undecoded(why: &'static str) -> Error {
    Error::new(ErrorKind::InvalidConfig, "open store").why(why).fix("write % as %25")
}
