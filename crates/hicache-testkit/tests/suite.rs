//! The suite finds stores that break their promises, and the decorators do what they say.

use hicache_core::{
    Call, Capabilities, Error, ErrorKind, Get, LeadingRun, MemoryStore, Outcomes, Page, PageKey, Pending,
    Put, Result, Stats, StorageBackend, Store, Stored,
};
use hicache_testkit::fault::{Fault, FaultBackend, Item, Operation};
use hicache_testkit::{DecoratedStore, Medium, Openers, Reopened, Subject, conformance, model};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

type Decorate = fn(Arc<dyn StorageBackend>) -> Arc<dyn StorageBackend>;

fn subject(decorate: Decorate) -> Subject {
    let fresh = move || {
        Medium::new(move || {
            let inner: Arc<dyn Store> = Arc::new(MemoryStore::new(1 << 30));
            Arc::new(DecoratedStore::new(inner, decorate))
        })
    };
    Subject::new("decorated", Reopened::Empty, Openers::One, fresh)
}

fn failing(backend: Arc<dyn StorageBackend>, rule: fn(&Item) -> Fault) -> Arc<dyn StorageBackend> {
    Arc::new(FaultBackend::new(backend, rule))
}

/// What a check that must fail said.
fn found(check: fn(&Subject), decorate: Decorate) -> String {
    let subject = subject(decorate);
    let caught = catch_unwind(AssertUnwindSafe(|| check(&subject))).expect_err("the suite lets it pass");
    let text = caught.downcast_ref::<String>().cloned();
    text.or_else(|| caught.downcast_ref::<&str>().map(|text| (*text).to_owned())).expect("a text")
}

#[test]
fn a_decorator_that_lets_everything_pass_changes_nothing() {
    let subject = subject(|backend| failing(backend, |_| Fault::Pass));
    conformance::all(&subject);
    model::check(&subject, 16);
}

#[test]
fn a_store_that_loses_a_page_is_found() {
    let lossy: Decorate = |backend| {
        failing(backend, |item| match item.operation {
            Operation::Set if item.nth % 7 == 3 => Fault::Miss,
            _ => Fault::Pass,
        })
    };
    found(conformance::batches::each_item_has_its_outcome_in_its_place, lossy);
    found(conformance::round_trips::pages_of_every_layout_come_back_whole, lossy);
    found(|subject| model::check(subject, 64), lossy);
}

#[test]
fn a_store_that_ends_without_an_answer_is_found() {
    let dropping: Decorate = |backend| {
        failing(backend, |item| match item.operation {
            Operation::Get if item.nth % 7 == 1 => Fault::Drop,
            _ => Fault::Pass,
        })
    };
    found(conformance::misses::an_absent_page_is_a_miss, dropping);
}

#[test]
fn a_store_that_fails_after_its_close_with_another_kind_is_found() {
    let failing: Decorate = |backend| {
        failing(backend, |item| match item.operation {
            Operation::Exists => Fault::Fail(Error::new(ErrorKind::Io, "ask")),
            _ => Fault::Pass,
        })
    };
    let said = found(conformance::closing::a_closed_store_refuses_everything, failing);
    assert!(said.contains("store contract 3"), "{said}");
}

/// Does one thing wrong, and the rest as the backend behind it.
#[derive(Debug)]
struct Wrong {
    inner: Arc<dyn StorageBackend>,
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// Pages of a batch come in each other's place.
    Reversed,
    /// One answer more than items.
    TooMany,
    /// Pages are served as they were before the read.
    Stale,
    /// Pages are kept after the answer.
    Kept,
    /// Everything is written again.
    Rewritten,
}

fn wrong(how: How) -> impl Fn(Arc<dyn StorageBackend>) -> Arc<dyn StorageBackend> {
    move |inner| Arc::new(Wrong { inner, how })
}

#[deny(clippy::missing_trait_methods)]
impl StorageBackend for Wrong {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn batch_set(&self, batch: Vec<Put>, call: Call) -> Pending<Outcomes<Stored>> {
        match self.how {
            How::Rewritten => {
                let keys: Vec<PageKey> = batch.iter().map(|put| put.key).collect();
                drop(self.inner.batch_remove(&keys, call));
                self.inner.batch_set(batch, call)
            }
            _ => self.inner.batch_set(batch, call),
        }
    }

    fn batch_get(&self, batch: Vec<Get>, call: Call) -> Pending<Outcomes<Option<Page>>> {
        match self.how {
            How::Stale => Pending::ready(batch.into_iter().map(|get| Ok(Some(get.into.freeze()))).collect()),
            How::Reversed => {
                let outcomes = self.inner.batch_get(batch, call);
                Pending::new(async move {
                    let mut items: Vec<Result<Option<Page>>> = outcomes.await.into_iter().collect();
                    items.reverse();
                    items.into_iter().collect()
                })
            }
            How::Kept => {
                let outcomes = self.inner.batch_get(batch, call);
                Pending::new(async move {
                    let outcomes = outcomes.await;
                    std::mem::forget(outcomes.clone());
                    outcomes
                })
            }
            _ => self.inner.batch_get(batch, call),
        }
    }

    fn batch_exists(&self, keys: &[PageKey], call: Call) -> Pending<Outcomes<bool>> {
        let outcomes = self.inner.batch_exists(keys, call);
        let more = usize::from(self.how == How::TooMany);
        Pending::new(async move { outcomes.await.into_iter().chain((0..more).map(|_| Ok(true))).collect() })
    }

    fn leading_run(&self, keys: &[PageKey], call: Call) -> Pending<LeadingRun> {
        let answers = self.batch_exists(keys, call);
        Pending::new(async move { LeadingRun::of(answers.await) })
    }

    fn batch_remove(&self, keys: &[PageKey], call: Call) -> Pending<Outcomes<bool>> {
        self.inner.batch_remove(keys, call)
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}

#[test]
fn a_wrong_byte_is_found() {
    let said =
        found(conformance::round_trips::pages_of_every_layout_come_back_whole, |b| wrong(How::Stale)(b));
    assert!(said.contains("contract 4: a wrong byte"), "{said}");
    let said =
        found(conformance::batches::each_item_has_its_outcome_in_its_place, |b| wrong(How::Reversed)(b));
    assert!(said.contains("contract 4: a wrong byte") || said.contains("contract 1"), "{said}");
}

#[test]
fn an_answer_too_many_is_found_and_every_check_that_fails_is_named() {
    let said = found(conformance::batches::an_empty_batch_has_an_empty_answer, |b| wrong(How::TooMany)(b));
    assert!(said.contains("contract 1"), "{said}");
    let said = found(conformance::all, |b| wrong(How::TooMany)(b));
    assert!(said.starts_with("decorated: ") && said.contains(" checks failed: batches::"), "{said}");
    assert!(said.contains("round_trips::pages_of_every_layout_come_back_whole"), "{said}");
    assert!(!said.contains("scans::"), "{said}");
}

#[test]
fn a_page_written_twice_is_found() {
    let said = found(conformance::misses::a_set_of_a_page_that_is_there_writes_nothing, |b| {
        wrong(How::Rewritten)(b)
    });
    assert!(said.contains("contract 8"), "{said}");
}

#[test]
fn a_page_that_is_kept_is_found() {
    let chosen = conformance::round_trips::a_chosen_slot_is_read_into_and_can_be_chosen_again;
    let said = found(chosen, |b| wrong(How::Kept)(b));
    assert!(said.contains("contract 2"), "{said}");
}
