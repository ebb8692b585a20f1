//! Contracts 4 and 8 of a backend: what is absent is a miss, and what is present is not written again.

use crate::{Subject, View, pages, wait};
use hicache_core::{Put, StorageBackendExt, Stored};

/// In a namespace that nothing was ever put in, and in one that has other pages.
pub fn an_absent_page_is_a_miss(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "absent", pages::two_planes(), 4);
    for stored in [0..0, 10..12] {
        view.write(&pages::keys(stored));
        let absent = pages::keys(0..3);
        assert_eq!(view.hits(&absent), [false; 3], "contract 4: a miss is Ok(None)");
        assert_eq!(view.exists(&absent), [false; 3]);
        assert_eq!(view.remove(&absent), [false; 3], "contract 4: removing an absent key is Ok(false)");
    }
    view.rest();
}

/// Whoever waits for a free page may count on those of answered misses.
pub fn a_page_of_a_miss_is_back_before_the_answer(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "misses", pages::opaque(4_096), 64);
    for _ in 0..20 {
        assert!(view.hits(&pages::keys(0..64)).iter().all(|hit| !hit));
        view.at_rest("when its miss is answered");
    }
}

/// As long as single questions say, whatever lies behind the miss.
pub fn a_leading_run_ends_before_its_first_miss(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "leading", pages::opaque(512), 200);
    let keys = pages::keys(0..200);
    assert_eq!((view.leading_run(&keys), view.leading_run(&[])), (0, 0), "nothing is there");
    view.write(&keys);
    for missing in [199, 150, 64, 17, 16, 15, 1, 0] {
        view.remove(&[keys[missing]]);
        for asked in [&keys[..], &keys[..missing], &keys[missing..]] {
            let told = view.exists(asked).into_iter().take_while(|there| *there).count();
            assert_eq!(view.leading_run(asked), told, "of {} keys without number {missing}", asked.len());
        }
        let twice = [keys[2], keys[2], keys[missing], keys[2]];
        assert_eq!(view.leading_run(&twice), 2, "each mention counts");
    }
    view.rest();
}

/// A removed key is as absent as one that never was.
pub fn a_removed_page_is_a_miss_and_can_be_set_again(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "removed", pages::opaque(5_000), 4);
    let keys = pages::keys(0..3);
    for _ in 0..3 {
        view.write(&keys);
        assert_eq!(view.remove(&keys[..2]), [true, true]);
        assert_eq!(view.exists(&keys), [false, false, true]);
        assert_eq!(view.hits(&keys), [false, false, true]);
        assert_eq!(view.remove(&keys), [false, false, true]);
    }
    view.rest();
}

/// Also when another chain brings it.
pub fn a_set_of_a_page_that_is_there_writes_nothing(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "present", pages::many_pieces(), 4);
    let key = pages::key(1);
    view.write(&[key]);
    let written = view.backend.stats().bytes_written;
    for parent in [None, Some(pages::key(9))] {
        let put = Put { key, parent, page: view.page(&key) };
        let stored = wait("set", view.backend.set(put)).expect("a set");
        assert_eq!(stored, Stored::Present, "contract 8: a page that is there is not written again");
    }
    assert_eq!(view.backend.stats().bytes_written, written, "contract 8: nothing was written");
    assert_eq!(view.hits(&[key]), [true]);
    view.rest();
}
