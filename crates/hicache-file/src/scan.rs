//! The walk over what is stored, for operators: list, stat, verify, repair.

use crate::backend::View;
use crate::page_file::{PageFiles, Standing};
use crate::record;
use crate::root::{BAD, NAMESPACES, Root, namespace_folder};
use crate::slot::Slot;
use crate::store::Files;
use crate::trailer::Flaw;
use hicache_core::{Depth, Digest, Found, Namespace, PageKey, Result, Scan, State};
use std::fs::Metadata;
use std::io;
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

/// Hands every find to `found`.
pub(crate) fn walk(
    files: &Arc<Files>,
    scan: &Scan,
    slot: &mut Slot,
    mut found: Box<dyn FnMut(Found) + Send>,
) -> Result<()> {
    for (index, root) in files.roots.iter().enumerate() {
        for digest in namespace_digests(root)? {
            if scan.namespace.is_some_and(|wanted| wanted != digest) {
                continue;
            }
            let folder = namespace_folder(digest);
            match root.read_namespace(digest) {
                Ok(Ok(namespace)) => {
                    let view = View::new(Arc::clone(files), namespace);
                    let mut walk = Walk { scan, root, files: view.at(index), slot, found: &mut *found };
                    walk.namespace(&folder).map_err(|error| root.failed("scan store", &folder, error))?;
                }
                record => {
                    let place = format!("{folder}/{}", record::NAMESPACE);
                    let state = match record {
                        Ok(Err(why)) => State::Wrong(format!("the namespace's record is damaged: {why}")),
                        _ => State::Orphan("a folder without a namespace's record".to_string()),
                    };
                    found(Found::new(
                        root.path().join(place).display().to_string(),
                        digest.to_string().into(),
                        state,
                    ));
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
    found: &'a mut (dyn FnMut(Found) + Send),
}

impl Walk<'_> {
    fn namespace(&mut self, folder: &str) -> io::Result<()> {
        let name: Arc<str> = self.namespace_of().name().into();
        for bucket in entries(&self.root.path().join(folder))? {
            let bucket_path = format!("{folder}/{bucket}");
            if bucket == record::NAMESPACE {
                continue;
            }
            let is_bucket = bucket.len() == 2 && u8::from_str_radix(&bucket, 16).is_ok();
            let names =
                if is_bucket { entries(&self.root.path().join(&bucket_path)) } else { Ok(Vec::new()) };
            match names {
                Ok(names) if is_bucket => {
                    for entry in names {
                        self.entry(&name, &bucket_path, &bucket, &entry)?;
                    }
                }
                _ => self.orphan(&name, &bucket_path),
            }
        }
        Ok(())
    }

    fn namespace_of(&self) -> &Namespace {
        self.files.namespace
    }

    fn orphan(&mut self, name: &Arc<str>, path: &str) {
        let place = self.root.path().join(path).display().to_string();
        (self.found)(Found::new(place, Arc::clone(name), State::Orphan("not of this store".to_string())));
    }

    fn entry(&mut self, name: &Arc<str>, folder: &str, bucket: &str, entry: &str) -> io::Result<()> {
        let path = format!("{folder}/{entry}");
        let Ok(metadata) = std::fs::symlink_metadata(self.root.path().join(&path)) else { return Ok(()) };
        let (stem, bad) = entry.split_once(BAD).map_or((entry, false), |(stem, _)| (stem, true));
        let key =
            stem.parse::<PageKey>().ok().filter(|key| format!("{key}") == stem && stem.starts_with(bucket));
        let Some(key) = key else {
            self.orphan(name, &path);
            return Ok(());
        };
        let state = if bad {
            State::Wrong("it failed its check before and was set aside".to_string())
        } else {
            match self.judge(&path, &key, &metadata)? {
                Some(state) => state,
                None => return Ok(()),
            }
        };
        let flawed = matches!(state, State::Wrong(_) | State::Torn(_));
        let page_len = self.namespace_of().layout().page_len() as u64;
        let repaired = flawed && self.scan.repair && self.root.sys().unlink(self.root.dir(), &path).is_ok();
        let place = self.root.path().join(&path).display().to_string();
        let mut find = Found::new(place, Arc::clone(name), state);
        find.key = Some(key);
        find.len = if flawed { metadata.len() } else { page_len };
        find.written = metadata.modified().ok();
        find.repaired = repaired;
        (self.found)(find);
        Ok(())
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
