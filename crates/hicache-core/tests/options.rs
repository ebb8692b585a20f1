//! Options: which source wins, what is refused and how it says so, and that secrets stay secret.

use hicache_core::{
    AllocatorType, Backing, CommonOptions, Error, ErrorKind, HugePageSize, HugePages, Lock, Numa, NumaNode,
    OptionSpec, RegionSpec, Source, StoreOptions, get_allocator_type, parse_bool, parse_size,
};
use std::time::Duration;

const SECRET: &str = "S3cr3t/+Key=";

const fn spec(name: &'static str, aliases: &'static [&'static str], secret: bool) -> OptionSpec {
    OptionSpec { name, aliases, kind: "", default: "", about: "", secret, guarded: false }
}

const DIRECT: OptionSpec = spec("direct", &["use_direct_io", "o_direct"], false);
const CAPACITY: OptionSpec = spec("capacity", &[], false);
const DIR: OptionSpec = spec("dir", &[], false);
const TOKEN: OptionSpec = spec("token", &["secret_key"], true);
const TABLE: &[OptionSpec] = &[DIRECT, CAPACITY, DIR, TOKEN];

/// Every source, weakest first.
fn sources() -> [Source; 5] {
    [
        Source::Default,
        Source::File("hicache.toml: file.direct".to_owned()),
        Source::Env("HICACHE_DIRECT".to_owned()),
        Source::Url,
        Source::Flag,
    ]
}

fn options(values: &[(Source, &str, &str)]) -> StoreOptions {
    let mut options = StoreOptions::default();
    for (source, name, value) in values {
        options.set(source.clone(), *name, *value);
    }
    options
}

fn refused<T>(outcome: Result<T, Error>) -> Error {
    let error = outcome.map(drop).expect_err("an option that is refused");
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    error
}

#[test]
fn b013_a_bad_value_is_told_with_its_option_value_and_source() {
    let said = ["default", "file hicache.toml: file.direct", "environment HICACHE_DIRECT", "url", "flag"];
    for (source, said) in sources().into_iter().zip(said) {
        let mut options = options(&[(source, "use_direct_io", "flase")]);
        let error = refused(options.take(&DIRECT, parse_bool));
        assert_eq!(error.fact("option"), Some("direct"));
        assert_eq!(error.fact("value"), Some("\"flase\""));
        assert_eq!(error.fact("source"), Some(said));
    }
}

#[test]
fn b014_an_unknown_option_is_told_with_the_nearest_and_its_source() {
    let near = [
        ("capasity", "did you mean capacity?"),
        ("capacty", "did you mean capacity?"),
        ("dirct", "did you mean direct?"),
        ("dead_line", "did you mean deadline?"),
        ("huge_page", "did you mean huge_pages?"),
    ];
    for (name, suggestion) in near {
        let error = refused(options(&[(Source::Url, name, "x")]).finish(&[TABLE]));
        assert_eq!((error.fact("option"), error.fact("source")), (Some(name), Some("url")));
        assert!(error.to_string().ends_with(suggestion), "{error}");
    }
    let error = refused(options(&[(Source::Flag, "bucket", "x")]).finish(&[TABLE]));
    let known = "the options are direct, capacity, dir, token, accept_unverified, allocator, deadline, huge_pages, \
                 mlock, numa";
    assert!(error.to_string().ends_with(known), "an option of another store: {error}");
    let error = refused(options(&[(Source::Env("HICACHE_X".to_owned()), "", "x")]).finish(&[]));
    assert_eq!(error.fact("source"), Some("environment HICACHE_X"));
}

#[test]
fn b014_what_was_taken_is_not_left_over() {
    let mut options = options(&[(Source::Url, "o_direct", "on"), (Source::Flag, "direct", "off")]);
    assert_eq!(options.take(&DIRECT, parse_bool).unwrap(), Some(false));
    assert_eq!(options.take(&DIRECT, parse_bool).unwrap(), None);
    assert_eq!(options.take(&CAPACITY, parse_size).unwrap(), None);
    options.finish(&[TABLE]).unwrap();
}

#[test]
fn the_strongest_source_wins_in_any_order() {
    let all = sources();
    for strongest in 0..all.len() {
        for turned in 0..=strongest {
            let mut order: Vec<usize> = (0..=strongest).collect();
            order.rotate_left(turned);
            let mut options = StoreOptions::default();
            for index in order {
                options.set(all[index].clone(), "capacity", index.to_string());
            }
            assert_eq!(options.take(&CAPACITY, parse_size).unwrap(), Some(strongest as u64));
        }
    }
}

#[test]
fn a_weaker_source_is_not_read_at_all() {
    let mut options = options(&[(Source::Url, "capacity", "1"), (Source::Default, "capacity", "rubbish")]);
    assert_eq!(options.take(&CAPACITY, parse_size).unwrap(), Some(1));
}

#[test]
fn b013_two_values_at_one_source_are_a_conflict_unless_equal() {
    let file = |place: &str| Source::File(place.to_owned());
    let conflicts = [
        [(Source::Url, "direct", "true"), (Source::Url, "direct", "false")],
        [(Source::Url, "direct", "true"), (Source::Url, "use_direct_io", "false")],
        [(Source::Url, "use_direct_io", "true"), (Source::Url, "o_direct", "false")],
        [(file("a.toml: direct"), "direct", "true"), (file("a.toml: file.direct"), "direct", "false")],
        [
            (Source::Env("A_DIRECT".to_owned()), "direct", "true"),
            (Source::Env("A_O_DIRECT".to_owned()), "o_direct", "false"),
        ],
    ];
    for values in conflicts {
        let error = refused(options(&values).take(&DIRECT, parse_bool));
        assert_eq!(error.fact("option"), Some("direct"));
        let sources = error.fact("sources").unwrap();
        assert!(values.iter().all(|(source, ..)| sources.contains(&source.to_string())), "{sources}");
        let mut stronger = options(&values);
        stronger.set(Source::Flag, "direct", "yes");
        assert_eq!(stronger.take(&DIRECT, parse_bool).unwrap(), Some(true), "a stronger source settles it");
    }
    let mut equal = options(&[(Source::Url, "direct", "on"), (Source::Url, "use_direct_io", "on")]);
    assert_eq!(equal.take(&DIRECT, parse_bool).unwrap(), Some(true));
}

#[test]
fn a_repeated_option_has_all_values_of_its_strongest_source() {
    let mut options = options(&[
        (Source::Url, "dir", "/a"),
        (Source::Default, "dir", "/z"),
        (Source::Url, "dir", "/b"),
        (Source::Url, "dir", "/a"),
    ]);
    let dirs = options.take_all(&DIR, |text| Ok(text.to_owned())).unwrap();
    assert_eq!(dirs, ["/a", "/b", "/a"]);
    assert_eq!(options.take_all(&DIR, |text| Ok(text.to_owned())).unwrap(), Vec::<String>::new());
    options.set(Source::Url, "dir", "");
    let refuse = |text: &str| if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(()) };
    assert_eq!(refused(options.take_all(&DIR, refuse)).fact("option"), Some("dir"));
}

