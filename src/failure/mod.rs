//! What happens when the store cannot answer: the [`FailurePolicy`] and the circuit [breaker](BreakerSettings).
//!
//! A shared store can be down, slow or misconfigured. A limiter that waits for it takes the service down too; a limiter
//! that ignores the failure silently stops limiting. In tollgate, each route has its own failure policy, and the
//! limiter reports outages.
//!
//! # Rules
//!
//! 1. A check waits for the store until the [deadline](crate::store::Store::deadline), 50 ms by default.
//! 2. Without a verdict, the failure policy of the route or the layer decides: open, closed or local.
//! 3. After a few failures the [breaker](BreakerSettings) opens, and checks fail at once. Probes detect when the store
//!    is back.
//! 4. A check of an overloaded process ([`ErrorKind::Overloaded`](crate::ErrorKind::Overloaded)) is refused by every
//!    failure policy, because a flood must not lift the limit that it exceeds. So is a check that is wrong
//!    ([`ErrorKind::InvalidCall`](crate::ErrorKind::InvalidCall)), because a mistake in the program is no outage.
//! 5. A check whose fate is unknown is never sent again.
//!
//! | policy | request | fields | choose it where |
//! | --- | --- | --- | --- |
//! | [`Open`](FailurePolicy::Open), the default | passes | none | the limit protects capacity |
//! | [`Closed`](FailurePolicy::Closed) | 503 with Retry-After | `Retry-After`, `Cache-Control` | an unlimited request costs money or security |
//! | [`Local`](FailurePolicy::Local) | judged by this instance's share of the limit | RateLimit of the share | both matter, and the number of instances is known |
//!
//! # The default
//!
//! Requests pass while the store is down:
//!
//! ```
//! use tollgate::{GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer};
//!
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! # let store = MemoryStore::new();
//! let limit = RateLimitLayer::new(Limiter::new(store), Policy::per_minute("all", 800)?, GlobalKey);
//! # let _ = limit;
//! # Ok(())
//! # }
//! ```
//!
//! # Customised
//!
//! Each of 8 instances enforces an eighth of the limit while the store is down, and logins are refused:
//!
//! ```
//! use tollgate::{GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer, Route};
//!
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! # let store = MemoryStore::new();
//! let limiter = Limiter::new(store).with_local_fallback(MemoryStore::new(), 8);
//! let limit = RateLimitLayer::new(limiter, Policy::per_minute("all", 800)?, GlobalKey)
//!     .fail_local()
//!     .route("POST /login", Route::new().fail_closed())
//!     .validated()?;
//! # let _ = limit;
//! # Ok(())
//! # }
//! ```
//!
//! With feature `test-util`, `FailingStore` simulates an outage in tests.

mod policy;

pub use self::policy::FailurePolicy;
pub use crate::breaker::settings::BreakerSettings;
