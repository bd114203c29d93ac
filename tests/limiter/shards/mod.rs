//! Policies with shards: what all shards together admit, the attempts of a check, the layer and the local fallback.

mod attempts;
mod counts;
mod fallback;
mod layer;

use std::time::Duration;

use tollgate::{Limiter, ManualClock, MemoryStore, Policy};

const WINDOW: Duration = Duration::from_secs(60);

/// A number of checks after which every shard has been asked: it is missed with a probability below 1e-12.
const MANY: u64 = 2_000;

fn policy(limit: u64, shards: u32) -> Policy {
    Policy::new("p", limit, WINDOW).unwrap().with_shards(shards)
}

/// A limiter over a memory store, and the clock of that store.
fn limiter() -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    (Limiter::new(MemoryStore::new().with_clock(clock.clone())), clock)
}

/// The units that [`MANY`] checks of one unit get.
async fn admitted(limiter: &Limiter, policy: &Policy) -> u64 {
    let mut admitted = 0;
    for _ in 0..MANY {
        admitted += u64::from(limiter.check("k", policy, 1).await.unwrap().is_allowed());
    }
    admitted
}
