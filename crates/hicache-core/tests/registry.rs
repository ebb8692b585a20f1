//! From a URL to a store: what is split where, what is decoded, what is refused, and what may be printed.

use hicache_core::{
    CommonOptions, Error, ErrorKind, MemoryStore, OptionSpec, Result, Source, Store, StoreFactory,
    StoreOptions, StoreRegistry,
};
use hicache_testkit::{Medium, Openers, Reopened, Subject, conformance};
use std::sync::Arc;

const fn spec(name: &'static str, aliases: &'static [&'static str], secret: bool) -> OptionSpec {
    OptionSpec { name, aliases, kind: "", default: "", about: "", secret, guarded: false }
}

const NAME: OptionSpec = spec("name", &["alias"], false);
const TOKEN: OptionSpec = spec("token", &["secret_key"], true);
const TABLE: &[OptionSpec] = &[NAME, TOKEN];

/// A store that does not open, and says what it was asked for.
const PROBE: StoreFactory =
    StoreFactory { scheme: "probe", options: TABLE, stores: &[], open: probe, locate, check };

fn locate(_: &str) -> Result<()> {
    Ok(())
}

fn check(mut options: StoreOptions) -> Result<()> {
    let text = |text: &str| Ok(text.to_owned());
    options.take(&NAME, text)?;
    options.take(&TOKEN, text)?;
    options.finish(&[TABLE])
}

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
        ("probe:x?token=S3cr3t&more", "probe:x?token=***&***"),
        ("prbe:x?token=S3cr3t", "prbe:x?***"),
        ("probe?token=S3cr3t", "probe?***"),
        ("probe:x", "probe:x"),
        ("memory:", "memory:"),
        ("probe://u:S3cr3t@h/a@b", "probe://***@h/a@b"),
        ("probe://u:S3cr3t@h?name=http://u:S3cr3t@h", "probe://***@h?name=***"),
        ("probe:x?name=http:%2f%2fu%3aS3cr3t%40h&alias=a@b", "probe:x?name=***&alias=a@b"),
    ];
    for (url, printed) in cases {
        assert_eq!(registry.redact(url), printed);
    }
}

#[test]
fn b019_a_url_that_is_refused_tells_no_value() {
    for url in [
        "probe:x?token=S3cr3t%",
        "probe:x?token=S3cr3t%ff",
        "probe:x?token=S3cr3t%00",
        "probe:x?token=part&S3cr3t",
        "probe:x?tokn=S3cr3t",
        "prbe:x?token=S3cr3t",
        "probe?token=S3cr3t",
        "memory:?token=S3cr3t",
    ] {
        let said = invalid(url);
        assert!(!said.contains("S3cr3t"), "{url}: {said}");
    }
    assert!(invalid("probe:x?token=a%").contains("option=token"));
    assert!(invalid("probe:x?a=b&deadline").contains("option=deadline"));
    assert!(invalid("probe:x?token=a&b").contains("option=number 2"));
}

/// A mark in place of `?` or `&`, encodings that hide it, and a secret where a user's name would be.
const STRAYS: &[&str] = &[
    "probe:x&token=S3cr3t",
    "probe:x;token=S3cr3t",
    "probe:x#token=S3cr3t",
    "probe:x,token=S3cr3t",
    "probe:x token=S3cr3t",
    "probe:x\ttoken=S3cr3t",
    "probe:x & token=S3cr3t",
    "probe:x&tokn=S3cr3t",
    "probe:x;TOKEN=S3cr3t",
    "probe:x/token=S3cr3t",
    "probe:token=S3cr3t",
    "probe://token=S3cr3t",
    "probe:x%3Ftoken=S3cr3t",
    "probe:x%26secret_key=S3cr3t",
    "probe:x%3Btoken=S3cr3t",
    "probe:x%23token%3DS3cr3t",
    "probe:x?name=n;token=S3cr3t",
    "probe:x?name=n#token=S3cr3t",
    "probe:x?name=n token=S3cr3t",
    "probe:x?name=n?token=S3cr3t",
    "probe:x?name=n%26token=S3cr3t",
    "probe:x?name=n%3Btoken%3DS3cr3t",
    "probe:x?name=http://h/token=S3cr3t",
    "probe:x?token=S3cr3t;name=n",
    "probe:x?token=part&S3cr3t=x",
    "memory:x&token=S3cr3t",
    "memory:&capacity=S3cr3t",
    "memory:u:S3cr3t@x",
    "memory://u:S3cr3t@x",
    "memory://u:S3cr3t",
    "memory:x%253Ftoken%253DS3cr3t",
    "AKIA/S3cr3t:S3cr3t@bucket",
    "AKIA;token=S3cr3t:x",
    "AKIA/S3cr3t@bucket",
    "bucket&token=S3cr3t",
];

