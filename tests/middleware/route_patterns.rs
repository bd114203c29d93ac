//! Routes that match several paths, and several spellings of one path.

use axum::http::{Method, Request};
use axum::routing::{any, get, post};
use axum::{Router, body::Body};
use tollgate::{GlobalKey, Policy, RateLimitLayer, Route};
use tower::Layer;

use crate::support::app::{layer, routes};
use crate::support::http::{Reply, get as fetch, request, send};

/// A layer with a limit of 1 000 and the given costs of routes; other requests cost 1.
fn layer_with_costs(entries: &[(&str, u64)]) -> RateLimitLayer<GlobalKey> {
    let limit = layer(1_000, GlobalKey);
    entries.iter().fold(limit, |limit, (route, cost)| limit.route(route, Route::new().cost(*cost)))
}

/// Measures the cost of a request by the remaining units before and after it.
struct Meter<S> {
    app: S,
    remaining: i64,
}

impl Meter<Router> {
    fn new(app: Router) -> Self {
        Self { app, remaining: 1_000 }
    }

    async fn cost_of(&mut self, method: Method, path: &str) -> i64 {
        let reply = send(&self.app, request(method, path, &[])).await;
        let remaining = remaining(&reply);
        std::mem::replace(&mut self.remaining, remaining) - remaining
    }
}

/// The remaining units in the `ratelimit` header.
fn remaining(reply: &Reply) -> i64 {
    let field = reply.header("ratelimit").unwrap();
    field.split(';').find_map(|part| part.strip_prefix("r=")).unwrap().parse().unwrap()
}

async fn assert_costs(app: Router, costs: &[(&str, i64)]) {
    let mut meter = Meter::new(app);
    for (path, cost) in costs {
        assert_eq!(meter.cost_of(Method::GET, path).await, *cost, "{path}");
    }
}

#[tokio::test]
async fn law_14_a_prefix_covers_a_nested_service() {
    let limit = layer_with_costs(&[("/mcp/{*rest}", 10)]);
    let app = Router::new().nest_service("/mcp", routes()).layer(limit);
    assert_costs(app, &[("/mcp", 10), ("/mcp/", 10), ("/mcp/x", 10), ("/mcp/users/7?a=b", 10), ("/mcpx", 1), ("/", 1)])
        .await;
}

#[tokio::test]
async fn law_14_a_prefix_covers_templates_and_plain_paths_alike() {
    let page = || get(|| async {});
    let below = Router::new().route("/", page()).route("/users/{id}", page()).route("/files/{*path}", page());
    let limit = || layer_with_costs(&[("/mcp/{*rest}", 10)]);
    let costs = [("/mcp", 10), ("/mcp/users/1", 10), ("/mcp/files/a/b", 10), ("/mcp/none", 10), ("/other", 1)];
    assert_costs(Router::new().nest("/mcp", below.clone()).layer(limit()), &costs).await;
    let in_front = Router::new().fallback_service(limit().layer(Router::new().nest("/mcp", below)));
    assert_costs(in_front, &costs).await;
}

#[tokio::test]
async fn law_14_a_trailing_slash_does_not_bypass_a_route() {
    let login = Route::new().policies(Policy::per_minute("login", 5).unwrap());
    for entry in ["POST /login", "POST /login/"] {
        let limit = || layer(1_000, GlobalKey).route(entry, login.clone());
        // A service that ignores the trailing slash.
        let app = Router::new().fallback(post(|| async {})).layer(limit());
        let with_both = Router::new().route("/login", post(|| async {})).route("/login/", post(|| async {}));
        for app in [app, with_both.layer(limit())] {
            let mut passed = 0;
            for path in ["/login/", "/login", "/login//"].into_iter().cycle().take(99) {
                passed += u64::from(send(&app, request(Method::POST, path, &[])).await.status != 429);
            }
            assert_eq!(passed, 5, "{entry}");
        }
    }
}

