//! Clients of S3, turn by turn: the bare SDK, hicache, the crate `object_store`, and the peers in Python.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::available_parallelism;

use serde_json::Value;

use super::contender::{document, line};
use super::figures::{Figures, print_rates, print_ratios};
use super::flags::Flags;
use super::{KIB, MIB, shuffled};
use crate::cargo::{cargo, succeed};
use crate::workspace::Workspace;

/// Requests under way at once, for all alike.
const CONCURRENCY: u64 = 16;
/// The store's runtime has a thread a core, and at most so many; the others get the same.
const MOST_THREADS: usize = 4;

/// Lengths of pages.
const USUAL: [u64; 2] = [MIB, 4 * MIB];

/// A server that was started, and how it is reached.
struct Server {
    name: String,
    endpoint: String,
    bucket: String,
    access_key: String,
    secret_key: String,
    /// It has what it was sent. Else it is nothing for who checks what comes back.
    keeps: bool,
    child: Child,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Client {
    Sdk,
    Hicache,
    ObjectStore,
    Nixl,
    Boto3,
}

/// What runs the clients, and which there are.
struct Programs {
    built: PathBuf,
    /// The peers' script, beside which its interpreter is named by `--python`.
    script: PathBuf,
    clients: Vec<Client>,
}

/// Builds, starts the servers, measures, prints.
pub(super) fn run(workspace: &Workspace, flags: &Flags) -> Result<(), String> {
    let build = ["build", "--release", "--locked"];
    for package in [
        ["-p", "hicache-cli", "--bin", "hicache", "--features", "obj"].as_slice(),
        ["-p", "hicache-benches", "--bins", "--features", "peers"].as_slice(),
        ["-p", "hicache-s3-tests", "--bin", "s3-server"].as_slice(),
    ] {
        succeed(cargo(&[&build, package].concat()))?;
    }
    let programs = Programs {
        built: workspace.target.join("release"),
        script: workspace.root.join("benches/python/s3_peers.py"),
        clients: clients(flags.python.as_deref()),
    };
    for page_len in flags.page_lens(&USUAL) {
        Server::null(&programs, page_len)?.measure_all(&programs, flags, &[page_len])?;
    }
    Server::memory(&programs)?.measure_all(&programs, flags, &flags.page_lens(&USUAL))?;
    Server::real(&programs)?.measure_all(&programs, flags, &flags.page_lens(&USUAL))?;
    Ok(())
}

/// The bare SDK and `object_store` first, over which ratios are made.
fn clients(python: Option<&Path>) -> Vec<Client> {
    let mut clients = vec![Client::Sdk, Client::ObjectStore, Client::Hicache];
    let Some(python) = python else { return clients };
    for (client, import) in [(Client::Nixl, "nixl._api, boto3"), (Client::Boto3, "boto3")] {
        let tried = Command::new(python).args(["-c", &format!("import {import}")]).output();
        if tried.is_ok_and(|tried| tried.status.success()) {
            clients.push(client);
        } else {
            println!("{} imports no {import}: {} is not measured.", python.display(), client.name());
        }
    }
    clients
}

impl Server {
    /// Ours, which answers at once.
    fn memory(programs: &Programs) -> Result<Self, String> {
        Self::ours(programs, &["--port", "0"], "a server in memory", true)
    }

    /// Ours, which does no more than it must: it throws away what it is sent, and has one answer for who reads.
    fn null(programs: &Programs, page_len: u64) -> Result<Self, String> {
        let arguments = ["--port", "0", "--null", &page_len.to_string()];
        Self::ours(programs, &arguments, "a server that throws bodies away", false)
    }

    fn ours(programs: &Programs, arguments: &[&str], name: &str, keeps: bool) -> Result<Self, String> {
        let (child, endpoint) = start(Command::new(programs.built.join("memory-s3")).args(arguments))?;
        let text = |text: &str| text.to_owned();
        Ok(Self {
            name: text(name),
            endpoint,
            bucket: text("bench"),
            access_key: text("measure"),
            secret_key: text("measure-secret"),
            keeps,
            child,
        })
    }

    /// The one that the integration tests use.
    fn real(programs: &Programs) -> Result<Self, String> {
        let (child, told) = start(&mut Command::new(programs.built.join("s3-server")))?;
        let told: Value = serde_json::from_str(&told).map_err(|error| format!("s3-server: {error}"))?;
        let text = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
        Ok(Self {
            name: text("server"),
            endpoint: text("endpoint"),
            bucket: text("bucket"),
            access_key: text("access_key"),
            secret_key: text("secret_key"),
            keeps: true,
            child,
        })
    }

