//! Concurrency limits: a slot is held until the response body has ended, and renewed meanwhile.

use std::{convert::Infallible, time::Duration};

use axum::{Router, body::Body, routing::get};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::time::sleep;
use tollgate::store::SettleAnswer::{Expired, Settled};
use tollgate::{
    Check, ErrorKind, HeaderStyle, Limiter, ManualClock, MemoryStore, Policy, RateLimitLayer, clock::TokioClock,
    middleware::Bill, policy::HoldSettings,
};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use super::{Frames, Ledger, left, one_client, request, settle_in_background, tokens, uploads};

/// An upload that streams until its client goes away, without a word of `settle`.
fn app(limiter: Limiter, policy: Policy) -> Router {
    let stream = || async { Body::new(Frames::of(["a"]).then_stays_open()) };
    Router::new().route("/", get(stream)).layer(RateLimitLayer::new(limiter, policy, one_client()).fail_closed())
}

async fn get_from(app: &Router) -> Response<Body> {
    app.clone().oneshot(request()).await.unwrap()
}

#[tokio::test]
async fn three_bodies_at_once_and_the_fourth_when_one_has_ended() {
    for ledger in [Ledger::default(), Ledger::slow()] {
        let app = app(ledger.limiter(), uploads());
        let mut open = Vec::new();
        for left in ["2", "1", "0"] {
            let response = get_from(&app).await;
            assert_eq!(response.status(), 200);
            let field = response.headers()["ratelimit"].to_str().unwrap();
            assert!(field.starts_with(&format!("\"uploads\";r={left}")), "{field}");
            open.push(response);
        }
        for _ in 0..2 {
            assert_eq!(get_from(&app).await.status(), 429);
        }
        drop(open.pop());
        settle_in_background().await;
        open.push(get_from(&app).await);
        assert_eq!(open[2].status(), 200);
        assert_eq!(get_from(&app).await.status(), 429);
        open.clear();
        settle_in_background().await;
        assert_eq!(ledger.settlements(), [(0, Settled); 4]);
        assert_eq!(left(&ledger.limiter(), &uploads()).await, 3);
    }
}

