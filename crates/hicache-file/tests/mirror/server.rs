//! The process that answers for a mirror.

use super::protocol::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountFlags, mount};
use std::collections::{BTreeMap, HashSet};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A test that is stuck with its reads is over by then, whatever it is stuck in.
const LIFE: Duration = Duration::from_secs(120);

struct Server {
    device: File,
    /// By their number, less the first, which is [`ROOT`].
    nodes: Vec<PathBuf>,
    async_dio: bool,
    /// The operation that is held, and on which files.
    opcode: u32,
    names: HashSet<String>,
    /// The answers that what is held will have.
    held: BTreeMap<u64, Vec<u8>>,
    heeds: bool,
    interrupted: HashSet<u64>,
}

/// Serves as [`Mirror::start`](super::Mirror::start) says, until the other end of the socket is closed.
pub(super) fn serve(argument: &str) {
    let [waits, real, target, socket] = argument.split(' ').collect::<Vec<_>>()[..] else {
        panic!("not what a server is told: {argument}")
    };
    let device =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/fuse").unwrap();
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let data = CString::new(data).unwrap();
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    mount("hicache-mirror", target, "fuse", flags, Some(data.as_c_str())).unwrap();
    let mut control = BufReader::new(UnixStream::connect(socket).unwrap());
    let mut server = Server {
        device,
        nodes: vec![PathBuf::from(real)],
        async_dio: waits == "Nowhere",
        opcode: READ,
        names: HashSet::new(),
        held: BTreeMap::new(),
        heeds: false,
        interrupted: HashSet::new(),
    };
    let mut message = vec![0; MESSAGE_MAX];
    let end = Instant::now() + LIFE;
    while let Ok(left) = Timespec::try_from(end.saturating_duration_since(Instant::now())) {
        let stream = control.get_ref().try_clone().unwrap();
        let mut both = [PollFd::new(&server.device, PollFlags::IN), PollFd::new(&stream, PollFlags::IN)];
        if poll(&mut both, Some(&left)).unwrap() == 0 {
            return;
        }
        let told = !both[1].revents().is_empty();
        // Interrupts come before what they are about could be answered.
        while let Ok(len) = server.device.read(&mut message) {
            server.answer(&Request::decode(&message[..len]));
        }
        let mut line = String::new();
        if told {
            if control.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let answer = server.obey(line.trim_end());
            writeln!(control.get_mut(), "{answer}").unwrap();
        }
    }
}

impl Server {
    /// Does what came through the socket.
    fn obey(&mut self, line: &str) -> String {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "hold" => {
                self.opcode = if rest.starts_with("Opens") { OPEN } else { READ };
                self.names = rest.split_whitespace().skip(1).map(str::to_owned).collect();
            }
            "heed" => self.heeds = true,
            "release" => {
                self.names.clear();
                let held = std::mem::take(&mut self.held);
                held.values().for_each(|answer| self.send(answer));
            }
            "counts" => return format!("{} {}", self.held.len(), self.interrupted.len()),
            _ => panic!("no such order: {line}"),
        }
        String::new()
    }

    fn answer(&mut self, request: &Request<'_>) {
        let answer = match request.opcode {
            INIT => Ok(Answer::init(request.u32(12), self.async_dio)),
            LOOKUP => self.lookup(request),
            GETATTR => self.path(request.node).symlink_metadata().map(|of| Answer::getattr(&of)),
            OPEN | OPENDIR => Ok(Answer::default().zeros(16)),
            READ => self.read(request).map(Answer::bytes),
            // Room and files are of no interest; blocks of 4096 bytes, and names as everywhere.
            STATFS => Ok(Answer::default().zeros(40).u32(4096).u32(255).u32(4096).zeros(28)),
            RELEASE | RELEASEDIR | FLUSH => Ok(Answer::default()),
            INTERRUPT => return self.interrupt(request.u64(0)),
            FORGET | BATCH_FORGET => return,
            _ => Err(io::Error::from_raw_os_error(libc::ENOSYS)),
        };
        let message = match answer {
            Ok(answer) => answer.message(request.unique),
            Err(error) => failure(request.unique, error.raw_os_error().unwrap_or(libc::EIO)),
        };
        if self.opcode == request.opcode && self.names.contains(self.name(request.node)) {
            self.held.insert(request.unique, message);
        } else {
            self.send(&message);
        }
    }

    /// One that the kernel wants no more is refused.
    fn send(&self, message: &[u8]) {
        let _ = (&self.device).write(message);
    }

    fn path(&self, node: u64) -> &PathBuf {
        &self.nodes[(node - ROOT) as usize]
    }

    fn name(&self, node: u64) -> &str {
        self.path(node).file_name().unwrap().to_str().unwrap()
    }

    fn lookup(&mut self, request: &Request<'_>) -> io::Result<Answer> {
        let path = self.path(request.node).join(request.name());
        let metadata = path.symlink_metadata()?;
        let known = self.nodes.iter().position(|node| *node == path);
        let at = known.unwrap_or_else(|| {
            self.nodes.push(path);
            self.nodes.len() - 1
        });
        Ok(Answer::entry(ROOT + at as u64, &metadata))
    }

    fn read(&self, request: &Request<'_>) -> io::Result<Vec<u8>> {
        let (offset, len) = (request.u64(8), request.u32(16) as usize);
        let mut bytes = vec![0; len];
        let file = File::open(self.path(request.node))?;
        let mut done = 0;
        while done < len {
            match file.read_at(&mut bytes[done..], offset + done as u64)? {
                0 => break,
                count => done += count,
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }

    fn interrupt(&mut self, unique: u64) {
        if self.held.contains_key(&unique) {
            self.interrupted.insert(unique);
            if self.heeds {
                self.held.remove(&unique);
                self.send(&failure(unique, libc::EINTR));
            }
        }
    }
}
