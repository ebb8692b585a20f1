//! How a spec becomes memory: attempts, each with one kind of pages, in which all is got or nothing is left.
//!
//! The order is the point. Memory is mapped, bound to its node, and only then given pages: by a file's reservation,
//! by prefaulting, by locking. What the kernel made of it is read back at the end.

use crate::error::Failed;
use crate::mapping::{Advice, Mapping, Sharing};
use crate::{
    Alignment, AllocError, Backing, Budget, Fallback, HugePageSize, HugePages, Lock, Machine, Numa, NumaNode,
    Prefault, Region, RegionSpec, Shortage,
};
use crate::{account, budget, file, memfd, prefault, shm};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// What an attempt to map has got so far. Dropped, it leaves nothing.
pub(crate) struct Mapped {
    pub(crate) mapping: Mapping,
    pub(crate) file: Option<OwnedFd>,
    pub(crate) is_sealed: bool,
    /// The page size that was mapped, should the kernel's account not be readable.
    pub(crate) page: Alignment,
    pub(crate) numa_bound: bool,
    pub(crate) is_locked: bool,
    pub(crate) prefault_threads: usize,
    pub(crate) fallbacks: Vec<Fallback>,
}

/// The pages of one attempt.
#[derive(Clone, Copy)]
enum Pages {
    Base,
    /// Base pages that the kernel may join into pages of this size.
    Transparent(Alignment),
    Reserved(HugePageSize),
}

struct Attempt<'a> {
    spec: &'a RegionSpec,
    machine: &'a Machine,
    pages: Pages,
    /// The length rounded up to pages.
    len: usize,
}

/// Maps what `spec` asks for, on the best pages that it allows and the machine has.
pub(crate) fn map(spec: &RegionSpec, machine: &Machine) -> Result<Region, AllocError> {
    if let Some(node) = spec.numa.node() {
        machine.check_node(node)?;
    }
    let attempt = |pages| Attempt::new(spec, machine, pages)?.run();
    let region = |mapped, refused| Region::new(spec, machine, mapped, refused);
    let refused = match spec.huge_pages {
        HugePages::Off => return Ok(region(attempt(Pages::Base)?, None)),
        HugePages::Require(size) => return Ok(region(attempt(Pages::Reserved(size))?, None)),
        HugePages::Prefer(size) => match attempt(Pages::Reserved(size)) {
            Ok(mapped) => return Ok(region(mapped, None)),
            Err(error) if !is_about_pages(&error) => return Err(error),
            Err(refused) => refused,
        },
    };
    let pages = match spec.backing {
        Backing::Private => machine.transparent_size().map_or(Pages::Base, Pages::Transparent),
        // Its blocks are placed when the file gets them, before any advice about the mapping could tell.
        Backing::Shared | Backing::Memfd => Pages::Base,
    };
    Ok(region(attempt(pages)?, Some(refused)))
}

/// Whether an attempt with other pages may succeed where this error ended one.
fn is_about_pages(error: &AllocError) -> bool {
    match error {
        AllocError::Exhausted { shortage, .. } => !matches!(shortage, Shortage::Locked { .. }),
        AllocError::Unsupported { .. } | AllocError::Os { .. } => true,
        _ => false,
    }
}

impl<'a> Attempt<'a> {
    fn new(spec: &'a RegionSpec, machine: &'a Machine, pages: Pages) -> Result<Self, AllocError> {
        let invalid = |what: String| AllocError::InvalidSize { what };
        if spec.len == 0 {
            return Err(invalid("0 bytes; ask for at least one".to_owned()));
        }
        let page = pages.mapped();
        // No object, and so no slice, may be longer than `isize::MAX`.
        let len = page.align_up(spec.len).filter(|len| isize::try_from(*len).is_ok()).ok_or_else(|| {
            invalid(format!("{} bytes wrap around when rounded up to pages of {}", spec.len, page.bytes()))
        })?;
        Ok(Self { spec, machine, pages, len })
    }

    fn run(&self) -> Result<Mapped, AllocError> {
        let Self { spec, machine, pages, len } = *self;
        if spec.takes_memory() {
            self.check_budget()?;
        }
        let mut mapped = match spec.backing {
            Backing::Private => self.mapped(map_private(machine, len, pages).map_err(|f| self.refusal(f))?),
            Backing::Shared => self.mapped(map_shared(machine, len, pages).map_err(|f| self.refusal(f))?),
            Backing::Memfd => self.map_file()?,
        };
        self.bind(&mut mapped)?;
        if let (Some(file), None) = (&mapped.file, pages.reserved()) {
            file::reserve(machine, file.as_fd(), len)?;
        }
        let smallest = pages.mapped();
        let largest = machine.transparent_size().map_or(smallest, |size| size.max(smallest));
        let processors = spec.numa.node().filter(|_| mapped.numa_bound).map(|node| machine.processors(node));
        let faulted = prefault::run(
            &mapped.mapping,
            spec.prefault,
            (largest, smallest),
            &processors.unwrap_or_default(),
        )
        .map_err(|failed| self.refusal(failed))?;
        mapped.tell_prefault(&faulted);
        self.confirm_bound(&mut mapped)?;
        self.lock(&mut mapped)?;
        Ok(mapped)
    }

