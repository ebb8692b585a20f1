//! The commands, one file each, or one for those on the same thing.

mod bench;
mod completions;
mod config;
mod demo;
mod doctor;
mod inspect;
mod keys;
mod page_keys;
mod replay;

use crate::args::{Bench, Command};
#[cfg(not(feature = "obj"))]
use crate::failure::Failure;
use crate::failure::Result;
use crate::output::Output;

/// Runs a command.
pub(crate) fn run(command: Command, output: &mut Output) -> Result {
    match command {
        Command::Demo(args) => demo::run(&args, output),
        Command::Replay(args) => replay::run(&args, output),
        Command::Bench(Bench::File(args)) => bench::file(&args, output),
        #[cfg(feature = "obj")]
        Command::Bench(Bench::Obj(args)) => bench::obj(&args, output),
        #[cfg(not(feature = "obj"))]
        Command::Bench(Bench::Obj(_)) => Err(Failure::Usage(
            "bench obj measures S3, which this build leaves out: it is in builds with the feature obj, as \
             `cargo install --path crates/hicache-cli --features full` makes one"
                .to_owned(),
        )),
        Command::Bench(Bench::Keys(args)) => bench::keys(&args, output),
        Command::Bench(Bench::Alloc(args)) => bench::alloc(&args, output),
        Command::Put(args) => keys::put(&args, output),
        Command::Get(args) => keys::get(&args, output),
        Command::Exists(args) => keys::exists(&args, output),
        Command::Remove(args) => keys::remove(&args, output),
        Command::List(args) => inspect::list(&args, output),
        Command::Stat(args) => inspect::stat(&args, output),
        Command::Verify(args) => inspect::verify(&args, output),
        Command::Namespaces(place) => inspect::namespaces(&place, output),
        Command::Drop(args) => inspect::drop(&args, output),
        Command::PageKeys(args) => page_keys::run(&args, output),
        Command::Doctor(place) => doctor::run(&place, output),
        Command::Config(args) => config::run(&args, output),
        Command::Completions { shell } => completions::run(shell, output),
    }
}
