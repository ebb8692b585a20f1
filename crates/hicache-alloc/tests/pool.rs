//! Who has which slot, and what ends before what.

use hicache_alloc::{
    Alignment, AllocError, Backing, HostPool, HugePages, Loan, Page, PageIndex, PageMut, Piece, PieceMut,
    Region, RegionSpec, RegisterError, Registrar, Registration, Strides,
};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

fn pool_of(slots: u32, backing: Backing, registrars: &[&dyn Registrar]) -> Result<HostPool, AllocError> {
    let strides = Strides::new(2, slots, 64, Alignment::new(128).unwrap()).unwrap();
    let region = RegionSpec { len: strides.region_len(), backing, ..Default::default() }.map().unwrap();
    HostPool::new(region, strides, registrars)
}

fn pool(slots: u32) -> HostPool {
    pool_of(slots, Backing::Private, &[]).unwrap()
}

fn indices(pages: &[PageMut]) -> Vec<u32> {
    pages.iter().map(|page| page.index().get()).collect()
}

#[test]
fn pages_and_pieces_can_move_between_threads() {
    fn check<T: Send + Sync>() {}
    check::<PageMut>();
    check::<Page>();
    check::<Piece<'_>>();
    check::<PieceMut<'_>>();
    check::<Registration>();
    check::<Loan>();
}

#[test]
fn a_batch_is_all_or_none_and_side_by_side() {
    let pool = pool(4);
    assert_eq!(pool.alloc(0).unwrap().len(), 0);
    let first = pool.alloc(3).unwrap();
    assert_eq!(indices(&first), [0, 1, 2]);
    assert!(pool.alloc(2).is_none());
    assert!(pool.alloc(usize::MAX).is_none());
    assert_eq!(pool.available(), 1);
    drop(first);
    assert_eq!(indices(&pool.alloc(4).unwrap()), [0, 1, 2, 3]);
}

#[test]
fn a_second_claim_is_busy_until_the_page_is_gone() {
    let pool = pool(2);
    let page = pool.claim(PageIndex::new(1)).unwrap();
    assert!(page.is_claimed());
    let busy = pool.claim(PageIndex::new(1)).unwrap_err();
    assert_eq!(
        (busy.index, busy.exists(), busy.to_string()),
        (PageIndex::new(1), true, "slot 1 is in use".to_owned())
    );
    let page = page.freeze();
    let other = page.clone();
    drop(page);
    assert!(other.is_claimed());
    assert!(pool.claim(PageIndex::new(1)).is_err());
    drop(other);
    assert!(pool.claim(PageIndex::new(1)).is_ok());
    let allocated = pool.alloc(1).unwrap();
    assert!(!allocated[0].is_claimed());
    assert!(pool.claim(allocated[0].index()).is_err());
    let absent = pool.claim(PageIndex::new(2)).unwrap_err();
    assert!(!absent.exists() && absent.to_string().contains("the pool has 2"), "{absent}");
    assert!(pool.claim(PageIndex::new(u32::MAX)).is_err());
}

#[test]
fn a_page_thaws_only_when_nobody_else_reads_it() {
    let pool = pool(1);
    let mut page = pool.alloc(1).unwrap().remove(0);
    page.bytes_mut(1).unwrap().fill(9);
    let page = page.freeze();
    let other = page.clone();
    let page = page.try_thaw().unwrap_err();
    drop(other);
    let mut page = page.try_thaw().unwrap();
    assert_eq!(page.bytes(1).unwrap(), [9; 64]);
    page.piece_mut(1).copy_from(1, &[1, 2]);
    assert_eq!(page.bytes(1).unwrap()[..4], [9, 1, 2, 9]);
    assert_eq!(pool.available(), 0);
    drop(page);
    assert_eq!(pool.available(), 1);
}

#[test]
fn memory_that_others_may_write_gives_no_references() {
    for (backing, exclusive) in [(Backing::Private, true), (Backing::Shared, false), (Backing::Memfd, false)]
    {
        let pool = pool_of(1, backing, &[]).unwrap();
        let mut page = pool.alloc(1).unwrap().remove(0);
        assert_eq!(page.bytes_mut(0).is_some(), exclusive);
        assert_eq!(page.bytes(0).is_some(), exclusive);
        page.piece_mut(0).copy_from(60, b"tail");
        let page = page.freeze();
        assert_eq!(page.bytes(0).is_some(), exclusive);
        let mut back = [0; 4];
        page.piece(0).copy_to(60, &mut back);
        assert_eq!(&back, b"tail");
    }
}

