//! What a suite is run over: how to make an empty medium of some kind of store, and how to open it.

use hicache_core::Store;
use std::fmt;
use std::sync::Arc;

/// A kind of store under test.
pub struct Subject {
    name: &'static str,
    reopened: Reopened,
    openers: Openers,
    fresh: Box<dyn Fn() -> Medium + Send + Sync>,
}

/// What a medium holds when it is opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reopened {
    /// Everything that was stored.
    Whole,
    /// Nothing: pages live as long as their store.
    Empty,
}

/// How many stores may have a medium open at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Openers {
    /// One.
    One,
    /// Any number, who see one another's pages.
    Many,
}

/// One place that holds a store, and the way to open it. What the way to open it owns (a temporary directory,
/// say) lives as long as the medium.
pub struct Medium(Box<dyn Fn() -> Arc<dyn Store> + Send + Sync>);

impl Subject {
    /// A kind of store called `name`. Each call of `fresh` makes a new, empty medium.
    pub fn new(
        name: &'static str,
        reopened: Reopened,
        openers: Openers,
        fresh: impl Fn() -> Medium + Send + Sync + 'static,
    ) -> Self {
        Self { name, reopened, openers, fresh: Box::new(fresh) }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What a medium of it holds when it is opened again.
    pub fn reopened(&self) -> Reopened {
        self.reopened
    }

    /// How many stores may have a medium of it open at once.
    pub fn openers(&self) -> Openers {
        self.openers
    }

    /// A new, empty medium.
    pub fn fresh(&self) -> Medium {
        (self.fresh)()
    }
}

impl Medium {
    /// A medium that `open` opens: each call the same place.
    pub fn new<S: Store>(open: impl Fn() -> Arc<S> + Send + Sync + 'static) -> Self {
        Self(Box::new(move || open()))
    }

    /// As [`Medium::new`], for stores whose type is not known.
    pub fn of(open: impl Fn() -> Arc<dyn Store> + Send + Sync + 'static) -> Self {
        Self(Box::new(open))
    }

    /// Opens it.
    pub fn open(&self) -> Arc<dyn Store> {
        (self.0)()
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Medium")
    }
}
