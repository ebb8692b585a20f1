//! Random histories of a store, compared with a model: a set of which pages are there.

use crate::{Medium, Reopened, Subject, View, pages, wait};
use hicache_core::{Depth, Namespace, PageKey, PageLayout, Scan, Stored};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

/// Keys that a history is about: few, so that its steps meet.
const KEYS: u64 = 6;
/// Namespaces that a history is about, of two layouts.
const NAMES: [&str; 2] = ["even", "odd"];
/// Most steps of a history.
const STEPS: usize = 24;

/// One step of a history, in one of the namespaces.
#[derive(Clone, Debug)]
enum Step {
    Set(usize, Vec<u64>),
    Get(usize, Vec<u64>),
    Exists(usize, Vec<u64>),
    Remove(usize, Vec<u64>),
    Clear(usize),
    Reopen { closed: bool },
}

/// Which pages are there, and which namespaces are recorded.
#[derive(Debug, Default)]
struct Model {
    pages: BTreeSet<(usize, u64)>,
    recorded: BTreeSet<usize>,
}

/// Runs `cases` random histories, each on a new medium. One that goes wrong is made as short as it can be.
///
/// # Panics
///
/// If the store and the model ever differ, with the history.
pub fn check(subject: &Subject, cases: u32) {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 500, ..Config::default() };
    let result = TestRunner::new(config).run(&vec(step(), 1..STEPS), |history| {
        run(subject, &history);
        Ok(())
    });
    match result {
        Ok(()) => (),
        Err(TestError::Fail(why, history)) => {
            panic!("{}: the store is not its model: {why}, after {history:#?}", subject.name())
        }
        Err(error) => panic!("{}: {error}", subject.name()),
    }
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..NAMES.len(), vec(0..KEYS, 0..4));
    prop_oneof![
        5 => place().prop_map(|(name, keys)| Step::Set(name, keys)),
        4 => place().prop_map(|(name, keys)| Step::Get(name, keys)),
        2 => place().prop_map(|(name, keys)| Step::Exists(name, keys)),
        2 => place().prop_map(|(name, keys)| Step::Remove(name, keys)),
        1 => (0..NAMES.len()).prop_map(Step::Clear),
        1 => any::<bool>().prop_map(|closed| Step::Reopen { closed }),
    ]
}

fn layout(name: usize) -> PageLayout {
    [pages::many_pieces(), pages::opaque(4_096)][name]
}

fn open(medium: &Medium) -> Vec<View> {
    let store = medium.open();
    let view = |(index, name): (usize, &&str)| View::of(&store, name, layout(index), 8);
    NAMES.iter().enumerate().map(view).collect()
}

fn run(subject: &Subject, history: &[Step]) {
    let medium = subject.fresh();
    let mut views = open(&medium);
    let mut model = Model::default();
    for step in history {
        if let Step::Reopen { closed } = step {
            if *closed {
                wait("close", views[0].store.close()).expect("a store closes");
            }
            views.clear();
            views = open(&medium);
            if subject.reopened() == Reopened::Empty {
                model = Model::default();
            }
            continue;
        }
        model.follow(&views, step);
    }
    model.compare(&views);
}

impl Model {
    fn follow(&mut self, views: &[View], step: &Step) {
        match step {
            Step::Set(name, numbers) => {
                // Of one key named twice in a batch, any mention may be the one that writes.
                let numbers: BTreeSet<u64> = numbers.iter().copied().collect();
                let wanted: Vec<Stored> = numbers.iter().map(|number| self.set(*name, *number)).collect();
                let numbers: Vec<u64> = numbers.into_iter().collect();
                let stored = views[*name].set(&keys(&numbers));
                let stored: Vec<Stored> = stored.into_iter().map(|one| one.expect("a set")).collect();
                assert_eq!(stored, wanted, "contract 8: {step:?}");
            }
            Step::Get(name, numbers) => {
                assert_eq!(views[*name].hits(&keys(numbers)), self.there(*name, numbers), "{step:?}");
            }
            Step::Exists(name, numbers) => {
                assert_eq!(views[*name].exists(&keys(numbers)), self.there(*name, numbers), "{step:?}");
            }
            Step::Remove(name, numbers) => {
                let numbers: BTreeSet<u64> = numbers.iter().copied().collect();
                let wanted: Vec<bool> =
                    numbers.iter().map(|number| self.pages.remove(&(*name, *number))).collect();
                let numbers: Vec<u64> = numbers.into_iter().collect();
                assert_eq!(views[*name].remove(&keys(&numbers)), wanted, "contract 4: {step:?}");
            }
            Step::Clear(name) => {
                let before = self.pages.len();
                self.pages.retain(|(of, _)| of != name);
                self.recorded.remove(name);
                let view = &views[*name];
                let cleared = wait("clear", view.store.clear(&view.namespace)).expect("a clear");
                assert_eq!(cleared, (before - self.pages.len()) as u64, "store contract 2: {step:?}");
            }
            Step::Reopen { .. } => (),
        }
    }

    fn set(&mut self, name: usize, number: u64) -> Stored {
        self.recorded.insert(name);
        if self.pages.insert((name, number)) { Stored::Written } else { Stored::Present }
    }

    fn there(&self, name: usize, numbers: &[u64]) -> Vec<bool> {
        numbers.iter().map(|number| self.pages.contains(&(name, *number))).collect()
    }

    /// Compares all that the store holds.
    fn compare(&self, views: &[View]) {
        let all: Vec<u64> = (0..KEYS).collect();
        for (name, view) in views.iter().enumerate() {
            assert_eq!(view.exists(&keys(&all)), self.there(name, &all), "existence at the end");
            assert_eq!(view.hits(&keys(&all)), self.there(name, &all), "pages at the end");
            view.rest();
        }
        let store = &views[0].store;
        let listed = wait("namespaces", store.namespaces()).expect("a list");
        let recorded: Vec<Namespace> =
            self.recorded.iter().map(|name| views[*name].namespace.clone()).collect();
        assert_eq!(listed, recorded, "store contract 1: the namespaces at the end");
        let finds = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&finds);
        let found = move |_| {
            *counted.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            ControlFlow::Continue(())
        };
        let scan = Scan { depth: Depth::Contents, ..Scan::default() };
        wait("scan", store.scan(scan, Box::new(found))).expect("a scan");
        let finds = *finds.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(finds, self.pages.len(), "finds of a scan at the end");
    }
}

fn keys(numbers: &[u64]) -> Vec<PageKey> {
    numbers.iter().map(|number| pages::key(*number)).collect()
}