#[test]
fn slots_do_not_reach_into_one_another() {
    let pool = pool(5);
    let mut pages = pool.alloc(5).unwrap();
    for page in &mut pages {
        let slot = page.index().get() as u8;
        assert_eq!(
            (page.planes(), page.len(), page.piece(0).len(), page.piece_mut(1).len()),
            (2, 128, 64, 64)
        );
        page.piece_mut(0).copy_from(0, &[slot; 64]);
        page.bytes_mut(1).unwrap().fill(slot + 100);
    }
    for page in pages.into_iter().map(PageMut::freeze) {
        let slot = page.index().get() as u8;
        assert_eq!(page.bytes(0).unwrap(), [slot; 64]);
        assert_eq!(page.bytes(1).unwrap(), [slot + 100; 64]);
        assert_eq!(page.piece(0).as_ptr(), page.bytes(0).unwrap().as_ptr());
        assert!(page.pool().is_same(&pool));
    }
}

#[test]
fn a_copy_beyond_the_piece_panics_and_the_pool_goes_on() {
    let pool = pool(2);
    let beyond: [fn(&mut PageMut); 5] = [
        |page| page.piece_mut(0).copy_from(61, &[0; 4]),
        |page| page.piece_mut(0).copy_from(usize::MAX, &[0; 4]),
        |page| page.piece(0).copy_to(64, &mut [0; 1]),
        |page| assert_eq!(page.piece(2).len(), 0),
        |page| assert!(page.bytes_mut(2).is_none()),
    ];
    for beyond in beyond {
        let mut page = pool.alloc(1).unwrap().remove(0);
        let done = thread::scope(|scope| scope.spawn(move || beyond(&mut page)).join());
        assert!(done.is_err());
        assert_eq!(pool.available(), 2);
    }
    let page = pool.alloc(1).unwrap().remove(0);
    page.piece(0).copy_to(64, &mut []);
}

#[test]
fn a_region_too_small_is_refused() {
    let strides = Strides::new(1, 3, 4096, Alignment::NONE).unwrap();
    let region = RegionSpec { len: 8192, ..Default::default() }.map().unwrap();
    let error = HostPool::new(region, strides, &[]).unwrap_err();
    assert!(matches!(error, AllocError::TooSmall { need: 12288, have: 8192 }));
    assert!(error.to_string().contains("12288"));
}

#[test]
fn a_pool_is_aligned_if_address_and_strides_are() {
    let pool = pool(2);
    assert!(pool.is_aligned(Alignment::NONE));
    assert!(pool.is_aligned(Alignment::new(64).unwrap()));
    assert!(!pool.is_aligned(Alignment::new(128).unwrap()), "the piece length is 64");
    assert!(pool.is_same(&pool.clone()));
    assert!(!pool.is_same(&pool_of(2, Backing::Private, &[]).unwrap()));
}

type Log = Arc<Mutex<Vec<String>>>;

