//! What is there to measure with: the programs, the engines of the build, the memory, fio.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::flags::{Flags, Memory};
use super::folder::Folder;
use crate::workspace::Workspace;

/// Engines that a build may have, in the order of the tables.
const ENGINES: [&str; 2] = ["threads", "io_uring"];
/// Bytes of reserved huge pages that a measurement needs: a batch of the largest pages, and the store's own memory.
const HUGE_LEN: u64 = 640 << 20;
const HUGE_PAGE_LEN: u64 = 2 << 20;

/// Requests that fio has under way where the flags do not say.
const FIO_DEPTH: u32 = 32;

/// Programs and choices of one run of the command.
#[derive(Debug)]
pub(super) struct Tools {
    pub(super) hicache: PathBuf,
    pub(super) harness: PathBuf,
    /// What fio calls itself; `None` where there is none.
    pub(super) fio: Option<String>,
    /// fio's buffers are registered with its ring.
    pub(super) fixed: bool,
    pub(super) engines: Vec<String>,
    /// Stores of this build take `--depth`.
    pub(super) has_depth: bool,
    pub(super) memory: Memory,
    /// Of all alike, if it was given.
    pub(super) depth: Option<u32>,
}

impl Tools {
    pub(super) fn look(workspace: &Workspace, flags: &Flags, folder: &mut Folder) -> Result<Self, String> {
        let memory = flags.memory.unwrap_or_else(|| {
            if huge_pages_free() * HUGE_PAGE_LEN >= HUGE_LEN { Memory::Huge } else { Memory::Thp }
        });
        let fio = Command::new("fio").arg("--version").stderr(Stdio::null()).output().ok();
        let fio = fio.filter(|output| output.status.success());
        let programs = workspace.target.join("release");
        let mut tools = Self {
            hicache: programs.join("hicache"),
            harness: programs.join("hicache-harness"),
            fio: fio.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            depth: flags.depth,
            ..Self::of(memory)
        };
        for engine in ENGINES {
            if tools.store_takes(&["--engine", engine], folder)? {
                tools.engines.push(engine.to_owned());
            }
        }
        if tools.engines.is_empty() {
            return Err("hicache could not measure a store with any engine".to_owned());
        }
        tools.has_depth = tools.store_takes(&["--depth", "2"], folder)?;
        tools.fixed = tools.fio.is_some() && tools.fio_can_register(folder)?;
        Ok(tools)
    }

    /// Nothing but the names of programs on PATH.
    pub(super) fn of(memory: Memory) -> Self {
        Self {
            hicache: "hicache".into(),
            harness: "hicache-harness".into(),
            fio: None,
            fixed: false,
            engines: Vec::new(),
            has_depth: false,
            memory,
            depth: None,
        }
    }

    /// Whether a store of one page can be measured with these flags.
    fn store_takes(&self, flags: &[&str], folder: &mut Folder) -> Result<bool, String> {
        let dir = folder.fresh()?;
        let mut command = Command::new(&self.hicache);
        command.args([
            "bench",
            "file",
            "--json",
            "--quiet",
            "--pages",
            "1",
            "--batch",
            "1",
            "--page-bytes",
            "4KiB",
        ]);
        command.arg("--dir").arg(dir.path()).args(flags).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command.status().map_err(|error| format!("hicache did not start: {error}"))?.success())
    }

    /// Whether the limit on locked memory lets fio register its buffers.
    fn fio_can_register(&self, folder: &mut Folder) -> Result<bool, String> {
        let dir = folder.fresh()?;
        let directory = format!("--directory={}", dir.path().display());
        let mut command = Command::new("fio");
        command.args(["--name=probe", &directory, "--filename=data", "--ioengine=io_uring", "--fixedbufs=1"]);
        command.args(["--rw=write", "--bs=4m", "--size=4m", &format!("--iodepth={}", self.fio_depth())]);
        let probed = command.current_dir(dir.path()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        Ok(probed.is_ok_and(|status| status.success()))
    }

    /// Requests that fio has under way.
    pub(super) fn fio_depth(&self) -> u32 {
        self.depth.unwrap_or(FIO_DEPTH)
    }

    /// Says what was found.
    pub(super) fn tell(&self) {
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZeroUsize::get);
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        println!("Machine: {cores} cores, Linux {}, memory: {}.", kernel.trim(), self.memory.name());
        println!("Engines of this build: {}.", self.engines.join(", "));
        if self.depth.is_some() && !self.has_depth {
            println!("Stores of this build have no option `depth`: hicache goes by its own.");
        }
        match &self.fio {
            None => println!("There is no fio on PATH: hicache is compared with the harness only."),
            Some(version) if self.fixed => println!("{version}, its buffers and files registered."),
            Some(version) => {
                println!(
                    "{version}, its buffers not registered: the limit on locked memory forbids it (ulimit -l)."
                );
            }
        }
    }
}

/// Reserved pages of 2 MiB that nobody has.
fn huge_pages_free() -> u64 {
    let text = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}
