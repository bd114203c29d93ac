//! Holds: units that are held until their cost is known.

mod background;
mod distant_store;
mod ends;
mod fallback;
mod foreign_store;
mod full;
mod handle;
mod late;
mod laws;
mod remote_store;
mod runtimes;
mod traces;

use std::time::Duration;

use tollgate::{Algorithm, Limiter, ManualClock, MemoryStore, Policy, policy::HoldSettings};

const TTL: Duration = Duration::from_secs(30);

/// Ten units a minute, with holds of 30 s that are charged if they are not settled.
fn tokens() -> Policy {
    with_holds(10, HoldSettings::new())
}

/// A policy of `limit` units a minute whose holds last 30 s.
fn with_holds(limit: u64, holds: HoldSettings) -> Policy {
    Policy::per_minute("tokens", limit).unwrap().with_holds(holds.with_ttl(TTL))
}

fn of(algorithm: Algorithm, limit: u64) -> Policy {
    with_holds(limit, HoldSettings::new()).with_algorithm(algorithm)
}

/// A limiter over a memory store with the clock.
fn limiter() -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    (Limiter::new(MemoryStore::new().with_clock(clock.clone())), clock)
}

async fn available(limiter: &Limiter, policy: &Policy) -> u64 {
    limiter.peek("k", policy).await.unwrap().available().unwrap()
}
