//! Gets and questions: the first tier, then the second for what the first has not.

use crate::backend::{BEFORE_OTHER, LAST, View, both_failed};
use crate::tier::{Left, Place, is_final};
use crate::writes::{self, Staged};
use hicache_core::{
    Call, Counters, Error, Get, HostPool, LeadingRun, Loan, Page, PageKey, PageMut, Pending, Result,
};
use std::sync::Arc;

/// One item on its way through the tiers.
enum Item {
    Done(Result<Option<Page>>),
    Wanted(Wanted),
}

/// A page that no tier has given so far, and what the first tier's failure was, if it failed.
struct Wanted {
    key: PageKey,
    into: PageMut,
    fault: Option<Error>,
}

/// A slot that the first tier has.
struct Lent {
    key: PageKey,
    pool: HostPool,
    claimed: bool,
    loan: Loan,
}

/// Fetches pages.
///
/// A get that misses drops its slot by contract. So the first tier is lent it: on a miss the slot comes back, and is
/// the one that the second tier reads into. A tier that is late still has the slot: then a claimed one, which nobody
/// may exchange, is waited for, and for others any other of their pool will do.
pub(crate) async fn get(view: Arc<View>, batch: Vec<Get>, call: Call) -> Vec<Result<Option<Page>>> {
    let (times, since) = (view.times(call), view.ledger.now());
    let (asks_first, asks_second) = view.asks();
    let claimed = batch.iter().any(|get| get.into.is_claimed());
    let until = |parts| if claimed { None } else { times.at(parts) };
    let mut items: Vec<Item> = batch.into_iter().map(|get| checked(&view, get)).collect();

    let (lent, gets) = lend(&mut items);
    let given = times.left(BEFORE_OTHER.0);
    let asked = view.ask((Place::First, asks_first), gets.len(), (call, given), |backend, call| {
        backend.batch_get(gets, call)
    });
    let answers = view.answers(asked, until(BEFORE_OTHER.1)).await;
    for ((index, lent), answer) in lent.into_iter().zip(answers) {
        items[index] = after_first(lent, answer);
    }

    let (wanted, gets) = take_wanted(&mut items);
    let given = times.left(LAST.1);
    let asked = view.ask((Place::Second, asks_second), gets.len(), (call, given), |backend, call| {
        backend.batch_get(gets, call)
    });
    let answers = view.answers(asked, until(16)).await;
    let mut found = Vec::new();
    for ((index, key, fault), answer) in wanted.into_iter().zip(answers) {
        let missed_by_first = fault.is_none();
        let outcome = after_second(&view, fault, answer);
        if let Ok(Some(page)) = &outcome {
            Counters::add(&view.counters.second_hits, 1);
            if missed_by_first {
                found.extend(stage(&view, key, page, since));
            }
        }
        items[index] = Item::Done(outcome);
    }
    writes::promote(&view, found);
    items.into_iter().map(|item| counted(&view, item)).collect()
}

impl Item {
    /// What is wanted goes to a tier; a miss stands in for it until the tier has answered.
    fn take_wanted(&mut self) -> Option<Wanted> {
        match std::mem::replace(self, Self::Done(Ok(None))) {
            Self::Wanted(wanted) => Some(wanted),
            done => {
                *self = done;
                None
            }
        }
    }
}

fn checked(view: &View, get: Get) -> Item {
    let Get { key, into } = get;
    match view.namespace.check_shape("get page", into.planes(), into.len()) {
        Ok(()) => Item::Wanted(Wanted { key, into, fault: None }),
        Err(error) => {
            drop(into);
            Item::Done(Err(error))
        }
    }
}

/// What goes to the first tier, and by which place it comes back.
fn lend(items: &mut [Item]) -> (Vec<(usize, Lent)>, Vec<Get>) {
    let (mut lent, mut gets) = (Vec::new(), Vec::new());
    for (index, item) in items.iter_mut().enumerate() {
        if let Some(Wanted { key, into, .. }) = item.take_wanted() {
            let (pool, claimed) = (into.pool().clone(), into.is_claimed());
            let (into, loan) = into.lend();
            lent.push((index, Lent { key, pool, claimed, loan }));
            gets.push(Get { key, into });
        }
    }
    (lent, gets)
}

fn after_first(lent: Lent, answer: Result<Option<Page>>) -> Item {
    let Lent { key, pool, claimed, loan } = lent;
    let fault = match answer {
        Ok(Some(page)) => return Item::Done(Ok(Some(page))),
        Ok(None) => None,
        Err(error) if is_final(&error) => return Item::Done(Err(error)),
        Err(error) => Some(error),
    };
    // A tier that is late still has the slot.
    let other = || if claimed { None } else { pool.alloc(1)?.pop() };
    match (loan.take().ok().or_else(other), fault) {
        (Some(into), fault) => Item::Wanted(Wanted { key, into, fault }),
        (None, Some(fault)) => Item::Done(Err(fault)),
        (None, None) => Item::Done(Ok(None)),
    }
}

type Places = Vec<(usize, PageKey, Option<Error>)>;

/// What goes to the second tier, and by which place it comes back.
fn take_wanted(items: &mut [Item]) -> (Places, Vec<Get>) {
    let (mut wanted, mut gets) = (Vec::new(), Vec::new());
    for (index, item) in items.iter_mut().enumerate() {
        if let Some(Wanted { key, into, fault }) = item.take_wanted() {
            wanted.push((index, key, fault));
            gets.push(Get { key, into });
        }
    }
    (wanted, gets)
}

