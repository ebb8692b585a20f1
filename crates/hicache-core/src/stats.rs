//! What a backend has done, counted.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a backend has done since it was opened. Counts, unless the name says otherwise.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The counters behind [`Stats`], which a backend's threads share.
        #[derive(Debug, Default)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        impl Counters {
            /// The counts now. Each is exact; together they are of nearly one moment.
            pub fn snapshot(&self) -> Stats {
                Stats { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl Stats {
            /// Each count by its name.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// What was counted in `self` and in `other`, together.
            #[must_use]
            pub fn plus(&self, other: &Self) -> Self {
                Self { $($name: self.$name + other.$name,)* }
            }
        }
    };
}

counters! {
    /// Pages served.
    hits,
    /// Pages asked for and not there.
    misses,
    /// Pages there that failed their check, and were answered as a miss.
    damaged,
    /// Pages found without a check of ours (no record, or no checksum).
    unverified,
    /// Pages written ([`Stored::Written`](crate::Stored::Written) says what counts as that).
    written,
    /// Pages offered that were there already.
    present,
    /// Pages removed.
    removed,
    /// Items that ended in an error.
    errors,
    /// Items that ended at their deadline.
    timeouts,
    /// Bytes of pages served.
    bytes_read,
    /// Bytes of pages written.
    bytes_written,
    /// Pages that moved straight between device and page.
    direct,
    /// Pages that moved through a slot of the store's, since their pieces are not aligned, or lie on base pages.
    bounced,
    /// Pages that moved through the kernel's page cache.
    buffered,
    /// Pages that moved over a network.
    network,
    /// Pages served that a ring read.
    ring,
    /// Those of them that it read into memory registered with it.
    registered,
    /// Requests to a service that were sent again.
    retries,
    /// Workers that panicked and went on.
    worker_restarts,
    /// Pages served that only the second of two tiers had.
    second_hits,
    /// Pages that a hit in the second tier brought into the first.
    promoted,
    /// Items that one tier could not answer, or not store, and the other did.
    degraded,
    /// Pages to be written behind for which the queue had no room, and that were written through.
    overflowed,
    /// Pages that were answered as stored and did not reach the tier behind.
    unflushed,
}

impl Counters {
    /// Adds `count` to a counter.
    pub fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}
