//! `hicache bench obj`: write, read and exists of an S3 store, with as many requests under way as asked for.

use super::figures::has_checksums;
use super::file::all;
use super::html::Report;
use crate::args::{BenchObj, Place, Switch};
use crate::failure::{Ending, Failure, Result};
use crate::interrupt::Interrupt;
use crate::meter::{Meter, Step};
use crate::output::Output;
use crate::report::{Micros, Missed, Size, mode};
use crate::session::{self, Session};
use crate::workload;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hicache::{
    Call, Checksum, Get, HostPool, KeyUnits, Namespace, Outcomes, Page, PageKey, PageLayout, PageMut,
    Pending, Put, RegionSpec, StorageBackend, Stored,
};
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bytes that are stored where the number of pages is not given.
const FILL_LEN: u64 = 1 << 30;

/// The JSON of `bench obj`.
#[derive(Debug, Serialize)]
struct Figures {
    write: Step,
    read: Step,
    exists: Step,
    engine: &'static str,
    mode: &'static str,
    concurrency: u32,
    batch: u32,
    page_bytes: u64,
    retries: u64,
    checksum: bool,
    /// Of one core of this machine, whether or not the store makes checksums.
    checksum_gb_per_s: f64,
    fallbacks: Vec<Missed>,
}

/// A store under measurement.
struct Bench<'a> {
    args: &'a BenchObj,
    backend: Arc<dyn StorageBackend>,
    pool: HostPool,
    keys: Vec<PageKey>,
    /// Requests that the store has under way at once.
    concurrency: u32,
    interrupt: &'a Interrupt,
}

