//! A place for an observer that is set later.

use std::sync::{Arc, PoisonError, RwLock};

use crate::observe::observer::Observer;

/// The observer of an object that exists before its observer is set. Read once for each call of the store, not for each
/// check.
#[derive(Default)]
pub(crate) struct ObserverCell(RwLock<Option<Arc<dyn Observer>>>);

impl ObserverCell {
    pub(crate) fn set(&self, observer: Option<Arc<dyn Observer>>) {
        // The value is replaced as a whole, so a poisoned lock is usable.
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = observer;
    }

    pub(crate) fn get(&self) -> Option<Arc<dyn Observer>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
