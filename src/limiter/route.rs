//! The way in which a check is asked: directly, by shards, or from a block of units.

use std::sync::Arc;

use crate::{
    calls::Purpose,
    check::Check,
    limiter::{core::Core, lease},
    store::Answer,
    verdict::Verdict,
};

/// How a check is asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Route {
    /// The check goes to the store as it is.
    Direct,
    /// A policy has shards: each charge goes to one of them.
    Shards,
    /// A policy has a lease, or this process holds blocks of its counts.
    Lease,
}

impl Core {
    #[inline]
    pub(super) fn route(&self, check: &Check) -> Route {
        if check.is_direct() && self.calls.held.check_beside(check).is_none() {
            Route::Direct
        } else if check.is_sharded() {
            Route::Shards
        } else {
            Route::Lease
        }
    }

    /// Asks for a check by its route. A pending answer of [`Route::Direct`] is the store's, and needs a permit and a
    /// deadline; the others have them. Nothing is charged by an answer that is not polled. `may_wait`: whether the
    /// caller can wait for a block.
    #[inline(always)]
    pub(super) fn send(
        self: &Arc<Self>,
        route: Route,
        check: &Check,
        purpose: Purpose,
        may_wait: bool,
    ) -> Answer<Verdict> {
        match route {
            Route::Direct => self.calls.store.check(check),
            // Shards spend from no block, but a denial gives back what this process holds of their counts.
            Route::Shards => lease::judge(self, check, purpose),
            Route::Lease => lease::ask(self, check, purpose, may_wait),
        }
    }
}
