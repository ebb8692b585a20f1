//! Flags of `cargo xtask bench`.

use std::path::{Path, PathBuf};

/// What to measure, where, and how often.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Flags {
    pub(super) rounds: u32,
    pub(super) dir: PathBuf,
    /// Bytes of pages that one measurement writes.
    pub(super) bytes: u64,
    /// The only page length to measure, in bytes.
    pub(super) page_len: Option<u64>,
    /// What buffers lie on; chosen by what the machine has where not given.
    pub(super) memory: Option<Memory>,
    /// Requests under way at once, of whoever has such a number; each goes by its own where not given.
    pub(super) depth: Option<u32>,
    pub(super) only: Option<Part>,
    /// An interpreter that imports boto3 and NIXL, to measure them too.
    pub(super) python: Option<PathBuf>,
}

/// What buffers lie on, for all alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    Huge,
    Thp,
    Base,
}

/// One part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Compare,
    Batches,
    Cache,
    Obj,
}

const FLAGS: [&str; 8] =
    ["--rounds", "--depth", "--dir", "--bytes", "--page-bytes", "--memory", "--only", "--python"];
const PARTS: [(&str, Part); 4] =
    [("compare", Part::Compare), ("batches", Part::Batches), ("cache", Part::Cache), ("obj", Part::Obj)];
const MEMORIES: [(&str, Memory); 3] = [("huge", Memory::Huge), ("thp", Memory::Thp), ("base", Memory::Base)];

impl Memory {
    pub(super) fn name(self) -> &'static str {
        MEMORIES.iter().find(|(_, memory)| *memory == self).map_or("", |(name, _)| name)
    }
}

impl Flags {
    pub(super) fn parse(arguments: &[String], target: &Path) -> Result<Self, String> {
        let mut flags = Self {
            rounds: 5,
            dir: target.join("bench"),
            bytes: 512 << 20,
            page_len: None,
            memory: None,
            depth: None,
            only: None,
            python: None,
        };
        let mut rest = arguments.iter();
        while let Some(flag) = rest.next() {
            if !FLAGS.contains(&flag.as_str()) {
                return Err(format!("`bench` has no `{flag}`; it has {}", FLAGS.join(", ")));
            }
            let value = rest.next().ok_or_else(|| format!("`{flag}` wants a value"))?;
            let one_of = |names: &str| format!("`{flag} {value}`: want {names}");
            let number = || value.parse().ok().filter(|number| *number > 0_u32);
            match flag.as_str() {
                "--rounds" => flags.rounds = number().ok_or_else(|| one_of("a number above 0"))?,
                "--depth" => flags.depth = Some(number().ok_or_else(|| one_of("a number above 0"))?),
                "--dir" => flags.dir = PathBuf::from(value),
                "--python" => flags.python = Some(PathBuf::from(value)),
                "--bytes" => {
                    flags.bytes = bytes(value).ok_or_else(|| one_of("KiB, MiB or GiB, as in 512MiB"))?
                }
                "--page-bytes" => {
                    flags.page_len = Some(bytes(value).ok_or_else(|| one_of("KiB or MiB, as in 64KiB"))?)
                }
                "--memory" => {
                    flags.memory = Some(named(&MEMORIES, value).ok_or_else(|| one_of("huge, thp, base"))?)
                }
                // "--only", by the check above.
                _ => {
                    flags.only =
                        Some(named(&PARTS, value).ok_or_else(|| one_of("compare, batches, cache, obj"))?);
                }
            }
        }
        Ok(flags)
    }

    /// Which lengths of pages to measure, where these are the usual ones.
    pub(super) fn page_lens(&self, usual: &[u64]) -> Vec<u64> {
        self.page_len.map_or_else(|| usual.to_vec(), |only| vec![only])
    }
}

fn named<T: Copy>(all: &[(&str, T)], wanted: &str) -> Option<T> {
    all.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value)
}

fn bytes(text: &str) -> Option<u64> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let (digits, shift) = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)))?;
    digits.parse::<u64>().ok().filter(|count| *count > 0 && *count < 1 << 20).map(|count| count << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Flags, String> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Flags::parse(&arguments, Path::new("target"))
    }

    #[test]
    fn flags_are_read_and_nonsense_is_refused() {
        let flags = parse("--rounds 7 --bytes 1GiB --memory base --only cache --dir some").unwrap();
        assert_eq!((flags.rounds, flags.bytes, flags.page_len), (7, 1 << 30, None));
        assert_eq!(parse("--page-bytes 64KiB").unwrap().page_len, Some(65_536));
        assert_eq!((flags.memory, flags.only), (Some(Memory::Base), Some(Part::Cache)));
        assert_eq!(parse("").unwrap().dir, Path::new("target/bench"));
        for wrong in
            ["--rounds 0", "--rounds", "--bytes 7", "--memory big", "--only all", "--what 1", "--what"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