#[test]
fn b019_a_mistyped_url_is_refused_and_tells_no_secret() {
    for url in STRAYS {
        let said = invalid(url);
        assert!(!said.contains("S3cr3t"), "{url}: {said}");
        let registry = registry();
        let beside = |_: &str| Ok(StoreOptions::default());
        let checked = registry.check_with(url, StoreOptions::default(), &beside);
        let said = format!("{:?}", checked.expect_err(url));
        assert!(!said.contains("S3cr3t"), "{url}: {said}");
        let printed = registry.redact(url);
        assert!(!printed.contains("S3cr3t"), "{url}: {printed}");
    }
    assert!(invalid("probe:x&token=S3cr3t").contains("write ? before the first option"));
    assert!(invalid("probe:x&token=S3cr3t").contains("option=token"));
    assert!(invalid("probe:x?name=n;token=S3cr3t").contains("inside=token"));
    assert!(invalid("probe:x?token=a&b=c").contains("write & in a value as %26"));
}

#[test]
fn b019_a_mistyped_tier_is_refused_and_tells_no_secret() {
    for tier in
        ["probe:x%26token=S3cr3t", "probe:x;token=S3cr3t", "probe:x%253Ftoken=S3cr3t", "memory://u:S3cr3t@x"]
    {
        for url in [format!("pair:?first=memory:&second={tier}"), format!("pair:?second={tier}")] {
            let error = pairs().open(&url, StoreOptions::default()).map(drop).unwrap_err();
            assert_eq!(
                (error.kind(), error.fact("tier")),
                (ErrorKind::InvalidConfig, Some("second")),
                "{url}"
            );
            assert!(!format!("{error:?} {}", pairs().redact(&url)).contains("S3cr3t"), "{url}: {error:?}");
        }
    }
}

#[test]
fn names_that_have_marks_of_their_own_are_left_alone() {
    for (url, location) in [
        ("probe:/data/R&D/x", "/data/R&D/x"),
        ("probe:/a;b#c,d e", "/a;b#c,d e"),
        ("probe:/team=llm/x", "/team=llm/x"),
        ("probe:/a%26name%3Dx", "/a&name=x"),
        ("probe:/a%3Bother=x", "/a;other=x"),
        ("probe:/data/u@h/x", "/data/u@h/x"),
    ] {
        assert_eq!(open(url).fact("location"), Some(location), "{url}");
    }
    let token = open("probe:x?token=a;b%26name%3Dc/d+e==&name=f;g");
    assert_eq!((token.fact("token"), token.fact("name")), (Some("a;b&name=c/d+e=="), Some("f;g")));
    assert_eq!(registry().redact("probe:/data/R&D/x?name=f;g"), "probe:/data/R&D/x?name=f;g");
}

