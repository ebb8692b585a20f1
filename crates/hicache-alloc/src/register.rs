//! Telling others about a region, and taking it back in time.

use crate::{Region, Strides};
use std::error::Error;
use std::fmt;

/// Whatever a registrar's own layer reports.
pub type RegisterError = Box<dyn Error + Send + Sync>;

/// Somebody who must know a region before it can move its bytes: a ring, a GPU driver.
pub trait Registrar: Send + Sync {
    /// Registers `region`, which is cut by `strides`: where it is done in parts, they end where slots do. The pool
    /// drops the result after its last page and before the region.
    ///
    /// # Errors
    ///
    /// Whatever the registration itself reports; then nothing stays registered.
    fn register(&self, region: &Region, strides: &Strides) -> Result<Registration, RegisterError>;
}

/// A registration in force. Undone on drop.
pub struct Registration(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Registration {
    /// A registration that `undo` takes back. It runs once, on the thread that drops the last page or the pool, and
    /// must not block: work that has to wait is posted to whoever can.
    pub fn new(undo: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(undo)))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(undo) = self.0.take() {
            undo();
        }
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").finish_non_exhaustive()
    }
}

/// All registrations of one pool. The last made is the first undone.
#[derive(Debug)]
pub(crate) struct Registrations(Vec<Registration>);

impl Registrations {
    /// Registers `region` everywhere or nowhere.
    pub(crate) fn new(
        region: &Region,
        strides: &Strides,
        registrars: &[&dyn Registrar],
    ) -> Result<Self, RegisterError> {
        let mut made = Self(Vec::with_capacity(registrars.len()));
        for registrar in registrars {
            made.0.push(registrar.register(region, strides)?);
        }
        Ok(made)
    }
}

impl Drop for Registrations {
    fn drop(&mut self) {
        while let Some(last) = self.0.pop() {
            drop(last);
        }
    }
}
