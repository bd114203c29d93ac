//! Requests that wait for their turn in front of the handler, by a clock that follows tokio's paused time.

use std::sync::{Arc, Mutex};
use std::{convert::Infallible, time::Duration};

use axum::{Router, body::Body};
use http::{Method, Response};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep, timeout};
use tollgate::policy::{FirstOf, HoldSettings};
use tollgate::{
    Algorithm, ErrorKind, GlobalKey, HeaderKey, Limiter, ManualClock, MemoryStore, Policy, RateLimitLayer, Route,
    clock::TokioClock, headers::PartitionKeys, middleware::Settlement, store::FailingStore,
};

use tower::{ServiceBuilder, limit::GlobalConcurrencyLimitLayer, service_fn};

use crate::support::app::{app, routes};
use crate::support::http::{Reply, get, get_with, request, send};
use crate::support::unhealthy_store::{Health, UnhealthyStore};
use crate::support::{recorder::Recorder, says};

const SHORT: Duration = Duration::from_millis(500);
/// By how many milliseconds each turn may be late: its sleep has two timers, which tick in milliseconds. A bucket with
/// a burst of 1 does not make up for it, so the turns of a queue add up.
const LATE: u128 = 3;

pub(super) fn store() -> MemoryStore {
    MemoryStore::new().with_clock(TokioClock::new())
}

/// `limit` a second, one after the other.
fn spaced(name: &str, limit: u64) -> Policy {
    Policy::per_second(name, limit).unwrap().with_algorithm(Algorithm::TokenBucket).with_burst(1)
}

fn layer(limiter: impl Into<Limiter>, policy: Policy) -> RateLimitLayer<GlobalKey> {
    RateLimitLayer::new(limiter, policy, GlobalKey).wait_up_to(SHORT)
}

/// A response, and how many milliseconds after the start it came.
pub(super) type Timed = (u128, Reply);

/// Starts requests, each of which has joined the queue before the next one starts.
pub(super) async fn start(app: &Router, count: usize) -> Vec<JoinHandle<Timed>> {
    let (mut requests, started) = (Vec::new(), Instant::now());
    for _ in 0..count {
        let app = app.clone();
        requests.push(tokio::spawn(async move {
            let reply = get(&app, "/").await;
            (started.elapsed().as_millis(), reply)
        }));
        yield_now().await;
    }
    requests
}

async fn ends_with_fields(requests: Vec<JoinHandle<Timed>>) -> Vec<String> {
    let mut fields = Vec::new();
    for request in requests {
        fields.push(request.await.unwrap().1.header("ratelimit").unwrap());
    }
    fields
}

fn app_of_any_path(limit: RateLimitLayer<GlobalKey>) -> Router {
    Router::new().fallback(|| async { "found" }).layer(limit)
}

async fn ends(requests: Vec<JoinHandle<Timed>>) -> Vec<(u128, u16)> {
    let mut ends = Vec::new();
    for request in requests {
        let (at, reply) = request.await.unwrap();
        ends.push((at, reply.status.as_u16()));
    }
    ends
}

