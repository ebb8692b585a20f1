//! Sets, through both tiers or behind the first, and what goes on after the answer.

use crate::backend::{BEFORE_OTHER, LAST, View, both_failed};
use crate::ledger::UnderWay;
use crate::options::Write;
use crate::queue::{Share, Slot};
use crate::tier::{Left, Place, is_final};
use hicache_core::{
    Call, Counters, Deadline, Error, Loan, Outcomes, Page, PageKey, Pending, Priority, Put, Result,
    StorageBackend, Stored,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A copy of a page that is to go to a tier.
pub(crate) struct Staged {
    pub(crate) key: PageKey,
    pub(crate) parent: Option<PageKey>,
    pub(crate) slot: Slot,
    pub(crate) under_way: UnderWay,
}

/// A copy that a tier has. It is under way until the tier has let go of it, whatever it answered before: until then
/// the page may still be written.
struct Sent {
    loan: Loan,
    share: Share,
    under_way: UnderWay,
}

/// Items for one tier, and their places in the whole.
#[derive(Default)]
struct Part {
    places: Vec<usize>,
    puts: Vec<Put>,
}

/// A set, by what becomes of its items.
#[derive(Default)]
struct Plan {
    outcomes: Vec<Option<Result<Stored>>>,
    /// Places of keys that the batch names again, and the places where it named them first.
    again: Vec<(usize, usize)>,
    first: Part,
    /// Goes to the second tier at once.
    through: Part,
    /// Goes to the second tier after the answer, or, where the first tier fails, before it.
    behind: Vec<(usize, Behind)>,
}

/// A page that only the first tier gets at once.
enum Behind {
    /// To be copied here, for the second.
    Empty(Staged, Page),
    Staged(Staged),
    /// Another copy of it is on its way to the second.
    UnderWay(Put),
}

/// Stores pages.
///
/// A page that the queue has no room for goes through, and the caller waits for the second tier: so a tier that is
/// slower than the engine slows it down, where the alternative is to lose pages that were answered as stored.
pub(crate) async fn set(view: Arc<View>, batch: Vec<Put>, call: Call) -> Vec<Result<Stored>> {
    let times = view.times(call);
    let (asks_first, asks_second) = view.asks();
    let Plan { mut outcomes, again, first, through, behind } = plan(&view, batch, asks_first);
    let (give, until) = if behind.is_empty() { LAST } else { BEFORE_OTHER };
    let len = first.puts.len();
    let first_asked = view.ask((Place::First, asks_first), len, (call, times.left(give)), |backend, call| {
        backend.batch_set(first.puts, call)
    });
    let through_len = through.puts.len();
    let given = (call, times.left(LAST.0));
    let through_asked = view.ask((Place::Second, asks_second), through_len, given, |backend, call| {
        backend.batch_set(through.puts, call)
    });
    // While the first tier writes.
    let behind: Vec<(usize, Behind)> = behind.into_iter().map(|(place, one)| (place, one.filled())).collect();

    for (place, answer) in first.places.into_iter().zip(view.answers(first_asked, times.at(until)).await) {
        outcomes[place] = Some(answer);
    }
    for (place, answer) in through.places.into_iter().zip(view.answers(through_asked, times.at(LAST.1)).await)
    {
        let of_first = outcomes[place].take();
        outcomes[place] = Some(of_first.map_or_else(untold, |first| both(&view, first, answer)));
    }
    let (mut accepted, mut left, mut sent) = (Vec::new(), Part::default(), Vec::new());
    for (place, one) in behind {
        match (&outcomes[place], one) {
            (Some(Ok(_)), Behind::Staged(staged)) => accepted.push(staged),
            (Some(Ok(_)), _) => (),
            (Some(Err(error)), _) if is_final(error) => (),
            (_, one) => left.add(place, one.send(&mut sent)),
        }
    }
    carry_behind(&view, accepted);
    let given = (call, times.left(LAST.1));
    let asked = view.ask((Place::Second, asks_second), left.puts.len(), given, |backend, call| {
        backend.batch_set(left.puts, call)
    });
    if !sent.is_empty() {
        view.tasks.follow(ended(sent));
    }
    for (place, answer) in left.places.into_iter().zip(view.answers(asked, times.at(16)).await) {
        let of_first = outcomes[place].take();
        outcomes[place] = Some(of_first.map_or_else(untold, |first| both(&view, first, answer)));
    }
    for (place, named) in again {
        let of_named = outcomes[named].clone().unwrap_or_else(untold);
        outcomes[place] = Some(of_named.map(|_| Stored::Present));
    }
    let outcomes: Vec<_> = outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(untold)).collect();
    count(&view, &outcomes);
    outcomes
}

fn plan(view: &View, batch: Vec<Put>, asks_first: bool) -> Plan {
    let mut plan = Plan::default();
    let mut named: HashMap<PageKey, usize> = HashMap::with_capacity(batch.len());
    for (place, put) in batch.into_iter().enumerate() {
        let checked = view.namespace.check_shape("set page", put.page.planes(), put.page.len());
        plan.outcomes.push(checked.err().map(Err));
        if plan.outcomes[place].is_some() {
            continue;
        }
        // Two mentions could each find the page of the other, one in each tier, and none would have written it.
        let first = *named.entry(put.key).or_insert(place);
        if first != place {
            plan.again.push((place, first));
            continue;
        }
        let behind = if view.options.write == Write::Behind && asks_first { stage(view, &put) } else { None };
        match behind {
            Some(behind) => plan.behind.push((place, behind)),
            None => plan.through.add(place, put.clone()),
        }
        plan.first.add(place, put);
    }
    plan
}

