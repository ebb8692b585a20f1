//! The server's program, installed with pip into the target directory, once.

use crate::choice::Absent;
use crate::target;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The package, its version and the checksums of its files.
const REQUIREMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/seaweedfs.txt");
const TEXT: &str = include_str!("../seaweedfs.txt");
const PYTHON: &str = "python3";

/// The version that the requirements ask for.
pub(crate) fn version() -> &'static str {
    let pinned = TEXT.split_once("==").map_or("", |(_, rest)| rest);
    pinned.split_whitespace().next().unwrap_or_default()
}

/// Where the program is.
pub(crate) fn weed() -> Result<PathBuf, Absent> {
    let folder = target::folder().map_err(|error| absent(&error.to_string()))?;
    let home = folder.join(format!("seaweedfs-{}", version()));
    let program = home.join("bin/weed");
    if !program.exists() {
        let lock = File::create(folder.join("install.lock"));
        let lock = lock.and_then(|file| file.lock().map(|()| file));
        let _lock = lock.map_err(|error| absent(&error.to_string()))?;
        if !program.exists() {
            install(&home)?;
        }
    }
    Ok(program)
}

/// Appears whole or not at all: a killed installation must not pass for one.
fn install(home: &Path) -> Result<(), Absent> {
    let partial = home.with_extension("partial");
    match fs::remove_dir_all(&partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(absent(&error.to_string())),
        _ => {}
    }
    let mut pip = Command::new(PYTHON);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"]);
    pip.args(["--require-hashes", "--requirement", REQUIREMENTS, "--target"]).arg(&partial);
    let output = pip.stdin(Stdio::null()).output().map_err(|error| absent(&format!("{PYTHON}: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it did not say why");
        return Err(absent(&format!("{PYTHON} -m pip: {last}")));
    }
    fs::rename(&partial, home).map_err(|error| absent(&error.to_string()))
}

fn absent(why: &str) -> Absent {
    Absent(format!("no package (it wants {PYTHON} with pip): {}", why.trim()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_version_is_the_one_that_is_pinned() {
        let version = super::version();
        assert!(super::TEXT.contains(&format!("=={version} ")), "{version}");
        assert!(version.starts_with(|first: char| first.is_ascii_digit()), "{version}");
    }
}
