//! Tests of the sources: which wins, whose name is told, and what SGLang's own names mean.

use super::*;
use crate::{ErrorKind, HugePageSize, HugePages};

fn environment(name: &str, value: &str) -> Environment {
    [(name.into(), value.into())].into_iter().collect()
}

fn config(text: &str) -> Option<ConfigFile> {
    Some(ConfigFile::parse_toml("some.toml", text).unwrap())
}

/// What is left of a memory store's capacity, which says what the capacity is.
fn capacity(opener: &Opener, url: &str) -> u64 {
    opener.open(url).unwrap().health().available_len.unwrap()
}

#[test]
fn flag_beats_url_beats_environment_beats_file_beats_default() {
    let mut opener = Opener::default();
    assert!(capacity(&opener, "memory:") > 100);
    opener.config = config("[memory]\ncapacity = 1");
    assert_eq!(capacity(&opener, "memory:"), 1);
    opener.environment = environment("HICACHE_MEMORY_CAPACITY", "2");
    assert_eq!(capacity(&opener, "memory:"), 2);
    assert_eq!(capacity(&opener, "memory:?capacity=3"), 3);
    opener.flags = vec![("capacity".to_owned(), "4".to_owned())];
    assert_eq!(capacity(&opener, "memory:?capacity=3"), 4);
}

#[test]
fn a_bad_value_names_the_source_that_set_it() {
    let opener = Opener { environment: environment("HICACHE_MEMORY_DEADLINE", "soon"), ..Opener::default() };
    let error = opener.open("memory:").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.to_string().contains("environment HICACHE_MEMORY_DEADLINE"), "{error}");

    let opener = Opener { config: config("[memory]\nhuge_pages = 'some'"), ..Opener::default() };
    let error = opener.open("memory:").unwrap_err();
    assert!(error.to_string().contains("some.toml: memory.huge_pages"), "{error}");
}

/// A value that an option takes, and one that it does not; by its name, so that a new option needs a line here.
fn values(option: &str) -> (&'static str, &'static str) {
    match option {
        "format" => ("files", "heap"),
        "dir" => ("somewhere", ""),
        "direct" | "checksum" | "accept_unverified" => ("yes", "flase"),
        "engine" => ("threads", "steam"),
        "threads" => ("4", "0"),
        "rings" => ("2", "0"),
        "bounce" => ("off", "sometimes"),
        "depth" => ("8", "0"),
        "durability" => ("sync", "some"),
        "capacity" => ("1GiB", "1 page"),
        "deadline" => ("500ms", "soon"),
        "huge_pages" => ("require:1GiB", "large"),
        "allocator" => ("shm", "malloc"),
        "mlock" => ("require", "some"),
        "numa" => ("prefer:0", "prefer:all"),
        "endpoint" => ("http://127.0.0.1:9000", "127.0.0.1"),
        "region" => ("eu-central-1", "eu central"),
        "path_style" | "use_virtual_addressing" | "forbidden_is_miss" => ("true", "flase"),
        "credentials" => ("anonymous", "somebody"),
        "access_key" | "secret_key" | "session_token" => ("word", "two words"),
        "ca_bundle" => ("some.pem", ""),
        "proxy" => ("off", "somewhere"),
        "checksum_mode" => ("off", "md5"),
        "sse" => ("AES256", "rot13"),
        "storage_class" => ("STANDARD", "a class"),
        "concurrency" => ("8", "0"),
        "connect_timeout" | "read_timeout" | "idle_timeout" => ("1s", "soon"),
        "exists_ttl" => ("0s", "soon"),
        "retries" => ("0", "many"),
        "multipart_threshold" => ("8MiB", "much"),
        "part_size" => ("8MiB", "1MiB"),
        "first" | "second" => ("memory:", "nowhere:"),
        "write" => ("behind", "beside"),
        "promote" => ("no", "nope"),
        "queue" => ("1GiB", "1 page"),
        other => panic!("give a good and a bad value of the new option {other}"),
    }
}

