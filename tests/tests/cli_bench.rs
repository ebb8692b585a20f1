//! The measurements: the keys that scripts read, the options that they pass on, and that nothing is left.

use hicache_tests::{Home, Ran, skip};
use serde_json::Value;
use std::path::Path;

const STEPS: [&str; 4] = ["write", "rewrite", "read", "exists"];
const FIGURES: [&str; 7] =
    ["bytes", "cpu_seconds_per_gb", "gb_per_s", "p50_us", "p99_us", "pages_per_s", "seconds"];
const FACTS: [&str; 10] = [
    "engine",
    "mode",
    "memory",
    "depth",
    "batch",
    "page_bytes",
    "registered_pages",
    "format",
    "checksum",
    "checksum_gb_per_s",
];

fn bench_file(home: &Home, more: &[&str]) -> Value {
    let arguments = ["bench", "file", "--json", "--page-bytes", "64KiB", "--pages", "12", "--batch", "4"];
    home.run(arguments.iter().chain(more)).ended(0).json()
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn a_file_store_is_measured_in_four_steps_and_nothing_is_left() {
    let home = Home::new();
    let dir = home.path("measured");
    let report = bench_file(&home, &["--dir", dir.to_str().unwrap(), "--engine", "threads"]);
    for step in STEPS {
        let step = report[step].as_object().unwrap();
        let mut keys: Vec<_> = step.keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, FIGURES);
        assert!(step.values().all(|value| value.as_f64().unwrap() >= 0.0));
        assert!(step["seconds"].as_f64().unwrap() > 0.0 && step["pages_per_s"].as_f64().unwrap() > 0.0);
    }
    for fact in FACTS {
        assert!(!report[fact].is_null(), "{fact}: {report}");
    }
    assert_eq!(report["engine"], "threads");
    assert_eq!(report["format"], "files");
    assert_eq!((&report["batch"], &report["page_bytes"]), (&4.into(), &65536.into()));
    for step in ["write", "rewrite", "read"] {
        assert_eq!(report[step]["bytes"], 12 * 65536, "{step}");
        assert!(report[step]["gb_per_s"].as_f64().unwrap() > 0.0, "{step}");
    }
    assert!(!dir.exists(), "it was not there before");
}

#[test]
fn folders_that_a_measurement_made_go_with_it_and_others_stay() {
    let home = Home::new();
    let there = home.path("there");
    std::fs::create_dir(&there).unwrap();
    let within = there.join("a/b");
    // The second makes a fresh store in the place of the first.
    for more in [&[][..], &["--seconds", "0.2"], &["--pages", "1000000000"]] {
        let arguments = ["bench", "file", "--page-bytes", "64KiB", "--pages", "12", "--batch", "4", "--dir"];
        let arguments: Vec<&str> = arguments.into_iter().chain([within.to_str().unwrap()]).collect();
        let fails = more.contains(&"--pages");
        let arguments = arguments.iter().filter(|one| !fails || !["--pages", "12"].contains(one));
        home.run(arguments.chain(more)).ended(i32::from(fails));
        assert!(there.exists() && is_empty(&there), "{more:?}");
    }
}

#[test]
fn a_named_store_keeps_what_was_there_and_nothing_else() {
    let home = Home::new();
    let (url, page) = (home.url("store"), home.file("page", [7; 5000]));
    let key = hicache_tests::key(1);
    home.run(["put", "--backend", &url, &key, &page]).ended(0);
    bench_file(&home, &["--backend", &url]);
    let stat = home.run(["stat", "--json", "--backend", &url]).ended(0).json();
    assert_eq!((&stat["pages"], &stat["namespaces"], &stat["files"]), (&1.into(), &1.into(), &1.into()));
}

#[test]
fn switches_reach_the_store_and_what_came_of_them_is_told() {
    let home = Home::new();
    let report = bench_file(&home, &["--direct", "off", "--checksum", "off", "--memory", "shm"]);
    assert_eq!((&report["mode"], &report["memory"]), (&"buffered".into(), &"shm".into()));
    assert_eq!(report["checksum"], false);
    let cache = report["cache"].as_str().unwrap();
    assert!(cache.starts_with("cold: ") && cache.ends_with("files dropped by posix_fadvise"), "{cache}");
    let pieces = bench_file(&home, &["--order", "layer_first", "--memory", "base", "--cache", "warm"]);
    assert_eq!(pieces["memory"], "base");
    assert!(pieces["cache"].as_str().unwrap().starts_with("warm"));
    assert_eq!(bench_file(&home, &["--backend", "memory:"])["mode"], "memory");
    assert!(home.leftovers().is_empty());
}

