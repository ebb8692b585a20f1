//! The command on a store made of two: restarts, a first tier that is lost, and what is told of the tiers.

use hicache_tests::{DIRECTORY_ROWS, Home, key, skip, tier_url};
use serde_json::{Value, json};
use std::fs;

/// Three conversations of four turns over a prompt of two blocks.
fn trace(home: &Home) -> String {
    let mut lines = String::new();
    for turn in 1..=4_u64 {
        for conversation in 1..=3 {
            let own = (0..turn * 3).map(|block| conversation * 100 + block);
            let ids: Vec<u64> = [0, 1].into_iter().chain(own).collect();
            let line = json!({ "timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": ids });
            lines.push_str(&format!("{line}\n"));
        }
    }
    home.file("trace.jsonl", lines)
}

/// Blocks of that trace, and those that no request before has.
const BLOCKS: u64 = 114;
const FRESH: u64 = 38;

/// Whether the command was built with the feature; if not, the test says so.
fn is_built(home: &Home, test: &str) -> bool {
    let built = home.has("tier");
    if !built {
        skip(test, "needs the command with the feature tier");
    }
    built
}

fn replay(home: &Home, trace: &str, url: &str, more: &[&str]) -> Value {
    let fixed = ["replay", "--trace", trace, "--page-bytes", "5000", "--verify", "--json", "--backend", url];
    home.run(fixed.iter().chain(["--pool-pages", "8"].iter()).chain(more)).ended(0).json()
}

fn assert_counts(report: &Value, hits: u64) {
    let count = |name: &str| report[name].as_u64().unwrap();
    let found = ["blocks", "hit_blocks", "stored_blocks", "wrong_pages", "errors"].map(count);
    assert_eq!(found, [BLOCKS, hits, BLOCKS - hits, 0, 0], "{report}");
}

fn of_tiers(report: &Value) -> [u64; 3] {
    ["second_hits", "promoted", "degraded"].map(|name| report[name].as_u64().unwrap())
}

#[test]
fn a_replay_with_restarts_finds_its_pages_also_when_the_first_tier_is_lost() {
    let home = Home::new();
    if !is_built(&home, "a_replay_with_restarts_finds_its_pages_also_when_the_first_tier_is_lost") {
        return;
    }
    let trace = trace(&home);
    for write in ["through", "behind"] {
        let [first, second] = ["first", "second"].map(|tier| format!("{write}-{tier}"));
        let url = tier_url(&home.url(&first), &home.url(&second), &format!("&write={write}"));
        let report = replay(&home, &trace, &url, &["--restart-every", "2"]);
        assert_counts(&report, BLOCKS - FRESH);
        assert_eq!(of_tiers(&report), [0, 0, 0], "the first tier had all of them");
        assert_eq!(
            report["fallbacks"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|one| one["what"] == "write_behind")
                .count(),
            0
        );
        // Each close has carried all that was written behind.
        let stored = |name: &str| {
            let stat = home.run(["verify", "--json", "--backend", &home.url(name)]).ended(0).json();
            stat["ok"].as_u64().unwrap()
        };
        assert_eq!((stored(&first), stored(&second)), (FRESH, FRESH), "{write}");
        fs::remove_dir_all(home.path(&first)).unwrap();
        let report = replay(&home, &trace, &url, &[]);
        assert_counts(&report, BLOCKS);
        let [second_hits, promoted, degraded] = of_tiers(&report);
        assert!((FRESH..=BLOCKS).contains(&second_hits) && promoted <= FRESH, "{report}");
        assert_eq!(degraded, 0, "{report}");
        assert_eq!(stored(&first), FRESH, "what the second had is promoted");
        fs::remove_dir_all(home.path(&second)).unwrap();
        assert_counts(&replay(&home, &trace, &url, &[]), BLOCKS);
    }
}

#[test]
fn memory_over_files_forgets_nothing_at_a_restart() {
    let home = Home::new();
    if !is_built(&home, "memory_over_files_forgets_nothing_at_a_restart") {
        return;
    }
    let trace = trace(&home);
    let url = tier_url("memory:?capacity=50KB", &home.url("second"), "");
    assert_counts(&replay(&home, &trace, &url, &["--restart-every", "3"]), BLOCKS - FRESH);
    assert_counts(&replay(&home, &trace, &url, &[]), BLOCKS);
    // Too small for any page: each is the second tier's alone.
    let small = tier_url("memory:?capacity=4KB", &home.url("second"), "");
    let report = replay(&home, &trace, &small, &[]);
    assert_counts(&report, BLOCKS);
    assert_eq!(of_tiers(&report)[..2], [BLOCKS, 0], "{report}");
    let report = replay(&home, &trace, &tier_url("memory:?capacity=4KB", &home.url("other"), ""), &[]);
    assert_counts(&report, BLOCKS - FRESH);
    assert_eq!(of_tiers(&report), [BLOCKS - FRESH, 0, FRESH], "{report}");
}

