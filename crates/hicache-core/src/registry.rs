//! From a URL to a store.

use crate::url::{START, decode, stray_option};
use crate::{
    COMMON_OPTIONS, Error, ErrorKind, OptionSpec, Result, Source, Store, StoreOpener, StoreOptions,
    without_secrets,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
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
    /// Checks a location, and touches nothing.
    pub locate: fn(location: &str) -> Result<()>,
    /// Checks every option, and touches nothing.
    pub check: fn(options: StoreOptions) -> Result<()>,
}

/// What all sources but its own URL say for a store of a scheme.
pub type Beside<'a> = &'a dyn Fn(&str) -> Result<StoreOptions>;

/// The kind of store that a bare path is meant for.
const FILE: &str = "file";

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
pub struct StoreRegistry {
    factories: BTreeMap<&'static str, StoreFactory>,
    /// Features by the scheme of the store that each has.
    left_out: BTreeMap<&'static str, &'static str>,
}

impl StoreRegistry {
    /// Adds a kind of store; one already there with the same scheme gives way.
    pub fn register(&mut self, factory: StoreFactory) -> &mut Self {
        self.factories.insert(factory.scheme, factory);
        self
    }

    /// Names the feature that has a kind of store which this build leaves out, for whoever asks for it. Of one that is
    /// there, nothing is left out.
    pub fn leave_out(&mut self, scheme: &'static str, feature: &'static str) -> &mut Self {
        self.left_out.insert(scheme, feature);
        self
    }

    /// The kinds of store that this build leaves out, by scheme, each with the feature that has it.
    pub fn left_out(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let absent = self.left_out.iter().filter(|(scheme, _)| !self.factories.contains_key(*scheme));
        absent.map(|(scheme, feature)| (*scheme, *feature))
    }