#[test]
fn options_of_a_url_are_checked_without_a_store() {
    let registry = registry();
    let check = |url: &str| {
        let (factory, _) = registry.factory(url)?;
        (factory.check)(registry.options(url, StoreOptions::default())?)
    };
    check("probe:anywhere?name=a").unwrap();
    check("memory:?capacity=1GiB&allocator=shm").unwrap();
    for (url, said) in
        [("probe:x?nme=a", "nme"), ("memory:?capacity=some", "capacity"), ("memory:?a", "value")]
    {
        let error = check(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{url}");
        assert!(error.to_string().contains(said), "{error}");
    }
    let options = registry.options("probe:x", StoreOptions::default()).unwrap();
    assert_eq!(options.scheme(), Some("probe"));
}

#[test]
fn a_later_registration_replaces_an_earlier_one() {
    let mut registry = registry();
    registry.register(StoreFactory { scheme: "memory", ..PROBE });
    let error = registry.open("memory:x", StoreOptions::default()).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

const FIRST: OptionSpec = spec("first", &[], false);
const SECOND: OptionSpec = spec("second", &["other"], false);

/// A store made of others. It hands out the second of them.
const PAIR: StoreFactory = StoreFactory {
    scheme: "pair",
    options: &[FIRST, SECOND, NAME],
    stores: &[FIRST, SECOND],
    open: |_, mut options| {
        let [first, second] =
            [&FIRST, &SECOND].map(|spec| options.take_store(spec).map(|opener| opener.open()));
        first.transpose()?;
        second.expect("the registry knows how")
    },
    locate,
    check: |mut options| {
        let text = |text: &str| Ok(text.to_owned());
        for spec in [&FIRST, &SECOND, &NAME] {
            options.take(spec, text)?;
        }
        CommonOptions::take(&mut options)?;
        options.finish(&[&[FIRST, SECOND, NAME]])
    },
};

fn pairs() -> StoreRegistry {
    let mut registry = registry();
    registry.register(PAIR);
    registry
}

fn capacity(store: &Arc<dyn Store>) -> Option<u64> {
    store.health().available_len
}

#[test]
fn a_tier_is_opened_with_what_its_own_url_and_the_sources_beside_it_say() {
    let beside = |scheme: &str| {
        let mut options = StoreOptions::default();
        if scheme == "memory" {
            options.set(Source::Env("E".into()), "capacity", "7");
        }
        Ok(options)
    };
    let open = |url: &str| pairs().open_with(url, StoreOptions::default(), &beside).unwrap();
    assert_eq!(capacity(&open("pair:?first=memory:&second=memory:")), Some(7));
    assert_eq!(capacity(&open("pair:?first=memory:&second=memory:%3Fcapacity=9")), Some(9));
    let alone = pairs().open("pair:?first=memory:&second=memory:", StoreOptions::default()).unwrap();
    assert_eq!(capacity(&alone), Some(1 << 30));
}

#[test]
fn a_tier_has_the_common_options_of_the_whole_where_nothing_else_sets_them() {
    let beside = |_: &str| Ok(StoreOptions::default());
    let deadline = |url: &str| {
        let registry = pairs();
        let tiers = registry.tiers_with(url, StoreOptions::default(), &beside).unwrap();
        let (spec, url, options) = tiers.into_iter().next().unwrap();
        assert_eq!(spec.name, "first");
        CommonOptions::take(&mut registry.options(&url, options).unwrap()).unwrap().deadline.as_secs()
    };
    assert_eq!(deadline("pair:?first=memory:"), 30);
    assert_eq!(deadline("pair:?first=memory:&deadline=5s"), 5);
    assert_eq!(deadline("pair:?first=memory:%3Fdeadline=2s&deadline=5s"), 2);
}

#[test]
fn what_is_wrong_with_a_tier_names_the_tier_and_who_named_it() {
    let beside = |_: &str| Ok(StoreOptions::default());
    for (tier, said) in [
        ("memory:%3Fcapcity=9", "did you mean capacity"),
        ("memory:%3Fcapacity=some", "\"some\""),
        ("memory:%3Fcapacity", "option in the URL has no value"),
        ("nowhere:", "no such kind of store"),
        ("", "named by a URL"),
        ("pair:%3Ffirst=memory:", "cannot be a tier"),
    ] {
        let url = format!("pair:?first=memory:&second={tier}");
        let errors = [
            pairs().open(&url, StoreOptions::default()).map(drop).unwrap_err(),
            pairs().check_with(&url, StoreOptions::default(), &beside).unwrap_err(),
        ];
        for error in errors {
            let found = (error.kind(), error.fact("tier"), error.fact("named_by"));
            assert_eq!(found, (ErrorKind::InvalidConfig, Some("second"), Some("url")), "{error}");
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}

#[test]
fn a_store_that_names_itself_as_a_tier_is_refused_and_not_opened_for_ever() {
    let beside = |scheme: &str| {
        let mut options = StoreOptions::default();
        if scheme == "pair" {
            options.set(Source::Env("E".into()), "first", "pair:");
        }
        Ok(options)
    };
    let error = pairs().check_with("pair:", beside("pair").unwrap(), &beside).unwrap_err();
    assert_eq!(error.fact("named_by"), Some("environment E"), "{error}");
}

#[test]
fn nothing_is_opened_before_every_option_of_every_tier_is_checked() {
    // The first tier's store says that it was asked to open.
    let error = pairs().open("pair:?first=probe:&second=memory:%3Fa=b", StoreOptions::default()).map(drop);
    assert_eq!(error.unwrap_err().fact("tier"), Some("second"));
    let error = pairs().open("pair:?first=probe:&second=memory:", StoreOptions::default()).map(drop);
    let error = error.unwrap_err();
    assert_eq!((error.kind(), error.fact("tier")), (ErrorKind::Unsupported, Some("first")));
}

#[test]
fn a_secret_of_a_tier_is_not_printed() {
    let redact = |url: &str| pairs().redact(url);
    assert_eq!(
        redact("pair:?first=probe:a/b%3Ftoken=S3cr3t%26name=x&name=y"),
        "pair:?first=probe%3Aa/b%3Ftoken%3D%2A%2A%2A%26name%3Dx&name=y"
    );
    assert_eq!(
        redact("pair:?other=probe:%3Fsecret_key=S3cr3t"),
        "pair:?other=probe%3A%3Fsecret_key%3D%2A%2A%2A"
    );
    assert_eq!(redact("pair:?first=memory:%3Fcapacity=9"), "pair:?first=memory:%3Fcapacity=9");
    assert_eq!(redact("pair:?first=nowhere:%3Fa=S3cr3t"), "pair:?first=nowhere%3A%3F%2A%2A%2A");
    assert_eq!(redact("pair:?first=%S3cr3t"), "pair:?first=***");
    let error = pairs().open("pair:?first=probe:%3Ftoken=S3cr3t%26x=1", StoreOptions::default()).map(drop);
    assert!(!format!("{:?}", error.unwrap_err()).contains("S3cr3t"));
}