#[test]
fn b019_a_secret_is_in_no_text() {
    let given = [(Source::Url, "token", SECRET), (Source::Url, "secret_key", "TOK123")];
    let whole = options(&given);
    let mut texts = vec![format!("{whole:?}"), format!("{whole:#?}")];
    texts.push(refused(options(&given).take(&TOKEN, |text| Ok(text.to_owned()))).to_string());
    let refuse = |_: &str| Err::<(), String>("want a token".to_owned());
    let one = options(&given[..1]).take(&TOKEN, refuse);
    texts.push(format!("{:?}", refused(one)));
    texts.push(format!("{:?}", refused(options(&given[1..]).take_all(&TOKEN, refuse))));
    texts.push(format!("{:?}", refused(options(&given).finish(&[TABLE]))));
    texts.push(format!("{:?}", refused(options(&[(Source::Url, "tokken", SECRET)]).finish(&[TABLE]))));
    for text in texts {
        assert!(!text.contains(SECRET) && !text.contains("TOK123"), "{text}");
    }
    assert!(format!("{whole:?}").contains("token"), "names and sources are no secrets");
}

#[test]
fn b019_a_refused_value_of_a_guarded_option_is_in_no_text_and_one_that_is_taken_is_no_secret() {
    const WHO: OptionSpec = OptionSpec { guarded: true, ..OptionSpec::new("who", "", "", "") };
    let parse = |text: &str| if text == "me" { Ok(()) } else { Err("want me".to_owned()) };
    let error = refused(options(&[(Source::Url, "who", SECRET)]).take(&WHO, parse));
    assert!(!format!("{error:?}").contains(SECRET), "{error:?}");
    assert_eq!((error.fact("option"), error.fact("source")), (Some("who"), Some("url")));
    options(&[(Source::Url, "who", "me")]).take(&WHO, parse).unwrap();
}