#[test]
fn pages_are_put_listed_and_removed_in_both_tiers() {
    let home = Home::new();
    if !is_built(&home, "pages_are_put_listed_and_removed_in_both_tiers") {
        return;
    }
    let file = home.file("page", vec![7; 5000]);
    let (first, second) = (home.url("first"), home.url("second"));
    let url = tier_url(&first, &second, "");
    let run = |arguments: &[&str], url: &str| {
        home.run(arguments.iter().copied().chain(["--json", "--backend", url])).ended(0).json()
    };
    run(&["put", &key(1), &file], &url);
    run(&["put", &key(2), &file], &second);
    let keys = |url: &str| run(&["list"], url)["keys"].as_array().unwrap().len();
    assert_eq!((keys(&url), keys(&first), keys(&second)), (2, 1, 2), "a page in both is listed once");
    assert_eq!(run(&["exists", &key(1), &key(2), &key(3)], &url)["exists"], json!([true, true, false]));
    assert_eq!(run(&["verify"], &url)["ok"], json!(2));
    run(&["remove", &key(1), &key(2)], &url);
    assert_eq!((keys(&url), keys(&first), keys(&second)), (0, 0, 0));
}

#[test]
fn the_doctor_looks_at_each_tier_as_if_it_were_given_alone() {
    let home = Home::new();
    if !is_built(&home, "the_doctor_looks_at_each_tier_as_if_it_were_given_alone") {
        return;
    }
    let rows = |url: &str| -> Vec<(String, Value)> {
        let told = home.run(["doctor", "--json", "--backend", url]).ended(0).json();
        let checks = told["checks"].as_array().unwrap().iter();
        checks.map(|check| (check["name"].as_str().unwrap().to_owned(), check["ok"].clone())).collect()
    };
    let [first, second] = ["file:/proc/hicache", &home.url("second")].map(ToOwned::to_owned);
    let told = rows(&tier_url(&first, &second, ""));
    for (tier, url) in [("first", &first), ("second", &second)] {
        let alone = rows(url);
        for (name, ok) in alone.iter().filter(|(name, _)| DIRECTORY_ROWS.contains(&name.as_str())) {
            let named = (format!("{tier}.{name}"), ok.clone());
            assert!(told.contains(&named), "{named:?} in {told:?}");
        }
        assert_eq!(
            told.iter().filter(|(name, _)| name.starts_with(tier)).count(),
            DIRECTORY_ROWS.len(),
            "{told:?}"
        );
    }
    assert!(told.contains(&("first.writable".to_owned(), json!(false))), "{told:?}");
    assert_eq!(told.iter().filter(|(name, _)| name == "nofile").count(), 1, "the machine is one");
    let text = home.run(["doctor", "--backend", &tier_url(&first, &second, "")]).ended(0).text();
    for line in ["first tier file:/proc/hicache", &format!("second tier {second}"), "this machine"] {
        assert!(text.lines().any(|one| one == line), "{line}: {text}");
    }
    // However long the names are, what was found is in one column.
    let begins = |line: &str| {
        let name = line.get(5..)?.split_once(' ')?;
        ["ok  ", "MISS"].contains(&&line[..4]).then(|| line.len() - name.1.trim_start().len())
    };
    let columns: Vec<_> = text.lines().filter_map(begins).collect();
    assert!(columns.len() > 3 && columns.iter().all(|column| *column == columns[0]), "{text}");
    // What is wrong with how a tier is named is told as an error.
    let ran = home.run(["doctor", "--backend", &tier_url(&first, "file:/x?durabilty=sync", "")]).ended(2);
    assert!(ran.stderr.contains("tier=second"), "{}", ran.stderr);
    assert!(!home.path("second").exists(), "nothing is made");
}

#[test]
fn a_tier_that_nothing_names_is_refused_by_doctor_and_check_in_the_words_of_an_opening() {
    let home = Home::new();
    if !is_built(&home, "a_tier_that_nothing_names_is_refused_by_doctor_and_check_in_the_words_of_an_opening")
    {
        return;
    }
    for (url, missing) in [("tier:", "first"), ("tier:?first=memory:", "second")] {
        let opened = home.run(["list", "--backend", url]).ended(2).stderr;
        assert!(opened.contains(&format!("the option {missing} names no store")), "{opened}");
        assert_eq!(home.run(["doctor", "--backend", url]).ended(2).stderr, opened);
        let config = home.file("some.toml", format!("backend = '{url}'\n"));
        assert_eq!(home.run(["config", "check", &config]).ended(2).stderr, opened);
    }
}

#[test]
fn what_is_wrong_with_a_tier_is_told_with_its_name() {
    let home = Home::new();
    if !is_built(&home, "what_is_wrong_with_a_tier_is_told_with_its_name") {
        return;
    }
    for (second, said) in [
        ("file:/x?durabilty=sync", "did you mean durability"),
        ("file:/x?durability=often", "want none or sync"),
        ("tier:?first=memory:", "cannot be a tier"),
    ] {
        let url = tier_url("memory:", second, "");
        let ran = home.run(["list", "--backend", &url]).ended(2);
        assert!(ran.stderr.contains(said) && ran.stderr.contains("tier=second"), "{}", ran.stderr);
    }
    let bare = "tier:?first=memory:&second=file:/x?threads=3&engine=threads";
    let ran = home.run(["list", "--backend", bare]).ended(2);
    assert!(
        ["option=engine", "tier=second", "%26"].iter().all(|said| ran.stderr.contains(said)),
        "{}",
        ran.stderr
    );
    let url = tier_url("memory:", &format!("{}?threads=3", home.url("second")), "&write=behind");
    let shown = home.run(["config", "show", "--json", "--backend", &url]).ended(0).json();
    let value = |name: &str| {
        let options = shown["options"].as_array().unwrap();
        options.iter().find(|option| option["name"] == name).unwrap()["value"].clone()
    };
    assert_eq!(
        (value("write"), value("second.threads"), value("first.deadline")),
        (json!("behind"), json!("3"), json!("30s"))
    );
}
