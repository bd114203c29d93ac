//! Stores: where counts live.
//!
//! A limit has to be counted somewhere. [`MemoryStore`] counts in the process: for one instance, for tests, for
//! development. `RedisStore` counts on a Redis that all instances of a service share. Both give the same decisions for
//! the same sequence of checks. Implement [`Store`] for another back end.
//!
//! # Rules for a store
//!
//! 1. It judges a check **atomically**: all charges of the check fit and are charged, or none is. A charge under a
//!    [shadow policy](crate::Policy::with_shadow) does not decide, and is charged if the check passes and it fits.
//! 2. A denial is a [`Verdict`] with `allowed: false`. An [`Error`](crate::Error) means that there is no verdict.
//! 3. Its [`Answer`] is `Ready` if it never waits, otherwise a future that does nothing before it is polled. The
//!    limiter applies the [deadline](Store::deadline) and the [breaker](Store::breaker) to the future.
//! 4. It sends a check once. If the fate of a check is unknown, its error says so
//!    ([`Error::charge_unknown`](crate::Error::charge_unknown)).
//! 5. Its memory is bounded, whatever keys clients make up.
//! 6. If it [has holds](Store::has_holds), a charge with a [name](Charge::hold) is held until it is
//!    [settled](Store::change_hold) or its time-to-live has passed, and counts as spent until then. A hold ends once,
//!    however often its settlement is sent.
//! 7. If it [changes counts by hand](Store::change_count), a ban refuses and forgets nothing that was charged.
//! 8. If it [judges alternatives](Store::has_alternatives), it charges the first that fits and nothing of the others.
//!
//! # The default
//!
//! ```
//! use tollgate::{Limiter, MemoryStore};
//!
//! let limiter = Limiter::new(MemoryStore::new());
//! ```
//!
//! # Customised
//!
//! This store has room for a million keys and never drops a live count:
//!
//! ```
//! use tollgate::{Limiter, MemoryStore, store::WhenFull};
//!
//! # fn main() -> Result<(), tollgate::ConfigError> {
//! let store =
//!     MemoryStore::with_capacity(1_000_000)?.when_full(WhenFull::ShareOneKey);
//! let limiter = Limiter::new(store);
//! # Ok(())
//! # }
//! ```
//!
//! # A store of your own
//!
//! This store counts in fixed windows, whatever algorithm a policy has. It drops counts of past windows, then evaluates
//! all charges of a check before it commits any. The suite that the stores of this crate pass tests your store too:
//! `store_suite` of the package `tollgate-testing`.
//!
//! ```
//! use std::{
//!     collections::HashMap,
//!     sync::Mutex,
//!     time::{Duration, UNIX_EPOCH},
//! };
//!
//! use tollgate::{
//!     Key, Limiter, Policy,
//!     clock::{Clock, SystemClock},
//!     decision::Source,
//!     store::{Answer, Check, Outcome, Store, Verdict},
//! };
//!
//! /// Counts by key, policy name and end of the window, in microseconds since
//! /// the Unix epoch.
//! #[derive(Debug, Default)]
//! struct FixedWindows(Mutex<HashMap<(Vec<u8>, String, u64), u64>>);
//!
//! /// The end of the current window.
//! fn end_us(policy: &Policy, now_us: u64) -> u64 {
//!     if let Some(window) =
//!         policy.calendar_window(UNIX_EPOCH + Duration::from_micros(now_us))
//!     {
//!         return window
//!             .end
//!             .duration_since(UNIX_EPOCH)
//!             .map_or(0, |end| end.as_micros() as u64);
//!     }
//!     let length_us =
//!         policy.window().map_or(1, |window| window.as_micros() as u64);
//!     (now_us / length_us + 1) * length_us
//! }
//!
//! impl Store for FixedWindows {
//!     fn check(&self, check: &Check) -> Answer<Verdict> {
//!         let now_us = SystemClock.now_us();
//!         let mut counts = self.0.lock().unwrap();
//!         counts.retain(|(_, _, end_us), _| *end_us > now_us);
//!         let id = |key: &Key, policy: &Policy| {
//!             (
//!                 key.encoded().to_vec(),
//!                 policy.name().to_owned(),
//!                 end_us(policy, now_us),
//!             )
//!         };
//!
//!         // Evaluate: nothing changes.
//!         let fits: Vec<bool> = check
//!             .charges()
//!             .iter()
//!             .map(|charge| {
//!                 let spent = counts
//!                     .get(&id(&charge.key, &charge.policy))
//!                     .copied()
//!                     .unwrap_or(0);
//!                 charge.cost == 0
//!                     || spent.saturating_add(charge.cost)
//!                         <= charge.policy.limit()
//!             })
//!             .collect();
//!         let allowed = check
//!             .charges()
//!             .iter()
//!             .zip(&fits)
//!             .all(|(charge, fits)| *fits || charge.policy.is_shadow());
//!
//!         // Commit: charge all or nothing, and report each charge.
//!         let outcomes = check
//!             .charges()
//!             .iter()
//!             .zip(fits)
//!             .map(|(charge, fits)| {
//!                 let spent =
//!                     counts.entry(id(&charge.key, &charge.policy)).or_default();
//!                 if allowed && fits {
//!                     *spent += charge.cost;
//!                 }
//!                 let wait_us = end_us(&charge.policy, now_us) - now_us;
//!                 Outcome {
//!                     fits,
//!                     // Policies with the same name and other limits
//!                     // share the count, such as the plans of a service.
//!                     available: charge.policy.limit().saturating_sub(*spent),
//!                     retry_after_us: (!fits
//!                         && charge.cost <= charge.policy.limit())
//!                     .then_some(wait_us),
//!                     next_us: if *spent > 0 { wait_us } else { 0 },
//!                     reset_us: if *spent > 0 { wait_us } else { 0 },
//!                     ban_us: 0,
//!                 }
//!             })
//!             .collect();
//!         Answer::Ready(Ok(Verdict {
//!             allowed,
//!             source: Source::Store,
//!             time_us: now_us,
//!             outcomes,
//!         }))
//!     }
//!
//!     fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
//!         let mut counts = self.0.lock().unwrap();
//!         let before = counts.len();
//!         counts.retain(|(other, name, _), _| {
//!             (other.as_slice(), name.as_str()) != (key.encoded(), policy.name())
//!         });
//!         Answer::Ready(Ok(counts.len() < before))
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::new(FixedWindows::default());
//! let policy = Policy::per_day("exports", 2)?;
//! assert!(limiter.check("alice", &policy, 2).await?.is_allowed());
//! assert!(!limiter.check("alice", &policy, 1).await?.is_allowed());
//! assert!(limiter.check("bob", &policy, 1).await?.is_allowed());
//! assert!(limiter.reset("alice", &policy).await?);
//! assert!(limiter.check("alice", &policy, 1).await?.is_allowed());
//! # Ok(())
//! # }
//! ```
//!
//! # A store around another store
//!
//! A wrapper names its [inner](Store::inner) store. The deadline, the breaker, the failure domains and all else that
//! the wrapper does not implement are then the inner store's.
//!
//! ```
//! use tollgate::{
//!     Key, Limiter, MemoryStore, Policy,
//!     store::{Answer, Check, Store, Verdict},
//! };
//!
//! /// Prints every check before it is judged.
//! #[derive(Debug)]
//! struct Printing<S>(S);
//!
//! impl<S: Store> Store for Printing<S> {
//!     fn check(&self, check: &Check) -> Answer<Verdict> {
//!         for charge in check.charges() {
//!             println!("{} units under {}", charge.cost, charge.policy.name());
//!         }
//!         self.0.check(check)
//!     }
//!
//!     fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
//!         self.0.reset(key, policy)
//!     }
//!
//!     fn inner(&self) -> Option<&dyn Store> {
//!         Some(&self.0)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::new(Printing(MemoryStore::new()));
//! let policy = Policy::per_day("exports", 2)?;
//! assert!(limiter.check("alice", &policy, 1).await?.is_allowed());
//! // A change that the inner store makes.
//! limiter.record("alice", &policy, 1).await?;
//! assert!(!limiter.check("alice", &policy, 1).await?.is_allowed());
//! # Ok(())
//! # }
//! ```

mod ban;
#[cfg(feature = "redis")]
mod certain_wait;
mod contract;
#[cfg(feature = "redis")]
mod deny_cache;
#[cfg(feature = "test-util")]
mod failing;
mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;

pub(crate) use self::contract::failure_domain_of;
pub(crate) use self::contract::{Pending, no_answer};
#[cfg(feature = "test-util")]
pub use self::failing::FailingStore;
#[cfg(feature = "redis")]
pub use self::redis::{OpenHolds, RedisStore, RedisStoreBuilder};
pub use self::{
    ban::CountChange,
    contract::{Answer, Store},
    memory::{MemoryStore, WhenFull},
};
pub use crate::{
    check::{Charge, Check},
    hold::{HoldChange, SettleAnswer},
    verdict::{Outcome, Outcomes, Verdict},
};
