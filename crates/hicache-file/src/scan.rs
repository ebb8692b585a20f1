//! The walk over what is stored, for operators: list, stat, verify, repair.

use crate::backend::View;
use crate::page_file::{PageFiles, Standing};
use crate::record;
use crate::root::{BAD, NAMESPACES, Root, namespace_folder};
use crate::slot::Slot;
use crate::store::Files;
use crate::trailer::Flaw;
use hicache_core::{Depth, Digest, Found, PageKey, Result, Scan, State, Visitor};
use std::fs::Metadata;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

/// The namespaces that have a folder here.
pub(crate) fn namespace_digests(root: &Root) -> Result<Vec<Digest>> {
    let names = match entries(&root.path().join(NAMESPACES)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        names => names.map_err(|error| root.failed("list namespaces", NAMESPACES, error))?,
    };
    Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
}

/// Pages in a namespace's folder that has been moved out of sight.
pub(crate) fn count_pages(folder: &Path) -> u64 {
    let buckets = entries(folder).unwrap_or_default();
    let pages = |bucket: &String| {
        let names = entries(&folder.join(bucket)).unwrap_or_default();
        names.iter().filter(|name| name.parse::<PageKey>().is_ok()).count() as u64
    };
    buckets.iter().map(pages).sum()
}

/// Hands every find to `visitor`, until it breaks.
pub(crate) fn walk(files: &Arc<Files>, scan: &Scan, slot: &mut Slot, mut visitor: Visitor) -> Result<()> {
    for (index, root) in files.roots.iter().enumerate() {
        for digest in namespace_digests(root)? {
            if scan.namespace.is_some_and(|wanted| wanted != digest) {
                continue;
            }
            let folder = namespace_folder(digest);
            match root.read_namespace(digest) {
                Ok(Ok(namespace)) => {
                    let view = View::new(Arc::clone(files), namespace);
                    let mut walk = Walk { scan, root, files: view.at(index), slot, visitor: &mut visitor };
                    let walked = walk.namespace(&folder);
                    if walked.map_err(|error| root.failed("scan store", &folder, error))?.is_break() {
                        return Ok(());
                    }
                }
                record => {
                    let place = format!("{folder}/{}", record::NAMESPACE);
                    let state = match record {
                        Ok(Err(why)) => State::Wrong(format!("the namespace's record is damaged: {why}")),
                        _ => State::Orphan("a folder without a namespace's record".to_string()),
                    };
                    let place = root.path().join(place).display().to_string();
                    if visitor(Found::new(place, digest.to_string().into(), state)).is_break() {
                        return Ok(());
                    }
                }
            }
        }
    }
    Ok(())
}

struct Walk<'a> {
    scan: &'a Scan,
    root: &'a Root,
    files: PageFiles<'a>,
    slot: &'a mut Slot,
    visitor: &'a mut Visitor,
}

impl Walk<'_> {
    fn namespace(&mut self, folder: &str) -> io::Result<ControlFlow<()>> {
        let name: Arc<str> = self.files.namespace.name().into();
        for bucket in entries(&self.root.path().join(folder))? {
            if bucket == record::NAMESPACE {
                continue;
            }
            let path = format!("{folder}/{bucket}");
            let is_bucket = bucket.len() == 2 && u8::from_str_radix(&bucket, 16).is_ok();
            let flow = match entries(&self.root.path().join(&path)) {
                Ok(names) if is_bucket => self.bucket(&name, &path, &bucket, &names)?,
                Err(error) if is_bucket && error.kind() != io::ErrorKind::NotADirectory => return Err(error),
                _ => self.orphan(&name, &path),
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn bucket(
        &mut self,
        name: &Arc<str>,
        folder: &str,
        bucket: &str,
        entries: &[String],
    ) -> io::Result<ControlFlow<()>> {
        for entry in entries {
            let path = format!("{folder}/{entry}");
            let (stem, bad) = entry.split_once(BAD).map_or((entry.as_str(), false), |(stem, _)| (stem, true));
            let key = stem
                .parse::<PageKey>()
                .ok()
                .filter(|key| key.to_string() == stem && stem.starts_with(bucket));
            let flow = match key {
                Some(key) => self.page(name, &path, key, bad)?,
                None => self.orphan(name, &path),
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn orphan(&mut self, name: &Arc<str>, path: &str) -> ControlFlow<()> {
        let place = self.root.path().join(path).display().to_string();
        (self.visitor)(Found::new(place, Arc::clone(name), State::Orphan("not of this store".to_string())))
    }

    /// What stands at a page's name, or at the name that a damaged page is set aside under.
    fn page(&mut self, name: &Arc<str>, path: &str, key: PageKey, bad: bool) -> io::Result<ControlFlow<()>> {
        let place = self.root.path().join(path);
        // Gone meanwhile, as below: nothing to tell.
        let Ok(metadata) = std::fs::symlink_metadata(&place) else { return Ok(ControlFlow::Continue(())) };
        let judged = if bad {
            Some(State::Wrong("it failed its check before and was set aside".to_string()))
        } else {
            self.judge(path, &key, &metadata)?
        };
        let Some(state) = judged else { return Ok(ControlFlow::Continue(())) };
        let flawed = matches!(state, State::Wrong(_) | State::Torn(_));
        let repaired = flawed && self.scan.repair && self.root.sys().unlink(self.root.dir(), path).is_ok();
        let mut find = Found::new(place.display().to_string(), Arc::clone(name), state);
        find.key = Some(key);
        find.len = if flawed { metadata.len() } else { self.files.namespace.layout().page_len() as u64 };
        find.written = metadata.modified().ok();
        find.repaired = repaired;
        Ok((self.visitor)(find))
    }

    /// What the page file is; `None` when it has gone meanwhile.
    fn judge(&mut self, path: &str, key: &PageKey, metadata: &Metadata) -> io::Result<Option<State>> {
        if self.scan.depth == Depth::Names {
            return Ok(Some(match self.files.flaw_of_len(metadata.is_file(), metadata.len()) {
                None => State::Listed,
                Some(flaw) => state_of(flaw),
            }));
        }
        Ok(match self.files.look(path, Some(key), self.slot) {
            Ok(Standing::Nothing) => None,
            Ok(Standing::Sound(trailer)) if trailer.checksum.is_none() => Some(State::Unverified),
            Ok(Standing::Sound(_)) => Some(State::Sound),
            Ok(Standing::Flawed(flaw)) => Some(state_of(flaw)),
            Err(error) => return Err(error),
        })
    }
}

fn state_of(flaw: Flaw) -> State {
    match flaw {
        Flaw::Torn(why) => State::Torn(why),
        Flaw::Wrong(why) => State::Wrong(why),
        Flaw::Unverified => State::Unverified,
    }
}

fn entries(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
}
