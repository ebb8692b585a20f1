//! Replays: of small traces made here, and of the first requests of the published one where it is at hand.

use hicache_tests::{Home, Ran, skip};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// The published trace, which is not part of the project.
const TRACE: &str = "../../shared/data/conversation_trace.jsonl";

const KEYS: [&str; 25] = [
    "backend",
    "blocks",
    "bytes_read",
    "bytes_written",
    "damaged_pages",
    "degraded",
    "engine",
    "errors",
    "fallbacks",
    "hit_blocks",
    "hit_ratio",
    "load_p50_us",
    "load_p99_us",
    "mode",
    "promoted",
    "read_gb_per_s",
    "registered_pages",
    "requests",
    "rss_peak_bytes",
    "second_hits",
    "seconds",
    "stored_blocks",
    "unverified_pages",
    "write_gb_per_s",
    "wrong_pages",
];

/// Three conversations of four turns over a prompt of two blocks: 12 requests.
fn requests() -> Vec<Vec<u64>> {
    let mut requests = Vec::new();
    for turn in 1..=4 {
        for conversation in 1..=3 {
            let own = (0..turn * 3).map(|block| conversation * 100 + block);
            requests.push([0, 1].into_iter().chain(own).collect());
        }
    }
    requests
}

/// Blocks, and those of them that were stored by requests before.
fn expected(requests: &[Vec<u64>]) -> (usize, usize) {
    let mut stored = std::collections::BTreeSet::new();
    let mut hits = 0;
    for ids in requests {
        hits += ids.iter().take_while(|id| stored.contains(*id)).count();
        stored.extend(ids.iter().copied());
    }
    (requests.iter().map(Vec::len).sum(), hits)
}

fn trace(home: &Home, requests: &[Vec<u64>]) -> String {
    let line = |(number, ids): (usize, &Vec<u64>)| {
        let request = json!({
            "timestamp": number * 10, "input_length": ids.len() * 512, "output_length": 1, "hash_ids": ids,
        });
        format!("{request}\n")
    };
    home.file("trace.jsonl", requests.iter().enumerate().map(line).collect::<String>())
}

fn replay(home: &Home, trace: &str, flags: &[&str]) -> Ran {
    let fixed = ["replay", "--trace", trace, "--page-bytes", "5000", "--verify", "--json"];
    home.run(fixed.iter().chain(flags))
}

fn count(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("{name} in {report}"))
}

/// Nothing went wrong, and everything was counted.
#[track_caller]
fn assert_counts(report: &Value, blocks: usize, hits: usize) {
    let counts = ["blocks", "hit_blocks", "stored_blocks"].map(|name| count(report, name));
    assert_eq!(counts, [blocks as u64, hits as u64, (blocks - hits) as u64], "{report}");
    for name in ["wrong_pages", "damaged_pages", "unverified_pages", "errors"] {
        assert_eq!(count(report, name), 0, "{report}");
    }
}

#[test]
fn a_fresh_store_gives_the_hits_that_the_trace_has_and_is_removed() {
    let home = Home::new();
    let (blocks, hits) = expected(&requests());
    let ran = replay(&home, &trace(&home, &requests()), &[]).ended(0);
    assert_eq!(ran.json_keys(), KEYS);
    let report = ran.json();
    assert_counts(&report, blocks, hits);
    assert_eq!(count(&report, "requests"), 12);
    assert_eq!(count(&report, "bytes_read"), hits as u64 * 5000);
    assert_eq!(count(&report, "bytes_written"), (blocks - hits) as u64 * 5000);
    assert!(["direct", "bounce", "buffered"].contains(&report["mode"].as_str().unwrap()));
    assert!(report["hit_ratio"].as_f64().unwrap() > 0.3);
    assert!(count(&report, "rss_peak_bytes") > 1 << 20);
    for missed in report["fallbacks"].as_array().unwrap() {
        assert!(missed["what"].is_string() && missed["why"].is_string(), "{missed}");
    }
    assert!(home.leftovers().is_empty());
}

