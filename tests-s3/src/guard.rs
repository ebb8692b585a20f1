//! Clean-up that happens also when this process is killed.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A shell that waits for this process to end and then runs a script; dropped, it ends without.
///
/// It sees the end of its standard input, which the kernel closes whatever this process died of. The kernel's own
/// way, a signal on the parent's death, comes when the *thread* that started the child ends: a test's thread does so
/// long before the process.
#[derive(Debug)]
pub(crate) struct Guard(Child);

impl Guard {
    /// `script` finds `arguments` in `$1`, `$2` and so on.
    pub(crate) fn set<A: AsRef<OsStr>>(
        script: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> io::Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("read -r _ || {{ {script}; }}"), "sh"]).args(arguments);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // In a group of its own, so that an interrupt from the terminal ends the tests and not what cleans up.
        shell.process_group(0).spawn().map(Self)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mut input) = self.0.stdin.take() {
            // It is gone only if somebody killed it.
            let _ = input.write_all(b"\n");
        }
        let _ = self.0.wait();
    }
}
