//! The decision in the extensions of requests and responses, and as an argument of handlers.

use std::time::Duration;

use axum::{Extension, Router, extract::Request, middleware, middleware::Next, response::Response, routing::get};
use tollgate::rejection::{Denial, Reason};
use tollgate::{Decision, GlobalKey, Key, Limiter, MemoryStore, Policy, RateLimitLayer, Route, decision::Source};

use crate::support::PendingStore;
use crate::support::app::{app, down_limiter, layer, limiter_and_clock, per_minute};
use crate::support::http::{Reply, get as fetch};

/// A limiter with a ready store and one with a pending store: the layer has a code path for each.
fn limiters() -> [Limiter; 2] {
    [Limiter::new(MemoryStore::new()), Limiter::new(PendingStore(MemoryStore::new()))]
}

#[tokio::test]
async fn handlers_read_the_decision() {
    let handler = |Extension(decision): Extension<Decision>| async move {
        let policy = &decision.policies()[0];
        format!("{} {} {:?} {:?}", policy.policy.name(), policy.cost, decision.available(), decision.source())
    };
    for limiter in limiters() {
        let limit = RateLimitLayer::new(limiter, per_minute(10), GlobalKey).with_cost(3);
        let app = Router::new().route("/", get(handler)).layer(limit);
        assert_eq!(fetch(&app, "/").await.text(), "p 3 Some(7) Store");
        assert_eq!(fetch(&app, "/").await.text(), "p 3 Some(4) Store");
    }
}

fn decision(reply: &Reply) -> &Decision {
    reply.extensions.get().unwrap()
}

#[tokio::test]
async fn outer_layers_read_the_decision_of_allowed_and_of_denied_requests() {
    for limiter in limiters() {
        let app = app(RateLimitLayer::new(limiter, per_minute(1), GlobalKey).with_decision_in_response(true));
        let allowed = fetch(&app, "/").await;
        assert!(decision(&allowed).is_allowed());
        assert_eq!((decision(&allowed).available(), decision(&allowed).retry_after()), (Some(0), None));
        assert!(allowed.extensions.get::<Denial>().is_none());

        let denied = fetch(&app, "/").await;
        assert!(!decision(&denied).is_allowed());
        assert_eq!(decision(&denied).source(), Source::Store);
        let wait = decision(&denied).retry_after().unwrap();
        assert!(wait > Duration::from_secs(50), "{wait:?}");
        let denial = denied.extensions.get::<Denial>().unwrap();
        assert_eq!(denial.reason(), Reason::QuotaExceeded);
        assert_eq!((denial.status(), denial.retry_after()), (denied.status, Some(wait)));
    }
}

#[tokio::test]
async fn an_outer_middleware_reads_the_decision() {
    async fn log(request: Request, next: Next) -> Response {
        let mut response = next.run(request).await;
        let available = response.extensions().get::<Decision>().unwrap().available().unwrap();
        response.headers_mut().insert("x-available", available.into());
        response
    }
    for limiter in limiters() {
        let limit = RateLimitLayer::new(limiter, per_minute(2), GlobalKey).with_decision_in_response(true);
        let app = app(limit).layer(middleware::from_fn(log));
        for available in ["1", "0", "0"] {
            assert_eq!(fetch(&app, "/").await.header("x-available").as_deref(), Some(available));
        }
    }
}

#[tokio::test]
async fn a_request_without_a_check_has_no_decision() {
    let exempt = app(layer(1, GlobalKey).route("/", Route::exempt()));
    assert!(fetch(&exempt, "/").await.extensions.get::<Decision>().is_none());
    let without_key =
        app(layer(1, |_: &axum::http::request::Parts| Err::<Key, _>(tollgate::key::KeyError::missing("a key"))));
    let refused = fetch(&without_key, "/").await;
    assert!(refused.extensions.get::<Decision>().is_none());
    assert_eq!(refused.extensions.get::<Denial>().unwrap().reason(), Reason::Key);
}

/// A handler charges a cost that only the handler knows.
#[tokio::test]
async fn handlers_spend_from_the_same_budget() {
    let (limiter, _) = limiter_and_clock();
    let policy = per_minute(10);
    let key = |_: &axum::http::request::Parts| Key::from("tenant");
    let limit = RateLimitLayer::new(limiter.clone(), policy.clone(), key);
    let handler = move || async move {
        let decision = limiter.check("tenant", &policy, 4).await.unwrap();
        format!("{} {:?}", decision.is_allowed(), decision.available())
    };
    let app = Router::new().route("/", get(handler)).layer(limit);
    assert_eq!(fetch(&app, "/").await.text(), "true Some(5)");
    assert_eq!(fetch(&app, "/").await.text(), "true Some(0)");
    assert_eq!(fetch(&app, "/").await.status, 429);
}

#[tokio::test]
async fn a_handler_takes_the_decision_as_an_argument() {
    let handler = |decision: Decision| async move { format!("{:?}", decision.available()) };
    for limiter in limiters() {
        let limit = RateLimitLayer::new(limiter, per_minute(10), GlobalKey);
        let app = Router::new().route("/", get(handler)).layer(limit);
        assert_eq!(fetch(&app, "/").await.text(), "Some(9)");
    }
}