/// Writes down what ends, and whether the region is still mapped then.
struct Recorder(&'static str, Log);

impl Registrar for Recorder {
    fn register(&self, region: &Region, _: &Strides) -> Result<Registration, RegisterError> {
        let (name, log, address) = (self.0, Arc::clone(&self.1), region.as_ptr().addr());
        Ok(Registration::new(move || {
            let state = if is_mapped(address) { "mapped" } else { "unmapped" };
            log.lock().unwrap().push(format!("{name} undone, {state}"));
        }))
    }
}

struct Refuser;

impl Registrar for Refuser {
    fn register(&self, _: &Region, _: &Strides) -> Result<Registration, RegisterError> {
        Err("no room in the table".into())
    }
}

fn is_mapped(address: usize) -> bool {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().any(|line| {
        let mut words = line.split([' ', '-']);
        let [start, end] = [(); 2].map(|()| usize::from_str_radix(words.next().unwrap(), 16).unwrap());
        (start..end).contains(&address) && words.next() == Some("rw")
    })
}

#[test]
fn last_page_then_registrations_then_memory() {
    let log = Log::default();
    let [ring, gpu] = ["ring", "gpu"].map(|name| Recorder(name, Arc::clone(&log)));
    // A length of its own, so that no test beside this one maps the same range again.
    let strides = Strides::new(1, 1, 333 << 12, Alignment::NONE).unwrap();
    let region = RegionSpec { len: strides.region_len(), ..Default::default() }.map().unwrap();
    let pool = HostPool::new(region, strides, &[&ring, &gpu]).unwrap();
    let page = pool.alloc(1).unwrap().remove(0).freeze();
    drop(pool);
    let other = page.clone();
    let reader = thread::spawn(move || other.bytes(0).unwrap().len());
    assert_eq!(reader.join().unwrap(), 333 << 12);
    assert!(log.lock().unwrap().is_empty());
    drop(page);
    assert_eq!(*log.lock().unwrap(), ["gpu undone, mapped", "ring undone, mapped"]);
}

#[test]
fn a_refused_registration_undoes_the_earlier_ones() {
    let log = Log::default();
    let ring = Recorder("ring", Arc::clone(&log));
    let error = pool_of(1, Backing::Private, &[&ring, &Refuser, &ring]).unwrap_err();
    assert_eq!(*log.lock().unwrap(), ["ring undone, mapped"]);
    assert!(matches!(error, AllocError::Register(_)));
    assert_eq!(error.source().unwrap().to_string(), "no room in the table");
}

#[test]
fn threads_never_share_a_slot() {
    let pool = pool(16);
    thread::scope(|scope| {
        for thread in 1..=4_u8 {
            let pool = &pool;
            scope.spawn(move || {
                for turn in 0..2000_u32 {
                    let wanted = (turn * 7 + u32::from(thread)) % 6;
                    let pages = if turn % 3 == 0 {
                        pool.claim(PageIndex::new(turn % 16)).map(|page| vec![page]).ok()
                    } else {
                        pool.alloc(wanted as usize)
                    };
                    let mut pages = pages.unwrap_or_default();
                    for page in &mut pages {
                        page.bytes_mut(0).unwrap().fill(thread);
                    }
                    thread::yield_now();
                    let pages: Vec<Page> = pages.into_iter().map(PageMut::freeze).collect();
                    for page in &pages {
                        assert_eq!(page.bytes(0).unwrap(), [thread; 64]);
                    }
                    let clones = pages.clone();
                    drop(pages);
                    assert!(clones.into_iter().all(|page| page.try_thaw().is_ok()));
                }
            });
        }
    });
    assert_eq!(pool.available(), 16);
}

#[derive(Clone, Debug)]
enum Step {
    Alloc(usize),
    Claim(u32),
    Freeze(usize),
    Clone(usize),
    Thaw(usize),
    DropMut(usize),
    DropPage(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..8_usize).prop_map(Step::Alloc),
        (0..75_u32).prop_map(Step::Claim),
        (0..40_usize).prop_map(Step::Freeze),
        (0..40_usize).prop_map(Step::Clone),
        (0..40_usize).prop_map(Step::Thaw),
        (0..40_usize).prop_map(Step::DropMut),
        (0..40_usize).prop_map(Step::DropPage),
    ]
}

/// What the pool must do, by the obvious means.
struct Model {
    pool: HostPool,
    free: BTreeSet<u32>,
    writers: Vec<PageMut>,
    readers: Vec<Page>,
}

