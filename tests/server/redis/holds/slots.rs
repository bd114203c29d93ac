//! Slots of concurrency limits: renewed together, while they are held.

use std::time::Duration;

use tokio::time::sleep;
use tollgate::{Limiter, Policy, policy::HoldSettings, store::SettleAnswer};

use super::builder;
use crate::support::redis_server::{RedisServer, calls};

#[tokio::test]
async fn the_slots_of_a_process_are_renewed_together_in_few_calls() {
    let server = RedisServer::start();
    let limiter = Limiter::new(builder().open(&server.url()).unwrap());
    let holds = HoldSettings::new().with_ttl(Duration::from_millis(1_500));
    let policy = Policy::concurrent("jobs", 20).unwrap().with_holds(holds);
    let mut slots = Vec::new();
    for number in 0..200 {
        slots.push(limiter.hold(number / 20, &policy, 1).await.unwrap().into_result().unwrap());
    }
    let calls_before = calls(&server, "evalsha");
    sleep(Duration::from_secs(5)).await;
    let renewals = calls(&server, "evalsha") - calls_before;
    // About ten rounds; one by one they would be two thousand.
    assert!((8..=120).contains(&renewals), "{renewals} calls");

    for tenant in 0..10 {
        assert!(!limiter.hold(tenant, &policy, 1).await.unwrap().is_allowed(), "all slots of {tenant} are held");
    }
    let last = slots.pop().unwrap();
    assert_eq!(last.settle(3).await.unwrap(), SettleAnswer::Settled);
    assert_eq!(limiter.peek(9, &policy).await.unwrap().available(), Some(1), "nothing was charged");
    drop(slots);
    for tenant in 0..10 {
        while limiter.peek(tenant, &policy).await.unwrap().available() != Some(20) {
            sleep(Duration::from_millis(10)).await;
        }
    }
    assert_eq!(server.command("DBSIZE").trim(), ":0", "a slot leaves no trace");
}
