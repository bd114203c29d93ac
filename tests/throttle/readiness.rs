//! The contract of tower: the instance that was polled ready is the one that is called. A call asks the client for a
//! place when its turn has come, and not before.

use http::{Request, Response};
use tokio::time::timeout;
use tokio_test::{assert_pending, assert_ready_ok};
use tollgate::{Key, Limiter, Policy, ThrottleLayer, throttle::Throttled};
use tower::{Service, ServiceBuilder, ServiceExt, buffer::Buffer};
use tower_test::mock;

use super::upstream::{Upstream, call, limiter, memory, millis, secs};
use crate::support::counting::{BytesResponse, CountingStore, EmptyRequest};
use crate::support::{PendingStore, per_minute};

fn layer(limiter: Limiter, limit: u64) -> ThrottleLayer {
    ThrottleLayer::new(limiter, per_minute("p", limit), "upstream")
}

#[tokio::test(start_paused = true)]
async fn law_7_poll_ready_of_a_client_takes_no_place_and_charges_nothing() {
    let store = CountingStore::new(memory());
    let (mut client, mut handle) =
        mock::spawn_layer::<EmptyRequest, BytesResponse, _>(layer(Limiter::new(store.clone()), 1));
    handle.allow(0);
    for _ in 0..100 {
        assert_ready_ok!(client.poll_ready());
    }
    // A call that is never polled charges nothing either.
    drop(client.call(EmptyRequest::default()));
    tokio::time::sleep(secs(1)).await;
    assert_eq!(store.sent(), 0);
}

/// The mock panics if a clone is called that was not polled ready.
#[tokio::test(start_paused = true)]
async fn law_7_a_client_calls_the_instance_that_was_polled_ready() {
    for limiter in [limiter(), Limiter::new(PendingStore(memory()))] {
        let (mut client, mut handle) = mock::spawn_layer::<EmptyRequest, BytesResponse, _>(layer(limiter, 1));
        for _ in 0..3 {
            handle.allow(0);
            assert_ready_ok!(client.poll_ready());
            let mut called = tokio_test::task::spawn(client.call(EmptyRequest::default()));
            assert_pending!(called.poll());
            tokio::time::sleep(millis(10)).await;
            assert_pending!(called.poll(), "its turn has come, and the client has no place yet");
            handle.allow(1);
            let (response, ()) = tokio::join!(called, async {
                let (_, respond) = handle.next_request().await.unwrap();
                respond.send_response(Response::new(bytes::Bytes::from("hello")));
            });
            assert_eq!(response.unwrap().body(), "hello");
            tokio::time::sleep(secs(60)).await;
        }
    }
}

/// A channel of tonic is a buffer of 1 024 places.
#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_its_turn_takes_no_place_of_the_client() {
    type Tenant = Request<()>;
    let upstream = Upstream::default();
    let throttle = ThrottleLayer::new(limiter(), per_minute("p", 1), "any")
        .with_key(|request: &Tenant| Key::from(request.uri().path()))
        .with_max_wait(secs(100_000));
    let client = ServiceBuilder::new().layer(throttle).service(Buffer::new(upstream.clone(), 1_024));
    let call = |tenant: &str| client.clone().oneshot(Request::get(tenant).body(()).unwrap());
    for _ in 0..1_200 {
        tokio::spawn(call("/busy"));
    }
    tokio::time::sleep(millis(10)).await;
    assert_eq!(upstream.calls().len(), 1);
    timeout(millis(1), call("/quiet")).await.expect("each key has its own queue").unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_longest_wait_includes_the_wait_for_a_place_of_the_client() {
    let upstream = Upstream::default().with_latency(secs(60));
    let inner = ServiceBuilder::new().concurrency_limit(1).service(upstream.clone());
    let client = ServiceBuilder::new().layer(layer(limiter(), 10).with_max_wait(millis(100))).service(inner);
    tokio::spawn({
        let client = client.clone();
        async move { call(&client).await }
    });
    tokio::time::sleep(millis(1)).await;
    let error = timeout(secs(1), call(&client)).await.expect("within 100 ms").unwrap_err();
    let throttled = error.downcast_ref::<Throttled>().unwrap();
    assert!(throttled.to_string().contains("the client had no room"), "{throttled}");
    assert_eq!(upstream.elapsed(), millis(101));
    tokio::time::sleep(secs(120)).await;
    assert_eq!(upstream.calls().len(), 1, "the call is not made later");
}

/// The number of charges for two calls, of which the client has room for the second one after 90 s.
async fn charges_of_two_calls(layer: impl FnOnce(Limiter) -> ThrottleLayer) -> usize {
    let store = CountingStore::new(memory());
    let upstream = Upstream::default().with_latency(secs(90));
    let inner = ServiceBuilder::new().concurrency_limit(1).service(upstream.clone());
    let throttle = layer(Limiter::new(store.clone())).with_max_wait(secs(1_000));
    let client = ServiceBuilder::new().layer(throttle).service(inner);
    let calls = (0..2).map(|_| {
        let client = client.clone();
        tokio::spawn(async move { call(&client).await.unwrap() })
    });
    for called in calls.collect::<Vec<_>>() {
        assert_eq!(called.await.unwrap(), 200);
    }
    upstream.assert_calls(&[secs(0), secs(90)]);
    store.sent()
}

/// What was charged for a call that waits for longer than a window has left the window when the call is made.
#[tokio::test(start_paused = true)]
async fn a_call_takes_another_turn_if_the_client_has_room_only_after_a_window() {
    assert_eq!(charges_of_two_calls(|limiter| layer(limiter, 10)).await, 3, "the second call was charged again");
}

#[tokio::test(start_paused = true)]
async fn a_call_takes_another_turn_after_the_window_of_any_limit_that_is_enforced() {
    let (minute, hour) = (per_minute("minute", 10), Policy::per_hour("hour", 1_000).unwrap());
    let shadow = || minute.clone().with_shadow(true);
    for (first, further, charges) in [
        (hour.clone(), minute.clone(), 3),
        (minute.clone(), hour.clone(), 3),
        (hour.clone(), shadow(), 2),
        (shadow(), hour.clone(), 2),
    ] {
        let names = (first.clone(), further.clone());
        let layer = |limiter: Limiter| ThrottleLayer::new(limiter, first, "upstream").and_limit(further, 1);
        assert_eq!(charges_of_two_calls(layer).await, charges, "{names:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_made_takes_no_place() {
    let upstream = Upstream::default();
    let inner = ServiceBuilder::new().concurrency_limit(1).service(upstream.clone());
    let mut client = ServiceBuilder::new().layer(layer(limiter(), 1)).service(inner);
    call(&client).await.unwrap();
    let error = client.ready().await.unwrap().call(EmptyRequest::default()).await.unwrap_err();
    assert!(error.is::<Throttled>());
    tokio::time::sleep(secs(60)).await;
    timeout(millis(1), call(&client)).await.expect("the permit is free").unwrap();
    assert_eq!(upstream.calls().len(), 2);
}
