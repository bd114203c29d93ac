//! The limiter: rate limiting without HTTP.
//!
//! Jobs, queue consumers and outbound clients limit themselves with a [`Limiter`];
//! [`RateLimitLayer`](crate::RateLimitLayer) calls one for each request.
//!
//! # Rules
//!
//! 1. A [check](Limiter::check) charges `cost` units to a key under a policy, all of them or none.
//! 2. The future resolves to a [`Decision`](crate::Decision) within the store's deadline, or to an
//!    [`Error`](crate::Error) if the store gave no verdict. The caller chooses what an error means, usually with a
//!    [`FailurePolicy`](crate::FailurePolicy).
//! 3. Nothing is sent before the first poll, and nothing is sent twice.
//! 4. Clones of a limiter share the store, the breaker and the local fallback, so they spend from one budget.
//! 5. [`Limiter::acquire`] waits for the units. Callers that wait for one key are served first come, first served.
//! 6. [`Limiter::hold`] charges a cost that is known only afterwards: it is held first and settled at the end.
//!    [`Limiter::acquire_hold`] waits for it.
//! 7. Under a policy [with a lease](crate::Policy::with_lease), a key that is checked often is decided from a block of
//!    units that this process holds. [`Limiter::close`] gives such blocks back.
//! 8. [`Limiter::ban`] and [`Limiter::unban`], [`Limiter::record`] and [`Limiter::credit`] change a count by hand;
//!    [`Limiter::reset`] forgets it.
//! 9. [`Limiter::check_up_to`] charges as many units as fit, and [`Limiter::peek_all`] says whether costs would pass.
//! 10. Code that cannot await calls [`Limiter::try_check`], on a store that answers at once.
//!
//! # The default
//!
//! ```
//! use tollgate::{Limiter, MemoryStore, Policy};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::new(MemoryStore::new());
//! let quota = Policy::per_day("quota", 9_500)?;
//! let decision = limiter.check("api-key-1", &quota, 100).await?;
//! assert!(decision.is_allowed());
//! assert_eq!(decision.available(), Some(9_400));
//! # Ok(())
//! # }
//! ```
//!
//! # Customised
//!
//! Several charges at once, a local fallback for outages, and a failure policy at the call:
//!
//! ```
//! use tollgate::{Check, FailurePolicy, Limiter, MemoryStore, Policy};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let store = MemoryStore::new();
//! // 8 instances of this service.
//! let limiter =
//!     Limiter::new(store).with_local_fallback(MemoryStore::new(), 8);
//! let per_user = Policy::per_minute("emails-per-user", 10)?;
//! let per_tenant = Policy::per_day("emails-per-tenant", 5_000)?;
//!
//! let check = Check::new("user:17", &per_user, 1).and("tenant:3", &per_tenant, 1);
//! let result = limiter.check_all(check).fail_local().await;
//! if FailurePolicy::Closed.resolve(result).is_allowed() {
//!     // send the e-mail
//! }
//! # Ok(())
//! # }
//! ```

mod acquire;
mod by_hand;
mod check_future;
mod core;
mod decision_future;
mod handle;
mod hold;
mod hold_future;
mod lease;
mod partial;
mod setup;
mod sharded;
mod try_check;
mod units;
mod unusual;

pub(crate) use self::{
    acquire::LONGEST_PAUSE,
    decision_future::{DecisionFuture, Sent},
    hold::{Charged, NameReport, OnLongest, RequestHolds},
};
pub use self::{
    acquire::{Acquire, AcquireFuture},
    check_future::CheckFuture,
    handle::Limiter,
    hold::{Hold, HoldAnswer, SettleFuture},
    hold_future::HoldFuture,
};
