//! Options from flags, the URL, the environment and a file: which wins, and that none is lost in silence.

use hicache_tests::{Home, key};
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
    put(&home, &home.file("some.yaml", ""), &[], &["--backend", &store]).ended(2);
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
    let told = home.run(["list", "--config", &home.file("a.toml", "[file]\nthreads = \n")]).ended(2);
    assert!(told.stderr.contains("line 2, column "), "{}", told.stderr);
}