#[test]
fn b019_users_of_urls_in_a_text_of_others_are_not_told() {
    let text = |url: &str| format!("invalid full URI ({url}), see {url} again");
    for user in ["u:hush", "hush", "u:hu/sh", "u:hu//sh", "u:hu sh", "u:hu@sh"] {
        let told = hicache_core::without_users(&text(&format!("http://{user}@host:1/p"))).into_owned();
        assert!(!told.contains("hu") && told.ends_with("@host:1/p again"), "{told}");
    }
    for malformed in [
        "why: ::u:hush@//bad host",
        "u:hush@x and http://a@b",
        "a@b http://u:hush@host",
        "u:hush@h",
        "\u{3000}u:hush@h",
    ] {
        let told = hicache_core::without_users(malformed);
        assert!(!told.contains("hush"), "{told}");
    }
    for plain in ["nothing at all", "see http://host/p", "a@b and nothing", "a@b, then http://host"] {
        assert_eq!(hicache_core::without_users(plain), plain);
    }
}

#[test]
fn b019_a_password_with_a_slash_is_no_path() {
    for (given, shown) in [
        ("s3://AKIA:ab/cd+e/f@bucket/prefix", "s3://***@bucket/prefix"),
        ("//AKIA:ab/cd@bucket", "//***@bucket"),
        ("http://u:a/b@host:9000/?x=1", "http://***@host:9000/?***"),
        ("https://host:9000/path?mail=a@b", "https://host:9000/path?***"),
        ("s3://bucket/a@b", "s3://bucket/a@b"),
        ("file:///data/a:b@c", "file:///data/a:b@c"),
        ("file:/data/u@h", "file:/data/u@h"),
        ("s3:AKIA:ab/cd@bucket", "***@bucket"),
        ("s3://AKIA%3Aab%2Fcd%40bucket", "s3://***@bucket"),
        ("s3://AKIA:ab?cd@bucket", "s3://***"),
        ("//bucket;secret_key=ab", "//bucket***"),
        ("s3://bucket;ab", "s3://bucket***"),
        ("s3://bucket#ab/c", "s3://bucket***"),
        ("//[::1]:9000/x", "//[::1]:9000/x"),
        ("/data/R&D/x y", "/data/R&D/x y"),
    ] {
        assert_eq!(hicache_core::without_secrets(given), shown);
    }
}

#[test]
fn common_options_are_typed_once() {
    assert_eq!(CommonOptions::take(&mut StoreOptions::default()).unwrap(), CommonOptions::default());
    let default = CommonOptions::default();
    assert_eq!((default.accept_unverified, default.deadline), (false, Duration::from_secs(30)));
    let mut set = options(&[
        (Source::Url, "accept_unverified", "Yes"),
        (Source::Url, "allocator", "shm"),
        (Source::Env("D".to_owned()), "deadline", "1500ms"),
        (Source::Flag, "huge_pages", "require:1GiB"),
        (Source::Url, "mlock", "True"),
        (Source::Url, "numa", "Strict:3"),
    ]);
    let wanted = CommonOptions {
        accept_unverified: true,
        allocator: AllocatorType::Shm,
        deadline: Duration::from_millis(1_500),
        huge_pages: HugePages::Require(HugePageSize::Size1G),
        mlock: Lock::Prefer,
        numa: Numa::Require(NumaNode::new(3)),
    };
    assert_eq!(CommonOptions::take(&mut set).unwrap(), wanted);
    set.finish(&[]).unwrap();
    let bad = [
        ("deadline", "0s"),
        ("deadline", "30"),
        ("deadline", ""),
        ("accept_unverified", "maybe"),
        ("allocator", "default"),
        ("allocator", ""),
        ("huge_pages", "on"),
        ("huge_pages", "off:2MiB"),
        ("huge_pages", "prefer:3MiB"),
        ("huge_pages", "prefer:"),
        ("huge_pages", ""),
        ("mlock", "prefer"),
        ("mlock", ""),
        ("numa", "0"),
        ("numa", "on"),
        ("numa", "prefer"),
        ("numa", "prefer:"),
        ("numa", "prefer:-1"),
        ("numa", "require:+1"),
        ("numa", "require:1.0"),
        ("numa", "require:4294967296"),
        ("numa", "interleave:0"),
        ("numa", ""),
    ];
    for (name, value) in bad {
        let error = refused(CommonOptions::take(&mut options(&[(Source::Url, name, value)])));
        assert_eq!(error.fact("option"), Some(name));
    }
    let sizes = [
        ("off", HugePages::Off),
        ("Prefer", HugePages::Prefer(HugePageSize::Size2M)),
        ("require", HugePages::Require(HugePageSize::Size2M)),
        ("prefer:1gb", HugePages::Prefer(HugePageSize::Size1G)),
    ];
    for (text, wanted) in sizes {
        let common = CommonOptions::take(&mut options(&[(Source::Url, "huge_pages", text)])).unwrap();
        assert_eq!(common.huge_pages, wanted, "{text}");
    }
}

