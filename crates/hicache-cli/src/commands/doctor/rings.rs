//! The row about io_uring.

use super::Check;

/// Tries a ring as a file store would set one up.
pub(super) fn rows(checks: &mut Vec<Check>) {
    let wanted = "works, with registered files and memory";
    let probed = hicache::file::probe_io_uring()
        .map(|without| without.first().map(|first| format!("works without {}: {}", first.what, first.why)));
    let (found, ok) = match probed {
        Ok(None) => (wanted.to_owned(), true),
        Ok(Some(without)) => (without, false),
        Err(why) => (why, false),
    };
    let (found, cure) = found.split_once("; ").unwrap_or((&found, ""));
    let fix = format!("{cure}; until then engine=threads says that it is meant");
    checks.push(Check::new("io_uring", ok, found.to_owned(), wanted.to_owned(), fix));
}