#[test]
fn a_measurement_tells_what_the_store_does_whoever_asked_for_it() {
    let home = Home::new();
    let of = |url: &str, variable: Option<(&str, &str)>| {
        let flags = ["--page-bytes", "4KiB", "--pages", "8", "--batch", "4", "--json", "--backend", url];
        let mut command = home.command(["bench", "file"].iter().chain(&flags));
        command.envs(variable);
        Ran::from(command.output().unwrap()).ended(0).json()
    };
    let store = home.url("store");
    assert_eq!(of(&store, None)["checksum"], true);
    assert_eq!(of(&format!("{store}?checksum=false"), None)["checksum"], false);
    assert_eq!(of(&store, Some(("HICACHE_FILE_CHECKSUM", "off")))["checksum"], false);
    let told = of(&format!("{store}?depth=16"), None);
    if told["engine"] != "io_uring" {
        let test = "a_measurement_tells_what_the_store_does_whoever_asked_for_it";
        return skip(test, "depth: needs io_uring");
    }
    assert_eq!(told["depth"], 16);
    assert_eq!(of(&store, Some(("HICACHE_FILE_DEPTH", "32")))["depth"], 32);
}

#[test]
fn pages_that_a_ring_reads_into_registered_memory_are_counted() {
    let home = Home::new();
    assert_eq!(bench_file(&home, &["--engine", "threads"])["registered_pages"], 0);
    let report = bench_file(&home, &["--engine", "auto"]);
    let missed = report["fallbacks"].as_array().unwrap();
    let without = ["io_uring", "direct", "registered_files", "registered_buffers", "nowait"];
    if let Some(missed) = missed.iter().find(|row| without.contains(&row["what"].as_str().unwrap())) {
        let test = "pages_that_a_ring_reads_into_registered_memory_are_counted";
        return skip(test, &format!("needs what is missing here: {missed}"));
    }
    assert_eq!(report["registered_pages"], 12, "{report}");
}

#[test]
fn help_and_errors_name_no_format_that_this_build_has_not() {
    let home = Home::new();
    let help = home.run(["bench", "file", "--help"]).ended(0).text();
    assert!(help.contains("--format") && !help.contains("slab"), "{help}");
    for flags in [["--format", "slab"], ["--backend", "file:/x?format=slab"]] {
        let refused = home.run(["bench", "file"].iter().chain(&flags)).ended(2);
        let text = refused.stderr.replace("slab", "");
        assert!(text.contains("files"), "{}", refused.stderr);
    }
}

#[test]
fn steps_repeat_until_their_time_is_over() {
    let home = Home::new();
    let report = bench_file(&home, &["--seconds", "0.2"]);
    for step in STEPS {
        assert!(report[step]["seconds"].as_f64().unwrap() >= 0.2, "{step}: {report}");
    }
    for step in ["write", "rewrite", "read"] {
        assert_eq!(report[step]["bytes"].as_u64().unwrap() % (12 * 65536), 0, "{step}");
    }
    assert!(home.leftovers().is_empty());
}

#[test]
fn an_option_that_the_store_does_not_know_is_the_stores_own_error() {
    let home = Home::new();
    for (flag, name) in [("--rings", "rings"), ("--depth", "depth")] {
        let ran = home.run(["bench", "file", "--json", "--backend", "memory:", flag, "2"]).ended(2);
        assert_eq!(ran.json_keys(), ["error"]);
        assert!(ran.stderr.contains(&format!("option={name}")), "{}", ran.stderr);
        assert!(ran.stderr.contains("source=flag"), "{}", ran.stderr);
    }
    home.run(["bench", "file", "--seconds", "0"]).ended(2);
    home.run(["bench", "file", "--page-bytes", "100", "--order", "layer_first"]).ended(2);
    assert!(home.leftovers().is_empty());
}

