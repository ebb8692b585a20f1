//! `hicache doctor`: what this machine and a directory allow.

use crate::args::Place;
use crate::failure::{Ending, Failure, Result};
use crate::output::Output;
use crate::session;
#[cfg(feature = "file")]
use hicache::file::FileOptions;
use hicache::{CommonOptions, Machine, Opener};
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
    /// Nobody asked for it: it is told, and cannot be missed.
    #[serde(skip)]
    unasked: bool,
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
    /// The directories that a file store would use, in their order; none of other stores.
    folders: Vec<Folder>,
}

/// A directory of a file store.
struct Folder {
    /// Absolute.
    path: PathBuf,
    /// Of further ones, what their rows' names begin with: `dir1.`.
    prefix: String,
}

impl Check {
    /// What is as wanted needs no fix.
    fn new(name: &'static str, ok: bool, found: String, wanted: String, fix: String) -> Self {
        let fix = if ok { String::new() } else { fix };
        Self { name: name.into(), ok, found, wanted, fix, unasked: false }
    }

    /// What nobody asked for, by `option`.
    fn unasked(name: &'static str, found: String, option: &str) -> Self {
        let wanted = format!("nothing: the option {option} does not ask for it");
        Self { unasked: true, ..Self::new(name, true, found, wanted, String::new()) }
    }
}

pub(crate) fn run(place: &Place, output: &mut Output) -> Result {
    let (opener, url) = session::named(place, session::Absent::Refuse)?;
    let url = url.map_or_else(|| opener.url(), |url| Ok(Some(url)))?;
    let stores = match url {
        Some(url) => looked_at(&opener, url)?,
        None => vec![Looked::at(&opener, None, session::default_url()?, opener.options("file:")?)?],
    };
    let mut asked = Vec::new();
    for store in &stores {
        asked.push(CommonOptions::take(&mut store.options.clone())?.huge_pages);
    }
    let rows = stores.iter().map(|store| store.rows(&opener)).collect::<Result<Vec<Rows>>>()?;
    let mut of_machine = Vec::new();
    #[cfg(feature = "file")]
    rings::rows(&mut of_machine);
    memory::rows(&Machine::default(), &asked, &mut of_machine);
    limits::rows(&mut of_machine);
    if output.is_json() {
        let of_stores = rows.into_iter().flatten().flat_map(|(_, checks)| checks);
        let checks: Vec<Check> = of_stores.chain(of_machine).collect();
        output.document(&json!({ "checks": checks }))?;
        return Ok(Ending::Done);
    }
    let of_stores = rows.iter().flatten().flat_map(|(_, checks)| checks);
    let width = of_stores.chain(&of_machine).map(|check| check.name.len()).max().unwrap_or(0);
    for (store, rows) in stores.iter().zip(rows) {
        if let Some(tier) = store.tier {
            output.line(format_args!("{tier} tier {}", store.shown))?;
        }
        for (heading, checks) in rows {
            if let Some(heading) = heading {
                output.line(heading)?;
            }
            print(checks, width, output)?;
        }
    }
    if stores.iter().any(|store| store.tier.is_some()) {
        output.line("this machine")?;
    }
    print(of_machine, width, output)?;
    Ok(Ending::Done)
}

/// The rows of a store, those of each of its directories under a heading.
type Rows = Vec<(Option<String>, Vec<Check>)>;

/// With names `width` wide.
fn print(checks: Vec<Check>, width: usize, output: &mut Output) -> Result<()> {
    for check in checks {
        let mark = match (check.ok, check.unasked) {
            (true, true) => "info",
            (true, false) => "ok  ",
            (false, _) => "MISS",
        };
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
    opener.check_place(&url)?;
    let tiers = opener.tiers(&url)?;
    if tiers.is_empty() {
        let options = opener.options(&url)?;
        return Ok(vec![Looked::at(opener, None, url, options)?]);
    }
    tiers.into_iter().map(|tier| Looked::at(opener, Some(tier.name), tier.url, tier.options)).collect()
}

impl Looked {
    fn at(
        opener: &Opener,
        tier: Option<&'static str>,
        url: String,
        options: hicache::StoreOptions,
    ) -> Result<Self> {
        let mut folders: Vec<Folder> = Vec::new();
        if let Some(first) = session::folder_of(&url)? {
            folders.push(Folder::new(&first, String::new())?);
            #[cfg(feature = "file")]
            for (further, number) in FileOptions::from_options(options.clone())?.dirs.iter().zip(1..) {
                folders.push(Folder::new(further, format!("dir{number}."))?);
            }
        }
        Ok(Self { tier, shown: opener.registry.redact(&url), folders, url, options })
    }

    /// What is found of it.
    #[cfg_attr(
        not(all(feature = "file", feature = "obj")),
        allow(unused_variables, reason = "each kind of store is asked for something of its own")
    )]
    fn rows(&self, opener: &Opener) -> Result<Rows> {
        let mut rows: Rows = Vec::new();
        for (index, folder) in self.folders.iter().enumerate() {
            let mut checks = Vec::new();
            #[cfg(feature = "file")]
            checks.extend(directory::store(&self.folders, index));
            if let Some(nearest) = folder.nearest() {
                directory::files(nearest, &mut checks);
                directory::space(nearest, &mut checks);
            }
            checks
                .iter_mut()
                .for_each(|check| check.name = format!("{}{}", folder.prefix, check.name).into());
            rows.push((folder.heading(), checks));
        }
        #[cfg(feature = "obj")]
        {
            let mut checks = Vec::new();
            service::rows(opener, self, &mut checks)?;
            rows.push((None, checks));
        }
        if let Some(tier) = self.tier {
            let checks = rows.iter_mut().flat_map(|(_, checks)| checks);
            checks.for_each(|check| check.name = format!("{tier}.{}", check.name).into());
        }
        Ok(rows)
    }
}

impl Folder {
    fn new(path: &Path, prefix: String) -> Result<Self> {
        let absolute = std::path::absolute(path);
        let path = absolute.map_err(Failure::file(format!("look at {}", path.display())))?;
        Ok(Self { path, prefix })
    }

    /// What is there of it.
    fn nearest(&self) -> Option<&Path> {
        self.path.ancestors().find(|folder| folder.exists())
    }

    fn heading(&self) -> Option<String> {
        let (wanted, nearest) = (self.path.display(), self.nearest()?);
        Some(if nearest == self.path {
            format!("directory {wanted}")
        } else {
            format!("nearest existing directory {} (for {wanted})", nearest.display())
        })
    }
}
