//! `hicache doctor`: what this machine and a directory allow.

use crate::args::Place;
use crate::failure::{Ending, Failure, Result};
use crate::output::Output;
use crate::report::Size;
use crate::session;
use hicache::{Alignment, AllocError, HostPool, PageMut, RegionSpec, Strides};
use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::process::Resource;
use serde::Serialize;
use serde_json::json;
use std::fs::{File, read_to_string};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const HUGE_PAGES_2MB: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
const TRANSPARENT: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// Pages of 2 MiB that the default pool of `demo` and the slots of a store take.
const HUGE_PAGES_WANTED: u64 = 64;
const FILES_WANTED: u64 = 4096;
/// Nothing pins memory by default; the kernel's own default is at least this.
const MEMLOCK_WANTED: u64 = 64 << 10;
const SPACE_WANTED: u64 = 10 << 30;
const INODES_WANTED: u64 = 100_000;

/// One row: what was looked at, whether it is as wanted, and what makes it so.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    ok: bool,
    found: String,
    wanted: String,
    fix: String,
}

pub(crate) fn run(place: &Place, output: &mut Output) -> Result {
    let wanted = wanted_folder(place)?;
    let folder = wanted.as_ref().and_then(|wanted| wanted.ancestors().find(|folder| folder.is_dir()));
    let mut checks = Vec::new();
    if let Some(folder) = folder {
        files(folder, &mut checks);
    }
    memory(&mut checks);
    limits(&mut checks);
    if let Some(folder) = folder {
        space(folder, &mut checks);
    }
    if output.is_json() {
        output.document(&json!({ "checks": checks }))?;
        return Ok(Ending::Done);
    }
    if let (Some(wanted), Some(folder)) = (&wanted, folder) {
        output.line(if wanted == folder {
            format!("directory {}", folder.display())
        } else {
            format!("nearest existing directory {} (for {})", folder.display(), wanted.display())
        })?;
    }
    for check in checks {
        let mark = if check.ok { "ok  " } else { "MISS" };
        let Check { name, found, wanted, fix, .. } = &check;
        output.line(format_args!("{mark} {name:<17} {found} (wanted: {wanted})"))?;
        if !check.ok {
            output.line(format_args!("     {:<17} fix: {fix}", ""))?;
        }
    }
    Ok(Ending::Done)
}

/// The directory that a file store would use; `None` for other stores.
fn wanted_folder(place: &Place) -> Result<Option<PathBuf>> {
    let wanted = match &session::named_url(place)? {
        Some(url) => match session::folder_of(url)? {
            Some(folder) => folder,
            None => return Ok(None),
        },
        None => session::default_folder()?,
    };
    let wanted =
        std::path::absolute(&wanted).map_err(Failure::file(format!("look at {}", wanted.display())))?;
    Ok(Some(wanted))
}

/// Asks a file that nobody sees and that goes with its descriptor, and writes to it.
fn files(folder: &Path, checks: &mut Vec<Check>) {
    let made = tempfile::tempfile_in(folder);
    checks.push(Check {
        name: "writable",
        ok: made.is_ok(),
        found: made
            .as_ref()
            .map_or_else(|error| format!("no file can be made there: {error}"), |_| "yes".to_owned()),
        wanted: "yes".to_owned(),
        fix: made.as_ref().map_or_else(|error| how_to_write(folder, error), |_| String::new()),
    });
    match made {
        Ok(file) => direct(&file, checks),
        Err(_) => checks.extend(DIRECT_CHECKS.map(|name| Check {
            name,
            ok: false,
            found: "not tried".to_owned(),
            wanted: "a file to try it on".to_owned(),
            fix: "first what fixes the row writable".to_owned(),
        })),
    }
}

/// What lets this user make files in a folder.
fn how_to_write(folder: &Path, error: &std::io::Error) -> String {
    let path = folder.display();
    match (error.kind(), folder.metadata()) {
        (ErrorKind::PermissionDenied, Ok(there)) => {
            let (owner, mode, user) =
                (there.uid(), there.mode() & 0o7777, rustix::process::geteuid().as_raw());
            let how = if owner == user { "chmod u+wx".to_owned() } else { format!("chown {user}") };
            format!(
                "{how} {path} (it belongs to user {owner} with mode {mode:o}, this is user {user}), or name another \
                 directory with --backend"
            )
        }
        (ErrorKind::ReadOnlyFilesystem, _) => {
            format!("mount the file system of {path} for writing, or name another directory with --backend")
        }
        _ => "name another directory with --backend".to_owned(),
    }
}

const DIRECT_CHECKS: [&str; 3] = ["o_direct", "dio_mem_align", "dio_offset_align"];

fn direct(file: &File, checks: &mut Vec<Check>) {
    let fix = "use a directory on ext4, xfs or a local NVMe; until then direct=false says that it is meant"
        .to_owned();
    let told = alignments(file);
    let refused = write_direct(file, told).err();
    let [o_direct, of_memory, of_offset] = DIRECT_CHECKS;
    checks.push(Check {
        name: o_direct,
        ok: refused.is_none(),
        found: refused.clone().unwrap_or_else(|| "works".to_owned()),
        wanted: "works".to_owned(),
        fix: if refused.is_none() { String::new() } else { fix.clone() },
    });
    let base_page = Alignment::base_page().bytes() as u32;
    let mut align = |name, value: Option<u32>| {
        let ok = refused.is_none() && value.is_none_or(|value| (1..=base_page).contains(&value));
        let found = match (refused.is_some(), value) {
            (true, _) => "none".to_owned(),
            (false, None) => "not told by this kernel (before 6.1) or file system".to_owned(),
            (false, Some(value)) => value.to_string(),
        };
        let fix = if ok { String::new() } else { fix.clone() };
        checks.push(Check { name, ok, found, wanted: format!("at most {base_page}"), fix });
    };
    align(of_memory, told.map(|(memory, _)| memory));
    align(of_offset, told.map(|(_, offset)| offset));
}

