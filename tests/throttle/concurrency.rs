//! Concurrency limits and other policies with holds: a call holds until the body of its response has ended.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{convert::Infallible, error::Error as _, future::ready, io, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Body as _;
use http_body_util::{BodyExt, Full};
use tokio::time::{Instant, sleep, timeout};
use tollgate::throttle::{Throttled, ThrottledBody};
use tollgate::{ConfigError, ErrorKind, Limiter, Policy, ThrottleLayer, policy::HoldSettings, store::FailingStore};
use tower::{BoxError, Layer, ServiceBuilder, ServiceExt, service_fn, util::BoxCloneService};

use super::upstream::{Upstream, call, limiter, memory, millis, secs};
use crate::support::{counting::EmptyRequest, per_minute, says};

fn calls(limit: u64) -> Policy {
    Policy::concurrent("calls", limit).unwrap()
}

type HeldResponse = Response<ThrottledBody<Full<Bytes>>>;
type Client = BoxCloneService<EmptyRequest, HeldResponse, BoxError>;

/// A client whose responses take 100 ms, unless it `fails`, and the most of its calls that were under way at once.
fn client(throttle: ThrottleLayer, fails: bool) -> (Client, Arc<AtomicUsize>) {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&most);
    let client = service_fn(move |_: EmptyRequest| {
        let (running, most) = (Arc::clone(&running), Arc::clone(&most));
        async move {
            most.fetch_max(1 + running.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
            sleep(millis(100)).await;
            running.fetch_sub(1, Ordering::SeqCst);
            if fails { Err(io::Error::other("reset")) } else { Ok(Response::new(Full::<Bytes>::from("hello"))) }
        }
    });
    (BoxCloneService::new(throttle.hold_until_end().layer(client)), seen)
}

async fn send(client: &Client) -> Result<HeldResponse, BoxError> {
    client.clone().oneshot(EmptyRequest::default()).await
}

