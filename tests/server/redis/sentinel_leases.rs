//! Leases behind sentinels, when their process is stopped.

use std::time::{Duration, Instant};

use tokio::{runtime, task::JoinSet};
use tollgate::{Limiter, Policy, RedisStore, decision::Source};

use crate::support::windows::{Admitted, most_within};
use crate::support::{print_line, redis_server::RedisServer, sentinel::Trio};

const SECOND: Duration = Duration::from_secs(1);
const LIMIT: u64 = 2_000;
const KEY: &str = "k";

fn limiter(trio: &Trio) -> Limiter {
    let urls: Vec<_> = trio.sentinels.iter().map(RedisServer::url).collect();
    let builder = RedisStore::builder().deadline(SECOND);
    Limiter::new(builder.open_sentinel(urls.iter().map(String::as_str), Trio::NAME).unwrap()).without_notices()
}

fn leased() -> Policy {
    Policy::per_second("leased", LIMIT).unwrap().with_lease(LIMIT / 5)
}

/// Waits until a key has all of its units again. Returns how long that took.
async fn until_free(limiter: &Limiter, policy: &Policy, within: Duration) -> Duration {
    let start = Instant::now();
    loop {
        let available = limiter.peek(KEY, policy).await.ok().and_then(|decision| decision.available());
        if available == Some(policy.limit()) {
            return start.elapsed();
        }
        assert!(start.elapsed() < within, "{}: {available:?} are free", policy.name());
        tokio::time::sleep(SECOND / 50).await;
    }
}

/// A hot key for `time`. Returns what was admitted, and how much of it from blocks.
async fn hot(limiter: &Limiter, policy: &Policy, time: Duration) -> (Vec<Admitted>, usize) {
    let (end, mut tasks) = (Instant::now() + time, JoinSet::new());
    for _ in 0..8 {
        let (limiter, policy) = (limiter.clone(), policy.clone());
        tasks.spawn(async move {
            let (mut admitted, mut from_blocks) = (Vec::new(), 0);
            while Instant::now() < end {
                let sent = Instant::now();
                if let Ok(decision) = limiter.check(KEY, &policy, 1).await
                    && decision.is_allowed()
                {
                    admitted.push((sent, Instant::now()));
                    from_blocks += usize::from(decision.source() == Source::Lease);
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            (admitted, from_blocks)
        });
    }
    let (admitted, from_blocks): (Vec<_>, Vec<_>) = tasks.join_all().await.into_iter().unzip();
    (admitted.concat(), from_blocks.into_iter().sum())
}

/// A process that is stopped: its runtime is not driven, and nothing else uses its limiter. The time-to-live of the
/// policy is a minute.
#[test]
fn law_15_the_blocks_of_a_stopped_process_end_within_two_seconds_behind_sentinels() {
    let trio = Trio::start(Duration::from_secs(60));
    let current_thread = || runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (stopped, other) = (current_thread(), current_thread());
    let (own, direct) = (limiter(&trio), limiter(&trio));
    let policy = leased();
    // The process stops in the middle of a load that blocks serve. On a busy machine, that takes some rounds.
    let (mut admitted, mut from_blocks) = (Vec::new(), 0);
    let start = Instant::now();
    while from_blocks == 0 {
        assert!(start.elapsed() < 20 * SECOND, "the key got no lease");
        let round = stopped.block_on(hot(&own, &policy, SECOND / 10));
        admitted.extend(round.0);
        from_blocks = round.1;
    }
    // A block lives for two seconds at most. Then it is charged, and the charge leaves its window of a second.
    let free_after = other.block_on(until_free(&direct, &policy, 4 * SECOND));
    print_line(&format!("the block of a stopped process is free after {free_after:?}"));
    // The process goes on, beside another one.
    let loads = [(stopped, own), (other, direct)].map(|(runtime, limiter)| {
        std::thread::spawn(move || {
            let got = runtime.block_on(hot(&limiter, &leased(), 2 * SECOND));
            runtime.block_on(limiter.close());
            got.0
        })
    });
    for load in loads {
        admitted.extend(load.join().unwrap());
    }
    let most = most_within(SECOND, &admitted);
    assert!(most <= LIMIT as usize, "law 1: {most} of {LIMIT}");
}
