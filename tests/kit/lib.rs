//! Tests of stores: the suite that every store of [`tollgate`] passes, for stores of your own.
//!
//! A store is correct if it keeps the contract of [`Store`](tollgate::store::Store) to the unit and to the microsecond,
//! also under parallel checks, when a policy changes and when its back end fails. [`store_suite`] tests all of that
//! through `Store` alone. Each test gets a fresh store and moves the store's clock. The report has a result for every
//! test by name; the name is the sentence that the test proves.
//!
//! # Rules
//!
//! 1. A [`Fixture`] has a store without counts and the [`ManualClock`](tollgate::ManualClock) that this store reads. A
//!    networked store sends the clock's time with each check.
//! 2. The suite charges the store as a limiter does, but without a limiter: there is no breaker, and each test has a
//!    [time limit](StoreSuite::with_time_limit) in place of the deadline. A store that panics, blocks or never answers
//!    fails the test that it was in.
//! 3. A law that was not tried is not kept: the suite skips a test only if the caller says so. Tests of failures need
//!    [`Fixture::with_outage`], tests of memory need [`Fixture::with_count_of_keys`], and tests of holds need
//!    [`Store::has_holds`](tollgate::store::Store::has_holds). Without these, the tests fail.
//! 4. [`StoreSuite::without`] leaves a [`Feature`] out, [`Fixture::without_outage`] and
//!    [`Fixture::without_count_of_keys`] leave these tests out, with a reason. The [report](Report::skipped) lists what
//!    was skipped and why, and [`Report::assert_passed`] prints it.
//!
//! # A store under the suite
//!
//! This store counts in fixed windows, and refuses every other algorithm.
//!
//! ```
//! use std::{collections::HashMap, sync::{Arc, Mutex}, time::{Duration, SystemTime, UNIX_EPOCH}};
//!
//! use tollgate::{
//!     Algorithm, Error, ErrorKind, Key, ManualClock, Policy,
//!     clock::Clock,
//!     decision::Source,
//!     store::{Answer, Charge, Check, Outcome, Store, Verdict},
//! };
//! use tollgate_testing::{Feature, Fixture, store_suite};
//!
//! #[derive(Debug)]
//! struct FixedWindows {
//!     /// Spent units by key, policy name, and start and end of the window.
//!     counts: Arc<Mutex<HashMap<(Vec<u8>, String, u64, u64), u64>>>,
//!     clock: ManualClock, // a `Box<dyn Clock>` in a store for production
//! }
//!
//! fn count(key: &Key, policy: &Policy, now_us: u64) -> (Vec<u8>, String, u64, u64) {
//!     let (start, end) = match policy.calendar_window(UNIX_EPOCH + Duration::from_micros(now_us)) {
//!         Some(window) => (micros(window.start), micros(window.end)),
//!         None => {
//!             let length_us = policy.window().map_or(1, |window| window.as_micros() as u64);
//!             (now_us - now_us % length_us, now_us - now_us % length_us + length_us)
//!         }
//!     };
//!     (key.encoded().to_vec(), policy.name().to_owned(), start, end)
//! }
//!
//! fn micros(time: SystemTime) -> u64 {
//!     time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64)
//! }
//!
//! impl Store for FixedWindows {
//!     fn check(&self, check: &Check) -> Answer<Verdict> {
//!         if check.charges().iter().any(|charge| charge.policy.algorithm() != Algorithm::FixedWindow) {
//!             return Answer::Ready(Err(Error::new(ErrorKind::StoreMisconfigured, "use Algorithm::FixedWindow")));
//!         }
//!         let mut counts = self.counts.lock().unwrap();
//!         let now_us = self.clock.now_us();
//!         counts.retain(|(_, _, _, end_us), _| *end_us > now_us);
//!         let spent = |counts: &HashMap<_, u64>, charge: &Charge| {
//!             counts.get(&count(&charge.key, &charge.policy, now_us)).copied().unwrap_or(0)
//!         };
//!         let fits: Vec<bool> = check.charges().iter().map(|charge| {
//!             charge.cost == 0 || spent(&counts, charge).saturating_add(charge.cost) <= charge.policy.limit()
//!         }).collect();
//!         let allowed = fits.iter().all(|fits| *fits);
//!         for charge in check.charges().iter().filter(|charge| allowed && charge.cost > 0) {
//!             *counts.entry(count(&charge.key, &charge.policy, now_us)).or_default() += charge.cost;
//!         }
//!         let outcomes = check.charges().iter().zip(fits).map(|(charge, fits)| {
//!             let (limit, spent) = (charge.policy.limit(), spent(&counts, charge));
//!             let wait_us = count(&charge.key, &charge.policy, now_us).3 - now_us;
//!             Outcome {
//!                 fits,
//!                 available: limit.saturating_sub(spent),
//!                 retry_after_us: (!fits && charge.cost <= limit).then_some(wait_us),
//!                 next_us: if spent > 0 { wait_us } else { 0 },
//!                 reset_us: if spent > 0 { wait_us } else { 0 },
//!                 ban_us: 0,
//!             }
//!         }).collect();
//!         Answer::Ready(Ok(Verdict { allowed, source: Source::Store, time_us: now_us, outcomes }))
//!     }
//!
//!     fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
//!         let current = count(key, policy, self.clock.now_us());
//!         Answer::Ready(Ok(self.counts.lock().unwrap().remove(&current).is_some()))
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() { // in a test: #[tokio::test]
//! let fixture = || async {
//!     let clock = ManualClock::default();
//!     let counts = Arc::new(Mutex::default());
//!     let store = FixedWindows { counts: Arc::clone(&counts), clock: clock.clone() };
//!     Fixture::new(store, clock)
//!         .with_count_of_keys(move || counts.lock().unwrap().len())
//!         .without_outage("the counts are in this process")
//! };
//! let report = store_suite(fixture)
//!     .without(Feature::SlidingWindowLog)
//!     .without(Feature::SlidingWindowCounter)
//!     .without(Feature::TokenBucket)
//!     .without(Feature::CountRejected)
//!     .without(Feature::Bans)
//!     .without(Feature::CountChanges)
//!     .without(Feature::PartialCharges)
//!     .without(Feature::Shadow)
//!     .without(Feature::Holds)
//!     .run()
//!     .await;
//! report.assert_passed();
//! # }
//! ```
//!
//! # What the suite does not test
//!
//! Speed, the memory of a back end, the behaviour on a cluster, and how the store recovers from each kind of failure.
//! [`Oracle`] is the model of the suite's random traces, for traces of your own.
//!
//! The suite uses public items of `tollgate` only, and judges verdicts by its own arithmetic.

mod decision;
mod failure;
mod feature;
mod fixture;
mod isolation;
mod oracle;
mod random;
mod report;
mod store_suite;
mod store_tests;
mod tested_store;

pub use self::{
    feature::Feature,
    fixture::Fixture,
    oracle::Oracle,
    report::{Report, TestOutcome, TestResult},
    store_suite::{StoreSuite, store_suite},
};
