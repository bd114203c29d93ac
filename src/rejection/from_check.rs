//! Conversions of decisions and errors into denials, for handlers that call a limiter.

use super::denial::{Cause, Denial};
use crate::error::{ConfigError, Error};
use crate::limiter::{Hold, HoldAnswer};
use crate::{decision::Decision, failure::FailurePolicy};

impl Decision {
    /// Returns `Ok` if the decision allows the request, otherwise the [`Denial`] for a handler to return.
    ///
    /// A handler that needs the decision too, such as for what is [available](Self::available), clones it first.
    ///
    /// With feature `axum`, a [`Denial`] is a response. An [`Error`] converts into a denial as under
    /// [`FailurePolicy::Closed`]. A handler that calls a limiter therefore needs only two `?`.
    ///
    /// # Errors
    ///
    /// [`Denial`] if the decision is denied. Its reason is
    /// [`CostAboveLimit`](crate::rejection::Reason::CostAboveLimit) if the cost can never pass,
    /// [`Blocked`](crate::rejection::Reason::Blocked) if a policy is [blocked](crate::Policy::blocked), and
    /// [`StoreUnavailable`](crate::rejection::Reason::StoreUnavailable) without a verdict.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, rejection::Denial};
    ///
    /// /// A handler of axum: responds with 429, or 503 if the store cannot
    /// /// answer, and all fields.
    /// async fn send_code(
    ///     limiter: Limiter,
    ///     per_number: Policy,
    /// ) -> Result<&'static str, Denial> {
    ///     limiter.check("+31 20 1234567", &per_number, 1).await?.into_result()?;
    ///     Ok("sent")
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(tollgate::MemoryStore::new());
    /// let per_number = Policy::per_hour("per-number", 1)?;
    /// assert!(send_code(limiter.clone(), per_number.clone()).await.is_ok());
    /// let denial = send_code(limiter, per_number).await.unwrap_err();
    /// assert_eq!(denial.status(), 429);
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_result(self) -> Result<(), Denial> {
        if self.is_allowed() { Ok(()) } else { Err(Denial::of(self)) }
    }
}

impl HoldAnswer {
    /// Returns the handle if the units are held, otherwise the [`Denial`] for a handler to return.
    ///
    /// # Errors
    ///
    /// As [`Decision::into_result`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, rejection::Denial};
    ///
    /// /// A handler of axum: responds with 429, or 503 if the store cannot
    /// /// answer, and all fields.
    /// async fn export(
    ///     limiter: Limiter,
    ///     exports: Policy,
    /// ) -> Result<&'static str, Denial> {
    ///     let slot = limiter.hold("tenant:3", &exports, 1).await?.into_result()?;
    ///     // The work is done here.
    ///     slot.release().await?;
    ///     Ok("exported")
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let limiter = Limiter::new(tollgate::MemoryStore::new());
    /// # let exports = Policy::concurrent("exports", 1)?;
    /// # assert!(export(limiter.clone(), exports.clone()).await.is_ok());
    /// # let _slot = limiter.hold("tenant:3", &exports, 1).await?.into_result()?;
    /// # assert_eq!(export(limiter, exports).await.unwrap_err().status(), 429);
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_result(self) -> Result<Hold, Denial> {
        match self {
            Self::Open(hold) => Ok(hold),
            Self::Denied(decision) => Err(Denial::of(decision)),
        }
    }
}

impl From<Error> for Denial {
    /// Converts the error of a check without a verdict as [`FailurePolicy::Closed`] does: 503 with `Retry-After: 1`. A
    /// mistake of the call, such as two policies of one name, is 500 as from a layer.
    fn from(error: Error) -> Self {
        match error.mistake() {
            Some(mistake) => mistake.into(),
            None => Self::of(FailurePolicy::Closed.resolve(Err(error))),
        }
    }
}

impl From<ConfigError> for Denial {
    /// Converts the error of a check with a wrong configuration: 500 without `Retry-After`.
    fn from(error: ConfigError) -> Self {
        Self::new(Cause::Misconfigured(error))
    }
}
