//! Replays through the command on a real server: with the hits that the trace has, also when the server goes away.

use hicache_s3_tests::{Kind, S3Server};
use hicache_tests::{Home, Ran, skip};
use serde_json::{Value, json};
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

/// The published trace, which is not part of the project.
const TRACE: &str = "../../shared/data/conversation_trace.jsonl";
/// Longer than what the command reads ahead and a pipe holds together (256 and 64 KiB).
const LINE_LEN: usize = 400 << 10;
/// Blocks of a request.
const BLOCKS: u64 = 6;
/// The store asks again now and then while it believes the server to be gone.
const RECOVERY: Duration = Duration::from_millis(250);
const RECOVERY_REQUESTS: u32 = 40;

fn count(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("{name} in {report}"))
}

#[track_caller]
fn assert_clean(report: &Value, blocks: u64, hits: u64) {
    let counts = ["blocks", "hit_blocks", "stored_blocks"].map(|name| count(report, name));
    assert_eq!(counts, [blocks, hits, blocks - hits], "{report}");
    for name in ["wrong_pages", "damaged_pages", "unverified_pages", "errors"] {
        assert_eq!(count(report, name), 0, "{report}");
    }
    assert_eq!(report["mode"], json!("network"));
}

/// Blocks of the conversation `number`.
fn conversation(number: u64) -> Vec<u64> {
    (number * BLOCKS..(number + 1) * BLOCKS).collect()
}

#[test]
fn a_real_server_gives_the_hits_that_the_trace_has_and_keeps_them() {
    let test = "a_real_server_gives_the_hits_that_the_trace_has_and_keeps_them";
    let Some(server) = S3Server::for_test(test, &Kind::ALL) else { return };
    let home = Home::new();
    // Each of 20 conversations twice, each time two blocks longer.
    let turns = (0..20_u64).flat_map(|number| [(number, 4), (number, BLOCKS as usize)]);
    let lines = turns.map(|(number, len)| request(&conversation(number)[..len], 0));
    let trace = home.file("trace.jsonl", lines.collect::<String>());
    let url = server.access().url(&format!("replay/{}", std::process::id()));
    let replay = |flags: &[&str]| {
        let fixed =
            ["replay", "--trace", &trace, "--page-bytes", "64KiB", "--verify", "--json", "--backend", &url];
        home.run(fixed.iter().chain(flags)).ended(0).json()
    };
    let first = replay(&["--restart-every", "15"]);
    assert_clean(&first, 200, 80);
    assert_eq!(count(&first, "bytes_written"), 120 * (64 << 10));
    assert!(!first.to_string().contains(&server.access().secret_key), "{first}");
    assert_clean(&replay(&[]), 200, 200);
}

#[test]
fn the_published_trace_has_its_known_hits_on_a_real_server() {
    let test = "the_published_trace_has_its_known_hits_on_a_real_server";
    if !Path::new(TRACE).exists() {
        return skip(test, "needs the published trace beside the project");
    }
    let Some(server) = S3Server::for_test(test, &Kind::ALL) else { return };
    let home = Home::new();
    let url = server.access().url(&format!("published/{}", std::process::id()));
    let arguments = ["replay", "--trace", TRACE, "--requests", "1000", "--page-bytes", "16KiB"];
    let ran = home.run(arguments.iter().chain(&["--verify", "--json", "--backend", &url]));
    assert_clean(&ran.ended(0).json(), 27_305, 5_791);
}

/// A replay whose requests are given one by one.
struct Fed(Child);

impl Fed {
    fn start(home: &Home, url: &str) -> Self {
        let arguments = ["replay", "--trace", "-", "--page-bytes", "64KiB", "--verify", "--json", "--quiet"];
        let mut command = home.command(arguments.iter().chain(&["--backend", url]));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command.spawn().expect("the command starts"))
    }

    /// Gives it a request. When this returns, it is done with the one before: it does not read that far ahead.
    fn give(&mut self, blocks: &[u64]) {
        let input = self.0.stdin.as_mut().expect("it is piped");
        input.write_all(request(blocks, LINE_LEN).as_bytes()).expect("the command reads on");
    }

    fn give_all(&mut self, conversations: Range<u64>) {
        conversations.for_each(|number| self.give(&conversation(number)));
        self.settle();
    }

    /// Returns when everything given is done.
    fn settle(&mut self) {
        self.give(&[]);
    }

    fn end(mut self) -> Ran {
        drop(self.0.stdin.take());
        self.0.wait_with_output().expect("the command ends").into()
    }
}

/// A line of a trace, of at least so many bytes.
fn request(blocks: &[u64], len: usize) -> String {
    let line =
        json!({ "timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": blocks }).to_string();
    let padding = " ".repeat(len.saturating_sub(line.len()));
    format!("{line}{padding}\n")
}

/// Whatever `away` and `back` do to the server: no wrong page, each failure counted, the report whole, hits after.
fn an_outage(test: &str, away: fn(&mut S3Server), back: fn(&mut S3Server)) {
    let Some(mut server) = S3Server::for_test(test, &Kind::OWN) else { return };
    let home = Home::new();
    let url = format!("{}&deadline=3s&read_timeout=1s", server.access().url("outage"));
    let mut replay = Fed::start(&home, &url);
    replay.give_all(0..10);

    // Pages are on their way when the server goes.
    let long: Vec<u64> = (1_000..1_200).collect();
    replay.give(&long);
    away(&mut server);
    replay.settle();
    // With nobody there, each of these pages fails.
    replay.give_all(10..13);
    back(&mut server);
    for _ in 0..RECOVERY_REQUESTS {
        replay.give(&conversation(0));
        std::thread::sleep(RECOVERY);
    }
    replay.settle();

    // From here on all is well: what was stored before is there, and what was not is stored.
    replay.give_all(0..10);
    replay.give_all(10..13);
    replay.give_all(10..13);
    replay.give(&long);
    replay.give(&long);
    let ran = replay.end();
    assert_eq!(ran.code, Some(1), "errors are told by the exit code: {}", ran.stderr);
    let report = ran.json();
    for name in ["wrong_pages", "damaged_pages", "unverified_pages"] {
        assert_eq!(count(&report, name), 0, "{report}");
    }
    assert!(count(&report, "errors") >= 3 * BLOCKS, "{report}");
    // At least what was asked for last.
    assert!(count(&report, "hit_blocks") >= (10 + 3) * BLOCKS + 200, "{report}");
    let blocks = (10 + 3 + u64::from(RECOVERY_REQUESTS) + 10 + 3 + 3) * BLOCKS + 3 * 200;
    assert_eq!(count(&report, "blocks"), blocks, "{report}");
}

#[test]
fn a_server_killed_and_restarted_in_the_middle_costs_errors_and_never_a_wrong_page() {
    let test = "a_server_killed_and_restarted_in_the_middle_costs_errors_and_never_a_wrong_page";
    an_outage(test, S3Server::kill, S3Server::restart);
}

#[test]
fn a_server_that_stands_still_in_the_middle_costs_errors_and_never_a_wrong_page() {
    let test = "a_server_that_stands_still_in_the_middle_costs_errors_and_never_a_wrong_page";
    an_outage(test, |server| server.pause(), |server| server.resume());
}
