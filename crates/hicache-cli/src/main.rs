//! The `hicache` command.

mod args;
mod commands;
mod failure;
mod interrupt;
mod meter;
mod output;
mod page_cache;
mod progress;
mod replayer;
mod report;
mod session;
mod temporary;
mod trace;
mod workload;

use crate::args::Cli;
use crate::failure::{Failure, Result};
use crate::output::Output;
use clap::Parser;
use clap::error::ErrorKind;
use serde_json::json;
use std::process::ExitCode;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(told_by_parser(&error)),
    };
    let mut output = Output::new(cli.json, cli.quiet);
    let ended = interrupt::outlive_file_limit().and_then(|()| log(cli.verbose, cli.quiet));
    let ended = ended.and_then(|()| commands::run(cli.command, &mut output));
    let ended = ended.and_then(|ending| output.finish().map(|()| ending));
    ExitCode::from(match ended {
        Ok(ending) => ending.code(),
        Err(failure) => told(&failure, &mut output),
    })
}

/// Tells a failure, to scripts too where they have got nothing else; the exit code.
fn told(failure: &Failure, output: &mut Output) -> u8 {
    failure.tell();
    if output.is_json() && !output.has_result() {
        // Standard output may be what failed.
        let _ = output.document(&json!({ "error": failure.document() })).and_then(|()| output.finish());
    }
    failure.code()
}

/// Help, the version, or what is wrong with the arguments; the exit code.
fn told_by_parser(error: &clap::Error) -> u8 {
    let mut arguments = std::env::args_os().take_while(|argument| argument != "--");
    let json = arguments.any(|argument| argument == "--json");
    if !error.use_stderr() {
        let mut output = Output::new(json, false);
        let written = help_or_version(error, &mut output).and_then(|()| output.finish());
        return written.map_or_else(|failure| told(&failure, &mut output), |()| 0);
    }
    if json {
        let text = error.render().to_string();
        let text = text.trim_start_matches("error: ");
        let message = text.lines().take_while(|line| !line.starts_with("Usage:"));
        let message = message.map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        let failure = Failure::Usage(message);
        return told(&failure, &mut Output::new(true, false));
    }
    // Nobody is left to tell when that fails.
    let _ = error.print();
    2
}

fn help_or_version(error: &clap::Error, output: &mut Output) -> Result<()> {
    let text = error.render().to_string();
    if !output.is_json() {
        return output.bytes(text.as_bytes());
    }
    output.document(&match error.kind() {
        ErrorKind::DisplayVersion => json!({ "version": env!("CARGO_PKG_VERSION") }),
        _ => json!({ "help": text }),
    })
}

/// What the targets of our own events begin with.
const OURS: &str = "hicache";

/// Logs go to standard error. By default warnings; those about the memory of pools are in results. Only events of ours:
/// what others log of requests and of the environment holds secrets (the user in a proxy's URL, keys, tokens).
fn log(verbose: u8, quiet: bool) -> Result<()> {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let by_level = Targets::new().with_default(level);
    let targets = match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => text
            .parse()
            .map_err(|error| Failure::Usage(format!("RUST_LOG={text:?}: {error}; write target=level,...")))?,
        _ if verbose == 0 => by_level.with_target("hicache_alloc", LevelFilter::ERROR),
        _ => by_level,
    };
    let of_others =
        |(target, level): &(&str, LevelFilter)| !target.starts_with(OURS) && *level != LevelFilter::OFF;
    for (target, _) in targets.iter().filter(of_others).filter(|_| !quiet) {
        output::note(format_args!("note: RUST_LOG: {target} is not logged, only {OURS}'s own events are"));
    }
    let ours = Targets::new().with_target(OURS, LevelFilter::TRACE);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .log_internal_errors(false);
    tracing_subscriber::registry().with(lines).with(targets).with(ours).init();
    Ok(())
}
