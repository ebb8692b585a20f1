//! The contract of a backend: where pages go when they leave host memory.

use crate::{Alignment, LeadingRun, Outcomes, Page, PageKey, PageMut, Pending, Result, Stats};
use std::fmt;
use std::time::Duration;

/// Pages that one batch holds when hicache cuts a longer run: enough to fill a device's queue with the smallest
/// pages, few enough to start early and stop early. SGLang's number.
pub const STORAGE_BATCH_SIZE: usize = 128;

/// A page to store.
#[derive(Clone, Debug)]
pub struct Put {
    /// Its name.
    pub key: PageKey,
    /// The page before it in its chain; `None` for the first.
    pub parent: Option<PageKey>,
    /// Its bytes, shared with whoever else reads them.
    pub page: Page,
}

/// A page to fetch.
#[derive(Debug)]
pub struct Get {
    /// Its name.
    pub key: PageKey,
    /// Where the bytes go. On a miss or a failure it goes back to its pool.
    pub into: PageMut,
}

/// When to give up, and what to let pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// When to give up.
    pub deadline: Deadline,
    /// What goes first where work queues.
    pub priority: Priority,
    /// The deadline also ends gets into memory that others will use again: claimed slots, and adopted regions. Such a
    /// page is read into the store's own memory, and copied only as long as its answer is wanted.
    pub hard: bool,
}

/// When to give up, from the moment of the call, by the store's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deadline {
    /// The store's `deadline` option (30 s unless set).
    #[default]
    Store,
    /// This long.
    After(Duration),
}

/// What goes first where work queues. Gets go before sets of the same priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Somebody waits for it.
    #[default]
    Normal,
    /// Nobody does: backups, prefetches on suspicion.
    Background,
}

/// How a page came to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// By this call. Also where a service's answer to an upload of this call was lost, and on asking again the page was
    /// there, no older than the call by the service's own clock: sure is that somebody wrote it meanwhile, and most
    /// likely this call did.
    Written,
    /// It was there already, and sound; keys are content hashes, so the bytes are the same.
    Present,
}

/// Facts that callers branch on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Build pools with strides of this alignment, and no page is copied on its way.
    pub alignment: Alignment,
    /// `batch_exists` costs no I/O, so asking before fetching is free.
    pub cheap_exists: bool,
    /// Bytes after a page ([`Strides::room`](crate::Strides::room)) with which it is fetched in one operation together
    /// with what is stored beside it. Without them it is fetched, too.
    pub room: usize,
}

impl Capabilities {
    /// Of a backend that wants `alignment`.
    pub fn new(alignment: Alignment, cheap_exists: bool) -> Self {
        Self { alignment, cheap_exists, room: 0 }
    }
}

/// A store seen through one namespace: where its pages go.
///
/// # Contract
///
/// 1. *One outcome per item*, of the batch's length and in its order. A batch may have any length, also none,
///    and may name a key more than once. It never fails as a whole.
/// 2. *Ownership.* A page passed in belongs to the operation until the last device, kernel or peer has let go of
///    it, also when the [`Pending`] is dropped. The operation's record keeps the page itself, never its address.
/// 3. *Atomic.* No get sees part of a page, also not after a crash.
/// 4. *A miss is `Ok(None)`*; what fails its check is a miss too, and is counted. A wrong byte is never served.
///    Removing an absent key is `Ok(false)`.
/// 5. *Eager.* The work starts at the call; polling only waits, and never blocks.
/// 6. *Deadline.* Every item is answered by its deadline, but for a get into a claimed slot, which is answered
///    only when nothing can write to it any more, unless the call is [`hard`](Call::hard). Nothing is written to a
///    page whose get was answered.
/// 7. *Shape.* A page whose pieces are not those of the namespace's layout is refused with
///    [`InvalidArgument`](crate::ErrorKind::InvalidArgument) before any I/O.
/// 8. *Present.* A set of a key that is there and sound writes nothing; one that is damaged is replaced.
pub trait StorageBackend: fmt::Debug + Send + Sync + 'static {
    /// What callers branch on.
    fn capabilities(&self) -> Capabilities;

    /// Stores pages.
    fn batch_set(&self, batch: Vec<Put>, call: Call) -> Pending<Outcomes<Stored>>;

    /// Fetches pages.
    fn batch_get(&self, batch: Vec<Get>, call: Call) -> Pending<Outcomes<Option<Page>>>;

    /// Asks which pages are there.
    fn batch_exists(&self, keys: &[PageKey], call: Call) -> Pending<Outcomes<bool>>;

    /// Asks how long the leading run of keys is whose pages are there: for whoever has no use for what lies behind a
    /// miss. Where questions cost requests, the keys behind the first that is not there are not all asked for.
    fn leading_run(&self, keys: &[PageKey], call: Call) -> Pending<LeadingRun> {
        let answers = self.batch_exists(keys, call);
        Pending::new(async move { LeadingRun::of(answers.await) })
    }

    /// Removes pages; true where one was there.
    fn batch_remove(&self, keys: &[PageKey], call: Call) -> Pending<Outcomes<bool>>;

    /// What it has done.
    fn stats(&self) -> Stats;
}

/// Conveniences over [`StorageBackend`]. Implemented for all of them; not for you to implement.
pub trait StorageBackendExt: StorageBackend {
    /// Stores one page.
    fn set(&self, put: Put) -> Pending<Result<Stored>> {
        one(self.batch_set(vec![put], Call::default()))
    }

    /// Fetches one page.
    fn get(&self, key: PageKey, into: PageMut) -> Pending<Result<Option<Page>>> {
        one(self.batch_get(vec![Get { key, into }], Call::default()))
    }

    /// Asks for one page.
    fn exists(&self, key: PageKey) -> Pending<Result<bool>> {
        one(self.batch_exists(&[key], Call::default()))
    }

    /// Removes one page.
    fn remove(&self, key: PageKey) -> Pending<Result<bool>> {
        one(self.batch_remove(&[key], Call::default()))
    }
}

impl<T: StorageBackend + ?Sized> StorageBackendExt for T {}

fn one<T: Send + 'static>(outcomes: Pending<Outcomes<T>>) -> Pending<Result<T>> {
    Pending::new(async move { outcomes.await.into_iter().next().expect("contract 1: one outcome per item") })
}
