//! Holds without a verdict.

use crate::{
    error::Error,
    failure::FailurePolicy,
    limiter::hold::handle::{Hold, HoldAnswer},
};

impl FailurePolicy {
    /// Turns the error of a [hold](crate::Limiter::hold) into a handle that holds nothing, or a denial. What a store
    /// or a fallback has held is returned unchanged.
    ///
    /// The handle of [`Open`](Self::Open) has nothing to settle: its changes are answered with
    /// [`SettleAnswer::NotHeld`](crate::store::SettleAnswer::NotHeld). Otherwise as [`resolve`](Self::resolve); to use
    /// the fallback, call [`HoldFuture::fail_local`](crate::limiter::HoldFuture::fail_local).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Error, ErrorKind, FailurePolicy};
    ///
    /// let down = Error::new(ErrorKind::Unavailable, "connection refused");
    /// assert!(FailurePolicy::Open.resolve_hold(Err(down.clone())).is_allowed());
    /// assert!(!FailurePolicy::Closed.resolve_hold(Err(down)).is_allowed());
    /// ```
    pub fn resolve_hold(self, result: Result<HoldAnswer, Error>) -> HoldAnswer {
        result.unwrap_or_else(|error| {
            let decision = self.resolve(Err(error));
            if decision.is_allowed() {
                HoldAnswer::Open(Hold::of_nothing(decision))
            } else {
                HoldAnswer::Denied(decision)
            }
        })
    }
}