pub(crate) fn run(args: &BenchObj, output: &mut Output) -> Result {
    let interrupt = Interrupt::listen()?;
    let mut flags = Vec::new();
    if let Some(concurrency) = args.concurrency {
        flags.push(("concurrency".to_owned(), concurrency.to_string()));
    }
    if let Some(checksum) = args.checksum {
        flags.push(("checksum".to_owned(), (checksum == Switch::On).to_string()));
    }
    let Some(url) = session::named_url(&args.place)?.filter(|url| url.starts_with("s3:")) else {
        return Err(Failure::Usage(
            "bench obj wants --backend s3://BUCKET?..., or a --config that names one; bench file measures others"
                .to_owned(),
        ));
    };
    let place = Place { backend: Some(url), config: args.place.config.clone() };
    // What is asked for here is not what was asked of the service before.
    flags.push(("exists_ttl".to_owned(), "0s".to_owned()));
    let mut session = Session::open_measured(&place, None, flags, &interrupt)?;
    let report = session.run(|session| {
        // A namespace of this run's own: what is there is neither read nor removed.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let layout = PageLayout::opaque(args.page_bytes)?;
        let namespace = Namespace::named(&format!("bench-{now:x}-{}", std::process::id()), layout)?;
        let _left = session.leaves_measured(&namespace);
        let bench = Bench::new(args, session, &namespace, now as u64, &interrupt)?;
        let measured = bench.measure(session);
        let cleared = session.clear_measured(&namespace);
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

impl<'a> Bench<'a> {
    fn new(
        args: &'a BenchObj,
        session: &Session,
        namespace: &Namespace,
        serial: u64,
        interrupt: &'a Interrupt,
    ) -> Result<Self> {
        let backend = session.backend(namespace.clone())?;
        let page_len = args.page_bytes as u64;
        let batch = args.batch.get();
        let pages =
            args.pages.map_or_else(|| (FILL_LEN / page_len).max(u64::from(batch)), std::num::NonZeroU64::get);
        let concurrency = session.option("concurrency")?.and_then(|set| set.parse().ok()).unwrap_or(1);
        // As many as are ever lent at once.
        let calls = u64::from(window(batch, concurrency)).min(pages.div_ceil(u64::from(batch)));
        let slots = u32::try_from(calls * u64::from(batch)).unwrap_or(u32::MAX);
        let pool = session.pool(&*backend, namespace.layout(), slots, RegionSpec::default())?;
        for (mut page, seed) in pool.alloc(slots as usize).expect("a new pool").into_iter().zip(1..) {
            workload::randomise(&mut page, seed);
        }
        let key = |n| PageKey::of_page(None, &[serial.wrapping_add(n) & i64::MAX as u64], KeyUnits::Token);
        let keys = (0..pages).map(key).collect::<hicache::Result<_>>()?;
        Ok(Self { args, backend, pool, keys, concurrency, interrupt })
    }

    fn measure(&self, session: &Session) -> Result<Figures> {
        let checksum_gb_per_s = self.checksum_rate()?;
        let sources: Vec<Page> =
            self.slots(self.pool.slots() as usize)?.into_iter().map(PageMut::freeze).collect();
        let write = self.step(
            true,
            |keys, turn| {
                let pages = sources.iter().cycle().skip(turn * keys.len());
                let put =
                    |(key, page): (&PageKey, &Page)| Put { key: *key, parent: None, page: page.clone() };
                let batch = keys.iter().zip(pages).map(put).collect();
                Ok(self.backend.batch_set(batch, Call::default()))
            },
            |stored| *stored == Stored::Written,
        )?;
        drop(sources);
        let read = self.step(
            true,
            |keys, _| {
                let batch = keys
                    .iter()
                    .zip(self.slots(keys.len())?)
                    .map(|(key, into)| Get { key: *key, into })
                    .collect();
                Ok(self.backend.batch_get(batch, Call::default()))
            },
            Option::is_some,
        )?;
        let exists =
            self.step(false, |keys, _| Ok(self.backend.batch_exists(keys, Call::default())), |there| *there)?;
        let health = session.store().health();
        let stats = self.backend.stats();
        let missed = self.pool.region().fallbacks().iter().cloned().chain(health.fallbacks);
        Ok(Figures {
            write,
            read,
            exists,
            engine: health.engine,
            mode: mode(session, &stats),
            concurrency: self.concurrency,
            batch: self.args.batch.get(),
            page_bytes: self.args.page_bytes as u64,
            retries: stats.retries,
            checksum: has_checksums(session)?,
            checksum_gb_per_s,
            fallbacks: Missed::all(missed),
        })
    }

    /// Every key once, in calls that overlap.
    fn step<T: std::fmt::Debug + 'static>(
        &self,
        moves: bool,
        call: impl Fn(&[PageKey], usize) -> Result<Pending<Outcomes<T>>>,
        right: impl Fn(&T) -> bool,
    ) -> Result<Step> {
        let page_len = if moves { self.args.page_bytes as u64 } else { 0 };
        let mut meter = Meter::default();
        meter.stretch(|meter| {
            let mut calls = FuturesUnordered::new();
            let mut batches = self.keys.chunks(self.args.batch.get() as usize).zip(0..);
            let mut run = || loop {
                self.interrupt.check()?;
                while calls.len() < window(self.args.batch.get(), self.concurrency) as usize
                    && let Some((keys, turn)) = batches.next()
                {
                    let (started, pending) = (Instant::now(), call(keys, turn)?);
                    calls.push(async move { (pending.await, started.elapsed()) });
                }
                let Some((outcomes, took)) = pollster::block_on(calls.next()) else { return Ok(()) };
                meter.beside(outcomes.len(), page_len, took);
                all(outcomes, &right)?;
            };
            let ended = run();
            // A call that nobody waits for goes on, and what it stored after the removal would be left.
            while pollster::block_on(calls.next()).is_some() {}
            self.interrupt.check().and(ended)
        })?;
        Ok(meter.step())
    }

    fn slots(&self, count: usize) -> Result<Vec<PageMut>> {
        super::file::slots(&self.pool, count, self.interrupt)
    }

    /// How fast one core makes the checksum of the pool's pages, in GB/s.
    fn checksum_rate(&self) -> Result<f64> {
        let pages: Vec<Page> =
            self.slots(self.pool.slots() as usize)?.into_iter().map(PageMut::freeze).collect();
        let mut meter = Meter::default();
        while !meter.took(Some(Duration::from_millis(200))) {
            meter.stretch(|meter| {
                pages.iter().try_for_each(|page| {
                    meter.batch(1, page.len() as u64, || {
                        std::hint::black_box(Checksum::of(page));
                        Ok(())
                    })
                })
            })?;
        }
        Ok(meter.step().gb_per_s)
    }
}

/// Calls under way at once: enough that the requests of one can begin before another has ended.
fn window(batch: u32, concurrency: u32) -> u32 {
    if batch == 1 { concurrency } else { concurrency.div_ceil(batch) + 1 }
}

impl Figures {
    /// The page for people.
    fn html(&self) -> Report {
        let mut report = Report::new("hicache bench obj");
        report.fact("pages", format_args!("{}, {} in a call", Size(self.page_bytes), self.batch));
        report.fact("requests", format_args!("{} at once, {} sent again", self.concurrency, self.retries));
        report.fact("store", format_args!("engine {}, mode {}", self.engine, self.mode));
        let used = if self.checksum { "on" } else { "off" };
        report.fact("checksum", format_args!("{used}; a core makes {:.1} GB/s", self.checksum_gb_per_s));
        for missed in &self.fallbacks {
            report.fact("without", format_args!("{}: {}", missed.what, missed.why));
        }
        report.plot_steps("call", &[("write", &self.write), ("read", &self.read)], &self.exists);
        report
    }

    fn print(&self, output: &mut Output) -> Result<()> {
        for (name, step) in [("write", &self.write), ("read", &self.read)] {
            output.line(format_args!(
                "{name:<10} {:.2} GB/s, {:.0} pages/s, call p50 {}, p99 {}, {:.3} CPU s/GB ({} in {:.2} s)",
                step.gb_per_s,
                step.pages_per_s,
                Micros(step.p50_us),
                Micros(step.p99_us),
                step.cpu_seconds_per_gb,
                Size(step.bytes),
                step.seconds
            ))?;
        }
        let (asked, took) = (self.exists.pages_per_s, Micros(self.exists.p50_us));
        output.line(format_args!("exists     {asked:.0} pages/s, call p50 {took}"))?;
        let (page, batch) = (Size(self.page_bytes), self.batch);
        output.line(format_args!(
            "pages      {page}, {batch} in a call, {} requests at once",
            self.concurrency
        ))?;
        output.line(format_args!("store      {}, {} requests sent again", self.mode, self.retries))?;
        let used = if self.checksum { "on" } else { "off" };
        output.line(format_args!("checksum   {used}; a core makes {:.1} GB/s", self.checksum_gb_per_s))?;
        Missed::print(&self.fallbacks, output)
    }
}
