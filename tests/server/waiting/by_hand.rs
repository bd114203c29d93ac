//! Two hundred callers that wait by hand, against the same callers in a queue.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tollgate::{Algorithm, Limiter, Policy};

use crate::load::{drain, limiter};
use crate::{print_line, support::redis_server::RedisServer, undisturbed};

const WAITERS: usize = 200;

/// The results of a way to wait.
struct Drained {
    checks_per_admission: f64,
    /// The time until a caller is served, in their order.
    waits: Vec<Duration>,
}

/// Checks, sleeps as long as the denial says, and checks again.
async fn wait_by_hand(limiter: Limiter, policy: Policy) {
    while let Some(wait) = limiter.check("upstream", &policy, 1).await.unwrap().retry_after() {
        tokio::time::sleep(wait).await;
    }
}

async fn by_hand(limiter: &Limiter, policy: &Policy, start: Instant) -> Vec<Duration> {
    let mut tasks = JoinSet::new();
    for waiter in 0..WAITERS {
        let waiting = wait_by_hand(limiter.clone(), policy.clone());
        tasks.spawn(async move {
            waiting.await;
            (waiter, start.elapsed())
        });
        tokio::task::yield_now().await;
    }
    let mut served = tasks.join_all().await;
    served.sort_unstable();
    served.into_iter().map(|(_, wait)| wait).collect()
}

async fn in_a_queue(limiter: &Limiter, policy: &Policy, start: Instant) -> Vec<Duration> {
    let mut served = drain(limiter, policy, WAITERS, Duration::from_secs(60)).await;
    served.sort_unstable_by_key(|admission| admission.waiter);
    served.into_iter().map(|admission| admission.at - start).collect()
}

fn run(in_queue: bool) -> Drained {
    undisturbed(|| {
        let server = RedisServer::start();
        let policy = Policy::per_second("upstream", 50).unwrap().with_algorithm(Algorithm::TokenBucket);
        let policy = policy.with_burst(1);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (limiter, calls) = limiter(&server.url()).await;
            let (before, start) = (calls.checks(), Instant::now());
            let waits = match in_queue {
                true => in_a_queue(&limiter, &policy, start).await,
                false => by_hand(&limiter, &policy, start).await,
            };
            let checks_per_admission = (calls.checks() - before) as f64 / WAITERS as f64;
            Drained { checks_per_admission, waits }
        })
    })
}

/// How many callers were overtaken by a later one.
fn overtaken(waits: &[Duration]) -> usize {
    let mut earliest = Duration::MAX;
    let later_first = waits.iter().rev().filter(|wait| {
        let is_overtaken = **wait > earliest;
        earliest = earliest.min(**wait);
        is_overtaken
    });
    later_first.count()
}

#[test]
fn a_queue_needs_fewer_checks_than_waiting_by_hand_and_nobody_is_overtaken() {
    let [by_hand, queue] = [false, true].map(run);
    for (name, drained) in [("by_hand", &by_hand), ("queue", &queue)] {
        let last = drained.waits.iter().max().unwrap();
        let first_half = drained.waits[..WAITERS / 2].iter().max().unwrap();
        print_line(&format!(
            "waiting {name} checks_per_admission={:.2} last={last:?} last_of_the_first_half={first_half:?} \
             overtaken={}",
            drained.checks_per_admission,
            overtaken(&drained.waits)
        ));
        if std::env::var_os("WAITING_POINTS").is_some() {
            let points: Vec<String> = drained.waits.iter().map(|wait| wait.as_millis().to_string()).collect();
            print_line(&format!("points {name} {}", points.join(",")));
        }
    }
    assert_eq!(overtaken(&queue.waits), 0);
    assert!(queue.checks_per_admission <= 2.0, "{}", queue.checks_per_admission);
    assert!(by_hand.checks_per_admission > 4.0 * queue.checks_per_admission, "{}", by_hand.checks_per_admission);
}
