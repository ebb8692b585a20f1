//! Parts of a batch over several pools, and what comes of them together.

use super::PoolPages;
use crate::{Error, ErrorKind, Outcomes, Page, Pending, Result, Stored};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// A half that has started: which items it is of, and what comes of them.
pub(super) type Half<T> = (Vec<usize>, Pending<Outcomes<T>>);

/// A page of the chain as its parts come in.
pub(super) struct Parts {
    pages: PoolPages<Page>,
    verdict: Result<bool>,
}

impl Parts {
    pub(super) fn new(checked: Result<()>, sidecars: usize) -> Self {
        let pages = PoolPages { anchor: None, sidecars: vec![None; sidecars] };
        Self { pages, verdict: checked.map(|()| true) }
    }

    /// Takes in one part, of a sidecar's place or the anchor's.
    pub(super) fn add(&mut self, place: Option<usize>, outcome: Result<Option<Page>>) {
        match (outcome, &self.verdict) {
            (Ok(Some(page)), Ok(true)) => match place {
                Some(place) => self.pages.sidecars[place] = Some(page),
                None => self.pages.anchor = Some(page),
            },
            (Ok(None), _) => self.verdict = Ok(false),
            (Err(error), Ok(true)) => self.verdict = Err(error),
            _ => (),
        }
        if !matches!(self.verdict, Ok(true)) {
            // What came in before goes back to its pool at once.
            self.pages.anchor = None;
            self.pages.sidecars.fill(None);
        }
    }

    pub(super) fn outcome(self) -> Result<Option<PoolPages<Page>>> {
        self.verdict.map(|whole| whole.then_some(self.pages))
    }
}

/// Polls once, so that what needs no waiting is done at the call.
pub(super) fn started<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Pending<T> {
    let mut pending = Pending::new(future);
    match Pin::new(&mut pending).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Pending::ready(value),
        Poll::Pending => pending,
    }
}

/// Waits for a half and hands over what came of each item. A backend that says nothing of an item has failed it.
pub(super) async fn ended<T>((indices, pending): Half<T>, mut each: impl FnMut(usize, Result<T>)) {
    let mut outcomes = pending.await.into_iter();
    for index in indices {
        each(index, outcomes.next().unwrap_or_else(|| Err(untold())));
    }
}

pub(super) async fn presence(len: usize, half: Half<bool>, first_error: &mut Option<Error>) -> Vec<bool> {
    let mut present = vec![false; len];
    ended(half, |index, outcome| match outcome {
        Ok(there) => present[index] = there,
        Err(error) => {
            first_error.get_or_insert(error);
        }
    })
    .await;
    present
}

pub(super) fn both_stored(one: Result<Stored>, other: Result<Stored>) -> Result<Stored> {
    match (one?, other?) {
        (Stored::Present, Stored::Present) => Ok(Stored::Present),
        _ => Ok(Stored::Written),
    }
}

fn untold() -> Error {
    Error::new(ErrorKind::Io, "answer").why("a backend gave fewer outcomes than it got items")
}
