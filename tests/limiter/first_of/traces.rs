//! Random traces through the memory store and the oracles. `tests/server` runs the same traces on Redis.

use tollgate::{ManualClock, MemoryStore};

use crate::support::{alternatives::twin_trace, holds::random_trace_with_alternatives, seed::seeds};

async fn holds(traces: u64, steps: usize) {
    for seed in seeds(traces) {
        let clock = ManualClock::default();
        random_trace_with_alternatives(&MemoryStore::new().with_clock(clock.clone()), &clock, seed, steps).await;
    }
}

async fn twins(traces: u64, steps: usize) {
    let mut charged = [0; 4];
    for seed in seeds(traces) {
        let clock = ManualClock::default();
        let times = twin_trace(&MemoryStore::new().with_clock(clock.clone()), &clock, seed, steps).await;
        charged = std::array::from_fn(|index| charged[index] + times[index]);
    }
    assert!(charged.iter().all(|times| *times * 20 > steps), "{charged:?}");
}

#[tokio::test]
async fn law_12_random_traces_with_alternatives_and_holds_agree_with_the_oracle() {
    holds(200, 150).await;
}

#[tokio::test]
async fn law_12_a_check_with_alternatives_is_the_plain_check_of_the_first_with_room() {
    twins(60, 300).await;
}

#[tokio::test]
#[ignore = "a million steps, and half a million: tests/run --long"]
async fn long_law_12_a_million_steps_with_alternatives_agree_with_the_oracles() {
    holds(6_700, 150).await;
    twins(1_700, 300).await;
}