/// The environment that sets the option of that store, with what it cannot be set without.
fn environment_with(scheme: &str, option: &str, name: &str, value: &str) -> Environment {
    let together: &[&str] = match option {
        "access_key" => &["secret_key"],
        "secret_key" => &["access_key"],
        "session_token" => &["access_key", "secret_key"],
        _ => &[],
    };
    let beside =
        together.iter().map(|option| (format!("HICACHE_{scheme}_{option}").to_ascii_uppercase(), "word"));
    let all = beside.chain([(name.to_owned(), value)]);
    all.map(|(name, value)| (name.into(), value.into())).collect()
}

#[test]
fn b014_every_option_of_every_store_is_settable_from_the_environment() {
    for factory in registry().factories() {
        for spec in factory.options.iter().chain(crate::COMMON_OPTIONS) {
            let (good, bad) = values(spec.name);
            for option in std::iter::once(spec.name).chain(spec.aliases.iter().copied()) {
                let name = format!("HICACHE_{}_{option}", factory.scheme).to_ascii_uppercase();
                let url = format!("{}:", factory.scheme);
                let with = |value| environment_with(factory.scheme, spec.name, &name, value);
                let opener = Opener { environment: with(good), ..Opener::default() };
                let effective = opener.effective(&url).unwrap();
                let held = effective.iter().find(|one| one.spec.name == spec.name).unwrap();
                let shown = if spec.secret { "***" } else { good };
                assert_eq!(
                    (held.values.as_slice(), &held.source),
                    (&[shown.to_owned()][..], &Source::Env(name.clone()))
                );
                assert_eq!(
                    held.variable(),
                    format!("HICACHE_{}_{}", factory.scheme, spec.name).to_ascii_uppercase()
                );
                for bad in [bad, ""] {
                    let opener = Opener { environment: with(bad), ..Opener::default() };
                    for error in [opener.check(&url).unwrap_err(), opener.effective(&url).unwrap_err()] {
                        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{name}");
                        assert!(error.to_string().contains(&name), "{error}");
                    }
                    let place = match factory.scheme {
                        "memory" | "tier" => "",
                        "s3" => "//unused",
                        _ => "unused",
                    };
                    let error = opener.open(&format!("{}:{place}", factory.scheme)).unwrap_err();
                    assert!(error.to_string().contains(&name), "{error}");
                }
            }
        }
    }
}

/// The one option of the file store that is not at its default.
#[cfg(feature = "file")]
fn told(environment: Environment) -> Vec<(&'static str, String, Source)> {
    let opener = Opener { environment, ..Opener::default() };
    let set = opener.effective("file:unused").unwrap().into_iter().filter(|one| !one.values.is_empty());
    set.map(|one| (one.spec.name, one.values.join(","), one.source)).collect()
}

#[test]
#[cfg(feature = "file")]
fn sglangs_variables_mean_what_they_mean_there() {
    let direct = "SGLANG_HICACHE_NIXL_USE_DIRECT_IO";
    for (value, wanted) in [("true", "true"), ("Y", "yes"), ("n", "no"), ("0", "0"), (" false ", "false")] {
        let wanted = [("direct", wanted.to_owned(), Source::Env(direct.to_owned()))];
        assert_eq!(told(environment(direct, value)), wanted);
    }
    let size = "SGLANG_HUGEPAGE_SIZE";
    for (value, wanted) in [("2MB", "prefer:2MiB"), ("1gb", "prefer:1GiB")] {
        let wanted = [("huge_pages", wanted.to_owned(), Source::Env(size.to_owned()))];
        assert_eq!(told(environment(size, value)), wanted);
    }
    for name in [direct, size, "SGLANG_HICACHE_DECODE_OFFLOAD_STRIDE"] {
        assert!(told(environment(name, "")).is_empty(), "{name}");
    }
    for name in [direct, size] {
        let error = Opener { environment: environment(name, "some"), ..Opener::default() }.check("file:x");
        assert!(error.unwrap_err().to_string().contains(name));
    }
    assert!(
        Opener { environment: environment(direct, "some"), ..Opener::default() }.check("memory:").is_ok()
    );
    let both = [("HICACHE_FILE_DIRECT", "true"), (direct, "false")];
    let environment = both.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    let error = Opener { environment, ..Opener::default() }.check("file:x").unwrap_err().to_string();
    assert!(
        error.contains("twice") && error.contains(direct) && error.contains("HICACHE_FILE_DIRECT"),
        "{error}"
    );
}

