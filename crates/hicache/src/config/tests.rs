//! Tests of the configuration file: what is accepted, and that what is not says where it stands.

use super::*;
use crate::{ErrorKind, Opener};

fn json(text: &str) -> Result<ConfigFile> {
    ConfigFile::parse_json("some.json", text)
}

/// Opening a memory store with it.
fn open(config: Result<ConfigFile>) -> Result<()> {
    let opener = Opener { config: Some(config?), ..Opener::default() };
    opener.open("memory:").map(|_| ())
}

fn refused(config: Result<ConfigFile>, wanted: &[&str]) {
    let error = open(config).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    for part in wanted {
        assert!(error.to_string().contains(part), "{error} does not hold {part:?}");
    }
}

#[test]
fn b013_every_form_of_a_boolean_is_equal_in_effect() {
    for value in ["true", "\"true\"", "\"True\"", "\"1\"", "1", "\"yes\"", "\"on\"", "false", "0", "\"no\""] {
        open(json(&format!("{{\"memory\": {{\"accept_unverified\": {value}}}}}"))).unwrap();
    }
    for value in ["\"flase\"", "2", "1.5", "\"\""] {
        let text = format!("{{\"memory\": {{\"accept_unverified\": {value}}}}}");
        refused(json(&text), &["some.json: memory.accept_unverified", value.trim_matches('"')]);
    }
    for value in ["null", "[1]", "{\"a\": 1}"] {
        let text = format!("{{\"memory\": {{\"accept_unverified\": {value}}}}}");
        refused(json(&text), &["some.json", "memory.accept_unverified"]);
    }
}

#[test]
fn b013_an_option_outside_its_section_is_refused() {
    let text = "{\"accept_unverified\": true, \"memory\": {\"accept_unverified\": false}}";
    refused(json(text), &["accept_unverified", "section"]);
}

#[test]
fn b014_a_misspelt_option_is_refused_with_its_nearest() {
    refused(json("{\"memory\": {\"capacty\": \"1GiB\"}}"), &["memory.capacty", "did you mean capacity?"]);
    refused(json("{\"memry\": {\"capacity\": \"1GiB\"}}"), &["memry", "did you mean memory?"]);
    refused(json("{\"memory\": {\"threads\": 4}}"), &["memory.threads", "no such option"]);
}

#[test]
fn b014_a_key_told_twice_is_refused() {
    refused(json("{\"memory\": {\"capacity\": 1, \"capacity\": 1}}"), &["\"capacity\"", "twice", "line 1"]);
    let toml = "[memory]\ncapacity = 1\ncapacity = 1\n";
    refused(ConfigFile::parse_toml("some.toml", toml), &["some.toml", "duplicate"]);
}

#[test]
fn b014_an_option_that_does_not_exist_is_refused_with_no_values_too() {
    for text in [
        r#"{"memory": {"bogus": []}}"#,
        r#"{"bogus": []}"#,
        r#"{"memory": []}"#,
        r#"{"memory": {"capacity": []}}"#,
        r#"{"plugin": {"posix": {"active": true, "bogus": []}}}"#,
    ] {
        refused(json(text), &["some.json", "an empty list"]);
    }
    refused(ConfigFile::parse_yaml("some.yaml", "memory: {bogus: []}"), &["memory.bogus", "an empty list"]);
}

#[test]
fn a_plugin_that_is_no_table_is_told_as_that() {
    for (value, kind) in [("null", "null"), ("[]", "a list"), ("\"obj\"", "a text")] {
        refused(json(&format!("{{\"plugin\": {value}}}")), &["plugin is", kind, "not a table"]);
    }
}

#[test]
fn a_date_is_its_text() {
    for date in ["2020-01-01", "2020-01-01T00:00:00Z", "07:32:00"] {
        let toml = format!("[memory]\ncapacity = {date}\n");
        refused(ConfigFile::parse_toml("some.toml", &toml), &["memory.capacity", &format!("{date:?}")]);
    }
    refused(ConfigFile::parse_toml("some.toml", "memory = 2020-01-01\n"), &["memory", "no such option"]);
}

