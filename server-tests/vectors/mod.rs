//! Runs the test vectors of the algorithms on Redis. `tests/vectors` runs them in memory, with all other vectors.

#[path = "../../tests/vectors/algorithms.rs"]
mod algorithms;
#[path = "../../tests/vectors/outcome.rs"]
mod outcome;

use std::{fs, path::PathBuf, time::Duration};

use tollgate::{Limiter, ManualClock, RedisStore};

use crate::support::redis_server::RedisServer;

/// Reads the vectors from the directory in `TOLLGATE_VECTORS`; the default is `tests/data/vectors`.
#[tokio::test]
async fn algorithms_on_redis() {
    let directory = std::env::var_os("TOLLGATE_VECTORS")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/vectors"), PathBuf::from);
    let file = serde_json::from_slice(&fs::read(directory.join("algorithms.json")).unwrap()).unwrap();
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let store = RedisStore::builder().clock(clock.clone()).deadline(Duration::from_secs(10)).connect(&server.url());
    let results = algorithms::run(&file, &clock, &Limiter::new(store.unwrap())).await;
    assert_eq!(outcome::report("algorithms.json on Redis", &results), 0, "failed cases, see above");
    assert!(results.iter().any(|(_, outcome)| matches!(outcome, outcome::Outcome::Passed)), "every case was skipped");
}
