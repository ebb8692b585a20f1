//! Options from flags, the URL, the environment and a file: which wins, and that none is lost in silence.

use hicache_tests::{Home, key, skip};
use std::process::Command;

/// Puts one page into a store in `home` with that configuration file and these variables.
fn put(home: &Home, config: &str, variables: &[(&str, &str)], url: &[&str]) -> hicache_tests::Ran {
    let page = home.file("in", "x");
    let name = key(1);
    let arguments = ["put", &name, &page, "--config", config, "--json"];
    let mut command = home.command(arguments.iter().chain(url));
    command.envs(variables.iter().copied());
    command.output().unwrap().into()
}

#[test]
fn the_file_names_the_store_and_its_options() {
    let home = Home::new();
    let (first, second) = (home.path("first"), home.path("second"));
    let config = home.file(
        "some.toml",
        format!(
            "backend = \"file:{}\"\n[file]\nthreads = 4\ndirect = false\ndir = [\"{}\"]\n",
            first.display(),
            second.display()
        ),
    );
    put(&home, &config, &[], &[]).ended(0);
    assert!(first.join("hicache.store").exists() && second.join("hicache.store").exists());
    assert!(!home.path(".cache").exists());
    // A flag goes before the file.
    put(&home, &config, &[], &["--backend", &home.url("third")]).ended(0);
    assert!(home.path("third/hicache.store").exists());
}