    fn measure_all(&self, programs: &Programs, flags: &Flags, page_lens: &[u64]) -> Result<(), String> {
        println!("\n## Against {}, {CONCURRENCY} requests under way", self.name);
        for &page_len in page_lens {
            let pages = (flags.bytes / page_len).max(CONCURRENCY);
            self.measure(programs, flags, page_len, pages)?;
        }
        Ok(())
    }

    fn measure(&self, programs: &Programs, flags: &Flags, page_len: u64, pages: u64) -> Result<(), String> {
        println!("\n### {pages} pages of {} KiB\n", page_len / KIB);
        // Ours takes no page that is not what it stored.
        let clients =
            programs.clients.iter().copied().filter(|client| self.keeps || *client != Client::Hicache);
        let clients: Vec<Client> = clients.collect();
        for client in &clients {
            println!("    {}", line(&self.command(programs, flags, *client, page_len, pages)));
        }
        let mut figures: Vec<Vec<Figures>> = vec![Vec::new(); clients.len()];
        for round in 0..=flags.rounds {
            for index in shuffled(clients.len()) {
                let mut command = self.command(programs, flags, clients[index], page_len, pages);
                let mut found = Figures::default();
                found.add(&document(clients[index].name(), &mut command)?);
                // In the first one a server takes its memory.
                if round > 0 {
                    figures[index].push(found);
                }
            }
        }
        let names: Vec<&str> = clients.iter().map(|client| client.name()).collect();
        print_rates(&names, &figures);
        for (base, _) in clients.iter().enumerate().filter(|(_, client)| **client != Client::Hicache) {
            print_ratios(&names, &figures, base, &[base]);
        }
        Ok(())
    }

    fn command(
        &self,
        programs: &Programs,
        flags: &Flags,
        client: Client,
        page_len: u64,
        pages: u64,
    ) -> Command {
        let Self { endpoint, bucket, access_key, secret_key, .. } = self;
        let threads = available_parallelism().map_or(1, std::num::NonZeroUsize::get).min(MOST_THREADS);
        let mut command = match client {
            Client::Hicache => {
                let mut command = Command::new(programs.built.join("hicache"));
                command.args(["bench", "obj", "--json", "--quiet", "--backend"]).arg(format!(
                    "s3://{bucket}/hicache?endpoint={endpoint}&path_style=true&credentials=static\
                     &access_key={access_key}&secret_key={secret_key}&threads={threads}"
                ));
                command
            }
            Client::Sdk | Client::ObjectStore => {
                let mut command = Command::new(programs.built.join("s3-peers"));
                command.args(["--client", if client == Client::Sdk { "sdk" } else { "object-store" }]);
                command.args(["--endpoint", endpoint, "--bucket", bucket, "--threads", &threads.to_string()]);
                command.args(["--access-key", access_key, "--secret-key", secret_key]);
                command
            }
            Client::Nixl | Client::Boto3 => {
                let mut command = Command::new(flags.python.as_deref().unwrap_or(Path::new("python3")));
                command.arg(&programs.script);
                command.args(["--client", if client == Client::Nixl { "nixl" } else { "boto3" }]);
                command.args(["--endpoint", endpoint, "--bucket", bucket]);
                command.args(["--access-key", access_key, "--secret-key", secret_key]);
                command
            }
        };
        let numbers = [page_len, pages, CONCURRENCY].map(|number| number.to_string());
        command.args((!self.keeps).then_some("--unchecked"));
        command.args(["--page-bytes", &numbers[0], "--pages", &numbers[1], "--concurrency", &numbers[2]]);
        command
    }
}

impl Client {
    fn name(self) -> &'static str {
        match self {
            Self::Sdk => "the bare SDK",
            Self::Hicache => "hicache",
            Self::ObjectStore => "object_store",
            Self::Nixl => "NIXL",
            Self::Boto3 => "boto3",
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The real one ends with its input and takes what it started along; the other one has to be killed.
        if self.child.stdin.take().is_none() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Starts a server, and answers the line that it prints when it is ready.
fn start(command: &mut Command) -> Result<(Child, String), String> {
    let name = Path::new(command.get_program()).display().to_string();
    let is_real = name.ends_with("s3-server");
    command.stdin(if is_real { Stdio::piped() } else { Stdio::null() }).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{name} did not start: {error}"))?;
    let mut told = String::new();
    let read = child.stdout.take().map(|output| BufReader::new(output).read_line(&mut told));
    match read {
        Some(Ok(length)) if length > 0 => Ok((child, told.trim().to_owned())),
        _ => {
            let _ = child.kill();
            let _ = child.wait();
            Err(format!("{name} ended before it was ready"))
        }
    }
}