#[test]
#[cfg(feature = "file")]
fn sglangs_directories_are_the_store_where_nothing_else_is() {
    let (list, one) = ("SGLANG_HICACHE_NIXL_BACKEND_STORAGE_DIR", "SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR");
    let url = |environment| Opener { environment, ..Opener::default() }.url();
    assert_eq!(url(Environment::default()).unwrap(), None);
    assert_eq!(url(environment(list, "")).unwrap(), None);
    assert_eq!(url(environment(one, "/a,b?c")).unwrap().unwrap(), "file:/a,b%3Fc");
    assert_eq!(url(environment(list, " /a , b&c,/d%e")).unwrap().unwrap(), "file:/a?dir=b%26c&dir=/d%25e");
    let options = Opener::default().options("file:/a?dir=b%26c&dir=/d%25e").unwrap();
    let dir = |spec: &&crate::OptionSpec| spec.name == "dir";
    let registry = registry();
    let (factory, _) = registry.factory("file:").unwrap();
    let dirs = options.strongest(factory.options.iter().find(dir).unwrap());
    assert_eq!(dirs.into_iter().map(|(_, dir)| dir).collect::<Vec<_>>(), ["b&c", "/d%e"]);
    for bad in ["/a,,/b", ",", "/a,"] {
        let error = url(environment(list, bad)).unwrap_err();
        assert!(error.to_string().contains(list), "{error}");
    }
    let both = |other: &str| [(list.into(), "/a".into()), (one.into(), other.into())].into_iter().collect();
    assert_eq!(url(both("/a")).unwrap().unwrap(), "file:/a");
    assert!(url(both("/b")).unwrap_err().to_string().contains(one));
    let config = config("backend = 'memory:'");
    let opener = Opener { config, environment: environment(list, "/a"), ..Opener::default() };
    assert_eq!(opener.url().unwrap().unwrap(), "memory:");
}

