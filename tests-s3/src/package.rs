//! A server that runs as a plain process of this machine, its data in the target directory.

use crate::choice::Absent;
use crate::guard::Guard;
use crate::ports::Ports;
use crate::server::Access;
use crate::{install, target};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The server's parts, each with a port for HTTP and one for its own protocol; S3 is first.
const PARTS: [&str; 5] = ["s3", "master", "volume", "filer", "admin"];
const LOG: &str = "log";
/// How long its threads may take to stop.
const PAUSE_LIMIT: Duration = Duration::from_secs(10);
/// It looks at its ports first thing, and ends at once if it may not have one.
const SETTLED: Duration = Duration::from_millis(300);
/// How often other ports are tried.
const TRIES: u32 = 5;

/// Killed on drop, and when this process is killed; its data goes with it.
#[derive(Debug)]
pub(crate) struct Package {
    program: PathBuf,
    access: Access,
    /// `None` after a kill.
    running: Option<Running>,
    ports: Ports,
    data: TempDir,
}

#[derive(Debug)]
struct Running {
    _guard: Guard,
    child: Child,
}

impl Package {
    pub(crate) fn start() -> Result<Self, Absent> {
        let program = install::weed()?;
        let absent = |error: io::Error| Absent(format!("no package: {}: {error}", program.display()));
        let folder = target::folder().map_err(absent)?;
        let mut last = None;
        for _ in 0..TRIES {
            let ports = Ports::take(2 * PARTS.len() as u16).map_err(absent)?;
            let data = tempfile::Builder::new().prefix("data-").tempdir_in(&folder).map_err(absent)?;
            match Running::start(&program, &ports, data.path()) {
                Ok(running) => {
                    let access = Access::own(ports.first);
                    return Ok(Self { program, access, running: Some(running), ports, data });
                }
                Err(error) => last = Some(error),
            }
        }
        Err(absent(last.unwrap_or_else(|| io::Error::other("it was not tried"))))
    }

    pub(crate) fn name(&self) -> String {
        format!("SeaweedFS {}", install::version())
    }

    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    pub(crate) fn health_path(&self) -> &'static str {
        "/healthz"
    }

    pub(crate) fn kill(&mut self) {
        drop(self.running.take());
    }

    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        // Each thread goes on until it next comes by the kernel.
        let running = self.running.as_ref().expect("the server runs");
        let threads = format!("/proc/{}/task", running.child.id());
        let stands = |thread: &Path| {
            let stat = fs::read_to_string(thread.join("stat")).unwrap_or_default();
            // Behind the name, which may hold anything: `(name) T`.
            stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('T'))
        };
        let end = Instant::now() + PAUSE_LIMIT;
        while !fs::read_dir(&threads)
            .expect("a process has threads")
            .flatten()
            .all(|thread| stands(&thread.path()))
        {
            assert!(Instant::now() < end, "the server does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    pub(crate) fn restart(&mut self) {
        self.kill();
        let running = Running::start(&self.program, &self.ports, self.data.path());
        self.running = Some(running.expect("the server starts again on its own ports and data"));
    }

    /// Whether it ended by itself, and what it said last.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let status = self.running.as_mut()?.child.try_wait().ok()??;
        Some(format!("it ended ({status}): {}", last_words(self.data.path())))
    }

    fn signal(&self, signal: Signal) {
        let running = self.running.as_ref().expect("the server runs");
        kill_process(Pid::from_child(&running.child), signal).expect("our own child takes a signal");
    }
}

impl Running {
    /// Fails if the server ends at once, as it does where somebody else has one of the ports.
    fn start(program: &Path, ports: &Ports, data: &Path) -> io::Result<Self> {
        let access = Access::own(ports.first);
        let mut command = Command::new(program);
        command.args(["-logtostderr=true", "mini", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]);
        command.arg(format!("-dir={}", data.display()));
        command.args(["-master.telemetry=false", "-webdav=false", "-admin.ui=false"]);
        command.args(["-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false"]);
        for (part, port) in PARTS.iter().zip((ports.first..).step_by(2)) {
            command.args([format!("-{part}.port={port}"), format!("-{part}.port.grpc={}", port + 1)]);
        }
        command.env("AWS_ACCESS_KEY_ID", &access.access_key);
        command.env("AWS_SECRET_ACCESS_KEY", &access.secret_key);
        let output = File::options().create(true).append(true).open(data.join(LOG))?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).current_dir(data);
        let mut child = command.process_group(0).spawn()?;
        let mut arguments = vec![PathBuf::from(child.id().to_string()), data.to_owned()];
        arguments.extend(sockets(ports));
        let guard = Guard::set("kill -9 \"$1\"; shift; rm -rf \"$@\"", arguments)?;
        std::thread::sleep(SETTLED);
        match child.try_wait()? {
            None => Ok(Self { _guard: guard, child }),
            Some(status) => {
                Err(io::Error::other(format!("it ended at once ({status}): {}", last_words(data))))
            }
        }
    }
}

/// Sockets that it makes outside its folder, whatever it is told, and leaves there.
fn sockets(ports: &Ports) -> impl Iterator<Item = PathBuf> {
    let own = PARTS.iter().zip((ports.first..).step_by(2));
    own.flat_map(|(part, port)| [format!("{part}-{port}"), format!("{part}-grpc-{}", port + 1)])
        .map(|name| PathBuf::from(format!("/tmp/seaweedfs-{name}.sock")))
}

fn last_words(data: &Path) -> String {
    let told = fs::read_to_string(data.join(LOG)).unwrap_or_default();
    told.lines().last().unwrap_or_default().to_owned()
}

impl Drop for Package {
    fn drop(&mut self) {
        self.kill();
        for socket in sockets(&self.ports) {
            // Those that were not made are not there.
            let _ = fs::remove_file(socket);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
