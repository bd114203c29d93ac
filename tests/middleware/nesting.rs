//! Routes in nested routers: a route is matched against the whole template, wherever the layer is.

use axum::http::{Request, StatusCode};
use axum::{Router, body::Body, routing::get};
use tollgate::{GlobalKey, RateLimitLayer, Route};
use tower::Layer;

use crate::support::app::{get_passes, layer, routes};
use crate::support::http::{get as fetch, send};

fn exempts(route: &str) -> RateLimitLayer<GlobalKey> {
    layer(1, GlobalKey).route(route, Route::exempt())
}

fn users() -> Router {
    Router::new().route("/users/{id}", get(|| async {}))
}

/// Asserts that `/api/users/{id}` is exempt.
async fn assert_exempt(app: Router) {
    for id in 1..=3 {
        let reply = fetch(&app, &format!("/api/users/{id}")).await;
        assert_eq!((reply.status, reply.header("ratelimit")), (StatusCode::OK, None));
    }
}

#[tokio::test]
async fn nested_routes_match_by_the_whole_template() {
    let limit = exempts("/api/users/{id}");
    assert_exempt(Router::new().nest("/api", users()).layer(limit.clone())).await;
    assert_exempt(Router::new().nest("/api", users().layer(limit.clone()))).await;
    assert_exempt(Router::new().nest("/api", users()).route_layer(limit.clone())).await;
    let on_the_route = Router::new().route("/users/{id}", get(|| async {}).layer(limit.clone()));
    assert_exempt(Router::new().nest("/api", on_the_route)).await;
    let deeper = Router::new().route("/{id}", get(|| async {})).layer(limit);
    assert_exempt(Router::new().nest("/api", Router::new().nest("/users", deeper))).await;
}

#[tokio::test]
async fn a_nested_route_does_not_match_by_its_own_part_of_the_template() {
    let app = Router::new().nest("/api", users().layer(exempts("/users/{id}")));
    assert!(get_passes(&app, "/api/users/1").await);
    assert!(!get_passes(&app, "/api/users/1").await);
}

#[tokio::test]
async fn a_path_that_equals_another_route_matches_by_its_template() {
    let app = Router::new().route("/{page}", get(|| async {})).layer(exempts("/about"));
    assert!(get_passes(&app, "/about").await);
    assert!(!get_passes(&app, "/about").await, "the path matched `/{{page}}`");
}

#[tokio::test]
async fn in_front_of_a_router_the_plain_path_is_compared() {
    let app = exempts("/search").layer(routes());
    let get = |path: &str| Request::get(path).body(Body::empty()).unwrap();
    for path in ["/search", "/search?q=1", "/search"] {
        assert_eq!(send(&app, get(path)).await.status, 200, "{path}");
    }
    assert_eq!(send(&app, get("/users/1")).await.status, 200);
    assert_eq!(send(&app, get("/users/2")).await.status, 429);
}

#[tokio::test]
async fn in_front_of_a_router_a_parameter_stands_for_one_segment() {
    let app = exempts("/users/{id}").layer(routes());
    let get = |path: &str| Request::get(path).body(Body::empty()).unwrap();
    for path in ["/users/1", "/users/2"] {
        assert_eq!(send(&app, get(path)).await.status, 200, "{path}");
    }
    // An empty segment and two segments do not match, and no other spelling of a path is exempt. The first one spends
    // the only unit.
    for (path, status) in [("/users/", 404), ("/users/1/2", 429), ("/users/2/", 429)] {
        assert_eq!(send(&app, get(path)).await.status, status, "{path}");
    }
}