#[tokio::test(start_paused = true)]
async fn at_most_so_many_calls_are_under_way_as_the_policy_says_and_all_are_made() {
    let (client, most) = client(ThrottleLayer::new(limiter(), calls(5), "upstream").fail_open(), false);
    let started = Instant::now();
    let made: Vec<_> = (0..50).map(|_| tokio::spawn(client.clone().oneshot(EmptyRequest::default()))).collect();
    for made in made {
        // Dropped here, which ends the call.
        made.await.unwrap().unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 5);
    assert!(started.elapsed() < secs(5), "in turns of 5: {:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_held_until_the_body_has_ended_or_was_dropped() {
    let throttle = ThrottleLayer::new(limiter(), calls(1), "upstream").with_max_wait(secs(1));
    let (client, _) = client(throttle, false);
    for is_read in [false, true] {
        let response = send(&client).await.unwrap();
        assert!(send(&client).await.unwrap_err().is::<Throttled>(), "the first response has not been read");
        let started = Instant::now();
        let next = tokio::spawn(client.clone().oneshot(EmptyRequest::default()));
        sleep(millis(10)).await;
        if is_read {
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
        } else {
            drop(response);
        }
        drop(next.await.unwrap().unwrap());
        assert!(started.elapsed() < millis(115), "made as soon as the slot was free: {:?}", started.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn law_15_a_call_that_fails_or_goes_away_gives_its_slot_back() {
    let throttle = ThrottleLayer::new(limiter(), calls(1), "upstream").with_max_wait(secs(1));
    let (failing, _) = client(throttle.clone(), true);
    let (client, _) = client(throttle, false);
    assert!(send(&failing).await.unwrap_err().is::<io::Error>());
    timeout(millis(50), send(&client)).await.expect_err("dropped while the client answers");
    let response = timeout(millis(150), send(&client)).await.expect("the slot is free").unwrap();
    timeout(millis(50), send(&client)).await.expect_err("dropped while it waits for the slot");
    drop(response);
    timeout(millis(150), send(&client)).await.expect("the slot is free").unwrap();
}

/// A caller may look at the error while the future of the call is still in its scope.
#[tokio::test(start_paused = true)]
async fn law_15_a_call_that_has_failed_keeps_no_slot_while_its_future_lives() {
    let throttle = ThrottleLayer::new(limiter(), calls(1), "upstream").with_max_wait(secs(1));
    let (failing, _) = client(throttle.clone(), true);
    let (client, _) = client(throttle, false);
    let mut failed = pin!(failing.oneshot(EmptyRequest::default()));
    failed.as_mut().await.unwrap_err();
    timeout(millis(150), send(&client)).await.expect("the slot is free").unwrap();
}

/// Without it, nothing would give the slots back.
#[tokio::test(start_paused = true)]
async fn law_14_a_concurrency_limit_makes_no_call_unless_the_layer_holds_until_the_end() {
    let upstream = Upstream::default();
    let layer = ThrottleLayer::new(limiter(), calls(5), "upstream");
    assert!(layer.clone().hold_until_end().validated().is_ok());
    for layer in [layer.clone(), layer.fail_open()] {
        says(layer.clone().validated().unwrap_err(), "hold_until_end");
        let client = layer.layer(upstream.clone());
        for _ in 0..50 {
            let error = call(&client).await.unwrap_err();
            let throttled = error.downcast_ref::<Throttled>().unwrap();
            assert!(!throttled.to_string().contains("fail_open"), "{throttled}");
            let source = throttled.source().unwrap();
            let error: &ConfigError = source.downcast_ref().unwrap();
            says(error, "limits how many calls are under way at once, and nothing would give a slot back");
            says(error, "hold_until_end");
        }
    }
    assert!(upstream.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn law_14_an_error_of_configuration_makes_no_call_under_any_failure_policy() {
    let store = FailingStore::over(memory());
    store.fail(ErrorKind::InvalidCall);
    let limiter = Limiter::new(store).without_notices();
    let upstream = Upstream::default();
    let policy = Policy::per_minute("p", 10).unwrap();
    let client = ThrottleLayer::new(limiter, policy, "upstream").fail_open().layer(upstream.clone());
    let error = call(&client).await.unwrap_err();
    assert!(!error.to_string().contains("fail_open"), "{error}");
    assert!(upstream.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_a_call_holds_is_charged_when_its_response_has_ended() {
    // What is released without a settlement is charged too: the upstream has answered.
    for released in [false, true] {
        let limiter = limiter();
        let holds = HoldSettings::new().with_unsettled_released(released);
        let tokens = Policy::per_minute("tokens", 10).unwrap().with_holds(holds);
        let throttle = ThrottleLayer::new(limiter.clone(), tokens.clone(), "upstream");
        let (client, _) = client(throttle, false);
        let response = send(&client).await.unwrap();
        sleep(Duration::from_secs(30)).await;
        drop(response);
        sleep(Duration::from_secs(40)).await;
        assert_eq!(limiter.peek("upstream", &tokens).await.unwrap().available(), Some(9), "charged after 30 s");
        sleep(Duration::from_secs(30)).await;
        assert_eq!(limiter.peek("upstream", &tokens).await.unwrap().available(), Some(10));
    }
}

/// The client has a place for the second call when the first response has come, which asks for a pause.
#[tokio::test(start_paused = true)]
async fn a_call_that_takes_another_turn_gives_back_what_it_held() {
    let limiter = limiter();
    let tokens = Policy::per_minute("tokens", 1_000).unwrap().with_holds(HoldSettings::new());
    let upstream = Upstream::first(429, &[("retry-after", "2")]).with_latency(secs(1));
    let client = ServiceBuilder::new()
        .layer(ThrottleLayer::new(limiter.clone(), tokens.clone(), "upstream").hold_until_end())
        .concurrency_limit(1)
        .map_response(|response: Response<()>| response.map(|()| Full::<Bytes>::default()))
        .service(upstream.clone());
    let made: Vec<_> = (0..2).map(|_| tokio::spawn(client.clone().oneshot(EmptyRequest::default()))).collect();
    for made in made {
        drop(made.await.unwrap().unwrap());
    }
    let called = upstream.calls();
    assert!(called.len() == 2 && called[1] >= secs(3), "{called:?}");
    assert_eq!(limiter.peek("upstream", &tokens).await.unwrap().available(), Some(998), "two calls were made");
}

/// The client has a place for the second call after 90 s.
#[tokio::test(start_paused = true)]
async fn a_call_that_holds_a_slot_takes_another_turn_after_the_window_of_a_further_limit() {
    let (limiter, hour) = (limiter(), Policy::per_hour("hour", 1_000).unwrap());
    let upstream = Upstream::default().with_latency(secs(90));
    let throttle = ThrottleLayer::new(limiter.clone(), calls(5), "upstream").hold_until_end();
    let throttle = throttle.and_limit(per_minute("minute", 10), 1).and_limit(hour.clone(), 1);
    let client = ServiceBuilder::new()
        .layer(throttle.with_max_wait(secs(1_000)))
        .concurrency_limit(1)
        .map_response(|response: Response<()>| response.map(|()| Full::<Bytes>::default()))
        .service(upstream.clone());
    let made: Vec<_> = (0..2).map(|_| tokio::spawn(client.clone().oneshot(EmptyRequest::default()))).collect();
    for made in made {
        drop(made.await.unwrap().unwrap());
    }
    upstream.assert_calls(&[secs(0), secs(90)]);
    sleep(millis(1)).await;
    assert_eq!(limiter.peek("upstream", &calls(5)).await.unwrap().available(), Some(5), "all slots are free");
    assert_eq!(limiter.peek("upstream", &hour).await.unwrap().available(), Some(997), "one call was charged again");
}

#[tokio::test(start_paused = true)]
async fn a_policy_without_holds_is_charged_before_the_call_whose_body_carries_nothing() {
    let throttle = ThrottleLayer::new(limiter(), Policy::per_minute("p", 1).unwrap(), "upstream");
    let (client, _) = client(throttle, false);
    let response = send(&client).await.unwrap();
    assert!(send(&client).await.unwrap_err().is::<Throttled>());
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
}

/// A reader that knows that a frame is the last one may keep the body.
#[tokio::test(start_paused = true)]
async fn a_body_passes_as_it_is_and_frees_its_slot_with_its_last_frame() {
    let limiter = limiter();
    let upstream = service_fn(|request: EmptyRequest| async move {
        let (hello, trailers) = (Full::<Bytes>::from("hello"), ready(Some(Ok(HeaderMap::new()))));
        let body = match request.uri().path() {
            "/trailers" => hello.with_trailers(trailers).boxed(),
            _ => hello.boxed(),
        };
        Ok::<_, Infallible>(Response::new(body))
    });
    let client = ThrottleLayer::new(limiter.clone(), calls(1), "upstream").hold_until_end().layer(upstream);
    let body_of = async |path: &str| {
        let request = Request::get(path).body(()).unwrap();
        client.clone().oneshot(request).await.unwrap().into_body()
    };
    let free = async || {
        // A slot may be given back in the background.
        sleep(millis(1)).await;
        limiter.peek("upstream", &calls(1)).await.unwrap().available()
    };

    let mut body = body_of("/").await;
    assert_eq!((body.size_hint().exact(), body.is_end_stream(), free().await), (Some(5), false, Some(0)));
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "hello");
    assert_eq!((body.is_end_stream(), free().await), (true, Some(1)));

    let mut with_trailers = body_of("/trailers").await;
    assert!(with_trailers.frame().await.unwrap().unwrap().is_data());
    assert_eq!(free().await, Some(0), "the trailers are left");
    assert!(with_trailers.frame().await.unwrap().unwrap().is_trailers());
    assert!(with_trailers.frame().await.is_none());
    assert_eq!(free().await, Some(1));
}
