//! When calls are made: in their order, at the rate of the policy, and not at all if that takes too long.

use std::error::Error;

use http::Request;
use tokio::task::{JoinSet, LocalSet, yield_now};
use tokio::time::{sleep, timeout};
use tollgate::store::{Answer, Store, Verdict};
use tollgate::{
    Algorithm, Check, Key, Limiter, MemoryStore, Policy, ThrottleLayer, decision::Source, throttle::Throttled,
};
use tower::{Layer, Service, ServiceExt};

use super::upstream::{Upstream, call, limiter, memory, millis, secs};
use crate::support::{counting::EmptyRequest, per_minute};

/// A layer with one call every 100 ms.
fn ten_per_second() -> ThrottleLayer {
    let bucket = Policy::per_second("p", 10).unwrap().with_algorithm(Algorithm::TokenBucket).with_burst(1);
    ThrottleLayer::new(limiter(), bucket, "upstream")
}

#[tokio::test(start_paused = true)]
async fn calls_are_made_in_their_order_at_the_rate_of_the_policy() {
    let upstream = Upstream::default();
    let client = ten_per_second().layer(upstream.clone());
    let mut calls = JoinSet::new();
    for number in 0..20 {
        let client = client.clone();
        calls.spawn(async move { call(&client).await.map(|_| number).unwrap() });
        yield_now().await;
    }
    let mut order = Vec::new();
    while let Some(number) = calls.join_next().await {
        order.push(number.unwrap());
    }
    assert_eq!(order, (0..20).collect::<Vec<_>>());
    let times = upstream.calls();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= millis(99)), "{times:?}");
    assert!((millis(1_900)..millis(2_000)).contains(&times[19]), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_would_wait_for_too_long_is_an_error_at_once_that_says_how_long() {
    let upstream = Upstream::default();
    let client = ThrottleLayer::new(limiter(), per_minute("p", 1), "upstream").layer(upstream.clone());
    call(&client).await.unwrap();
    tokio::time::advance(secs(20)).await;

    let error = call(&client).await.unwrap_err();
    assert_eq!(upstream.elapsed(), secs(20), "at once");
    assert_eq!(upstream.calls().len(), 1, "the upstream is not called");
    let throttled = error.downcast_ref::<Throttled>().unwrap();
    assert_eq!(throttled.retry_after(), Some(secs(40)));
    let decision = throttled.decision().unwrap();
    assert_eq!((decision.is_allowed(), decision.source()), (false, Source::Queue));
    assert!(throttled.source().is_none());
    assert_eq!(
        error.to_string(),
        "a call can be made in 40s at the earliest, and this call may wait for 10s; call again then, or set a longer \
         wait with `with_max_wait`"
    );

    tokio::time::advance(secs(31)).await;
    call(&client).await.unwrap();
    upstream.assert_calls(&[0, 60].map(secs));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_gives_up_says_for_how_long_it_has_waited() {
    let (limiter, policy) = (limiter(), per_minute("p", 1));
    let layer = ThrottleLayer::new(limiter.clone(), policy.clone(), "upstream").with_max_wait(secs(70));
    let client = layer.layer(Upstream::default());
    call(&client).await.unwrap();
    let waiting = tokio::spawn(async move { call(&client).await });
    sleep(secs(30)).await;
    limiter.record("upstream", &policy, 1).await.unwrap(); // now its turn is at 90 s, 20 s too late

    let said = waiting.await.unwrap().unwrap_err().to_string();
    assert!(said.contains("this call may wait for 70s, of which it has waited 30s; "), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_longer_or_a_shorter_wait_can_be_set() {
    let upstream = Upstream::default();
    let layer = ThrottleLayer::new(limiter(), per_minute("p", 2), "upstream");
    let (patient, hasty) = (layer.clone().with_max_wait(secs(61)), layer.with_max_wait(millis(1)));
    call(&hasty.layer(upstream.clone())).await.unwrap();
    call(&hasty.layer(upstream.clone())).await.unwrap();
    let error = call(&hasty.layer(upstream.clone())).await.unwrap_err();
    assert!(error.is::<Throttled>() && error.to_string().contains("this call may wait for 1ms; "), "{error}");
    call(&patient.layer(upstream.clone())).await.unwrap();
    upstream.assert_calls(&[0, 0, 60].map(secs));
}

#[tokio::test(start_paused = true)]
async fn without_a_wait_a_call_is_made_at_once_or_not_at_all() {
    let upstream = Upstream::default();
    let layer = ThrottleLayer::new(limiter(), per_minute("p", 2), "upstream").with_max_wait(millis(0));
    let client = layer.layer(upstream.clone());
    call(&client).await.unwrap();
    call(&client).await.unwrap();
    let error = call(&client).await.unwrap_err();
    assert!(error.is::<Throttled>() && error.to_string().contains("this call may wait for 0ns; "), "{error}");
    upstream.assert_calls(&[0, 0].map(secs));
}

#[tokio::test(start_paused = true)]
async fn a_call_for_which_the_queue_has_no_room_is_an_error_at_once() {
    let upstream = Upstream::default();
    let limiter = limiter().with_max_waiters(1, 10);
    let client = ThrottleLayer::new(limiter, per_minute("p", 1), "k").with_max_wait(secs(70)).layer(upstream.clone());
    call(&client).await.unwrap();
    let (waits, refused) = tokio::join!(call(&client), call(&client));
    waits.unwrap();
    let error = refused.unwrap_err();
    let throttled = error.downcast_ref::<Throttled>().unwrap();
    assert_eq!(throttled.decision().unwrap().source(), Source::WaitersFull);
    assert!(throttled.retry_after() >= Some(secs(59)), "{throttled:?}");
    assert_eq!(upstream.calls().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn keys_and_costs_come_from_the_request() {
    let upstream = Upstream::default();
    let client = ThrottleLayer::new(limiter(), per_minute("p", 10), "any")
        .with_key(|request: &EmptyRequest| Key::from(request.uri().host().unwrap()))
        .with_cost_fn(|request: &EmptyRequest| request.uri().query().map_or(1, |cost| cost.parse().unwrap()))
        .with_max_wait(millis(1))
        .layer(upstream.clone());
    let get = |uri: &str| client.clone().oneshot(Request::get(uri.to_owned()).body(()).unwrap());
    get("http://a/?9").await.unwrap();
    get("http://a/?2").await.unwrap_err();
    get("http://a/").await.unwrap();
    get("http://a/").await.unwrap_err();
    get("http://b/?10").await.unwrap();
    assert_eq!(upstream.calls().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_computed_cost_of_0_exempts_a_call_from_turns_pauses_and_charges() {
    let upstream = Upstream::first(429, &[("retry-after", "5")]);
    let limiter = limiter();
    let policy = per_minute("p", 1);
    let layer = ThrottleLayer::new(limiter.clone(), policy.clone(), "upstream");
    let exempt = layer.with_cost_fn(|_: &EmptyRequest| 0).layer(upstream.clone());
    for _ in 0..5 {
        call(&exempt).await.unwrap();
    }
    assert_eq!(upstream.calls(), [secs(0); 5]);
    assert_eq!(limiter.peek("upstream", &policy).await.unwrap().available(), Some(1));
    // The response to an exempt call may ask for a pause of the others.
    call(&ThrottleLayer::new(limiter, policy, "upstream").layer(upstream.clone())).await.unwrap();
    upstream.assert_calls(&[0, 0, 0, 0, 0, 5].map(secs));
}

#[tokio::test(start_paused = true)]
async fn dropped_calls_leave_the_queue_and_charge_nothing() {
    let upstream = Upstream::default();
    let client = ten_per_second().layer(upstream.clone());
    call(&client).await.unwrap();
    let mut dropped = client.clone();
    for _ in 0..10 {
        let call = dropped.ready().await.unwrap().call(EmptyRequest::default());
        timeout(millis(5), call).await.unwrap_err();
    }
    call(&client).await.unwrap();
    assert_eq!(upstream.calls().len(), 2);
    assert!(upstream.calls()[1] < millis(110), "{:?}", upstream.calls());
}

/// All calls are in one task, which does something else for ten seconds while their turns come.
#[tokio::test(start_paused = true)]
async fn calls_that_nothing_polls_in_their_turns_are_not_made_together_later() {
    let upstream = Upstream::default();
    let client = ten_per_second().with_max_wait(secs(60)).layer(upstream.clone());
    let calls = LocalSet::new();
    for _ in 0..20 {
        let client = client.clone();
        calls.spawn_local(async move { call(&client).await.unwrap() });
    }
    calls.run_until(yield_now()).await;
    sleep(secs(10)).await;
    calls.await;
    let times = upstream.calls();
    assert!(times.len() == 20 && times[1] >= secs(10), "{times:?}");
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= millis(90)), "{times:?}");
}

/// A store that judges at once, and whose answer takes 20 ms.
#[derive(Debug)]
struct DistantStore(MemoryStore);

impl Store for DistantStore {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        let (store, check) = (self.0.clone(), check.clone());
        Answer::pending(async move {
            let Answer::Ready(verdict) = store.check(&check) else { panic!("memory answers at once") };
            sleep(millis(20)).await;
            verdict
        })
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.0.reset(key, policy)
    }
}

/// A caller that is alone with its key reads the answer itself.
#[tokio::test(start_paused = true)]
async fn a_call_that_reads_the_answer_of_the_store_long_after_its_charge_takes_another_turn() {
    let upstream = Upstream::default();
    let layer = ThrottleLayer::new(Limiter::new(DistantStore(memory())), per_minute("p", 5), "upstream");
    let client = layer.with_max_wait(secs(300)).layer(upstream.clone());
    for (unpolled, expected) in [(secs(30), secs(30)), (secs(90), millis(120_020))] {
        let mut late = Box::pin(call(&client));
        timeout(secs(0), &mut late).await.unwrap_err();
        sleep(unpolled).await;
        assert_eq!(late.await.unwrap(), 200);
        let called = *upstream.calls().last().unwrap();
        assert!((expected..expected + millis(15)).contains(&called), "{called:?} after {unpolled:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_blocked_policy_makes_no_call_and_its_error_names_no_wait() {
    let upstream = Upstream::default();
    let client = ThrottleLayer::new(limiter(), Policy::blocked("suspended").unwrap(), "k").layer(upstream.clone());
    let error = call(&client).await.unwrap_err();
    assert_eq!(error.to_string(), "a policy of this call is blocked, so no call is made; use a policy with a limit");
    let throttled = error.downcast_ref::<Throttled>().unwrap();
    assert_eq!((throttled.retry_after(), throttled.decision().unwrap().source()), (None, Source::Policy));
    assert!(upstream.calls().is_empty());
}
