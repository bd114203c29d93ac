//! A cost for each policy, on the bill and in the settlement.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use http::{Method, Request, Response, StatusCode, response::Parts};
use http_body_util::BodyExt;
use tollgate::middleware::{Bill, Settlement};
use tollgate::policy::{self, HoldSettings};
use tollgate::{Policy, RateLimitLayer, Route, observe::Warning};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use super::{Frames, Ledger, OneClient, at_end, left, one_client, request, uploads};
use crate::support::recorder::{Recorder, assert_warnings};

fn tokens_in() -> Policy {
    Policy::per_minute("input-tokens", 1_000).unwrap().with_holds(HoldSettings::new())
}

fn tokens_out() -> Policy {
    Policy::per_minute("output-tokens", 500).unwrap().with_holds(HoldSettings::new())
}

/// Holds 100 tokens in and 200 out, and a slot.
fn layer(ledger: &Ledger) -> RateLimitLayer<OneClient> {
    RateLimitLayer::new(ledger.limiter(), [tokens_in(), tokens_out(), uploads()], one_client())
        .with_cost_of("input-tokens", 100)
        .with_cost_of("output-tokens", 200)
}

/// The units that are left: tokens in, tokens out, slots.
async fn all_left(ledger: &Ledger) -> [u64; 3] {
    let limiter = ledger.limiter();
    [left(&limiter, &tokens_in()).await, left(&limiter, &tokens_out()).await, left(&limiter, &uploads()).await]
}

/// What is left after a response whose handler has changed its bill.
async fn left_after(change: impl Fn(&Bill) + Clone + Send + 'static) -> [u64; 3] {
    let ledger = Ledger::default();
    let handler = service_fn(move |request: Request<Body>| {
        change(request.extensions().get().expect("a bill"));
        async { Ok::<_, Infallible>(Response::new(Frames::of(["a"]))) }
    });
    let service = ServiceBuilder::new().layer(layer(&ledger).with_settlement(at_end).with_held_body()).service(handler);
    let response = service.oneshot(request()).await.unwrap();
    assert_eq!(all_left(&ledger).await, [900, 300, 2]);
    drop(response.into_body().collect().await.unwrap());
    all_left(&ledger).await
}

#[tokio::test]
async fn the_bill_has_a_cost_for_each_policy() {
    let each = |bill: &Bill| {
        bill.set_cost_of("input-tokens", 17);
        bill.add_to("output-tokens", 2);
        bill.add_to("Output-Tokens", 3);
        assert_eq!(
            (bill.cost_of("INPUT-tokens"), bill.cost_of("output-tokens"), bill.cost()),
            (Some(17), Some(5), None)
        );
    };
    assert_eq!(left_after(each).await, [983, 495, 3]);
}

/// The plain cost is that of the policies without one of their own, and a name that no policy has changes nothing.
#[tokio::test]
async fn a_policy_without_a_cost_of_its_own_is_charged_the_plain_cost_or_what_was_held() {
    assert_eq!(left_after(|bill| bill.set_cost_of("output-tokens", 5)).await, [900, 495, 3]);
    let both = |bill: &Bill| {
        bill.set_cost_of("output-tokens", 5);
        bill.set_cost(40);
    };
    assert_eq!(left_after(both).await, [960, 495, 3]);
    assert_eq!(left_after(|bill| bill.set_cost_of("output", 5)).await, [900, 300, 3]);
    let largest = |bill: &Bill| {
        bill.add_to("input-tokens", u64::MAX);
        bill.add_to("input-tokens", 1);
        assert_eq!(bill.cost_of("input-tokens"), Some(Policy::MAX_LIMIT));
        bill.set_cost_of("input-tokens", 0);
    };
    assert_eq!(left_after(largest).await, [1_000, 300, 3]);
}

/// One policy is settled by the head of the response, the other one by the bill at the end of the body.
#[tokio::test]
async fn the_settlement_has_an_answer_for_each_policy() {
    let ledger = Ledger::default();
    let settle = |response: &Parts, policy: &Policy| match (response.status, policy.name()) {
        (StatusCode::OK, "input-tokens") => Settlement::Units(12),
        (StatusCode::OK, "output-tokens") => Settlement::AtEnd,
        (_, "input-tokens") => Settlement::Held,
        (_, name) => {
            assert_eq!(name, "output-tokens", "a slot is not settled");
            Settlement::Nothing
        }
    };
    let handler = service_fn(|request: Request<Body>| async move {
        request.extensions().get::<Bill>().expect("a bill").set_cost_of("output-tokens", 30);
        let status = if request.method() == Method::GET { StatusCode::OK } else { StatusCode::BAD_GATEWAY };
        Ok::<_, Infallible>(Response::builder().status(status).body(Frames::of(["a"])).unwrap())
    });
    let service =
        ServiceBuilder::new().layer(layer(&ledger).with_settlement_by(settle).with_held_body()).service(handler);
    let response = service.clone().oneshot(request()).await.unwrap();
    assert_eq!(all_left(&ledger).await, [988, 300, 2]);
    drop(response);
    assert_eq!(all_left(&ledger).await, [988, 470, 3]);
    let failed = Request::post("/").body(Body::empty()).unwrap();
    let response = service.oneshot(failed).await.unwrap();
    assert_eq!(all_left(&ledger).await, [888, 470, 2]);
    drop(response);
    assert_eq!(all_left(&ledger).await, [888, 470, 3]);
}

