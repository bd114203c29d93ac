//! What a layer does with the holds of a request once the response is known, and a guard that keeps them while the work
//! goes on.

use std::{fmt, sync::Arc};

use http::response::Parts;

use super::bill::Bill;
use crate::limiter::{Charged, RequestHolds};
use crate::policy::Policy;

/// Keeps what a request holds, for as long as the guard or a clone of it lives: the slots of
/// [concurrency limits](crate::Policy::concurrent), and the units that are settled at the end.
///
/// A client that hangs up ends its request, but not the work that the handler has given to `spawn_blocking`, to a task
/// of its own or to a queue. Without a guard, the slot is free while that work runs, and a client that sends requests
/// and hangs up starts more work than the limit allows. Move a guard into the work.
///
/// The holds end when the request has ended and the last guard is dropped; they are renewed until then. What the
/// [`Bill`] says at that instant is charged. A guard does not delay what the response decides at once
/// ([`Settlement::Units`], `Held`, `Nothing`). A guard that is made after the holds have
/// ended keeps nothing.
///
/// A handler of axum takes a guard as an argument. Elsewhere, [`Bill::guard`] makes one. For a request without holds,
/// such as an exempt one, the guard keeps nothing.
///
/// # Examples
///
/// ```
/// use axum::{Router, http::StatusCode, routing::post};
/// use tollgate::{
///     Limiter, MemoryStore, PeerIp, Policy, RateLimitLayer, middleware::HoldGuard,
/// };
///
/// async fn export(guard: HoldGuard) -> Result<Vec<u8>, StatusCode> {
///     let export = tokio::task::spawn_blocking(move || {
///         // Keeps the slot until the export is done, also if the client
///         // has gone.
///         let _guard = guard;
///         vec![0; 1_000]
///     });
///     export.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
/// }
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let exports = Policy::concurrent("exports", 3)?;
/// let limit = RateLimitLayer::new(
///     Limiter::new(MemoryStore::new()),
///     exports,
///     PeerIp::new(),
/// )
/// .fail_closed();
/// let app: Router = Router::new().route("/export", post(export).layer(limit));
/// # Ok(())
/// # }
/// ```
#[must_use = "the holds end with the request if the guard is dropped"]
pub struct HoldGuard(Bill);

impl HoldGuard {
    pub(super) fn new(bill: Bill) -> Self {
        bill.add_guard();
        Self(bill)
    }
}

impl Bill {
    /// A guard that keeps the holds of the request while it lives: for work that goes on when the client has gone.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::middleware::Bill;
    ///
    /// fn start(bill: &Bill) -> std::thread::JoinHandle<u64> {
    ///     let guard = bill.guard();
    ///     std::thread::spawn(move || {
    ///         let result = 7; // the work
    ///         drop(guard); // the slot is free
    ///         result
    ///     })
    /// }
    /// ```
    pub fn guard(&self) -> HoldGuard {
        HoldGuard::new(self.clone())
    }
}

impl Clone for HoldGuard {
    fn clone(&self) -> Self {
        Self::new(self.0.clone())
    }
}

impl Drop for HoldGuard {
    fn drop(&mut self) {
        self.0.remove_guard();
    }
}

impl fmt::Debug for HoldGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HoldGuard").field(&self.0).finish()
    }
}

#[cfg(feature = "axum")]
mod extract {
    use std::convert::Infallible;

    use axum::extract::FromRequestParts;
    use http::request::Parts;

    use super::{Bill, HoldGuard};

    /// Never fails: for a request without holds, the guard keeps nothing.
    impl<S: Sync> FromRequestParts<S> for HoldGuard {
        type Rejection = Infallible;

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
            Ok(parts.extensions.get_or_insert_with(Bill::new).guard())
        }
    }
}

/// How the holds of a request end: decided by the response, in the closure of
/// [`RateLimitLayer::with_settlement`](crate::RateLimitLayer::with_settlement).
///
/// Slots of [`Policy::concurrent`] do not depend on it: they are free when the response body
/// has ended, and nothing is ever charged for them.
///
/// # Examples
///
/// ```
/// use http::{StatusCode, response::Parts};
/// use tollgate::middleware::Settlement;
///
/// /// Only failed logins count.
/// fn failed_logins(response: &Parts) -> Settlement {
///     if response.status == StatusCode::UNAUTHORIZED {
///         Settlement::Held
///     } else {
///         Settlement::Nothing
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Settlement {
    /// Settles when the response body has ended, failed or been dropped: charges what the [`Bill`] says by
    /// then, or, if the handler has set nothing, the units that are held.
    AtEnd,
    /// Charges this number of units at once, instead of those that are held. It may be more than was held: later
    /// requests then wait until the excess has left the window.
    Units(u64),
    /// Charges the units that are held, at once.
    Held,
    /// Charges nothing: the units that are held are free at once.
    Nothing,
}

impl Settlement {
    /// What is charged now; `None`: at the end.
    fn charged(self) -> Option<Charged> {
        match self {
            Self::AtEnd => None,
            Self::Units(units) => Some(Charged::Units(units)),
            Self::Held => Some(Charged::Held),
            Self::Nothing => Some(Charged::Units(0)),
        }
    }
}

/// One answer for all holds.
type SettleAll = dyn Fn(&Parts) -> Settlement + Send + Sync;
/// An answer for each policy.
type SettleEach = dyn Fn(&Parts, &Policy) -> Settlement + Send + Sync;

/// Decides how the holds of a request end, by its response.
#[derive(Clone)]
pub(crate) enum Settling {
    All(Arc<SettleAll>),
    Each(Arc<SettleEach>),
}

impl Settling {
    /// Ends the holds that the response decides.
    pub(super) fn settle(&self, response: &Parts, holds: &mut RequestHolds) {
        match self {
            Self::All(settle) => {
                let charged = settle(response).charged();
                holds.settle(|_| charged);
            }
            Self::Each(settle) => holds.settle(|policy| settle(response, policy).charged()),
        }
    }
}
