//! Waiters that go away while the others wait.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tollgate::{Algorithm, Policy};

use crate::support::{link::Link, measured, random::Random, redis_server::RedisServer};
use crate::{load::limiter, print_line, undisturbed};

const WAITERS: usize = 200;
const REFILL: Duration = Duration::from_millis(10);

/// Half of the waiters are dropped while the queue drains. In the store, only the others may be charged: the bucket
/// would need more time for more units.
#[test]
fn dropped_waiters_cost_no_time_and_no_units() {
    measured(|| undisturbed(drop_half));
}

/// Returns the time that the others took, if it is too long.
fn drop_half() -> Option<String> {
    let server = RedisServer::start();
    let url = Link::to(server.port(), Duration::from_millis(2)).url();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (served, took) = runtime.block_on(async {
        let (limiter, _) = limiter(&url).await;
        let policy = Policy::per_second("upstream", 100).unwrap().with_algorithm(Algorithm::TokenBucket);
        let policy = policy.with_burst(1);
        let start = Instant::now();
        let mut waiting: Vec<JoinHandle<Instant>> = Vec::new();
        for _ in 0..WAITERS {
            let acquired = limiter.acquire("upstream", &policy, 1).within(Duration::from_secs(60));
            waiting.push(tokio::spawn(async move {
                assert!(acquired.await.unwrap().is_allowed());
                Instant::now()
            }));
            tokio::task::yield_now().await;
        }
        let mut random = Random(7);
        for _ in 0..WAITERS / 2 {
            waiting.swap_remove(random.index(waiting.len())).abort();
            tokio::time::sleep(Duration::from_millis(random.below(6))).await;
        }
        let mut served = Vec::new();
        for waiter in waiting {
            served.push(waiter.await.unwrap());
        }
        let took = served.iter().max().unwrap().duration_since(start);
        (served.len(), took)
    });
    // Some of those that were dropped had been served before.
    let most = REFILL * WAITERS as u32;
    print_line(&format!("waiting drops served={served} took={took:?}"));
    assert_eq!(served, WAITERS / 2);
    (took >= most * 9 / 10).then(|| format!("{took:?}"))
}
