//! Where in the target directory servers, their packages and their data lie.

use std::env;
use std::io;
use std::path::PathBuf;

/// The folder `s3` of the target directory that the running program lies in; made if it is not there.
pub(crate) fn folder() -> io::Result<PathBuf> {
    let program = env::current_exe()?;
    // Cargo marks its target directory so, for backup programs.
    let target = program.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
    let target = target.ok_or_else(|| {
        io::Error::other(format!("{} does not lie in a target directory of cargo's", program.display()))
    })?;
    let folder = target.join("s3");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}
