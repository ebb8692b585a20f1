//! The contract, and the reference model, on files.

mod stage;

use hicache_file::{Bounce, Direct, Engine, FileOptions, FileStore};
use hicache_testkit::{Medium, Openers, Reopened, Subject, conformance, model};
use std::num::NonZeroU32;
use std::sync::Arc;

fn subject(name: &'static str, options: FileOptions) -> Subject {
    Subject::new(name, Reopened::Whole, Openers::Many, move || {
        let dir = tempfile::tempdir().unwrap();
        let options = options.clone();
        Medium::new(move || Arc::new(FileStore::open(dir.path().join("store"), options.clone()).unwrap()))
    })
}

#[test]
fn direct_files_keep_the_contract_with_the_best_engine() {
    conformance::all(&subject("file", FileOptions::default()));
}

#[test]
fn direct_files_keep_the_contract_with_threads() {
    conformance::all(&subject(
        "file, threads",
        FileOptions { engine: Engine::Threads, ..Default::default() },
    ));
}

#[test]
fn direct_files_keep_the_contract_with_rings() {
    let temporary = tempfile::tempdir().unwrap();
    let options =
        FileOptions { engine: Engine::IoUring, rings: NonZeroU32::new(2).unwrap(), ..Default::default() };
    if let Err(error) = FileStore::open(temporary.path().join("probe"), options.clone()) {
        stage::skip("direct_files_keep_the_contract_with_rings", &format!("needs io_uring: {error}"));
        return;
    }
    conformance::all(&subject("file, io_uring", options));
}

#[test]
fn files_keep_the_contract_with_pages_that_bounce() {
    let options = FileOptions { bounce: Bounce::On, ..Default::default() };
    conformance::all(&subject("file, bounce", options));
}

#[test]
fn buffered_files_keep_the_contract() {
    conformance::all(&subject("file, buffered", FileOptions { direct: Direct::Off, ..Default::default() }));
}

#[test]
fn files_do_what_the_model_does() {
    model::check(&subject("file", FileOptions::default()), 40);
}
