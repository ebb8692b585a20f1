//! `cargo xtask ci`: everything a change must pass besides the tests; a failing step does not stop the next.

use std::env;
use std::process::{ExitCode, Stdio};
use std::time::Instant;

use crate::cargo::{cargo, output, succeed};
use crate::workspace::Workspace;
use crate::{docs as documents, features, tidy};

/// A file-only build must not pull these in, nor anything whose name goes on with a dash after them.
const NOT_IN_FILE_ONLY: [&str; 4] = ["tokio", "hyper", "rustls", "aws"];

/// Stacks of TLS: a build has one of them, in one version.
const TLS: [&str; 5] = ["rustls", "openssl", "native-tls", "s2n-tls", "boring"];

enum Done {
    Ran,
    Skipped(&'static str),
}

type Step = fn(&Workspace) -> Result<Done, String>;

const STEPS: [(&str, Step); 9] = [
    ("formatting", formatting),
    ("tidy", tidy_step),
    ("lints", lints),
    ("docs", docs),
    ("documents made from the command", made_documents),
    ("file-only build", file_only),
    ("one TLS stack", one_tls),
    ("features", feature_sets),
    ("licences, bans, sources", deny),
];

/// Runs every step, whatever the ones before it said.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode, String> {
    let mut summary = Vec::new();
    let mut failed = 0;
    for (name, step) in STEPS {
        println!("\n== {name}");
        let start = Instant::now();
        let result = step(workspace);
        let seconds = start.elapsed().as_secs_f64();
        let verdict = match result {
            Ok(Done::Ran) => "ok".to_owned(),
            Ok(Done::Skipped(why)) => format!("skipped: {why}"),
            Err(why) => {
                failed += 1;
                format!("FAILED: {why}")
            }
        };
        let line = format!("{name}: {seconds:.1} s: {verdict}");
        println!("== {line}");
        summary.push(line);
    }
    println!("\n== summary");
    for line in &summary {
        println!("  {line}");
    }
    if failed == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    println!("{failed} of {} steps failed", STEPS.len());
    Ok(ExitCode::FAILURE)
}

fn formatting(_: &Workspace) -> Result<Done, String> {
    succeed(cargo(&["fmt", "--all", "--check"]))?;
    Ok(Done::Ran)
}

fn lints(_: &Workspace) -> Result<Done, String> {
    let clippy = |rest: &[&str]| {
        let all = [&["clippy", "--locked"], rest, &["--all-targets", "--", "-D", "warnings"]].concat();
        succeed(cargo(&all))
    };
    clippy(&["--workspace"])?;
    // Other clients, for measurements only.
    clippy(&["-p", "hicache-benches", "--features", "peers"])?;
    Ok(Done::Ran)
}

fn tidy_step(workspace: &Workspace) -> Result<Done, String> {
    match tidy::violations(workspace)? {
        0 => Ok(Done::Ran),
        count => Err(format!("violations: {count}")),
    }
}

fn docs(_: &Workspace) -> Result<Done, String> {
    let flags = match env::var("RUSTDOCFLAGS") {
        Ok(given) => format!("{given} -D warnings"),
        Err(_) => "-D warnings".to_owned(),
    };
    let mut command = cargo(&["doc", "--locked", "--workspace", "--no-deps"]);
    command.env("RUSTDOCFLAGS", flags);
    succeed(command)?;
    Ok(Done::Ran)
}

fn made_documents(workspace: &Workspace) -> Result<Done, String> {
    documents::check(workspace)?;
    Ok(Done::Ran)
}

fn file_only(_: &Workspace) -> Result<Done, String> {
    let tree = tree_with("file")?;
    if package_names(&tree).all(|name| name != "hicache-file") {
        return Err("the tree of a file-only build does not hold hicache-file".to_owned());
    }
    match unwanted(&tree).as_slice() {
        [] => Ok(Done::Ran),
        found => Err(format!("a file-only build depends on {}", found.join(", "))),
    }
}

fn one_tls(_: &Workspace) -> Result<Done, String> {
    match tls_stacks(&tree_with("obj")?).as_slice() {
        [_] => Ok(Done::Ran),
        [] => Err("a build with S3 has no TLS stack".to_owned()),
        found => Err(format!("a build with S3 has several TLS stacks: {}", found.join(", "))),
    }
}

/// The packages of the facade with this feature alone, a line each.
fn tree_with(feature: &str) -> Result<String, String> {
    let of = ["tree", "--locked", "-p", "hicache", "--no-default-features", "--features", feature];
    output(cargo(&[&of[..], &["-e", "normal", "--prefix", "none"]].concat()))
}

/// Crates that speak TLS, or compute for it, each with its version.
fn tls_stacks(tree: &str) -> Vec<String> {
    let mut found: Vec<String> = tree
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (name, version) = (words.next()?, words.next()?);
            TLS.contains(&name).then(|| format!("{name} {version}"))
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn package_names(tree: &str) -> impl Iterator<Item = &str> {
    tree.lines().filter_map(|line| line.split_whitespace().next())
}

fn unwanted(tree: &str) -> Vec<&str> {
    let mut found: Vec<&str> = package_names(tree)
        .filter(|name| {
            NOT_IN_FILE_ONLY.iter().any(|banned| {
                name.strip_prefix(banned).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            })
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn feature_sets(workspace: &Workspace) -> Result<Done, String> {
    features::check(workspace)?;
    Ok(Done::Ran)
}

fn deny(_: &Workspace) -> Result<Done, String> {
    let mut probe = cargo(&["deny", "--version"]);
    probe.stdout(Stdio::null()).stderr(Stdio::null());
    if !probe.status().is_ok_and(|status| status.success()) {
        return Ok(Done::Skipped("cargo-deny is not installed (`cargo install --locked cargo-deny`)"));
    }
    succeed(cargo(&["deny", "--locked", "check", "licenses", "bans", "sources"]))?;
    Ok(Done::Ran)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_in_a_file_only_build_is_found() {
        let tree = "hicache v0.1.0\nhicache-file v0.1.0\ntokio-util v0.7.1\naws-config v1.0.0\n";
        assert_eq!(unwanted(tree), ["aws-config", "tokio-util"]);
    }

    #[test]
    fn a_second_stack_or_a_second_version_of_one_is_found() {
        let tree = "hicache v0.1.0\nrustls v0.23.1\nrustls-pki-types v1.0.0\nrustls v0.23.1 (*)\n";
        assert_eq!(tls_stacks(tree), ["rustls v0.23.1"]);
        let tree = "rustls v0.21.0\nrustls v0.23.1\nnative-tls v0.2.0\n";
        assert_eq!(tls_stacks(tree).len(), 3);
    }

    #[test]
    fn a_name_that_only_starts_alike_is_not_taken_for_one() {
        assert!(unwanted("hicache v0.1.0\nhyperloglog v1.0.0\nrustix v1.1.0\n").is_empty());
    }
}
