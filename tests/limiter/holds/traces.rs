//! Random traces through the memory store and an oracle.

use tollgate::{ManualClock, MemoryStore};

use crate::support::{holds::random_trace, seed::seeds};

/// `tests/server` runs the same traces on Redis.
#[tokio::test]
async fn law_12_random_traces_with_holds_agree_with_the_oracle() {
    for seed in seeds(200) {
        let clock = ManualClock::default();
        random_trace(&MemoryStore::new().with_clock(clock.clone()), &clock, seed, 150).await;
    }
}
