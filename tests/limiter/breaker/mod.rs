//! The circuit breaker: one test for each change of state, with paused time.

mod closed;
mod open;
mod probing;

use std::time::Duration;

use tokio::{task::JoinSet, time::Instant};
use tollgate::{ErrorKind, Limiter, Policy};

use crate::support::counting::within_10_seconds;
use crate::support::unhealthy_store::{Health, UnhealthyStore};

const DEADLINE: Duration = Duration::from_millis(50);
const MS: Duration = Duration::from_millis(1);

fn policy() -> Policy {
    Policy::per_hour("p", 1_000_000).unwrap()
}

async fn check(limiter: &Limiter) -> Result<(), ErrorKind> {
    within_10_seconds(limiter.check("k", &policy(), 1)).await.map(drop).map_err(|error| error.kind())
}

async fn checks(limiter: &Limiter, count: usize) {
    for _ in 0..count {
        let _ = check(limiter).await;
    }
}

/// Sends `count` checks at once: all are sent before the first one ends.
async fn concurrent_checks(limiter: &Limiter, count: usize) {
    let mut checks = JoinSet::new();
    for _ in 0..count {
        let limiter = limiter.clone();
        checks.spawn(async move { check(&limiter).await });
    }
    checks.join_all().await;
}

/// A limiter whose breaker has just opened.
async fn opened(health: Health) -> (Limiter, UnhealthyStore) {
    let store = UnhealthyStore::new(health);
    let limiter = Limiter::new(store.clone());
    checks(&limiter, 5).await;
    assert!(limiter.is_breaker_open());
    (limiter, store)
}

/// Sends a check every millisecond and returns the times at which the store received one.
async fn probes(limiter: &Limiter, store: &UnhealthyStore, during: Duration) -> Vec<Duration> {
    let start = Instant::now();
    let (mut seen, mut times) = (store.sent(), Vec::new());
    while start.elapsed() < during {
        let sent_at = start.elapsed();
        let _ = check(limiter).await;
        if store.sent() > seen {
            assert_eq!(store.sent(), seen + 1, "one probe at a time");
            (seen, times) = (seen + 1, [times, vec![sent_at]].concat());
        }
        tokio::time::sleep(MS).await;
    }
    times
}
