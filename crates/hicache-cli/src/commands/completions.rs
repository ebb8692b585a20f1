//! `hicache completions`.

use crate::args::Cli;
use crate::failure::{Ending, Result};
use crate::output::Output;
use clap::CommandFactory;
use clap_complete::Shell;
use serde_json::json;

pub(crate) fn run(shell: Shell, output: &mut Output) -> Result {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "hicache", &mut script);
    if output.is_json() {
        output.document(&json!({ "script": String::from_utf8_lossy(&script) }))?;
    } else {
        output.bytes(&script)?;
    }
    Ok(Ending::Done)
}
