//! Tasks of this repository: `cargo xtask COMMAND`, one file per command.

mod bench;
mod cargo;
mod ci;
mod docs;
mod features;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use workspace::Workspace;

const USAGE: &str = "\
Usage: cargo xtask COMMAND

Commands:
  test [-- ARGS]  build the `hicache` command, run every test of the workspace, list what was skipped;
                  ARGS go to the test binaries (name filters, --nocapture)
  test-integration [-- ARGS]
                  only those on a real S3 server: in a container, else at HICACHE_TEST_S3_ENDPOINT, else from a package
  ci              formatting, lints, tidy, docs, dependency claims, every feature, licences
  docs            write docs/CONFIG.md from what the built command says of its options
  tidy            the rules that the compiler does not know (CONTRIBUTING.md explains them)
  bench [FLAGS]   hicache against fio and plain threads (docs/PERFORMANCE.md): --rounds 5, --dir target/bench,
                  --bytes 512MiB, --memory huge|thp|base, --depth N (hicache's own, 32 for fio),
                  --only compare|batches|cache|obj;
                  obj, against other clients of S3, only when it is named; --python PYTHON, one that imports boto3
                  and NIXL, measures them too
  help            this text
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<ExitCode, String> {
    let Some((command, rest)) = arguments.split_first() else {
        return Err(format!("no command given\n\n{USAGE}"));
    };
    match (command.as_str(), rest) {
        ("help" | "-h" | "--help", _) => {
            print!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        ("test", []) => test::run(&Workspace::load()?, &[]),
        ("test", [dashes, rest @ ..]) if dashes == "--" => test::run(&Workspace::load()?, rest),
        ("test-integration", []) => test::integration(&Workspace::load()?, &[]),
        ("test-integration", [dashes, rest @ ..]) if dashes == "--" => {
            test::integration(&Workspace::load()?, rest)
        }
        ("bench", rest) => bench::run(&Workspace::load()?, rest),
        ("ci", []) => ci::run(&Workspace::load()?),
        ("docs", []) => docs::write(&Workspace::load()?).map(|()| ExitCode::SUCCESS),
        ("tidy", []) => tidy::run(&Workspace::load()?),
        ("test" | "test-integration" | "ci" | "docs" | "tidy", [extra, ..]) => {
            Err(format!("`{command}` does not take `{extra}`\n\n{USAGE}"))
        }
        _ => Err(format!("there is no command `{command}`\n\n{USAGE}")),
    }
}
