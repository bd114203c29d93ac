//! The contract of tower: readiness is forwarded, and the instance that was polled ready is the one that is called.

use http::Response;
use tokio_test::{assert_pending, assert_ready_ok};
use tollgate::{Limiter, ThrottleLayer, throttle::Throttled};
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_test::mock;

use super::upstream::{Upstream, call, limiter, memory, millis, secs};
use crate::support::{
    PendingStore,
    counting::{BytesResponse, CountingStore, EmptyRequest},
    per_minute,
};

fn layer(limiter: Limiter, limit: u32) -> ThrottleLayer {
    ThrottleLayer::new(limiter, per_minute("p", limit), "upstream")
}

#[tokio::test(start_paused = true)]
async fn law_7_poll_ready_of_a_client_is_forwarded_and_charges_nothing() {
    let store = CountingStore::new(memory());
    let (mut client, mut handle) =
        mock::spawn_layer::<EmptyRequest, BytesResponse, _>(layer(Limiter::new(store.clone()), 1));
    handle.allow(0);
    assert_pending!(client.poll_ready());
    handle.allow(1);
    assert!(client.is_woken(), "the caller is woken by the inner service");
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
            handle.allow(1);
            assert_ready_ok!(client.poll_ready());
            let (response, ()) = tokio::join!(client.call(EmptyRequest::default()), async {
                let (_, respond) = handle.next_request().await.unwrap();
                respond.send_response(Response::new(bytes::Bytes::from("hello")));
            });
            assert_eq!(response.unwrap().body(), "hello");
            // The instance that remains has no reservation.
            assert_pending!(client.poll_ready());
            tokio::time::sleep(secs(60)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_made_gives_its_reservation_back() {
    let upstream = Upstream::default();
    let inner = ServiceBuilder::new().concurrency_limit(1).service(upstream.clone());
    let mut client = ServiceBuilder::new().layer(layer(limiter(), 1)).service(inner);
    call(&client).await.unwrap();
    let error = client.ready().await.unwrap().call(EmptyRequest::default()).await.unwrap_err();
    assert!(error.is::<Throttled>());
    tokio::time::sleep(secs(60)).await;
    tokio::time::timeout(millis(1), call(&client)).await.expect("the permit is free").unwrap();
    assert_eq!(upstream.calls().len(), 2);
}
