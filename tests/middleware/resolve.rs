//! `resolve`: asynchronous keys.

use std::{
    convert::Infallible,
    future::{pending, ready},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, request::Parts};
use metrics::set_default_local_recorder;
use tokio::time::{Instant, sleep};
use tokio_test::{assert_pending, assert_ready_ok};
use tollgate::{
    ExtensionKey, MissingKey, RateLimitLayer,
    observe::Metrics,
    resolve::{Resolve, resolve},
};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_test::mock;
use tracing::Level;

use crate::support::{
    app::limiter,
    counting::{BytesResponse, CountingService, EmptyRequest},
    log::Log,
    per_minute,
    scrape::{assert_shows, recorder},
};

const SECOND: Duration = Duration::from_secs(1);
type Failure = &'static str;

/// Responds with the number in the extensions.
async fn number(request: EmptyRequest) -> Result<Response<Option<u64>>, Infallible> {
    Ok(Response::new(request.extensions().get().copied()))
}

#[tokio::test(start_paused = true)]
async fn what_is_found_is_in_the_extensions_and_what_is_not_found_is_not() {
    let slow = resolve(|_: &Parts| async {
        sleep(SECOND).await;
        Some(17_u64)
    });
    let start = Instant::now();
    let response = slow.layer(service_fn(number)).oneshot(Request::new(())).await.unwrap();
    assert_eq!((response.into_body(), start.elapsed()), (Some(17), SECOND));

    let none = resolve(|_: &Parts| ready(Ok::<Option<u64>, Failure>(None)));
    assert_eq!(none.layer(service_fn(number)).oneshot(Request::new(())).await.unwrap().into_body(), None);
}

#[tokio::test]
async fn each_user_that_is_resolved_has_a_budget() {
    let find = |parts: &Parts| ready(parts.headers.get("session").map(|value| value.as_bytes().len() as u64));
    let limit = RateLimitLayer::new(limiter(), per_minute("p", 1), ExtensionKey::<u64>::new());
    let service = ServiceBuilder::new().layer(resolve(find)).layer(limit).service(CountingService::default());
    for (session, status) in [("a", 200), ("bb", 200), ("a", 429), ("bb", 429)] {
        let request = Request::get("/").header("session", session).body(()).unwrap();
        assert_eq!(service.clone().oneshot(request).await.unwrap().status(), status);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_resolution_is_a_missing_key_and_lifts_no_limit() {
    let fails = resolve(|_: &Parts| ready(Err::<Option<u64>, Failure>("the session store is away"))).without_notices();
    let key = ExtensionKey::<u64>::new();
    let limit = RateLimitLayer::new(limiter(), per_minute("p", 1), key);
    let service = |limit| ServiceBuilder::new().layer(fails.clone()).layer(limit).service(CountingService::default());
    let refused = service(limit.clone());
    for _ in 0..3 {
        let response = refused.clone().oneshot(Request::new(())).await.unwrap();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
    let shared = service(limit.on_missing_key(MissingKey::ShareOneKey));
    for status in [200, 429] {
        assert_eq!(shared.clone().oneshot(Request::new(())).await.unwrap().status(), status);
    }
}

#[tokio::test(start_paused = true)]
async fn a_resolution_that_hangs_ends_at_its_timeout() {
    let (recorder, handle) = recorder();
    let _guard = set_default_local_recorder(&recorder);
    let hangs = resolve(|_: &Parts| pending::<Option<u64>>()).with_timeout(SECOND * 2).with_observer(Metrics::new());
    let start = Instant::now();
    let response = hangs.without_notices().layer(service_fn(number)).oneshot(Request::new(())).await.unwrap();
    assert_eq!((response.into_body(), start.elapsed().as_secs()), (None, 2));
    assert_shows(&handle, &[r#"tollgate_resolve_failures_total{cause="timed_out"} 1"#]);
}

#[tokio::test(start_paused = true)]
async fn law_13_failed_resolutions_are_reported_once_and_say_why() {
    let (log, _guard) = Log::start(Level::WARN);
    let fails = resolve(|_: &Parts| ready(Err::<Option<u64>, Failure>("the session store is away")));
    let service = fails.layer(service_fn(number));
    for _ in 0..5 {
        service.clone().oneshot(Request::new(())).await.unwrap();
    }
    let lines = log.take();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let said = "WARN tollgate::resolve: A request was not resolved: the session store is away. It has no extension u64";
    assert!(lines[0].starts_with(said), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn law_7_poll_ready_is_forwarded_and_resolves_nothing() {
    let resolved = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&resolved);
    let layer = resolve(move |_: &Parts| {
        count.fetch_add(1, Ordering::SeqCst);
        ready(Some(17_u64))
    });
    let (mut client, mut handle) = mock::spawn_layer::<EmptyRequest, BytesResponse, _>(layer);
    handle.allow(0);
    assert_pending!(client.poll_ready());
    handle.allow(1);
    assert!(client.is_woken(), "the caller is woken by the inner service");
    for _ in 0..100 {
        assert_ready_ok!(client.poll_ready());
    }
    assert_eq!(resolved.load(Ordering::SeqCst), 0);
}

/// The mock panics if a clone is called that was not polled ready.
#[tokio::test(start_paused = true)]
async fn law_7_the_instance_that_was_polled_ready_is_called_and_its_error_passes() {
    let layer = resolve(|_: &Parts| async {
        sleep(SECOND).await;
        Some(17_u64)
    });
    let (mut client, mut handle) = mock::spawn_layer::<EmptyRequest, BytesResponse, _>(layer);
    for fails in [false, true, false] {
        handle.allow(1);
        assert_ready_ok!(client.poll_ready());
        let (response, ()) = tokio::join!(client.call(EmptyRequest::default()), async {
            let (request, respond) = handle.next_request().await.unwrap();
            assert_eq!(request.extensions().get(), Some(&17_u64));
            match fails {
                true => respond.send_error("reset by peer"),
                false => respond.send_response(Response::new(Bytes::from("hello"))),
            }
        });
        match response {
            Ok(response) => assert!(!fails && response.body() == "hello"),
            Err(error) => assert!(fails && error.to_string() == "reset by peer"),
        }
        // The instance that remains has no reservation.
        assert_pending!(client.poll_ready());
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_while_it_is_resolved_reaches_no_service() {
    let inner = CountingService::default();
    let mut service: Resolve<_, _> = resolve(|_: &Parts| pending::<Option<u64>>()).layer(inner.share());
    let response = service.ready().await.unwrap().call(EmptyRequest::default());
    assert!(tokio::time::timeout(SECOND, response).await.is_err());
    assert_eq!(inner.calls(), 0);
}
