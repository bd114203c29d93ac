//! A layer keeps the first mistake of its setters: `validated` returns it, and without `validated` no request passes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::{Router, routing::get};
use tollgate::{
    ClientIp, GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer, Route, middleware::Settlement,
    policy::HoldSettings,
};

use crate::support::app::{layer, limiter};
use crate::support::recorder::Recorder;
use crate::support::{DownStore, http, says};

type Layer = RateLimitLayer<GlobalKey>;
type Setter = fn(Layer) -> Layer;

fn policy(name: &str, limit: u64) -> Policy {
    Policy::per_minute(name, limit).unwrap()
}

/// A layer with the policy `p` of 10 units a minute.
fn limit() -> Layer {
    layer(10, GlobalKey)
}

/// Two setters that depend on each other, and what is wrong with both of them; `None` if they fit.
const PAIRS: [(Setter, Setter, Option<&str>); 9] = [
    (
        |l| l.with_cost(8),
        |l| l.with_policies(policy("small", 5)),
        Some(r#"a cost of 8 can never pass policy "small", "#),
    ),
    (|l| l.with_cost(20), |l| l.with_policies(policy("large", 30)), None),
    (|l| l.with_cost(20), |l| l.with_cost_of("p", 1), None),
    (|l| l.with_cost_of("tokens", 5), |l| l.and(policy("tokens", 50), GlobalKey), None),
    (
        |l| l.with_cost_of("tokens", 51),
        |l| l.and(policy("tokens", 50), GlobalKey),
        Some(r#"a cost of 51 can never pass policy "tokens", "#),
    ),
    (
        |l| l.with_cost_of("p", 2),
        |l| l.with_policies(policy("other", 5)),
        Some(r#"no policy is called "p", so its cost would never be charged; write one of ["other"]"#),
    ),
    (|l| l.route("/a", Route::new().cost_of("all", 2)), |l| l.and(policy("all", 5), GlobalKey), None),
    (
        |l| l.route("/a", Route::new().policies(policy("all", 3))),
        |l| l.and(policy("all", 5), GlobalKey),
        Some(r#"two policies of one check are called "all" "#),
    ),
    (|l| l.and(policy("p", 5), GlobalKey), |l| l.with_policies(policy("other", 5)), None),
];

#[test]
fn the_order_of_two_settings_that_depend_on_each_other_does_not_matter() {
    for (number, (one, other, expected)) in PAIRS.into_iter().enumerate() {
        for layer in [other(one(limit())), one(other(limit()))] {
            let mistake = layer.validated().err().map(|mistake| mistake.to_string());
            assert_eq!(mistake.is_some(), expected.is_some(), "pair {number}: {mistake:?}");
            says(mistake.unwrap_or_default(), expected.unwrap_or_default());
        }
    }
}

#[test]
fn holds_and_a_local_fallback_may_be_set_in_any_order() {
    let tokens = || policy("tokens", 50).with_holds(HoldSettings::new());
    let at_end = |_: &::http::response::Parts| Settlement::AtEnd;
    assert!(limit().with_settlement(at_end).and(tokens(), GlobalKey).validated().is_ok());
    says(limit().with_settlement(at_end).validated().unwrap_err(), r#"policy "p" has no holds; "#);
    // What counts is the failure policy at the end.
    assert!(limit().fail_local().fail_closed().validated().is_ok());
    says(limit().fail_closed().fail_local().validated().unwrap_err(), "fail_local needs a limiter with a local ");
}

#[test]
fn the_first_of_two_mistakes_is_reported() {
    const MISTAKES: [(Setter, &str); 4] = [
        (|l| l.route("a", Route::exempt()), r#"route "a" is not understood: "#),
        (|l| l.route("/:id", Route::new().cost(2)), r#"route "/:id" is not understood: "#),
        (|l| l.route("FETCH /a", Route::exempt()), r#"route "FETCH /a" is not understood: "#),
        (
            |l| l.route("/b", Route::new().cost(1)).route("/b/", Route::new().cost(2)),
            r#"route "/b/" is in the table already "#,
        ),
    ];
    for (first, message) in MISTAKES {
        for (second, _) in MISTAKES {
            says(second(first(limit())).validated().unwrap_err(), message);
        }
        // Neither a right setting that follows nor a setting that does not fit another one takes its place.
        says(first(limit().with_cost(11)).with_cost(1).validated().unwrap_err(), message);
    }
}

#[tokio::test]
async fn a_layer_with_a_mistake_that_is_not_validated_lets_no_request_pass() {
    let wrong: [(Setter, &str); 5] = [
        (|l| l.with_cost(11), "a cost of 11 can never pass "),
        (|l| l.with_cost_of("tokns", 2), "no policy is called "),
        (|l| l.route("/exempt/:id", Route::exempt()), "is not understood: "),
        (|l| l.and(policy("p", 5), GlobalKey), "two policies of one check are called "),
        (|l| l.route("/x", Route::new().fail_local()), "fail_local needs a limiter with a local fallback: "),
    ];
    let failure_policies: [Setter; 3] = [|l| l.fail_open(), |l| l.fail_closed(), |l| l.fail_local()];
    for (mistake, message) in wrong {
        for (number, fail) in failure_policies.into_iter().enumerate() {
            for (store, shadow) in [("down", false), ("up", false), ("up", true)] {
                let recorder = Recorder::default();
                let limiter = if store == "up" { limiter() } else { Limiter::new(DownStore) };
                let limiter = limiter.with_observer(recorder.clone()).without_notices();
                // `fail_local` without a fallback is a mistake of its own.
                let limiter = if number == 2 { with_local_fallback(limiter, message) } else { limiter };
                let layer = mistake(RateLimitLayer::new(limiter, policy("p", 10).with_shadow(shadow), GlobalKey));
                let layer = fail(layer).route("/healthz", Route::exempt());
                let runs = assert_500(layer, &["/", "/healthz"], message).await;
                assert_eq!(runs, 0, "{message}: the handler has run");
                let seen = recorder.take();
                assert_eq!(seen.refusals, ["misconfigured"; 2], "{message}");
                says(&seen.debug, message);
                assert!(seen.decisions.is_empty() && seen.failures.is_empty(), "the store was asked");
            }
        }
    }
}

/// Adds the local fallback, unless it is what the mistake lacks.
fn with_local_fallback(limiter: Limiter, message: &str) -> Limiter {
    match message.contains("fail_local") {
        true => limiter,
        false => limiter.with_local_fallback(MemoryStore::new(), 1),
    }
}

/// Sends requests to a router behind `layer`. Returns how often a handler has run.
async fn assert_500(layer: Layer, paths: &[&'static str], message: &str) -> usize {
    let runs = Arc::new(AtomicUsize::new(0));
    let handler = {
        let runs = Arc::clone(&runs);
        get(move || async move { runs.fetch_add(1, Ordering::Relaxed).to_string() })
    };
    let routes = paths.iter().fold(Router::new(), |router, path| router.route(path, handler.clone()));
    let app = routes.layer(layer);
    for path in paths {
        let reply = http::get(&app, path).await;
        assert_eq!(reply.status, 500, "{message}");
        says(reply.json()["detail"].as_str().unwrap(), message);
        assert_eq!(reply.header("retry-after"), None, "no wait helps");
    }
    runs.load(Ordering::Relaxed)
}

/// Setters may follow `validated`, and clones have mistakes of their own.
#[tokio::test]
async fn each_change_of_a_layer_is_judged_anew() {
    let right = limit().validated().unwrap();
    let wrong = right.clone().with_cost(11);
    assert_eq!(assert_500(wrong.clone(), &["/"], "a cost of 11 can never pass ").await, 0);
    says(wrong.clone().validated().unwrap_err(), "a cost of 11 can never pass ");
    let corrected = wrong.with_policies(policy("large", 20)).validated().unwrap();
    for layer in [right, corrected] {
        let app = Router::new().route("/", get(|| async {})).layer(layer);
        assert_eq!(http::get(&app, "/").await.status, 200);
    }
    let last = limit().validated().unwrap().with_cost(12);
    assert_eq!(assert_500(last, &["/"], "a cost of 12 can never pass ").await, 0);
}

/// Shadow mode refuses nothing, so that a limit can be tried on live traffic; the mistake is reported.
#[tokio::test]
async fn a_shadow_layer_with_a_mistake_reports_it_and_lets_requests_pass() {
    let recorder = Recorder::default();
    let limiter = Limiter::new(MemoryStore::new()).with_observer(recorder.clone()).without_notices();
    let layer = RateLimitLayer::new(limiter, policy("p", 10), GlobalKey).with_cost(11).with_shadow(true);
    let app = Router::new().route("/", get(|| async {})).layer(layer);
    assert_eq!(http::get(&app, "/").await.status, 200);
    let seen = recorder.take();
    assert_eq!(seen.would_refuse, ["misconfigured"]);
    says(&seen.debug, "a cost of 11 can never pass ");
}

/// Denied addresses are refused in shadow mode too, and a list with a mistake does not say which these are.
#[tokio::test]
async fn a_shadow_layer_that_cannot_read_its_denied_addresses_lets_no_request_pass() {
    let client = ClientIp::behind_unix_socket().deny("203.0.113.0/33");
    let layer = RateLimitLayer::new(limiter(), policy("p", 10), client).with_shadow(true);
    let app = Router::new().route("/", get(|| async {})).layer(layer);
    assert_eq!(http::get(&app, "/").await.status, 500);
}