    /// The kinds of store there are, by scheme.
    pub fn factories(&self) -> impl Iterator<Item = &StoreFactory> {
        self.factories.values()
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
        (factory.locate)(&location)?;
        let tiers = self.tiers(factory, &options, beside)?;
        if !factory.stores.is_empty() {
            self.check_all(factory, options.clone(), &tiers)?;
            check_named(factory, &tiers)?;
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
    /// [`ErrorKind::InvalidConfig`] for an unknown scheme, a malformed URL, and a location that this kind of store
    /// does not have.
    pub fn location(&self, url: &str) -> Result<String> {
        let (factory, rest) = self.factory(url)?;
        self.options(url, StoreOptions::default())?;
        let location = decode_location(rest)?;
        (factory.locate)(&location)?;
        Ok(location)
    }

    /// Checks the location and every option of the store at `url` and of its tiers, and that none of these is left
    /// out; opens nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] as [`StoreRegistry::open_with`] would have it.
    pub fn check_with(&self, url: &str, options: StoreOptions, beside: Beside<'_>) -> Result<()> {
        let (factory, rest) = self.factory(url)?;
        let options = self.options(url, options)?;
        (factory.locate)(&decode_location(rest)?)?;
        let tiers = self.tiers(factory, &options, beside)?;
        self.check_all(factory, options, &tiers)?;
        check_named(factory, &tiers)
    }

    /// Checks every option of stores of the kind that `url` names, and nothing of where one is: what a source says of
    /// a kind of store, whichever store is opened.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] as [`StoreRegistry::open_with`] would have it.
    pub fn check_options_with(&self, url: &str, options: StoreOptions, beside: Beside<'_>) -> Result<()> {
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
        let (factory, rest) = self.factory(&tier.url)?;
        let options = self.options(&tier.url, tier.options.clone())?;
        (factory.locate)(&decode_location(rest)?)?;
        (factory.check)(options)
    }

    /// `options` with those that the URL itself sets, and the kind of store that it names.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for an unknown scheme or a malformed URL, also one where an option stands in the
    /// location or in another's value.
    pub fn options(&self, url: &str, mut options: StoreOptions) -> Result<StoreOptions> {
        let (factory, rest) = self.factory(url)?;
        options.set_scheme(factory.scheme);
        let (location, query) = rest.split_once('?').unwrap_or((rest, ""));
        self.check_location(location)?;
        let is_in = |specs: &[OptionSpec], name: &str| specs.iter().any(|spec| spec.is_called(name));
        // The option whose value an & may have ended that belongs to it: the URL of a tier that was written as it is.
        let mut bare = None;
        // The same of a secret, a part of which then looks like an option's name.
        let mut secret = None;
        // A value may be a secret, so errors name options, and by their place what may be a part of a value.
        for (index, pair) in query.split('&').enumerate().filter(|(_, pair)| !pair.is_empty()) {
            let number = || format!("number {}", index + 1);
            let (name, value) = pair.split_once('=').ok_or_else(|| {
                let known = is_in(factory.options, pair) || is_in(COMMON_OPTIONS, pair);
                Error::new(ErrorKind::InvalidConfig, "open store")
                    .why("an option in the URL has no value")
                    .with("option", if known { pair.to_string() } else { number() })
                    .fix("write option=value, and & in a value as %26")
            })?;
            let called = |name: &str| self.spec(name).map_or_else(number, |spec| spec.name.to_string());
            let decoded = |text| decode(text).map_err(|why| undecoded(why).with("option", called(name)));
            let (plain, value) = (decoded(name)?, (value, decoded(value)?));
            if !is_in(factory.options, &plain) && !is_in(COMMON_OPTIONS, &plain) {
                if let Some(secret) = secret {
                    return Err(Error::new(ErrorKind::InvalidConfig, "open store")
                        .why("what follows the value of a secret option is no option of the store")
                        .with("option", number())
                        .with("after", secret)
                        .fix("write & in a value as %26, or mend the option's name"));
                }
                if let Some(tier) = bare {
                    return Err(Error::new(ErrorKind::InvalidConfig, "open store")
                        .why("an & ends the URL of a tier, and what follows is no option of the whole")
                        .with("option", called(&plain))
                        .with("tier", tier)
                        .fix("write & in the URL of a tier as %26, ? as %3F and % as %25"));
                }
            }
            if is_in(factory.stores, &plain) {
                bare = value.0.contains('?').then_some(name).or(bare);
            } else {
                self.check_value(&plain, value.0, &value.1)?;
            }
            secret = self.spec(&plain).filter(|spec| spec.secret).map(|spec| spec.name);
            options.set(Source::Url, plain, value.1);
        }
        Ok(options)
    }

    /// What any kind of store calls by that name.
    fn spec(&self, name: &str) -> Option<&'static OptionSpec> {
        let all = self.factories.values().flat_map(|factory| factory.options).chain(COMMON_OPTIONS);
        let mut named = all.filter(|spec| spec.is_called(&name.to_ascii_lowercase()));
        named.next()
    }

    fn is_secret(&self, name: &str) -> bool {
        self.spec(name).is_some_and(|spec| spec.secret)
    }

    /// Refuses a location that an option stands in: a secret would become a part of a name that others read. What is
    /// percent-encoded is meant as it is, unless it is a secret.
    fn check_location(&self, location: &str) -> Result<()> {
        let place = location.strip_prefix("//").unwrap_or(location);
        let stray = stray_option(place, |mark, name| match mark {
            '&' | ';' => true,
            '/' => self.is_secret(name),
            _ => self.spec(name).is_some(),
        });
        let encoded = || decode(location).ok().filter(|decoded| self.holds_secret(decoded)).map(drop);
        let error = || {
            Error::new(ErrorKind::InvalidConfig, "open store")
                .why("an option stands in the location, where it would be taken for a part of a name")
        };
        let fix = "write ? before the first option and & between the others; what belongs to the location is \
                   percent-encoded: & is %26, ; is %3B, = is %3D";
        match (stray, encoded()) {
            (Some((_, name)), _) => match self.spec(name) {
                Some(spec) => Err(error().with("option", spec.name).fix(fix)),
                None => Err(error().fix(fix)),
            },
            (None, Some(())) => {
                Err(error().fix("write ? and & before options as they are, not percent-encoded"))
            }
            (None, None) => Ok(()),
        }
    }

    /// Refuses a value that another option stands in.
    fn check_value(&self, name: &str, raw: &str, decoded: &str) -> Result<()> {
        let stray = stray_option(raw, |mark, name| match mark {
            '/' | START => self.is_secret(name),
            _ => self.spec(name).is_some(),
        });
        let inside = stray.and_then(|(_, inside)| self.spec(inside));
        if inside.is_none() && (self.is_secret(name) || !self.holds_secret(decoded)) {
            return Ok(());
        }
        let mut error = Error::new(ErrorKind::InvalidConfig, "open store")
            .why("an option stands in the value of another")
            .fix("write & between options; what belongs to a value is percent-encoded: ; is %3B, = is %3D");
        if let Some(outer) = self.spec(name) {
            error = error.with("option", outer.name);
        }
        Err(inside.map_or(error.clone(), |inside| error.with("inside", inside.name)))
    }

    /// Whether a secret option stands in a text, however it came there.
    fn holds_secret(&self, text: &str) -> bool {
        stray_option(text, |_, name| self.is_secret(name)).is_some()
    }

    /// The factory that `url` names, and the URL after its first colon.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] listing the schemes there are.
    pub fn factory<'a>(&self, url: &'a str) -> Result<(&StoreFactory, &'a str)> {
        let split = url.split_once(':');
        let found = split.and_then(|(scheme, rest)| Some((self.factories.get(scheme)?, rest)));
        found.ok_or_else(|| {
            let schemes =
                self.factories.keys().map(|scheme| format!("{scheme}:")).collect::<Vec<_>>().join(", ");
            let error = Error::new(ErrorKind::InvalidConfig, "open store");
            let left_out = split.and_then(|(scheme, _)| self.left_out().find(|(known, _)| *known == scheme));
            let mut more = String::new();
            match (split, left_out) {
                (_, Some((scheme, feature))) => {
                    more = format!("{scheme}: is in builds with the feature {feature}; ");
                    error.why("this build leaves that kind of store out").with("scheme", scheme)
                }
                // What is no scheme may be anything, also a user whose password follows.
                (Some((scheme, _)), None) if is_scheme(scheme) => {
                    error.why("no such kind of store").with("scheme", format_args!("{scheme:?}"))
                }
                (Some(_), None) => {
                    error.why("what stands before the first colon of the URL names no kind of store")
                }
                (None, None) => {
                    let place = url.split_once('?').map_or(url, |(place, _)| place);
                    let place = place.rsplit_once('@').map_or(place, |(_, host)| host);
                    if place.starts_with(['/', '.']) && self.factories.contains_key(FILE) {
                        more = format!("write {FILE}:{}; ", without_secrets(place));
                    }
                    error
                        .why("a store is named by a URL")
                        .with("given", format_args!("{:?}", without_secrets(place)))
                }
            }
            .fix(format_args!("{more}this build has {schemes}"))
        })
    }

