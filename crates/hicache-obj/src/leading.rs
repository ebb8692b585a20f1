//! How long the leading run of stored keys is: questions in the keys' order, a few under way, none behind a miss.

use crate::backend::View;
use hicache_core::{Error, LeadingRun, PageKey, Reply, Result};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How far beyond the keys that are there others are asked for: questions under way at once.
const WINDOW: usize = 16;

/// Keys that are asked for until one is not there.
#[derive(Debug)]
pub(crate) struct Asking {
    keys: Vec<PageKey>,
    view: Arc<View>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The first that nobody has asked for.
    next: usize,
    /// All before it are there.
    told: usize,
    /// Those behind that are there, too.
    there: BTreeSet<usize>,
    /// The run ends here, or before.
    end: usize,
    /// Why, where it is not that the page is missing.
    error: Option<Error>,
    /// `None` once it is answered.
    reply: Option<Reply<LeadingRun>>,
}

impl Asking {
    /// Of `keys`, the first `known` of which are there.
    pub(crate) fn new(keys: &[PageKey], known: usize, view: Arc<View>, reply: Reply<LeadingRun>) -> Self {
        let state = State {
            next: known,
            told: known,
            there: BTreeSet::new(),
            end: keys.len(),
            error: None,
            reply: Some(reply),
        };
        Self { keys: keys.to_vec(), view, state: Mutex::new(state) }
    }

    /// The keys to ask for now that nobody has asked for so far, each with its place.
    pub(crate) fn take(&self) -> Vec<(usize, PageKey)> {
        let mut state = self.lock();
        let from = state.next;
        let to = state.end.min(state.told + WINDOW);
        if state.reply.is_none() || to <= from {
            return Vec::new();
        }
        state.next = to;
        (from..to).map(|index| (index, self.keys[index])).collect()
    }

    /// Whether what is found of the key at `index` can still make a difference.
    pub(crate) fn wants(&self, index: usize) -> bool {
        let state = self.lock();
        state.reply.is_some() && index < state.end
    }

    /// What was found of the key at `index`.
    pub(crate) fn put(&self, index: usize, found: Result<bool>) {
        let mut state = self.lock();
        match found {
            Ok(true) => drop(state.there.insert(index)),
            _ if index >= state.end => (),
            found => (state.end, state.error) = (index, found.err()),
        }
        while {
            let told = state.told;
            state.there.remove(&told)
        } {
            state.told += 1;
        }
        self.answer(state);
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// Answers where there is nothing to ask.
    pub(crate) fn settle(&self) {
        self.answer(self.lock());
    }

    /// Nobody asks any more: the run is as long as was told so far.
    pub(crate) fn end(&self, error: Error) {
        let mut state = self.lock();
        (state.end, state.error) = (state.told, Some(error));
        self.answer(state);
    }

    /// Answers once, when nothing that is under way can change the answer.
    fn answer(&self, mut state: MutexGuard<'_, State>) {
        if state.told < state.end {
            return;
        }
        let Some(reply) = state.reply.take() else { return };
        let run = LeadingRun { len: state.end, error: state.error.take() };
        drop(state);
        self.view.count(run.error.as_ref());
        reply.send(Ok(run));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
