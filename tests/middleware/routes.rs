//! Settings of routes, as a layer for each route and as routes of one layer.

use axum::routing::{get, post};
use axum::{Router, http::Method};
use tollgate::{GlobalKey, Policy, RateLimitLayer, Route};

use crate::support::app::{app, down_limiter, get_passes, layer, limiter, passes, per_minute};
use crate::support::http::{get as fetch, request, send};

fn login() -> Policy {
    Policy::per_minute("login", 1).unwrap()
}

/// The `ratelimit` header of a request that passes.
async fn ratelimit(app: &Router, method: Method, path: &str) -> String {
    let reply = send(app, request(method, path, &[])).await;
    assert_eq!(reply.status, 200, "{path}");
    reply.header("ratelimit").unwrap()
}

/// Each route derives its own layer; all of them spend from one budget.
#[tokio::test]
async fn a_layer_for_each_route() {
    let limit = layer(20, GlobalKey);
    let app = Router::new()
        .route("/watch", get(|| async {}).layer(limit.clone().fail_open()))
        .route("/search", get(|| async {}).layer(limit.clone().with_cost(10).fail_closed()))
        .route("/login", post(|| async {}).layer(limit.with_policies(login()).fail_closed()));
    assert_eq!(ratelimit(&app, Method::GET, "/watch").await, r#""p";r=19;t=60"#);
    assert_eq!(ratelimit(&app, Method::GET, "/search").await, r#""p";r=9;t=60"#);
    assert!(!get_passes(&app, "/search").await, "9 units are too few for 10");
    assert_eq!(ratelimit(&app, Method::GET, "/watch").await, r#""p";r=8;t=60"#);
    assert_eq!(ratelimit(&app, Method::POST, "/login").await, r#""login";r=0;t=60"#);
    assert!(!passes(&app, request(Method::POST, "/login", &[])).await);
}

#[tokio::test]
async fn one_layer_for_all_routes() {
    let limit = layer(20, GlobalKey)
        .route("/search", Route::new().cost(10).fail_closed())
        .route("POST /login", Route::new().policies(login()).fail_closed())
        .route("/", Route::exempt());
    let app = app(limit);
    assert_eq!(ratelimit(&app, Method::GET, "/users/1").await, r#""p";r=19;t=60"#);
    assert_eq!(ratelimit(&app, Method::GET, "/search").await, r#""p";r=9;t=60"#);
    assert!(!get_passes(&app, "/search").await);
    assert_eq!(ratelimit(&app, Method::POST, "/login").await, r#""login";r=0;t=60"#);
    assert!(!passes(&app, request(Method::POST, "/login", &[])).await);
    assert_eq!(
        ratelimit(&app, Method::GET, "/login").await,
        r#""p";r=8;t=60"#,
        "another method has the settings of the layer"
    );
    let exempt = fetch(&app, "/").await;
    assert_eq!((exempt.status.as_u16(), exempt.header("ratelimit")), (200, None));
}

#[tokio::test]
async fn an_exempt_route_stays_open_when_the_budget_is_spent() {
    let app = app(layer(1, GlobalKey).route("/search", Route::exempt()));
    assert!(get_passes(&app, "/").await);
    assert!(!get_passes(&app, "/").await);
    for _ in 0..3 {
        assert!(get_passes(&app, "/search?q=1").await);
    }
}

#[tokio::test]
async fn a_route_with_a_method_precedes_one_without() {
    let limit = layer(20, GlobalKey).route("/login", Route::new().cost(2)).route("POST /login", Route::new().cost(5));
    let app = app(limit);
    assert_eq!(ratelimit(&app, Method::GET, "/login").await, r#""p";r=18;t=60"#);
    assert_eq!(ratelimit(&app, Method::POST, "/login").await, r#""p";r=13;t=60"#);
}

/// axum answers HEAD with the handler of GET.
#[tokio::test]
async fn head_has_the_settings_of_get() {
    let app = app(layer(20, GlobalKey).route("GET /search", Route::new().cost(5)));
    assert_eq!(ratelimit(&app, Method::HEAD, "/search").await, r#""p";r=15;t=60"#);
    assert_eq!(ratelimit(&app, Method::GET, "/search").await, r#""p";r=10;t=60"#);
}

#[tokio::test]
async fn head_may_have_its_own_settings() {
    let limit = layer(20, GlobalKey).route("GET /search", Route::new().cost(5));
    let app = app(limit.route("HEAD /search", Route::new().cost(2)));
    assert_eq!(ratelimit(&app, Method::HEAD, "/search").await, r#""p";r=18;t=60"#);
    assert_eq!(ratelimit(&app, Method::GET, "/search").await, r#""p";r=13;t=60"#);
}

#[tokio::test]
async fn a_route_with_its_own_policies_does_not_charge_those_of_the_layer() {
    let policies = [login(), Policy::per_hour("login-hourly", 2).unwrap()];
    let app = app(layer(1, GlobalKey).route("/login", Route::new().fail_open().policies(policies)));
    let reply = fetch(&app, "/login").await;
    assert_eq!(reply.header("ratelimit-policy").as_deref(), Some(r#""login";q=1;w=60, "login-hourly";q=2;w=3600"#));
    assert!(!get_passes(&app, "/login").await);
    assert!(get_passes(&app, "/").await);
}

#[tokio::test]
async fn each_route_has_its_failure_policy() {
    let open = RateLimitLayer::new(down_limiter(), per_minute(1), GlobalKey);
    let app = app(open.clone().route("/login", Route::new().fail_closed()));
    assert_eq!(fetch(&app, "/").await.status, 200);
    assert_eq!(fetch(&app, "/login").await.status, 503);
    assert_eq!(fetch(&app, "/login/").await.status, 503, "another spelling, under which the request is no cheaper");

    let closed = crate::support::app::app(open.fail_closed().route("/search", Route::new().fail_open()));
    assert_eq!(fetch(&closed, "/").await.status, 503);
    assert_eq!(fetch(&closed, "/search").await.status, 200);
}

#[tokio::test]
async fn other_routes_and_unset_settings_have_the_values_of_the_layer() {
    let limit = RateLimitLayer::new(limiter(), per_minute(20), GlobalKey).with_cost(3);
    let app = app(limit.route("/search", Route::new().fail_closed()).route("/none", Route::exempt()));
    assert_eq!(ratelimit(&app, Method::GET, "/").await, r#""p";r=17;t=60"#);
    assert_eq!(ratelimit(&app, Method::GET, "/search").await, r#""p";r=14;t=60"#, "settings that a route leaves unset");
}
