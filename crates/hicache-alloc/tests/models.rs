//! The free list and the page guards under every order of threads: nobody has a slot that another has, what one
//! wrote the next sees, and the last one out undoes the registrations.
//!
//! `cargo test` runs each model many times on real threads. All orders are gone through, by loom, with
//! `RUSTFLAGS="--cfg hicache_loom" cargo test --release -p hicache-alloc --test models`
//! (and a target folder of its own, since the flag rebuilds everything).
#![allow(unexpected_cfgs, reason = "`--cfg hicache_loom` is given by hand to run the models")]

use hicache_alloc::{
    Alignment, Backing, HostPool, HugePages, Machine, MachinePaths, PageIndex, Prefault, Region, RegionSpec,
    RegisterError, Registrar, Registration, Strides,
};
#[cfg(hicache_loom)]
use loom::{
    sync::Arc,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};
#[cfg(not(hicache_loom))]
use std::{
    sync::Arc,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

#[cfg(hicache_loom)]
fn model(body: impl Fn() + Send + Sync + 'static) {
    loom::model(body);
}

/// Enough for a real race to show now and then, and quick.
#[cfg(not(hicache_loom))]
fn model(body: impl Fn() + Send + Sync + 'static) {
    for _ in 0..200 {
        body();
    }
}

fn region(strides: &Strides) -> Region {
    // One page that is never touched; the account of it is not what a model is about.
    let paths = MachinePaths { procfs: "/no-account".into(), ..Default::default() };
    let spec = RegionSpec {
        len: strides.region_len(),
        backing: Backing::Private,
        huge_pages: HugePages::Off,
        prefault: Prefault::Off,
        ..Default::default()
    };
    spec.map_on(&Machine::new(paths)).unwrap()
}

fn pool(slots: u32, registrars: &[&dyn Registrar]) -> HostPool {
    let strides = Strides::new(1, slots, 64, Alignment::NONE).unwrap();
    HostPool::new(region(&strides), strides, registrars).unwrap()
}

/// Stands for the bytes of each slot. Nothing but who has the slot orders the accesses: an increment in two steps,
/// without ordering of its own, is lost if two have the slot, or if one does not see what the last one wrote.
#[derive(Clone)]
struct Bytes(Arc<Vec<AtomicUsize>>);

impl Bytes {
    fn new(slots: u32) -> Self {
        Self(Arc::new((0..slots).map(|_| AtomicUsize::new(0)).collect()))
    }

    fn write(&self, slot: PageIndex) {
        let cell = &self.0[slot.get() as usize];
        let before = cell.load(Ordering::Relaxed);
        cell.store(before + 1, Ordering::Relaxed);
    }

    fn read(&self, slot: PageIndex) -> usize {
        self.0[slot.get() as usize].load(Ordering::Relaxed)
    }

    fn writes(&self) -> usize {
        self.0.iter().map(|cell| cell.load(Ordering::Relaxed)).sum()
    }
}

#[test]
fn a_slot_has_one_owner_at_a_time() {
    for slots in [1, 2] {
        model(move || {
            let (pool, bytes) = (pool(slots, &[]), Bytes::new(slots));
            let alloc = {
                let (pool, bytes) = (pool.clone(), bytes.clone());
                thread::spawn(move || {
                    let mut writes = 0;
                    for _ in 0..2 {
                        for page in pool.alloc(1).into_iter().flatten() {
                            bytes.write(page.index());
                            writes += 1;
                        }
                    }
                    writes
                })
            };
            let mut writes = 0;
            if let Ok(page) = pool.claim(PageIndex::new(0)) {
                bytes.write(page.index());
                writes += 1;
            }
            for page in pool.alloc(slots as usize).into_iter().flatten() {
                bytes.write(page.index());
                writes += 1;
            }
            writes += alloc.join().unwrap();
            assert_eq!(pool.available(), slots as usize);
            assert_eq!(bytes.writes(), writes, "a write was lost");
        });
    }
}

#[test]
fn readers_see_the_writer_and_the_last_one_frees_the_slot() {
    model(|| {
        let (pool, bytes) = (pool(1, &[]), Bytes::new(1));
        let page = pool.alloc(1).unwrap().remove(0);
        bytes.write(page.index());
        let page = page.freeze();
        let reader = {
            let (page, bytes) = (page.clone(), bytes.clone());
            thread::spawn(move || {
                assert_eq!(bytes.read(page.index()), 1);
                drop(page);
            })
        };
        drop(page);
        // Somebody who takes the slot as soon as it is free writes it; no reader may still be there.
        if let Some(pages) = pool.alloc(1) {
            bytes.write(pages[0].index());
        }
        reader.join().unwrap();
        assert_eq!(pool.available(), 1);
    });
}

#[test]
fn a_page_thaws_for_one_and_only_when_alone() {
    model(|| {
        let (pool, bytes) = (pool(1, &[]), Bytes::new(1));
        let page = pool.alloc(1).unwrap().remove(0).freeze();
        let thaw = |page: hicache_alloc::Page, bytes: Bytes| match page.try_thaw() {
            Ok(page) => {
                bytes.write(page.index());
                1
            }
            Err(page) => {
                let seen = bytes.read(page.index());
                assert_eq!(seen, 0, "somebody wrote what is still read");
                0
            }
        };
        let other = {
            let (page, bytes) = (page.clone(), bytes.clone());
            thread::spawn(move || thaw(page, bytes))
        };
        let thawed = thaw(page, bytes.clone()) + other.join().unwrap();
        assert!(thawed <= 1);
        assert_eq!((bytes.writes(), pool.available()), (thawed, 1));
    });
}

struct Recorder(Arc<AtomicUsize>);

impl Registrar for Recorder {
    fn register(&self, _region: &Region, _: &Strides) -> Result<Registration, RegisterError> {
        let undone = Arc::clone(&self.0);
        Ok(Registration::new(move || {
            undone.fetch_add(1, Ordering::Relaxed);
        }))
    }
}

#[test]
fn registrations_are_undone_once_after_the_last_page_wherever_it_ends() {
    model(|| {
        let undone = Arc::new(AtomicUsize::new(0));
        let pool = pool(2, &[&Recorder(Arc::clone(&undone))]);
        let page = pool.alloc(1).unwrap().remove(0).freeze();
        let other = {
            let (page, undone) = (page.clone(), Arc::clone(&undone));
            thread::spawn(move || {
                assert_eq!(undone.load(Ordering::Relaxed), 0);
                drop(page);
            })
        };
        drop(pool);
        assert_eq!(undone.load(Ordering::Relaxed), 0);
        drop(page);
        other.join().unwrap();
        assert_eq!(undone.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_lent_slot_is_written_by_one_after_the_other_and_freed_once() {
    for given_up in [false, true] {
        model(move || {
            let (pool, bytes) = (pool(1, &[]), Bytes::new(1));
            let (lent, loan) = pool.alloc(1).unwrap().remove(0).lend();
            let borrower = {
                let bytes = bytes.clone();
                thread::spawn(move || {
                    bytes.write(lent.index());
                    drop(lent);
                })
            };
            // Given up, the slot is the pool's once the borrower is done; else it is this thread's, if it is back.
            let mut writes = 1;
            if given_up {
                drop(loan);
                for page in pool.alloc(1).into_iter().flatten() {
                    bytes.write(page.index());
                    writes += 1;
                }
            } else if let Ok(page) = loan.take() {
                bytes.write(page.index());
                writes += 1;
            }
            borrower.join().unwrap();
            assert_eq!(pool.available(), 1);
            assert_eq!(bytes.writes(), writes, "a write was lost");
        });
    }
}