#[test]
fn keys_and_memory_are_measured_row_by_row() {
    let home = Home::new();
    let keys = home.run(["bench", "keys", "--json", "--seconds", "0.01"]).ended(0).json();
    let rows = keys["results"].as_array().unwrap();
    let sizes: Vec<_> = rows.iter().map(|row| row["page_size"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [1, 16, 64, 512]);
    for row in rows {
        let (keys, tokens) = (row["keys_per_s"].as_f64().unwrap(), row["tokens_per_s"].as_f64().unwrap());
        assert!(keys > 0.0 && tokens >= keys, "{row}");
        assert_eq!(row.as_object().unwrap().len(), 3);
    }

    let memory = home.run(["bench", "alloc", "--json", "--bytes", "4MiB"]).ended(0).json();
    let rows = memory["results"].as_array().unwrap();
    assert!(rows.len() >= 4, "{memory}");
    for row in rows {
        assert!(["private", "shared", "memfd"].contains(&row["backing"].as_str().unwrap()), "{row}");
        for name in ["page_size", "bytes", "prefault_threads", "seconds", "gb_per_s", "rss_bytes"] {
            assert!(row[name].as_f64().unwrap() > 0.0, "{name}: {row}");
        }
        assert_eq!(row.as_object().unwrap().len(), 7);
    }
}

#[test]
fn a_report_with_plots_is_one_file_that_needs_nothing_from_elsewhere() {
    let home = Home::new();
    let page = home.path("report.html");
    let html = ["--html", page.to_str().unwrap()];
    let file = ["bench", "file", "--json", "--page-bytes", "64KiB", "--pages", "4", "--batch", "4"];
    let keys = ["bench", "keys", "--json", "--seconds", "0.01"];
    let alloc = ["bench", "alloc", "--json", "--bytes", "4MiB"];
    for (arguments, plots) in [(&file[..], 5), (&keys, 2), (&alloc, 1)] {
        home.run([arguments, &html].concat()).ended(0).json();
        let text = std::fs::read_to_string(&page).unwrap();
        assert!(text.starts_with("<!doctype html>") && text.trim_end().ends_with("</html>"));
        assert_eq!(text.matches("<svg").count(), plots, "{text}");
        assert!(text.contains(&format!("<code>hicache {}", arguments[..2].join(" "))), "{text}");
        for banned in ["<script", "http:", "https:", "src=", "href=", "url(", "NaN"] {
            assert!(!text.contains(banned), "{banned}: {text}");
        }
    }
    let nowhere = home.path("no/such/report.html");
    let ran = home.run([&keys[..], &["--html", nowhere.to_str().unwrap()]].concat()).ended(1);
    assert!(ran.stderr.contains("report.html"), "{}", ran.stderr);
}

/// The namespaces of a store.
fn namespaces(home: &Home, url: &str) -> usize {
    let told = home.run(["namespaces", "--json", "--backend", url]).ended(0).json();
    told["namespaces"].as_array().unwrap().len()
}

#[test]
fn a_measurement_that_fails_removes_what_it_wrote() {
    let home = Home::new();
    let url = home.url("store");
    home.run(["put", &hicache_tests::key(1), &home.file("page", "x"), "--backend", &url]).ended(0);
    let arguments =
        ["bench", "file", "--pages", "4", "--batch", "4", "--page-bytes", "64KiB", "--backend", &url];
    // The marker is there; a record is shorter than that, and a page is not.
    let mut command = home.command_under(&["prlimit", "--fsize=32768"], arguments);
    let ran = hicache_tests::Ran::from(command.output().unwrap()).ended(1);
    assert!(ran.stderr.contains("ulimit -f") && !ran.stderr.contains("hicache drop"), "{}", ran.stderr);
    assert_eq!(namespaces(&home, &url), 1, "only the one that was there");
}

#[test]
fn what_a_measurement_cannot_remove_is_told_with_the_command_that_does() {
    let home = Home::new();
    let url = home.url("store");
    home.run(["put", &hicache_tests::key(1), &home.file("page", "x"), "--backend", &url]).ended(0);
    // A namespace is moved there before it is removed.
    let temporaries = home.path("store/tmp");
    let _ = std::fs::remove_dir_all(&temporaries);
    std::fs::write(&temporaries, "").unwrap();
    let arguments =
        ["bench", "file", "--pages", "4", "--batch", "4", "--page-bytes", "64KiB", "--backend", &url];
    let ran = home.run(arguments).ended(2);
    let advice = ran.stderr.split('`').nth(1).expect("a command").to_owned();
    assert!(advice.starts_with("hicache drop bench-") && advice.ends_with(&url_flag(&url)), "{}", ran.stderr);
    assert_eq!(namespaces(&home, &url), 2);
    std::fs::remove_file(&temporaries).unwrap();
    home.shell(&advice.replacen("hicache", "$H", 1)).ended(0);
    assert_eq!(namespaces(&home, &url), 1);
}

fn url_flag(url: &str) -> String {
    format!("--backend '{url}'")
}

#[test]
fn a_temporary_store_that_cannot_be_removed_is_told() {
    let home = Home::new();
    if !std::fs::metadata(home.path("")).is_ok_and(|there| std::os::unix::fs::MetadataExt::uid(&there) == 0) {
        return skip("a_temporary_store_that_cannot_be_removed_is_told", "needs root to mount");
    }
    // Something is mounted in it while the command waits for its trace.
    let ran = home.shell(
        "mkfifo $HOME/trace && exec unshare --mount --propagation private bash -c '\
         $H replay --trace $HOME/trace --page-bytes 4KiB & exec 3> $HOME/trace; \
         for _ in $(seq 600); do folder=$(ls -d $HOME/hicache-temporary-* $HOME/.cache/hicache-temporary-* \
         2> /dev/null); [ -n \"$folder\" ] && break; sleep 0.1; done; \
         mkdir $folder/mount; mount -t tmpfs none $folder/mount || exit 99; exec 3>&-; wait $!'",
    );
    if ran.code == Some(99) {
        return skip("a_temporary_store_that_cannot_be_removed_is_told", "needs `mount -t tmpfs`");
    }
    let ran = ran.ended(0);
    assert!(
        ran.stderr.contains("could not be removed") && ran.stderr.contains("temporary"),
        "{}",
        ran.stderr
    );
}
