//! The walk over what is stored, for operators: list, stat, verify, repair.

use crate::backend::View;
use crate::fail::unreadable;
use crate::page_file::PageFiles;
use crate::record;
use crate::root::{BAD, NAMESPACES, Root, namespace_folder};
use crate::slot::Slot;
use crate::standing::{BY_HAND, Standing};
use crate::store::Files;
use crate::trailer::Flaw;
use hicache_core::{Depth, Digest, Found, Namespace, PageKey, Result, Scan, State, Visitor};
use rustix::fs::{FileType, Stat};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

const NOT_OURS: &str = "not of this store";

/// The namespaces that have a folder here.
pub(crate) fn namespace_digests(root: &Root) -> Result<Vec<Digest>> {
    let names = match root.sys().names(root.dir(), NAMESPACES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        names => names.map_err(|error| root.failed("list namespaces", NAMESPACES, error))?,
    };
    let digest = |name: &String| name.parse::<Digest>().ok().filter(|digest| digest.to_string() == *name);
    Ok(names.iter().filter_map(digest).collect())
}

/// Pages in a namespace's folder that has been moved out of sight.
pub(crate) fn count_pages(root: &Root, folder: &str) -> u64 {
    let names = |folder: &str| root.sys().names(root.dir(), folder).unwrap_or_default();
    let pages = |bucket: &String| {
        let names = names(&format!("{folder}/{bucket}"));
        names.iter().filter(|name| name.parse::<PageKey>().is_ok()).count() as u64
    };
    names(folder).iter().map(pages).sum()
}

/// Hands every find to `visitor`, until it breaks.
pub(crate) fn walk(files: &Arc<Files>, scan: &Scan, slot: &mut Slot, mut visitor: Visitor) -> Result<()> {
    for (index, root) in files.roots.iter().enumerate() {
        for digest in namespace_digests(root)? {
            if scan.namespace.is_some_and(|wanted| wanted != digest) {
                continue;
            }
            let folder = namespace_folder(digest);
            let flow = match root.read_namespace(digest) {
                Ok(Ok(namespace)) => {
                    let name = namespace.name().into();
                    let view = View::new(Arc::clone(files), namespace, None);
                    let files = view.at(index);
                    Walk { scan, root, files, name, slot, visitor: &mut visitor }.namespace(&folder)
                }
                record => recordless(root, scan, digest, &folder, record, &mut visitor),
            };
            if flow.is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// A namespace's folder whose record says nothing. Repair sets a damaged record aside, so that a set makes it anew.
fn recordless(
    root: &Root,
    scan: &Scan,
    digest: Digest,
    folder: &str,
    record: io::Result<std::result::Result<Namespace, String>>,
    visitor: &mut Visitor,
) -> ControlFlow<()> {
    let path = format!("{folder}/{}", record::NAMESPACE);
    let mut repaired = false;
    let state = match record {
        Ok(Err(why)) => {
            let aside = format!("{path}{BAD}record");
            repaired = scan.repair && root.sys().rename_to_own(root.dir(), &path, &aside).is_ok();
            State::Wrong(format!("the namespace's record is damaged: {why}"))
        }
        // A cleared namespace, or one whose first set found no room: nothing is lost with an empty folder.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if root.sys().remove_dir(root.dir(), folder).is_ok() {
                return ControlFlow::Continue(());
            }
            State::Orphan("a folder without a namespace's record".to_string())
        }
        Err(error) => State::Unreadable(error.to_string()),
        Ok(Ok(_)) => return ControlFlow::Continue(()),
    };
    let place = root.path().join(path).display().to_string();
    let mut find = Found::new(place, digest.to_string().into(), state);
    find.repaired = repaired;
    visitor(find)
}

struct Walk<'a> {
    scan: &'a Scan,
    root: &'a Root,
    files: PageFiles<'a>,
    /// Of the namespace.
    name: Arc<str>,
    slot: &'a mut Slot,
    visitor: &'a mut Visitor,
}

