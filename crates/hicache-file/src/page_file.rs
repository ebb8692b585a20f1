//! One page, one file: written whole or not at all, read whole and checked, or a miss.

use crate::bounce::{Going, Passage, Traffic, Ways, lies_on_base_pages};
use crate::draft::{Draft, Published};
use crate::options::Durability;
use crate::payload::{Memory, Mode};
use crate::root::{Root, page_folder, page_path};
use crate::slot::{Slot, copy_in};
use crate::standing::{Opened, Standing, is_absence};
use crate::trailer::{Flaw, Shape, Trailer};
use hicache_core::{Checksum, Counters, HostPool, Namespace, Page, PageKey, PageMut, Put, Result, Stored};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// How often a set tries again when others clear the namespace, or damage is replaced, under its hands.
pub(crate) const ATTEMPTS_MAX: u32 = 8;

/// Pieces that one call of the ring takes, with room for the tail (the kernel's IOV_MAX is 1024).
const PIECES_MAX: u32 = 1000;

/// Page files of one namespace in one directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageFiles<'a> {
    pub(crate) root: &'a Root,
    pub(crate) namespace: &'a Namespace,
    pub(crate) counters: &'a Counters,
    pub(crate) checksum: bool,
    pub(crate) accept_unverified: bool,
    pub(crate) durability: Durability,
    pub(crate) ways: &'a Arc<Ways>,
    /// The namespace's record in this directory is known to be there and to agree.
    pub(crate) recorded: &'a AtomicBool,
}