#[test]
fn sglangs_plugin_says_which_kind_of_store_where_nothing_else_does() {
    const PLUGIN: &str = "SGLANG_HICACHE_NIXL_BACKEND_PLUGIN";
    const DIRS: &str = "SGLANG_HICACHE_NIXL_BACKEND_STORAGE_DIR";
    const BUCKET: &str = "AWS_DEFAULT_BUCKET";
    let all = |values: &[(&str, &str)]| -> Environment {
        values.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    };
    let url = |values: &[(&str, &str)]| Opener { environment: all(values), ..Opener::default() }.url();
    for plugin in ["", "auto", "AUTO", "POSIX", " posix "] {
        let environment = [(PLUGIN, plugin), (DIRS, "/a"), (BUCKET, "pages")];
        assert_eq!(url(&environment).unwrap().as_deref(), Some("file:/a"), "{plugin:?}");
        assert_eq!(url(&[(PLUGIN, plugin), (BUCKET, "pages")]).unwrap(), None, "{plugin:?}");
    }
    assert_eq!(url(&[(PLUGIN, "OBJ"), (DIRS, "/a"), (BUCKET, "pages")]).unwrap().unwrap(), "s3://pages");
    let refused = [
        (&[(PLUGIN, "OBJ"), (DIRS, "/a")][..], ["s3", "AWS_DEFAULT_BUCKET"]),
        (&[(PLUGIN, "GDS_MT")], ["GDS_MT", "posix (file:)"]),
        (&[(PLUGIN, "file")], [PLUGIN, "obj (s3:)"]),
    ];
    for (values, wanted) in refused {
        let error = url(values).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(wanted.iter().all(|part| error.to_string().contains(part)), "{error}");
    }
    // A plugin of the configuration goes before the variable, whatever that says.
    let of_config = |text: &str| {
        let config = Some(ConfigFile::parse_extra_config(text).unwrap());
        let environment = all(&[(PLUGIN, "GDS"), (DIRS, "/a"), (BUCKET, "pages")]);
        Opener { config, environment, ..Opener::default() }.url()
    };
    let qualified = |plugin: &str| of_config(&format!(r#"{{"plugin": {{"{plugin}": {{"active": true}}}}}}"#));
    assert_eq!(qualified("posix").unwrap().unwrap(), "file:/a");
    assert_eq!(qualified("OBJ").unwrap().unwrap(), "s3://pages");
    assert!(of_config(r#"{"threads": 4}"#).unwrap_err().to_string().contains("GDS"));
    assert_eq!(of_config(r#"{"backend": "memory:"}"#).unwrap().unwrap(), "memory:");
}

#[test]
fn b019_a_secret_is_not_among_what_holds() {
    const TOKEN: crate::OptionSpec = crate::OptionSpec {
        name: "token",
        aliases: &[],
        kind: "text",
        default: "none",
        about: "",
        secret: true,
        guarded: false,
    };
    let mut opener = Opener::default();
    let check = |mut options: StoreOptions| {
        options.take(&TOKEN, |text| Ok(text.to_owned()))?;
        options.finish(&[&[TOKEN]])
    };
    let open = MemoryStore::FACTORY.open;
    opener.registry.register(crate::StoreFactory {
        scheme: "secret",
        options: &[TOKEN],
        stores: &[],
        open,
        locate: MemoryStore::FACTORY.locate,
        check,
    });
    opener.flags = vec![("token".to_owned(), "S3cr3t/+Key=".to_owned())];
    let effective = opener.effective("secret:").unwrap();
    let held = &effective[0];
    assert_eq!((held.values.as_slice(), &held.source), (&["***".to_owned()][..], &Source::Flag));
    let options = opener.options("secret:").unwrap();
    assert!(!format!("{held:?} {opener:?} {options:?}").contains("S3cr3t"));
}

#[test]
fn a_variable_is_checked_by_name_also_where_another_store_is_opened() {
    let open = |name: &str| {
        let mut registry = registry();
        let other = crate::StoreFactory { scheme: "other", ..MemoryStore::FACTORY };
        registry.register(other);
        let opener = Opener { registry, environment: environment(name, "much"), ..Opener::default() };
        opener.open("memory:").map(|_| ()).map_err(|error| error.to_string())
    };
    open("HICACHE_OTHER_CAPACITY").unwrap();
    open("HICACHE_TEST_CAPCITY").unwrap();
    for (name, wanted) in [
        ("HICACHE_OTHER_CAPCITY", "did you mean capacity?"),
        ("HICACHE_OTHR_CAPACITY", "did you mean HICACHE_OTHER_CAPACITY?"),
        ("HICACHE_OTHER", "did you mean HICACHE_OTHER_"),
        ("HICACHE_X", "with a STORE of "),
    ] {
        let error = open(name).unwrap_err();
        assert!(error.contains(name) && error.contains(wanted), "{error}");
    }
}

#[test]
fn the_common_options_of_a_url_are_those_of_its_strongest_source() {
    let huge_pages = |opener: &Opener, url: &str| opener.common(url).unwrap().huge_pages;
    let mut opener = Opener::default();
    assert_eq!(huge_pages(&opener, "memory:?capacity=1"), HugePages::Prefer(HugePageSize::Size2M));
    opener.config = config("[memory]\nhuge_pages = 'off'");
    assert_eq!(huge_pages(&opener, "memory:"), HugePages::Off);
    opener.environment = environment("HICACHE_MEMORY_HUGE_PAGES", "require");
    assert_eq!(huge_pages(&opener, "memory:"), HugePages::Require(HugePageSize::Size2M));
    let url = "memory:?huge_pages=prefer%3A1GiB";
    assert_eq!(huge_pages(&opener, url), HugePages::Prefer(HugePageSize::Size1G));
    opener.flags = vec![("huge_pages".to_owned(), "off".to_owned())];
    assert_eq!(huge_pages(&opener, url), HugePages::Off);
    // Of another store, it goes for that one only.
    opener.flags.clear();
    #[cfg(feature = "file")]
    {
        opener.environment = environment("HICACHE_FILE_HUGE_PAGES", "require");
        assert_eq!(huge_pages(&opener, "memory:"), HugePages::Off);
    }

    let error = Opener::default().common("memory:?huge_pages=some").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(Opener::default().common("memry:").is_err());
}

#[cfg(feature = "file")]
#[test]
fn every_option_is_in_the_documentation_that_the_readme_names_and_no_other() {
    let all = registry();
    let specs = all.factories().flat_map(|factory| factory.options).chain(COMMON_OPTIONS);
    let mut names: Vec<_> = specs.map(|spec| spec.name).collect();
    let row = |line: &'static str| {
        let (name, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
        let (store, _) = rest.split_once(" |")?;
        // Those of stores that are not in this build are documented all the same.
        (store == "all" || all.factories().any(|factory| factory.scheme == store)).then_some(name)
    };
    let mut documented: Vec<_> = include_str!("../options.md").lines().filter_map(row).collect();
    names.sort_unstable();
    documented.sort_unstable();
    assert_eq!(documented, names);
    // They are too many for a first page.
    assert!(include_str!("../../../../README.md").contains("docs/CONFIG.md"));
    let configuration = include_str!("../../../../docs/CONFIG.md");
    let missing: Vec<_> =
        names.iter().filter(|name| !configuration.contains(&format!("\n| `{name}`"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
#[cfg(feature = "obj")]
fn the_sdks_variables_are_options_of_s3_where_ours_say_nothing() {
    let of = |variables: &[(&str, &str)]| {
        let environment = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let opener = Opener { environment, ..Opener::default() };
        let effective = opener.effective("s3://kv").unwrap();
        let value = |name: &str| {
            effective.iter().find(|option| option.spec.name == name).unwrap().values.first().cloned()
        };
        (value("region"), value("endpoint"))
    };
    let some = |text: &str| Some(text.to_owned());
    let both = [("AWS_DEFAULT_REGION", "a-1"), ("AWS_REGION", "b-2"), ("AWS_ENDPOINT_URL", "http://a")];
    assert_eq!(of(&both), (some("b-2"), some("http://a")));
    let ours =
        [("AWS_REGION", "b-2"), ("HICACHE_S3_REGION", "c-3"), ("AWS_ENDPOINT_URL_S3", "https://b"), both[2]];
    assert_eq!(of(&ours), (some("c-3"), some("https://b")));
    let opener = Opener {
        environment: [("AWS_REGION".into(), "b-2".into())].into_iter().collect(),
        ..Opener::default()
    };
    opener.check("memory:").expect("no other store reads them");
}

#[cfg(feature = "tier")]
#[test]
fn tiers_are_opened_with_what_the_environment_and_the_configuration_say_of_their_kind() {
    let url = "tier:?first=memory:%3Fcapacity=1&second=memory:";
    let mut opener = Opener { config: config("[memory]\ncapacity = 2"), ..Opener::default() };
    assert_eq!(capacity(&opener, url), 2, "the roomier tier's");
    opener.environment = environment("HICACHE_MEMORY_CAPACITY", "3");
    assert_eq!(capacity(&opener, url), 3);
    opener.flags = vec![("promote".to_owned(), "no".to_owned())];
    assert_eq!(capacity(&opener, url), 3, "flags are the whole's");
    let effective = opener.effective(url).unwrap();
    let value = |name: &str| {
        let found = effective.iter().find(|one| one.name() == name).unwrap();
        (found.values.join(","), found.source.clone())
    };
    assert_eq!(value("promote"), ("no".to_owned(), Source::Flag));
    assert_eq!(value("first.capacity"), ("1".to_owned(), Source::Url));
    let variable = Source::Env("HICACHE_MEMORY_CAPACITY".to_owned());
    assert_eq!(value("second.capacity"), ("3".to_owned(), variable));

    opener.flags.clear();
    opener.environment = environment("HICACHE_TIER_FIRST", "tier:");
    let error = opener.open("tier:?second=memory:").unwrap_err();
    assert_eq!(error.fact("named_by"), Some("environment HICACHE_TIER_FIRST"), "{error}");
    for (url, missing) in [("tier:", "first"), ("tier:?first=memory:", "second")] {
        let error = Opener::default().open(url).unwrap_err();
        assert!(error.to_string().contains(&format!("option {missing} names no store")), "{error}");
    }
    let error = Opener::default().open("tier:place?first=memory:&second=memory:").unwrap_err();
    assert_eq!(error.fact("location"), Some("place"));
}

#[cfg(feature = "tier")]
#[test]
fn a_configuration_file_names_tiers_and_a_mistake_in_them_is_told() {
    let url = "tier:?first=memory:&second=memory:%3Fcapcity=1";
    let opener = |text: &str| Opener { config: config(text), ..Opener::default() };
    let error = opener(&format!("backend = '{url}'")).check_config().unwrap_err();
    assert_eq!((error.fact("tier"), error.fact("option")), (Some("second"), Some("capcity")), "{error}");
    opener("[tier]\nfirst = 'memory:'\nsecond = 'memory:?capacity=5'\nwrite = 'behind'")
        .check_config()
        .unwrap();
    let error = opener("[tier]\nfirst = 'memory:?a=b'").check_config().unwrap_err();
    assert_eq!(error.fact("named_by"), Some("file some.toml: tier.first"), "{error}");
}

#[cfg(feature = "tier")]
#[test]
fn a_tier_that_nothing_names_is_refused_by_a_check_with_the_words_of_an_opening() {
    let first = "first = 'memory:'";
    for (text, url, missing) in [
        ("backend = 'tier:'", "tier:", "first"),
        ("backend = 'tier:?first=memory:'", "tier:?first=memory:", "second"),
        ("backend = 'tier:?second=memory:'", "tier:?second=memory:", "first"),
        (&format!("backend = 'tier:'\n[tier]\n{first}"), "tier:", "second"),
    ] {
        let opener = Opener { config: config(text), ..Opener::default() };
        let opened = opener.open(url).map(drop).unwrap_err();
        assert!(opened.to_string().contains(&format!("option {missing} names no store")), "{opened}");
        for checked in [opener.check_config().unwrap_err(), opener.check_place(url).unwrap_err()] {
            assert_eq!(checked.to_string(), opened.to_string());
        }
    }
    let whole = config("backend = 'tier:'\n[tier]\nfirst = 'memory:'\nsecond = 'memory:'");
    Opener { config: whole, ..Opener::default() }.check_config().unwrap();
    // Its URL, given later, may name the rest.
    Opener { config: config(&format!("[tier]\n{first}")), ..Opener::default() }.check_config().unwrap();
}

#[cfg(feature = "file")]
#[test]
fn a_path_that_only_a_shell_would_expand_is_refused_from_every_source_and_makes_no_folder() {
    let at = |text: &str| Opener { config: config(text), ..Opener::default() };
    let dirs = Opener {
        environment: environment("SGLANG_HICACHE_NIXL_BACKEND_STORAGE_DIR", "/srv/a,~/b"),
        ..Opener::default()
    };
    let refused = [
        Opener::default().open("file:~/hicache-of-a-test").map(drop).unwrap_err(),
        Opener::default().open("file:/nowhere?dir=~/hicache-of-a-test").map(drop).unwrap_err(),
        Opener::default().check("file:~").unwrap_err(),
        Opener::default().check("file:%7Eme/kv").unwrap_err(),
        at("backend = 'file:~/kv'").check_config().unwrap_err(),
        at("[file]\ndir = ['~/kv']").check_config().unwrap_err(),
        dirs.check(&dirs.url().unwrap().unwrap()).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        assert!(error.to_string().contains("write the whole path"), "{error}");
    }
    assert!(!std::path::Path::new("~").exists());
    Opener::default().check("file:./~/kv").unwrap();
    Opener::default().check("file:/data/~kv").unwrap();
}

/// As in a build without the feature `obj`, whatever this one has.
fn without_s3() -> Opener {
    let mut registry = StoreRegistry::default();
    registry.register(MemoryStore::FACTORY).leave_out("s3", "obj").leave_out("memory", "none");
    Opener { registry, ..Opener::default() }
}

#[test]
fn a_store_of_a_kind_that_this_build_leaves_out_is_refused_with_its_feature() {
    let named = Opener { config: config("backend = 's3://bucket/kv'"), ..without_s3() };
    let errors =
        [without_s3().open("s3://bucket/kv").map(drop).unwrap_err(), named.check_config().unwrap_err()];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        let said = error.to_string();
        assert!(said.contains("s3: is in builds with the feature obj"), "{said}");
        assert!(said.contains("this build leaves"), "{said}");
    }
}

#[test]
fn options_of_a_kind_of_store_that_this_build_leaves_out_are_passed_over_and_told() {
    let variable = environment("HICACHE_S3_ENDPOINT", "http://h");
    let section = config("[s3]\nretries = 2\nof_a_later_version = 3\n[memory]\ncapacity = 7");
    let opener = Opener { environment: variable, config: section, ..without_s3() };
    opener.check_names().unwrap();
    opener.check_config().unwrap();
    assert_eq!(capacity(&opener, "memory:"), 7, "what is for this build is read");
    let told = opener.passed_over();
    let fix = "s3: is in builds with the feature obj".to_owned();
    assert_eq!(told, [("HICACHE_S3_ENDPOINT".to_owned(), fix.clone()), ("some.toml: s3".to_owned(), fix)]);
    assert!(without_s3().passed_over().is_empty());
    // What is for no kind of store at all is told, and so is what this build would read.
    let mistyped = environment("HICACHE_S4_ENDPOINT", "x");
    let error = Opener { environment: mistyped, ..without_s3() }.open("memory:").map(drop).unwrap_err();
    assert!(!error.to_string().contains("feature"), "{error}");
    let mistyped = config("[s3]\nretries = 2\n[memory]\ncapcity = 7");
    let error = Opener { config: mistyped, ..without_s3() }.check_config().unwrap_err();
    assert_eq!(error.fact("option"), Some("capcity"), "{error}");
}

#[test]
fn each_kind_of_store_is_there_or_left_out_as_the_features_say() {
    let registry = registry();
    let left_out: Vec<_> = registry.left_out().map(|(scheme, _)| scheme).collect();
    for (scheme, is_built) in
        [("file", cfg!(feature = "file")), ("s3", cfg!(feature = "obj")), ("tier", cfg!(feature = "tier"))]
    {
        assert_eq!(left_out.contains(&scheme), !is_built, "{scheme}: {left_out:?}");
        assert_eq!(registry.factories().any(|factory| factory.scheme == scheme), is_built, "{scheme}");
    }
}

#[cfg(feature = "file")]
#[test]
fn a_bare_path_is_told_the_url_that_it_is_meant_for() {
    for (given, url) in [("/tmp/store", "file:/tmp/store;"), ("./kv?direct=true", "file:./kv;")] {
        let error = Opener::default().open(given).map(drop).unwrap_err().to_string();
        assert!(error.contains(&format!("write {url}")), "{error}");
    }
    let error = Opener::default().open("store").map(drop).unwrap_err().to_string();
    assert!(!error.contains("write file:"), "{error}");
}
