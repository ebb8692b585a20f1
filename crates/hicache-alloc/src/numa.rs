//! NUMA nodes: which there are, which one memory is asked for, and the processors beside it.

use crate::{AllocError, Machine};
use std::fmt;
use std::fs;
use std::path::Path;

/// The number of a NUMA node, as the kernel counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NumaNode(u32);

/// Which NUMA node a region's pages are to lie on. It is set before the first page is touched, and read back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Numa {
    /// Wherever the kernel puts them: as a rule, beside the thread that touches them first.
    #[default]
    Any,
    /// On this node while it has room. Where the kernel refuses to be told, or has put a page elsewhere, the region
    /// has a [`Fallback`](crate::Fallback) and [`Region::numa_bound`](crate::Region::numa_bound) is false.
    Prefer(NumaNode),
    /// On this node or an error. Without prefaulting, a later touch that finds the node full ends in the
    /// out-of-memory killer, or, on reserved huge pages, in a SIGBUS.
    Require(NumaNode),
}

impl NumaNode {
    /// The node of this number. Whether a machine has it is checked when a region is mapped on it.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl Numa {
    /// The node that is named.
    pub const fn node(self) -> Option<NumaNode> {
        match self {
            Self::Any => None,
            Self::Prefer(node) | Self::Require(node) => Some(node),
        }
    }
}

impl fmt::Display for NumaNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Machine {
    /// The NUMA nodes that are online. A kernel that counts no nodes has one, of number 0.
    pub fn numa_nodes(&self) -> Vec<NumaNode> {
        match read_list(&self.paths().sysfs.join("devices/system/node/online")) {
            nodes if nodes.is_empty() => vec![NumaNode(0)],
            nodes => nodes.into_iter().map(NumaNode).collect(),
        }
    }

    /// The node that `text` names by its number, as a configuration has it.
    ///
    /// # Errors
    ///
    /// [`AllocError::UnknownNode`] if that is no number, or no node that is online.
    pub fn numa_node(&self, text: &str) -> Result<NumaNode, AllocError> {
        let node = text.trim().parse().map(NumaNode).map_err(|_| self.unknown_node(text))?;
        self.check_node(node)?;
        Ok(node)
    }

    pub(crate) fn check_node(&self, node: NumaNode) -> Result<(), AllocError> {
        if self.numa_nodes().contains(&node) { Ok(()) } else { Err(self.unknown_node(&node.to_string())) }
    }

    /// The processors of `node`, by number. Empty if the node has none, or if that cannot be read.
    pub(crate) fn processors(&self, node: NumaNode) -> Vec<u32> {
        read_list(&self.paths().sysfs.join(format!("devices/system/node/node{node}/cpulist")))
    }

    fn unknown_node(&self, given: &str) -> AllocError {
        let online: Vec<String> = self.numa_nodes().iter().map(NumaNode::to_string).collect();
        AllocError::UnknownNode { given: given.to_owned(), online: online.join(", ") }
    }
}

fn read_list(path: &Path) -> Vec<u32> {
    fs::read_to_string(path).ok().and_then(|text| parse_list(text.trim())).unwrap_or_default()
}

/// More numbers than any kernel has nodes or processors: a list that is longer is not one.
const MOST: u32 = 1 << 16;

/// `0-3,8`, as the kernel writes lists of nodes and processors.
fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last >= MOST {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_kernel_are_read_and_others_refused() {
        assert_eq!(parse_list("0-2,8,10-11").unwrap(), [0, 1, 2, 8, 10, 11]);
        assert_eq!(parse_list("").unwrap(), []);
        for text in ["a", "1-", "-1", "1;2", "0-4294967295"] {
            assert_eq!(parse_list(text), None, "{text}");
        }
    }
}
