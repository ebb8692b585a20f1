//! A test that this machine cannot run says so, and returns.

use std::fs::File;
use std::io::Write;

/// Tells that `test` (its path, as cargo prints it) is skipped, and why; the reason begins with what is missing.
///
/// # Panics
///
/// If the file that `HICACHE_TEST_SKIPS` names cannot be written.
pub fn skip(test: &str, reason: &str) {
    let line = format!("skipped: {test}: {reason}\n");
    print!("{line}");
    if let Some(path) = std::env::var_os("HICACHE_TEST_SKIPS") {
        let told = File::options().append(true).create(true).open(path);
        told.and_then(|mut file| file.write_all(line.as_bytes())).expect("the skip is told");
    }
}