    fn mapped(&self, mapping: Mapping) -> Mapped {
        Mapped {
            mapping,
            file: None,
            is_sealed: false,
            page: self.pages.mapped(),
            numa_bound: false,
            is_locked: false,
            prefault_threads: 0,
            fallbacks: Vec::new(),
        }
    }

    fn check_budget(&self) -> Result<(), AllocError> {
        let huge = self.pages.reserved();
        if self.spec.budget == Budget::Check {
            budget::check(self.machine, self.len, huge, self.spec.numa)?;
        }
        if huge.is_none() { self.machine.check_exists(self.len) } else { Ok(()) }
    }

    fn map_file(&self) -> Result<Mapped, AllocError> {
        let huge = self.pages.reserved();
        let (file, fallback) = match memfd::create(huge) {
            Ok(file) => (file, None),
            Err(failed) if memfd::is_refused(&failed) && huge.is_none() => self.stand_in(failed)?,
            Err(failed) if memfd::is_refused(&failed) => return Err(no_memfd(failed, "on huge pages")),
            Err(failed) => return Err(self.refusal(failed)),
        };
        let mapping = file::map(self.machine, file.as_fd(), self.len, huge)?;
        let is_sealed = fallback.is_none();
        if is_sealed {
            memfd::seal(&file)?;
        }
        Ok(Mapped {
            file: Some(file),
            is_sealed,
            fallbacks: fallback.into_iter().collect(),
            ..self.mapped(mapping)
        })
    }

    /// A file in the machine's shared memory file system instead of the memfd that was refused.
    fn stand_in(&self, refused: Failed) -> Result<(OwnedFd, Option<Fallback>), AllocError> {
        let folder = &self.machine.paths().shm;
        let file = shm::create(folder).map_err(|failed| {
            let instead = format!("and {} holds no file instead ({})", folder.display(), failed.source);
            no_memfd(Failed { call: refused.call, source: copy(&refused.source) }, &instead)
        })?;
        if self.spec.budget == Budget::Check {
            file::check_space(self.machine, file.as_fd(), self.len)?;
        }
        let why = format!(
            "{} is refused ({}); a file without a name in {} instead, whose length is not sealed",
            refused.call,
            refused.source,
            folder.display()
        );
        Ok((file, Some(Fallback { what: "memfd", why })))
    }

    /// Tells the kernel the node, before anything takes a page.
    fn bind(&self, mapped: &mut Mapped) -> Result<(), AllocError> {
        let (node, is_strict) = match self.spec.numa {
            Numa::Any => return Ok(()),
            Numa::Prefer(node) => (node, false),
            Numa::Require(node) => (node, true),
        };
        let Err(Failed { source, .. }) = mapped.mapping.bind(node, is_strict) else {
            mapped.numa_bound = true;
            return Ok(());
        };
        let errno = source.raw_os_error().unwrap_or(0);
        let is_denied = matches!(errno, libc::EPERM | libc::EACCES);
        let cause = match errno {
            libc::EINVAL => "the node has no memory, or the cpuset of this process leaves it out",
            _ if is_denied => {
                "likely a container's seccomp profile; allow mbind there (`--cap-add SYS_NICE`), or ask for no node"
            }
            _ => "ask for no node",
        };
        let what = format!("binding memory to NUMA node {node} (mbind): {cause}");
        match self.spec.numa {
            Numa::Require(_) if is_denied => Err(AllocError::Denied { what, source }),
            Numa::Require(_) => Err(AllocError::Unsupported { what, source }),
            _ => {
                mapped.fallbacks.push(Fallback { what: "numa", why: format!("{what} ({source})") });
                Ok(())
            }
        }
    }

    /// Reads back what came of [`Attempt::bind`].
    fn confirm_bound(&self, mapped: &mut Mapped) -> Result<(), AllocError> {
        let Some(node) = self.spec.numa.node().filter(|_| mapped.numa_bound) else { return Ok(()) };
        let Err(source) = is_bound(self.machine, &mapped.mapping, self.spec.numa, node) else {
            return Ok(());
        };
        mapped.numa_bound = false;
        let what = format!(
            "binding memory to NUMA node {node}: the kernel took it, but /proc/self/numa_maps does not confirm it"
        );
        if matches!(self.spec.numa, Numa::Require(_)) {
            return Err(AllocError::Unsupported { what, source });
        }
        mapped.fallbacks.push(Fallback { what: "numa", why: format!("{what} ({source})") });
        Ok(())
    }

