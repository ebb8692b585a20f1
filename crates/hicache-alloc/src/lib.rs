//! Page-aligned host memory for KV pages: regions, strides, pools and pages.
//!
//! A [`RegionSpec`] maps a [`Region`]; [`Strides`] cut it into slots; a [`HostPool`] hands the slots out as
//! [`PageMut`] (one writer) and [`Page`] (readers). What a page means, and where its bytes go, is not known here.
//!
//! ```
//! use hicache_alloc::{Alignment, HostPool, RegionSpec, Strides};
//!
//! let strides = Strides::new(2, 8, 4096, Alignment::base_page())?;
//! let region = RegionSpec { len: strides.region_len(), ..Default::default() }.map()?;
//! let pool = HostPool::new(region, strides, &[])?;
//! let mut page = pool.alloc(1).expect("eight slots are free").remove(0);
//! page.piece_mut(0).copy_from(0, b"keys");
//! let page = page.freeze();
//! let mut back = [0; 4];
//! page.piece(0).copy_to(0, &mut back);
//! assert_eq!(&back, b"keys");
//! # Ok::<(), hicache_alloc::AllocError>(())
//! ```

mod account;
mod adopt;
mod align;
mod attempt;
mod budget;
mod cgroup;
mod counts;
mod error;
mod file;
mod free;
mod huge;
mod loan;
mod machine;
mod mapping;
mod memfd;
mod numa;
mod page;
mod piece;
mod pool;
mod prefault;
mod region;
mod register;
mod shm;
mod spec;
mod strides;
mod sync;

pub use align::Alignment;
pub use cgroup::MemoryLimit;
pub use counts::MachineCounts;
pub use error::{AllocError, Shortage};
pub use huge::{HugePageSize, HugePages, UnknownHugePageSize};
pub use loan::Loan;
pub use machine::{Machine, MachinePaths, ReservedPages};
pub use numa::{Numa, NumaNode};
pub use page::{Page, PageMut};
pub use piece::{Piece, PieceMut};
pub use pool::{Busy, HostPool};
pub use region::{Fallback, Region};
pub use register::{RegisterError, Registrar, Registration};
pub use spec::{Backing, Budget, Lock, Prefault, RegionSpec};
pub use strides::{PageIndex, Strides};
