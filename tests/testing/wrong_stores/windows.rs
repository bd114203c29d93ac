//! Stores whose steps are apart in time, or whose window has another length.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tollgate::store::{Answer, Charge, Outcome, Store, Verdict};
use tollgate::{Check, Key, ManualClock, MemoryStore, Policy, clock::Clock, decision::Source};
use tollgate_testing::{Fixture, Oracle};

use super::{Wrong, fixture_refused_by, ready};

/// A store that judges by the oracle, with a lock for each step only.
#[derive(Clone, Debug)]
struct OracleStore {
    counts: Arc<Mutex<HashMap<(Key, String), Oracle>>>,
    clock: ManualClock,
    /// Whether other checks may run between the evaluation and the charge.
    races: bool,
    /// How much too early units come back, in microseconds.
    early_us: u64,
}

impl OracleStore {
    fn new(clock: ManualClock) -> Self {
        Self { counts: Arc::default(), clock, races: false, early_us: 0 }
    }

    /// Calls `f` with the count of the charge.
    fn with_count<T>(&self, charge: &Charge, f: impl FnOnce(&mut Oracle) -> T) -> T {
        let resolution = charge.policy.resolution().map_or(1, |resolution| resolution.as_micros() as u64);
        let id = (charge.key.clone(), format!("{:?}", (charge.policy.name(), charge.policy.window(), resolution)));
        f(self.counts.lock().unwrap().entry(id).or_insert_with(|| Oracle::new(resolution)))
    }

    fn evaluate(&self, check: &Check, now_us: u64) -> Vec<bool> {
        let fits = |charge: &Charge| {
            self.with_count(charge, |count| count.fits(&charge.policy, now_us + self.early_us, charge.cost))
        };
        check.charges().iter().map(fits).collect()
    }

    fn commit(&self, check: &Check, fits: Vec<bool>, now_us: u64) -> Verdict {
        let allowed = fits.iter().all(|fits| *fits);
        let outcome = |(charge, fits): (&Charge, bool)| {
            let (policy, cost) = (&charge.policy, charge.cost);
            self.with_count(charge, |count| {
                if allowed && cost > 0 {
                    count.charge(policy, now_us, cost, true);
                }
                let then_us = now_us + self.early_us;
                let available = count.available(policy, then_us);
                let wait_us = |cost| count.wait(policy, then_us, cost).as_micros() as u64;
                Outcome {
                    fits,
                    available,
                    retry_after_us: (!fits && cost <= policy.capacity()).then(|| wait_us(cost)),
                    next_us: wait_us(if available < policy.capacity() { available + 1 } else { 0 }),
                    reset_us: wait_us(policy.capacity()),
                    ban_us: 0,
                }
            })
        };
        let outcomes = check.charges().iter().zip(fits).map(outcome).collect();
        Verdict { allowed, source: Source::Store, time_us: now_us, outcomes }
    }
}

impl Store for OracleStore {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        let (store, check) = (self.clone(), check.clone());
        Answer::pending(async move {
            let now_us = store.clock.now_us();
            let fits = store.evaluate(&check, now_us);
            if store.races {
                tokio::task::yield_now().await;
            }
            Ok(store.commit(&check, fits, now_us))
        })
    }

    fn reset(&self, key: &Key, _: &Policy) -> Answer<bool> {
        let mut counts = self.counts.lock().unwrap();
        let before = counts.len();
        counts.retain(|(other, _), _| other != key);
        Answer::Ready(Ok(counts.len() < before))
    }
}

#[tokio::test]
async fn a_store_that_loses_a_race_between_read_and_write() {
    let name = "law_1_parallel_checks_of_one_key_admit_the_limit_and_no_more";
    let why = fixture_refused_by(name, |clock| {
        Fixture::new(OracleStore { races: true, ..OracleStore::new(clock.clone()) }, clock)
    });
    assert!(why.await.contains("expected 100"));
}

#[tokio::test]
async fn a_store_whose_window_ends_a_microsecond_early() {
    let name = "a_charge_leaves_the_window_at_its_end_and_not_earlier";
    let why = fixture_refused_by(name, |clock| {
        Fixture::new(OracleStore { early_us: 1, ..OracleStore::new(clock.clone()) }, clock)
    });
    assert!(why.await.contains("Some(2), expected Some(0)"));
}

#[tokio::test]
async fn a_store_that_ignores_expiry() {
    let name = "a_charge_leaves_the_window_at_its_end_and_not_earlier";
    fixture_refused_by(name, |clock| {
        let store = Wrong::new(clock.clone(), |store, check| {
            ready(Verdict { time_us: store.clock.now_us(), ..store.judge(check) })
        });
        // The counts have a clock that nothing moves.
        let memory = MemoryStore::new().with_clock(ManualClock::default());
        Fixture::new(Wrong { memory, ..store }, clock)
    })
    .await;
}