/// What direct transfers must be aligned to, of memory and in the file, where the kernel tells.
fn alignments(file: &File) -> Option<(u32, u32)> {
    let told = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let known = told.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    known.then_some((told.stx_dio_mem_align, told.stx_dio_offset_align))
}

/// One direct write: file systems say yes to the flag and no to the write.
fn write_direct(file: &File, told: Option<(u32, u32)>) -> Result<(), String> {
    if matches!(told, Some((0, _) | (_, 0))) {
        return Err("not supported by the file system".to_owned());
    }
    let refused = |error: rustix::io::Errno| format!("refused: {error}");
    rustix::fs::fcntl_setfl(file, OFlags::DIRECT).map_err(refused)?;
    let base_page = Alignment::base_page();
    let len = base_page.bytes().max(told.map_or(0, |(_, offset)| offset as usize));
    let page = || -> Result<PageMut, AllocError> {
        let strides = Strides::new(1, 1, len, base_page)?;
        let pool = HostPool::new(RegionSpec { len, ..RegionSpec::default() }.map()?, strides, &[])?;
        Ok(pool.alloc(1).expect("the pool is new and has one slot").remove(0))
    };
    let page = page().map_err(|error| error.to_string())?;
    let bytes = page.bytes(0).expect("the memory is private");
    match rustix::io::pwrite(file, bytes, 0).map_err(refused)? {
        written if written == len => Ok(()),
        written => Err(format!("{written} of {len} bytes were written")),
    }
}

fn memory(checks: &mut Vec<Check>) {
    let count =
        |name: &str| read_to_string(format!("{HUGE_PAGES_2MB}/{name}")).ok()?.trim().parse::<u64>().ok();
    let (total, free) = (count("nr_hugepages"), count("free_hugepages"));
    let ok = free.is_some_and(|free| free >= HUGE_PAGES_WANTED);
    let more = total.unwrap_or(0) + HUGE_PAGES_WANTED - free.unwrap_or(0).min(HUGE_PAGES_WANTED);
    checks.push(Check {
        name: "huge_pages_2mb",
        ok,
        found: match (free, total) {
            (Some(free), Some(total)) => format!("{free} free of {total}"),
            _ => "not offered by this kernel".to_owned(),
        },
        wanted: format!("{HUGE_PAGES_WANTED} free, or as many as the pools take"),
        fix: if ok { String::new() } else { format!("echo {more} > {HUGE_PAGES_2MB}/nr_hugepages") },
    });
    let text = read_to_string(TRANSPARENT).unwrap_or_default();
    let chosen = text.split(['[', ']']).nth(1).unwrap_or("not offered by this kernel");
    let ok = matches!(chosen, "always" | "madvise");
    checks.push(Check {
        name: "thp",
        ok,
        found: chosen.to_owned(),
        wanted: "madvise or always".to_owned(),
        fix: if ok { String::new() } else { format!("echo madvise > {TRANSPARENT}") },
    });
}

fn limits(checks: &mut Vec<Check>) {
    let mut limit = |name, resource, wanted: u64, wanted_text: &str, show: fn(u64) -> String, fix: &str| {
        let current = rustix::process::getrlimit(resource).current;
        let ok = current.is_none_or(|current| current >= wanted);
        checks.push(Check {
            name,
            ok,
            found: current.map_or_else(|| "unlimited".to_owned(), show),
            wanted: wanted_text.to_owned(),
            fix: if ok { String::new() } else { fix.to_owned() },
        });
    };
    let bytes = |len| Size(len).to_string();
    limit(
        "memlock",
        Resource::Memlock,
        MEMLOCK_WANTED,
        "64 KiB or more; as much as the pools, where devices pin them",
        bytes,
        "ulimit -l unlimited (or LimitMEMLOCK=infinity, memlock in limits.conf)",
    );
    let plain = |count: u64| count.to_string();
    let fix = "ulimit -n 65536 (or LimitNOFILE=65536, nofile in limits.conf)";
    limit("nofile", Resource::Nofile, FILES_WANTED, "4096 or more", plain, fix);
}

fn space(folder: &Path, checks: &mut Vec<Check>) {
    let told = rustix::fs::statvfs(folder);
    let mut check = |name, found: Result<u64, String>, wanted: u64, show: fn(u64) -> String, fix: &str| {
        let ok = found.as_ref().is_ok_and(|found| *found >= wanted);
        checks.push(Check {
            name,
            ok,
            found: found.map_or_else(|error| error, show),
            wanted: format!("{} or more", show(wanted)),
            fix: if ok { String::new() } else { fix.to_owned() },
        });
    };
    let bytes = |len| Size(len).to_string();
    let free = told.as_ref().map(|told| told.f_bavail * told.f_frsize).map_err(ToString::to_string);
    check("free_space", free, SPACE_WANTED, bytes, "free space there, or use a larger file system");
    // A file system that counts none has no limit.
    let inodes = told.as_ref().map(|told| if told.f_files == 0 { u64::MAX } else { told.f_favail });
    let plain = |count: u64| if count == u64::MAX { "no limit".to_owned() } else { count.to_string() };
    let fix = "remove files, or make the file system with more inodes";
    check("free_inodes", inodes.map_err(ToString::to_string), INODES_WANTED, plain, fix);
}