    fn lock(&self, mapped: &mut Mapped) -> Result<(), AllocError> {
        if self.spec.lock == Lock::Off {
            return Ok(());
        }
        let Err(failed) = mapped.mapping.lock(self.spec.prefault == Prefault::Off) else {
            mapped.is_locked = true;
            return Ok(());
        };
        let error = match failed.errno() {
            libc::ENOMEM | libc::EPERM | libc::EAGAIN => {
                let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
                let shortage = Shortage::Locked { wanted: self.len, limit };
                AllocError::Exhausted { shortage, source: failed.source }
            }
            _ => failed.into(),
        };
        if self.spec.lock == Lock::Require {
            return Err(error);
        }
        mapped.fallbacks.push(Fallback { what: "lock", why: with_source(&error) });
        Ok(())
    }

    fn refusal(&self, failed: Failed) -> AllocError {
        self.machine.refusal(failed, self.len, self.pages.reserved())
    }
}

impl Mapped {
    fn tell_prefault(&mut self, faulted: &prefault::Faulted) {
        self.prefault_threads = faulted.threads;
        if faulted.touched {
            let why = "the kernel knows no MADV_POPULATE_WRITE; each page was touched instead".to_owned();
            self.fallbacks.push(Fallback { what: "populate", why });
        }
        if let Some(error) = &faulted.not_started {
            let why = format!("only {} threads could be had: {error}", faulted.threads);
            self.fallbacks.push(Fallback { what: "prefault_threads", why });
        }
    }
}

impl Pages {
    fn reserved(self) -> Option<HugePageSize> {
        match self {
            Self::Reserved(size) => Some(size),
            Self::Base | Self::Transparent(_) => None,
        }
    }

    /// The page size that the mapping has, and that its length is a multiple of.
    fn mapped(self) -> Alignment {
        self.reserved().map_or_else(Alignment::base_page, HugePageSize::alignment)
    }
}

/// The text of an error and of what caused it.
pub(crate) fn with_source(error: &AllocError) -> String {
    let source = std::error::Error::source(error).map(|source| format!(" ({source})"));
    format!("{error}{}", source.unwrap_or_default())
}

/// Whether the policy is in force, and every page that there is lies on `node`.
fn is_bound(machine: &Machine, mapping: &Mapping, numa: Numa, node: NumaNode) -> io::Result<()> {
    let placement = account::placement(machine, mapping.base().addr().get(), node)?;
    let policy = match numa {
        Numa::Require(_) => format!("bind:{node}"),
        _ => format!("prefer:{node}"),
    };
    if placement.policy != policy {
        return Err(io::Error::other(format!("the policy is {}, not {policy}", placement.policy)));
    }
    let account::Placement { there, elsewhere, .. } = placement;
    if elsewhere > 0 {
        let text = format!("{elsewhere} of {} bytes lie on other nodes", there + elsewhere);
        return Err(io::Error::other(text));
    }
    Ok(())
}

fn no_memfd(failed: Failed, more: &str) -> AllocError {
    let what = format!(
        "a memfd {more}: {} is refused, likely by the seccomp profile of a container; allow it, or ask for another \
         backing",
        failed.call
    );
    AllocError::Unsupported { what, source: failed.source }
}

fn copy(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| io::Error::from(error.kind()), io::Error::from_raw_os_error)
}

fn map_private(machine: &Machine, len: usize, pages: Pages) -> Result<Mapping, Failed> {
    let tally = machine.tally();
    let mapping = match pages {
        Pages::Base => Mapping::private(len, Alignment::base_page(), tally)?,
        Pages::Transparent(size) => Mapping::private(len, size.max(Alignment::base_page()), tally)?,
        Pages::Reserved(size) => Mapping::hugetlb(len, size, Sharing::Private, tally)?,
    };
    mapping.advise(Advice::DontFork)?;
    let advised = match pages {
        Pages::Base => mapping.advise(Advice::NotTransparent),
        Pages::Transparent(_) => mapping.advise(Advice::Transparent),
        Pages::Reserved(_) => Ok(()),
    };
    match advised {
        // The kernel is built without transparent huge pages: it has none to give and none to keep away.
        Err(failed) if failed.errno() == libc::EINVAL => Ok(mapping),
        advised => advised.map(|()| mapping),
    }
}

/// Anonymous shared memory lies on a mount of the kernel's own that has no size limit, so it needs no reservation:
/// a touch can meet the out-of-memory killer but no SIGBUS.
fn map_shared(machine: &Machine, len: usize, pages: Pages) -> Result<Mapping, Failed> {
    match pages.reserved() {
        None => Mapping::shared(len, machine.tally()),
        Some(size) => Mapping::hugetlb(len, size, Sharing::Shared, machine.tally()),
    }
}
