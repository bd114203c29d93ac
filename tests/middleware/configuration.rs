//! Wrong settings are mistakes that `validated` returns, and the message contains the value and the fix.

use std::time::Duration;

use axum::http::request::Parts;
use tollgate::{ConfigError, GlobalKey, HeaderKey, Key, Policy, RateLimitLayer, Route};

use crate::support::app::layer;

fn limit() -> RateLimitLayer<GlobalKey> {
    layer(10, GlobalKey)
}

fn policy(name: &str, limit: u64) -> Policy {
    Policy::per_minute(name, limit).unwrap()
}

/// Returns the mistake of a layer, and asserts that its message contains all of `values`.
#[track_caller]
fn error(layer: RateLimitLayer<GlobalKey>, values: &[&str]) -> ConfigError {
    let error = layer.validated().unwrap_err();
    for value in values {
        assert!(error.to_string().contains(value), "{value:?} is not in: {error}");
    }
    error
}

/// Asserts that the mistake of a layer is a cost that can never pass.
#[track_caller]
fn never_passes(layer: RateLimitLayer<GlobalKey>, policy: &str, cost: u64, limit: u64) {
    let expected = format!(
        "a cost of {cost} can never pass policy {policy:?}, which lets at most {limit} through at once; raise the limit \
         or lower the cost"
    );
    assert_eq!(error(layer, &[&expected]).policy_name(), Some(policy));
}

#[test]
fn a_route_that_is_not_a_path_is_an_error() {
    for route in
        ["", "search", "GET", "GET search", "GET  /search", " /search", "/a b", "G(T /search", "GET /a\tb", "/a\n"]
    {
        error(limit().route(route, Route::exempt()), &[&format!("route {route:?} is not understood: ")]);
    }
}

