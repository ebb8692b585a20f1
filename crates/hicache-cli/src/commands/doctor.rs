//! `hicache doctor`: what this machine and a directory allow.

use crate::args::Place;
use crate::failure::{Ending, Failure, Result};
use crate::output::Output;
use crate::session;
use hicache::{Machine, Opener};
use serde::Serialize;
use serde_json::json;
use std::borrow::Cow;
use std::path::{Path, PathBuf};

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
    /// Of a tier, `second.writable`.
    name: Cow<'static, str>,
    ok: bool,
    found: String,
    wanted: String,
    fix: String,
}

/// A store to look at, which may be one of those that another is made of.
#[cfg_attr(
    not(feature = "obj"),
    allow(dead_code, reason = "only a bucket is asked with its URL and options")
)]
struct Looked {
    tier: Option<&'static str>,
    /// Without secrets.
    shown: String,
    url: String,
    options: hicache::StoreOptions,
    /// The directory that a file store would use; `None` for other stores.
    folder: Option<PathBuf>,
}

impl Check {
    /// What is as wanted needs no fix.
    fn new(name: &'static str, ok: bool, found: String, wanted: String, fix: String) -> Self {
        Self { name: name.into(), ok, found, wanted, fix: if ok { String::new() } else { fix } }
    }
}

pub(crate) fn run(place: &Place, output: &mut Output) -> Result {
    let (opener, url) = session::named(place, session::Absent::Refuse)?;
    let url = url.map_or_else(|| opener.url(), |url| Ok(Some(url)))?;
    let stores = match url {
        Some(url) => looked_at(&opener, url)?,
        None => vec![Looked::at(&opener, None, session::default_url()?, opener.options("file:")?)?],
    };
    let mut rows: Vec<Vec<Check>> = stores.iter().map(|_| Vec::new()).collect();
    let mut of_machine = Vec::new();
    for (store, checks) in stores.iter().zip(&mut rows) {
        if let Some(folder) = store.nearest() {
            directory::files(folder, checks);
            directory::space(folder, checks);
        }
        #[cfg(feature = "obj")]
        service::rows(&opener, store, checks)?;
        if let Some(tier) = store.tier {
            checks.iter_mut().for_each(|check| check.name = format!("{tier}.{}", check.name).into());
        }
    }
    #[cfg(feature = "file")]
    rings::rows(&mut of_machine);
    memory::rows(&Machine::default(), &mut of_machine);
    limits::rows(&mut of_machine);
    if output.is_json() {
        let checks: Vec<Check> = rows.into_iter().flatten().chain(of_machine).collect();
        output.document(&json!({ "checks": checks }))?;
        return Ok(Ending::Done);
    }
    let width = rows.iter().flatten().chain(&of_machine).map(|check| check.name.len()).max().unwrap_or(0);
    for (store, checks) in stores.iter().zip(rows) {
        if let Some(tier) = store.tier {
            output.line(format_args!("{tier} tier {}", store.shown))?;
        }
        if let (Some(wanted), Some(folder)) = (&store.folder, store.nearest()) {
            output.line(if wanted == folder {
                format!("directory {}", folder.display())
            } else {
                format!("nearest existing directory {} (for {})", folder.display(), wanted.display())
            })?;
        }
        print(checks, width, output)?;
    }
    if stores.iter().any(|store| store.tier.is_some()) {
        output.line("this machine")?;
    }
    print(of_machine, width, output)?;
    Ok(Ending::Done)
}

/// With names `width` wide.
fn print(checks: Vec<Check>, width: usize, output: &mut Output) -> Result<()> {
    for check in checks {
        let mark = if check.ok { "ok  " } else { "MISS" };
        let Check { name, found, wanted, fix, .. } = &check;
        output.line(format_args!("{mark} {name:<width$} {found} (wanted: {wanted})"))?;
        if !check.ok {
            output.line(format_args!("     {:<width$} fix: {fix}", ""))?;
        }
    }
    Ok(())
}

/// The store at `url`, or those that it is made of: each as if it were given alone.
fn looked_at(opener: &Opener, url: String) -> Result<Vec<Looked>> {
    let tiers = opener.tiers(&url)?;
    if tiers.is_empty() {
        let options = opener.options(&url)?;
        return Ok(vec![Looked::at(opener, None, url, options)?]);
    }
    opener.check(&url)?;
    tiers.into_iter().map(|tier| Looked::at(opener, Some(tier.name), tier.url, tier.options)).collect()
}

impl Looked {
    fn at(
        opener: &Opener,
        tier: Option<&'static str>,
        url: String,
        options: hicache::StoreOptions,
    ) -> Result<Self> {
        let folder = session::folder_of(&url)?.map(|folder| {
            std::path::absolute(&folder).map_err(Failure::file(format!("look at {}", folder.display())))
        });
        Ok(Self { tier, shown: opener.registry.redact(&url), folder: folder.transpose()?, url, options })
    }

    /// What is there of its directory.
    fn nearest(&self) -> Option<&Path> {
        self.folder.as_ref()?.ancestors().find(|folder| folder.exists())
    }
}
