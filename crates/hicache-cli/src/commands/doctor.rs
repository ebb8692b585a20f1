//! `hicache doctor`: what this machine and a directory allow.

use crate::args::Place;
use crate::failure::{Ending, Failure, Result};
use crate::output::{self, Output};
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
    for tier in tiers(place)?.iter().filter(|_| !output.is_quiet()) {
        output::note(format_args!("note: this tier was not looked at; for it: hicache doctor {tier}"));
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

/// The flags that name each store that the one of `place` is made of, without secrets.
fn tiers(place: &Place) -> Result<Vec<String>> {
    let (opener, url) = session::named(place, session::Absent::Refuse)?;
    let Some(url) = url.map_or_else(|| opener.url(), |url| Ok(Some(url)))? else { return Ok(Vec::new()) };
    let (factory, _) = opener.registry.factory(&url)?;
    if factory.stores.is_empty() {
        return Ok(Vec::new());
    }
    let options = opener.options(&url)?;
    let urls = factory.stores.iter().map(|spec| options.get(spec, |text| Ok(text.to_owned())));
    let urls = urls.collect::<hicache::Result<Vec<_>>>()?;
    Ok(urls.into_iter().flatten().map(|url| session::flags(&opener, &url)).collect())
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