impl Model {
    fn readers_of(&self, slot: u32) -> usize {
        self.readers.iter().filter(|page| page.index().get() == slot).count()
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Alloc(count) => {
                let lowest: Vec<u32> = self.free.iter().copied().take(count).collect();
                let pages = self.pool.alloc(count);
                assert_eq!(pages.is_some(), lowest.len() == count);
                let Some(pages) = pages else { return };
                assert_eq!(indices(&pages), lowest);
                self.free.retain(|slot| !lowest.contains(slot));
                self.writers.extend(pages);
            }
            Step::Claim(slot) => {
                let page = self.pool.claim(PageIndex::new(slot));
                assert_eq!(page.is_ok(), self.free.remove(&slot));
                self.writers.extend(page);
            }
            Step::Freeze(at) if at < self.writers.len() => {
                self.readers.push(self.writers.swap_remove(at).freeze());
            }
            Step::Clone(at) if at < self.readers.len() => self.readers.push(self.readers[at].clone()),
            Step::Thaw(at) if at < self.readers.len() => {
                let page = self.readers.swap_remove(at);
                let alone = self.readers_of(page.index().get()) == 0;
                match page.try_thaw() {
                    Ok(page) => {
                        assert!(alone);
                        self.writers.push(page);
                    }
                    Err(page) => {
                        assert!(!alone);
                        self.readers.push(page);
                    }
                }
            }
            Step::DropMut(at) if at < self.writers.len() => {
                self.free.insert(self.writers.swap_remove(at).index().get());
            }
            Step::DropPage(at) if at < self.readers.len() => {
                let slot = self.readers.swap_remove(at).index().get();
                if self.readers_of(slot) == 0 {
                    self.free.insert(slot);
                }
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_pool_does_what_the_model_does(steps in prop::collection::vec(step(), 1..120)) {
        let (pool, free) = (pool(70), (0..70).collect());
        let mut model = Model { pool, free, writers: Vec::new(), readers: Vec::new() };
        for step in &steps {
            model.apply(step);
            prop_assert_eq!(model.pool.available(), model.free.len());
        }
    }
}

#[test]
fn a_lent_page_comes_back_to_the_lender_and_not_to_the_pool() {
    let pool = pool(2);
    let mut page = pool.claim(PageIndex::new(1)).unwrap();
    page.bytes_mut(0).unwrap().fill(3);
    let (lent, loan) = page.lend();
    let lent = lent.freeze();
    let other = lent.clone();
    drop(lent);
    let loan = loan.take().expect_err("somebody has a clone of it");
    assert!(pool.claim(PageIndex::new(1)).is_err());
    drop(other);
    assert!(pool.claim(PageIndex::new(1)).is_err(), "nobody takes the slot between the two");
    let page = loan.take().unwrap();
    assert_eq!((page.index().get(), page.is_claimed(), page.bytes(0).unwrap()[5]), (1, true, 3));
    drop(page);
    assert_eq!(pool.available(), 2);
}

#[test]
fn a_loan_that_is_given_up_leaves_the_slot_to_the_pool_once_the_borrower_is_done() {
    let pool = pool(1);
    for borrower_first in [true, false] {
        let (lent, loan) = pool.alloc(1).unwrap().remove(0).lend();
        assert_eq!(pool.available(), 0);
        if borrower_first {
            drop(lent);
            assert_eq!(pool.available(), 0);
            drop(loan);
        } else {
            drop(loan);
            assert_eq!(pool.available(), 0);
            drop(lent.freeze());
        }
        assert_eq!(pool.available(), 1);
    }
}

#[test]
fn a_page_lent_on_comes_back_by_the_same_way() {
    let pool = pool(1);
    let (lent, outer) = pool.alloc(1).unwrap().remove(0).lend();
    let (lent, inner) = lent.lend();
    drop(inner);
    let outer = outer.take().expect_err("the second borrower has it");
    drop(lent);
    assert!(outer.take().is_ok());
    assert_eq!(pool.available(), 1);
}

#[test]
fn whoever_waits_for_a_loan_is_woken_when_the_borrower_is_done() {
    let pool = pool(1);
    for _ in 0..50 {
        let (lent, loan) = pool.alloc(1).unwrap().remove(0).lend();
        let borrower = thread::spawn(move || drop(lent));
        let page = wait(loan);
        borrower.join().unwrap();
        drop(page);
        assert_eq!(pool.available(), 1);
    }
}

/// Parks this thread until the loan is over.
fn wait(loan: Loan) -> PageMut {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut loan = pin!(loan);
    loop {
        match loan.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(page) => return page,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn the_room_after_a_page_is_its_writers_and_no_byte_of_the_page() {
    let strides = Strides::with_room(2, 3, 4096, Alignment::base_page(), 4096).unwrap();
    let region = RegionSpec { len: strides.region_len(), huge_pages: HugePages::Off, ..Default::default() };
    let pool = HostPool::new(region.map().unwrap(), strides, &[]).unwrap();
    let mut pages = pool.alloc(3).unwrap();
    for (page, byte) in pages.iter_mut().zip(1..) {
        (0..2).for_each(|plane| page.piece_mut(plane).copy_from(0, &[byte; 4096]));
        let mut room = page.room_mut().unwrap();
        assert_eq!(room.len(), 4096);
        room.copy_from(0, &[byte + 100; 4096]);
    }
    for (page, byte) in pages.iter().zip(1..) {
        assert!((0..2).all(|plane| page.bytes(plane).unwrap() == [byte; 4096]));
        let mut room = [0; 4096];
        page.room().unwrap().copy_to(0, &mut room);
        assert_eq!(room, [byte + 100; 4096]);
        assert_eq!(page.room().unwrap().as_ptr(), page.piece(1).as_ptr().wrapping_add(4096));
    }
    let strides = Strides::new(1, 1, 4096, Alignment::base_page()).unwrap();
    let region = RegionSpec { len: strides.region_len(), huge_pages: HugePages::Off, ..Default::default() };
    let pool = HostPool::new(region.map().unwrap(), strides, &[]).unwrap();
    assert!(pool.alloc(1).unwrap().remove(0).room_mut().is_none());
}
