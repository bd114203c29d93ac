//! A guard that keeps the holds of a request while its work goes on.

use std::fmt;

use super::bill::Bill;

/// Keeps what a request holds, for as long as the guard or a clone of it lives: the slots of
/// [concurrency limits](crate::Policy::concurrent), and the units that are settled at the end.
///
/// A client that hangs up ends its request, but not the work that the handler has given to `spawn_blocking`, to a task
/// of its own or to a queue. Without a guard, the slot is free while that work runs, and a client that sends requests
/// and hangs up starts more work than the limit allows. Move a guard into the work.
///
/// The holds end when the request has ended and the last guard is dropped; they are renewed until then. What the
/// [`Bill`] says at that instant is charged. A guard does not delay what the response decides at once
/// ([`Settlement::Units`](super::Settlement::Units), `Held`, `Nothing`). A guard that is made after the holds have
/// ended keeps nothing.
///
/// A handler of axum takes a guard as an argument. Elsewhere, [`Bill::guard`] makes one. For a request without holds,
/// such as an exempt one, the guard keeps nothing.
///
/// # Examples
///
/// ```
/// use axum::{Router, http::StatusCode, routing::post};
/// use tollgate::{Limiter, MemoryStore, PeerIp, Policy, RateLimitLayer, middleware::HoldGuard};
///
/// async fn export(guard: HoldGuard) -> Result<Vec<u8>, StatusCode> {
///     let export = tokio::task::spawn_blocking(move || {
///         let _guard = guard; // keeps the slot until the export is done, also if the client has gone
///         vec![0; 1_000]
///     });
///     export.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
/// }
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let exports = Policy::concurrent("exports", 3)?;
/// let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), exports, PeerIp::new()).fail_closed();
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

    /// The bill of the request.
    pub fn bill(&self) -> &Bill {
        &self.0
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
