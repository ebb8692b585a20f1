//! From a URL to a store.

use crate::{
    COMMON_OPTIONS, Error, ErrorKind, OptionSpec, Result, Source, Store, StoreOpener, StoreOptions,
    without_user,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How one kind of store is opened.
#[derive(Clone, Copy, Debug)]
pub struct StoreFactory {
    /// The part of the URL before its first colon.
    pub scheme: &'static str,
    /// Its options, besides the common ones.
    pub options: &'static [OptionSpec],
    /// Those of its options whose values are URLs of the stores that it is made of, its *tiers*. The registry makes
    /// what opens them; [`StoreOptions::take_store`] gives it.
    pub stores: &'static [OptionSpec],
    /// Opens the store at a location (the URL between the colon and `?`, decoded). Checks every option before
    /// it touches anything.
    pub open: fn(location: &str, options: StoreOptions) -> Result<Arc<dyn Store>>,
    /// Checks every option, and touches nothing.
    pub check: fn(options: StoreOptions) -> Result<()>,
}

/// What all sources but its own URL say for a store of a scheme.
pub type Beside<'a> = &'a dyn Fn(&str) -> Result<StoreOptions>;

/// What a URL inside a URL leaves as it is.
const INSIDE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_');

/// One of the stores that a store is made of, before it is opened.
struct Tier {
    spec: &'static OptionSpec,
    named_by: Source,
    url: String,
    options: StoreOptions,
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
    /// percent-decoded. `options` are what other sources say; the URL's own are added to them. Of its tiers, if it
    /// has any, no other source says anything.
    ///
    /// # Errors
    ///
    /// As [`StoreRegistry::open_with`].
    pub fn open(&self, url: &str, options: StoreOptions) -> Result<Arc<dyn Store>> {
        let existing = options.existing();
        let nothing = move |_: &str| {
            let mut options = StoreOptions::default();
            options.set_existing(existing);
            Ok(options)
        };
        self.open_with(url, options, &nothing)
    }

    /// As [`StoreRegistry::open`], with what other sources say of the tiers of the store (`beside`). A tier has the
    /// common options of the whole, where nothing else sets them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for an unknown scheme (listing those there are), a malformed URL, an option that
    /// is unknown or malformed, and a tier that has tiers itself; whatever opening the store meets. What concerns a
    /// tier names it. Every option is checked before anything is opened. Blocks while the store looks at its medium.
    pub fn open_with(&self, url: &str, options: StoreOptions, beside: Beside<'_>) -> Result<Arc<dyn Store>> {
        let (factory, rest) = self.factory(url)?;
        let mut options = self.options(url, options)?;
        let location = decode_location(rest)?;
        let tiers = self.tiers(factory, &options, beside)?;
        if !tiers.is_empty() {
            self.check_all(factory, options.clone(), &tiers)?;
        }
        for tier in tiers {
            let (registry, spec) = (self.clone(), tier.spec);
            let open =
                move || registry.open(&tier.url, tier.options.clone()).map_err(|error| tier.named(error));
            options.set_store(spec, StoreOpener::new(open));
        }
        (factory.open)(&location, options)
    }

    /// Where the store at `url` is: the URL between its first colon and `?`, decoded.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for an unknown scheme or a malformed URL.
    pub fn location(&self, url: &str) -> Result<String> {
        decode_location(self.factory(url)?.1)
    }

    /// Checks every option of the store at `url` and of its tiers, and opens nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] as [`StoreRegistry::open_with`] would have it.
    pub fn check_with(&self, url: &str, options: StoreOptions, beside: Beside<'_>) -> Result<()> {
        let (factory, _) = self.factory(url)?;
        let options = self.options(url, options)?;
        let tiers = self.tiers(factory, &options, beside)?;
        self.check_all(factory, options, &tiers)
    }

    /// The tiers of the store at `url`: the option that names each, its URL, and every option that it would be
    /// opened with, but for those of its URL.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] as [`StoreRegistry::open_with`] would have it.
    pub fn tiers_with(
        &self,
        url: &str,
        options: StoreOptions,
        beside: Beside<'_>,
    ) -> Result<Vec<(&'static OptionSpec, String, StoreOptions)>> {
        let (factory, _) = self.factory(url)?;
        let options = self.options(url, options)?;
        let tiers = self.tiers(factory, &options, beside)?;
        Ok(tiers.into_iter().map(|tier| (tier.spec, tier.url, tier.options)).collect())
    }

    fn tiers(&self, factory: &StoreFactory, options: &StoreOptions, beside: Beside<'_>) -> Result<Vec<Tier>> {
        let mut tiers = Vec::new();
        for spec in factory.stores {
            let Some(url) = options.get(spec, |text| Ok(text.to_owned()))? else { continue };
            let named_by =
                options.strongest(spec).first().map_or(Source::Default, |(source, _)| (*source).clone());
            let mut tier = Tier { spec, named_by, url, options: StoreOptions::default() };
            let found = self.beside_tier(factory, &tier.url, beside).map_err(|error| tier.named(error))?;
            tier.options = found;
            for common in COMMON_OPTIONS {
                for (_, value) in options.strongest(common) {
                    tier.options.set(Source::Default, common.name, value);
                }
            }
            tiers.push(tier);
        }
        Ok(tiers)
    }

    /// What other sources say of a tier. One made of tiers is refused: the environment could name a store inside
    /// itself.
    fn beside_tier(&self, factory: &StoreFactory, url: &str, beside: Beside<'_>) -> Result<StoreOptions> {
        let (tier, _) = self.factory(url)?;
        if tier.stores.is_empty() {
            return beside(tier.scheme);
        }
        Err(Error::new(ErrorKind::InvalidConfig, "open store")
            .why(format_args!("a {}: store cannot be a tier of a {}: store", tier.scheme, factory.scheme))
            .fix("name a store of another kind"))
    }

    fn check_all(&self, factory: &StoreFactory, options: StoreOptions, tiers: &[Tier]) -> Result<()> {
        (factory.check)(options)?;
        for tier in tiers {
            let checked = self.check_tier(tier);
            checked.map_err(|error| tier.named(error))?;
        }
        Ok(())
    }

    fn check_tier(&self, tier: &Tier) -> Result<()> {
        let (factory, _) = self.factory(&tier.url)?;
        (factory.check)(self.options(&tier.url, tier.options.clone())?)
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
        let is_in = |specs: &[OptionSpec], name: &str| {
            specs.iter().any(|spec| spec.name == name || spec.aliases.contains(&name))
        };
        // The URL of a tier that was written as it is.
        let mut bare = None;
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
            if let Some(tier) = bare
                && !is_in(factory.options, name)
                && !is_in(COMMON_OPTIONS, name)
            {
                return Err(Error::new(ErrorKind::InvalidConfig, "open store")
                    .why("an & ends the URL of a tier, and what follows is no option of the whole")
                    .with("option", name)
                    .with("tier", tier)
                    .fix("write & in the URL of a tier as %26, ? as %3F and % as %25"));
            }
            if is_in(factory.stores, name) && value.contains('?') {
                bare = Some(name);
            }
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
                    error
                        .why("a store is named by a URL")
                        .with("given", format_args!("{:?}", without_user(place)))
                }
            }
            .fix(format_args!("this build has {schemes}"))
        })
    }

    /// `url` without the values of secret options, to print.
    pub fn redact(&self, url: &str) -> String {
        let Some((place, query)) = url.split_once('?') else { return without_user(url).into_owned() };
        let place = without_user(place);
        let Ok((factory, _)) = self.factory(url) else { return format!("{place}?***") };
        let specs = || factory.options.iter().chain(COMMON_OPTIONS);
        let named = |name: &str| {
            let name = name.to_string();
            move |spec: &&OptionSpec| spec.name == name || spec.aliases.contains(&name.as_str())
        };
        let names_user = |value: &str| decode(value).is_ok_and(|value| without_user(&value) != value);
        let public = |name: &str| specs().find(named(name)).is_some_and(|spec| !spec.secret);
        let redact = |pair: &str| match pair.split_once('=') {
            Some((name, value)) if factory.stores.iter().find(named(name)).is_some() => {
                format!("{name}={}", self.redact_inside(value))
            }
            Some((name, value)) if public(name) && !names_user(value) => format!("{name}={value}"),
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

impl StoreRegistry {
    /// The URL of a tier, as it stands in the URL of the whole, without the values of secret options.
    fn redact_inside(&self, encoded: &str) -> String {
        let Ok(url) = decode(encoded) else { return "***".to_string() };
        let redacted = self.redact(&url);
        if redacted == url { encoded.to_string() } else { utf8_percent_encode(&redacted, INSIDE).to_string() }
    }
}

impl Tier {
    /// The error, and which tier it is about.
    fn named(&self, error: Error) -> Error {
        error.with("tier", self.spec.name).with("named_by", &self.named_by)
    }
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
