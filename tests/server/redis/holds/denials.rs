//! The deny cache remembers no denial that open holds have caused.

use std::time::Duration;

use tollgate::store::{HoldChange, Store};
use tollgate::{Check, ManualClock, Policy, decision::Source, policy::HoldSettings};

use super::{change, check, hold, with_clock};
use crate::{redis::calls, support::redis_server::RedisServer};

fn policy(limit: u64) -> Policy {
    Policy::per_minute("p", limit).unwrap().with_holds(HoldSettings::new().with_ttl(Duration::from_secs(600)))
}

async fn source(store: &dyn Store, owed: &Check) -> (bool, Source) {
    let verdict = check(store, owed).await;
    (verdict.allowed, verdict.source)
}

#[tokio::test]
async fn a_denial_beside_open_holds_is_asked_again_and_the_next_request_sees_a_release() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let (store, other) = (with_clock(&server, &clock), with_clock(&server, &clock));
    let policy = policy(10);
    let open = hold(&store, "a", &policy, 8).await.unwrap();
    let owed = Check::new("a", &policy, 3);
    for _ in 0..3 {
        assert_eq!(source(&store, &owed).await, (false, Source::Store));
    }
    // Charges fill the limit, but less would be spent if the hold ended.
    check(&store, &Check::new("a", &policy, 2)).await;
    assert_eq!(source(&store, &owed).await, (false, Source::Store));
    // Another process releases the hold.
    change(&other, &open, HoldChange::Settle(0)).await;
    assert_eq!(source(&store, &owed).await, (true, Source::Store));
}

#[tokio::test]
async fn a_denial_without_open_holds_is_remembered_also_under_a_policy_with_holds() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let store = with_clock(&server, &clock);
    let policy = policy(10);
    let open = hold(&store, "a", &policy, 8).await.unwrap();
    change(&store, &open, HoldChange::Settle(10)).await;
    let (plain, held) = (Check::new("a", &policy, 3), Check::hold("a", &policy, 3));
    assert_eq!(source(&store, &plain).await, (false, Source::Store));
    let before = calls(&server, "evalsha");
    for _ in 0..10 {
        assert_eq!(source(&store, &plain).await, (false, Source::DenyCache));
        assert_eq!(source(&store, &held).await, (false, Source::DenyCache));
    }
    assert_eq!(calls(&server, "evalsha"), before);
    // A change of another hold forgets nothing, because what it frees was not held when the check was denied.
    change(&store, &open, HoldChange::Settle(1)).await;
    assert_eq!(source(&store, &plain).await, (false, Source::DenyCache));
}