#[test]
fn a_route_that_axum_does_not_accept_is_an_error_that_says_what_to_write() {
    for (route, advice) in [
        ("/users/:id", r#"write "/users/{id}""#),
        ("/users/:id/posts", r#"write "/users/{id}/posts""#),
        ("/files/*rest", r#"write "/files/{*rest}""#),
        ("/files/*", r#"write "/files/{*rest}""#),
        ("/a/{id", "{name}"),
        ("/a/id}", "{name}"),
        ("/a/{}", "write {id}"),
        ("/a/{*}", "write {*rest}"),
        ("/{a}{b}", "the only one"),
        ("/{a}-{b}", "the only one"),
        ("/{name}.png", "ends its segment"),
        ("/x{*rest}", "write /{*rest}"),
        ("/{*rest}/more", "last segment"),
        ("/{*rest}/", "last segment"),
        ("/{é*}", "name"),
        ("get /a", r#"write "GET /a""#),
        ("PROPFIND /a", "GET, HEAD, POST"),
        ("/a b", "remove the white space from the path"),
        ("GET /a\tb", "remove the white space from the path"),
        ("/search?q=1", r#"write "/search""#),
        ("/search#top", r#"write "/search""#),
    ] {
        error(limit().route(route, Route::exempt()), &[&format!("route {route:?} is not understood: "), advice]);
    }
    for route in ["/v1/jobs:cancel", "/user_{id}", "/{{id}}", "/{*rest}", "CONNECT /ws", "TRACE /"] {
        let _ = limit().route(route, Route::exempt()).validated().unwrap();
    }
}

#[test]
fn two_routes_that_match_the_same_paths_are_an_error() {
    for (first, second) in [
        ("/api", "/api/"),
        ("/users/{id}", "/users/{name}"),
        ("/mcp/{*rest}", "/mcp/{*other}"),
        ("GET /users/{id}", "GET /users/{name}/"),
        ("/", "//"),
    ] {
        let twice = limit().route(first, Route::new().cost(2)).route(second, Route::exempt());
        error(twice, &[&format!("route {second:?} is in the table already ")]);
    }
    for (first, second) in [("/mcp", "/mcp/{*rest}"), ("/users/{id}", "/users/u{id}"), ("/{a}/b", "/{a}/{b}")] {
        let _ = limit().route(first, Route::new().cost(2)).route(second, Route::exempt()).validated().unwrap();
    }
}

#[test]
fn a_route_given_twice_is_an_error() {
    for route in ["/search", "GET /search"] {
        let twice = limit().route(route, Route::new().cost(2)).route(route, Route::exempt());
        error(twice, &[&format!("route {route:?} is in the table already ")]);
    }
    let separate = limit().route("/search", Route::new().cost(2)).route("GET /search", Route::new().cost(3));
    let _ = separate.route("POST /search", Route::new().cost(4)).validated().unwrap();
}

#[test]
fn a_cost_that_can_never_pass_is_an_error() {
    never_passes(limit().with_cost(11), "p", 11, 10);
    never_passes(limit().route("/a", Route::new().cost(12)), "p", 12, 10);
    let own = Route::new().policies(policy("login", 5)).cost(6);
    never_passes(limit().route("/a", own), "login", 6, 5);
    let layers_cost = limit().with_cost(10);
    let too_small = layers_cost.clone().route("/a", Route::new().policies(policy("login", 5)));
    never_passes(too_small, "login", 10, 5);
    let other = layers_cost.and(policy("other", 9), GlobalKey);
    never_passes(other, "other", 10, 9);
    let of_route = limit().route("/a", Route::new().cost(8)).and(policy("other", 7), GlobalKey);
    never_passes(of_route, "other", 8, 7);
    let _ = limit().with_cost(10).route("/a", Route::exempt().cost(100)).validated().unwrap();
}

/// A token bucket admits at most its burst at once.
#[test]
fn a_cost_above_the_burst_can_never_pass() {
    let bucket = policy("p", 10).with_algorithm(tollgate::Algorithm::TokenBucket).with_burst(4);
    let limit = limit().with_policies(bucket);
    never_passes(limit.clone().with_cost(5), "p", 5, 4);
    let _ = limit.with_cost(4).validated().unwrap();
}

#[test]
fn a_cost_of_0_is_no_mistake() {
    let _ = limit().with_cost(0).route("/a", Route::new().cost(0)).validated().unwrap();
}

#[test]
fn a_cost_of_an_unknown_policy_is_an_error() {
    let unknown = |policy: &str, known: &[&str]| {
        format!("no policy is called {policy:?}, so its cost would never be charged; write one of {known:?}")
    };
    let limit = limit().and(policy("tokens", 50), GlobalKey);
    let misspelt = limit.clone().with_cost_of("tokns", 5);
    error(misspelt, &[&unknown("tokns", &["p", "tokens"])]);
    let own = Route::new().policies(policy("login", 5)).cost_of("p", 2);
    error(limit.clone().route("/a", own), &[&unknown("p", &["login", "tokens"])]);
    let _ = limit.route("/a", Route::new().policies(policy("login", 5)).cost_of("tokens", 2)).validated().unwrap();
    let plan = |_: &Parts, _: &Key| policy("plan", 1);
    let _ = RateLimitLayer::new(crate::support::app::limiter(), plan, GlobalKey)
        .with_cost_of("any", 1)
        .validated()
        .unwrap();
}

#[test]
fn a_cost_of_a_policy_is_compared_with_that_policy_only() {
    let limit = limit().and(policy("tokens", 50), GlobalKey);
    never_passes(limit.clone().with_cost_of("tokens", 51), "tokens", 51, 50);
    let route = Route::new().cost(2).cost_of("tokens", 52);
    never_passes(limit.clone().route("/a", route), "tokens", 52, 50);
    // 20 is above the limit of `p`, but `p` has its own cost.
    let _ = limit.with_cost_of("p", 1).with_cost(20).with_cost_of("tokens", 50);
}

#[test]
fn two_policies_with_one_name_are_an_error() {
    let duplicate = |policy: &str| format!("two policies of one check are called {policy:?} ");
    let tenant = || HeaderKey::new("x-tenant").unwrap();
    error(limit().and(policy("p", 5), tenant()), &[&duplicate("p")]);
    let other = limit().and(policy("tenant", 5), tenant());
    error(other.clone().and(policy("tenant", 5), GlobalKey), &[&duplicate("tenant")]);
    let route = Route::new().policies(policy("tenant", 3));
    error(other.route("/a", route), &[&duplicate("tenant")]);
    let route = Route::new().fail_open().policies([policy("a", 1), policy("a", 2)]);
    error(limit().route("/a", route), &[&duplicate("a")]);
}

#[test]
fn a_route_without_a_policy_is_an_error() {
    error(limit().route("/a", Route::new().fail_open().policies([])), &["no policy, so nothing would be limited; "]);
}

/// Costs and policies that are computed for each request cannot be validated earlier.
#[test]
fn computed_settings_are_not_validated_in_advance() {
    let plan = |_: &Parts, _: &Key| policy("plan", 1);
    let limit = RateLimitLayer::new(crate::support::app::limiter(), plan, GlobalKey).with_cost(100);
    let _ = limit.with_cost_fn(|_| u64::MAX).validated().unwrap();
}

#[test]
fn invalid_bans_are_errors_that_contain_the_values() {
    let minute = Duration::from_secs(60);
    for (denials, duration) in [(0, minute), (1, Duration::ZERO), (1, Policy::MAX_WINDOW + minute)] {
        let error = Policy::per_minute("p", 2).unwrap().ban_after(denials, duration).validated().unwrap_err();
        let expected = format!("policy \"p\": a ban after {denials} denials for {duration:?} is out of range; ");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
    let policy = Policy::per_minute("p", 2).unwrap();
    for duration in [Duration::from_micros(1), Policy::MAX_WINDOW] {
        assert!(policy.clone().ban_after(u32::MAX, duration).validated().is_ok());
    }
}