#[test]
fn b019_a_number_of_many_digits_is_neither_printed_nor_rounded() {
    const DIGITS: &str = "98765432109876543210987";
    let all = [
        ConfigFile::parse_toml("some.toml", &format!("[s3]\nsecret_key = {DIGITS}\n")),
        ConfigFile::parse_yaml("some.yaml", &format!("s3: {{secret_key: {DIGITS}}}\n")),
        json(&format!("{{\"s3\": {{\"secret_key\": {DIGITS}}}}}")),
    ];
    for config in all {
        match config {
            Ok(config) => assert_eq!(config.sections[0].settings[0].value, DIGITS),
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("write it as a text") && !text.contains(&DIGITS[..6]), "{text}");
            }
        }
    }
    let above_i64 = u64::MAX.to_string();
    let config = json(&format!("{{\"s3\": {{\"secret_key\": {above_i64}}}}}")).unwrap();
    assert_eq!(config.sections[0].settings[0].value, above_i64);
    let toml = format!("[s3]\nsecret_key = {above_i64}\n");
    assert_eq!(ConfigFile::parse_toml("some.toml", &toml).unwrap().sections[0].settings[0].value, above_i64);
}

#[test]
fn b014_a_great_many_keys_take_no_time_to_be_told_apart() {
    let keys = |one: fn(usize) -> String, between: &str| {
        (0..50_000).chain([7]).map(one).collect::<Vec<_>>().join(between)
    };
    let json_text = format!("{{{}}}", keys(|n| format!("\"k{n}\": 1"), ","));
    let start = std::time::Instant::now();
    for (text, parse) in [
        (json_text, ConfigFile::parse_json as fn(&str, &str) -> Result<ConfigFile>),
        (keys(|n| format!("k{n}: 1"), "\n"), ConfigFile::parse_yaml),
        (keys(|n| format!("k{n} = 1"), "\n"), ConfigFile::parse_toml),
    ] {
        refused(parse("some file", &text), &["some file", "k"]);
    }
    assert!(start.elapsed().as_secs() < 20, "{:?}: each key was compared with each", start.elapsed());
}

