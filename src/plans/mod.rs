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
//!    one name are failures. They are [reported](#reports).
//! 5. **Look-ups are bounded:** 64 at once, and 100 000 keys in the cache by default.
//! 6. **Made-up keys leave room.** A key is known if the source has returned a plan for it, or if the service has
//!    called [`forget`](Plans::forget) or [`insert`](Plans::insert) for it. A quarter of the look-ups is kept for known
//!    keys, and a quarter for other keys. Three quarters of the cache are for known keys alone. A source should answer
//!    `None` for accounts that do not exist, because each answer with a plan makes a key known.
//! 7. A request whose cost is above the limit of its plan is refused with 400, as under every policy that is chosen per
//!    request.
//!
//! # Reports
//!
//! Plans report to the observers of the [limiter](crate::Limiter) whose layer has them: look-ups, requests without a
//! current plan, and failures, which the limiter [reports by
//! itself](crate::observe#what-a-limiter-reports-by-itself). With layers of several limiters, the last one whose layer
//! was validated, or got its first request, receives the reports. Plans without a layer write a line about failures, at
//! most once a minute.
//!
//! # Sharing counts
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
//! use tollgate::{
//!     ExtensionKey, Key, Limiter, MemoryStore, Policy, RateLimitLayer, Route,
//!     plans::{PlanSource, Plans},
//! };
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
//!     async fn plan(
//!         &self,
//!         account: &Key,
//!     ) -> Result<Option<Policy>, std::io::Error> {
//!         let name = self.pool.plan_of(account).await?;
//!         Ok(name.filter(|name| name == "paid").map(|_| self.paid.clone()))
//!     }
//! }
//!
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! let (free, paid) =
//!     (Policy::per_minute("plan", 10)?, Policy::per_minute("plan", 1_000)?);
//! let plans = Plans::new(Accounts { pool: Pool, paid }, free)?;
//! let layer = RateLimitLayer::new(
//!     Limiter::new(MemoryStore::new()),
//!     plans.clone(),
//!     ExtensionKey::<u64>::new(),
//! );
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
mod source;

use std::{sync::Arc, time::Duration};

use tokio::runtime::Handle;

use self::core::{Core, Known};
use crate::{clock::Clock, error::ConfigError};

pub use self::{
    handle::Plans,
    source::{Plan, PlanSource},
};

impl Plans {
    /// Sets the time after which a plan is looked up again. Defaults to 60 s: an upgrade applies within a minute, and a
    /// busy key costs the source one query a minute.
    ///
    /// The time begins with the answer. A key that is not used is not looked up.
    ///
    /// A time of zero is a [mistake](Self#mistakes).
    pub fn with_ttl(self, ttl: Duration) -> Self {
        self.set_unless("Plans::with_ttl", ttl.is_zero(), |core| core.settings.lifetimes.ttl = ttl)
    }

    /// Sets how long after its TTL a plan may still be used: while it is looked up again, and while look-ups fail.
    /// Defaults to one hour, so that an outage of the source of up to an hour throttles no paying client.
    ///
    /// A key that comes back within this time gets its old plan for the first requests. With zero, it gets the default
    /// plan for them.
    pub fn with_stale_while_revalidate(mut self, stale: Duration) -> Self {
        self.settings().lifetimes.stale = stale;
        self
    }

    /// Sets the time after a failed look-up in which the key is not looked up again. Defaults to the TTL.
    ///
    /// A shorter time brings keys back to their plan sooner, and asks a source that is down more often.
    ///
    /// A time of zero, with which every request of a key would ask a source that is down, is a
    /// [mistake](Self#mistakes).
    pub fn with_failure_ttl(self, ttl: Duration) -> Self {
        self.set_unless("Plans::with_failure_ttl", ttl.is_zero(), |core| {
            core.settings.lifetimes.failure_ttl = Some(ttl)
        })
    }

    /// Sets the time that the source has for an answer. A look-up that takes longer is dropped and has failed. Defaults
    /// to 5 s.
    ///
    /// A time of zero is a [mistake](Self#mistakes).
    pub fn with_timeout(self, timeout: Duration) -> Self {
        self.set_unless("Plans::with_timeout", timeout.is_zero(), |core| core.settings.timeout = timeout)
    }

    /// Sets the number of look-ups that may be on their way at once. Defaults to 64, more than most pools of database
    /// connections have.
    ///
    /// At this bound, requests of other keys get their last plan or the default plan, and start no look-up. The number
    /// bounds what a flood of made-up keys costs the source.
    ///
    /// A quarter, at least one, is kept for [known](super#rules) keys, so that made-up keys delay no customer that this
    /// process has seen before. Another quarter is kept for other keys, so that an attacker with many accounts does not
    /// keep new customers out. New customers share that room with made-up keys: during a flood, their first look-up may
    /// have to wait. With 1, nothing is kept.
    ///
    /// 0 is a [mistake](Self#mistakes).
    pub fn with_max_lookups(self, lookups: usize) -> Self {
        self.set_unless("Plans::with_max_lookups", lookups == 0, |core| core.settings.max_lookups = lookups)
    }

    /// Sets the number of keys whose plans are kept, and empties the cache. Defaults to 100 000. The bound is
    /// approximate.
    ///
    /// Three quarters are for [known](super#rules) keys, and a quarter is for other keys, so a flood of made-up keys
    /// pushes no known key out. When a part is full, keys make way that were used once or not lately. A key that was
    /// pushed out is looked up again.
    ///
    /// 0 is a [mistake](Self#mistakes).
    pub fn with_capacity(self, keys: usize) -> Self {
        self.set_unless("Plans::with_capacity", keys == 0, |core| core.known = Arc::new(Known::with_capacity(keys)))
    }

    /// Sets the runtime of the look-ups. Defaults to the runtime in which the request runs that needs the plan.
    ///
    /// Set it if requests run in several runtimes, or outside of tokio: a connection pool usually works only in the
    /// runtime that has created it.
    ///
    /// # Examples
    ///
    /// ```
    /// use tokio::runtime::Handle;
    /// # use tollgate::{Key, Policy, plans::Plans};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::ConfigError> {
    /// # let source = |_: Key| async { Ok::<Option<Policy>, &str>(None) };
    /// let plans = Plans::new(source, Policy::per_minute("plan", 10)?)?
    ///     .with_runtime(Handle::current());
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_runtime(mut self, runtime: Handle) -> Self {
        self.settings().runtime = Some(runtime);
        self
    }

    /// Sets the clock of the TTLs. Defaults to [`SystemClock`](crate::clock::SystemClock). The timeout of a look-up
    /// follows the runtime's timers instead.
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.settings().clock = Arc::new(clock);
        self
    }

    /// Sets a number, or keeps the mistake if it is 0.
    fn set_unless(mut self, setting: &'static str, is_zero: bool, set: impl FnOnce(&mut Core)) -> Self {
        let core = self.core_mut();
        match is_zero {
            true => core.mistake.add(ConfigError::new(format!(
                "`{setting}` with 0 would leave every key with the default plan; use a larger value"
            ))),
            false => set(core),
        }
        self
    }
}
