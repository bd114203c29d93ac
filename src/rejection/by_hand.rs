//! From a decision or an error to a response, for the layer and for handlers that check by hand.

use std::fmt;

use http::{Response, request::Parts};

use super::extensions::insert_if_strictest;
use super::{Denial, Reason, Rejection};
use crate::{
    decision::Decision,
    error::{ConfigError, Error},
    failure::FailurePolicy,
    headers::{self, Writer},
    observe::Refused,
};

impl Decision {
    /// The decision itself if it allows the request, otherwise the [`Denial`] that a handler answers with.
    ///
    /// With feature `axum`, a [`Denial`] is a response, and an [`Error`] becomes one as by
    /// [`FailurePolicy::Closed`], so a handler that checks by hand needs two `?`.
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
    /// /// A handler of axum: answers 429, or 503 if the store cannot answer, with all fields.
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
    /// The denial of a check without a verdict, as by [`FailurePolicy::Closed`]: 503 with `Retry-After: 1`.
    fn from(error: Error) -> Self {
        Self::of(FailurePolicy::Closed.resolve(Err(error)))
    }
}

impl From<ConfigError> for Denial {
    /// The denial of a check that cannot be judged as it was put together: 500.
    fn from(error: ConfigError) -> Self {
        Self::new(Reason::Misconfigured(error))
    }
}

/// The reason and the wait, for logs. It names policies and headers, and no key.
impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason() {
            Reason::CostAboveLimit { .. } | Reason::Misconfigured(_) | Reason::Key(_) => {
                write!(f, "request refused: {}", Refused::new(self.reason()))
            }
            Reason::QuotaExceeded(decision) => {
                let names: Vec<&str> = decision.violated().map(|policy| policy.policy.name()).collect();
                write!(f, "rate limit exceeded: {}", names.join(", "))
            }
            Reason::StoreUnavailable => f.write_str("rate limiter unavailable"),
        }?;
        match self.retry_after() {
            Some(wait) => write!(f, "; retry after {wait:?}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Denial {}

impl Denial {
    /// Builds the response: what `rejection` answers to the request with the head `parts`, and the fields that this
    /// lacks, in the style of `writer`: RateLimit, `Retry-After` and `Cache-Control: no-store`.
    ///
    /// The layer answers refused requests with it. Handlers of axum return the denial itself, unless they want another
    /// rejection or style. The response's extensions hold the denial and, if there was a check, the [`Decision`].
    ///
    /// # Examples
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::{Request, Response};
    /// use tollgate::{Error, HeaderStyle, Limiter, Policy, headers::Writer, rejection::PlainText};
    ///
    /// /// A handler of plain hyper.
    /// async fn export(request: Request<()>, limiter: &Limiter, daily: &Policy) -> Response<Bytes> {
    ///     let (parts, ()) = request.into_parts();
    ///     let checked = limiter.check("exports", daily, 1).await.map_err(Into::into);
    ///     match checked.and_then(|decision| decision.into_result()) {
    ///         Ok(_) => Response::new(Bytes::from("a,b,c")),
    ///         Err(denial) => {
    ///             denial.respond(&PlainText::default(), &Writer::new(HeaderStyle::XRateLimitDelta), &parts)
    ///         }
    ///     }
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::ConfigError> {
    /// let (limiter, daily) = (Limiter::new(tollgate::MemoryStore::new()), Policy::per_day("exports", 1)?);
    /// assert_eq!(export(Request::default(), &limiter, &daily).await.status(), 200);
    /// let denied = export(Request::default(), &limiter, &daily).await;
    /// assert_eq!((denied.status().as_u16(), &denied.headers()["retry-after"]), (429, &"86400".parse().unwrap()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn respond<B, R>(mut self, rejection: &R, writer: &Writer, parts: &Parts) -> Response<B>
    where
        R: Rejection<B> + ?Sized,
    {
        // Drawn once, so that every field and the body say the same.
        let jitter = writer.draw(self.retry_after);
        self.retry_after = self.retry_after.map(|wait| wait.saturating_add(jitter));
        let mut response = rejection.reject(parts, &self);
        match self.decision() {
            Some(decision) => writer.apply_later(decision, jitter, response.headers_mut()),
            None => headers::refuse(response.headers_mut(), self.retry_after),
        }
        let without_verdict = || self.source.map(|source| Decision::without_store(false, source));
        if let Some(decision) = self.decision().cloned().or_else(without_verdict) {
            insert_if_strictest(decision, response.extensions_mut());
        }
        response.extensions_mut().insert(self);
        response
    }
}
