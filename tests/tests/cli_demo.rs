//! The demo, the doctor and the completions; and a demo that is stopped half way.

use hicache_tests::Home;
use serde_json::json;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn the_demo_needs_nothing_and_leaves_nothing() {
    let home = Home::new();
    let report = home.run(["demo", "--json"]).ended(0).json();
    assert_eq!(report.as_object().unwrap().len(), 21);
    assert_eq!(
        (&report["wrong_pages"], &report["damaged_pages"], &report["errors"]),
        (&json!(0), &json!(0), &json!(0))
    );
    assert!(report["hit_ratio"].as_f64().unwrap() > 0.5);
    assert!(home.leftovers().is_empty());
}

#[test]
fn the_demo_tells_people_what_they_got_and_what_to_do_next() {
    let home = Home::new();
    let told = home.run(["demo", "--backend", "memory:"]).ended(0).text();
    for word in ["hits", "GB/s", "p50", "p99", "memory", "hicache doctor", "hicache replay"] {
        assert!(told.contains(word), "{word} is not in {told}");
    }
}

#[test]
fn ctrl_c_ends_with_130_and_removes_the_temporary_store() {
    let home = Home::new();
    // Paced so slowly that it is never done by itself.
    let request = |timestamp: u64| format!("{{\"timestamp\": {timestamp}, \"hash_ids\": [1, 2, 3]}}\n");
    let trace = home.file("trace.jsonl", request(0) + &request(3_600_000));
    let mut command = home.command(["replay", "--trace", &trace, "--speed", "1"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let started = Instant::now();
    while home.leftovers().is_empty() {
        assert!(started.elapsed() < Duration::from_secs(60), "no store was made");
        std::thread::yield_now();
    }
    // It listens before it makes the store.
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let status = child.wait().unwrap();
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(status.code(), Some(130), "{told}");
    assert!(told.contains("interrupted"), "{told}");
    assert!(home.leftovers().is_empty());
}

#[test]
fn the_doctor_looks_without_making_anything() {
    let home = Home::new();
    let names = [
        "o_direct",
        "dio_mem_align",
        "dio_offset_align",
        "huge_pages_2mb",
        "thp",
        "memlock",
        "nofile",
        "free_space",
        "free_inodes",
    ];
    let store = home.url("no/such/store");
    let told = home.run(["doctor", "--json", "--backend", &store]).ended(0).json();
    let checks = told["checks"].as_array().unwrap();
    assert_eq!(checks.iter().map(|check| check["name"].as_str().unwrap()).collect::<Vec<_>>(), names);
    for check in checks {
        assert_eq!(check.as_object().unwrap().len(), 5, "{check}");
        let missing_fix = check["fix"].as_str().unwrap().is_empty();
        assert_eq!(check["ok"].as_bool().unwrap(), missing_fix, "{check}");
    }
    assert!(!home.path("no").exists());
    assert!(home.run(["doctor"]).ended(0).text().contains("o_direct"));
}

#[test]
fn completions_are_there_for_each_shell() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(home.run(["completions", shell]).ended(0).text().contains("hicache"), "{shell}");
    }
}
