//! Cargo as a child process, with the environment of a plain call, so that nothing is built twice.

use std::ffi::OsString;
use std::process::{Command, ExitStatus};

/// Set by `cargo run` for xtask itself; build scripts of a nested cargo would take them for their own.
const OWN_PREFIXES: [&str; 4] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"];

/// `cargo ARGUMENTS`, in the folder that xtask was called in.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.args(arguments);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| OWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))) {
            command.env_remove(&name);
        }
    }
    command
}

/// Prints the command, runs it with xtask's own output, and answers how it ended.
pub(crate) fn status(mut command: Command) -> Result<ExitStatus, String> {
    let line = describe(&command);
    println!("$ {line}");
    command.status().map_err(|error| format!("`{line}` did not start: {error}"))
}

/// As `status`, with anything but success as an error.
pub(crate) fn succeed(command: Command) -> Result<(), String> {
    let line = describe(&command);
    let status = status(command)?;
    if status.success() { Ok(()) } else { Err(format!("`{line}` failed ({status})")) }
}

/// Runs the command and answers its standard output.
pub(crate) fn output(mut command: Command) -> Result<String, String> {
    let line = describe(&command);
    let output = command.output().map_err(|error| format!("`{line}` did not start: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("`{line}` failed ({}): {said}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("`{line}` printed something that is not UTF-8"))
}

fn describe(command: &Command) -> String {
    let mut line = String::from("cargo");
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_xtask_do_not_reach_a_nested_cargo() {
        let removed: Vec<_> = cargo(&["check"])
            .get_envs()
            .filter(|(_, value)| value.is_none())
            .map(|(name, _)| name.to_string_lossy().into_owned())
            .collect();
        assert!(removed.iter().any(|name| name == "CARGO_PKG_NAME"), "{removed:?}");
        assert!(removed.iter().all(|name| name != "CARGO_HOME"), "{removed:?}");
    }

    #[test]
    fn a_failing_command_is_an_error_that_names_it() {
        let error = output(cargo(&["--no-such-option"])).expect_err("cargo must refuse");
        assert!(error.contains("cargo --no-such-option"), "{error}");
    }
}
