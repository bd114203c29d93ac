//! Checks that would ask a remembered denial again, and whose callers do not wait for the answer.

use std::{future::poll_fn, task::Poll, time::Duration};

use tokio::time::sleep;
use tollgate::{Limiter, ManualClock, Policy, RedisStore, policy::HoldSettings};

use crate::support::{patient, redis_server::RedisServer};

const MINUTE: Duration = Duration::from_secs(60);

/// A process that remembers that nothing is left, and another one that has reset the key meanwhile. The next check of
/// the first process asks again.
async fn reset_elsewhere(server: &RedisServer, policy: &Policy) -> (Limiter, Limiter) {
    let clock = ManualClock::default();
    let open = |deny_cache| {
        let store: RedisStore = patient().clock(clock.clone()).deny_cache(deny_cache).open(&server.url()).unwrap();
        Limiter::new(store)
    };
    let (remembers, other) = (open(true), open(false));
    assert!(remembers.check("k", policy, 10).await.unwrap().is_allowed());
    assert!(!remembers.check("k", policy, 1).await.unwrap().is_allowed());
    other.reset("k", policy).await.unwrap();
    clock.advance(Duration::from_secs(1));
    (remembers, other)
}

/// What is left when all that was sent has reached Redis.
async fn left(limiter: &Limiter, policy: &Policy) -> Option<u64> {
    sleep(Duration::from_millis(300)).await;
    limiter.peek("k", policy).await.unwrap().available()
}

#[tokio::test]
async fn law_3_a_caller_of_acquire_pays_once_after_another_process_has_reset_its_key() {
    let (server, policy) = (RedisServer::start(), Policy::new("p", 10, MINUTE).unwrap());
    let (limiter, other) = reset_elsewhere(&server, &policy).await;
    let acquired = limiter.acquire("k", &policy, 1).within(Duration::from_secs(5)).await.unwrap();
    assert_eq!((acquired.is_allowed(), left(&other, &policy).await), (true, Some(9)));
}

#[tokio::test]
async fn law_3_a_check_that_has_to_be_awaited_and_is_not_charges_nothing() {
    let (server, policy) = (RedisServer::start(), Policy::new("p", 10, MINUTE).unwrap());
    let (limiter, other) = reset_elsewhere(&server, &policy).await;
    limiter.try_check("k", &policy, 1).unwrap_err();
    assert_eq!(left(&other, &policy).await, Some(10));
    assert!(limiter.check("k", &policy, 1).await.unwrap().is_allowed(), "the next check asks in its place");
}

/// The hold is made after its caller has left.
#[tokio::test]
async fn law_15_a_hold_that_asks_a_denial_again_is_given_back_if_its_caller_leaves() {
    let holds = HoldSettings::new().with_unsettled_released(true);
    let (server, policy) = (RedisServer::start(), Policy::new("p", 10, MINUTE).unwrap().with_holds(holds));
    let (limiter, other) = reset_elsewhere(&server, &policy).await;
    let mut hold = Box::pin(limiter.hold("k", &policy, 1));
    assert!(poll_fn(|cx| Poll::Ready(hold.as_mut().poll(cx).is_pending())).await);
    drop(hold);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(left(&other, &policy).await, Some(10));
}

/// A service that sets no deadline would rather wait than do without a verdict.
#[tokio::test]
async fn a_deadline_that_never_comes_is_no_panic() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let store = RedisStore::builder().clock(clock.clone()).deadline(Duration::MAX).open(&server.url()).unwrap();
    let (limiter, policy) =
        (Limiter::new(store), Policy::new("p", 10, MINUTE).unwrap().with_holds(HoldSettings::new()));
    assert!(limiter.check("k", &policy, 9).await.unwrap().is_allowed());
    drop(limiter.hold("k", &policy, 1).await.unwrap());
    limiter.close().await;
    for _ in 0..3 {
        assert!(!limiter.check("k", &policy, 1).await.unwrap().is_allowed());
        clock.advance(Duration::from_secs(1));
    }
}