impl Part {
    fn add(&mut self, place: usize, put: Put) {
        self.places.push(place);
        self.puts.push(put);
    }
}

/// Room for a copy. `None`: the queue is full, and the page goes through.
fn stage(view: &View, put: &Put) -> Option<Behind> {
    let Some(under_way) = view.ledger.set_out(put.key) else { return Some(Behind::UnderWay(put.clone())) };
    let Some(slot) = view.slots.take() else {
        Counters::add(&view.counters.overflowed, 1);
        return None;
    };
    let staged = Staged { key: put.key, parent: put.parent, slot, under_way };
    Some(Behind::Empty(staged, put.page.clone()))
}

impl Behind {
    fn filled(self) -> Self {
        match self {
            Self::Empty(mut staged, page) => {
                staged.slot.fill(&page);
                Self::Staged(staged)
            }
            other => other,
        }
    }

    /// For the second tier, since the first has failed.
    fn send(self, sent: &mut Vec<Sent>) -> Put {
        match self {
            Self::Empty(staged, _) | Self::Staged(staged) => {
                let (put, one) = staged.send();
                sent.push(one);
                put
            }
            Self::UnderWay(put) => put,
        }
    }
}

/// What either had was there; behind, the first decides. One that fails degrades.
fn both(view: &View, first: Result<Stored>, second: Result<Stored>) -> Result<Stored> {
    match (first, second) {
        (Ok(stored), Ok(_)) if view.options.write == Write::Behind => Ok(stored),
        (Ok(Stored::Written), Ok(Stored::Written)) => Ok(Stored::Written),
        (Ok(_), Ok(_)) => Ok(Stored::Present),
        (Err(error), _) | (_, Err(error)) if is_final(&error) => Err(error),
        (Ok(stored), Err(_)) => {
            view.degraded(Place::Second, Left::Page);
            Ok(stored)
        }
        (Err(_), Ok(stored)) => {
            view.degraded(Place::First, Left::Page);
            Ok(stored)
        }
        (Err(first), Err(second)) => Err(both_failed(first, second)),
    }
}

fn untold() -> Result<Stored> {
    Err(Error::new(hicache_core::ErrorKind::Io, "set page").why("no tier was asked"))
}

fn count(view: &View, outcomes: &[Result<Stored>]) {
    for stored in outcomes.iter().flatten() {
        match stored {
            Stored::Written => {
                let len = view.namespace.layout().page_len() as u64;
                Counters::add(&view.counters.written, 1);
                Counters::add(&view.counters.bytes_written, len);
            }
            Stored::Present => Counters::add(&view.counters.present, 1),
        }
    }
}

impl Staged {
    fn send(self) -> (Put, Sent) {
        let (page, loan, share) = self.slot.send();
        let sent = Sent { loan, share, under_way: self.under_way };
        (Put { key: self.key, parent: self.parent, page }, sent)
    }
}

/// Waits until a tier has let go of the copies.
async fn ended(sent: Vec<Sent>) {
    for Sent { loan, share, under_way } in sent {
        drop(loan.await);
        drop(share);
        drop(under_way);
    }
}

/// Takes pages that a set has answered to the second tier.
fn carry_behind(view: &Arc<View>, staged: Vec<Staged>) {
    if staged.is_empty() {
        return;
    }
    let count = staged.len() as u64;
    view.carried.behind.fetch_add(count, Ordering::AcqRel);
    let view = Arc::clone(view);
    let tasks = view.tasks.clone();
    tasks.follow(async move {
        let (answers, sent) = carry(&view, Place::Second, staged).await;
        let failed = || answers.iter().filter_map(|answer| answer.as_ref().err());
        if let Some(error) = failed().next() {
            let count = failed().count() as u64;
            Counters::add(&view.counters.unflushed, count);
            view.carried.lost(count, error);
        }
        view.carried.behind.fetch_sub(count, Ordering::AcqRel);
        ended(sent).await;
    });
}

/// Takes pages that only the second tier had to the first. If it does not work, the next get tries again.
pub(crate) fn promote(view: &Arc<View>, staged: Vec<Staged>) {
    if staged.is_empty() {
        return;
    }
    let view = Arc::clone(view);
    let tasks = view.tasks.clone();
    tasks.follow(async move {
        let (answers, sent) = carry(&view, Place::First, staged).await;
        let promoted = answers.iter().filter(|answer| matches!(answer, Ok(Stored::Written))).count();
        Counters::add(&view.counters.promoted, promoted as u64);
        ended(sent).await;
    });
}

async fn carry(view: &Arc<View>, place: Place, staged: Vec<Staged>) -> (Vec<Result<Stored>>, Vec<Sent>) {
    let call = Call { deadline: Deadline::Store, priority: Priority::Background, ..Call::default() };
    let times = view.times(call);
    let asks = match (place, view.asks()) {
        (Place::First, (first, _)) => first,
        (Place::Second, (_, second)) => second,
    };
    let (puts, sent): (Vec<Put>, Vec<Sent>) = staged.into_iter().map(Staged::send).unzip();
    let start = |backend: &dyn StorageBackend, call: Call| -> Pending<Outcomes<Stored>> {
        backend.batch_set(puts, call)
    };
    let asked = view.ask((place, asks), sent.len(), (call, times.left(LAST.0)), start);
    (view.answers(asked, times.at(LAST.1)).await, sent)
}
