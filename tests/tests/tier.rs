//! The contract, and the reference model, on tiers of files and memory, opened by their URL.

use hicache::Opener;
use hicache_testkit::{Medium, Openers, Reopened, Subject, conformance, model};
use hicache_tests::tier_url;

/// `first` and `second` are made from a fresh folder's path.
fn subject(
    name: &'static str,
    reopened: Reopened,
    openers: Openers,
    first: fn(&str) -> String,
    more: &'static str,
) -> Subject {
    Subject::new(name, reopened, openers, move || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display().to_string();
        let url = tier_url(&first(&path), &format!("file:{path}/second"), more);
        Medium::of(move || {
            // It is there as long as the medium.
            assert!(folder.path().is_dir());
            Opener::default().open(&url).unwrap()
        })
    })
}

fn memory(_: &str) -> String {
    "memory:".to_owned()
}

fn small_memory(_: &str) -> String {
    "memory:?capacity=300KiB".to_owned()
}

fn file(path: &str) -> String {
    format!("file:{path}/first?threads=4")
}

#[test]
fn memory_over_files_keeps_the_contract() {
    // What one store promotes into its own memory, another that removes the page does not reach.
    conformance::all(&subject("memory over files", Reopened::Whole, Openers::One, memory, ""));
}

#[test]
fn memory_over_files_written_behind_keeps_the_contract() {
    let more = "&write=behind";
    // Opened again, it has its pages, but a set of one of them is a write, as the first tier says.
    conformance::all(&subject("memory over files, behind", Reopened::Empty, Openers::One, memory, more));
}

#[test]
fn a_first_tier_that_is_too_small_keeps_the_contract() {
    conformance::all(&subject("small memory over files", Reopened::Whole, Openers::One, small_memory, ""));
}

#[test]
fn files_over_files_keep_the_contract() {
    conformance::all(&subject("files over files", Reopened::Whole, Openers::Many, file, ""));
}

#[test]
fn files_over_files_written_behind_keep_the_contract() {
    let more = "&write=behind&queue=1MiB";
    conformance::all(&subject("files over files, behind", Reopened::Whole, Openers::One, file, more));
}

#[test]
fn tiers_of_files_do_what_the_model_does() {
    model::check(&subject("memory over files", Reopened::Whole, Openers::One, memory, ""), 30);
    model::check(
        &subject("files over files, behind", Reopened::Whole, Openers::One, file, "&write=behind"),
        30,
    );
}
