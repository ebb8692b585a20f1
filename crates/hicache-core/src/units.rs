//! Values as people write them: sizes, durations, counts, booleans. Every source of options is read by these.

use std::path::PathBuf;
use std::time::Duration;

const BOOLS: [(&str, bool); 8] = [
    ("true", true),
    ("1", true),
    ("yes", true),
    ("on", true),
    ("false", false),
    ("0", false),
    ("no", false),
    ("off", false),
];

const SIZES: [(&str, u64); 10] = [
    ("", 1),
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
];

const DURATIONS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

const AT_HOME: &str = "a path that begins with ~ is left as it is here: only a shell makes ~ the home directory, and \
                       only in front of a word; write the whole path, as in /data/kv, or ./~ for what has that name";

/// `true`, `1`, `yes`, `on` and `false`, `0`, `no`, `off`, in any case.
///
/// # Errors
///
/// What was wanted, for anything else.
pub fn parse_bool(text: &str) -> Result<bool, String> {
    let lower = text.to_ascii_lowercase();
    let found = BOOLS.iter().find(|(name, _)| *name == lower);
    found.map(|(_, value)| *value).ok_or_else(|| "want true or false (or 1, yes, on, 0, no, off)".to_string())
}

/// Bytes: `4096`, `64KiB`, `1MiB`, `2GB`; SI and IEC as written, in any case.
///
/// # Errors
///
/// What was wanted, for anything else and for what overflows.
pub fn parse_size(text: &str) -> Result<u64, String> {
    scaled(text, &SIZES).ok_or_else(|| "want bytes, as in 4096, 64KiB, 1MiB or 2GB".to_string())
}

/// A duration with its unit: `500ms`, `30s`, `5m`, `1h`.
///
/// # Errors
///
/// What was wanted, for anything else and for what overflows.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let milliseconds = scaled(text, &DURATIONS);
    milliseconds
        .map(Duration::from_millis)
        .ok_or_else(|| "want a time with its unit, as in 500ms, 30s or 5m".into())
}

/// A whole number from 1.
///
/// # Errors
///
/// What was wanted, for anything else.
pub fn parse_count(text: &str) -> Result<std::num::NonZeroU32, String> {
    text.parse().map_err(|_| format!("want a whole number from 1 to {}", u32::MAX))
}

/// A path, as it is written: nothing is expanded in it.
///
/// # Errors
///
/// For an empty one, and for one that begins with `~`: a shell makes that the home directory where it stands by itself,
/// and nobody does inside a URL or an option, so that a folder of that name would be made.
pub fn parse_path(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err("it is empty".to_string()),
        _ if text.starts_with('~') => Err(AT_HOME.to_string()),
        _ => Ok(text.into()),
    }
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = text[digits..].trim_start().to_ascii_lowercase();
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    text[..digits].parse::<u64>().ok()?.checked_mul(*scale)
}
