//! The kernel's own account of a mapping: the page sizes in it, and the NUMA node that it is bound to.

use crate::{Alignment, Machine, NumaNode};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ops::Range;

/// What the kernel says about one range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// The page size in use: that of the hugetlb pages, or the base page.
    pub(crate) page_size: Alignment,
    /// Bytes on huge pages, reserved or transparent.
    pub(crate) huge_len: usize,
}

/// Reads the account of `range`, which lies in mappings that hold nothing else.
pub(crate) fn read(machine: &Machine, range: Range<usize>) -> io::Result<Account> {
    parse(lines(machine, "smaps")?, range, Alignment::base_page())
}

/// Where the pages of one mapping lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    /// The policy, for example `default` or `bind:0`.
    pub(crate) policy: String,
    /// Bytes that lie on the node asked about.
    pub(crate) there: usize,
    /// Bytes that lie on others.
    pub(crate) elsewhere: usize,
}

/// Reads where the mapping that starts at `start` has its pages, with regard to `node`.
pub(crate) fn placement(machine: &Machine, start: usize, node: NumaNode) -> io::Result<Placement> {
    parse_placement(lines(machine, "numa_maps")?, start, node)
}

fn lines(machine: &Machine, name: &str) -> io::Result<BufReader<File>> {
    Ok(BufReader::new(File::open(machine.paths().procfs.join("self").join(name))?))
}

fn parse_placement(numa_maps: impl BufRead, start: usize, node: NumaNode) -> io::Result<Placement> {
    for line in numa_maps.lines() {
        let line = line?;
        let mut words = line.split_ascii_whitespace();
        if words.next().and_then(|word| usize::from_str_radix(word, 16).ok()) != Some(start) {
            continue;
        }
        let policy = words.next().unwrap_or_default().to_owned();
        let facts: Vec<(&str, usize)> = words
            .filter_map(|word| word.split_once('='))
            .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
            .collect();
        let size =
            facts.iter().find(|(name, _)| *name == "kernelpagesize_kB").map_or(0, |(_, kib)| kib * 1024);
        let (mut there, mut elsewhere) = (0, 0);
        for (name, pages) in facts {
            match name.strip_prefix('N').and_then(|number| number.parse().ok()) {
                Some(number) if node == NumaNode::new(number) => there += pages * size,
                Some(_) => elsewhere += pages * size,
                None => {}
            }
        }
        return Ok(Placement { policy, there, elsewhere });
    }
    Err(io::Error::other("the mapping is not listed"))
}

/// An account, as far as it is read, and whether the mapping at hand is part of it.
fn parse(smaps: impl BufRead, range: Range<usize>, base_page: Alignment) -> io::Result<Account> {
    let mut page_size: Option<Alignment> = None;
    let mut huge_len = 0;
    let mut inside: Option<Range<usize>> = None;
    for line in smaps.lines() {
        let line = line?;
        let mut words = line.split_ascii_whitespace();
        let Some(first) = words.next() else { continue };
        if let Some(mapped) = addresses(first) {
            if mapped.start >= range.end {
                break;
            }
            inside = (mapped.end > range.start).then_some(mapped);
            continue;
        }
        let Some(mapped) = &inside else { continue };
        let kib = words.next().and_then(|word| word.parse::<usize>().ok()).unwrap_or(0);
        match first {
            "KernelPageSize:" => {
                let size =
                    Alignment::new(kib * 1024).ok_or_else(|| io::Error::other("odd KernelPageSize"))?;
                page_size = Some(page_size.map_or(size, |known| known.min(size)));
                if size > base_page {
                    // A hugetlb mapping has no other pages, whether they are touched yet or not.
                    huge_len += mapped.end.min(range.end) - mapped.start.max(range.start);
                }
            }
            "AnonHugePages:" | "ShmemPmdMapped:" => huge_len += kib * 1024,
            _ => {}
        }
    }
    let page_size = page_size.ok_or_else(|| io::Error::other("the mapping is not listed"))?;
    Ok(Account { page_size, huge_len: huge_len.min(range.len()) })
}

/// `start-end` in hexadecimal, as the first word of a mapping's first line has it.
fn addresses(word: &str) -> Option<Range<usize>> {
    let (start, end) = word.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
00400000-00600000 r-xp 00000000 fe:00 24 /usr/bin/some-thing
Size: 2048 kB
KernelPageSize: 4 kB
AnonHugePages: 2048 kB
7f0000000000-7f0000400000 rw-p 00000000 00:00 0
Size: 4096 kB
KernelPageSize: 4 kB
AnonHugePages: 2048 kB
ShmemPmdMapped: 0 kB
VmFlags: rd wr mr mw me dc
7f0000400000-7f0000800000 rw-s 00000000 00:10 7 /anon_hugepage (deleted)
KernelPageSize: 2048 kB
AnonHugePages: 0 kB
";

    fn account(range: Range<usize>) -> io::Result<Account> {
        parse(SMAPS.as_bytes(), range, Alignment::new(4096).unwrap())
    }

    #[test]
    fn transparent_pages_are_counted_and_page_size_stays_the_base_page() {
        let account = account(0x7f00_0000_0000..0x7f00_0040_0000).unwrap();
        assert_eq!(account.page_size.bytes(), 4096);
        assert_eq!(account.huge_len, 2 << 20);
    }

    #[test]
    fn reserved_pages_count_whole() {
        let account = account(0x7f00_0040_0000..0x7f00_0080_0000).unwrap();
        assert_eq!(account.page_size.bytes(), 2 << 20);
        assert_eq!(account.huge_len, 4 << 20);
    }

    #[test]
    fn pages_are_counted_by_node_and_in_bytes() {
        let numa_maps = "\
00400000 default file=/usr/bin/some-thing mapped=2 N0=2 kernelpagesize_kB=4
7f0000000000 bind:1 anon=5 dirty=5 N0=2 N1=3 kernelpagesize_kB=64
7f0000400000 prefer:0 file=/anon_hugepage\\040(deleted) huge dirty=2 N0=2 kernelpagesize_kB=2048
7f0000800000 default
";
        let read = |start, node| parse_placement(numa_maps.as_bytes(), start, NumaNode::new(node));
        let placement =
            |policy: &str, there, elsewhere| Placement { policy: policy.to_owned(), there, elsewhere };
        assert_eq!(read(0x7f00_0000_0000, 1).unwrap(), placement("bind:1", 3 << 16, 2 << 16));
        assert_eq!(read(0x7f00_0040_0000, 0).unwrap(), placement("prefer:0", 4 << 20, 0));
        assert_eq!(read(0x7f00_0080_0000, 0).unwrap(), placement("default", 0, 0));
        assert!(read(0x7f00_0000_1000, 0).is_err());
    }

    #[test]
    fn an_unlisted_range_is_an_error() {
        assert!(account(0x1000..0x2000).is_err());
        assert!(account(0x7f00_0080_0000..0x7f00_0090_0000).is_err());
    }
}
