//! Outcomes and replies: none is lost, none comes twice, and whoever waits is woken once.

use hicache_core::{
    Backing, Error, ErrorKind, Expiry, HostPool, Outcomes, Page, Pending, Reply, Result, replies,
};
use hicache_testkit::{pages, poll_once, wait};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Wakes {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn poll<T>(pending: &mut Pending<T>, wakes: &Arc<Wakes>) -> Poll<T> {
    let waker = Waker::from(Arc::clone(wakes));
    Pin::new(pending).poll(&mut Context::from_waker(&waker))
}

fn late() -> Error {
    Error::new(ErrorKind::Timeout, "wait for page")
}

fn kinds<T>(outcomes: &Outcomes<T>) -> Vec<Option<ErrorKind>> {
    outcomes.iter().map(|outcome| outcome.as_ref().err().map(Error::kind)).collect()
}

fn pool() -> HostPool {
    pages::pool(&pages::opaque(64), 4, hicache_core::Alignment::NONE, Backing::Private)
}

fn page(pool: &HostPool) -> Page {
    pool.alloc(1).unwrap().remove(0).freeze()
}

#[test]
fn an_empty_batch_resolves_at_once() {
    let (replies, mut pending, expiry) = replies::<u8>(0);
    assert!(replies.is_empty() && expiry.is_over());
    assert!(matches!(poll_once(&mut pending), Poll::Ready(outcomes) if outcomes.is_empty()));
    assert_eq!(expiry.expire(&late()), 0);
}

#[test]
fn answers_in_any_order_come_out_in_the_batch_s() {
    let (replies, mut pending, expiry) = replies(4);
    let mut replies: Vec<Option<Reply<usize>>> = replies.into_iter().map(Some).collect();
    for index in [2, 0, 3, 1] {
        assert!(poll_once(&mut pending).is_pending() && !expiry.is_over());
        replies[index].take().unwrap().send(Ok(10 * index));
    }
    assert!(expiry.is_over());
    let outcomes: Vec<usize> = wait("outcomes", pending).into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes, [0, 10, 20, 30]);
}

#[test]
fn a_dropped_reply_is_an_answer_that_says_closed() {
    let (mut replies, pending, _) = replies(3);
    drop(replies.remove(1));
    for (value, reply) in replies.into_iter().enumerate() {
        reply.send(Ok(value));
    }
    let outcomes = wait("outcomes", pending);
    assert_eq!(kinds(&outcomes), [None, Some(ErrorKind::Closed), None]);
    assert!(outcomes.first_error().unwrap().is_retryable());
}

#[test]
fn a_panic_in_the_work_is_an_answer_that_says_closed() {
    let (mut replies, pending, _) = replies::<u8>(2);
    let doomed = replies.pop().unwrap();
    replies.pop().unwrap().send(Ok(1));
    let worker = thread::spawn(move || {
        let _reply = doomed;
        std::panic::resume_unwind(Box::new("the work went wrong"));
    });
    assert!(worker.join().is_err());
    assert_eq!(kinds(&wait("outcomes", pending)), [None, Some(ErrorKind::Closed)]);
}

#[test]
fn a_deadline_answers_what_has_no_answer_and_is_not_held() {
    let (mut replies, mut pending, expiry) = replies(4);
    let unheld = replies.pop().unwrap();
    let held = replies.pop().unwrap();
    assert!(held.hold(), "nobody has answered");
    let also_unheld = replies.pop().unwrap();
    replies.pop().unwrap().send(Ok("early"));
    assert_eq!(expiry.expire(&late()), 2);
    assert_eq!(expiry.expire(&late()), 0, "what has expired does not expire again");
    assert!(poll_once(&mut pending).is_pending() && !expiry.is_over(), "a held item is waited for");
    assert!(!unheld.hold(), "its deadline has answered");
    unheld.send(Ok("late"));
    also_unheld.send(Err(Error::new(ErrorKind::Io, "x")));
    held.send(Ok("held"));
    let outcomes = wait("outcomes", pending);
    assert_eq!(kinds(&outcomes), [None, Some(ErrorKind::Timeout), None, Some(ErrorKind::Timeout)]);
    let texts: Vec<_> = outcomes.into_iter().filter_map(Result::ok).collect();
    assert_eq!(texts, ["early", "held"]);
}

#[test]
fn a_held_item_that_is_given_up_is_closed_all_the_same() {
    let (mut replies, pending, expiry) = replies::<u8>(1);
    let reply = replies.pop().unwrap();
    reply.hold();
    assert_eq!(expiry.expire(&late()), 0);
    drop(reply);
    assert_eq!(kinds(&wait("outcomes", pending)), [Some(ErrorKind::Closed)]);
}

