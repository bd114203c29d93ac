//! Checks without a future, for stores that answer at once.

use crate::error::{ConfigError, Error};
use crate::{
    calls::Purpose, check::Check, decision::Decision, key::Key, limiter::handle::Limiter, policy::Policy, store::Answer,
};

impl Limiter {
    /// Charges `cost` units to `key` under `policy`, if they fit, without a future: for code that cannot await, such as
    /// a callback, a thread without a runtime or an iterator.
    ///
    /// Works on a store that answers at once, such as a [`MemoryStore`](crate::MemoryStore). It gives the same
    /// decisions as [`check`](Self::check) from the same budget, and observers get the same events. It is also a little
    /// faster, because there is no future that holds a clone of the limiter.
    ///
    /// # Errors
    ///
    /// The store's [`Error`], which a [`FailurePolicy`](crate::FailurePolicy) turns into a decision as for `check`.
    ///
    /// An error of kind [`InvalidCall`](crate::ErrorKind::InvalidCall) if the store has to wait for the answer, as a
    /// `RedisStore` nearly always does: await `check` instead. Nothing is sent or charged then, and the limiter
    /// [reports by itself](crate::observe#what-a-limiter-reports-by-itself) that this limit is not enforced. The [local
    /// fallback](Self::with_local_fallback) does not judge such a check, because the store may be healthy.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, MemoryStore, Policy};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let lines = Policy::per_second("log-lines", 2)?;
    /// let mut written = Vec::new();
    /// for line in ["a", "b", "c"] {
    ///     if limiter.try_check("stderr", &lines, 1)?.is_allowed() {
    ///         written.push(line);
    ///     }
    /// }
    /// assert_eq!(written, ["a", "b"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_check(&self, key: impl Into<Key>, policy: &Policy, cost: u64) -> Result<Decision, Error> {
        self.try_check_all(Check::new(key, policy, cost))
    }

    /// Charges all charges of `check`, or none, without a future. See [`try_check`](Self::try_check).
    ///
    /// # Errors
    ///
    /// As [`Limiter::try_check`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Check, Limiter, MemoryStore, Policy};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let (per_user, per_tenant) = (
    ///     Policy::per_minute("per-user", 10)?,
    ///     Policy::per_day("per-tenant", 1_000)?,
    /// );
    /// let check = Check::new("user:17", &per_user, 1).and("tenant:3", &per_tenant, 1);
    /// assert!(limiter.try_check_all(check)?.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_check_all(&self, mut check: Check) -> Result<Decision, Error> {
        self.core.validate(&check)?;
        check.refuse_holds()?;
        let (core, purpose) = (&self.core, Purpose::CHECK);
        let span = core.calls.start_span(&check);
        let mut route = core.route(&check);
        match core.send(&mut route, &check, purpose, false) {
            // By reference, because a verdict is large to move.
            Answer::Ready(Ok(ref verdict)) => Ok(core.on_verdict(&mut check, verdict, purpose, span)),
            Answer::Ready(Err(error)) => core.on_error(&check, error, purpose, span),
            // Nothing has been charged: the store has denied the check, or has not been asked.
            Answer::Pending(unsent) => {
                unsent.put_back();
                core.on_error(&check, ConfigError::store_must_be_awaited().into(), purpose, span)
            }
        }
    }
}
