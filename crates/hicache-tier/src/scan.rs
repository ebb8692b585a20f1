//! A walk over both tiers that finds each page once.

use crate::store::with_tier;
use crate::tier::Tier;
use hicache_core::{Error, ErrorKind, Found, PageKey, Pending, Reply, Result, Scan, State, Visitor, replies};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

/// What both walks share.
struct Walk {
    visitor: Visitor,
    /// Pages that the first tier has.
    seen: HashSet<(Arc<str>, PageKey)>,
    over: bool,
}

/// Walks over the first tier, then over the second, whose sound pages that the first has, too, are left out. On a
/// thread of its own: a visitor may use the store, and wait for it.
pub(crate) fn walk(tiers: [Arc<Tier>; 2], scan: Scan, visitor: Visitor) -> Pending<Result<()>> {
    let (mut replies, outcomes, _) = replies(1);
    let reply: Reply<()> = replies.pop().expect("one was asked for");
    let body = move || {
        let walk = Arc::new(Mutex::new(Walk { visitor, seen: HashSet::new(), over: false }));
        let walked = tiers.iter().map(|tier| walk_tier(tier, &scan, &walk));
        // Also where the first tier fails, the second is walked over.
        let walked: Vec<Result<()>> = walked.collect();
        reply.send(walked.into_iter().collect());
    };
    // Not started, it drops the reply.
    if let Err(error) = std::thread::Builder::new().name("hicache-tier-scan".to_string()).spawn(body) {
        let error = Error::new(ErrorKind::Exhausted, "scan store")
            .why("a thread for the scan could not be started")
            .fix("raise ulimit -u")
            .because(error);
        return Pending::ready(Err(error));
    }
    Pending::new(async move { outcomes.await.into_iter().next().expect("one outcome for one reply") })
}

fn walk_tier(tier: &Tier, scan: &Scan, walk: &Arc<Mutex<Walk>>) -> Result<()> {
    if lock(walk).over {
        return Ok(());
    }
    let (place, into) = (tier.place, Arc::clone(walk));
    let relay = move |mut found: Found| {
        let mut walk = lock(&into);
        if walk.is_second_copy(&found) {
            return ControlFlow::Continue(());
        }
        found.place = format!("{}: {}", place.name(), found.place);
        let flow = (walk.visitor)(found);
        walk.over |= flow.is_break();
        flow
    };
    tier.store.scan(scan.clone(), Box::new(relay)).wait().map_err(|error| with_tier(error, tier))
}

impl Walk {
    fn is_second_copy(&mut self, found: &Found) -> bool {
        let sound = matches!(found.state, State::Listed | State::Sound | State::Unverified);
        match found.key {
            Some(key) if sound => !self.seen.insert((Arc::clone(&found.namespace), key)),
            _ => false,
        }
    }
}

fn lock(walk: &Mutex<Walk>) -> std::sync::MutexGuard<'_, Walk> {
    walk.lock().unwrap_or_else(PoisonError::into_inner)
}