impl Walk<'_> {
    fn namespace(&mut self, folder: &str) -> ControlFlow<()> {
        for bucket in self.names(folder)? {
            if bucket == record::NAMESPACE {
                continue;
            }
            let path = format!("{folder}/{bucket}");
            if bucket.len() == 2 && u8::from_str_radix(&bucket, 16).is_ok() {
                self.bucket(&path, &bucket)?;
            } else {
                self.tell(&path, State::Orphan(NOT_OURS.to_string()))?;
            }
        }
        ControlFlow::Continue(())
    }

    fn bucket(&mut self, folder: &str, bucket: &str) -> ControlFlow<()> {
        for entry in self.names(folder)? {
            let path = format!("{folder}/{entry}");
            let (stem, bad) = entry.split_once(BAD).map_or((entry.as_str(), false), |(stem, _)| (stem, true));
            let key = stem.parse::<PageKey>().ok();
            match key.filter(|key| key.to_string() == stem && stem.starts_with(bucket)) {
                Some(key) => self.page(&path, key, bad)?,
                None => self.tell(&path, State::Orphan(NOT_OURS.to_string()))?,
            }
        }
        ControlFlow::Continue(())
    }

    /// The names in a folder: none if it has gone meanwhile, and none but a find if it cannot be read.
    fn names(&mut self, folder: &str) -> ControlFlow<(), Vec<String>> {
        match self.root.sys().names(self.root.dir(), folder) {
            Ok(names) => ControlFlow::Continue(names),
            Err(error) if error.kind() == io::ErrorKind::NotFound => ControlFlow::Continue(Vec::new()),
            Err(error) => {
                let state = match error.raw_os_error() {
                    Some(libc::ENOTDIR | libc::ELOOP) => State::Orphan(NOT_OURS.to_string()),
                    _ => unreadable(&error),
                };
                self.tell(folder, state)?;
                ControlFlow::Continue(Vec::new())
            }
        }
    }

    fn tell(&mut self, path: &str, state: State) -> ControlFlow<()> {
        let place = self.root.path().join(path).display().to_string();
        (self.visitor)(Found::new(place, Arc::clone(&self.name), state))
    }

    /// What stands at a page's name, or at the name that a damaged page is set aside under.
    fn page(&mut self, path: &str, key: PageKey, bad: bool) -> ControlFlow<()> {
        let (sys, dir) = (self.root.sys(), self.root.dir());
        let stat = match sys.stat(dir, path) {
            Ok(stat) => stat,
            // Gone meanwhile, as below: nothing to tell.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return ControlFlow::Continue(()),
            Err(error) => {
                let place = self.root.path().join(path).display().to_string();
                let state = State::Unreadable(error.to_string());
                let mut find = Found::new(place, Arc::clone(&self.name), state);
                find.key = Some(key);
                return (self.visitor)(find);
            }
        };
        let (state, repaired) = if bad {
            let why = match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {
                    format!("a directory that stood in a page's place and was set aside; {BY_HAND}")
                }
                _ => "it failed its check before and was set aside".to_string(),
            };
            (State::Wrong(why), self.scan.repair && sys.unlink(dir, path).is_ok())
        } else {
            match self.judge(path, &key, &stat) {
                Standing::Nothing => return ControlFlow::Continue(()),
                Standing::Listed => (State::Listed, false),
                Standing::Sound(trailer) if trailer.checksum.is_some() => (State::Sound, false),
                Standing::Sound(_) => (State::Unverified, false),
                Standing::Flawed(flaw, seen) => {
                    let state = state_of(flaw.clone());
                    let flawed = matches!(state, State::Wrong(_) | State::Torn(_));
                    (state, flawed && self.scan.repair && self.files.discard(path, &seen, &flaw).is_ok())
                }
                Standing::Unreadable(error) => (unreadable(&error), false),
            }
        };
        let mut find =
            Found::new(self.root.path().join(path).display().to_string(), Arc::clone(&self.name), state);
        let is_page = matches!(find.state, State::Listed | State::Sound | State::Unverified);
        find.key = Some(key);
        find.len =
            if is_page { self.files.namespace.layout().page_len() as u64 } else { stat.st_size as u64 };
        let since = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
        find.written = UNIX_EPOCH.checked_add(since);
        find.repaired = repaired;
        (self.visitor)(find)
    }

    fn judge(&mut self, path: &str, key: &PageKey, stat: &Stat) -> Standing {
        if self.scan.depth == Depth::Contents {
            return self.files.look(path, Some(key), self.slot).unwrap_or_else(Standing::Unreadable);
        }
        match self.files.flaw_of(stat) {
            None => Standing::Listed,
            Some(Flaw::Torn(_)) if self.files.is_foreign(path, stat) => {
                Standing::Flawed(Flaw::Foreign, *stat)
            }
            Some(flaw) => Standing::Flawed(flaw, *stat),
        }
    }
}

fn state_of(flaw: Flaw) -> State {
    match flaw {
        Flaw::Torn(why) => State::Torn(why),
        Flaw::Wrong(why) => State::Wrong(why),
        Flaw::Unverified => State::Unverified,
        Flaw::Foreign => State::Orphan("a page of a layout that the namespace does not have".to_string()),
    }
}
