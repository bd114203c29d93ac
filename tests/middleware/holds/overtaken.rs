//! Requests without a verdict, whose holds reach the store after their release.

use std::{convert::Infallible, time::Duration};

use axum::body::Body;
use http::{Request, Response};
use tokio::time::{sleep, timeout};
use tollgate::store::{Answer, Charge, Check, HoldChange, SettleAnswer, Store, Verdict};
use tollgate::{Error, ErrorKind, Key, Limiter, MemoryStore, Policy, RateLimitLayer};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use super::{Frames, at_end, left, one_client, request, tokens, uploads};

const MS: Duration = Duration::from_millis(1);

/// A key whose checks are answered at once.
const PROMPT: &str = "prompt";

/// A memory store behind two connections: checks take effect after 100 ms and time out after 50 ms, and changes of
/// holds take 1 ms. Only checks of [`PROMPT`] are answered at once.
#[derive(Clone, Debug, Default)]
struct TwoWays(MemoryStore);

impl Store for TwoWays {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        if check.charges()[0].key == Key::from(PROMPT) {
            return self.0.check(check);
        }
        let (memory, check) = (self.0.clone(), check.clone());
        Answer::pending(async move {
            tokio::spawn(async move {
                sleep(100 * MS).await;
                let Answer::Ready(Ok(verdict)) = memory.check(&check) else { panic!("a memory store answers at once") };
                assert!(verdict.allowed);
            });
            sleep(50 * MS).await;
            Err(Error::new(ErrorKind::Deadline, "no answer within 50 ms").charge_unknown())
        })
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.0.reset(key, policy)
    }

    fn has_holds(&self) -> bool {
        true
    }

    fn change_hold(&self, hold: &Charge, change: HoldChange) -> Answer<SettleAnswer> {
        let (memory, hold) = (self.0.clone(), hold.clone());
        Answer::pending(async move {
            sleep(MS).await;
            match memory.change_hold(&hold, change) {
                Answer::Ready(result) => result,
                Answer::Pending(pending) => pending.await,
            }
        })
    }
}

async fn answers(_: Request<Body>) -> Result<Response<Frames>, Infallible> {
    Ok(Response::new(Frames::of([])))
}

#[tokio::test(start_paused = true)]
async fn the_units_of_a_request_that_goes_away_come_back_although_its_hold_arrives_after_its_end() {
    for (policy, cost, remaining) in [(uploads(), 1, 3), (tokens(), 100, 900)] {
        let store = TwoWays::default();
        let limit = RateLimitLayer::new(Limiter::new(store.clone()), policy.clone(), one_client()).with_cost(cost);
        let service =
            ServiceBuilder::new().layer(limit.with_settlement(at_end).with_held_body()).service(service_fn(answers));
        assert!(timeout(10 * MS, service.oneshot(request())).await.is_err(), "the store is asked");
        let direct = Limiter::new(store.0);
        sleep(95 * MS).await;
        assert_eq!(left(&direct, &policy).await, policy.capacity() - cost, "the hold has arrived");
        sleep(Duration::from_secs(1)).await;
        // The units of tokens are charged, as those of every request that fails.
        assert_eq!(left(&direct, &policy).await, remaining);
        direct.reset(super::CLIENT, &policy).await.unwrap();
        assert_eq!(left(&direct, &policy).await, policy.capacity(), "no hold is open");
    }
}

#[tokio::test(start_paused = true)]
async fn the_units_of_a_request_without_a_verdict_come_back() {
    for policy in [uploads(), tokens()] {
        for fails_open in [false, true] {
            let store = TwoWays::default();
            let limit = RateLimitLayer::new(Limiter::new(store.clone()), policy.clone(), one_client());
            let limit = if fails_open { limit.fail_open() } else { limit.fail_closed() };
            let service = ServiceBuilder::new()
                .layer(limit.with_settlement(at_end).with_held_body())
                .service(service_fn(answers));
            let response = service.oneshot(request()).await.unwrap();
            assert_eq!(response.status(), if fails_open { 200 } else { 503 });
            sleep(2 * Duration::from_secs(1)).await;
            assert_eq!(left(&Limiter::new(store.0), &policy).await, policy.capacity());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_local_share_denies_leaves_nothing_held_or_charged() {
    // A third of the limit has room for one request.
    for (policy, cost, remaining) in [(uploads(), 1, 2), (tokens(), 300, 700)] {
        let store = TwoWays::default();
        let limiter = Limiter::new(store.clone()).with_local_fallback(MemoryStore::new(), 3);
        let limit = RateLimitLayer::new(limiter, policy.clone(), one_client()).with_cost(cost);
        let limit = limit.fail_local().with_settlement(at_end).with_held_body();
        let streams = |_| async { Ok::<_, Infallible>(Response::new(Frames::of([]).then_stays_open())) };
        let service = ServiceBuilder::new().layer(limit).service(service_fn(streams));
        let mut responses = Vec::new();
        for status in [200, 429] {
            responses.push(service.clone().oneshot(request()).await.unwrap());
            assert_eq!(responses.last().unwrap().status(), status);
        }
        sleep(4 * Duration::from_secs(1)).await;
        assert_eq!(left(&Limiter::new(store.0), &policy).await, remaining, "of {policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_units_of_a_job_without_a_verdict_come_back() {
    let store = TwoWays::default();
    let error = Limiter::new(store.clone()).hold(super::CLIENT, &tokens(), 100).await.unwrap_err();
    assert!(error.may_have_charged());
    sleep(2 * Duration::from_secs(1)).await;
    assert_eq!(left(&Limiter::new(store.0), &tokens()).await, 1_000);
}

#[tokio::test(start_paused = true)]
async fn releases_that_are_repeated_delay_no_other_settlement() {
    let store = TwoWays::default();
    let limiter = Limiter::new(store.clone());
    assert!(limiter.hold(super::CLIENT, &tokens(), 100).await.is_err());
    sleep(10 * MS).await;
    // The store has answered the first release, and the next one waits.
    for _ in 0..5 {
        let hold = limiter.hold(PROMPT, &uploads(), 1).await.unwrap().into_result().unwrap();
        drop(hold);
        sleep(5 * MS).await;
        assert_eq!(limiter.peek(PROMPT, &uploads()).await.unwrap().available(), Some(3));
    }
}
