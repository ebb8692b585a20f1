//! `hicache put`, `get`, `exists`, `remove`: single pages, by hand.

use crate::args::{Get, Keys, Put};
use crate::failure::{Ending, Failure, Result};
use crate::output::{self, Output};
use crate::report::Count;
use crate::session::{Absent, Session};
use hicache::{
    Call, Namespace, Page, PageKey, PageLayout, Stats, StorageBackendExt, Stored, memory_available,
};
use serde_json::json;
use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Standard input or output, where a file is named.
const STANDARD: &str = "-";
/// The largest page where the machine does not say how much memory it has, in bytes.
const LEN_MAX: u64 = 1 << 30;
/// How many symbolic links to a file are followed: as many as the kernel does.
const LINKS_MAX: usize = 40;

pub(crate) fn put(args: &Put, output: &mut Output) -> Result {
    let bytes = read(&args.file)?;
    let name = args.file.display();
    if bytes.is_empty() {
        return Err(Failure::Usage(format!("{name} is empty; a page has at least 1 byte")));
    }
    let mut session = Session::open(&args.place, Absent::Make)?;
    let url = session.url();
    let stored = session.run(|session| {
        let namespace = match session.namespace(&args.namespace)? {
            Some(namespace) => namespace,
            None => Namespace::named(&args.namespace, PageLayout::opaque(bytes.len())?)?,
        };
        let page_len = namespace.layout().page_len();
        if page_len != bytes.len() {
            return Err(Failure::Usage(format!(
                "{name} has {} bytes, and pages of namespace {:?} have {page_len}; name another --namespace",
                bytes.len(),
                args.namespace
            )));
        }
        let layout = *namespace.layout();
        let backend = session.backend(namespace)?;
        let mut page = session.one_page(&layout, &*backend)?;
        for (plane, piece) in (0..).zip(bytes.chunks(layout.piece_len())) {
            page.piece_mut(plane).copy_from(0, piece);
        }
        let put = hicache::Put { key: args.key, parent: args.parent, page: page.freeze() };
        let stored = backend.set(put).wait()?;
        if session.is_memory() && !output.is_quiet() {
            output::note("note: memory: forgets the page when this command ends");
        }
        Ok(stored)
    })?;
    let (stored, place) = match stored {
        Stored::Written => ("written", "to"),
        Stored::Present => ("present", "in"),
    };
    if output.is_json() {
        output.document(&json!({ "stored": stored }))?;
    } else if output.is_quiet() {
        output.line(stored)?;
    } else {
        output.line(format_args!("{stored} {place} namespace {:?} of {url}", args.namespace))?;
    }
    Ok(Ending::Done)
}

pub(crate) fn get(args: &Get, output: &mut Output) -> Result {
    let to_standard = args.file.as_os_str() == STANDARD;
    if to_standard && output.is_json() {
        return Err(Failure::Usage(
            "--json and the page cannot both go to standard output; name a file".to_owned(),
        ));
    }
    let mut session = Session::open(&args.place, Absent::Refuse)?;
    let url = session.url();
    let mut missing =
        format!("not found: namespace {:?} of {url} has no such page {}", args.namespace, args.key);
    let len = session.run(|session| {
        let Some(namespace) = session.namespace(&args.namespace)? else { return Ok(None) };
        let layout = *namespace.layout();
        let backend = session.backend(namespace)?;
        let into = session.one_page(&layout, &*backend)?;
        let Some(page) = backend.get(args.key, into).wait()? else {
            if let Some(why) = why_none(&backend.stats(), &args.key) {
                missing = why;
            }
            return Ok(None);
        };
        if to_standard {
            pieces(&page).try_for_each(|piece| output.bytes(piece))?;
            output.finish()?;
        } else {
            write(&args.file, &page).map_err(Failure::file(format!("write {}", args.file.display())))?;
        }
        Ok(Some(page.len()))
    })?;
    if output.is_json() {
        output.document(&json!({ "found": len.is_some(), "bytes": len.unwrap_or(0) }))?;
    } else if let Some(len) = len.filter(|_| !to_standard) {
        let len = Count(len as u64, "byte");
        if output.is_quiet() {
            output.line(len)?;
        } else {
            output.line(format_args!("{len} from namespace {:?} of {url}", args.namespace))?;
        }
    }
    if len.is_none() {
        output::note(missing);
        return Ok(Ending::Failed);
    }
    Ok(Ending::Done)
}

/// Why a page that is there is not served, by what the one get has counted.
fn why_none(stats: &Stats, key: &PageKey) -> Option<String> {
    if stats.damaged > 0 {
        return Some(format!(
            "damaged: page {key} failed its check; it is set aside where the store can do that, else hicache verify \
             --repair removes it; then a put stores it anew"
        ));
    }
    (stats.unverified > 0).then(|| {
        format!(
            "unverified: page {key} is there, but carries no check of hicache's; accept_unverified=true, in the URL \
             say, serves it as it is"
        )
    })
}

