//! Who is measured, and the commands that do it.

use std::fmt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::figures::Figures;
use super::flags::Memory;
use super::tools::Tools;

/// What is written and read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) page_len: u64,
    pub(super) pages: u64,
    pub(super) batch: u32,
}

/// What the page cache has to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cache {
    /// Nothing: direct I/O.
    Direct,
    /// Buffered I/O; read after the files were dropped.
    Cold,
    /// Buffered I/O; read after every page was read.
    Warm,
}

/// A program and its settings.
#[derive(Clone, Debug)]
pub(super) enum Program {
    Hicache { engine: String, checksum: bool, cache: Cache },
    Harness { threads: u32 },
    Fio,
}

/// A program with the name that tables give it.
#[derive(Clone, Debug)]
pub(super) struct Contender {
    pub(super) name: String,
    program: Program,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { page_len, pages, batch } = self;
        let (size, unit) =
            if *page_len >= 1 << 20 { (page_len >> 20, "MiB") } else { (page_len >> 10, "KiB") };
        write!(f, "{pages} pages of {size} {unit}, batches of {batch}")
    }
}

impl Program {
    pub(super) fn hicache(engine: &str, checksum: bool, cache: Cache) -> Self {
        Self::Hicache { engine: engine.to_owned(), checksum, cache }
    }
}

impl Contender {
    pub(super) fn new(program: Program) -> Self {
        let name = match &program {
            Program::Hicache { engine, checksum, cache } => {
                let checksum = if *checksum { "" } else { ", no checksums" };
                let cache = match cache {
                    Cache::Direct => "",
                    Cache::Cold => ", buffered, cold",
                    Cache::Warm => ", buffered, warm",
                };
                format!("hicache, {engine}{checksum}{cache}")
            }
            Program::Harness { threads: 1 } => "1 plain thread".to_owned(),
            Program::Harness { threads } => format!("{threads} plain threads"),
            Program::Fio => "fio, one file".to_owned(),
        };
        Self { name, program }
    }

    /// Measures once, in the empty directory `dir`.
    pub(super) fn run(&self, tools: &Tools, load: &Load, dir: &Path) -> Result<Figures, String> {
        let dir = dir.to_str().ok_or("the directory's path is not UTF-8")?;
        let mut figures = Figures::default();
        for mut command in self.commands(tools, load, dir) {
            // Whatever a program leaves beside its files goes with them.
            let document = document(&self.name, command.current_dir(dir))?;
            match self.program {
                Program::Fio => figures.add_fio(&document),
                _ => figures.add(&document),
            }
        }
        Ok(figures)
    }

    /// The commands as a person types them.
    pub(super) fn lines(&self, tools: &Tools, load: &Load, dir: &str) -> Vec<String> {
        self.commands(tools, load, dir).iter().map(line).collect()
    }

    fn commands(&self, tools: &Tools, load: &Load, dir: &str) -> Vec<Command> {
        let (page_len, pages, batch) =
            (load.page_len.to_string(), load.pages.to_string(), load.batch.to_string());
        let shape = ["--dir", dir, "--page-bytes", &page_len, "--pages", &pages, "--batch", &batch];
        match &self.program {
            Program::Hicache { engine, checksum, cache } => {
                let mut command = Command::new(&tools.hicache);
                command.args(["bench", "file", "--json", "--quiet", "--format", "files"]).args(shape);
                command.args(["--engine", engine, "--memory", tools.memory.name()]);
                command.args(["--checksum", if *checksum { "on" } else { "off" }]);
                command.args(["--direct", if *cache == Cache::Direct { "on" } else { "off" }]);
                if *cache == Cache::Warm {
                    command.args(["--cache", "warm"]);
                }
                if let Some(depth) = tools.depth.filter(|_| tools.has_depth && engine == "io_uring") {
                    command.args(["--depth", &depth.to_string()]);
                }
                vec![command]
            }
            Program::Harness { threads } => {
                let mut command = Command::new(&tools.harness);
                command.args(shape).args([
                    "--threads",
                    &threads.to_string(),
                    "--memory",
                    tools.memory.name(),
                ]);
                vec![command]
            }
            Program::Fio => vec![fio(tools, load, dir, "write"), fio(tools, load, dir, "read")],
        }
    }
}

/// One file, written from its start to its end, and read likewise.
fn fio(tools: &Tools, load: &Load, dir: &str, direction: &str) -> Command {
    let mut command = Command::new("fio");
    // The directory holds for file names after it only; one before it lies in the current directory.
    command.args(["--name=pages", &format!("--directory={dir}"), "--filename=data"]);
    command.args(["--ioengine=io_uring", "--direct=1"]);
    command.arg(format!("--rw={direction}")).arg(format!("--bs={}", load.page_len));
    command
        .arg(format!("--size={}", load.page_len * load.pages))
        .arg(format!("--iodepth={}", tools.fio_depth()));
    match tools.memory {
        Memory::Huge => command.arg("--mem=mmaphuge"),
        // glibc then advises large blocks to be huge pages; the alignment lets the kernel do so.
        Memory::Thp => {
            command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1").args(["--mem=malloc", "--iomem_align=2m"])
        }
        Memory::Base => command.arg("--mem=mmap"),
    };
    if tools.fixed {
        command.args(["--fixedbufs=1", "--registerfiles=1"]);
    }
    command.arg("--output-format=json");
    command
}

/// What the command of the contender `name` prints.
pub(super) fn document(name: &str, command: &mut Command) -> Result<Value, String> {
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("`{}` failed ({}): {said}", line(command), output.status));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("`{}` did not print JSON: {error}", line(command)))
}

/// The command as a line of a shell: the program by its name, with the variables that it is given.
pub(super) fn line(command: &Command) -> String {
    let mut words: Vec<String> = Vec::new();
    for (name, value) in command.get_envs() {
        let value = value.map(|value| value.to_string_lossy().into_owned()).unwrap_or_default();
        words.push(format!("{}={value}", name.to_string_lossy()));
    }
    let program = Path::new(command.get_program());
    words.push(program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned());
    words.extend(command.get_args().map(|argument| argument.to_string_lossy().into_owned()));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_writes_outside_the_directory_given() {
        let tools = Tools::of(Memory::Thp);
        let load = Load { page_len: 4096, pages: 1, batch: 1 };
        for program in
            [Program::hicache("threads", true, Cache::Warm), Program::Harness { threads: 1 }, Program::Fio]
        {
            for line in Contender::new(program).lines(&tools, &load, "DIR") {
                let named = if line.contains("fio ") { "--directory=DIR --filename=" } else { "--dir DIR" };
                assert!(line.contains(named), "{line}");
            }
        }
    }
}
