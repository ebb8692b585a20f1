//! The folder that measurements happen in, with a fresh one inside for each; removed in the end.

use std::fs;
use std::path::{Path, PathBuf};

/// Removed on drop, with what is in it.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    made: u32,
}

impl Folder {
    /// In `dir`, which is made if it is not there.
    pub(super) fn make(dir: &Path) -> Result<Self, String> {
        let path = dir.join(format!("hicache-bench-{}", std::process::id()));
        fs::create_dir_all(&path)
            .map_err(|error| format!("{} could not be made: {error}", path.display()))?;
        let path = fs::canonicalize(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { path, made: 0 })
    }

    /// An empty one inside.
    pub(super) fn fresh(&mut self) -> Result<Self, String> {
        self.made += 1;
        let path = self.path.join(self.made.to_string());
        fs::create_dir(&path).map_err(|error| format!("{} could not be made: {error}", path.display()))?;
        Ok(Self { path, made: 0 })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("xtask: {} is left: {error}", self.path.display());
        }
    }
}
