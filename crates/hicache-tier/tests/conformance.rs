//! The contract, and the reference model, on two tiers in memory; on files it is tested where all stores are at hand.

use hicache_core::MemoryStore;
use hicache_testkit::{Medium, Openers, Reopened, Subject, conformance, model};
use hicache_tier::{TierOptions, TierStore, Write};
use std::sync::Arc;

fn subject(name: &'static str, options: TierOptions) -> Subject {
    Subject::new(name, Reopened::Empty, Openers::One, move || {
        let options = options.clone();
        Medium::new(move || {
            let tier = || Arc::new(MemoryStore::new(1 << 30));
            Arc::new(TierStore::new(tier(), tier(), options.clone()).unwrap())
        })
    })
}

fn behind() -> TierOptions {
    TierOptions { write: Write::Behind, ..TierOptions::default() }
}

#[test]
fn two_tiers_written_through_keep_the_contract() {
    conformance::all(&subject("tier, through", TierOptions::default()));
}

#[test]
fn two_tiers_written_behind_keep_the_contract() {
    conformance::all(&subject("tier, behind", behind()));
}

#[test]
fn a_queue_that_is_full_at_once_keeps_the_contract() {
    conformance::all(&subject("tier, short queue", TierOptions { queue: 100_000, ..behind() }));
}

#[test]
fn two_tiers_do_what_the_model_does() {
    model::check(&subject("tier, through", TierOptions::default()), 100);
    model::check(&subject("tier, behind", behind()), 100);
}
