//! The command on a store made of two whose second, a bucket, is lost: what it says, and what it does not.

use hicache_tests::{Home, tier_url};

/// Nobody listens there.
const NOBODY: &str = "s3://b?endpoint=http://127.0.0.1:9&access_key=k&secret_key=s&retries=0";

/// A first tier that holds the page of a replay.
fn filled(home: &Home) -> String {
    let request = r#"{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [1]}"#;
    let (trace, first) = (home.file("trace.jsonl", format!("{request}\n")), home.url("first"));
    home.run(["replay", "--trace", &trace, "--page-bytes", "5000", "--backend", &first]).ended(0);
    first
}

#[test]
fn advice_to_drop_says_that_it_needs_both_tiers_where_one_is_lost() {
    let home = Home::new();
    let first = filled(&home);
    let ran = home.run(["demo", "--backend", &tier_url(&first, NOBODY, "")]).ended(2);
    let advice = "removes its pages, once both tiers answer";
    assert!(ran.stderr.contains("hicache drop replay") && ran.stderr.contains(advice), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("a tier cannot be opened").count(), 1, "{}", ran.stderr);
    assert!(!ran.stderr.contains("a tier is lost"), "{}", ran.stderr);
    let ran = home.run(["demo", "--backend", &tier_url(&first, "memory:", "")]).ended(2);
    assert!(ran.stderr.contains("removes its pages; or name another"), "{}", ran.stderr);
}

#[test]
fn what_a_lost_tier_may_know_is_not_said_to_be_nowhere() {
    let home = Home::new();
    let first = filled(&home);
    let url = tier_url(&first, NOBODY, "");
    let key = "0".repeat(64);
    for (command, healthy) in [
        (["remove", &key, "--namespace", "n"].as_slice(), 0),
        (&["drop", "n"], 2),
        (&["verify", "--namespace", "n"], 2),
        (&["list", "--namespace", "n"], 2),
    ] {
        let ran = home.run(command.iter().chain(&["--backend", &url])).ended(1);
        assert!(ran.stderr.contains("second"), "{command:?}: {}", ran.stderr);
        assert!(!ran.stderr.contains("no namespace"), "{command:?}: {}", ran.stderr);
        home.run(command.iter().chain(&["--backend", &first])).ended(healthy);
    }
}