impl PageFiles<'_> {
    /// The shape of every page file here.
    pub(crate) fn shape(&self) -> Shape {
        Shape { payload_len: self.namespace.layout().page_len(), block: self.root.block() }
    }

    fn mode(&self, pool: &HostPool, going: &Going) -> Mode {
        match self.root.direct() {
            None => Mode::Buffered,
            Some(alignment) if !pool.is_aligned(alignment) => Mode::Bounce(alignment),
            Some(alignment) if going.slot.is_some() => Mode::Through(alignment),
            Some(alignment) => Mode::Direct(alignment),
        }
    }

    /// Whether a page of `pool` can go straight.
    fn reaches(&self, pool: &HostPool) -> bool {
        self.root.direct().is_some_and(|alignment| pool.is_aligned(alignment))
    }

    /// Whether a page of `pool` can go straight, and lies on base pages: then it has two ways.
    pub(crate) fn has_two_ways(&self, pool: &HostPool) -> bool {
        self.reaches(pool) && lies_on_base_pages(pool)
    }

    fn go(&self, traffic: Traffic, pool: &HostPool, begun: Option<Passage>) -> Going {
        if self.has_two_ways(pool) { self.ways.go(traffic, begun) } else { Going::default() }
    }

    fn count(&self, mode: Mode) {
        let counter = match mode {
            Mode::Direct(_) => &self.counters.direct,
            Mode::Bounce(_) | Mode::Through(_) => &self.counters.bounced,
            Mode::Buffered => &self.counters.buffered,
        };
        Counters::add(counter, 1);
    }

    /// Stores a page. What is there and sound is left; what is not is set aside and replaced.
    pub(crate) fn set(&self, put: &Put, slot: &mut Slot) -> Result<Stored> {
        self.namespace.check_shape("set page", put.page.planes(), put.page.len())?;
        let path = page_path(self.namespace.digest(), &put.key);
        self.set_at(put, &path, slot).map_err(|error| self.root.failed("set page", &path, error))
    }

    fn set_at(&self, put: &Put, path: &str, slot: &mut Slot) -> io::Result<Stored> {
        let (mut lacks_folders, mut gone) = (!self.recorded.load(Ordering::Acquire), None);
        for _ in 0..ATTEMPTS_MAX {
            if lacks_folders {
                match self.make_folders(&put.key) {
                    // A clear took away what was just made.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        gone = Some(error);
                        continue;
                    }
                    made => made?,
                }
                lacks_folders = false;
                self.recorded.store(true, Ordering::Release);
            }
            match self.look(path, Some(&put.key), slot)? {
                Standing::Sound(_) => {
                    Counters::add(&self.counters.present, 1);
                    return Ok(Stored::Present);
                }
                Standing::Flawed(Flaw::Foreign, _) => return Err(io::Error::other(self.foreign(path))),
                Standing::Flawed(flaw, seen) => self.set_aside(path, &seen, &flaw)?,
                Standing::Unreadable(error) => return Err(error),
                Standing::Nothing | Standing::Listed => (),
            }
            match self.write_new(put, path, slot) {
                Ok(Published::Done) => {
                    Counters::add(&self.counters.written, 1);
                    Counters::add(&self.counters.bytes_written, put.page.len() as u64);
                    return Ok(Stored::Written);
                }
                // Another writer was faster: look at what it wrote.
                Ok(Published::Taken) => (),
                // No folder for it yet, or a clear took it away.
                Err(error) if error.kind() == io::ErrorKind::NotFound => lacks_folders = true,
                Err(error) => return Err(error),
            }
        }
        Err(gone.unwrap_or_else(|| io::Error::other("others keep changing this page's place; tried 8 times")))
    }

    fn write_new(&self, put: &Put, path: &str, slot: &mut Slot) -> io::Result<Published> {
        self.root.sys().check_file_len(self.shape().file_len())?;
        let folder = page_folder(self.namespace.digest(), &put.key);
        let mut trailer = Trailer {
            key: put.key,
            parent: put.parent,
            namespace: self.namespace.digest(),
            layout: self.namespace.layout().mark(),
            payload_len: put.page.len() as u64,
            written_ms: now_ms(),
            checksum: None,
        };
        let mut going = self.go(Traffic::Write, put.page.pool(), None);
        let (draft, mode) = self.downgrading(self.mode(put.page.pool(), &going), |mode| {
            let draft = Draft::create(self.root, &folder, mode.flags())?;
            let memory = Memory::of(slot, going.slot.as_mut());
            self.write_payload(draft.file(), &put.page, &mut trailer, (mode, memory))?;
            Ok((draft, mode))
        })?;
        going.arrived(put.page.len());
        let sync = self.durability == Durability::Sync;
        if sync {
            self.root.sys().sync(draft.file())?;
        }
        let published = draft.publish(path)?;
        if published == Published::Done {
            self.count(mode);
            if sync {
                self.root.sys().sync_dir(self.root.dir(), &folder)?;
            }
        }
        Ok(published)
    }

    /// Does `act` in that mode; once more, buffered, when the file system refuses what it promised.
    fn downgrading<T>(&self, mode: Mode, mut act: impl FnMut(Mode) -> io::Result<T>) -> io::Result<T> {
        match act(mode) {
            // A transfer that hicache itself did not align never reaches the kernel, so this is the file system's.
            Err(error)
                if mode != Mode::Buffered
                    && error.raw_os_error() == Some(libc::EINVAL)
                    && self.root.give_up_direct(&error) =>
            {
                act(Mode::Buffered)
            }
            done => done,
        }
    }

    /// Fetches a page into `into`. What fails its check is set aside, counted, and answered as a miss.
    /// `begun` is how it goes, if that was said when it was asked for.
    pub(crate) fn get(
        &self,
        key: &PageKey,
        into: PageMut,
        slot: &mut Slot,
        begun: Option<Passage>,
    ) -> Result<Option<Page>> {
        self.namespace.check_shape("get page", into.planes(), into.len())?;
        self.check_record()?;
        let path = page_path(self.namespace.digest(), key);
        let going = self.go(Traffic::Read, into.pool(), begun);
        let read = self.read_into(&path, key, into, slot, going);
        read.map_err(|error| self.root.failed("get page", &path, error))
    }

    fn read_into(
        &self,
        path: &str,
        key: &PageKey,
        mut into: PageMut,
        slot: &mut Slot,
        mut going: Going,
    ) -> io::Result<Option<Page>> {
        let read = self.downgrading(self.mode(into.pool(), &going), |mode| {
            let (file, stat) = match self.open(path, mode.flags())? {
                Opened::File(file, stat) => (file, stat),
                Opened::Nothing => return Ok(None),
                Opened::Flawed(flaw, stat) => return Ok(Some((Err(flaw), stat, mode))),
            };
            let memory = Memory::of(slot, going.slot.as_mut());
            match self.read_payload(&file, &mut into, (mode, memory)) {
                Ok(read) => Ok(Some((read, stat, mode))),
                // Stale: the file went away on its server, after we had opened it.
                Err(error) if error.raw_os_error() == Some(libc::ESTALE) => Ok(None),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    Ok(Some((Err(Flaw::Torn("it was cut short while it was read".into())), stat, mode)))
                }
                Err(error) => Err(error),
            }
        })?;
        let Some((trailer, stat, mode)) = read else {
            Counters::add(&self.counters.misses, 1);
            return Ok(None);
        };
        let len = into.len();
        match trailer
            .map_or_else(|flaw| Err((flaw, None)), |(trailer, sum)| self.judge(key, into, trailer, sum))
        {
            Ok((page, verified)) => {
                going.arrived(len);
                Ok(self.serve(page, verified, mode))
            }
            Err((Flaw::Foreign, _)) => {
                Counters::add(&self.counters.misses, 1);
                Ok(None)
            }
            Err((flaw, _)) => {
                Counters::add(&self.counters.damaged, 1);
                if let Err(error) = self.set_aside(path, &stat, &flaw) {
                    tracing::warn!(path, %flaw, %error, "damaged, and not to be set aside: each get reads it again");
                }
                Ok(None)
            }
        }
    }

    /// Whether what was read is the page of that key, and whether its bytes could be verified; `sum` is their checksum,
    /// if it was made while they were copied. Gives the page back when it is not.
    fn judge(
        &self,
        key: &PageKey,
        into: PageMut,
        trailer: Trailer,
        sum: Option<u64>,
    ) -> std::result::Result<(Page, bool), (Flaw, Option<PageMut>)> {
        let page = into.freeze();
        let checked = trailer.check(self.namespace, key).and_then(|()| {
            match trailer.checksum.filter(|_| self.checksum) {
                Some(checksum) if checksum != sum.unwrap_or_else(|| Checksum::of(&page)) => {
                    Err(Flaw::Wrong("its bytes fail their checksum".to_string()))
                }
                verified => Ok(verified.is_some()),
            }
        });
        match checked {
            Ok(verified) => Ok((page, verified)),
            Err(flaw) => Err((flaw, page.try_thaw().ok())),
        }
    }

    /// How a ring can read a page in one go, straight into its pieces or into a slot: path, flags and bytes after the
    /// page. `None` where the page is not aligned, goes through the page cache, or is of another shape, or the record
    /// was not looked at yet.
    pub(crate) fn plan_read(
        &self,
        key: &PageKey,
        into: &PageMut,
        slot: Option<&PageMut>,
    ) -> Option<(String, i32, usize)> {
        let plans = self.recorded.load(Ordering::Acquire)
            && self.reaches(into.pool())
            && slot.unwrap_or(into).planes() < PIECES_MAX
            && self.namespace.check_shape("get page", into.planes(), into.len()).is_ok();
        plans.then(|| (page_path(self.namespace.digest(), key), libc::O_DIRECT, self.shape().tail_len()))
    }

    /// Serves a page that a ring has read whole: into `into`, if what it read is a slot that the page bounces through.
    /// Gives it back when it is not what it should be: then it is to be read again, by rules that know what to do with
    /// it.
    pub(crate) fn serve_read(
        &self,
        key: &PageKey,
        read: PageMut,
        into: Option<PageMut>,
        trailer: Trailer,
    ) -> std::result::Result<Option<Page>, Option<PageMut>> {
        let block = self.root.block();
        let (page, sum, mode) = match into {
            None => (read, None, Mode::Direct(block)),
            Some(mut into) => {
                let mut checksum = self.checksum.then(Checksum::new);
                let bytes = read.bytes(0).expect("slots are in private memory");
                copy_in(&mut into, 0, bytes, checksum.as_mut());
                (into, checksum.as_ref().map(Checksum::finish), Mode::Through(block))
            }
        };
        let (page, verified) = self.judge(key, page, trailer, sum).map_err(|(_, into)| into)?;
        let served = self.serve(page, verified, mode);
        Counters::add(&self.counters.ring, u64::from(served.is_some()));
        Ok(served)
    }

    pub(crate) fn count_miss(&self) {
        Counters::add(&self.counters.misses, 1);
    }

    /// A page that is what it should be, as far as was looked.
    fn serve(&self, page: Page, verified: bool, mode: Mode) -> Option<Page> {
        if !verified {
            Counters::add(&self.counters.unverified, 1);
            // Who turned checksums off trusts what is there; who did not must say that he does.
            if self.checksum && !self.accept_unverified {
                Counters::add(&self.counters.misses, 1);
                return None;
            }
        }
        self.count(mode);
        Counters::add(&self.counters.hits, 1);
        Counters::add(&self.counters.bytes_read, page.len() as u64);
        Some(page)
    }

    /// Whether a page is there: by its name and length, without reading it.
    pub(crate) fn exists(&self, key: &PageKey) -> Result<bool> {
        self.check_record()?;
        let path = page_path(self.namespace.digest(), key);
        match self.root.sys().stat(self.root.dir(), &path) {
            Ok(stat) => Ok(self.flaw_of(&stat).is_none()),
            Err(error) if is_absence(&error) => Ok(false),
            Err(error) => Err(self.root.failed("ask for page", &path, error)),
        }
    }

    /// Removes a page. False when none was there.
    pub(crate) fn remove(&self, key: &PageKey) -> Result<bool> {
        self.check_record()?;
        let path = page_path(self.namespace.digest(), key);
        match self.root.sys().unlink(self.root.dir(), &path) {
            Ok(()) => {
                Counters::add(&self.counters.removed, 1);
                Ok(true)
            }
            Err(error) if is_absence(&error) => Ok(false),
            Err(error) => Err(self.root.failed("remove page", &path, error)),
        }
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