/// The fault is in the setup of the service, so the status is 500.
#[tokio::test]
async fn a_handler_that_takes_a_decision_without_a_layer_is_500_and_the_text_names_the_layer() {
    let app = Router::new().route("/", get(|_: Decision| async {}));
    let exempt = app.clone().layer(layer(1, GlobalKey).route("/", Route::exempt()));
    for app in [app, exempt] {
        let reply = fetch(&app, "/").await;
        assert_eq!(reply.status, 500);
        let text = reply.text();
        assert!(text.contains("RateLimitLayer") && text.contains("Option<Decision>"), "{text}");
    }
}

#[tokio::test]
async fn a_handler_may_take_the_decision_if_there_is_one() {
    let handler =
        |decision: Option<Decision>| async move { format!("{:?}", decision.and_then(|decision| decision.available())) };
    let app = Router::new().route("/", get(handler));
    assert_eq!(fetch(&app, "/").await.text(), "None");
    assert_eq!(fetch(&app.layer(layer(10, GlobalKey)), "/").await.text(), "Some(9)");
}

#[tokio::test]
async fn the_response_of_an_allowed_request_has_a_decision_only_if_a_layer_asks_for_it() {
    for limiter in limiters() {
        let limit = RateLimitLayer::new(limiter, per_minute(2), GlobalKey);
        let asks = limit.clone().with_decision_in_response(true);
        let app = app(asks.clone().with_decision_in_response(false));
        assert!(fetch(&app, "/").await.extensions.is_empty());
        assert!(fetch(&self::app(asks), "/").await.extensions.get::<Decision>().is_some());
        let refused = fetch(&app, "/").await;
        assert_eq!(refused.status, 429);
        assert!(!decision(&refused).is_allowed() && refused.extensions.get::<Denial>().is_some());
    }
}

/// Three nested layers whose limits are one above `remaining`, from the innermost outwards. The layers with the numbers
/// in `asking` put the decision into the response.
async fn nested(limiter: &Limiter, remaining: [u64; 3], asking: &[usize]) -> Reply {
    let handler = |decision: Decision| async move { format!("{:?}", decision.available()) };
    let mut app = Router::new().route("/", get(handler));
    for (number, remaining_units) in remaining.into_iter().enumerate() {
        let name = format!("p{number}-{remaining:?}-{asking:?}").replace([' ', '[', ']', ','], "_");
        let policy = Policy::per_minute(name, remaining_units + 1).unwrap();
        let limit = RateLimitLayer::new(limiter.clone(), policy, GlobalKey);
        app = app.layer(limit.with_decision_in_response(asking.contains(&number)));
    }
    fetch(&app, "/").await
}

/// Whichever layer asks for the decision in the response, and whichever layer is the strictest.
#[tokio::test]
async fn handlers_and_outer_layers_read_the_strictest_decision_of_nested_layers() {
    for limiter in limiters() {
        for remaining in [[3, 8, 9], [8, 3, 9], [9, 8, 3]] {
            for asking in [&[0][..], &[1], &[2], &[0, 2], &[0, 1, 2]] {
                let reply = nested(&limiter, remaining, asking).await;
                assert_eq!(reply.text(), "Some(3)");
                assert_eq!(decision(&reply).available(), Some(3), "{remaining:?}, asking: {asking:?}");
            }
            let reply = nested(&limiter, remaining, &[]).await;
            assert_eq!(reply.text(), "Some(3)");
            assert!(reply.extensions.get::<Decision>().is_none());
        }
    }
}

#[tokio::test]
async fn an_inner_denial_is_not_hidden_by_an_outer_layer_with_fewer_units_left() {
    for limiter in limiters() {
        let tight = RateLimitLayer::new(limiter.clone(), per_minute(2), GlobalKey);
        let inner = RateLimitLayer::new(limiter, Policy::per_minute("inner", 10).unwrap(), GlobalKey);
        // A cost of 6 fits once in 10. After the denial, 4 units are left inside and none outside.
        let app = app(inner.with_cost(6)).layer(tight.with_decision_in_response(true));
        assert!(decision(&fetch(&app, "/").await).is_allowed());
        let denied = fetch(&app, "/").await;
        assert_eq!(denied.status, 429);
        assert!(!decision(&denied).is_allowed());
        assert_eq!(decision(&denied).available(), Some(4));
    }
}

/// A layer that failed open has no verdict, so its decision has no available units.
#[tokio::test]
async fn a_decision_with_a_verdict_replaces_one_without() {
    let handler = |decision: Decision| async move { format!("{:?} {:?}", decision.source(), decision.available()) };
    let with_verdict = layer(5, GlobalKey).with_decision_in_response(true);
    let without_verdict = RateLimitLayer::new(down_limiter(), per_minute(1), GlobalKey).with_decision_in_response(true);
    let route = Router::new().route("/", get(handler));
    for app in [
        route.clone().layer(with_verdict.clone()).layer(without_verdict.clone()),
        route.layer(without_verdict).layer(with_verdict),
    ] {
        let reply = fetch(&app, "/").await;
        assert!(reply.text().starts_with("Store Some("), "{}", reply.text());
        assert_eq!(decision(&reply).source(), Source::Store);
    }
}
