//! Runs the test vectors of the algorithms, of calendars, of changes by hand and of holds on Redis. `tests/vectors`
//! runs them in memory, with all other vectors.

#[path = "../../vectors/algorithms.rs"]
mod algorithms;
#[path = "../../vectors/by_hand.rs"]
mod by_hand;
#[path = "../../vectors/calendar.rs"]
mod calendar;
#[path = "../../vectors/holds.rs"]
mod holds;
#[path = "../../vectors/outcome.rs"]
mod outcome;

use std::{fs, path::PathBuf, time::Duration};

use serde_json::Value;
use tollgate::{Limiter, ManualClock, RedisStore};

use self::outcome::Outcome;
use crate::support::redis_server::RedisServer;

#[tokio::test]
async fn algorithms_on_redis() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = Limiter::new(store(&server, &clock));
    judge("algorithms.json", &algorithms::run(&vectors("algorithms.json"), &clock, &limiter).await);
}

#[tokio::test]
async fn calendars_on_redis() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    judge("calendar.json", &calendar::run(&vectors("calendar.json"), &clock, &store(&server, &clock)).await);
}

#[tokio::test]
async fn changes_by_hand_on_redis() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    judge("by_hand.json", &by_hand::run(&vectors("by_hand.json"), &clock, &store(&server, &clock)).await);
}

#[tokio::test]
async fn holds_on_redis() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    judge("holds.json", &holds::run(&vectors("holds.json"), &clock, &store(&server, &clock)).await);
}

/// Reads a file from the directory in `TOLLGATE_VECTORS`; the default is `tests/data/vectors`.
fn vectors(name: &str) -> Value {
    let directory = std::env::var_os("TOLLGATE_VECTORS")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../data/vectors"), PathBuf::from);
    serde_json::from_slice(&fs::read(directory.join(name)).unwrap()).unwrap()
}

fn store(server: &RedisServer, clock: &ManualClock) -> RedisStore {
    RedisStore::builder().clock(clock.clone()).deadline(Duration::from_secs(10)).open(&server.url()).unwrap()
}

fn judge(name: &str, results: &[(String, Outcome)]) {
    assert_eq!(outcome::report(&format!("{name} on Redis"), results), 0, "failed cases, see above");
    assert!(results.iter().any(|(_, outcome)| matches!(outcome, Outcome::Passed)), "every case was skipped");
}
