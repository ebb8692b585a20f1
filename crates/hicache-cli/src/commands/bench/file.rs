//! `hicache bench file`: first fill, rewrite, cold read and exists of a store.

use super::figures::{Figures, depth, has_checksums, memory, region_spec};
use crate::args::{BenchFile, Cache};
use crate::failure::{Ending, Failure, Result};
use crate::interrupt::{Interrupt, Leftover};
use crate::meter::{Meter, Step};
use crate::output::Output;
use crate::progress;
use crate::report::{Missed, engine, mode};
use crate::session::Session;
use crate::{page_cache, workload};
use hicache::{
    Call, Checksum, DType, Error, ErrorKind, Geometry, Get, HostPool, KeyUnits, Namespace, Outcomes, Page,
    PageKey, PageLayout, PageMut, PageOrder, Put, StorageBackend, Stored,
};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bytes that are stored where the number of pages is not given.
const FILL_LEN: u64 = 1 << 30;
/// Pieces of a page whose layers come first.
const LAYERS: u32 = 16;
/// What a page may take on disk beyond its bytes.
const PAGE_OVERHEAD: u64 = 16 << 10;
/// How long slots are waited for after their batch was answered.
const SLOT_WAIT: Duration = Duration::from_secs(60);
/// Least time that the checksum is measured for.
const CHECKSUM_TIME: Duration = Duration::from_millis(200);

/// A store under measurement.
struct Bench<'a> {
    args: &'a BenchFile,
    session: &'a mut Session,
    namespace: Namespace,
    backend: Arc<dyn StorageBackend>,
    pool: HostPool,
    keys: Vec<PageKey>,
    /// Makes the next key.
    serial: u64,
    interrupt: &'a Interrupt,
    _left: Option<Leftover>,
}

pub(crate) fn run(args: &BenchFile, output: &mut Output) -> Result {
    let layout = layout(args)?;
    let interrupt = Interrupt::listen()?;
    let mut session =
        Session::open_measured(&args.place, args.dir.as_deref(), args.options.given(), &interrupt)?;
    let report = session.run(|session| {
        let mut bench = Bench::new(args, session, layout, &interrupt)?;
        let measured = bench.measure(output);
        // What was there before stays; a temporary store goes as a whole.
        let namespace = bench.namespace;
        let cleared = if session.temporary().is_none() { session.clear_measured(&namespace) } else { Ok(()) };
        let report = measured?;
        cleared.map(|()| report)
    })?;
    if let Some(path) = &args.html {
        report.html().write(path)?;
    }
    if output.is_json() {
        output.document(&report)?;
    } else {
        report.print(output)?;
    }
    Ok(Ending::Done)
}

/// One piece of that size; where layers come first, as many pieces as there are layers.
fn layout(args: &BenchFile) -> Result<PageLayout> {
    if args.order != PageOrder::LayerFirst {
        return Ok(PageLayout::new(Geometry::Opaque { len: args.page_bytes }, args.order)?);
    }
    let latent_dim = u32::try_from(args.page_bytes / LAYERS as usize).ok();
    match latent_dim.filter(|_| args.page_bytes.is_multiple_of(LAYERS as usize)) {
        Some(latent_dim) => {
            let dtype = DType::U8;
            let geometry = Geometry::Mla { layers: LAYERS, tokens: 1, latent_dim, dtype };
            Ok(PageLayout::new(geometry, args.order)?)
        }
        None => Err(Failure::Usage(format!("with layer_first, --page-bytes is a multiple of {LAYERS}"))),
    }
}

/// A slot for each page of a batch, known to the store, every page of random bytes.
fn pool(
    args: &BenchFile,
    session: &Session,
    layout: &PageLayout,
    backend: &dyn StorageBackend,
) -> Result<HostPool> {
    let (spec, slots) = (region_spec(args.memory, session.memory()), args.batch.get());
    let pool = session.pool(backend, layout, slots, spec)?;
    for (mut page, seed) in pool.alloc(slots as usize).expect("a new pool").into_iter().zip(1..) {
        workload::randomise(&mut page, seed);
    }
    Ok(pool)
}

