//! Observers that panic, while many checks share calls of Redis.

use tokio::task::JoinSet;
use tollgate::observe::{Event, Observer};
use tollgate::{Limiter, Policy, policy::HoldSettings};

use crate::support::{connect, per_minute, redis_server::RedisServer};

/// Panics on each event: of decisions, batches and ends of holds.
struct Panics;

impl Observer for Panics {
    fn on_event(&self, _: &Event<'_>) {
        panic!("the observer of a test");
    }
}

/// A batch is reported by the task whose answer the others wait for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_16_an_observer_that_panics_on_each_batch_changes_no_verdict_and_keeps_no_slot() {
    let server = RedisServer::start();
    let limiter = Limiter::new(connect(&server.url())).with_observer(Panics);
    let rate = per_minute("rate", 100);
    let checks: JoinSet<_> = (0..200).map(|_| limiter.check("k", &rate, 1)).collect();
    let admitted = checks.join_all().await.into_iter().filter(|decision| decision.as_ref().unwrap().is_allowed());
    assert_eq!(admitted.count(), 100, "every check has a verdict, and no unit is lost");

    let tokens = Policy::per_hour("tokens", 1_000).unwrap().with_holds(HoldSettings::new());
    for policy in [Policy::concurrent("slots", 50).unwrap(), tokens] {
        let holds: JoinSet<_> = (0..200).map(|_| limiter.hold("k", &policy, policy.limit() / 50)).collect();
        let held: Vec<_> =
            holds.join_all().await.into_iter().filter_map(|hold| hold.unwrap().into_result().ok()).collect();
        assert_eq!(held.len(), 50);
        let mut ends = JoinSet::new();
        for (number, hold) in held.into_iter().enumerate() {
            // Some ends are awaited, and the others are sent in the background.
            match number % 2 {
                0 => drop(ends.spawn(async move { assert!(hold.release().await.is_ok()) })),
                _ => drop(hold.settle(0)),
            }
        }
        ends.join_all().await;
        limiter.close().await;
        assert_eq!(limiter.peek("k", &policy).await.unwrap().available(), Some(policy.limit()));
    }
}