#[test]
fn own_memory_is_private_and_pools_are_what_the_allocator_says() {
    let mut set = options(&[
        (Source::Url, "allocator", "shm"),
        (Source::Url, "huge_pages", "off"),
        (Source::Url, "mlock", "require"),
        (Source::Url, "numa", "prefer:1"),
    ]);
    let common = CommonOptions::take(&mut set).unwrap();
    let own = common.own_memory();
    assert_eq!((own.backing, own.huge_pages), (Backing::Private, HugePages::Off));
    assert_eq!((own.lock, own.numa), (Lock::Require, Numa::Prefer(NumaNode::new(1))));
    assert_eq!(common.pool_memory(), RegionSpec { backing: Backing::Memfd, ..own });
    assert_eq!(
        CommonOptions::default().own_memory(),
        RegionSpec { huge_pages: HugePages::Prefer(HugePageSize::Size2M), ..RegionSpec::default() }
    );
}

#[test]
fn the_allocator_is_what_is_asked_for_else_what_the_store_needs() {
    let of = |scheme: Option<&str>, values: &[(Source, &str, &str)]| {
        let mut options = options(values);
        scheme.map(|scheme| options.set_scheme(scheme));
        let first = get_allocator_type(&options);
        assert_eq!(first.is_ok(), get_allocator_type(&options).is_ok(), "asking takes nothing");
        first
    };
    assert_eq!(of(None, &[]).unwrap(), AllocatorType::Mmap);
    assert_eq!(of(Some("file"), &[]).unwrap(), AllocatorType::Mmap);
    assert_eq!(of(Some("shm"), &[]).unwrap(), AllocatorType::Shm);
    let file = || Source::File("hicache.toml: file.allocator".to_owned());
    assert_eq!(of(Some("file"), &[(file(), "allocator", "shm")]).unwrap(), AllocatorType::Shm);
    let stronger = [(file(), "allocator", "shm"), (Source::Flag, "allocator", "mmap")];
    assert_eq!(of(Some("file"), &stronger).unwrap(), AllocatorType::Mmap);
    assert_eq!(of(Some("shm"), &stronger).unwrap(), AllocatorType::Mmap, "asked for is asked for");
    let error = refused(of(Some("file"), &[(file(), "allocator", "SHM2")]));
    assert_eq!(error.fact("source"), Some("file hicache.toml: file.allocator"));
    refused(of(None, &[(Source::Url, "allocator", "mmap"), (Source::Url, "allocator", "shm")]));
    assert_eq!(AllocatorType::Mmap.backing(), Backing::Private);
    assert_eq!(AllocatorType::Shm.backing(), Backing::Memfd);
}

#[test]
fn what_is_looked_at_is_not_taken() {
    let options = options(&[(Source::Url, "direct", "on"), (Source::Default, "o_direct", "off")]);
    assert_eq!(options.strongest(&DIRECT), [(&Source::Url, "on")]);
    assert_eq!(options.get(&DIRECT, parse_bool).unwrap(), Some(true));
    assert_eq!(options.strongest(&DIRECT).len(), 1);
    assert!(options.strongest(&CAPACITY).is_empty());
}
