//! From a URL to a store: what is split where, what is decoded, what is refused, and what may be printed.

use hicache_core::{
    Error, ErrorKind, MemoryStore, OptionSpec, Result, Source, Store, StoreFactory, StoreOptions,
    StoreRegistry,
};
use hicache_testkit::{Medium, Openers, Reopened, Subject, conformance};
use std::sync::Arc;

const fn spec(name: &'static str, aliases: &'static [&'static str], secret: bool) -> OptionSpec {
    OptionSpec { name, aliases, kind: "", default: "", about: "", secret }
}

const NAME: OptionSpec = spec("name", &["alias"], false);
const TOKEN: OptionSpec = spec("token", &["secret_key"], true);
const TABLE: &[OptionSpec] = &[NAME, TOKEN];

/// A store that does not open, and says what it was asked for.
const PROBE: StoreFactory = StoreFactory { scheme: "probe", options: TABLE, open: probe };

fn probe(location: &str, mut options: StoreOptions) -> Result<Arc<dyn Store>> {
    let text = |text: &str| Ok(text.to_owned());
    let name = options.take(&NAME, text)?.unwrap_or_default();
    let token = options.take(&TOKEN, text)?.unwrap_or_default();
    options.finish(&[TABLE])?;
    Err(Error::new(ErrorKind::Unsupported, "probe")
        .with("location", location)
        .with("name", name)
        .with("token", token))
}

fn registry() -> StoreRegistry {
    let mut registry = StoreRegistry::default();
    registry.register(MemoryStore::FACTORY).register(PROBE);
    registry
}

fn open(url: &str) -> Error {
    registry().open(url, StoreOptions::default()).map(drop).expect_err("it does not open")
}

fn invalid(url: &str) -> String {
    let error = open(url);
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{url:?}: {error}");
    error.to_string()
}

#[test]
fn b016_every_registered_store_passes_the_conformance_suite() {
    let mut registry = StoreRegistry::default();
    registry.register(MemoryStore::FACTORY);
    for factory in registry.factories() {
        let (scheme, registry) = (factory.scheme, registry.clone());
        let fresh = move || {
            let registry = registry.clone();
            let url = format!("{scheme}:");
            Medium::of(move || registry.open(&url, StoreOptions::default()).expect("a store without options"))
        };
        conformance::all(&Subject::new(scheme, Reopened::Empty, Openers::One, fresh));
    }
}

#[test]
fn b016_an_unknown_scheme_is_told_with_those_there_are() {
    for url in
        ["File:/x", "nixl:x", "nixl", "", "file ", "file :x", ":x", ":", "memory", " memory:", "MEMORY:"]
    {
        let error = invalid(url);
        assert!(error.ends_with("this build has memory:, probe:"), "{error}");
    }
    let schemes =
        |registry: &StoreRegistry| registry.factories().map(|factory| factory.scheme).collect::<Vec<_>>();
    assert_eq!(schemes(&registry()), ["memory", "probe"], "nothing is registered by asking");
    assert_eq!(schemes(&StoreRegistry::default()), Vec::<&str>::new());
}

#[test]
fn a_url_is_split_at_its_first_colon_and_its_first_question_mark() {
    let cases = [
        ("probe:", "", ""),
        ("probe:a:b:c", "a:b:c", ""),
        ("probe:///tmp/x", "///tmp/x", ""),
        ("probe://host:80/x", "//host:80/x", ""),
        ("probe:x?", "x", ""),
        ("probe:x?name=n", "x", "n"),
        ("probe:x?name=a:b?c", "x", "a:b?c"),
        ("probe:x?name=a=b", "x", "a=b"),
        ("probe:x?name=", "x", ""),
        ("probe:x?&&name=n&", "x", "n"),
        ("probe:x#y?name=n#m", "x#y", "n#m"),
    ];
    for (url, location, name) in cases {
        let error = open(url);
        assert_eq!((error.fact("location"), error.fact("name")), (Some(location), Some(name)), "{url}");
    }
}

#[test]
fn location_and_options_are_decoded_once() {
    let cases = [
        ("probe:a%20b", "a b", ""),
        ("probe:a+b?name=a+b", "a+b", "a+b"),
        ("probe:%3Fname=n", "?name=n", ""),
        ("probe:%2541", "%41", ""),
        ("probe:x?name=%26%3D", "x", "&="),
        ("probe:x?n%61me=n", "x", "n"),
        ("probe:%D0%BA", "к", ""),
        ("probe:к?name=%e2%82%ac", "к", "€"),
    ];
    for (url, location, name) in cases {
        let error = open(url);
        assert_eq!((error.fact("location"), error.fact("name")), (Some(location), Some(name)), "{url}");
    }
}

#[test]
fn a_url_that_does_not_decode_is_refused() {
    for url in ["probe:%", "probe:a%2", "probe:%zz", "probe:%+1", "probe:x?name=100%", "probe:x?%=1"] {
        assert!(invalid(url).contains("two hexadecimal digits"), "{url}");
    }
    for url in ["probe:%ff", "probe:x?name=%C3%28", "probe:x?%80=n"] {
        assert!(invalid(url).contains("UTF-8"), "{url}");
    }
    for url in ["probe:%00", "probe:x?name=a%00b", "probe:a\0"] {
        assert!(invalid(url).contains("zero byte"), "{url}");
    }
    assert!(invalid("probe:x?name").contains("write option=value"));
    assert!(invalid("memory:somewhere").contains("a memory store has no location"));
}

#[test]
fn b014_an_unknown_option_in_a_url_is_refused() {
    assert!(invalid("memory:?capasity=1GiB").contains("did you mean capacity?"));
    assert!(invalid("memory:?Capacity=1GiB").contains("no such option"));
    assert!(invalid("memory:?capacity=1GiB&capacity=2GiB").contains("set twice"));
    assert!(invalid("memory:?direct=true").contains("the options are capacity, accept_unverified"));
    registry().open("memory:?capacity=1GiB&capacity=1GiB", StoreOptions::default()).unwrap();
}

#[test]
fn options_of_a_url_stand_between_the_environment_and_a_flag() {
    let mut options = StoreOptions::default();
    options.set(Source::Env("PROBE_NAME".to_owned()), "name", "env");
    let name = |url: &str, options: &StoreOptions| {
        let error = registry().open(url, options.clone()).map(drop).unwrap_err();
        error.fact("name").map(str::to_owned)
    };
    assert_eq!(name("probe:x", &options).as_deref(), Some("env"));
    assert_eq!(name("probe:x?alias=url", &options).as_deref(), Some("url"));
    options.set(Source::Flag, "alias", "flag");
    assert_eq!(name("probe:x?name=url", &options).as_deref(), Some("flag"));
}

#[test]
fn b019_a_printed_url_has_no_secret() {
    let registry = registry();
    let cases = [
        ("probe:x?name=n&token=S3cr3t", "probe:x?name=n&token=***"),
        ("probe:x?secret_key=S3cr3t&alias=n", "probe:x?secret_key=***&alias=n"),
        ("probe:x?tok%65n=S3cr3t", "probe:x?tok%65n=***"),
        ("probe:x?toekn=S3cr3t", "probe:x?toekn=***"),
        ("probe:x?deadline=3s&token=a=S3cr3t", "probe:x?deadline=3s&token=***"),
        ("probe:x?token=a?S3cr3t", "probe:x?token=***"),
        ("probe:x", "probe:x"),
        ("memory:", "memory:"),
    ];
    for (url, printed) in cases {
        assert_eq!(registry.redact(url), printed);
    }
}

#[test]
fn a_later_registration_replaces_an_earlier_one() {
    let mut registry = registry();
    registry.register(StoreFactory { scheme: "memory", ..PROBE });
    let error = registry.open("memory:x", StoreOptions::default()).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}