/// Where one tier fails, what the other says counts: a page that it lacks is a miss, which costs the engine what it
/// costs to compute the page, where an error would cost it the request.
fn after_second<T>(view: &View, fault: Option<Error>, answer: Result<Option<T>>) -> Result<Option<T>> {
    match (fault, answer) {
        (_, Err(error)) if is_final(&error) => Err(error),
        (None, Ok(answer)) => Ok(answer),
        (Some(_), Ok(answer)) => {
            view.degraded(Place::First, Left::Answer);
            Ok(answer)
        }
        (None, Err(_)) => {
            view.degraded(Place::Second, Left::Answer);
            Ok(None)
        }
        (Some(first), Err(second)) => Err(both_failed(first, second)),
    }
}

/// A copy to promote, if there is room and the page was not removed meanwhile.
fn stage(view: &View, key: PageKey, page: &Page, since: u64) -> Option<Staged> {
    if !view.options.promote {
        return None;
    }
    let under_way = view.ledger.set_out_read(key, since)?;
    let mut slot = view.slots.take()?;
    slot.fill(page);
    Some(Staged { key, parent: None, slot, under_way })
}

fn counted(view: &View, item: Item) -> Result<Option<Page>> {
    let outcome = match item {
        Item::Done(outcome) => outcome,
        Item::Wanted(_) => Ok(None),
    };
    match &outcome {
        Ok(Some(page)) => {
            Counters::add(&view.counters.hits, 1);
            Counters::add(&view.counters.bytes_read, page.len() as u64);
        }
        Ok(None) => Counters::add(&view.counters.misses, 1),
        Err(_) => (),
    }
    outcome
}

/// How many of `keys` are there, from the first on: each in the first tier, or else in the second, of which nothing is
/// asked behind a key that neither has.
pub(crate) async fn leading_run(view: Arc<View>, keys: Vec<PageKey>, call: Call) -> LeadingRun {
    let times = view.times(call);
    let (asks_first, asks_second) = view.asks();
    let given = times.left(BEFORE_OTHER.0);
    let asked = view.ask((Place::First, asks_first), keys.len(), (call, given), |backend, call| {
        backend.batch_exists(&keys, call)
    });
    let mut of_first = view.answers(asked, times.at(BEFORE_OTHER.1)).await;
    let end = of_first.iter().position(|answer| answer.as_ref().is_err_and(is_final));
    let error = end.and_then(|end| of_first.swap_remove(end).err());
    let end = end.unwrap_or(keys.len());
    let left: Vec<usize> = (0..end).filter(|index| !matches!(of_first[*index], Ok(true))).collect();
    let asked_keys: Vec<PageKey> = left.iter().map(|index| keys[*index]).collect();
    let given = times.left(LAST.1);
    let questions = usize::from(!left.is_empty());
    let asked = view.ask((Place::Second, asks_second), questions, (call, given), |backend, call| {
        let run = backend.leading_run(&asked_keys, call);
        Pending::new(async move {
            let told = |run: LeadingRun| match run.error {
                Some(error) if run.len == 0 => Err(error),
                _ => Ok(run),
            };
            [told(run.await)].into_iter().collect()
        })
    });
    let of_second = match view.answers(asked, times.at(16)).await.pop() {
        Some(answer) => answer.unwrap_or_else(|error| LeadingRun { len: 0, error: Some(error) }),
        None => LeadingRun::default(),
    };
    let mut fault = |place: usize| std::mem::replace(&mut of_first[left[place]], Ok(true)).err();
    for _ in (0..of_second.len).filter_map(&mut fault) {
        view.degraded(Place::First, Left::Answer);
    }
    if of_second.len == left.len() {
        return LeadingRun { len: end, error };
    }
    let answer: Result<Option<()>> = of_second.error.map_or(Ok(None), Err);
    let ended = after_second(&view, fault(of_second.len), answer);
    LeadingRun { len: left[of_second.len], error: ended.err() }
}

/// Asks which pages are there: in the first tier, or else in the second.
pub(crate) async fn exists(view: Arc<View>, keys: Vec<PageKey>, call: Call) -> Vec<Result<bool>> {
    let times = view.times(call);
    let (asks_first, asks_second) = view.asks();
    let given = times.left(BEFORE_OTHER.0);
    let asked = view.ask((Place::First, asks_first), keys.len(), (call, given), |backend, call| {
        backend.batch_exists(&keys, call)
    });
    let mut outcomes = view.answers(asked, times.at(BEFORE_OTHER.1)).await;
    let open = |outcome: &Result<bool>| match outcome {
        Ok(there) => !there,
        Err(error) => !is_final(error),
    };
    let left: Vec<usize> = (0..keys.len()).filter(|index| open(&outcomes[*index])).collect();
    let asked_keys: Vec<PageKey> = left.iter().map(|index| keys[*index]).collect();
    let given = times.left(LAST.1);
    let asked = view.ask((Place::Second, asks_second), left.len(), (call, given), |backend, call| {
        backend.batch_exists(&asked_keys, call)
    });
    for (index, answer) in left.into_iter().zip(view.answers(asked, times.at(16)).await) {
        let fault = std::mem::replace(&mut outcomes[index], Ok(false)).err();
        let there = after_second(&view, fault, answer.map(|there| there.then_some(())));
        outcomes[index] = there.map(|there| there.is_some());
    }
    outcomes
}
