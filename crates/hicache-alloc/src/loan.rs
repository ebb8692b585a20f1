//! A page lent to somebody who will drop it: its slot comes back to the lender, not to the pool.

use crate::PageMut;
use crate::sync::{Arc, Mutex, MutexGuard};
use std::fmt;
use std::pin::Pin;
use std::sync::PoisonError;
use std::task::{Context, Poll, Waker};

/// A claim to the slot of a page that was lent ([`PageMut::lend`]): a future of the page, ready when the borrower,
/// and everybody whom it passed the page to, has let go of it.
///
/// Dropped early, the loan ends: the slot goes to its pool when the borrower lets go. So whoever lends a page to be
/// filled keeps the loan until it is known whether the page came back filled, and then drops it.
#[must_use = "dropped, it gives up the claim to the slot"]
pub struct Loan {
    /// Reaches no bytes while the loan lasts.
    page: Option<PageMut>,
    lent: Lent,
}

/// What the page that was lent tells its loan.
#[derive(Clone)]
pub(crate) struct Lent(Arc<Mutex<State>>);

enum State {
    Out {
        waker: Option<Waker>,
    },
    Back,
    /// The loan was dropped; the page frees the slot once the one that was lent is gone.
    Over {
        _page: PageMut,
    },
}

impl Loan {
    pub(crate) fn new(page: PageMut) -> (Self, Lent) {
        let lent = Lent(Arc::new(Mutex::new(State::Out { waker: None })));
        (Self { page: Some(page), lent: lent.clone() }, lent)
    }

    /// The page, if it is back.
    ///
    /// # Errors
    ///
    /// The loan itself, if somebody still has the page.
    pub fn take(mut self) -> Result<PageMut, Self> {
        let back = matches!(*self.lent.lock(), State::Back);
        if back { self.page.take().ok_or(self) } else { Err(self) }
    }
}

impl Future for Loan {
    type Output = PageMut;

    /// # Panics
    ///
    /// If it is polled again after it gave the page.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<PageMut> {
        if let State::Out { waker } = &mut *self.lent.lock() {
            *waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(self.page.take().expect("a loan gives its page once"))
    }
}

impl Lent {
    /// The page that was lent is gone.
    pub(crate) fn end(&self) {
        let before = std::mem::replace(&mut *self.lock(), State::Back);
        // Neither a waker nor a page that frees its slot runs under the lock.
        if let State::Out { waker: Some(waker) } = before {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let Some(page) = self.page.take() else { return };
        let mut state = self.lent.lock();
        if matches!(*state, State::Out { .. }) {
            *state = State::Over { _page: page };
        }
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loan").field("page", &self.page).finish_non_exhaustive()
    }
}
