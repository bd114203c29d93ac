//! Shadow policies and shadow layers over HTTP.

use axum::http::{Method, StatusCode};
use http::request::Parts;
use tollgate::{
    ClientIp, Decision, GlobalKey, HeaderKey, HeaderStyle, Key, Limiter, MemoryStore, Policy, RateLimitLayer, Route,
    decision::Source, key::KeyError, rejection::Denial,
};

use crate::support::app::{app, layer, limiter, per_minute};
use crate::support::http::{Connection, Reply, get, get_with, request, serve};
use crate::support::recorder::{Recorder, assert_warnings};
use crate::support::{DownStore, FlakyStore, says};

fn shadow(name: &str, limit: u64) -> Policy {
    Policy::per_minute(name, limit).unwrap().with_shadow(true)
}

/// Asserts that a response has no trace of a limiter.
fn assert_untouched(reply: &Reply) {
    assert_eq!(reply.status, StatusCode::OK);
    for name in reply.headers.keys() {
        let name = name.as_str();
        assert!(!name.contains("ratelimit") && name != "retry-after" && name != "cache-control", "{name}");
    }
    assert!(reply.extensions.get::<Denial>().is_none());
}

#[tokio::test]
async fn a_shadow_policy_refuses_nothing_and_its_responses_have_no_fields() {
    for style in [HeaderStyle::Draft11, HeaderStyle::Draft07, HeaderStyle::Draft03, HeaderStyle::XRateLimitDelta] {
        let limit = RateLimitLayer::new(limiter(), shadow("p", 2), GlobalKey)
            .with_headers(style)
            .with_decision_in_response(true);
        let app = app(limit);
        for would_deny in [false, false, true, true] {
            let reply = get(&app, "/").await;
            assert_untouched(&reply);
            let decision = reply.extensions.get::<Decision>().unwrap();
            assert_eq!((decision.is_allowed(), decision.would_deny()), (true, would_deny));
        }
    }
}

#[tokio::test]
async fn law_2_a_response_speaks_of_the_enforced_policies_alone() {
    for style in [HeaderStyle::Draft11, HeaderStyle::Draft07, HeaderStyle::Draft06, HeaderStyle::XRateLimitEpoch] {
        let responses = |policies: Vec<Policy>| async move {
            let app = app(RateLimitLayer::new(limiter(), policies, GlobalKey).with_headers(style));
            let mut seen = Vec::new();
            for _ in 0..5 {
                let Reply { status, headers, body, .. } = get(&app, "/").await;
                seen.push((status, headers, body));
            }
            seen
        };
        let alone = responses(vec![per_minute(3)]).await;
        assert_eq!(alone[3].0, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(responses(vec![per_minute(3), shadow("tight", 1)]).await, alone, "{style:?}");
        assert_eq!(responses(vec![shadow("tight", 1), per_minute(3)]).await, alone, "{style:?}");
    }
}

#[tokio::test]
async fn a_shadow_layer_counts_and_reports_and_refuses_nothing() {
    let recorder = Recorder::default();
    let limiter = limiter().with_observer(recorder.clone());
    let by_request = |_: &Parts, _: &Key| vec![per_minute(2), Policy::per_minute("second", 1).unwrap()];
    let limit = RateLimitLayer::new(limiter, by_request, GlobalKey);
    let (tried, enforced) = (app(limit.clone().with_shadow(true)), app(limit));
    for _ in 0..4 {
        assert_untouched(&get(&tried, "/").await);
    }
    let would_deny: Vec<Vec<bool>> = recorder.take().would_deny;
    assert_eq!(would_deny, [vec![false, false], vec![false, true], vec![true, true], vec![true, true]]);
    let refused = get(&enforced, "/").await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "the counts are those of the enforced layer");
}

#[tokio::test]
async fn a_shadow_layer_lets_requests_pass_that_it_could_not_judge() {
    let recorder = Recorder::default();
    let (limiter, tenant) = (limiter().with_observer(recorder.clone()), HeaderKey::new("x-tenant").unwrap());
    let limit = RateLimitLayer::new(limiter.clone(), per_minute(2), tenant);
    assert_eq!(get(&app(limit.clone()), "/").await.status, StatusCode::BAD_REQUEST);
    let tried = limit.with_shadow(true);
    assert_untouched(&get(&app(tried.clone()), "/").await);
    let cost = |parts: &Parts| if parts.headers.contains_key("large") { 3 } else { 1 };
    let costly = app(tried.with_cost_fn(cost));
    assert_untouched(&get_with(&costly, "/", &[("x-tenant", "a"), ("large", "1")]).await);
    // Of a request without its first key, nothing is charged to the further one.
    let twice = RateLimitLayer::new(limiter.clone(), shadow("first", 1), HeaderKey::new("x-tenant").unwrap());
    assert_untouched(&get(&app(twice.and(shadow("further", 1), GlobalKey).with_shadow(true)), "/").await);
    let nothing = RateLimitLayer::new(limiter, |_: &Parts, _: &Key| Vec::<Policy>::new(), GlobalKey).with_shadow(true);
    assert_untouched(&get(&app(nothing), "/").await);
    let events = recorder.take();
    assert_eq!(events.refusals, ["missing_key"]);
    assert_eq!(events.would_refuse, ["missing_key", "missing_key", "misconfigured"]);
    assert_eq!(events.exempt, ["shadow"; 3]);
    assert_eq!(events.would_deny, [[true]], "a cost above the limit");
}