#[tokio::test]
async fn clients_see_the_unit_and_no_window() {
    let app = app(Ledger::default().limiter(), uploads());
    let open = [get_from(&app).await, get_from(&app).await, get_from(&app).await];
    assert_eq!(open[0].headers()["ratelimit-policy"], r#""uploads";q=3;qu="concurrent-requests""#);
    assert_eq!(open[0].headers()["ratelimit"], r#""uploads";r=2;t=1"#);
    let refused = get_from(&app).await;
    assert_eq!(refused.headers()["ratelimit-policy"], r#""uploads";q=3;qu="concurrent-requests""#);
    assert_eq!(
        (&refused.headers()["ratelimit"], &refused.headers()["retry-after"]),
        (&http::HeaderValue::from_static(r#""uploads";r=0;t=1"#), &http::HeaderValue::from_static("1"),)
    );
}

#[tokio::test]
async fn styles_with_a_reset_show_the_typical_duration() {
    let limit = RateLimitLayer::new(Ledger::default().limiter(), uploads(), one_client());
    let app = Router::new().route("/", get(|| async {})).layer(limit.with_headers(HeaderStyle::XRateLimitDelta));
    let response = get_from(&app).await;
    let field = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(["limit", "remaining", "reset"].map(|name| field(&format!("x-ratelimit-{name}"))), ["3", "2", "1"]);
}

#[tokio::test]
async fn retry_after_is_the_typical_duration() {
    let policy = uploads().with_holds(HoldSettings::new().with_typical_duration(Duration::from_millis(4_200)));
    let app = app(Ledger::default().limiter(), policy);
    let _open = [get_from(&app).await, get_from(&app).await, get_from(&app).await];
    assert_eq!(get_from(&app).await.headers()["retry-after"], "5");
}

#[tokio::test]
async fn a_body_that_is_complete_gives_its_slot_back_when_it_is_read() {
    let ledger = Ledger::default();
    let policy = Policy::concurrent("one", 1).unwrap();
    let limit = RateLimitLayer::new(ledger.limiter(), policy, one_client());
    let app = Router::new().route("/", get(|| async { "hello" })).layer(limit);
    for _ in 0..3 {
        let response = get_from(&app).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
    }
    assert_eq!(ledger.settlements(), [(0, Settled); 3]);
}

/// A server keeps such a response for as long as it takes to write the head.
#[tokio::test]
async fn a_response_without_content_gives_its_slot_back_before_it_is_dropped() {
    let ledger = Ledger::default();
    let limit = RateLimitLayer::new(ledger.limiter(), uploads(), one_client());
    let response = get_from(&Router::new().route("/", get(|| async {})).layer(limit)).await;
    assert_eq!(ledger.settlements(), [(0, Settled)]);
    drop(response);
    assert_eq!(ledger.settlements().len(), 1);
}

#[tokio::test]
async fn a_bill_and_the_policy_of_unsettled_holds_charge_no_slot() {
    let ledger = Ledger::default();
    let policy = uploads().with_holds(HoldSettings::new().with_unsettled_released(false));
    let limit = RateLimitLayer::new(ledger.limiter(), policy.clone(), one_client());
    let handler = |bill: axum::Extension<Bill>| async move { bill.set_cost(3) };
    let fails = || async {
        if true {
            panic!("the handler of a test")
        }
    };
    let app = Router::new().route("/", get(handler)).route("/panics", get(fails)).layer(limit);
    drop(get_from(&app).await);
    let panics = app.oneshot(Request::get("/panics").body(Body::empty()).unwrap());
    assert!(tokio::spawn(panics).await.is_err());
    assert_eq!(ledger.settlements(), [(0, Settled); 2]);
    assert_eq!(left(&ledger.limiter(), &policy).await, 3);
}

#[tokio::test]
async fn slots_and_rates_of_one_layer_are_one_check() {
    let ledger = Ledger::default();
    let per_minute = Policy::per_minute("per-minute", 2).unwrap();
    let limit = RateLimitLayer::new(ledger.limiter(), [uploads(), per_minute.clone()], one_client());
    let app = Router::new().route("/", get(|| async { "hello" })).layer(limit);
    for status in [200, 200, 429] {
        assert_eq!(get_from(&app).await.status(), status);
    }
    assert_eq!(ledger.settlements(), [(0, Settled); 2], "the denied request held nothing");
    assert_eq!(left(&ledger.limiter(), &uploads()).await, 3);
}

#[tokio::test]
async fn a_cost_is_a_number_of_slots() {
    let ledger = Ledger::default();
    let limit = RateLimitLayer::new(ledger.limiter(), uploads(), one_client()).with_cost(2);
    let stream = || async { Body::new(Frames::of(["a"]).then_stays_open()) };
    let app = Router::new().route("/", get(stream)).layer(limit);
    let first = get_from(&app).await;
    assert_eq!(left(&ledger.limiter(), &uploads()).await, 1);
    assert_eq!(get_from(&app).await.status(), 429);
    drop(first);
    assert_eq!(get_from(&app).await.status(), 200);
}

/// By the clock of the store, a slot that is not renewed ends after its time-to-live.
#[tokio::test(start_paused = true)]
async fn a_slot_is_renewed_while_it_is_held() {
    let store = MemoryStore::new().with_clock(TokioClock::new());
    let policy = Policy::concurrent("one", 1).unwrap();
    let app = app(Limiter::new(store), policy);
    let response = get_from(&app).await;
    for _ in 0..10 {
        sleep(Duration::from_secs(59)).await;
        assert_eq!(get_from(&app).await.status(), 429);
    }
    drop(response);
    assert_eq!(get_from(&app).await.status(), 200);
}

/// In the store, or in the share of the instance while the store is down.
#[tokio::test(start_paused = true)]
async fn law_1_beside_a_fallback_a_slot_is_renewed_where_it_was_made() {
    for ledger in [Ledger::default(), Ledger::down()] {
        let memory = || MemoryStore::new().with_clock(TokioClock::new());
        let ledger = Ledger { store: memory(), ..ledger };
        let limiter = ledger.limiter().with_local_fallback(memory(), 1);
        let limit = RateLimitLayer::new(limiter, Policy::concurrent("one", 1).unwrap(), one_client()).fail_local();
        let stream = || async { Body::new(Frames::of(["a"]).then_stays_open()) };
        let app = Router::new().route("/", get(stream)).layer(limit);
        let response = get_from(&app).await;
        for _ in 0..10 {
            sleep(Duration::from_secs(59)).await;
            assert_eq!(get_from(&app).await.status(), 429);
        }
        drop(response);
        settle_in_background().await;
        assert_eq!(get_from(&app).await.status(), 200);
    }
}

/// The clock of the store has gone on without the process, as if it had been suspended.
#[tokio::test(start_paused = true)]
async fn a_slot_that_was_lost_is_not_taken_back() {
    let clock = ManualClock::default();
    let ledger = Ledger { store: MemoryStore::new().with_clock(clock.clone()), ..Ledger::default() };
    let policy = Policy::concurrent("one", 1).unwrap();
    let app = app(ledger.limiter(), policy);
    let suspended = get_from(&app).await;
    clock.advance(Duration::from_millis(59_999));
    assert_eq!(get_from(&app).await.status(), 429);
    clock.advance(Duration::from_millis(1));
    let other = get_from(&app).await;
    assert_eq!(other.status(), 200);
    // The process is back and renews what it believes to hold.
    sleep(Duration::from_secs(40)).await;
    drop(suspended);
    assert_eq!(get_from(&app).await.status(), 429);
    drop(other);
    assert_eq!(ledger.settlements(), [(0, Expired), (0, Settled)]);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_fails_is_tried_again() {
    let store = MemoryStore::new().with_clock(TokioClock::new());
    let ledger = Ledger { store, ..Ledger::default() };
    let app = app(ledger.limiter(), Policy::concurrent("one", 1).unwrap());
    let _open = get_from(&app).await;
    ledger.fail_changes(true);
    sleep(Duration::from_secs(50)).await;
    ledger.fail_changes(false);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(get_from(&app).await.status(), 429, "renewed in the last 10 seconds");
    ledger.fail_changes(true);
    sleep(Duration::from_secs(61)).await;
    assert_eq!(get_from(&app).await.status(), 200, "not renewed for a minute");
}

#[tokio::test]
async fn a_plain_check_of_a_concurrency_limit_is_an_error_that_names_the_remedy() {
    let limiter = Ledger::default().limiter();
    let check = Check::new("user", &tokens(), 1).and("user", &uploads(), 1);
    let errors = [
        limiter.check("user", &uploads(), 1).await.unwrap_err(),
        limiter.check_all(check).await.unwrap_err(),
        limiter.try_check("user", &uploads(), 1).unwrap_err(),
        limiter.acquire("user", &uploads(), 1).within(Duration::ZERO).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::InvalidCall);
        assert!(error.to_string().contains("Limiter::hold"), "{error}");
    }
    assert!(limiter.peek("user", &uploads()).await.unwrap().is_allowed());
    assert!(!limiter.reset("user", &uploads()).await.unwrap());
}

#[tokio::test]
async fn a_job_holds_a_slot_until_it_settles_or_drops_it() {
    let limiter = Ledger::default().limiter();
    let policy = Policy::concurrent("one", 1).unwrap();
    let slot = limiter.hold("job", &policy, 1).await.unwrap().into_result().unwrap();
    assert!(!limiter.hold("job", &policy, 1).await.unwrap().is_allowed());
    assert_eq!(slot.settle(1).await.unwrap(), Settled);
    let slot = limiter.hold("job", &policy, 1).await.unwrap().into_result().expect("nothing was charged");
    drop(slot);
    settle_in_background().await;
    assert!(limiter.hold("job", &policy, 1).await.unwrap().is_allowed());
}

#[tokio::test(start_paused = true)]
async fn the_slot_of_a_job_is_renewed() {
    let limiter = Limiter::new(MemoryStore::new().with_clock(TokioClock::new()));
    let policy = Policy::concurrent("one", 1).unwrap();
    let slot = limiter.hold("job", &policy, 1).await.unwrap().into_result().unwrap();
    sleep(Duration::from_secs(300)).await;
    assert!(!limiter.hold("job", &policy, 1).await.unwrap().is_allowed());
    assert_eq!(slot.release().await.unwrap(), Settled);
}

/// Nothing refuses it at the set-up, because a layer does not know the bodies of its service.
#[tokio::test]
async fn other_bodies_than_those_of_axum_need_held_bodies_and_the_response_says_so() {
    let handler = service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(http_body_util::Full::<bytes::Bytes>::from("a")))
    });
    let limit = RateLimitLayer::new(Ledger::default().limiter(), uploads(), one_client());
    let service = ServiceBuilder::new().layer(limit.clone()).service(handler);
    let refused = service.oneshot(request()).await.unwrap();
    assert_eq!(refused.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let body = refused.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains(".with_held_body()"), "{body:?}");

    let service = ServiceBuilder::new().layer(limit.with_held_body()).service(handler);
    assert_eq!(service.oneshot(request()).await.unwrap().status(), 200);
}
