//! Plans: policies that an asynchronous look-up finds, in a cache in front of a database or a billing service.
//!
//! A request must not wait for a database, and a database must not get a query for each request. [`Plans`] keeps what a
//! [`PlanSource`] has answered, and starts look-ups in the background. It is a
//! [`PolicySource`](crate::policy::PolicySource), so a layer or a route takes it in place of a policy.
//!
//! # Rules
//!
//! 1. **A request never waits.** The first request of a key starts a look-up and is limited by the default plan. So are
//!    further requests until the answer.
//! 2. **A key is looked up once in each TTL** (60 s by default), however many requests ask. A failed look-up counts
//!    too. A key is looked up earlier after [`forget`](Plans::forget), if the runtime of a look-up ended before the
//!    answer, and if the cache was full and dropped the key.
//! 3. **An old plan stays in use** while it is looked up again, and while look-ups fail, for one hour by default. After
//!    that, the default plan applies.
//! 4. **A failed look-up never lifts a limit.** An error, a panic, no answer within 5 s, no policy, and two policies of
//!    one name are failures. They are [reported](Plans::with_observer).
//! 5. **Look-ups are bounded:** 64 at once, and 100 000 keys in the cache by default.
//! 6. **Made-up keys leave room.** A key is known if the source has returned a plan for it, or if the service has
//!    called [`forget`](Plans::forget) or [`insert`](Plans::insert) for it. A quarter of the look-ups is kept for known
//!    keys, and a quarter for other keys. Three quarters of the cache are for known keys alone. A source should answer
//!    `None` for accounts that do not exist, because each answer with a plan makes a key known.
//! 7. A request whose cost is above the limit of its plan is refused with 400, as under every policy that is chosen per
//!    request.
//!
//! Give all plans one name, window and algorithm. Then units that were spent under the default plan count under the
//! found plan too, and an upgrade or a restart of the service gives no fresh budget. Plans with several policies should
//! have the same names for the same reason.
//!
//! Where the limits of the plans are in a file, the source returns the name of a policy, see `Plans::of_limits`.
//!
//! The cache belongs to the process. Instances of a service may know different plans of a key for one TTL. Each
//! instance applies its own limit to the shared count.
//!
//! # Examples
//!
//! ```
//! use tollgate::{ExtensionKey, Key, Limiter, MemoryStore, Policy, RateLimitLayer, Route, plans::{PlanSource, Plans}};
//!
//! # struct Pool;
//! # impl Pool {
//! #     async fn plan_of(&self, _: &Key) -> Result<Option<String>, std::io::Error> { Ok(Some("paid".to_owned())) }
//! # }
//! struct Accounts {
//!     pool: Pool,
//!     paid: Policy,
//! }
//!
//! impl PlanSource for Accounts {
//!     type Plan = Option<Policy>;
//!     type Error = std::io::Error;
//!
//!     async fn plan(&self, account: &Key) -> Result<Option<Policy>, std::io::Error> {
//!         let name = self.pool.plan_of(account).await?;
//!         Ok(name.filter(|name| name == "paid").map(|_| self.paid.clone()))
//!     }
//! }
//!
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! let (free, paid) = (Policy::per_minute("plan", 10)?, Policy::per_minute("plan", 1_000)?);
//! let plans = Plans::new(Accounts { pool: Pool, paid }, free)?;
//! let layer = RateLimitLayer::new(Limiter::new(MemoryStore::new()), plans.clone(), ExtensionKey::<u64>::new());
//! # let _ = layer;
//!
//! // When the billing service reports an upgrade:
//! plans.forget("17");
//! # Ok(())
//! # }
//! ```
//!
//! Customised: plans are five minutes old at most, failures are retried after ten seconds, and the source has a second
//! for an answer.
//!
//! ```
//! # use tollgate::{Key, Policy, plans::Plans};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! # let source = |_: Key| async { Ok::<Option<Policy>, &str>(None) };
//! let plans = Plans::new(source, Policy::per_minute("plan", 10)?)?
//!     .with_ttl(Duration::from_secs(60))
//!     .with_stale_while_revalidate(Duration::from_secs(240))
//!     .with_failure_ttl(Duration::from_secs(10))
//!     .with_timeout(Duration::from_secs(1));
//! # Ok(())
//! # }
//! ```

mod core;
mod entry;
mod handle;
mod in_flight;
#[cfg(feature = "serde")]
mod named;
#[cfg(feature = "serde")]
mod names;
mod setters;
mod source;

pub use self::{
    handle::Plans,
    source::{Plan, PlanSource},
};
