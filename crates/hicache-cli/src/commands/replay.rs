//! `hicache replay`.

use crate::args::{Replay, Speed};
use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::progress;
use crate::replayer::{Replayer, Rules};
use crate::report::{Count, Report, Size};
use crate::session::{PoolSlots, Session};
use crate::trace::{Request, Trace};
use hicache::HostPool;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// Slots of the pool where the flags do not say, at most.
const POOL_PAGES: NonZeroU32 = NonZeroU32::new(256).unwrap();

pub(crate) fn run(args: &Replay, output: &mut Output) -> Result {
    // What is wrong with them is told before anything is made.
    let mut trace = Trace::open(&args.trace)?;
    let layout = args.page.layout()?;
    let pool_pages = args.pool_pages.map_or(PoolSlots::AtMost(POOL_PAGES), PoolSlots::Just);
    let rules = Rules { layout, pool_pages, verify: args.verify };
    let interrupt = Interrupt::listen()?;
    let mut session = Session::open_or_temporary(&args.place, output.is_quiet(), &interrupt)?;
    if session.is_memory() && args.restart_every.is_some() && !output.is_quiet() {
        output::note("note: memory: forgets all pages at each restart");
    }
    let report = session.run(|session| {
        let mut replayer = Replayer::new(session, rules, &interrupt)?;
        tell_smaller(args, replayer.pool(), output);
        let started = Instant::now();
        let count = (args.requests > 0).then_some(args.requests);
        let bar = progress::bar(output, count, "requests");
        let pace = Pace { speed: args.speed, first: None, interrupt: &interrupt };
        replay(args, &mut replayer, &mut trace, pace, || bar.inc(1))?;
        bar.finish_and_clear();
        replayer.counts().tell_errors();
        Ok(Report::of(&replayer, started.elapsed()))
    })?;
    if output.is_json() {
        output.document(&report)?;
    } else {
        report.print(output)?;
    }
    if report.is_empty() && !output.is_quiet() {
        output::note(format_args!(
            "note: nothing was replayed: the trace {} has no request after the first {}",
            args.trace.display(),
            args.skip
        ));
    }
    // To remove a temporary store takes a while; nobody need wait for that to read the report.
    output.finish()?;
    Ok(report.ending())
}

/// What would have been more than its share of the memory is told, and how to have it.
fn tell_smaller(args: &Replay, pool: &HostPool, output: &Output) {
    if args.pool_pages.is_none() && pool.slots() < POOL_PAGES.get() && !output.is_quiet() {
        output::note(format_args!(
            "note: a pool of {}, {}: {POOL_PAGES} would be more than its share of the memory; --pool-pages N \
             says how many",
            Count(pool.slots().into(), "page"),
            Size(pool.region().len() as u64)
        ));
    }
}

fn replay(
    args: &Replay,
    replayer: &mut Replayer<'_>,
    trace: &mut Trace,
    mut pace: Pace<'_>,
    done: impl Fn(),
) -> Result<()> {
    for _ in 0..args.skip {
        if trace.next().transpose()?.is_none() {
            return Ok(());
        }
    }
    let mut number = 0;
    while args.requests == 0 || number < args.requests {
        let Some(request) = trace.next().transpose()? else { break };
        if number > 0 && args.restart_every.is_some_and(|every| number % every == 0) {
            replayer.restart()?;
        }
        pace.wait(&request)?;
        replayer.request(&request.hash_ids)?;
        number += 1;
        done();
    }
    Ok(())
}

/// When the next request is due.
struct Pace<'a> {
    speed: Speed,
    /// When the first came, by the trace and by the clock.
    first: Option<(f64, Instant)>,
    interrupt: &'a Interrupt,
}

impl Pace<'_> {
    fn wait(&mut self, request: &Request) -> Result<()> {
        let Speed::Times(times) = self.speed else { return Ok(()) };
        let (timestamp, started) = *self.first.get_or_insert((request.timestamp, Instant::now()));
        let due = ((request.timestamp - timestamp) / 1e3 / times).max(0.0);
        let due = Duration::try_from_secs_f64(due).unwrap_or(Duration::MAX);
        self.interrupt.sleep(due.saturating_sub(started.elapsed()))
    }
}
