//! What scripts rely on: exit codes, one JSON document, and an output that may be closed or full.

use hicache_tests::{Home, key, skip};

fn home_with_pages() -> Home {
    let home = Home::new();
    let file = home.file("in", "a page");
    for byte in 0..20 {
        home.run(["put", &key(byte), &file]).ended(0);
    }
    home
}

/// No writer's lock or folder is left: the store was closed.
fn assert_closed(home: &Home) {
    let left = std::fs::read_dir(home.path(".cache/hicache/tmp")).map_or(0, Iterator::count);
    assert_eq!(left, 0);
}

#[test]
fn b099_a_reader_that_leaves_is_no_failure() {
    let home = home_with_pages();
    for script in [
        "$H list | head -1; test ${PIPESTATUS[0]} = 0",
        "$H list | true; test ${PIPESTATUS[0]} = 0",
        "$H list --json | true; test ${PIPESTATUS[0]} = 0",
        "$H stat --json | true; test ${PIPESTATUS[0]} = 0",
        "$H verify | true; test ${PIPESTATUS[0]} = 0",
        "$H --help | head -0; test ${PIPESTATUS[0]} = 0",
        "$H completions bash | head -0; test ${PIPESTATUS[0]} = 0",
    ] {
        let ran = home.shell(script).ended(0);
        assert!(ran.stderr.is_empty(), "{script}: {}", ran.stderr);
        assert_closed(&home);
    }
}

#[test]
fn b099_a_closed_output_is_no_panic() {
    let home = home_with_pages();
    for script in ["$H list >&-", "$H stat --json >&- 2>&-", "$H --version >&-"] {
        home.shell(script).ended(0);
        assert_closed(&home);
    }
}

#[test]
fn b099_a_full_output_is_a_write_error() {
    let home = home_with_pages();
    for arguments in
        ["list", "stat --json", "namespaces", "--help", "completions bash", "get KEY -", "doctor"]
    {
        let arguments = arguments.replace("KEY", &key(1));
        let ran = home.shell(&format!("$H {arguments} > /dev/full")).ended(1);
        assert!(ran.stderr.contains("write error"), "{arguments}: {}", ran.stderr);
        assert_closed(&home);
    }
}

#[test]
fn bad_usage_ends_with_2_and_says_what_was_meant() {
    let home = Home::new();
    for (arguments, wanted) in [
        (vec!["list", "--bakend", "memory:"], "--backend"),
        (vec!["lst"], "list"),
        (vec!["replay", "--trace", "x", "--model", "llama3-8"], "llama3-8b"),
        (vec!["replay", "--trace", "x", "--order", "page_frist"], "page_first"),
        (vec!["replay", "--trace", "x", "--speed", "0"], "speed"),
        (vec!["exists", "abc"], "64 hexadecimal digits"),
        (vec!["list", "--backend", "fil:/x"], "file:"),
        (vec!["list", "--backend", "/x"], "URL"),
        (vec!["list", "--backend", "memory:?capacty=1"], "did you mean capacity?"),
        (vec!["list", "--backend", "memory:?capacity=much"], "capacity"),
    ] {
        let ran = home.run(&arguments).ended(2);
        assert!(ran.stderr.contains(wanted), "{arguments:?}: {}", ran.stderr);
        let with_json = home.run(arguments.iter().chain(&["--json"])).ended(2).json();
        assert!(with_json["error"]["message"].is_string(), "{with_json}");
        assert!(with_json["error"]["kind"].is_string(), "{with_json}");
    }
}

#[test]
fn a_mistyped_place_makes_no_directory() {
    let home = Home::new();
    let store = home.url("no-such");
    let file = home.path("out").display().to_string();
    for arguments in [
        vec!["list"],
        vec!["stat"],
        vec!["verify"],
        vec!["namespaces"],
        vec!["drop", "default"],
        vec!["exists", &key(1)],
        vec!["remove", &key(1)],
        vec!["get", &key(1), &file],
    ] {
        let ran = home.run(arguments.iter().chain(&["--backend", &store, "--json"])).ended(2);
        assert_eq!(ran.json()["error"]["kind"], "invalid_config");
        assert!(!home.path("no-such").exists(), "{arguments:?}");
    }
}

#[test]
fn a_directory_of_somebody_else_is_refused_and_left_alone() {
    let home = Home::new();
    std::fs::create_dir(home.path("theirs")).unwrap();
    home.file("theirs/mine.txt", "x");
    let store = home.url("theirs");
    let refused = home.run(["put", "--backend", &store, &key(1), &home.file("in", "x"), "--json"]).ended(1);
    assert_eq!(refused.json()["error"]["kind"], "incompatible");
    assert_eq!(std::fs::read_dir(home.path("theirs")).unwrap().count(), 1);
}

#[test]
fn the_version_and_the_help_are_json_where_that_is_asked_for() {
    let home = Home::new();
    for arguments in [["--version", "--json"], ["--json", "--version"]] {
        let version = home.run(arguments).ended(0);
        assert_eq!(version.json_keys(), ["version"]);
        assert_eq!(
            home.run(["--version"]).text(),
            format!("hicache {}\n", version.json()["version"].as_str().unwrap())
        );
    }
    for arguments in [vec!["--help"], vec!["get", "--help"], vec!["help", "get"]] {
        let text = home.run(&arguments).ended(0).text();
        let document = home.run([&["--json"], &arguments[..]].concat()).ended(0);
        assert_eq!(document.json()["help"].as_str().unwrap(), text);
        assert_eq!(document.json_keys(), ["help"]);
    }
}

#[test]
fn a_path_that_only_a_shell_would_expand_makes_no_folder_of_that_name() {
    let home = Home::new();
    let file = home.file("in", "x");
    std::fs::create_dir(home.path("there")).unwrap();
    for arguments in [
        vec!["put", "--backend", "file:~/kv", &key(1), &file],
        vec!["put", "--backend", "file:kv?dir=~/kv", &key(1), &file],
        vec!["demo", "--backend=file:~/kv"],
        vec!["doctor", "--backend=file:~/kv"],
        vec!["bench", "file", "--dir=~/kv"],
        vec!["bench", "keys", "--html=~/report.html"],
        vec!["list", "--config=~/some.toml"],
    ] {
        let mut command = home.command(&arguments);
        let ran: hicache_tests::Ran = command.current_dir(home.path("there")).output().unwrap().into();
        let ran = ran.ended(2);
        assert!(ran.stderr.contains("write the whole path"), "{arguments:?}: {}", ran.stderr);
        assert_eq!(std::fs::read_dir(home.path("there")).unwrap().count(), 0, "{arguments:?}");
    }
}

/// As `cargo xtask test` builds the command.
#[test]
fn bench_obj_of_a_build_without_s3_says_how_to_get_one_that_has() {
    let home = Home::new();
    if home.has("s3") {
        let test = "bench_obj_of_a_build_without_s3_says_how_to_get_one_that_has";
        return skip(test, "needs a command that is built without obj");
    }
    for arguments in [vec!["bench", "obj"], vec!["bench", "obj", "--backend", "s3://bucket", "--pages", "3"]]
    {
        let ran = home.run(arguments.iter().chain(&["--json"])).ended(2);
        for part in ["this build leaves out", "--features full"] {
            assert!(ran.json()["error"]["message"].as_str().unwrap().contains(part), "{}", ran.stderr);
        }
    }
}
