//! `hicache doctor`: what this machine and a directory allow.

use crate::args::Place;
use crate::failure::{Ending, Failure, Result};
use crate::output::Output;
use crate::session;
use hicache::Machine;
use serde::Serialize;
use serde_json::json;
use std::path::PathBuf;

mod directory;
mod limits;
mod memory;
#[cfg(feature = "file")]
mod rings;
#[cfg(feature = "obj")]
mod service;

/// One row: what was looked at, whether it is as wanted, and what makes it so.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    ok: bool,
    found: String,
    wanted: String,
    fix: String,
}

impl Check {
    /// What is as wanted needs no fix.
    fn new(name: &'static str, ok: bool, found: String, wanted: String, fix: String) -> Self {
        Self { name, ok, found, wanted, fix: if ok { String::new() } else { fix } }
    }
}

pub(crate) fn run(place: &Place, output: &mut Output) -> Result {
    let wanted = wanted_folder(place)?;
    let folder = wanted.as_ref().and_then(|wanted| wanted.ancestors().find(|folder| folder.is_dir()));
    let mut checks = Vec::new();
    if let Some(folder) = folder {
        directory::files(folder, &mut checks);
    }
    #[cfg(feature = "file")]
    rings::rows(&mut checks);
    memory::rows(&Machine::default(), &mut checks);
    limits::rows(&mut checks);
    if let Some(folder) = folder {
        directory::space(folder, &mut checks);
    }
    #[cfg(feature = "obj")]
    service::rows(place, &mut checks)?;
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
