//! From a decision or an error to a denial, for handlers that check by themselves.

use super::denial::{Denial, Reason};
use crate::{
    decision::Decision,
    error::{ConfigError, Error},
    failure::FailurePolicy,
};

impl Decision {
    /// Returns the decision if it allows the request, otherwise the [`Denial`] for a handler to return.
    ///
    /// With feature `axum`, a [`Denial`] is a response, and an [`Error`] converts into one as under
    /// [`FailurePolicy::Closed`], so a handler that calls a limiter needs two `?`.
    ///
    /// # Errors
    ///
    /// [`Denial`] if the decision is denied: [`Reason::CostAboveLimit`] if the cost can
    /// never pass.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, rejection::Denial};
    ///
    /// /// A handler of axum: responds with 429, or 503 if the store cannot answer, and all fields.
    /// async fn send_code(limiter: Limiter, per_number: Policy) -> Result<&'static str, Denial> {
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
    pub fn into_result(self) -> Result<Self, Denial> {
        if self.is_allowed() { Ok(self) } else { Err(Denial::of(self)) }
    }
}

impl From<Error> for Denial {
    /// The denial of a check without a verdict, as under [`FailurePolicy::Closed`]: 503 with `Retry-After: 1`.
    fn from(error: Error) -> Self {
        Self::of(FailurePolicy::Closed.resolve(Err(error)))
    }
}

impl From<ConfigError> for Denial {
    /// The denial of a check with a wrong configuration: 500.
    fn from(error: ConfigError) -> Self {
        Self::new(Reason::Misconfigured(error))
    }
}
