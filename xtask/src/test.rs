//! `cargo xtask test` and `test-integration`: tests of the workspace, and a list of those that could not run here.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use std::{env, fmt, fs, io};

use crate::cargo::{cargo, status, succeed};
use crate::workspace::Workspace;

/// Names the file that a test appends its `skipped:` line to, since cargo hides the output of passing tests.
const SKIPS_VARIABLE: &str = "HICACHE_TEST_SKIPS";
/// A skip for this reason is a failure where root was promised.
const NEEDS_ROOT: &str = "needs root";

/// A test that told why it did not run, or a line of the file that is not what was agreed.
#[derive(Debug, PartialEq, Eq)]
enum Skip<'a> {
    Told { test: &'a str, reason: &'a str },
    Unreadable(&'a str),
}

impl fmt::Display for Skip<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Skip::Told { test, reason } => write!(f, "  {test}: {reason}"),
            Skip::Unreadable(line) => write!(f, "  (not `skipped: TEST: REASON`) {line}"),
        }
    }
}

/// Tests that are built and run together.
struct Stage {
    /// Builds the command that they run; empty where they run none.
    command: &'static [&'static str],
    tests: &'static [&'static str],
}

/// Without what takes longer to build than the product.
const PLAIN: Stage = Stage {
    command: &["build", "--locked", "-p", "hicache-cli", "--bin", "hicache", "--features", "tier"],
    tests: &[
        "test",
        "--workspace",
        "--exclude",
        "hicache-benches",
        "--exclude",
        "hicache-s3-tests",
        "--locked",
        "--no-fail-fast",
    ],
};
/// On a real S3 server, which the tests start, say which it is, and end.
const INTEGRATION: Stage = Stage {
    command: &["build", "--locked", "-p", "hicache-cli", "--bin", "hicache", "--features", "full"],
    tests: &["test", "-p", "hicache-s3-tests", "--locked", "--no-fail-fast"],
};
/// Of what is measured against. The benchmarks themselves hold none.
const MEASURES: Stage =
    Stage { command: &[], tests: &["test", "-p", "hicache-benches", "--bins", "--locked", "--no-fail-fast"] };

/// Runs all tests, and reports the skipped ones.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode, String> {
    stages(workspace, &[PLAIN, MEASURES, INTEGRATION], arguments)
}

/// The same for the tests on a real server alone.
pub(crate) fn integration(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode, String> {
    stages(workspace, &[INTEGRATION], arguments)
}

/// Runs every stage, also after one in which a test failed.
fn stages(workspace: &Workspace, stages: &[Stage], arguments: &[String]) -> Result<ExitCode, String> {
    let skips_file = workspace.target.join("test-skips.txt");
    remove(&skips_file)?;
    let mut failed = None;
    for stage in stages {
        if !stage.command.is_empty() {
            succeed(cargo(stage.command))?;
        }
        let mut tests = cargo(stage.tests);
        if !arguments.is_empty() {
            tests.arg("--").args(arguments);
        }
        tests.env(SKIPS_VARIABLE, &skips_file);
        let status = status(tests)?;
        if !status.success() {
            failed.get_or_insert(status);
        }
    }

    let told = read(&skips_file)?;
    let skips = parse(&told);
    print_skips(&skips);
    let refused = refused(&skips, promised_root());
    if !refused.is_empty() {
        println!("These count as failures here:");
        refused.iter().for_each(|skip| println!("{skip}"));
    }
    if let Some(status) = failed {
        let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
        eprintln!("xtask: tests failed ({status})");
        return Ok(ExitCode::from(code));
    }
    Ok(if refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn remove(path: &Path) -> Result<(), String> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("{} could not be removed: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

fn read(path: &Path) -> Result<String, String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        other => other.map_err(|error| format!("{} could not be read: {error}", path.display())),
    }
}

fn parse(told: &str) -> Vec<Skip<'_>> {
    let mut lines: Vec<&str> = told.lines().filter(|line| !line.trim().is_empty()).collect();
    lines.sort_unstable();
    lines.dedup();
    lines.into_iter().map(parse_line).collect()
}

fn parse_line(line: &str) -> Skip<'_> {
    // A test's path holds `::`, so the end of its name is a colon and a space.
    match line.strip_prefix("skipped: ").and_then(|rest| rest.split_once(": ")) {
        Some((test, reason)) => Skip::Told { test, reason },
        None => Skip::Unreadable(line),
    }
}

fn print_skips(skips: &[Skip<'_>]) {
    if skips.is_empty() {
        println!("\nNo test reported that it was skipped.");
        return;
    }
    println!("\nSkipped on this machine: {}", skips.len());
    skips.iter().for_each(|skip| println!("{skip}"));
}

/// Skips that are failures: what cannot be read, and missing root where CI runs as root.
fn refused<'s, 'a>(skips: &'s [Skip<'a>], promised_root: bool) -> Vec<&'s Skip<'a>> {
    skips
        .iter()
        .filter(|skip| match skip {
            Skip::Told { reason, .. } => promised_root && reason.starts_with(NEEDS_ROOT),
            Skip::Unreadable(_) => true,
        })
        .collect()
}

fn promised_root() -> bool {
    env::var("CI").is_ok_and(|value| value == "true") && is_root()
}

fn is_root() -> bool {
    // The kernel gives a process's own entry the process's effective user.
    fs::metadata("/proc/self").is_ok_and(|entry| entry.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_tests_telling_the_same_skip_are_listed_once_and_sorted() {
        let skips = parse("skipped: b::two: no loop device\nskipped: a::one: x: y\nskipped: a::one: x: y\n");
        let expected = [
            Skip::Told { test: "a::one", reason: "x: y" },
            Skip::Told { test: "b::two", reason: "no loop device" },
        ];
        assert_eq!(skips, expected);
    }

    #[test]
    fn missing_root_is_a_failure_only_where_root_was_promised() {
        let skips = parse("skipped: a: needs root to mount\nskipped: b: needs strace\n");
        assert_eq!(refused(&skips, true).len(), 1);
        assert!(refused(&skips, false).is_empty());
    }

    #[test]
    fn a_line_torn_by_two_writers_is_a_failure_not_a_lost_skip() {
        let skips = parse("skipped: a\n");
        assert_eq!(refused(&skips, false), [&Skip::Unreadable("skipped: a")]);
    }

    #[test]
    fn no_file_means_no_skips() {
        let nowhere = env::temp_dir().join("hicache-xtask-no-such-file");
        assert_eq!(read(&nowhere), Ok(String::new()));
        assert_eq!(remove(&nowhere), Ok(()));
    }
}