#[test]
fn url_beats_environment_beats_file() {
    let home = Home::new();
    let bad_file = home.file("bad.json", r#"{"file": {"threads": "many"}}"#);
    let store = home.url("store");
    let good = format!("{store}?threads=4");
    let refused = put(&home, &bad_file, &[], &["--backend", &store]).ended(2);
    assert!(refused.stderr.contains("bad.json: file.threads"), "{}", refused.stderr);
    let variable = [("HICACHE_FILE_THREADS", "4")];
    put(&home, &bad_file, &variable, &["--backend", &store]).ended(0);
    let bad_variable = [("HICACHE_FILE_THREADS", "none")];
    let refused = put(&home, &bad_file, &bad_variable, &["--backend", &store]).ended(2);
    assert!(refused.stderr.contains("HICACHE_FILE_THREADS"), "{}", refused.stderr);
    put(&home, &bad_file, &bad_variable, &["--backend", &good]).ended(0);
}

#[test]
fn b013_each_form_of_a_boolean_is_taken_and_anything_else_is_refused_with_its_place() {
    let home = Home::new();
    let store = home.url("store");
    for (number, value) in ["true", "\"true\"", "\"True\"", "\"1\"", "1", "\"yes\"", "\"on\"", "\"require\""]
        .into_iter()
        .enumerate()
    {
        let text = format!("{{\"file\": {{\"direct\": {value}, \"checksum\": true}}}}");
        let config = home.file(&format!("{number}.json"), text.replace("\"require\"", "\"off\""));
        put(&home, &config, &[], &["--backend", &store]).ended(0);
    }
    for value in ["\"flase\"", "null", "[1]", "{}", "2", "\"\""] {
        let config = home.file("bad.json", format!("{{\"file\": {{\"direct\": {value}}}}}"));
        let refused = put(&home, &config, &[], &["--backend", &store]).ended(2);
        assert_eq!(refused.json()["error"]["kind"], "invalid_config");
        assert!(refused.stderr.contains("file.direct"), "{value}: {}", refused.stderr);
    }
    let both = home.file("both.json", r#"{"direct": true, "file": {"direct": false}}"#);
    put(&home, &both, &[], &["--backend", &store]).ended(2);
    let aliases = home.file("aliases.json", r#"{"file": {"direct": true, "use_direct_io": false}}"#);
    let refused = put(&home, &aliases, &[], &["--backend", &store]).ended(2);
    assert!(refused.stderr.contains("twice"), "{}", refused.stderr);
}

#[test]
fn b014_a_misspelt_unknown_or_repeated_key_is_refused_with_its_nearest() {
    let home = Home::new();
    let store = home.url("store");
    for (text, wanted) in [
        (r#"{"file": {"thread": 4}}"#, "did you mean threads?"),
        (r#"{"file": {"capacity": "1GiB"}}"#, "capacity"),
        (r#"{"fil": {"threads": 4}}"#, "did you mean file?"),
        (r#"{"file": {"threads": 4, "threads": 4}}"#, "twice"),
        (r#"{"file": {"threads": 4},}"#, "line 1"),
        (r#"{"backend": "file"}"#, "config"),
        ("[]", "table"),
    ] {
        let config = home.file("bad.json", text);
        let backend = ["--backend", store.as_str()];
        let url: &[&str] = if text.contains("backend") { &[] } else { &backend };
        let refused = put(&home, &config, &[], url).ended(2);
        assert!(refused.stderr.contains(wanted), "{text}: {}", refused.stderr);
        assert_eq!(refused.json_keys(), ["error"]);
        assert!(!home.path("store").exists());
    }
    put(&home, &home.file("some.ini", ""), &[], &["--backend", &store]).ended(2);
    put(&home, "no-such.toml", &[], &["--backend", &store]).ended(2);
}

#[test]
fn b014_a_misspelt_variable_is_refused_by_name_and_those_of_tests_are_left_alone() {
    let home = Home::new();
    let config = home.file("empty.toml", "");
    let url = ["--backend", &home.url("store")];
    let refused = put(&home, &config, &[("HICACHE_FILE_DRECT", "true")], &url).ended(2);
    assert!(refused.stderr.contains("HICACHE_FILE_DRECT"), "{}", refused.stderr);
    assert!(refused.stderr.contains("did you mean direct?"), "{}", refused.stderr);
    assert!(!home.path("store").exists());
    put(&home, &config, &[("HICACHE_TEST_ANYTHING", "x"), ("HICACHE_MEMORY_CAPACITY", "y")], &url).ended(0);
    put(&home, &config, &[("HICACHE_FILE_USE_DIRECT_IO", "false")], &url).ended(0);
}

#[test]
fn a_variable_that_no_store_reads_is_refused_with_the_one_that_was_meant() {
    let home = Home::new();
    let config = home.file("empty.toml", "");
    let url = ["--backend", &home.url("store")];
    for (name, wanted) in [
        ("HICACHE_FLIE_DIRECT", "did you mean HICACHE_FILE_DIRECT?"),
        ("HICACHE_DIRECT", "did you mean HICACHE_FILE_DIRECT?"),
        ("HICACHE_file_direct", "HICACHE_<STORE>_<OPTION>"),
        ("HICACHE_BACKEND", "HICACHE_<STORE>_<OPTION>"),
        ("HICACHE_MEMORY_CAPCITY", "did you mean capacity?"),
    ] {
        let refused = put(&home, &config, &[(name, "banana")], &url).ended(2);
        assert!(refused.stderr.contains(name) && refused.stderr.contains(wanted), "{}", refused.stderr);
        assert_eq!(refused.json()["error"]["kind"], "invalid_config");
        assert!(!home.path("store").exists());
        let doctor = home.command(["doctor"]).env(name, "banana").output().unwrap();
        assert_eq!(doctor.status.code(), Some(2), "{name}");
    }
}

#[test]
fn a_misspelt_option_in_the_section_of_another_store_is_refused() {
    let home = Home::new();
    let url = ["--backend", &home.url("store")];
    let config = home.file("some.toml", "[memory]\ncapcity = 3\n");
    let refused = put(&home, &config, &[], &url).ended(2);
    for part in ["some.toml: memory.capcity", "did you mean capacity?"] {
        assert!(refused.stderr.contains(part), "{}", refused.stderr);
    }
    assert!(!home.path("store").exists());
    put(&home, &home.file("some.toml", "[memory]\ncapacity = 3\n"), &[], &url).ended(0);
}

#[test]
fn a_configuration_that_is_no_regular_file_is_refused_at_once() {
    let home = Home::new();
    let made = Command::new("mkfifo").arg(home.path("pipe.toml")).status().unwrap();
    assert!(made.success());
    std::os::unix::fs::symlink("/dev/zero", home.path("endless.toml")).unwrap();
    std::fs::create_dir(home.path("folder.toml")).unwrap();
    for name in ["pipe.toml", "endless.toml", "folder.toml"] {
        let config = home.path(name).display().to_string();
        // Ended, were it to wait.
        let mut command = home.command_under(&["timeout", "60"], ["list", "--config", &config, "--json"]);
        let refused = hicache_tests::Ran::from(command.output().unwrap()).ended(2);
        assert!(refused.stderr.contains("no regular file"), "{name}: {}", refused.stderr);
        assert!(refused.stderr.contains(name), "{}", refused.stderr);
    }
    let large = home.file("large.toml", "#".repeat((1 << 20) + 1));
    assert!(home.run(["list", "--config", &large]).ended(2).stderr.contains("larger than 1 MiB"));
}

#[test]
fn an_error_does_not_quote_a_long_line() {
    let home = Home::new();
    let long = "x".repeat(1 << 19);
    for (name, text) in [
        ("a.toml", format!("backend = \"{long}\n")),
        ("b.toml", format!("a{long} = 1\na{long} = 1\n")),
        ("c.json", format!("{{\"a{long}\": 1, \"a{long}\": 2}}")),
        ("g.json", format!("{{\"a{long}\": 1}}")),
        ("d.json", format!("{{\"a{long}\": {{}}}}")),
        ("e.json", format!("{{\"file\": {{\"a{long}\": 1}}}}")),
        ("f.json", format!("{{\"file\": {{\"a{long}\": null}}}}")),
    ] {
        let refused = home.run(["list", "--config", &home.file(name, text)]).ended(2);
        assert!(refused.stderr.contains(name), "{name}");
        assert!(refused.stderr.len() < 1500, "{name}: {} bytes", refused.stderr.len());
    }
    // Nor a long value, from whichever source.
    let long = "y".repeat(1 << 16);
    for name in
        ["threads", "huge_pages", "numa", "mlock", "allocator", "deadline", "direct", "dir", "no_such"]
    {
        let url = format!("{}?{name}={long}", home.url("store"));
        let refused = home.run(["list", "--backend", &url]);
        assert_ne!(refused.code, Some(0));
        assert!(refused.stderr.len() < 1500, "{name}: {} bytes", refused.stderr.len());
        assert!(!home.path("store").exists());
    }
    for url in [format!("{long}:x"), long.clone(), format!("memory:{long}"), format!("file:x?{long}")] {
        let refused = home.run(["list", "--backend", &url]).ended(2);
        assert!(refused.stderr.len() < 1500, "{} bytes", refused.stderr.len());
    }
    let told = home.run(["list", "--config", &home.file("a.toml", "[file]\nthreads = \n")]).ended(2);
    assert!(told.stderr.contains("line 2, column "), "{}", told.stderr);
}

#[test]
fn config_show_says_what_holds_and_where_it_came_from() {
    let home = Home::new();
    let config = home.file(
        "some.toml",
        "backend = \"file:/nowhere?threads=5\"\n[file]\nchecksum = false\ndir = ['a', 'b']\n",
    );
    let mut command = home.command(["config", "show", "--config", &config, "--json"]);
    let ran: hicache_tests::Ran = command.env("HICACHE_FILE_DEADLINE", "5s").output().unwrap().into();
    let document = ran.ended(0).json();
    let option = |name: &str| {
        let options = document["options"].as_array().unwrap();
        let found = options.iter().find(|option| option["name"] == name).unwrap();
        assert_eq!(found.as_object().unwrap().len(), 3, "{found}");
        (found["value"].clone(), found["source"].as_str().unwrap().to_owned())
    };
    assert_eq!(option("threads"), ("5".into(), "url".to_owned()));
    assert_eq!(option("deadline"), ("5s".into(), "environment HICACHE_FILE_DEADLINE".to_owned()));
    assert_eq!(option("checksum"), ("false".into(), format!("file {config}: file.checksum")));
    assert_eq!(option("dir").0, serde_json::json!(["a", "b"]));
    assert_eq!(option("engine"), ("auto".into(), "default".to_owned()));
    let text = home.command(["config", "show", "--backend", "memory:?capacity=1MiB"]).output().unwrap();
    let ran: hicache_tests::Ran = text.into();
    let text = String::from_utf8(ran.ended(0).stdout).unwrap();
    assert!(text.lines().any(|line| line.starts_with("capacity") && line.ends_with("1MiB  (url)")), "{text}");
    let refused: hicache_tests::Ran =
        home.command(["config", "show", "--backend", "memory:?capacty=1"]).output().unwrap().into();
    assert!(refused.ended(2).stderr.contains("did you mean capacity?"));
}

#[test]
fn config_show_all_has_every_option_with_its_type_and_default() {
    let home = Home::new();
    let ran: hicache_tests::Ran =
        home.command(["config", "show", "--all", "--json"]).env_remove("HOME").output().unwrap().into();
    let document = ran.ended(0).json();
    let options = document["options"].as_array().unwrap();
    for (store, name) in
        [("file", "direct"), ("file", "allocator"), ("memory", "capacity"), ("memory", "deadline")]
    {
        let found = options.iter().filter(|option| option["store"] == store && option["name"] == name);
        let found = found.collect::<Vec<_>>();
        assert_eq!(found.len(), 1, "{store} {name}");
        for text in ["type", "default", "about", "variable", "source"] {
            assert!(found[0][text].as_str().is_some_and(|text| !text.is_empty()), "{store} {name} {text}");
        }
    }
}

#[test]
fn config_check_reads_a_file_and_opens_nothing() {
    let home = Home::new();
    let good = format!("backend = \"{}\"\n[file]\nthreads = 4\n", home.url("store"));
    let ran: hicache_tests::Ran =
        home.command(["config", "check", &home.file("good.toml", good), "--json"]).output().unwrap().into();
    let document = ran.ended(0).json();
    assert_eq!((&document["ok"], &document["backend"]), (&true.into(), &home.url("store").into()));
    assert!(!home.path("store").exists());
    let extra = r#"{"plugin": {"posix": {"active": true, "threads": 2}}, "use_direct_io": "false"}"#;
    let check = |name: &str, text: &str| -> hicache_tests::Ran {
        home.command(["config", "check", &home.file(name, text)]).output().unwrap().into()
    };
    assert!(check("extra.json", extra).ended(0).text().contains("names no store"));
    for (text, said) in [
        (r#"{"plugin": {"posix": {"threads": 2}}}"#, "no plugin is active"),
        (r#"{"file": {"max_szie": "1GiB"}}"#, "file.max_szie"),
        (r#"{"file": {"thraeds": 1}}"#, "did you mean threads?"),
        (r#"{"file": {"threads": 0}}"#, "file.threads"),
        (r#"{"memory": {"capacity": "1GiB",}}"#, "line 1"),
    ] {
        let refused = check("bad.json", text).ended(2);
        assert!(refused.stderr.contains(said) && refused.stderr.contains("bad.json"), "{}", refused.stderr);
    }
}

#[test]
fn config_check_tells_every_error_of_a_file_and_none_that_follows_from_another() {
    let home = Home::new();
    let text = "backend = 'file:/nowhere?bounce=perhaps'\nmemory = { capcity = 1 }\n[file]\nthread = 4\n\
                direct = 'perhaps'\nchecksum = 'maybe'\ndepth = 4\n[fil]\nx = 1\n";
    let file = home.file("bad.toml", text);
    let refused = home.run(["config", "check", &file, "--json"]).ended(2);
    let document = refused.json();
    let errors = document["errors"].as_array().unwrap();
    assert_eq!(document["error"], errors[0]);
    let wanted = ["capcity", "file.thread", "at=fil", "bounce", "file.direct", "file.checksum"];
    for word in wanted {
        let told = |error: &&serde_json::Value| error["message"].as_str().unwrap().contains(word);
        assert_eq!(errors.iter().filter(told).count(), 1, "{word}: {document}");
        assert!(refused.stderr.contains(word), "{word}: {}", refused.stderr);
    }
    assert_eq!(errors.len(), wanted.len(), "{document}");
    assert_eq!(refused.stderr.matches("error: ").count(), wanted.len(), "{}", refused.stderr);
    // Of a pair that differs, either may be meant.
    let text = r#"{"file": {"direct": true, "use_direct_io": false, "threads": 0, "rings": 0}}"#;
    let twice = home.file("twice.json", text);
    let refused = home.run(["config", "check", &twice]).ended(2).stderr;
    assert_eq!(refused.matches("error: ").count(), 3, "{refused}");
}

#[test]
fn b019_config_check_refuses_a_url_that_no_store_has_and_tells_no_secret() {
    let home = Home::new();
    for (url, said) in [
        ("memory://user:S3cr3t@x", "has no location"),
        ("memory:x&capacity=S3cr3t", "write ? before the first option"),
        ("file:/x;threads=4;token=S3cr3t", "write ? before the first option"),
        ("file://user:S3cr3t@host/x", "on this host"),
        ("file:", "needs a path"),
    ] {
        let file = home.file("bad.toml", format!("backend = '{url}'\n"));
        let refused = home.run(["config", "check", &file]).ended(2);
        assert!(refused.stderr.contains(said), "{url}: {}", refused.stderr);
        assert!(!refused.stderr.contains("S3cr3t"), "{url}: {}", refused.stderr);
    }
    let file = home.file("good.toml", "backend = 'file:/data/R&D/kv'\n");
    assert!(home.run(["config", "check", &file]).ended(0).text().contains("file:/data/R&D/kv"));
}

#[test]
fn sglangs_directories_name_the_store_of_commands_on_keys() {
    let home = Home::new();
    let (page, name) = (home.file("in", "x"), key(1));
    let dirs = format!("{}, {}", home.path("a").display(), home.path("b").display());
    let put = |dirs: &str| -> hicache_tests::Ran {
        let mut command = home.command(["put", &name, &page]);
        command.env("SGLANG_HICACHE_NIXL_BACKEND_STORAGE_DIR", dirs).output().unwrap().into()
    };
    put(&dirs).ended(0);
    assert!(home.path("a/hicache.store").exists() && home.path("b/hicache.store").exists());
    let twice = format!("{0},{0}", home.path("a").display());
    assert_ne!(put(&twice).code, Some(0), "one directory twice");
    assert!(!home.path(".cache").exists());
}

#[test]
fn the_allocator_option_makes_the_pool_of_memory_that_others_can_map() {
    let home = Home::new();
    let request = r#"{"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]}"#;
    let trace = home.file("trace.jsonl", format!("{request}\n{request}\n"));
    let replay =
        ["replay", "--trace", &trace, "--page-bytes", "5000", "--pool-pages", "4", "--verify", "--json"];
    let url = format!("{}?allocator=shm", home.url("store"));
    let ran: hicache_tests::Ran =
        home.command(replay.iter().chain(&["--backend", &url])).output().unwrap().into();
    let document = ran.ended(0).json();
    assert_eq!(
        (&document["wrong_pages"], &document["errors"], &document["hit_blocks"]),
        (&0.into(), &0.into(), &2.into())
    );
    let url = format!("{}?allocator=malloc", home.url("none"));
    let ran: hicache_tests::Ran =
        home.command(replay.iter().chain(&["--backend", &url])).output().unwrap().into();
    assert!(ran.ended(2).stderr.contains("want mmap or shm"));
}

/// As `cargo xtask test` builds the command. The same of a registry without S3 is tested in the facade.
#[test]
fn what_is_set_for_s3_is_passed_over_by_a_build_without_it_and_told_where_options_are() {
    let home = Home::new();
    let test = "what_is_set_for_s3_is_passed_over_by_a_build_without_it_and_told_where_options_are";
    if home.has("s3") {
        return skip(test, "needs a command that is built without obj");
    }
    let config = home.file("some.toml", "[s3]\nretries = 2\n[file]\nthreads = 4\n");
    let variable = [("HICACHE_S3_ENDPOINT", "http://h")];
    let put = put(&home, &config, &variable, &["--backend", &home.url("store")]).ended(0);
    assert_eq!(put.stderr, "", "nothing is told of it by every command");
    let mut show = home.command(["config", "show", "--config", &config]);
    let told = hicache_tests::Ran::from(show.envs(variable).output().unwrap()).ended(0).stderr;
    for part in ["HICACHE_S3_ENDPOINT is passed over", "some.toml: s3 is passed over", "feature obj"] {
        assert!(told.contains(part), "{told}");
    }
    assert!(home.run(["config", "check", &config]).ended(0).stderr.contains("some.toml: s3 is passed over"));
}