pub(crate) fn exists(args: &Keys, output: &mut Output) -> Result {
    let mut session = Session::open(&args.place, Absent::Refuse)?;
    let url = session.url();
    let there = session.run(|session| match session.namespace(&args.namespace)? {
        None => Ok(vec![false; args.keys.len()]),
        Some(namespace) => {
            let outcomes = session.backend(namespace)?.batch_exists(&args.keys, Call::default()).wait();
            Ok(outcomes.into_iter().collect::<hicache::Result<Vec<bool>>>()?)
        }
    })?;
    if output.is_json() {
        let prefix = there.iter().take_while(|there| **there).count();
        output.document(&json!({ "exists": there, "prefix": prefix }))?;
    } else {
        if !output.is_quiet() {
            output
                .line(format_args!("store {url} (key, whether it is in namespace {:?})", args.namespace))?;
        }
        for (key, there) in args.keys.iter().zip(there) {
            output.line(format_args!("{key} {}", if there { "yes" } else { "no" }))?;
        }
    }
    Ok(Ending::Done)
}

pub(crate) fn remove(args: &Keys, output: &mut Output) -> Result {
    let mut session = Session::open(&args.place, Absent::Refuse)?;
    let url = session.url();
    let removed = session.run(|session| match session.namespace(&args.namespace)? {
        None => session.check_whole().map(|()| 0),
        Some(namespace) => {
            let outcomes = session.backend(namespace)?.batch_remove(&args.keys, Call::default()).wait();
            let removed = outcomes.into_iter().collect::<hicache::Result<Vec<bool>>>()?;
            Ok(removed.into_iter().filter(|removed| *removed).count())
        }
    })?;
    if output.is_json() {
        output.document(&json!({ "removed": removed }))?;
    } else {
        let (asked, namespace) = (args.keys.len(), &args.namespace);
        output.line(format_args!("{removed} of {asked} removed from namespace {namespace:?} of {url}"))?;
    }
    Ok(Ending::Done)
}

/// A whole file, no larger than a page can be here.
fn read(path: &Path) -> Result<Vec<u8>> {
    let len_max = memory_available().map_or(LEN_MAX, |available| available / 4);
    let mut bytes = Vec::new();
    let read = if path.as_os_str() == STANDARD {
        io::stdin().take(len_max + 1).read_to_end(&mut bytes)
    } else {
        let opened = File::open(path);
        let file = opened.map_err(|error| Failure::Usage(format!("read {}: {error}", path.display())))?;
        file.take(len_max + 1).read_to_end(&mut bytes)
    };
    read.map_err(Failure::file(format!("read {}", path.display())))?;
    if bytes.len() as u64 > len_max {
        return Err(Failure::Usage(format!(
            "{} is larger than a quarter of the available memory",
            path.display()
        )));
    }
    Ok(bytes)
}

/// Writes a file that appears whole or not at all, with the mode of the one that it replaces. What is no regular file
/// (a pipe, a device) is written as it is.
fn write(path: &Path, page: &Page) -> io::Result<()> {
    let there = match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        there => Some(there?),
    };
    if there.as_ref().is_some_and(|there| !there.is_file()) {
        let mut file = File::options().write(true).open(path)?;
        return pieces(page).try_for_each(|piece| file.write_all(piece));
    }
    // The file behind a symbolic link is replaced or made, not the link.
    let path = if there.is_some() { path.canonicalize()? } else { end_of_links(path)? };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let kept = there.map(|there| Permissions::from_mode(there.mode() & 0o777));
    // Of a new one less what the umask takes, as for any new file.
    let mode = kept.clone().unwrap_or_else(|| Permissions::from_mode(0o666));
    let mut file = tempfile::Builder::new().prefix(".hicache-get-").permissions(mode).tempfile_in(folder)?;
    if let Some(kept) = kept {
        file.as_file().set_permissions(kept)?;
    }
    pieces(page).try_for_each(|piece| file.write_all(piece))?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// The path at the end of symbolic links that lead to no file.
fn end_of_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match std::fs::read_link(&path) {
            Ok(next) => path = path.parent().unwrap_or(Path::new("")).join(next),
            // It is no link, or not there.
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotFound) => {
                return Ok(path);
            }
            Err(error) => return Err(error),
        }
    }
    Err(rustix::io::Errno::LOOP.into())
}

fn pieces(page: &Page) -> impl Iterator<Item = &[u8]> {
    (0..page.planes()).map(|plane| page.bytes(plane).expect("the pool's memory is private"))
}