#[tokio::test]
async fn a_shadow_layer_passes_requests_while_the_store_fails_whatever_the_failure_policy_is() {
    let limit = RateLimitLayer::new(Limiter::new(DownStore), per_minute(1), GlobalKey).with_decision_in_response(true);
    assert_eq!(get(&app(limit.clone().fail_closed()), "/").await.status, StatusCode::SERVICE_UNAVAILABLE);
    let reply = get(&app(limit.clone().fail_closed().with_shadow(true)), "/").await;
    assert_untouched(&reply);
    assert_eq!(reply.extensions.get::<Decision>().unwrap().source(), Source::Open);
    // A route may set its own failure policy.
    let routed = limit.route("/login", Route::new().fail_closed()).with_shadow(true);
    assert_untouched(&get(&app(routed), "/login").await);
}

#[tokio::test]
async fn law_14_a_shadow_policy_beside_an_enforced_one_does_not_lift_its_failure_policy() {
    let store = FlakyStore::default();
    store.fail(Some(tollgate::Error::new(tollgate::ErrorKind::Unavailable, "down")));
    let policies = [per_minute(9), shadow("tried", 9)];
    let app = app(RateLimitLayer::new(Limiter::new(store), policies, GlobalKey).fail_closed());
    assert_eq!(get(&app, "/").await.status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn denied_addresses_are_refused_in_shadow_mode_too() {
    let client = ClientIp::x_forwarded_for(1).unwrap().deny(["203.0.113.0/24"]);
    let tenant = HeaderKey::new("x-tenant").unwrap();
    let limit = RateLimitLayer::new(limiter(), per_minute(9), tenant).and(shadow("per-client", 9), client);
    // Over TCP, because the header counts only if the address of the peer is known.
    let mut connection = Connection::open(serve(app(limit.with_shadow(true))).await).await;
    let mut get = async |headers: &[(&str, &str)]| connection.send(request(Method::GET, "/", headers)).await;
    let from = |address| [("x-forwarded-for", address), ("x-tenant", "a")];
    assert_untouched(&get(&from("198.51.100.7")).await);
    assert_eq!(get(&from("203.0.113.9")).await.status, StatusCode::FORBIDDEN);
    // Without the first key the request would be refused anyway, and passes in shadow mode, unless the address is
    // denied.
    assert_untouched(&get(&from("198.51.100.7")[..1]).await);
    assert_eq!(get(&from("203.0.113.9")[..1]).await.status, StatusCode::FORBIDDEN);
    assert_eq!(
        get(&[("x-forwarded-for", "?")]).await.status,
        StatusCode::BAD_REQUEST,
        "a header that hides the address"
    );
}

#[tokio::test]
async fn law_2_a_further_key_under_shadow_policies_refuses_no_request_without_it() {
    let tenant = |parts: &Parts| match parts.headers.get("x-tenant") {
        Some(tenant) => Ok(Some(Key::from(tenant.as_bytes()))),
        None => Err(KeyError::missing("a tenant")),
    };
    let recorder = Recorder::default();
    let limiter = limiter().with_observer(recorder.clone());
    let limit = RateLimitLayer::new(limiter, per_minute(2), GlobalKey);
    let app = app(limit.and(shadow("per-tenant", 1), tenant));
    for status in [200, 200, 429] {
        assert_eq!(get(&app, "/").await.status, status);
    }
    let events = recorder.take();
    assert_eq!((events.would_refuse, events.exempt), (vec!["missing_key"; 3], vec![]), "the first key is charged");
}

#[tokio::test]
async fn a_fixed_cost_above_the_limit_of_a_shadow_policy_is_an_error_where_it_is_written() {
    let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), shadow("p", 2), GlobalKey);
    says(limit.clone().with_cost(3).validated().unwrap_err(), "a cost of 3 can never pass ");
    let app = app(limit.with_cost_fn(|_| 3));
    assert_untouched(&get(&app, "/").await);
}

#[tokio::test]
async fn a_layer_that_is_derived_from_a_shadow_layer_can_be_enforced() {
    let tried = layer(1, GlobalKey).with_shadow(true);
    let (tried, enforced) = (app(tried.clone()), app(tried.with_shadow(false)));
    assert_untouched(&get(&tried, "/").await);
    assert_eq!(get(&enforced, "/").await.status, StatusCode::TOO_MANY_REQUESTS);
    assert_untouched(&get(&tried, "/").await);
}

#[tokio::test]
async fn law_13_a_layer_that_refuses_nothing_says_so_once() {
    let recorder = Recorder::default();
    let limiter = limiter().with_observer(recorder.clone());
    let enforced = RateLimitLayer::new(limiter, [per_minute(9), shadow("tried", 9)], GlobalKey);
    get(&app(enforced.clone()), "/").await;
    assert_eq!(recorder.take().warnings, []);
    let layer = enforced.with_shadow(true);
    let apps = [app(layer.clone()), app(layer.clone().fail_closed())];
    for app in apps.iter().cycle().take(6) {
        assert_untouched(&get(app, "/").await);
    }
    let warnings = recorder.take().warnings;
    assert_warnings(&warnings, &[("only_shadow", "such as \"p\"")]);
    assert!(warnings[0].to_string().contains("with_shadow(false)"), "{}", warnings[0]);
}
