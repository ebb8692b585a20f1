//! The kernel's own account of a mapping, read from `/proc/self/smaps`.

use crate::Alignment;
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
pub(crate) fn read(range: Range<usize>) -> io::Result<Account> {
    parse(BufReader::new(File::open("/proc/self/smaps")?), range, Alignment::base_page())
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
    fn an_unlisted_range_is_an_error() {
        assert!(account(0x1000..0x2000).is_err());
        assert!(account(0x7f00_0080_0000..0x7f00_0090_0000).is_err());
    }
}
