//! The bill: where a handler says what its request has cost.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::limiter::{Charged, RequestHolds};

/// The cost of a request, set by its handler while it runs; in the extensions of the request.
///
/// The layer reads the bill when it [settles](crate::RateLimitLayer::settle) the holds of the request: at the end of
/// the response body, or earlier if the request fails. Later changes have no effect. All clones are one bill, and so
/// are the bills of nested layers.
///
/// With [`settle`](crate::RateLimitLayer::settle), each request that the layer forwards has a bill, also if nothing is
/// held for it. Without, the requests that hold a slot of a [concurrency limit](crate::Policy::concurrent) have one.
///
/// # Upgrades
///
/// After a 101, or a 2xx to CONNECT, the holds last until the last clone of the bill is dropped: move it into the task
/// that serves the WebSocket.
///
/// # Examples
///
/// ```
/// use axum::{Extension, Router, routing::post};
/// use tollgate::{
///     GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer,
///     middleware::{Bill, Settle},
///     policy::Holds,
/// };
///
/// async fn generate(Extension(bill): Extension<Bill>) -> &'static str {
///     let (answer, tokens) = ("an answer of a model", 31);
///     bill.set_cost(tokens);
///     answer
/// }
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let tokens = Policy::per_minute("tokens", 1_000)?.with_holds(Holds::new())?;
/// let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), tokens, GlobalKey)
///     .with_cost(100)?
///     .settle(|_: &http::response::Parts| Settle::AtEnd)?;
/// let app: Router = Router::new().route("/generate", post(generate).layer(limit));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Bill(Arc<Shared>);

struct Shared {
    /// The cost in units; [`UNSET`] until the handler sets one.
    cost: AtomicU64,
    /// The holds of an upgraded connection, which end with the last clone of the bill.
    upgraded: Mutex<Vec<RequestHolds>>,
}

const UNSET: u64 = u64::MAX;

impl Bill {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Shared { cost: AtomicU64::new(UNSET), upgraded: Mutex::default() }))
    }

    /// Sets the cost of the request, in units. Replaces what was set or added before.
    pub fn set_cost(&self, cost: u32) {
        self.0.cost.store(cost.into(), Ordering::Release);
    }

    /// Adds units to the cost of the request, which starts at 0 if none was set. A sum above [`u32::MAX`] is
    /// `u32::MAX`.
    ///
    /// # Examples
    ///
    /// A handler that streams its answer counts each piece as it is sent:
    ///
    /// ```
    /// use tollgate::middleware::Bill;
    ///
    /// fn send(piece: &str, bill: &Bill) {
    ///     bill.add(u32::try_from(piece.split_whitespace().count()).unwrap_or(u32::MAX));
    /// }
    /// ```
    pub fn add(&self, units: u32) {
        let add = |cost: u64| Some(if cost == UNSET { 0 } else { cost }.saturating_add(units.into()).min(MOST));
        // The closure always returns a cost, so the update never fails.
        let _ = self.0.cost.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
    }

    /// The cost of the request so far; `None` if none was set, so that the units that are held will be charged.
    pub fn cost(&self) -> Option<u32> {
        self.0.cost()
    }

    /// Ends these holds when the last clone of the bill is dropped.
    pub(super) fn keep(&self, holds: RequestHolds) {
        self.0.upgraded.lock().unwrap_or_else(PoisonError::into_inner).push(holds);
    }
}

impl Shared {
    fn cost(&self) -> Option<u32> {
        match self.cost.load(Ordering::Acquire) {
            UNSET => None,
            cost => Some(u32::try_from(cost).unwrap_or(u32::MAX)),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let charged = self.cost().map_or(Charged::Held, Charged::Units);
        for mut holds in self.upgraded.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            holds.end(charged);
        }
    }
}

const MOST: u64 = u32::MAX as u64;

impl fmt::Debug for Bill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bill").field("cost", &self.cost()).finish_non_exhaustive()
    }
}
