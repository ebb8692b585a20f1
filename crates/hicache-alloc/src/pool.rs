//! A region cut into slots, and who may have which.

use crate::free::FreeSlots;
use crate::register::Registrations;
use crate::sync::{Arc, Mutex, MutexGuard};
use crate::{Alignment, AllocError, PageIndex, PageMut, Region, Registrar, Strides};
use std::fmt;
use std::sync::PoisonError;

/// A region cut into slots. Cloning clones the handle; the region lives until the last handle and the last page.
#[derive(Clone)]
pub struct HostPool(Arc<Inner>);

/// A slot that could not be claimed: somebody has it, or the pool has no such slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct Busy {
    /// The slot asked for.
    pub index: PageIndex,
    slots: u32,
}

/// Field order is drop order: registrations are undone before the region is unmapped.
struct Inner {
    free: Mutex<FreeSlots>,
    strides: Strides,
    _registrations: Registrations,
    region: Region,
}

impl HostPool {
    /// Cuts `region` by `strides` and tells the whole of it to each of `registrars`. The registrations are undone,
    /// the last first, when the last handle and the last page are gone, and then the region is unmapped.
    ///
    /// Pages that go to a store want its strides and its registrars: `StoreExt::pool` of the crates `hicache` and
    /// `hicache-core` makes a pool with both. Here who lays out a pool himself, or moves its pages himself, says what
    /// it is to be; `&[]` registers with nobody.
    ///
    /// # Errors
    ///
    /// [`AllocError::TooSmall`] if the strides do not fit [`Region::len`]; [`AllocError::Register`] with the first
    /// registrar's refusal, after the earlier registrations were undone. The region is unmapped in both cases.
    pub fn new(region: Region, strides: Strides, registrars: &[&dyn Registrar]) -> Result<Self, AllocError> {
        let (need, have) = (strides.region_len(), region.len());
        if need > have {
            return Err(AllocError::TooSmall { need, have });
        }
        let registrations =
            Registrations::new(&region, &strides, registrars).map_err(AllocError::Register)?;
        let free = Mutex::new(FreeSlots::new(strides.slots()));
        Ok(Self(Arc::new(Inner { free, strides, _registrations: registrations, region })))
    }

    /// Takes `count` pages, or none at all: the free slots with the lowest numbers, in order. What their bytes are
    /// is not defined; a slot keeps what was last written to it.
    pub fn alloc(&self, count: usize) -> Option<Vec<PageMut>> {
        let taken = self.0.free().take(count)?;
        Some(taken.into_iter().map(|slot| PageMut::new(self.clone(), PageIndex::new(slot), false)).collect())
    }

    /// Takes the slot `index`, for engines that choose their slots themselves.
    ///
    /// # Errors
    ///
    /// [`Busy`] if somebody has the slot, or if there is none of that number.
    pub fn claim(&self, index: PageIndex) -> Result<PageMut, Busy> {
        if self.0.free().take_at(index.get()) {
            Ok(PageMut::new(self.clone(), index, true))
        } else {
            Err(Busy { index, slots: self.slots() })
        }
    }

    /// Slots that are free now.
    pub fn available(&self) -> usize {
        self.0.free().count()
    }

    /// Slots, free or not.
    pub fn slots(&self) -> u32 {
        self.0.strides.slots()
    }

    /// Where the pieces lie.
    pub fn strides(&self) -> &Strides {
        &self.0.strides
    }

    /// The memory.
    pub fn region(&self) -> &Region {
        &self.0.region
    }

    /// Whether every piece starts and ends at a multiple of `alignment`: the region's address and its strides are
    /// multiples.
    pub fn is_aligned(&self, alignment: Alignment) -> bool {
        alignment.is_aligned(self.region().as_ptr().addr()) && self.strides().is_aligned(alignment)
    }

    /// Whether both are handles of one pool.
    pub fn is_same(&self, other: &HostPool) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Frees a slot. Only a page that ends may call it, since it alone knows that nobody has the slot any more.
    pub(crate) fn free(&self, index: PageIndex) {
        self.0.free().give_back(index.get());
    }
}

impl Inner {
    /// Nothing that runs under the lock can panic halfway, so a poisoned lock guards a sound bitmap.
    fn free(&self) -> MutexGuard<'_, FreeSlots> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Busy {
    /// Whether the pool has a slot of that number, so that waiting may help.
    pub fn exists(&self) -> bool {
        self.index.get() < self.slots
    }

    fn text(&self) -> String {
        let (index, slots) = (self.index.get(), self.slots);
        if self.exists() {
            format!("slot {index} is in use")
        } else {
            format!("there is no slot {index}: the pool has {slots}, numbered from 0")
        }
    }
}

impl fmt::Debug for HostPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostPool")
            .field("available", &self.available())
            .field("strides", self.strides())
            .field("region", self.region())
            .finish_non_exhaustive()
    }
}