/// The `MatchedPath` of the root of a router that `nest_service` mounts at `/api` is `/api/`.
#[tokio::test]
async fn law_14_a_layer_within_a_nested_router_matches_the_root_of_that_router() {
    let inside = Router::new().route("/", get(|| async {})).layer(layer_with_costs(&[("/api", 10)]));
    let app = Router::new().nest_service("/api", inside.clone()).nest("/flat", inside);
    assert_costs(app, &[("/api", 10), ("/api/", 10), ("/flat", 1)]).await;
}

#[tokio::test]
async fn the_most_specific_route_wins() {
    let limit = layer_with_costs(&[
        ("/{*rest}", 2),
        ("/a/{*rest}", 3),
        ("/a/{id}", 4),
        ("/a/me", 5),
        ("/a/{id}/b", 6),
        ("/a/u-{id}", 7),
        ("/a/{id}/{*rest}", 8),
    ]);
    let costs = [
        ("/", 2),
        ("/z/y", 2),
        ("/a", 3),
        ("/a/1", 4),
        ("/a/me", 5),
        ("/a/me/", 5),
        ("/a/1/b", 6),
        ("/a/me/b", 6),
        ("/a/u-1", 7),
        ("/a/u-", 4),
        ("/a/1/c", 8),
        ("/a/1/b/c", 8),
        ("/a//b", 6),
        ("/a/{*rest}", 4),
    ];
    assert_costs(Router::new().fallback(|| async {}).layer(limit), &costs).await;
}

/// `{id}` in a route matches any parameter in that place, but not a literal segment.
#[tokio::test]
async fn a_parameter_matches_a_parameter_of_any_name() {
    let page = || get(|| async {});
    let app = Router::new().route("/users/{user}", page()).route("/users/me", page()).route("/{{x}}/{y}", page());
    let limit = layer_with_costs(&[("/users/{id}", 10), ("/{{x}}/{id}", 5)]);
    assert_costs(app.layer(limit), &[("/users/1", 10), ("/users/me", 1), ("/{x}/1", 5)]).await;
}

/// A method that the more specific route does not have is looked up in the next route.
#[tokio::test]
async fn law_14_a_route_for_one_method_leaves_the_others_to_the_next_route() {
    let limit = layer_with_costs(&[("/mcp/{*rest}", 10), ("GET /mcp/{id}", 2), ("POST /mcp/x", 3)]);
    let mut meter = Meter::new(Router::new().fallback(|| async {}).layer(limit));
    for (method, path, cost) in [
        (Method::POST, "/mcp/x", 3),
        (Method::GET, "/mcp/x", 2),
        (Method::HEAD, "/mcp/x", 2),
        (Method::DELETE, "/mcp/x", 10),
        (Method::POST, "/mcp/y", 10),
    ] {
        assert_eq!(meter.cost_of(method.clone(), path).await, cost, "{method} {path}");
    }
}

/// RFC 8441: an extended CONNECT opens the WebSocket that a GET opens over HTTP/1.1.
#[tokio::test]
async fn law_14_an_extended_connect_costs_what_get_costs() {
    let app = Router::new().route("/ws", any(|| async {}));
    let connect = || Request::connect("https://a.example/ws").body(Body::empty()).unwrap();
    let limited = app.clone().layer(layer_with_costs(&[("GET /ws", 10)]));
    assert_eq!(remaining(&send(&limited, connect()).await), 990);
    let own = app.layer(layer_with_costs(&[("GET /ws", 10), ("CONNECT /ws", 20)]));
    assert_eq!(remaining(&send(&own, connect()).await), 980);
}

/// The cases in the documentation of `RateLimitLayer::route`.
#[tokio::test]
async fn paths_are_compared_as_they_were_sent() {
    let app = routes().layer(layer_with_costs(&[("/search", 10)]));
    for (path, status, cost) in [
        ("/search", 200, 10),
        ("/search/", 404, 10),
        ("//search", 404, 10),
        ("/./search", 404, 1),
        ("/search/.", 404, 1),
        ("/x/../search", 404, 1),
        ("/search;x", 404, 1),
        ("/%73earch", 404, 1),
    ] {
        let before = remaining(&fetch(&app, "/").await);
        let reply = fetch(&app, path).await;
        assert_eq!((reply.status.as_u16(), before - remaining(&reply)), (status, cost), "{path}");
    }
}