#[test]
fn a_late_page_goes_back_to_its_pool() {
    let pool = pool();
    let (mut replies, pending, expiry) = replies(1);
    let page = page(&pool);
    assert_eq!(expiry.expire(&late()), 1);
    assert_eq!(kinds(&wait("outcomes", pending)), [Some(ErrorKind::Timeout)]);
    assert_eq!(pool.available(), 3, "the work still has the page");
    replies.pop().unwrap().send(Ok(Some(page)));
    assert_eq!(pool.available(), 4);
}

#[test]
fn a_page_that_nobody_waits_for_goes_back_to_its_pool() {
    let pool = pool();
    let (mut replies, pending, expiry) = replies(2);
    replies.pop().unwrap().send(Ok(Some(page(&pool))));
    drop(pending);
    assert_eq!(pool.available(), 3, "the last reply keeps the batch, until it has ended");
    replies.pop().unwrap().send(Ok(Some(page(&pool))));
    assert_eq!(pool.available(), 4);
    assert!(expiry.is_over());
    assert_eq!(expiry.expire(&late()), 0);
}

fn woken_by(end: impl FnOnce(Reply<u8>, &Expiry)) {
    let (mut replies, mut pending, expiry) = replies(2);
    let (stale, wakes) = (Arc::<Wakes>::default(), Arc::<Wakes>::default());
    assert!(poll(&mut pending, &stale).is_pending());
    assert!(poll(&mut pending, &wakes).is_pending());
    replies.pop().unwrap().send(Ok(1));
    assert_eq!(wakes.count(), 0, "not before the last answer");
    end(replies.pop().unwrap(), &expiry);
    assert_eq!((stale.count(), wakes.count()), (0, 1), "the last to poll is woken, once");
    expiry.expire(&late());
    assert_eq!(wakes.count(), 1);
    assert!(poll(&mut pending, &wakes).is_ready());
}

#[test]
fn whoever_waits_is_woken_once() {
    woken_by(|reply, _| reply.send(Ok(2)));
    woken_by(|reply, _| drop(reply));
    woken_by(|reply, expiry| {
        assert_eq!(expiry.expire(&late()), 1);
        reply.send(Ok(2));
    });
}

#[test]
fn answers_and_a_deadline_at_once_give_each_item_one_outcome() {
    for _ in 0..500 {
        let pool = pool();
        let (replies, pending, expiry) = replies(4);
        let outcomes = thread::scope(|scope| {
            for reply in replies {
                let page = page(&pool);
                scope.spawn(move || reply.send(Ok(page)));
            }
            let expired = scope.spawn(|| expiry.expire(&late()));
            let outcomes = wait("outcomes", pending);
            let timeouts =
                kinds(&outcomes).into_iter().filter(|kind| *kind == Some(ErrorKind::Timeout)).count();
            assert_eq!(timeouts, expired.join().unwrap());
            outcomes
        });
        assert_eq!(outcomes.len(), 4);
        let held = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        assert_eq!(pool.available(), 4 - held, "pages that came late are back");
        drop(outcomes);
        assert_eq!(pool.available(), 4);
    }
}

#[test]
fn b020_a_failure_of_the_whole_is_one_error_for_each_item() {
    for len in [0, 1, 128, 300] {
        let outcomes = Outcomes::<bool>::failed(len, &late());
        assert_eq!((outcomes.len(), outcomes.is_empty()), (len, len == 0));
        assert!(outcomes.iter().all(Result::is_err));
        assert_eq!(outcomes.first_error().map(Error::kind), (len > 0).then_some(ErrorKind::Timeout));
        assert_eq!(outcomes.prefix_len(|_| true), 0);
        assert_eq!((&outcomes).into_iter().count(), len);
    }
}

#[test]
fn b022_a_prefix_ends_at_the_first_item_that_is_of_no_use() {
    let outcomes: Outcomes<Option<u8>> =
        [Ok(Some(1)), Ok(Some(2)), Ok(None), Ok(Some(3)), Err(late())].into_iter().collect();
    assert_eq!(outcomes.prefix_len(Option::is_some), 2);
    assert_eq!(outcomes.prefix_len(|_| true), 4);
    assert_eq!(outcomes.first_error().unwrap().kind(), ErrorKind::Timeout);
    assert_eq!(Outcomes::<u8>::from_iter([]).prefix_len(|_| true), 0);
}
