//! Callers that wait under a policy with a lease.

use tokio::time::Instant;
use tollgate::Algorithm;

use super::*;

/// A burst of callers, shared evenly by the processes. Returns how long the last one has waited.
async fn drains_in(policy: &Policy, processes: usize, callers: usize, latency: Duration) -> Duration {
    let (remote, _) = Remote::new(latency);
    let limiters: Vec<_> = (0..processes).map(|_| remote.limiter()).collect();
    let (start, mut waiters) = (Instant::now(), JoinSet::new());
    for caller in 0..callers {
        waiters.spawn(limiters[caller % processes].acquire(KEY, policy, 1).within(60 * SECOND));
    }
    while let Some(acquired) = waiters.join_next().await {
        assert!(acquired.unwrap().unwrap().is_allowed());
    }
    start.elapsed()
}

/// A unit of a block counts some milliseconds longer than one that is charged at once, so waiters may be later by that.
#[tokio::test(start_paused = true)]
async fn waiters_under_a_lease_get_their_units_hardly_later_than_without() {
    let algorithms =
        [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow, Algorithm::TokenBucket];
    let mut late = Vec::new();
    for algorithm in algorithms {
        for (processes, latency) in [(1, 0), (1, 2), (2, 2), (4, 2), (1, 8)] {
            let plain = Policy::per_second("p", 1_000).unwrap().with_algorithm(algorithm);
            let leased = plain.clone().with_lease(200);
            let mut times = [Duration::ZERO; 2];
            for (time, policy) in times.iter_mut().zip([&plain, &leased]) {
                *time = drains_in(policy, processes, 3_500, latency * MS).await;
            }
            let [without, with] = times;
            println!(
                "{algorithm:?}, {processes} processes, {latency} ms: {without:?} without a lease, {with:?} with one"
            );
            if with > without + without / 20 + 20 * MS {
                late.push((algorithm, processes, latency, without, with));
            }
        }
    }
    assert!(late.is_empty(), "{late:#?}");
}
