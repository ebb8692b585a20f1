//! A medium that really hangs: a file system in user space that shows a directory and holds its reads while it is told.
//!
//! It speaks the kernel's protocol (`linux/fuse.h`) itself, since no library tells of the kernel's wish to interrupt a
//! read, which is all that can be seen of a cancelled one. It is a process of its own: whatever waits in the kernel for
//! an answer cannot be killed, so who owes the answer must not be stuck with it.

mod protocol;
mod server;

use super::stage::{child, child_argument, eventually, is_root, skip, with_mounts};
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Child;

/// How the kernel waits for a direct read of such a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// On a thread, which can be interrupted: a ring's read is on a worker thread of the kernel's.
    OnThread,
    /// On none, and nothing can interrupt it: as for a device that does not answer.
    Nowhere,
}

/// What gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    Reads,
    Opens,
}

pub(crate) const BOTH_WAYS: [Waits; 2] = [Waits::OnThread, Waits::Nowhere];

const SERVE: &str = "serve ";

/// The folder for `test`, in a process that may mount. `None` where the test is skipped, or was run by a child.
pub(crate) fn folder(test: &str) -> Option<PathBuf> {
    if let Some(argument) = child_argument()
        && let Some(argument) = argument.strip_prefix(SERVE)
    {
        server::serve(argument);
        return None;
    }
    if is_root() && !Path::new("/dev/fuse").exists() {
        skip(test, "needs /dev/fuse");
        return None;
    }
    with_mounts(test, "true")
}

/// A mounted mirror, from this side.
#[derive(Debug)]
pub(crate) struct Mirror {
    server: Child,
    control: RefCell<BufReader<UnixStream>>,
}

/// What has come to it so far.
#[derive(Debug)]
pub(crate) struct Counts {
    /// What waits for its answer.
    pub(crate) held: usize,
    /// What the kernel wished to interrupt.
    pub(crate) interrupted: usize,
}

impl Mirror {
    /// Shows `real` at `mount`, for `test`, which is what the server's process runs.
    pub(crate) fn start(test: &str, real: &Path, mount: &Path, waits: Waits) -> Self {
        std::fs::create_dir_all(mount).unwrap();
        let socket = mount.with_extension("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let paths = [real, mount, &socket].map(|path| path.to_str().unwrap());
        let argument = format!("{SERVE}{waits:?} {}", paths.join(" "));
        let mut server = child(test, &argument, &[]).spawn().unwrap();
        listener.set_nonblocking(true).unwrap();
        let control = std::cell::OnceCell::new();
        let server_ended = RefCell::new(&mut server);
        eventually(|| {
            let ended = server_ended.borrow_mut().try_wait().unwrap();
            assert!(ended.is_none(), "the mirror's server ended: {ended:?}");
            listener.accept().is_ok_and(|(stream, _)| control.set(stream).is_ok())
        });
        let control = control.into_inner().unwrap();
        control.set_nonblocking(false).unwrap();
        Self { server, control: RefCell::new(BufReader::new(control)) }
    }

    fn ask(&self, line: &str) -> String {
        let mut control = self.control.borrow_mut();
        writeln!(control.get_mut(), "{line}").unwrap();
        let mut answer = String::new();
        control.read_line(&mut answer).unwrap();
        assert!(answer.ends_with('\n'), "the mirror's server answers {line}");
        answer
    }

    /// From now on, `what` is done to the files of these names gets no answer.
    pub(crate) fn hold(&self, what: Held, names: impl IntoIterator<Item = String>) {
        let names: Vec<String> = names.into_iter().collect();
        self.ask(&format!("hold {what:?} {}", names.join(" ")));
    }

    /// From now on, a held one that the kernel wishes to interrupt ends with EINTR.
    pub(crate) fn heed_interrupts(&self) {
        self.ask("heed");
    }

    /// Answers all that is held, and holds nothing any more.
    pub(crate) fn release(&self) {
        self.ask("release");
    }

    pub(crate) fn counts(&self) -> Counts {
        let answer = self.ask("counts");
        let mut numbers = answer.split_whitespace().map(|number| number.parse().unwrap());
        Counts { held: numbers.next().unwrap(), interrupted: numbers.next().unwrap() }
    }

    pub(crate) fn until_held(&self, count: usize) {
        eventually(|| self.counts().held == count);
    }
}

impl Drop for Mirror {
    /// What is held then is answered by the end of the server.
    fn drop(&mut self) {
        let _ = self.control.get_mut().get_mut().shutdown(std::net::Shutdown::Both);
        let _ = self.server.wait();
    }
}
