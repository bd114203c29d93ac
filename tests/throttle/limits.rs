//! Several limits of one upstream.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use tokio::time::{Instant, sleep};
use tollgate::{Policy, ThrottleLayer, throttle::Throttled};
use tower::{Layer, ServiceExt, service_fn};

use super::upstream::{Upstream, call, limiter, millis, secs};
use crate::support::{counting::EmptyRequest, per_minute, says};

fn layer() -> ThrottleLayer {
    ThrottleLayer::new(limiter(), Policy::per_second("tokens", 100).unwrap(), "upstream").with_max_wait(secs(10))
}

fn requests(limit: u64) -> Policy {
    Policy::per_second("requests", limit).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_until_all_limits_of_its_upstream_have_room() {
    let upstream = Upstream::default();
    let throttle = layer().with_cost_fn(|_: &EmptyRequest| 40).and_limit(requests(3), 1);
    let client = throttle.layer(upstream.clone());
    for _ in 0..5 {
        call(&client).await.unwrap();
    }
    // Two calls of 40 tokens fit into a second.
    upstream.assert_calls(&[millis(0), millis(0), secs(1), secs(1), secs(2)]);

    let upstream = Upstream::default();
    let client = layer().and_limit_fn(requests(3), |_: &EmptyRequest| 1).layer(upstream.clone());
    for _ in 0..5 {
        call(&client).await.unwrap();
    }
    // Three calls fit into a second, whatever they cost.
    upstream.assert_calls(&[millis(0), millis(0), millis(0), secs(1), secs(1)]);

    let upstream = Upstream::default();
    let throttle = layer().with_cost(40).and_limit_fn(requests(3), |_: &EmptyRequest| 1);
    let client = throttle.layer(upstream.clone());
    for _ in 0..5 {
        call(&client).await.unwrap();
    }
    upstream.assert_calls(&[millis(0), millis(0), secs(1), secs(1), secs(2)]);
}

#[tokio::test(start_paused = true)]
async fn a_cost_that_a_further_limit_never_lets_pass_is_an_error() {
    let above = layer().and_limit(requests(3), 4).validated().unwrap_err();
    says(above, r#"a cost of 4 can never pass policy "requests", which lets at most 3 through at once; "#);
    let upstream = Upstream::default();
    let client = layer().fail_open().and_limit_fn(requests(3), |_: &EmptyRequest| 4).layer(upstream.clone());
    let error = call(&client).await.unwrap_err();
    assert!(error.downcast_ref::<Throttled>().unwrap().to_string().contains("can never pass"), "{error}");
    assert!(upstream.calls().is_empty());
}

/// Whether it comes first or not.
#[tokio::test(start_paused = true)]
async fn a_shadow_policy_refuses_no_cost_and_hides_none_that_another_limit_never_lets_pass() {
    let upstream = Upstream::default();
    let shadow = |name: &str| per_minute(name, 1).with_shadow(true);
    for (first, last) in [(shadow("first"), per_minute("last", 9)), (per_minute("first", 9), shadow("last"))] {
        for cost in [4, 3] {
            let layer = ThrottleLayer::new(limiter(), first.clone(), "upstream").with_cost_fn(|_: &EmptyRequest| 9);
            let layer = layer.and_limit_fn(requests(3), move |_: &EmptyRequest| cost);
            let client = layer.and_limit_fn(last.clone(), |_: &EmptyRequest| 9).layer(upstream.clone());
            match call(&client).await {
                Ok(_) => assert_eq!(cost, 3, "{first:?}"),
                Err(error) => says(error, "the cost of this call can never pass"),
            }
        }
    }
    assert_eq!(upstream.calls().len(), 2);
}

/// It would replace the costs of the further limits, which would then limit nothing.
#[test]
fn a_cost_after_further_limits_is_a_configuration_error_that_names_the_order() {
    let error = layer().and_limit(requests(3), 1).with_cost(2).validated().unwrap_err();
    says(error, "the cost would replace those of the further limits; call `with_cost` before `and_limit`");
}

/// Each call would be an error: the two would share one count.
#[tokio::test]
async fn two_limits_of_one_name_are_a_configuration_error_before_the_first_call() {
    let name = r#"two policies of one check are called "Tokens" "#;
    let twice = layer().and_limit(Policy::per_minute("Tokens", 500).unwrap(), 1);
    says(twice.validated().unwrap_err(), name);
    let further = layer().and_limit(requests(3), 1).and_limit(requests(3), 1);
    says(further.validated().unwrap_err(), r#"two policies of one check are called "requests" "#);
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_a_slot_and_for_a_rate() {
    let concurrent = Policy::concurrent("calls", 2).unwrap();
    let error = layer().and_limit(concurrent.clone(), 1).validated().unwrap_err();
    says(&error, r#"policy "calls" limits how much runs at once, "#);
    says(&error, "first one of a `ThrottleLayer`");

    // The shadow policy keeps no call back, and the rate does.
    for (is_shadow, expected) in [(false, [0, 0, 100, 1_000, 1_000]), (true, [0, 0, 0, 1_000, 1_000])] {
        let (calls, start) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
        let seen = Arc::clone(&calls);
        let upstream = service_fn(move |_: EmptyRequest| {
            seen.lock().unwrap().push(start.elapsed());
            async {
                sleep(millis(100)).await;
                Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello")))
            }
        });
        let concurrent = concurrent.clone().with_shadow(is_shadow);
        let throttle = ThrottleLayer::new(limiter(), concurrent, "upstream").hold_until_end();
        let client = throttle.and_limit(requests(3), 1).layer(upstream);
        let made: Vec<_> = (0..5).map(|_| tokio::spawn(client.clone().oneshot(EmptyRequest::default()))).collect();
        for made in made {
            drop(made.await.unwrap().unwrap());
        }
        let calls = calls.lock().unwrap().clone();
        for (call, expected) in calls.iter().zip(expected) {
            assert!(*call >= millis(expected) && *call < millis(expected + 15), "{is_shadow}: {calls:?}");
        }
    }
}
