//! The `hicache` command, run in a home of its own.

use serde_json::Value;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// The doctor's rows of a file store's directory, in their order.
pub const DIRECTORY_ROWS: [&str; 7] =
    ["store", "writable", "o_direct", "dio_mem_align", "dio_offset_align", "free_space", "free_inodes"];

/// A fresh folder that the command takes for the user's, removed on drop.
#[derive(Debug)]
pub struct Home(TempDir);

/// What a run of the command came to.
#[derive(Debug)]
pub struct Ran {
    /// The exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: String,
}

/// 64 digits that are a key.
pub fn key(byte: u8) -> String {
    format!("{byte:02x}").repeat(32)
}

/// The URL of a store made of two; `more` are options of the whole.
pub fn tier_url(first: &str, second: &str, more: &str) -> String {
    let inside = |url: &str| url.replace('%', "%25").replace('?', "%3F").replace('&', "%26");
    format!("tier:?first={}&second={}{more}", inside(first), inside(second))
}

impl Home {
    /// An empty one.
    ///
    /// # Panics
    ///
    /// If there is no room for a folder.
    #[allow(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A file in it with these bytes.
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("a file in a fresh folder");
        path.to_str().expect("a temporary path is UTF-8").to_owned()
    }

    /// The URL of a file store in it.
    pub fn url(&self, name: &str) -> String {
        format!("file:{}", self.path(name).display())
    }

    /// The command, not yet run: with no variable of ours set, and its caches and temporary files in this home.
    pub fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        self.command_under(&[], arguments)
    }

    /// The same, started by a program with arguments of its own, as `prlimit` is; none for itself.
    pub fn command_under<A: AsRef<OsStr>>(
        &self,
        starter: &[&str],
        arguments: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut command = match starter {
            [] => Command::new(binary()),
            [program, rest @ ..] => {
                let mut command = Command::new(program);
                command.args(rest).arg(binary());
                command
            }
        };
        command.args(arguments).env_clear();
        for name in ["PATH", "LD_LIBRARY_PATH"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.env("HOME", self.0.path()).env("TMPDIR", self.0.path()).stdin(Stdio::null());
        command
    }

    /// Runs the command.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn run<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Ran {
        self.command(arguments).output().expect("the command starts").into()
    }

    /// Runs the command with `input` as its standard input.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn run_with<A: AsRef<OsStr>>(&self, input: &[u8], arguments: impl IntoIterator<Item = A>) -> Ran {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        // It may end without reading all of it.
        let _ = child.stdin.take().expect("it is piped").write_all(input);
        child.wait_with_output().expect("the command ends").into()
    }

    /// Runs `script` in a shell, in which `$H` is the command.
    ///
    /// # Panics
    ///
    /// If there is no shell.
    pub fn shell(&self, script: &str) -> Ran {
        let command = self.command([] as [&str; 0]);
        let mut shell = Command::new("bash");
        shell.args(["-c", script]).env_clear().stdin(Stdio::null());
        for (name, value) in command.get_envs() {
            shell.env(name, value.expect("a variable that is set"));
        }
        shell.env("H", command.get_program()).output().expect("a shell").into()
    }

    /// Whether the command is built with that kind of store.
    ///
    /// # Panics
    ///
    /// If it does not say which it has.
    pub fn has(&self, scheme: &str) -> bool {
        let all = self.run(["config", "show", "--all", "--json"]).ended(0).json();
        all["options"].as_array().expect("a list").iter().any(|option| option["store"] == scheme)
    }

    /// The folders of temporary stores that are left.
    ///
    /// # Panics
    ///
    /// If the home cannot be read.
    pub fn leftovers(&self) -> Vec<PathBuf> {
        let folders = [self.0.path().to_owned(), self.path(".cache")];
        let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths.filter(|path| path.to_string_lossy().contains("hicache-temporary")).collect()
    }
}

impl Ran {
    /// Checks the exit code.
    ///
    /// # Panics
    ///
    /// If it is another, or there was a panic.
    #[track_caller]
    pub fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}\n{}", self.text(), self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self
    }

    /// Standard output, as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard output, which is exactly one JSON document.
    ///
    /// # Panics
    ///
    /// If it is not.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}\n{}", self.text(), self.stderr))
    }

    /// The keys of the one JSON document on standard output, sorted.
    ///
    /// # Panics
    ///
    /// If it is not.
    #[track_caller]
    pub fn json_keys(&self) -> Vec<String> {
        let document = self.json();
        let mut keys: Vec<String> = document.as_object().expect("an object").keys().cloned().collect();
        keys.sort();
        keys
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Self { code: output.status.code(), stdout: output.stdout, stderr }
    }
}

/// The command, where cargo puts it: beside the folder of the test that runs. Built if it is not there.
fn binary() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows where it is");
    let folder = test.ancestors().nth(2).expect("a test lies in a folder of the target directory");
    let binary = folder.join("hicache");
    if !binary.exists() {
        build(folder);
    }
    binary
}

fn build(folder: &Path) {
    let target = folder.parent().expect("a profile's folder lies in the target directory");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "-p", "hicache-cli", "--bin", "hicache", "--target-dir"]).arg(target);
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    let status = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo starts");
    assert!(status.success(), "the command does not build");
}
