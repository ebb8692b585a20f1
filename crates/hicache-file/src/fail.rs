//! From what the kernel answered to an error that says what to do.

use crate::sys::Sys;
use hicache_core::{Error, ErrorKind, State};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// What `operation` at `place` in `dir` met.
pub(crate) fn io_error(
    sys: &Sys,
    dir: BorrowedFd<'_>,
    operation: &'static str,
    place: &Path,
    error: io::Error,
) -> Error {
    let failed = |kind| Error::new(kind, operation).with("path", place.display());
    let described = match error.raw_os_error() {
        Some(libc::ENOSPC) => {
            let space = sys.space(dir).ok();
            let inodes = space.is_some_and(|space| space.f_files > 0 && space.f_favail == 0);
            let (why, fix) = if inodes {
                (
                    "the file system has no free inodes (it has room for bytes)",
                    "remove files, or make it with more inodes",
                )
            } else {
                ("the file system is full", "free space there, or use a larger one")
            };
            failed(ErrorKind::NoSpace).why(why).fix(fix).retryable()
        }
        Some(libc::EDQUOT) => failed(ErrorKind::NoSpace)
            .why("the quota is used up")
            .fix("free space, or raise the quota")
            .retryable(),
        Some(libc::EFBIG) => failed(ErrorKind::TooLarge)
            .why("the file would be larger than the file system or the process's limit allows")
            .fix("see ulimit -f"),
        Some(libc::EMFILE) => failed(ErrorKind::Exhausted)
            .why("this process has no free file descriptor")
            .fix("raise ulimit -n, or use fewer threads")
            .retryable(),
        Some(libc::ENFILE | libc::ENOMEM) => failed(ErrorKind::Exhausted).why(&error).retryable(),
        Some(libc::EROFS) => failed(ErrorKind::PermissionDenied).why("the file system is read-only"),
        Some(libc::EACCES) if sys.is_unreadable_file(dir, place) => failed(ErrorKind::PermissionDenied)
            .why("this user may not read that file")
            .fix("check the owner and the mode of the file"),
        Some(libc::EACCES | libc::EPERM) => failed(ErrorKind::PermissionDenied)
            .why("this user may not do that there")
            .fix("check the owner and the mode of the directory"),
        Some(libc::ENOENT) => failed(ErrorKind::Io)
            .why(
                "a folder that it lies in is gone: others drop the namespace meanwhile, or have removed the store's \
                 directory",
            )
            .fix("do it again when the drop is over; where the directory is gone, open the store anew")
            .retryable(),
        Some(libc::EISDIR) => failed(ErrorKind::Incompatible)
            .why("a directory stands in a page's place, and hicache removes none that it did not make")
            .fix("look at what is in it, and move it away or remove it by hand"),
        Some(libc::ENOTDIR) => {
            failed(ErrorKind::InvalidConfig).why("there is a file where a directory should be")
        }
        Some(libc::ELOOP) => failed(ErrorKind::Incompatible)
            .why("a link stands where a folder should be, or links lead in a circle")
            .fix("put the folder there; a further disk is named by the option dir"),
        Some(libc::ENAMETOOLONG) => failed(ErrorKind::InvalidConfig).why("the path is too long"),
        _ => failed(ErrorKind::Io).why(&error),
    };
    described.because(error)
}

/// What a walk says of something that is there and that it could not read.
pub(crate) fn unreadable(error: &io::Error) -> State {
    State::Unreadable(match error.raw_os_error() {
        Some(libc::EACCES) => format!("this user may not read it ({error}); check its owner and its mode"),
        _ => error.to_string(),
    })
}
