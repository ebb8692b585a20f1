//! One outcome per item of a batch, and how the items come in.

use crate::{Error, ErrorKind, Pending, Result};
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};

/// What came of each item of a batch, in the batch's order.
#[derive(Clone, Debug)]
pub struct Outcomes<T>(Vec<Result<T>>);

impl<T> Outcomes<T> {
    /// The same error for each of `len` items.
    pub fn failed(len: usize, error: &Error) -> Self {
        (0..len).map(|_| Err(error.clone())).collect()
    }

    /// Items.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the batch was empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The items in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Result<T>> {
        self.0.iter()
    }

    /// Length of the leading run for which `usable` holds.
    pub fn prefix_len(&self, usable: impl Fn(&T) -> bool) -> usize {
        self.0.iter().take_while(|item| item.as_ref().is_ok_and(&usable)).count()
    }

    /// The first failure.
    pub fn first_error(&self) -> Option<&Error> {
        self.0.iter().find_map(|item| item.as_ref().err())
    }
}

impl<T> FromIterator<Result<T>> for Outcomes<T> {
    fn from_iter<I: IntoIterator<Item = Result<T>>>(items: I) -> Self {
        Self(items.into_iter().collect())
    }
}

impl<T> IntoIterator for Outcomes<T> {
    type Item = Result<T>;
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a Outcomes<T> {
    type Item = &'a Result<T>;
    type IntoIter = std::slice::Iter<'a, Result<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// How many of a batch's keys, from the first on, are there one after another. It says nothing of those behind.
#[derive(Clone, Debug, Default)]
pub struct LeadingRun {
    /// Keys that are there.
    pub len: usize,
    /// Why the next key could not be told of. Without it, the next is not there, or there is none.
    pub error: Option<Error>,
}

impl LeadingRun {
    /// That with which answers to every key begin.
    pub fn of(answers: Outcomes<bool>) -> Self {
        let len = answers.prefix_len(|there| *there);
        Self { len, error: answers.into_iter().nth(len).and_then(Result::err) }
    }
}

/// Starts a batch of `len` items: where each outcome goes, what resolves when all are there, and how to end the
/// wait at a deadline.
pub fn replies<T: Send + 'static>(len: usize) -> (Vec<Reply<T>>, Pending<Outcomes<T>>, Expiry) {
    let items = (0..len).map(|_| Item { outcome: None, answered: false, held: false }).collect();
    let state = Arc::new(Mutex::new(State { items, missing: len, waker: None }));
    let replies = (0..len).map(|index| Reply { state: Arc::clone(&state), index, answered: false }).collect();
    let weak: Weak<dyn Expire> = Arc::<Mutex<State<T>>>::downgrade(&state);
    let pending = Pending::new(poll_fn(move |context| {
        let mut state = lock(&state);
        if state.missing > 0 {
            state.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(state.items.iter_mut().filter_map(|item| item.outcome.take()).collect())
    }));
    (replies, pending, Expiry(weak))
}

/// Where one outcome goes. Dropped unused, it answers [`ErrorKind::Closed`]: an outcome is never lost.
pub struct Reply<T> {
    state: Arc<Mutex<State<T>>>,
    index: usize,
    answered: bool,
}

/// Ends the wait for a batch whose deadline has passed.
#[derive(Clone)]
pub struct Expiry(Weak<dyn Expire>);

struct Item<T> {
    outcome: Option<Result<T>>,
    answered: bool,
    held: bool,
}

struct State<T> {
    items: Vec<Item<T>>,
    missing: usize,
    waker: Option<Waker>,
}

trait Expire: Send + Sync {
    fn expire(&self, error: &Error, held: bool) -> usize;
    fn is_over(&self) -> bool;
}

impl<T> Reply<T> {
    /// Answers. After the batch's deadline the outcome is dropped, and with it a page goes back to its pool.
    pub fn send(mut self, outcome: Result<T>) {
        self.put(outcome);
    }

    /// Keeps a deadline from answering this item: the kernel or a peer may still write to memory that the
    /// caller will reuse. False when it has answered already.
    pub fn hold(&self) -> bool {
        let item = &mut lock(&self.state).items[self.index];
        item.held = true;
        !item.answered
    }

    fn put(&mut self, outcome: Result<T>) {
        self.answered = true;
        let late = lock(&self.state).answer(self.index, outcome);
        match late {
            Ok(waker) => wake(waker),
            Err(late) => drop(late),
        }
    }
}

impl<T> State<T> {
    /// The waker to wake, or the outcome back when the item was answered before.
    fn answer(&mut self, index: usize, outcome: Result<T>) -> Result<Option<Waker>, Result<T>> {
        let item = &mut self.items[index];
        if item.answered {
            return Err(outcome);
        }
        item.answered = true;
        item.outcome = Some(outcome);
        self.missing -= 1;
        Ok(if self.missing == 0 { self.waker.take() } else { None })
    }
}

impl<T: Send> Expire for Mutex<State<T>> {
    fn expire(&self, error: &Error, held: bool) -> usize {
        let mut state = lock(self);
        let mut waker = None;
        let mut expired = 0;
        for index in 0..state.items.len() {
            if (held || !state.items[index].held)
                && let Ok(woken) = state.answer(index, Err(error.clone()))
            {
                waker = woken.or(waker);
                expired += 1;
            }
        }
        drop(state);
        wake(waker);
        expired
    }

    fn is_over(&self) -> bool {
        lock(self).missing == 0
    }
}

impl Expiry {
    /// Answers `error` to every item that has no answer and is not held. Returns how many.
    pub fn expire(&self, error: &Error) -> usize {
        self.0.upgrade().map_or(0, |state| state.expire(error, false))
    }

    /// Answers `error` to every item that has no answer, held or not: for a batch of which nothing was begun.
    /// Returns how many.
    pub fn refuse(&self, error: &Error) -> usize {
        self.0.upgrade().map_or(0, |state| state.expire(error, true))
    }

    /// Whether every item is answered, or nobody is left to answer or to ask.
    pub fn is_over(&self) -> bool {
        self.0.upgrade().is_none_or(|state| state.is_over())
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if !self.answered {
            self.put(Err(Error::new(ErrorKind::Closed, "answer")
                .why("the operation ended without an outcome")
                .retryable()));
        }
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reply").field(&self.index).finish()
    }
}

impl fmt::Debug for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Expiry")
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

fn lock<T>(state: &Mutex<State<T>>) -> MutexGuard<'_, State<T>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
