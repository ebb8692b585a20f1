//! `hicache demo`: conversations over one system prompt, with a restart half way.

use crate::args::Demo;
use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use crate::progress;
use crate::replayer::{Replayer, Rules};
use crate::report::{Report, Size};
use crate::session::{PoolSlots, Session};
use hicache::{Alignment, PageLayout};
use std::num::NonZeroU32;
use std::time::Instant;

const PAGE_LEN: usize = 256 << 10;
const POOL_PAGES: NonZeroU32 = NonZeroU32::new(256).unwrap();
const CONVERSATIONS: u64 = 12;
const TURNS: u64 = 10;
/// Blocks of the system prompt, which every conversation begins with.
const PROMPT_BLOCKS: u64 = 16;
/// Blocks that each turn adds.
const TURN_BLOCKS: u64 = 20;

pub(crate) fn run(args: &Demo, output: &mut Output) -> Result {
    let layout = PageLayout::opaque(PAGE_LEN)?;
    let rules = Rules { layout, pool_pages: PoolSlots::Just(POOL_PAGES), verify: true };
    let interrupt = Interrupt::listen()?;
    let blocks = PROMPT_BLOCKS + CONVERSATIONS * TURNS * TURN_BLOCKS;
    let bytes = blocks * PAGE_LEN as u64;
    if !output.is_json() && !output.is_quiet() {
        output::note(format_args!(
            "{CONVERSATIONS} conversations of {TURNS} turns over one system prompt: {blocks} pages of {}",
            Size(PAGE_LEN as u64)
        ));
    }
    let mut session = Session::open_or_temporary(&args.place, output.is_quiet(), &interrupt)?;
    if session.is_memory() && !output.is_quiet() {
        output::note(
            "note: memory: forgets all pages at the restart half way, as none of its pages outlive it",
        );
    }
    let (report, memory) = session.run(|session| {
        session.check_room("run demo", bytes)?;
        let mut replayer = Replayer::new(session, rules, &interrupt)?;
        let started = Instant::now();
        let bar = progress::bar(output, Some(CONVERSATIONS * TURNS), "requests");
        for turn in 0..TURNS {
            if turn == TURNS / 2 {
                replayer.restart()?;
            }
            for conversation in 0..CONVERSATIONS {
                replayer.request(&blocks_of(conversation, turn))?;
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        replayer.counts().tell_errors();
        Ok((Report::of(&replayer, started.elapsed()), memory_line(&replayer)))
    })?;
    if output.is_json() {
        output.document(&report)?;
        output.finish()?;
        return Ok(report.ending());
    }
    report.print(output)?;
    output.line(memory)?;
    output.line("next       hicache doctor: what this machine allows, and what fixes the rest")?;
    output.line("           hicache replay --trace FILE --verify: the same over your own requests")?;
    // To remove a temporary store takes a while; nobody need wait for that to read the report.
    output.finish()?;
    Ok(report.ending())
}

/// The blocks of a turn: the prompt, the turns before it, and its own.
fn blocks_of(conversation: u64, turn: u64) -> Vec<u64> {
    let first = PROMPT_BLOCKS + conversation * TURNS * TURN_BLOCKS;
    (0..PROMPT_BLOCKS).chain(first..first + (turn + 1) * TURN_BLOCKS).collect()
}

/// What the machine gave for the pool.
fn memory_line(replayer: &Replayer<'_>) -> String {
    let region = replayer.pool().region();
    let (len, huge, page) = (region.capacity(), region.huge_len(), region.page_size());
    let pages = Size(page.bytes() as u64);
    let on = match huge {
        0 => format!("on base pages of {pages}"),
        _ if page == Alignment::base_page() => {
            format!("{} of it on transparent huge pages", Size(huge as u64))
        }
        _ => format!("on huge pages of {pages}"),
    };
    format!("memory     pool of {}, {on}", Size(len as u64))
}