/// The rows of one kind of fallback.
fn fallbacks(report: &Value, what: &str) -> Vec<String> {
    let rows = report["fallbacks"].as_array().unwrap().iter().filter(|row| row["what"] == json!(what));
    rows.map(|row| row["why"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn pages_that_were_copied_on_their_way_are_told() {
    let home = Home::new();
    let trace = trace(&home, &requests());
    let odd = replay(&home, &trace, &[]).ended(0).json();
    let rows = fallbacks(&odd, "copy");
    // A file system without direct I/O copies all of them, and says that instead.
    assert_eq!(rows.len(), usize::from(odd["mode"] == json!("bounce")), "{odd}");
    assert!(rows.iter().all(|why| why.contains("5000 bytes")), "{rows:?}");
    let arguments = ["replay", "--trace", &trace, "--page-bytes", "8KiB", "--json"];
    assert!(fallbacks(&home.run(arguments).ended(0).json(), "copy").is_empty());
}

#[test]
fn the_commands_own_pool_has_the_pages_that_the_stores_options_say() {
    let home = Home::new();
    let trace = trace(&home, &requests()[..1]);
    let run = |options: &str| replay(&home, &trace, &["--backend", &format!("memory:?{options}")]);
    assert!(fallbacks(&run("huge_pages=off").ended(0).json(), "huge_pages").is_empty());
    let preferred = run("huge_pages=prefer:1GiB").ended(0).json();
    if fallbacks(&preferred, "huge_pages").is_empty() {
        let test = "the_commands_own_pool_has_the_pages_that_the_stores_options_say";
        return skip(test, "needs a machine without a free page of 1 GiB");
    }
    assert!(fallbacks(&preferred, "huge_pages")[0].starts_with("the host pool: "), "{preferred}");
    let refused = run("huge_pages=require:1GiB").ended(1);
    assert!(refused.stderr.contains("huge pages"), "{}", refused.stderr);
    let mut command = home.command(["replay", "--trace", &trace, "--backend", "memory:", "--json"]);
    command.env("HICACHE_MEMORY_HUGE_PAGES", "require:1GiB");
    Ran::from(command.output().unwrap()).ended(1);
}

#[test]
fn a_trace_comes_from_standard_input_and_an_empty_one_is_told() {
    let home = Home::new();
    let text = fs::read(trace(&home, &requests())).unwrap();
    let arguments = ["replay", "--trace", "-", "--page-bytes", "4KiB", "--json"];
    let (blocks, hits) = expected(&requests());
    assert_counts(&home.run_with(&text, arguments).ended(0).json(), blocks, hits);
    let empty = home.run_with(b"", arguments).ended(0);
    assert_eq!(count(&empty.json(), "requests"), 0);
    assert!(empty.stderr.contains("nothing was replayed"), "{}", empty.stderr);
}

#[test]
fn the_removal_of_a_temporary_store_is_told_unless_quiet_and_a_kept_one_has_none() {
    let home = Home::new();
    let trace = trace(&home, &requests()[..1]);
    let told = replay(&home, &trace, &[]).ended(0).stderr;
    assert!(told.contains("removing the temporary store") && told.contains("--backend"), "{told}");
    assert_eq!(replay(&home, &trace, &["--quiet"]).ended(0).stderr, "");
    let kept = replay(&home, &trace, &["--backend", &home.url("kept")]).ended(0).stderr;
    assert!(!kept.contains("removing"), "{kept}");
}

#[test]
fn requests_longer_than_the_pool_and_a_pool_of_one_page_work() {
    let home = Home::new();
    let long: Vec<Vec<u64>> = vec![(0..300).collect(), (0..400).collect()];
    for (requests, pool) in [(requests(), "1"), (requests(), "3"), (long.clone(), "7"), (long, "1")] {
        let (blocks, hits) = expected(&requests);
        let report = replay(&home, &trace(&home, &requests), &["--pool-pages", pool]).ended(0).json();
        assert_counts(&report, blocks, hits);
    }
}

#[test]
fn a_restart_loses_nothing_and_a_second_run_hits_every_block() {
    let home = Home::new();
    let (blocks, hits) = expected(&requests());
    let trace = trace(&home, &requests());
    let store = home.url("kept");
    let first = replay(&home, &trace, &["--backend", &store, "--restart-every", "1"]).ended(0).json();
    assert_counts(&first, blocks, hits);
    assert_eq!(first["backend"], json!(store));
    let second = replay(&home, &trace, &["--backend", &store, "--restart-every", "5"]).ended(0).json();
    assert_counts(&second, blocks, blocks);
    assert_eq!(count(&second, "bytes_written"), 0);
    assert_eq!(
        home.run(["verify", "--backend", &store, "--json"]).ended(0).json()["ok"],
        json!(blocks - hits)
    );
}

#[test]
fn part_of_a_trace_is_replayed_and_the_same_in_memory() {
    let home = Home::new();
    let part = &requests()[2..7];
    let (blocks, hits) = expected(part);
    let trace = trace(&home, &requests());
    for backend in [home.url("store"), "memory:".to_owned()] {
        let flags = ["--skip", "2", "--requests", "5", "--backend", &backend];
        let report = replay(&home, &trace, &flags).ended(0).json();
        assert_counts(&report, blocks, hits);
        if backend == "memory:" {
            assert_eq!((&report["mode"], &report["engine"]), (&json!("memory"), &json!("none")));
        }
    }
}

#[test]
fn a_models_page_is_replayed_in_each_order_and_orders_do_not_mix() {
    let home = Home::new();
    let trace = trace(&home, &requests()[..4]);
    let (blocks, hits) = expected(&requests()[..4]);
    for order in ["page_first", "page_first_direct", "page_head", "layer_first"] {
        let fixed =
            ["replay", "--trace", &trace, "--model", "llama3-8b", "--order", order, "--verify", "--json"];
        let flags = ["--block-tokens", "1", "--pool-pages", "8", "--backend"];
        let run = |store: &str| home.run(fixed.iter().chain(&flags).chain(&[store]));
        assert_counts(&run(&home.url(order)).ended(0).json(), blocks, hits);
        if order != "page_first" {
            let refused = run(&home.url("page_first")).ended(2);
            assert_eq!(refused.json()["error"]["kind"], "incompatible");
            let way = format!("hicache drop replay --backend '{}'", home.url("page_first"));
            assert!(refused.stderr.contains(&way), "{}", refused.stderr);
            // The store may need what the file says of it.
            let config = home.file("c.toml", format!("backend = \"{}\"\n", home.url("page_first")));
            let flags = ["--block-tokens", "1", "--pool-pages", "8", "--config", &config];
            let refused = home.run(fixed.iter().chain(&flags)).ended(2);
            assert!(refused.stderr.contains(&format!("{way} --config '{config}'")), "{}", refused.stderr);
        }
    }
}

#[test]
fn a_damaged_page_is_a_miss_never_wrong_and_is_written_anew() {
    let home = Home::new();
    let trace = trace(&home, &requests());
    let store = home.url("kept");
    replay(&home, &trace, &["--backend", &store]).ended(0);
    let mut files = Vec::new();
    page_files(&home.path("kept"), &mut files);
    files.sort();
    for (number, file) in files.iter().enumerate().step_by(5) {
        let mut bytes = fs::read(file).unwrap();
        // The first byte, the last one of the payload, and some between.
        let at = (number * 1250).min(4999);
        bytes[at] ^= 0x10;
        fs::write(file, bytes).unwrap();
    }
    let damaged = files.len().div_ceil(5) as u64;
    home.run(["verify", "--backend", &store]).ended(3);
    let report = replay(&home, &trace, &["--backend", &store]).ended(0).json();
    assert_eq!(count(&report, "wrong_pages"), 0);
    assert_eq!(count(&report, "damaged_pages"), damaged);
    assert_eq!(count(&report, "stored_blocks"), damaged);
    let (blocks, _) = expected(&requests());
    let healed = replay(&home, &trace, &["--backend", &store]).ended(0).json();
    assert_counts(&healed, blocks, blocks);
}

fn page_files(folder: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            page_files(&path, files);
        } else if path.file_name().is_some_and(|name| name.len() == 64) {
            files.push(path);
        }
    }
}

#[test]
fn a_full_store_is_errors_and_exit_1_with_its_json_whole() {
    let home = Home::new();
    let trace = trace(&home, &requests());
    let ran = replay(&home, &trace, &["--backend", "memory:?capacity=20000"]).ended(1);
    assert_eq!(ran.json_keys(), KEYS);
    assert!(count(&ran.json(), "errors") > 0);
    assert!(ran.stderr.contains("capacity"), "{}", ran.stderr);
}

#[test]
fn a_line_that_is_no_request_is_told_by_its_number() {
    let home = Home::new();
    let good = r#"{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [1]}"#;
    for bad in [
        "{\"prompt\": \"x\"}",
        "x",
        "{\"timestamp\": 0, \"hash_ids\": [-1]}",
        "[1]",
        "{\"timestamp\": -5, \"hash_ids\": []}",
        "{\"timestamp\": 0, \"hash_ids\": [1,",
    ] {
        let trace = home.file("bad.jsonl", format!("{good}\n\n{bad}\n{good}\n"));
        let ran = replay(&home, &trace, &[]).ended(2);
        assert!(ran.stderr.contains("line 3"), "{bad}: {}", ran.stderr);
        assert_eq!(
            ran.stderr.matches(" line ").count(),
            1 + ran.stderr.matches("a line is").count(),
            "{bad}"
        );
        assert_eq!(ran.json_keys(), ["error"]);
        assert!(home.leftovers().is_empty());
    }
    let missing = replay(&home, "no-such.jsonl", &[]).ended(2);
    assert!(missing.stderr.contains("no-such.jsonl"));
}

#[test]
fn a_pool_larger_than_the_memory_is_refused_with_a_hint() {
    let home = Home::new();
    let trace = trace(&home, &requests());
    let ran = replay(&home, &trace, &["--pool-pages", "4000000000"]).ended(2);
    assert!(ran.stderr.contains("--pool-pages"), "{}", ran.stderr);
}

#[test]
fn the_default_pool_of_a_model_fits_this_machine_and_what_it_lacks_is_told() {
    let home = Home::new();
    let trace = trace(&home, &[vec![1]]);
    // Pages of 128 MiB, of which 256 would be 32 GiB.
    let fixed = ["replay", "--trace", &trace, "--model", "qwen3-32b", "--json"];
    let ran = home.run(fixed).ended(0);
    let report = ran.json();
    assert_counts(&report, 1, 0);
    assert!(count(&report, "rss_peak_bytes") < (2 << 30) + (512 << 20), "{report}");
    assert!(ran.stderr.contains("--pool-pages N") && ran.stderr.contains("a pool of "), "{}", ran.stderr);
    let quiet = home.run(fixed.iter().chain(&["--quiet", "--pool-pages", "2"])).ended(0);
    assert_eq!(quiet.stderr, "");
    // Who says how many has so many, or none.
    let refused = home.run(fixed.iter().chain(&["--pool-pages", "100000"])).ended(2);
    assert!(refused.stderr.contains("--pool-pages"), "{}", refused.stderr);
}

#[test]
fn flags_of_a_models_page_change_nothing_of_a_page_that_is_one_piece() {
    let home = Home::new();
    let trace = trace(&home, &requests()[..1]);
    for flag in [["--order", "layer_first"], ["--block-tokens", "16"]] {
        let of_bytes = ["replay", "--trace", &trace, "--page-bytes", "4KiB", "--json"];
        let report = home.run(of_bytes.iter().chain(&flag)).ended(0).json();
        assert_eq!(count(&report, "errors"), 0, "{report}");
    }
}

#[test]
fn a_restart_makes_a_pool_that_the_reopened_store_knows() {
    let home = Home::new();
    // The same request over and over: all of it is read each time, by the workers when a store has just been opened.
    let requests: Vec<Vec<u64>> = vec![(1..=8).collect(); 8];
    let trace = trace(&home, &requests);
    let store = home.url("pages");
    let fixed =
        ["replay", "--trace", &trace, "--page-bytes", "16KiB", "--verify", "--json", "--backend", &store];
    let report = home.run(fixed.iter().chain(&["--restart-every", "4"])).ended(0).json();
    let missed = report["fallbacks"].as_array().unwrap();
    let without = ["io_uring", "direct", "registered_files", "registered_buffers", "nowait"];
    if let Some(missed) = missed.iter().find(|row| without.contains(&row["what"].as_str().unwrap())) {
        let test = "a_restart_makes_a_pool_that_the_reopened_store_knows";
        return skip(test, &format!("needs what is missing here: {missed}"));
    }
    assert_counts(&report, 64, 56);
    // Two or three requests before the restart, and three after it.
    assert!(count(&report, "registered_pages") >= 40, "{report}");
}

#[test]
fn a_paced_replay_takes_as_long_as_its_timestamps_say() {
    let home = Home::new();
    let trace = trace(&home, &requests());
    let report = replay(&home, &trace, &["--speed", "0.5", "--requests", "6"]).ended(0).json();
    assert!(report["seconds"].as_f64().unwrap() >= 0.1, "{report}");
}

#[test]
fn the_published_trace_has_its_known_hits() {
    if !Path::new(TRACE).exists() {
        return skip(
            "the_published_trace_has_its_known_hits",
            "needs the published trace beside the project",
        );
    }
    let home = Home::new();
    let ran = home.run([
        "replay",
        "--trace",
        TRACE,
        "--requests",
        "1000",
        "--page-bytes",
        "16KiB",
        "--verify",
        "--json",
    ]);
    let report = ran.ended(0).json();
    assert_counts(&report, 27_305, 5_791);
    // The pool, and 64 MiB for the rest.
    assert!(count(&report, "rss_peak_bytes") < 256 * (16 << 10) + (64 << 20), "{report}");
}

#[test]
fn pages_of_another_size_than_the_namespace_has_are_bad_usage_whichever_command_brings_them() {
    let home = Home::new();
    let (trace, url) = (trace(&home, &requests()[..2]), home.url("store"));
    let put = |page: &str| {
        home.run(["put", &hicache_tests::key(1), page, "--namespace", "replay", "--backend", &url])
    };
    put(&home.file("page", "x")).ended(0);
    for ran in [
        put(&home.file("other", "two")),
        replay(&home, &trace, &["--backend", &url]),
        home.run(["demo", "--backend", &url]),
    ] {
        let ran = ran.ended(2);
        assert!(ran.stderr.contains("replay"), "{}", ran.stderr);
    }
    // And an input file that is not there, whichever command is to read it.
    put(&home.path("absent").display().to_string()).ended(2);
    replay(&home, "absent.jsonl", &[]).ended(2);
    home.run(["list", "--config", "absent.toml"]).ended(2);
}
