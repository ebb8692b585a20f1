//! `cargo xtask bench`: hicache against fio and plain threads on one directory, or against other clients of S3.

mod contender;
mod figures;
mod flags;
mod folder;
mod obj;
mod tools;

use std::process::ExitCode;

use crate::cargo::{cargo, succeed};
use crate::workspace::Workspace;
use contender::{Cache, Contender, Load, Program};
use figures::{Figures, print_rates, print_ratios};
use flags::{Flags, Part};
use folder::Folder;
use tools::Tools;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Threads of the harness.
const THREADS: u32 = 16;
/// Pages in a batch, where the batch is not what is varied.
const BATCH: u32 = 128;
/// Batches at least, so that the first and the last, where not all work at once, are not all there is.
const BATCHES: u64 = 4;

const SPREAD: &str = "Rates are medians; ratios are those of one round, as median (least-most). \
    A ratio between 0.87 and 1.15 says nothing.";

/// What is measured in turns, and against whom.
struct Section {
    load: Load,
    contenders: Vec<Contender>,
    /// Those whose figures the others are divided by.
    bases: Vec<usize>,
}

/// Builds, measures, prints.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode, String> {
    let flags = Flags::parse(arguments, &workspace.target)?;
    if flags.only == Some(Part::Obj) {
        println!("Rounds: {}, in random order, after one that is not counted. {SPREAD}", flags.rounds);
        return obj::run(workspace, &flags).map(|()| ExitCode::SUCCESS);
    }
    let packages = ["build", "--release", "--locked", "-p", "hicache-cli", "-p", "hicache-benches", "--bins"];
    succeed(cargo(&packages))?;
    let mut folder = Folder::make(&flags.dir)?;
    let tools = Tools::look(workspace, &flags, &mut folder)?;
    tools.tell();
    println!(
        "Rounds: {}, in random order, a fresh directory each. {SPREAD} S3 is measured when asked for: --only obj.",
        flags.rounds
    );
    for (part, title) in [
        (Part::Compare, "Against fio and plain threads"),
        (
            Part::Batches,
            "Batches, checksums off, against as many plain threads as pages in the batch (16 at most)",
        ),
        (Part::Cache, "Direct against buffered I/O"),
    ] {
        if flags.only.is_none_or(|only| only == part) {
            println!("\n## {title}");
            for section in sections(part, &flags, &tools) {
                section.measure(&flags, &tools, &mut folder)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn sections(part: Part, flags: &Flags, tools: &Tools) -> Vec<Section> {
    let load = |page_len, bytes: u64, batch: u32| Load {
        page_len,
        pages: (bytes / page_len).max(BATCHES * u64::from(batch)),
        batch,
    };
    match part {
        Part::Compare => {
            let of = |page_len| compare(load(page_len, flags.bytes, BATCH), tools);
            flags.page_lens(&[64 * KIB, MIB, 4 * MIB]).into_iter().map(of).collect()
        }
        Part::Batches => {
            let cells = flags
                .page_lens(&[64 * KIB, MIB])
                .into_iter()
                .flat_map(|page_len| [1, 4, 32, BATCH].map(|batch| (page_len, batch)));
            cells.map(|(page_len, batch)| batches(load(page_len, flags.bytes / 4, batch), tools)).collect()
        }
        // Not of directories.
        Part::Obj => Vec::new(),
        Part::Cache => {
            let of = |page_len| cache(load(page_len, flags.bytes, BATCH), tools);
            flags.page_lens(&[64 * KIB, MIB]).into_iter().map(of).collect()
        }
    }
}

fn compare(load: Load, tools: &Tools) -> Section {
    let mut contenders = Vec::new();
    for engine in &tools.engines {
        for checksum in [true, false] {
            contenders.push(Contender::new(Program::hicache(engine, checksum, Cache::Direct)));
        }
    }
    let mut bases = vec![contenders.len()];
    contenders.push(Contender::new(Program::Harness { threads: THREADS }));
    if tools.fio.is_some() {
        bases.push(contenders.len());
        contenders.push(Contender::new(Program::Fio));
    }
    Section { load, contenders, bases }
}

fn batches(load: Load, tools: &Tools) -> Section {
    let hicache = |engine: &String| Contender::new(Program::hicache(engine, false, Cache::Direct));
    let mut contenders: Vec<_> = tools.engines.iter().map(hicache).collect();
    let bases = vec![contenders.len()];
    contenders.push(Contender::new(Program::Harness { threads: load.batch.min(THREADS) }));
    Section { load, contenders, bases }
}

fn cache(load: Load, tools: &Tools) -> Section {
    let caches = [Cache::Direct, Cache::Cold, Cache::Warm];
    let engine = tools.engines.last().map_or("auto", String::as_str);
    let contenders = caches.map(|cache| Contender::new(Program::hicache(engine, true, cache)));
    Section { load, contenders: contenders.into(), bases: vec![0] }
}

impl Section {
    fn measure(&self, flags: &Flags, tools: &Tools, folder: &mut Folder) -> Result<(), String> {
        println!("\n### {}\n", self.load);
        for contender in &self.contenders {
            for line in contender.lines(tools, &self.load, "DIR") {
                println!("    {line}");
            }
        }
        let mut figures: Vec<Vec<Figures>> = vec![Vec::new(); self.contenders.len()];
        for _ in 0..flags.rounds {
            for index in shuffled(self.contenders.len()) {
                let dir = folder.fresh()?;
                figures[index].push(self.contenders[index].run(tools, &self.load, dir.path())?);
            }
        }
        let names: Vec<&str> = self.contenders.iter().map(|contender| contender.name.as_str()).collect();
        print_rates(&names, &figures);
        for base in &self.bases {
            print_ratios(&names, &figures, *base, &self.bases);
        }
        Ok(())
    }
}

/// The numbers below `count` in an order that nobody chose.
fn shuffled(count: usize) -> Vec<usize> {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|index| random.hash_one(index));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contender_has_its_turn_once_a_round() {
        let mut orders = std::collections::HashSet::new();
        for _ in 0..50 {
            let mut order = shuffled(6);
            orders.insert(order.clone());
            order.sort_unstable();
            assert_eq!(order, [0, 1, 2, 3, 4, 5]);
        }
        assert!(orders.len() > 1);
    }
}
