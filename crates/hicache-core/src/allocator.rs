//! Which memory a pool of host pages is made of.

use crate::{Backing, OptionSpec, Result, StoreOptions};

/// The kind of store whose pages other processes map.
const SHARED_SCHEME: &str = "shm";

pub(crate) const ALLOCATOR: OptionSpec = OptionSpec {
    name: "allocator",
    aliases: &[],
    kind: "mmap, shm",
    default: "mmap",
    about: "memory of host pools: this process's own, or memory that other processes can map",
    secret: false,
    guarded: false,
};

/// Which memory a pool of host pages is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AllocatorType {
    /// Memory of this process alone.
    #[default]
    Mmap,
    /// Memory that can be handed to other processes by its file descriptor.
    Shm,
}

impl AllocatorType {
    /// What a region of it is backed by.
    pub fn backing(self) -> Backing {
        match self {
            Self::Mmap => Backing::Private,
            Self::Shm => Backing::Memfd,
        }
    }

    /// The name, as the option has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mmap => "mmap",
            Self::Shm => "shm",
        }
    }

    pub(crate) fn of_scheme(scheme: Option<&str>) -> Self {
        if scheme == Some(SHARED_SCHEME) { Self::Shm } else { Self::Mmap }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let found = [Self::Mmap, Self::Shm].into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| "want mmap or shm".to_string())
    }
}

/// The memory that `options` ask for: what the option `allocator` says, from whatever source, else what the kind of
/// store needs, [`AllocatorType::Shm`] for `shm:` and [`AllocatorType::Mmap`] for all others.
///
/// SGLang HiCache's function of this name takes the kind of store and the inline form of its configuration, and
/// answers a name; here configuration files count too.
///
/// # Errors
///
/// [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig) for a value that is neither, with its source, and
/// for two at one source.
pub fn get_allocator_type(options: &StoreOptions) -> Result<AllocatorType> {
    let asked = options.get(&ALLOCATOR, AllocatorType::parse)?;
    Ok(asked.unwrap_or_else(|| AllocatorType::of_scheme(options.scheme())))
}