impl<'a> Bench<'a> {
    fn new(
        args: &'a BenchFile,
        session: &'a mut Session,
        layout: PageLayout,
        interrupt: &'a Interrupt,
    ) -> Result<Self> {
        // A namespace of this run's own: what is there is neither read nor removed.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let namespace = Namespace::named(&format!("bench-{now:x}-{}", std::process::id()), layout)?;
        let page_len = layout.page_len() as u64;
        let batch = u64::from(args.batch.get());
        let pages = args.pages.map_or_else(|| (FILL_LEN / page_len).max(batch), std::num::NonZeroU64::get);
        session.check_room("measure store", pages.saturating_mul(page_len + PAGE_OVERHEAD))?;
        let left = session.leaves_measured(&namespace);
        let backend = session.backend(namespace.clone())?;
        let pool = pool(args, session, &layout, &*backend)?;
        let serial = (now as u64) << 1;
        let mut bench = Self {
            args,
            session,
            namespace,
            backend,
            pool,
            keys: Vec::new(),
            serial,
            interrupt,
            _left: left,
        };
        bench.keys = bench.next_keys(usize::try_from(pages).unwrap_or(usize::MAX))?;
        Ok(bench)
    }

    fn measure(&mut self, output: &Output) -> Result<Figures> {
        let checksum_gb_per_s = self.checksum_rate()?;
        let bar = progress::bar(output, Some(4), "steps");
        let told = |step: &'static str| bar.set_message(step);
        told("write");
        let write = self.write()?;
        bar.inc(1);
        told("rewrite");
        let rewrite = self.rewrite()?;
        bar.inc(1);
        told("read");
        let (read, cache) = self.read()?;
        bar.inc(1);
        told("exists");
        let exists = self.exists()?;
        bar.finish_and_clear();
        let health = self.session.store().health();
        let stats = self.backend.stats();
        let engine = engine(&health, &stats);
        let missed = self.pool.region().fallbacks().iter().cloned().chain(health.fallbacks);
        Ok(Figures {
            write,
            rewrite,
            read,
            exists,
            engine,
            mode: mode(self.session, &stats),
            memory: memory(self.pool.region()),
            depth: depth(self.session, engine)?,
            batch: self.args.batch.get(),
            page_bytes: self.page_len(),
            registered_pages: stats.registered,
            format: health.format,
            checksum: has_checksums(self.session)?,
            checksum_gb_per_s,
            cache,
            fallbacks: Missed::all(missed),
        })
    }

    /// First fill: keys that are not there, space that this store has not used.
    fn write(&mut self) -> Result<Step> {
        let mut pages = self.frozen()?;
        let mut meter = Meter::default();
        loop {
            meter.stretch(|meter| {
                self.batches(&self.keys).try_for_each(|keys| self.set(meter, keys, &pages))
            })?;
            if meter.took(Some(self.args.seconds.unwrap_or_default())) {
                return Ok(meter.step());
            }
            self.session.renew(&self.namespace)?;
            self.backend = self.session.backend(self.namespace.clone())?;
            // A new store does not know the old one's pool.
            drop(pages);
            self.pool = pool(self.args, self.session, self.namespace.layout(), &*self.backend)?;
            pages = self.frozen()?;
        }
    }

    /// New keys over the space of old ones.
    fn rewrite(&mut self) -> Result<Step> {
        let pages = self.frozen()?;
        let mut meter = Meter::default();
        loop {
            let new = self.next_keys(self.keys.len())?;
            let pairs = || self.batches(&self.keys).zip(self.batches(&new));
            meter.stretch(|meter| {
                pairs().try_for_each(|(old, new)| {
                    meter.batch(new.len(), self.page_len(), || {
                        all(self.backend.batch_remove(old, Call::default()).wait(), |there| *there)?;
                        self.store(new, &pages)
                    })
                })
            })?;
            self.keys = new;
            if meter.took(Some(self.args.seconds.unwrap_or_default())) {
                return Ok(meter.step());
            }
        }
    }

    /// Reads every page in the order written, and tells what the page cache held before.
    fn read(&self) -> Result<(Step, String)> {
        let mut meter = Meter::default();
        if self.args.cache == Cache::Warm {
            self.fetch(&mut Meter::default())?;
        }
        loop {
            let cache = match self.args.cache {
                Cache::Cold => self.drop_cache()?,
                Cache::Warm => "warm: every page was read once before".to_owned(),
            };
            meter.stretch(|meter| self.fetch(meter))?;
            if meter.took(Some(self.args.seconds.unwrap_or_default())) {
                return Ok((meter.step(), cache));
            }
        }
    }

    fn fetch(&self, meter: &mut Meter) -> Result<()> {
        self.batches(&self.keys).try_for_each(|keys| {
            meter.batch(keys.len(), self.page_len(), || {
                let slots = self.slots(keys.len())?;
                let batch = keys.iter().zip(slots).map(|(key, into)| Get { key: *key, into }).collect();
                all(self.backend.batch_get(batch, Call::default()).wait(), Option::is_some)
            })
        })
    }