/// A closure that panics for the second policy has settled nothing for the first one: the end of the request settles
/// each hold once, and the slot is free.
#[tokio::test]
async fn law_15_a_settlement_that_panics_for_one_policy_leaves_nothing_behind() {
    let ledger = Ledger::default();
    let calls = AtomicUsize::new(0);
    let settle = move |_: &Parts, _: &Policy| match calls.fetch_add(1, Ordering::SeqCst) {
        0 => Settlement::Units(1),
        _ => panic!("the closure of a test"),
    };
    let handler = service_fn(|request: Request<Body>| async move {
        request.extensions().get::<Bill>().expect("a bill").set_cost_of("output-tokens", 30);
        Ok::<_, Infallible>(Response::new(Frames::of(["a"])))
    });
    let service =
        ServiceBuilder::new().layer(layer(&ledger).with_settlement_by(settle).with_held_body()).service(handler);
    let call = service.oneshot(request());
    assert!(tokio::spawn(async move { call.await.map(|_| ()) }).await.is_err());
    assert_eq!(ledger.settlements().len(), 3);
    assert_eq!(all_left(&ledger).await, [900, 470, 3], "tokens in as held, tokens out as on the bill");
}

/// The warnings about names on the bills of two requests.
async fn names_reported(names: &'static [&'static str]) -> Vec<Warning> {
    let (ledger, recorder) = (Ledger::default(), Recorder::default());
    let limiter = ledger.limiter().with_observer(recorder.clone());
    let of_tokens = RateLimitLayer::new(limiter.clone(), [tokens_in(), tokens_out()], one_client());
    let inner = RateLimitLayer::new(limiter, super::tokens(), one_client());
    let handler = service_fn(move |request: Request<Body>| {
        let bill = request.extensions().get::<Bill>().expect("a bill");
        names.iter().for_each(|name| bill.set_cost_of(name, 5));
        names.iter().for_each(|name| assert!(format!("{bill:?}").contains(&format!("({name:?}, 5)")), "{bill:?}"));
        async { Ok::<_, Infallible>(Response::new(Frames::of(["a"]))) }
    });
    let service = ServiceBuilder::new()
        .layer(of_tokens.with_settlement(at_end).with_held_body())
        .layer(inner.with_settlement(at_end).with_held_body())
        .service(handler);
    for _ in 0..2 {
        drop(service.clone().oneshot(request()).await.unwrap());
    }
    recorder.take().warnings
}

#[tokio::test]
async fn a_cost_under_a_name_that_no_policy_has_is_reported_once_with_the_names_that_there_are() {
    assert_eq!(names_reported(&["input-tokens", "OUTPUT-TOKENS", "tokens"]).await, []);
    let warnings = names_reported(&["input-tokens", "outptu-tokens"]).await;
    assert_warnings(&warnings, &[("unknown_name_on_bill", "under \"outptu-tokens\"")]);
    let text = warnings[0].to_string();
    for word in ["\"input-tokens\"", "\"output-tokens\"", "\"tokens\"", "Bill::set_cost_of"] {
        assert!(text.contains(word), "{text}");
    }
}

/// Only a policy that is known before the first request is a mistake of the layer. A blocked plan has no holds either,
/// and nothing is charged under it.
#[tokio::test]
async fn a_plan_without_holds_is_charged_its_estimate_and_reported_once() {
    let (ledger, recorder) = (Ledger::default(), Recorder::default());
    let limiter = ledger.limiter().with_observer(recorder.clone());
    let requests = AtomicUsize::new(0);
    let plan = policy::from_fn(move |_, _| match requests.fetch_add(1, Ordering::SeqCst) {
        0 => Policy::blocked("suspended").unwrap(),
        _ => Policy::per_hour("free", 100).unwrap(),
    });
    let layer = RateLimitLayer::new(limiter, plan, one_client()).with_cost(10).with_settlement(at_end);
    let handler = service_fn(|request: Request<Body>| async move {
        request.extensions().get::<Bill>().expect("a bill").set_cost(50);
        Ok::<_, Infallible>(Response::new(Frames::of(["a"])))
    });
    let service = ServiceBuilder::new().layer(layer.with_held_body()).service(handler);
    assert_eq!(service.clone().oneshot(request()).await.unwrap().status(), StatusCode::FORBIDDEN);
    assert_warnings(&recorder.take().warnings, &[]);
    for left in [90, 80] {
        let response = service.clone().oneshot(request()).await.unwrap();
        assert!(response.headers()["ratelimit"].to_str().unwrap().contains(&format!("r={left};")));
    }
    assert_warnings(&recorder.take().warnings, &[("nothing_to_settle", "policy \"free\"")]);
}

#[tokio::test]
async fn a_route_without_holds_beside_one_with_holds_is_no_mistake_to_report() {
    let (ledger, recorder) = (Ledger::default(), Recorder::default());
    let limiter = ledger.limiter().with_observer(recorder.clone());
    let free = Route::new().policies(Policy::per_hour("free", 100).unwrap());
    let tokens = Policy::per_hour("tokens", 1_000).unwrap().with_holds(HoldSettings::new());
    let layer = RateLimitLayer::new(limiter, tokens, one_client()).with_cost(10).with_settlement(at_end);
    let handler = service_fn(|_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Frames::of(["a"]))) });
    let service = ServiceBuilder::new().layer(layer.route("/free", free).with_held_body()).service(handler);
    let mut request = request();
    *request.uri_mut() = "/free".parse().unwrap();
    let response = service.oneshot(request).await.unwrap();
    assert!(response.headers()["ratelimit"].to_str().unwrap().starts_with("\"free\";r=90;"), "{response:?}");
    assert_warnings(&recorder.take().warnings, &[]);
}