#[test]
fn b014_malformed_syntax_is_refused_in_one_line_with_its_place() {
    refused(json("{\"backend\": \"memory:\",}"), &["some.json", "line 1"]);
    let error = ConfigFile::parse_toml("some.toml", "backend = \n").unwrap_err().to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn b019_a_malformed_file_tells_its_place_and_no_value() {
    let toml = [
        "backend = 'memory:'\n[memory]\ntoken = \"S3cr3t\n",
        "backend = 'memory:'\n[memory]\ntoken = S3cr3t\n",
        "backend = 'memory:'\n[memory]\ntoken = 'S3cr3t' 'more'\n",
        "backend = 'memory:'\ntoken = 'a'\ntoken = 'S3cr3t'\n",
    ];
    for text in toml {
        let error = ConfigFile::parse_toml("some.toml", text).unwrap_err().to_string();
        assert!(error.contains("at line 3"), "{error}");
        assert!(!error.contains("S3cr3t"), "{error}");
    }
    for text in [
        "{\"memory\": {\"token\": \"S3cr3t}",
        "{\"memory\": {\"token\": S3cr3t}}",
        "{\"token\": [\"S3cr3t\", 1]}",
    ] {
        let error = json(text).unwrap_err();
        assert!(!format!("{error:?}").contains("S3cr3t"), "{error:?}");
    }
}

#[test]
fn both_syntaxes_say_the_same() {
    let toml =
        ConfigFile::parse_toml("x", "backend = 'file:a'\n[file]\nthreads = 4\ndir = ['b', 'c']\n").unwrap();
    let json =
        ConfigFile::parse_json("x", r#"{"backend": "file:a", "file": {"threads": 4, "dir": ["b", "c"]}}"#)
            .unwrap();
    assert_eq!(toml.backend(), Some("file:a"));
    assert_eq!(json.backend(), toml.backend());
    let sorted = |config: &ConfigFile| {
        let settings = config.sections[0].settings.iter();
        let mut options: Vec<_> =
            settings.map(|setting| (setting.name.clone(), setting.value.clone())).collect();
        options.sort();
        options
    };
    let expected = [("dir", "b"), ("dir", "c"), ("threads", "4")];
    assert_eq!(sorted(&json), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(sorted(&toml), sorted(&json));
}

#[test]
fn a_file_is_read_by_its_extension_with_or_without_a_byte_order_mark() {
    let folder = tempfile::tempdir().unwrap();
    let toml = "backend = 'memory:'\r\n[memory]\r\ncapacity = 7\r\n";
    let json = "{\"backend\": \"memory:\",\r\n \"memory\": {\"capacity\": 7}}";
    let yaml = "backend: 'memory:'\r\nmemory:\r\n  capacity: 7\r\n";
    for (name, text) in
        [("a.toml", toml), ("a.json", json), ("a.yaml", yaml), ("a.yml", yaml), ("A.JSON", json)]
    {
        for mark in ["", "\u{feff}"] {
            let path = folder.path().join(name);
            std::fs::write(&path, format!("{mark}{text}")).unwrap();
            let config = ConfigFile::read(&path).unwrap_or_else(|error| panic!("{name} {mark:?}: {error:?}"));
            assert_eq!(config.backend(), Some("memory:"));
            let set = told(config, "memory:").unwrap();
            assert_eq!((set.len(), set[0].0, set[0].1.as_str()), (1, "capacity", "7"));
        }
    }
    for name in ["a.ini", "a", "a.json.bak"] {
        let error = ConfigFile::read(folder.path().join(name)).unwrap_err();
        assert!(error.to_string().contains(".yaml"), "{error}");
    }
}

#[test]
fn yaml_of_both_of_sglangs_shapes_is_read() {
    let place = |name: &str| format!("file some.yaml: {name}");
    let yaml = |text: &str| ConfigFile::parse_yaml("some.yaml", text);
    let set = told(yaml("prefetch_threshold: 256\nmlock: yes\ndeadline: 5s\n").unwrap(), "memory:").unwrap();
    let wanted =
        [("deadline", "5s".to_owned(), place("deadline")), ("mlock", "yes".to_owned(), place("mlock"))];
    assert_eq!(set.into_iter().filter(|(name, ..)| *name != "capacity").collect::<Vec<_>>(), wanted);
    refused(yaml("plugin: {posix: {active: no}}"), &["no plugin is active"]);
    refused(yaml("memory:\n  capacty: 1GiB\n"), &["some.yaml: memory.capacty", "did you mean capacity?"]);
    refused(yaml("prefetch_threshold: '256'\n"), &["prefetch_threshold", "SGLang wants"]);
    refused(yaml("memory: {mlock: ~}"), &["memory.mlock", "null"]);
    for text in
        ["token: 'S3cr3t\n", "token: S3cr3t: x\n", "a: [S3cr3t\n", "token: !S3cr3t x\n", "x: *S3cr3t\n"]
    {
        let error = yaml(text).unwrap_err();
        assert!(!format!("{error:?}").contains("S3cr3t") && error.to_string().contains("line"), "{error:?}");
    }
}

#[test]
fn no_value_is_in_the_debug_text() {
    let config = json("{\"memory\": {\"capacity\": \"sesame\"}}").unwrap();
    assert!(!format!("{config:?}").contains("sesame"));
}

/// What an opener with this configuration would give the store at `url`, option by option.
fn told(config: ConfigFile, url: &str) -> Result<Vec<(&'static str, String, String)>> {
    let opener = Opener { config: Some(config), ..Opener::default() };
    let set = opener.effective(url)?.into_iter().filter(|option| !option.values.is_empty());
    Ok(set.map(|option| (option.spec.name, option.values.join(","), option.source.to_string())).collect())
}

#[cfg(feature = "file")]
fn extra(text: &str) -> Vec<(&'static str, String, String)> {
    told(ConfigFile::parse_extra_config(text).unwrap(), "file:unused").unwrap()
}

#[cfg(feature = "file")]
fn extra_refused(text: &str, wanted: &[&str]) {
    let error =
        ConfigFile::parse_extra_config(text).and_then(|config| told(config, "file:unused")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    for part in wanted {
        assert!(error.to_string().contains(part), "{error} does not hold {part:?}");
    }
}

#[test]
#[cfg(feature = "file")]
fn the_flat_shape_is_options_of_whichever_store_is_opened() {
    let place = |name: &str| format!("file extra configuration: {name}");
    let set = extra(r#"{"use_direct_io": false, "threads": 4, "dir": ["a", "b"]}"#);
    let wanted = [
        ("dir", "a,b".to_owned(), place("dir")),
        ("direct", "false".to_owned(), place("use_direct_io")),
        ("threads", "4".to_owned(), place("threads")),
    ];
    assert_eq!(set, wanted);
    let config = ConfigFile::parse_extra_config(r#"{"capacity": "1MiB"}"#).unwrap();
    assert_eq!(
        told(config.clone(), "memory:").unwrap(),
        [("capacity", "1MiB".to_owned(), place("capacity"))]
    );
    assert!(told(config, "file:unused").unwrap_err().to_string().contains("capacity"));
}

#[test]
#[cfg(feature = "file")]
fn the_qualified_shape_is_options_of_the_active_plugins_store() {
    let text = r#"{
        "plugin": {"gds": {"batch_limit": 128}, "posix": {"threads": 4, "active": true}},
        "use_direct_io": "false"
    }"#;
    let place = |name: &str| format!("file extra configuration: {name}");
    let wanted = [
        ("direct", "false".to_owned(), place("use_direct_io")),
        ("threads", "4".to_owned(), place("plugin.posix.threads")),
    ];
    assert_eq!(extra(text), wanted);
    let config = ConfigFile::parse_extra_config(text).unwrap();
    assert!(told(config, "memory:").unwrap().iter().all(|(name, ..)| *name == "capacity"), "not its section");
    for active in ["true", "\"true\"", "\"True\""] {
        let text = format!(r#"{{"plugin": {{"POSIX": {{"active": {active}, "checksum": false}}}}}}"#);
        assert_eq!(extra(&text)[0].0, "checksum");
    }
}

#[test]
#[cfg(feature = "file")]
fn w13_a_plugin_that_cannot_be_is_refused_with_what_can() {
    let refused = [
        (r#"{"plugin": {"posix": {"threads": 4}}}"#, ["no plugin is active", "\"active\": true"]),
        (r#"{"plugin": {}}"#, ["no plugin is active", "plugin"]),
        (r#"{"plugin": {"posix": {"active": "yess"}}}"#, ["plugin.posix.active", "want true or false"]),
        (r#"{"plugin": {"posix": {"active": null}}}"#, ["plugin.posix.active", "null"]),
        (r#"{"plugin": {"posix": true}}"#, ["plugin.posix", "table"]),
        (r#"{"plugin": {"gds_mt": {"active": true}}}"#, ["gds_mt", "posix (file:)"]),
        (
            r#"{"plugin": {"posix": {"active": true}, "obj": {"active": true}}}"#,
            ["more than one", "posix, obj"],
        ),
        (r#"{"plugin": {"posix": {"active": true}}, "file": {}}"#, ["plugin", "one kind only"]),
        (
            r#"{"plugin": {"posix": {"active": true, "ios_pool_size": 64}}}"#,
            ["plugin.posix.ios_pool_size", "no such"],
        ),
        (
            r#"{"plugin": {"posix": {"active": true, "direct": true}}, "use_direct_io": false}"#,
            ["twice", "use_direct_io"],
        ),
        (r#"{"use_uring": "maybe"}"#, ["use_uring", "want true or false"]),
        (r#"{"use_aio": "true"}"#, ["use_aio", "no such option"]),
        (r#"{"l3_cleaner_enabled": true}"#, ["l3_cleaner_enabled", "no such option"]),
        (r#"{"plugins": {"posix": {}}}"#, ["plugins.posix", "table"]),
        (r#"{"bakend": "memory:"}"#, ["bakend", "did you mean backend?"]),
        (r#"{"use_direct_io": "flase"}"#, ["use_direct_io", "\"flase\""]),
        (r#"{"use_direct_io": null}"#, ["use_direct_io", "null"]),
        ("@no-such-file.json", ["no-such-file.json", "cannot be read"]),
    ];
    for (text, wanted) in refused {
        extra_refused(text, &wanted);
    }
    if cfg!(not(feature = "obj")) {
        let text = r#"{"plugin": {"obj": {"active": true, "bucket": "kv"}}}"#;
        let config = ConfigFile::parse_extra_config(text).unwrap();
        let opener = Opener { config: Some(config), ..Opener::default() };
        let opened = opener.open(&opener.url().unwrap().unwrap()).map(drop);
        for error in [opened.unwrap_err(), opener.check_config().unwrap_err()] {
            assert!(error.to_string().contains("s3: is in builds with the feature obj"), "{error}");
        }
    }
}

#[test]
#[cfg(feature = "file")]
fn w13_a_boolean_means_the_same_in_every_shape_and_form() {
    for (value, wanted) in
        [("true", true), ("\"False\"", false), ("\"false\"", false), ("0", false), ("\"on\"", true)]
    {
        for text in [
            format!(r#"{{"use_direct_io": {value}}}"#),
            format!(r#"{{"plugin": {{"posix": {{"active": 1}}}}, "use_direct_io": {value}}}"#),
            format!(r#"{{"plugin": {{"posix": {{"active": true, "use_direct_io": {value}}}}}}}"#),
            format!(r#"{{"file": {{"direct": {value}}}}}"#),
        ] {
            let set = extra(&text);
            assert_eq!(crate::parse_bool(&set[0].1), Ok(wanted), "{text}");
            assert_eq!((set.len(), set[0].0), (1, "direct"));
        }
    }
    assert_eq!(extra(r#"{"use_uring": "false"}"#), []);
    let config = ConfigFile::parse_extra_config(r#"{"use_uring": true}"#).unwrap();
    let options = Opener { config: Some(config), ..Opener::default() }.options("file:x").unwrap();
    let engine = crate::OptionSpec::new("engine", "", "", "");
    assert_eq!(options.strongest(&engine)[0].1, "io_uring");
}

#[test]
#[cfg(feature = "file")]
fn what_the_controller_reads_is_checked_and_left_to_it() {
    let own = r#""prefetch_threshold": 256, "prefetch_timeout_base": 1, "prefetch_timeout_per_ki_token": 0.25,
        "hicache_storage_pass_prefix_keys": false, "tp_lcm_size": 8, "backend_name": "hicache",
        "module_path": "hicache", "class_name": "Store", "interface_v1": 1"#;
    assert_eq!(extra(&format!("{{{own}}}")), []);
    assert_eq!(extra(&format!(r#"{{{own}, "plugin": {{"posix": {{"active": true}}}}}}"#)), []);
    let config =
        json(&format!(r#"{{{own}, "backend": "memory:", "memory": {{"allocator": "shm"}}}}"#)).unwrap();
    let opener = Opener { config: Some(config), ..Opener::default() };
    assert_eq!(opener.allocator_type("memory:").unwrap(), crate::AllocatorType::Shm);
    for (key, value) in [
        ("prefetch_threshold", "\"256\""),
        ("prefetch_threshold", "true"),
        ("prefetch_timeout_base", "\"1s\""),
        ("prefetch_timeout_base", "-1"),
        ("hicache_storage_pass_prefix_keys", "1"),
        ("tp_lcm_size", "2.5"),
        ("class_name", "3"),
        ("interface_v1", "{}"),
    ] {
        extra_refused(&format!("{{\"{key}\": {value}}}"), &[key, "SGLang wants"]);
    }
}

#[test]
#[cfg(feature = "file")]
fn b013_nested_and_top_level_that_differ_are_refused() {
    extra_refused(r#"{"direct": true, "file": {"direct": false}}"#, &["direct", "section"]);
    extra_refused(r#"{"direct": true, "use_direct_io": false}"#, &["twice", "direct", "use_direct_io"]);
    extra_refused(r#"{"file": {"direct": true, "use_direct_io": false}}"#, &["twice", "file.direct"]);
}

#[test]
fn a_configuration_is_checked_for_itself() {
    let check = |text: &str| {
        let environment = [("HICACHE_MEMORY_DEADLINE".into(), "soon".into())].into_iter().collect();
        let config = Some(ConfigFile::parse_toml("some.toml", text)?);
        Opener { config, environment, ..Opener::default() }.check_config()
    };
    let mut good = vec!["", "backend = 'memory:'\ncapacity = '1GiB'", "capacity = '1GiB'", "mlock = true"];
    let mut refused = vec![
        ("[memory]\ncapacity = 'some'", "memory.capacity"),
        ("backend = 'memory:?capacity=none'", "url"),
        ("backend = 'flie:x'", "flie"),
        ("capacity = 'some'", "some.toml: capacity"),
        ("capacity = '1GiB'\nmlock = 'flase'", "some.toml: mlock"),
        ("[memry]", "did you mean memory?"),
    ];
    if cfg!(feature = "file") {
        good.extend(["backend = 'file:x'\n[file]\nthreads = 4\n[memory]\ncapacity = '1GiB'", "threads = 4"]);
        refused.extend([
            ("backend = 'memory:'\n[file]\ncapacity = 1", "file.capacity"),
            ("backend = 'memory:'\nthreads = 4", "threads"),
            ("threads = 'many'", "some.toml: threads"),
            ("threads = 4\ncapacity = '1GiB'", "no such option"),
        ]);
    }
    for text in good {
        check(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    for (text, said) in refused {
        let error = check(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{text}");
        assert!(error.to_string().contains(said), "{error}");
    }
}

/// Every boolean option there is, in a section and at top level, in every form.
#[test]
fn b013_every_boolean_option_takes_every_form_in_every_place() {
    let registry = crate::registry();
    for factory in registry.factories() {
        let (scheme, specs) = (factory.scheme, factory.options.iter().chain(crate::COMMON_OPTIONS));
        for name in specs.filter(|spec| spec.kind.starts_with("bool")).map(|spec| spec.name) {
            let places = |value: &str| {
                [
                    (format!("{{\"{scheme}\": {{\"{name}\": {value}}}}}"), format!("{scheme}.{name}")),
                    (format!("{{\"{name}\": {value}}}"), name.to_owned()),
                ]
            };
            for (forms, wanted) in [
                (["true", "\"true\"", "\"True\"", "\"1\"", "1", "\"yes\"", "\"on\""], true),
                (["false", "\"false\"", "\"False\"", "\"0\"", "0", "\"no\"", "\"off\""], false),
            ] {
                for (text, place) in forms.iter().flat_map(|form| places(form)) {
                    let set = told(json(&text).unwrap(), &format!("{scheme}:")).unwrap();
                    let (_, value, source) = set.iter().find(|(set, ..)| *set == name).unwrap();
                    assert_eq!(
                        (crate::parse_bool(value), source),
                        (Ok(wanted), &format!("file some.json: {place}"))
                    );
                }
            }
            for form in ["\"flase\"", "null", "2", "1.0", "\"\"", "\"None\"", "[true]", "{}"] {
                for (text, place) in places(form) {
                    let error =
                        json(&text).and_then(|config| told(config, &format!("{scheme}:"))).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{text}");
                    assert!(error.to_string().contains(&place), "{text}: {error}");
                }
            }
            for (top, nested) in [("true", "false"), ("false", "true")] {
                let text = format!("{{\"{name}\": {top}, \"{scheme}\": {{\"{name}\": {nested}}}}}");
                assert!(json(&text).unwrap_err().to_string().contains(name), "{text}");
            }
        }
    }
}

#[test]
#[cfg(feature = "obj")]
fn the_plugin_for_s3_names_its_bucket_and_its_endpoint_as_sglang_does() {
    let open_with =
        |config: Result<ConfigFile>| Opener { config: Some(config.unwrap()), ..Opener::default() };
    let open = |text: &str| open_with(ConfigFile::parse_json("x", text));
    let opener = open(
        r#"{"plugin": {"obj": {"active": true, "bucket": "kv", "scheme": "http", "num_threads": "2",
            "endpoint_override": "127.0.0.1:9000", "access_key": "a", "secrete_key": "b",
            "use_virtual_addressing": false, "req_checksum": "required"}}}"#,
    );
    let url = opener.url().unwrap().expect("a plugin and its bucket name a store");
    assert_eq!(url, "s3://kv");
    opener.check(&url).unwrap();
    let effective = opener.effective(&url).unwrap();
    let value = |name: &str| {
        effective.iter().find(|option| option.spec.name == name).unwrap().values.first().cloned()
    };
    assert_eq!(value("endpoint").as_deref(), Some("http://127.0.0.1:9000"));
    assert_eq!(value("threads").as_deref(), Some("2"));

    let bare = open(
        r#"{"plugin": {"obj": {"active": true, "bucket": "kv", "endpoint_override": "s3.example.net"}}}"#,
    );
    let effective = bare.effective("s3://kv").unwrap();
    let endpoint = effective.iter().find(|option| option.spec.name == "endpoint").unwrap();
    assert_eq!(endpoint.values.first().map(String::as_str), Some("https://s3.example.net"));

    // The scheme may be said twice, not in two ways.
    let both = |scheme: &str| {
        let of_plugin = format!(
            r#"{{"active": true, "bucket": "kv", "endpoint_override": "http://a:9", "scheme": "{scheme}"}}"#
        );
        ConfigFile::parse_json("x", &format!(r#"{{"plugin": {{"obj": {of_plugin}}}}}"#))
    };
    for same in ["http", "HTTP"] {
        open_with(both(same)).check("s3://kv").unwrap();
    }
    let error = both("https").unwrap_err().to_string();
    assert!(error.contains("plugin.obj.scheme") && error.contains("leave scheme out"), "{error}");

    let nowhere = open(r#"{"plugin": {"obj": {"active": true}}}"#);
    let error = nowhere.url().unwrap_err().to_string();
    assert!(error.contains("AWS_DEFAULT_BUCKET"), "{error}");
    let unknown = open(r#"{"plugin": {"obj": {"active": true, "bucket": "kv", "crtMinLimit": 5}}}"#);
    assert!(unknown.check("s3://kv").unwrap_err().to_string().contains("crtMinLimit"));
}

#[test]
fn a_bucket_without_its_plugin_is_refused_with_where_it_goes() {
    for text in [r#"{"bucket": "kv"}"#, r#"{"bucket": "kv", "endpoint_override": "http://a:9"}"#] {
        refused(json(text), &["some.json", "at=bucket", "s3://BUCKET", "plugin obj"]);
    }
}