    fn exists(&self) -> Result<Step> {
        let mut meter = Meter::default();
        while !meter.took(Some(self.args.seconds.unwrap_or(Duration::from_nanos(1)))) {
            meter.stretch(|meter| {
                self.batches(&self.keys).try_for_each(|keys| {
                    meter.batch(keys.len(), 0, || {
                        all(self.backend.batch_exists(keys, Call::default()).wait(), |there| *there)
                    })
                })
            })?;
        }
        Ok(meter.step())
    }

    fn set(&self, meter: &mut Meter, keys: &[PageKey], pages: &[Page]) -> Result<()> {
        meter.batch(keys.len(), self.page_len(), || self.store(keys, pages))
    }

    fn store(&self, keys: &[PageKey], pages: &[Page]) -> Result<()> {
        self.interrupt.check()?;
        let put = |(key, page): (&PageKey, &Page)| Put { key: *key, parent: None, page: page.clone() };
        let batch = keys.iter().zip(pages).map(put).collect();
        all(self.backend.batch_set(batch, Call::default()).wait(), |stored| *stored == Stored::Written)
    }

    /// Runs of keys that the pool has slots for.
    fn batches<'k>(&self, keys: &'k [PageKey]) -> impl Iterator<Item = &'k [PageKey]> {
        keys.chunks(self.args.batch.get() as usize)
    }

    fn frozen(&self) -> Result<Vec<Page>> {
        Ok(self.slots(self.pool.slots() as usize)?.into_iter().map(PageMut::freeze).collect())
    }

    fn slots(&self, count: usize) -> Result<Vec<PageMut>> {
        slots(&self.pool, count, self.interrupt)
    }

    fn next_keys(&mut self, count: usize) -> Result<Vec<PageKey>> {
        let first = self.serial;
        self.serial += count as u64;
        let key = |serial| PageKey::of_page(None, &[serial & i64::MAX as u64], KeyUnits::Token);
        Ok((first..self.serial).map(key).collect::<hicache::Result<_>>()?)
    }

    fn page_len(&self) -> u64 {
        self.namespace.layout().page_len() as u64
    }

    /// Sees to it that the next read reads the device; what was done, or why nothing.
    fn drop_cache(&self) -> Result<String> {
        let stats = self.backend.stats();
        if self.session.is_memory() {
            return Ok("none: the store keeps its pages in memory".to_owned());
        }
        if stats.buffered == 0 && stats.written > 0 {
            return Ok("cold: direct I/O passes the page cache".to_owned());
        }
        let Some(folder) = self.session.folder()? else {
            return Ok("as it was: only the files of a file store can be dropped from it".to_owned());
        };
        let dropped = page_cache::drop_files(&folder);
        let files =
            dropped.map_err(Failure::file(format!("drop {} from the page cache", folder.display())))?;
        Ok(format!("cold: {files} files dropped by posix_fadvise"))
    }

    /// How fast one core makes the checksum of the pool's pages, in GB/s.
    fn checksum_rate(&self) -> Result<f64> {
        let pages = self.frozen()?;
        let mut meter = Meter::default();
        while !meter.took(Some(CHECKSUM_TIME)) {
            meter.stretch(|meter| {
                pages.iter().try_for_each(|page| {
                    meter.batch(1, self.page_len(), || {
                        std::hint::black_box(Checksum::of(page));
                        Ok(())
                    })
                })
            })?;
        }
        Ok(meter.step().gb_per_s)
    }
}

/// Free slots. An engine may let go of a page a moment after it answered for it.
pub(super) fn slots(pool: &HostPool, count: usize, interrupt: &Interrupt) -> Result<Vec<PageMut>> {
    interrupt.check()?;
    let started = Instant::now();
    loop {
        if let Some(pages) = pool.alloc(count) {
            return Ok(pages);
        }
        if started.elapsed() > SLOT_WAIT {
            return Err(Error::new(ErrorKind::Exhausted, "measure store")
                .why("pages of batches that were answered still hold their slots")
                .into());
        }
        std::thread::yield_now();
    }
}

/// An error unless every item is as it should be.
pub(super) fn all<T: std::fmt::Debug>(outcomes: Outcomes<T>, right: impl Fn(&T) -> bool) -> Result<()> {
    for outcome in outcomes {
        let outcome = outcome?;
        if !right(&outcome) {
            return Err(Error::new(ErrorKind::Corrupt, "measure store")
                .why("a page was not as this run had left it; does somebody else change the store?")
                .with("outcome", format_args!("{outcome:?}"))
                .into());
        }
    }
    Ok(())
}
