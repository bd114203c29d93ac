//! A memory store that is full of live counts: what new keys get, and which counts remain.

mod by_hand;
mod deny;
mod events;
mod eviction;
mod shared_bucket;

use std::time::Duration;

use tollgate::{Limiter, ManualClock, MemoryStore, Policy, store::WhenFull};

const MINUTE: Duration = Duration::from_secs(60);

/// A store with room for `keys` keys in one shard, on a manual clock.
fn store(keys: usize, when_full: WhenFull) -> (Limiter, MemoryStore, ManualClock) {
    let clock = ManualClock::default();
    let store = MemoryStore::with_capacity(keys).unwrap().with_clock(clock.clone()).when_full(when_full);
    (Limiter::new(store.clone()), store, clock)
}

/// Checks `keys` new keys with a cost of 1 each, and returns how many are allowed.
async fn flood(limiter: &Limiter, policy: &Policy, name: &str, keys: u64) -> u64 {
    let mut admitted = 0;
    for key in 0..keys {
        admitted += u64::from(limiter.check(format!("{name} {key}"), policy, 1).await.unwrap().is_allowed());
    }
    admitted
}
