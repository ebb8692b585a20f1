//! Contracts 3 and 4 of a backend: what comes back is what was stored, to the byte.

use crate::{Subject, View, pages, wait};
use hicache_core::{Alignment, Backing, Get, PageIndex, PageLayout};

/// Pages of each layout.
const PAGES: u64 = 3;

fn aligned() -> Alignment {
    Alignment::new(4_096).expect("a power of two")
}

/// One piece or many, aligned or not, from one byte to half a megabyte: from a pool without alignment, and from one
/// whose pieces are padded.
pub fn pages_of_every_layout_come_back_whole(subject: &Subject) {
    let medium = subject.fresh();
    for (name, layout) in pages::layouts() {
        let view = View::open(&medium, &name, layout, PAGES as u32);
        for (keys, alignment) in [(0..PAGES, Alignment::NONE), (PAGES..2 * PAGES, aligned())] {
            let view = view.with_pool(PAGES as u32, alignment, Backing::Private);
            come_back(&view, &view, keys);
        }
    }
}

/// A page may be set from one pool and fetched into another that is laid out differently.
pub fn pages_move_between_pools_of_any_alignment(subject: &Subject) {
    let medium = subject.fresh();
    for layout in moved_layouts() {
        let view = View::open(&medium, &layout.to_string(), layout, 1);
        let loose = view.with_pool(PAGES as u32, Alignment::NONE, Backing::Private);
        let padded = view.with_pool(PAGES as u32, aligned(), Backing::Private);
        let wide = view.with_pool(PAGES as u32, Alignment::new(65_536).expect("one"), Backing::Private);
        come_back(&loose, &padded, 0..PAGES);
        come_back(&padded, &loose, PAGES..2 * PAGES);
        come_back(&wide, &loose, 2 * PAGES..3 * PAGES);
    }
}

/// Pages of shared memory, of which no reference to the bytes may exist.
pub fn pages_of_memory_that_others_may_write_come_back_whole(subject: &Subject) {
    let medium = subject.fresh();
    for layout in moved_layouts() {
        let view = View::open(&medium, &layout.to_string(), layout, 1);
        let private = view.with_pool(PAGES as u32, Alignment::NONE, Backing::Private);
        let mut keys = 0..PAGES;
        for backing in [Backing::Memfd, Backing::Shared] {
            for alignment in [Alignment::NONE, aligned()] {
                let shared = view.with_pool(PAGES as u32, alignment, backing);
                come_back(&shared, &shared, keys.clone());
                keys = keys.end..keys.end + PAGES;
            }
            let shared = view.with_pool(PAGES as u32, Alignment::NONE, backing);
            come_back(&private, &shared, keys.clone());
            keys = keys.end..keys.end + PAGES;
        }
    }
}

/// Where the engine chose the slot, the bytes are there and nowhere else; after a miss it may choose it again.
pub fn a_chosen_slot_is_read_into_and_can_be_chosen_again(subject: &Subject) {
    let medium = subject.fresh();
    let view = View::open(&medium, "chosen", pages::two_planes(), 8);
    let (stored, absent) = (pages::key(1), pages::key(2));
    view.write(&[stored]);
    view.rest();
    let claim = |index| {
        let mut page = view.pool.claim(PageIndex::new(index)).expect("contract 6: the slot is free again");
        pages::spoil(&mut page);
        page
    };
    for _ in 0..10 {
        let gets = [(stored, 5), (absent, 2), (stored, 7)];
        let batch = gets.map(|(key, slot)| Get { key, into: claim(slot) });
        let outcomes = wait("batch_get", view.backend.batch_get(batch.into(), view.call));
        for ((key, slot), outcome) in gets.into_iter().zip(outcomes) {
            let page = outcome.expect("a page or a miss");
            assert_eq!(page.is_some(), key == stored);
            if let Some(page) = page {
                assert_eq!((page.index().get(), page.is_claimed()), (slot, true));
                view.check(&key, &page);
            }
        }
        view.at_rest("when gets into chosen slots are answered and their pages dropped");
    }
}

fn moved_layouts() -> [PageLayout; 4] {
    [pages::two_planes(), pages::many_pieces(), pages::latent(), pages::opaque(4_097)]
}

#[track_caller]
fn come_back(from: &View, into: &View, numbers: std::ops::Range<u64>) {
    let keys = pages::keys(numbers);
    from.write(&keys);
    from.rest();
    assert!(from.exists(&keys).iter().all(|there| *there), "contract 8: what was written is there");
    let pages = into.get(&keys);
    for (key, page) in keys.iter().zip(&pages) {
        let page = page.as_ref().expect("a get").as_ref();
        let page = page.unwrap_or_else(|| panic!("contract 3: {key} was written and is a miss"));
        assert!(page.pool().is_same(&into.pool), "contract 2: the page that went in comes out");
    }
    drop(pages);
    into.rest();
}