    /// `url` without the values of secret options, to print.
    pub fn redact(&self, url: &str) -> String {
        let (place, query) = url.split_once('?').map_or((url, None), |(place, query)| (place, Some(query)));
        let place = match place.split_once(':') {
            Some((scheme, rest)) if self.holds_secret(rest) => format!("{scheme}:***"),
            // No kind of store, and so anything.
            _ if self.factory(place).is_err() && place.contains('@') => "***".to_string(),
            _ => without_secrets(place).into_owned(),
        };
        let Some(query) = query else { return place };
        let Ok((factory, _)) = self.factory(url) else { return format!("{place}?***") };
        let specs = || factory.options.iter().chain(COMMON_OPTIONS);
        let named = |name: &str| {
            let name = name.to_string();
            move |spec: &&OptionSpec| spec.is_called(&name)
        };
        let tells = |value: &str| {
            decode(value).is_ok_and(|value| without_secrets(&value) != value || self.holds_secret(&value))
        };
        let public = |name: &str| specs().find(named(name)).is_some_and(|spec| !spec.secret);
        // What follows a secret may be the rest of it.
        let mut after_secret = false;
        let redact = |pair: &str| {
            let Some((name, value)) = pair.split_once('=') else {
                return if pair.is_empty() { String::new() } else { "***".to_string() };
            };
            let rest = std::mem::take(&mut after_secret) && specs().find(named(name)).is_none();
            after_secret = rest || self.is_secret(name);
            if factory.stores.iter().find(named(name)).is_some() {
                format!("{name}={}", self.redact_inside(value))
            } else if public(name) && !tells(value) {
                format!("{name}={value}")
            } else {
                format!("{}=***", if rest { "***" } else { name })
            }
        };
        format!("{place}?{}", query.split('&').map(redact).collect::<Vec<_>>().join("&"))
    }
}

/// A store that is made of others is made of all of them.
fn check_named(factory: &StoreFactory, tiers: &[Tier]) -> Result<()> {
    let is_named = |spec: &OptionSpec| tiers.iter().any(|tier| tier.spec.name == spec.name);
    let Some(missing) = factory.stores.iter().find(|spec| !is_named(spec)) else { return Ok(()) };
    let all: Vec<String> = factory.stores.iter().map(|spec| format!("{}=URL", spec.name)).collect();
    Err(Error::new(ErrorKind::InvalidConfig, "open store")
        .why(format_args!("the option {} names no store", missing.name))
        .fix(format_args!(
            "write {}:?{}, with % in a URL as %25, ? as %3F and & as %26",
            factory.scheme,
            all.join("&")
        )))
}

fn decode_location(rest: &str) -> Result<String> {
    let location = rest.split_once('?').map_or(rest, |(location, _)| location);
    decode(location).map_err(|why| undecoded(why).with("location", without_secrets(location)))
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

/// Whether it can be the name of a kind of store.
fn is_scheme(text: &str) -> bool {
    let plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.' | '_') || c.is_whitespace();
    text.len() <= 16 && text.chars().all(plain)
}

fn undecoded(why: &'static str) -> Error {
    Error::new(ErrorKind::InvalidConfig, "open store").why(why).fix("write % as %25")
}