/// The case of nginx's documentation: rate=10r/s, burst=5.
#[tokio::test(start_paused = true)]
async fn six_of_ten_a_second_pass_at_0_to_500_ms_and_the_seventh_is_refused_at_once() {
    let app = app(layer(store(), spaced("p", 10)).validated().unwrap());
    let mut requests = start(&app, 7).await;
    let (at, seventh) = requests.pop().unwrap().await.unwrap();
    assert_eq!((at, seventh.status.as_u16()), (0, 429));
    assert_eq!(seventh.header("retry-after").as_deref(), Some("1"));
    let ends = ends(requests).await;
    let near = |at: u128, turn: u128| (100 * turn..=(100 + LATE) * turn).contains(&at);
    let on_time = ends.iter().zip(0..=5).all(|((at, status), turn)| near(*at, turn) && *status == 200);
    assert!(on_time, "{ends:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_has_waited_gets_the_fields_of_its_verdict() {
    let app = app(layer(store(), Policy::new("p", 2, SHORT).unwrap()));
    let fields = ends_with_fields(start(&app, 3).await).await;
    assert_eq!(fields, [r#""p";r=1;t=1"#, r#""p";r=0;t=1"#, r#""p";r=1;t=1"#]);
}

#[tokio::test(start_paused = true)]
async fn the_fields_of_a_refusal_by_the_queue_have_the_partition_key() {
    let policy = spaced("p", 1).with_partition_keys(PartitionKeys::hmac("a secret of 16 bytes").unwrap());
    let app = app(layer(store(), policy));
    let keys: Vec<String> = ends_with_fields(start(&app, 2).await).await;
    assert!(keys[0].contains(";pk=") && keys[0].split_once(";pk=").unwrap().1 == keys[1].split_once(";pk=").unwrap().1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_leaves_the_queue() {
    let app = app(layer(store(), spaced("p", 10)));
    let mut requests = start(&app, 4).await;
    let gone = requests.remove(1);
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    let ends = ends(requests).await;
    assert!(ends.iter().all(|(at, status)| *at <= 206 && *status == 200), "{ends:?}");
}

#[tokio::test(start_paused = true)]
async fn each_key_has_a_queue_of_its_own() {
    let user = HeaderKey::new("x-user").unwrap();
    let app = app(RateLimitLayer::new(store(), spaced("p", 1), user).wait_up_to(2 * SHORT));
    for user in ["ann", "bob"] {
        assert_eq!(get_with(&app, "/", &[("x-user", user)]).await.status, 200);
    }
    let started = Instant::now();
    let (ann, bob) = tokio::join!(get_with(&app, "/", &[("x-user", "ann")]), get_with(&app, "/", &[("x-user", "bob")]));
    assert_eq!((ann.status.as_u16(), bob.status.as_u16()), (200, 200));
    assert!(started.elapsed() < Duration::from_millis(1_010), "{:?}", started.elapsed());
}

/// A larger cost fits later than the first unit comes back, which is all that a queue knows of a log.
#[tokio::test(start_paused = true)]
async fn law_5_retry_after_of_a_request_that_does_not_wait_is_that_of_its_cost() {
    let policy = Policy::new("p", 100, Duration::from_secs(10)).unwrap();
    let cost = |parts: &http::request::Parts| parts.uri.path()[1..].parse().unwrap_or(1);
    let app = app_of_any_path(layer(store(), policy).with_cost_fn(cost).validated().unwrap());
    assert_eq!(get(&app, "/1").await.status, 200);
    sleep(Duration::from_secs(6)).await;
    assert_eq!(get(&app, "/79").await.status, 200);
    for _ in 0..3 {
        let denied = get(&app, "/50").await;
        assert_eq!((denied.status.as_u16(), denied.header("retry-after").as_deref()), (429, Some("10")));
        assert_eq!(denied.header("ratelimit").as_deref(), Some(r#""p";r=20;t=4"#));
    }
}

/// The store, which counts exactly here, knows nothing of those who wait.
#[tokio::test(start_paused = true)]
async fn law_5_retry_after_of_a_request_that_does_not_wait_is_behind_those_that_do() {
    let policy = Policy::per_minute("p", 6).unwrap().with_algorithm(Algorithm::TokenBucket).with_burst(1);
    let app = app(layer(store(), policy).wait_up_to(Duration::from_secs(25)));
    let (at, refused) = start(&app, 4).await.pop().unwrap().await.unwrap();
    assert_eq!((at, refused.status.as_u16(), refused.header("retry-after").as_deref()), (0, 429, Some("30")));
}

/// Two of ten units are there. Others wait for five each, and the last one would have to wait for their window.
#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_wait_for_those_ahead_does_not_overtake_them() {
    let policy = Policy::new("p", 10, Duration::from_secs(10)).unwrap();
    let cost = |parts: &http::request::Parts| parts.uri.path()[1..].parse().unwrap_or(5);
    let app = app_of_any_path(layer(store(), policy).with_cost_fn(cost).wait_up_to(Duration::from_secs(7)));
    assert_eq!(get(&app, "/8").await.status, 200);
    sleep(Duration::from_secs(4)).await;
    let waiting = start(&app, 2).await;
    let refused = get(&app, "/1").await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after").as_deref()), (429, Some("10")));
    assert!(ends(waiting).await.iter().all(|(_, status)| *status == 200));
}

/// One of two units is there, and the other one comes back in five seconds. Another process takes the first meanwhile.
#[tokio::test(start_paused = true)]
async fn a_request_whose_units_another_process_takes_is_late_by_a_tenth_of_its_wait_at_most() {
    let (store, policy) = (store(), Policy::new("p", 2, Duration::from_secs(10)).unwrap());
    let other = app(layer(store.clone(), policy.clone()));
    let app = app(layer(store, policy).with_cost_fn(|_| 2).wait_up_to(Duration::from_secs(6)));
    assert_eq!(get(&other, "/").await.status, 200);
    sleep(Duration::from_secs(5)).await;
    let waiting = start(&app, 1).await;
    assert_eq!(get(&other, "/").await.status, 200);
    let ends = ends(waiting).await;
    assert!(matches!(ends[..], [(5_000..=5_010, 429)]), "{ends:?}");
}

/// The layer, around a service that has one place for all keys.
#[tokio::test(start_paused = true)]
async fn a_request_takes_a_place_in_the_service_when_its_turn_has_come() {
    let user = HeaderKey::new("x-user").unwrap();
    let limit = RateLimitLayer::new(store(), spaced("p", 4), user).wait_up_to(SHORT).validated().unwrap();
    let handler =
        service_fn(|_: axum::extract::Request| async { Ok::<_, Infallible>(Response::new(Body::from("done"))) });
    let place = GlobalConcurrencyLimitLayer::new(1);
    let service = ServiceBuilder::new().layer(limit).layer(place).service(handler);
    let request = |user: &str| request(Method::GET, "/", &[("x-user", user)]);
    assert_eq!(send(&service, request("ann")).await.status, 200);
    let started = Instant::now();
    let waiting = tokio::spawn({
        let (service, request) = (service.clone(), request("ann"));
        async move { send(&service, request).await.status }
    });
    yield_now().await;
    assert_eq!(send(&service, request("bob")).await.status, 200);
    assert_eq!(started.elapsed(), Duration::ZERO, "while a request of ann waits");
    assert_eq!(waiting.await.unwrap(), 200);
    assert!(started.elapsed() >= SHORT / 2);
}

#[tokio::test(start_paused = true)]
async fn what_no_wait_helps_is_refused_at_once() {
    let limit = layer(store(), Policy::per_minute("p", 5).unwrap());
    let too_much = app(limit.clone().with_cost_fn(|_| 9));
    let (app, started) = (app(limit), Instant::now());
    for _ in 0..5 {
        assert_eq!(get(&app, "/").await.status, 200);
    }
    assert_eq!(get(&app, "/").await.status, 429, "the window is longer than the wait");
    assert_eq!(get(&too_much, "/").await.status, 400);
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn without_a_verdict_the_failure_policy_decides_at_once_also_for_those_that_wait() {
    for (kind, open, closed) in [(ErrorKind::Unavailable, 200, 503), (ErrorKind::Deadline, 200, 503)] {
        let failing = FailingStore::over(store());
        let limit = layer(Limiter::new(failing.clone()), spaced("p", 10));
        let (limit_open, limit_closed) = (app(limit.clone()), app(limit.fail_closed()));
        failing.fail(kind);
        let started = Instant::now();
        for (app, status) in [(&limit_open, open), (&limit_closed, closed)] {
            assert_eq!(get(app, "/").await.status, status);
        }
        assert_eq!(started.elapsed(), Duration::ZERO);

        failing.recover();
        let mut requests = start(&limit_open, 3).await;
        requests.extend(start(&limit_closed, 1).await);
        sleep(Duration::from_millis(50)).await;
        failing.fail(kind);
        let ends = ends(requests).await;
        let statuses: Vec<u16> = ends.iter().map(|(_, status)| *status).collect();
        assert_eq!(statuses, [200, open, open, closed]);
        // Those behind the first one need not wait for their turns.
        assert!(ends.iter().all(|(at, _)| *at <= 103), "{ends:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_share_of_the_local_fallback_decides_at_once() {
    let failing = FailingStore::over(store());
    let limiter = Limiter::new(failing.clone()).with_local_fallback(store(), 2);
    let app = app(layer(limiter, Policy::new("p", 4, SHORT).unwrap()).fail_local().validated().unwrap());
    failing.fail(ErrorKind::Unavailable);
    let ends = ends(start(&app, 3).await).await;
    assert_eq!(ends, [(0, 200), (0, 200), (0, 429)]);
}

/// The share, which is the whole limit, has admitted three requests of unknown fate and seven that the store lacks.
#[tokio::test(start_paused = true)]
async fn law_1_requests_that_wait_keep_to_the_share_after_an_outage() {
    let clock = ManualClock::default();
    let memory = || MemoryStore::new().with_clock(clock.clone());
    let store = UnhealthyStore::new(Health::Silent).counting_in(memory());
    let limiter = Limiter::new(store.clone()).with_local_fallback(memory(), 1);
    let app = app(layer(limiter, Policy::per_minute("p", 10).unwrap()).fail_local().validated().unwrap());
    let admitted = async |requests: u32| {
        let mut admitted = 0;
        for _ in 0..requests {
            admitted += u32::from(get(&app, "/").await.status == 200);
        }
        admitted
    };
    assert_eq!(admitted(12).await, 10);
    store.set_health(Health::Healthy);
    sleep(2 * SHORT).await;
    assert_eq!(admitted(20).await, 0);
}

#[tokio::test(start_paused = true)]
async fn more_waiters_than_the_bound_are_refused_at_once_with_retry_after() {
    let limiter = Limiter::new(store()).with_max_waiters(2, 9);
    let app = app(layer(limiter, spaced("p", 10)));
    let mut requests = start(&app, 4).await;
    let (at, refused) = requests.pop().unwrap().await.unwrap();
    assert_eq!((at, refused.status.as_u16()), (0, 429));
    assert_eq!(refused.header("retry-after").as_deref(), Some("1"));
    assert!(ends(requests).await.iter().all(|(_, status)| *status == 200));
}

#[tokio::test(start_paused = true)]
async fn a_shadow_layer_lets_no_request_wait() {
    let app = app(layer(store(), spaced("p", 10)).with_shadow(true));
    let started = Instant::now();
    for _ in 0..3 {
        assert_eq!(get(&app, "/").await.status, 200);
    }
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_observer_sees_one_decision_for_each_request_with_its_wait_and_one_abandonment() {
    let recorder = Recorder::default();
    let limiter = Limiter::new(store()).with_observer(recorder.clone());
    let app = routes().layer(layer(limiter, spaced("p", 10)));
    let mut requests = start(&app, 3).await;
    requests.pop().unwrap().abort();
    assert!(timeout(SHORT, ends(requests)).await.is_ok());
    let seen = recorder.take();
    assert_eq!((seen.decisions.len(), seen.abandoned.len()), (2, 1), "{}", seen.debug);
    assert!(seen.debug.contains("elapsed: 0ns") && seen.debug.contains("elapsed: 10"), "{}", seen.debug);
}

#[test]
fn what_does_not_wait_is_a_mistake_of_the_layer() {
    let policy = || Policy::per_minute("p", 9).unwrap();
    let limit = |policy: Policy| layer(MemoryStore::new(), policy);
    let zero = limit(policy()).wait_up_to(Duration::ZERO);
    says(zero.validated().unwrap_err(), "a request that waits for at most 0 s does not wait; use a longer time");
    let held = limit(policy().with_holds(HoldSettings::new())).with_settlement(|_| Settlement::Held);
    says(held.validated().unwrap_err(), "`wait_up_to` and a settlement exclude each other; leave one out");
    let slots = limit(Policy::concurrent("uploads", 3).unwrap());
    says(slots.validated().unwrap_err(), "a request does not wait for a slot; leave `wait_up_to` out");
    let banned = limit(policy().ban_after(5, SHORT));
    says(banned.validated().unwrap_err(), "bans and counted denials have no meaning beside `wait_up_to`");
    let several = limit(policy()).and(spaced("q", 3), GlobalKey);
    says(several.validated().unwrap_err(), "a request waits for one limit; use a layer with one policy and one key");
    let on_route = limit(policy()).route("/a", Route::new().policies([policy(), spaced("q", 3)]));
    says(on_route.validated().unwrap_err(), "a request waits for one limit; ");
    let either = RateLimitLayer::new(MemoryStore::new(), FirstOf::new([policy(), spaced("q", 3)]), GlobalKey);
    says(either.wait_up_to(SHORT).validated().unwrap_err(), "a request waits for one limit; ");
}

#[tokio::test(start_paused = true)]
async fn requests_reach_the_handler_in_the_order_in_which_they_came() {
    let order: Arc<Mutex<Vec<String>>> = Arc::default();
    let handler = {
        let order = Arc::clone(&order);
        move |request: axum::extract::Request| async move { order.lock().unwrap().push(request.uri().to_string()) }
    };
    let app = Router::new().fallback(handler).layer(layer(store(), spaced("p", 100)));
    let paths: Vec<String> = (0..30).map(|number| format!("/{number}")).collect();
    let mut requests = Vec::new();
    for path in paths.clone() {
        let app = app.clone();
        requests.push(tokio::spawn(async move { get(&app, &path).await.status }));
        yield_now().await;
    }
    for request in requests {
        assert_eq!(request.await.unwrap(), 200);
    }
    assert_eq!(*order.lock().unwrap(), paths);
}
