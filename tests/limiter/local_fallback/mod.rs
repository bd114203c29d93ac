//! The local fallback: shares, mirrored counts, debts.

mod bans;
mod debts;
mod debts_by_domain;
mod on_their_way;
mod probes;
mod shares;
mod threads;

use std::time::Duration;

use tollgate::{Decision, Limiter, ManualClock, MemoryStore, Policy, store::WhenFull};

use crate::support::unhealthy_store::{Health, UnhealthyStore};

const WINDOW: Duration = Duration::from_secs(60);

fn per_minute(limit: u64) -> Policy {
    Policy::new("p", limit, WINDOW).unwrap()
}

/// One of eight instances, the store that the instances share, and the clock of all counts.
fn one_of_eight() -> (Limiter, UnhealthyStore, ManualClock) {
    let clock = ManualClock::default();
    let memory = || MemoryStore::new().with_clock(clock.clone());
    let store = UnhealthyStore::new(Health::Healthy).counting_in(memory());
    let limiter = Limiter::new(store.clone()).with_local_fallback(memory(), 8);
    (limiter, store, clock)
}

async fn check(limiter: &Limiter, policy: &Policy, cost: u64) -> Decision {
    limiter.check("k", policy, cost).fail_local().await.unwrap()
}

/// The number of admitted checks out of a hundred of cost 1.
async fn admitted(limiter: &Limiter, policy: &Policy) -> u64 {
    let mut admitted = 0;
    for _ in 0..100 {
        let decision = check(limiter, policy, 1).await;
        admitted += u64::from(decision.is_allowed());
    }
    admitted
}

/// Waits until the breaker has probed, the debts are settled and the caution after an outage has ended.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(3)).await;
}

/// The units that are spent in the store.
async fn spent(limiter: &Limiter, policy: &Policy) -> u64 {
    policy.limit() - limiter.peek("k", policy).await.unwrap().available().unwrap()
}

/// One of eight instances. Its fallback has room for `keys` keys, and one place is taken for the whole day.
async fn with_little_room(keys: usize, when_full: WhenFull) -> (Limiter, UnhealthyStore, ManualClock) {
    let clock = ManualClock::default();
    let memory = || MemoryStore::new().with_clock(clock.clone());
    let store = UnhealthyStore::new(Health::Healthy).counting_in(memory());
    let local = MemoryStore::with_capacity(keys).unwrap().with_clock(clock.clone()).when_full(when_full);
    let _ = Limiter::new(local.clone()).check("kept", &Policy::per_day("kept", 1).unwrap(), 1).await.unwrap();
    (Limiter::new(store.clone()).with_local_fallback(local, 8), store, clock)
}
