//! Spellings of a path that no router has matched.

use axum::Router;
use tollgate::{GlobalKey, Route};

use crate::support::app::layer;
use crate::support::http::{Reply, get as fetch};

fn remaining(reply: &Reply) -> Option<String> {
    let field = reply.header("ratelimit")?;
    field.split(';').find_map(|part| part.strip_prefix("r=")).map(str::to_owned)
}

/// The remaining units of 1 000 after a request; `None` if the request is exempt.
async fn remaining_after(entries: &[(&str, Route)], path: &str) -> Option<String> {
    let limit = entries.iter().fold(layer(1_000, GlobalKey), |limit, (entry, route)| limit.route(entry, route.clone()));
    let app = Router::new().fallback(|| async {}).layer(limit);
    remaining(&fetch(&app, path).await)
}

#[tokio::test]
async fn law_14_a_path_that_leads_out_of_an_exempt_route_is_not_exempt() {
    let table = [("/static/{*rest}", Route::exempt()), ("/login", Route::new().cost(10))];
    for path in [
        "/static/../login",
        "/static/a/../../login",
        "/static/%2e%2e/login",
        "/static/%2E%2e/login",
        "/static/.%2E/login",
        "/static/./a",
        "/static/%2e/a",
        "/static/..",
        "/static/../",
        "/static/..%2flogin",
        "/static/..%5Clogin",
        "/static/..;x/login",
        "/static/..%3bx/login",
        "//static/a",
        "/static//a",
    ] {
        assert_eq!(remaining_after(&table, path).await.as_deref(), Some("999"), "{path}");
    }
    for path in [
        "/static",
        "/static/",
        "/static/a",
        "/static/.a",
        "/static/a..b",
        "/static/...",
        "/static/%2ea/%",
        "/static/a%2Fb",
    ] {
        assert_eq!(remaining_after(&table, path).await, None, "{path}");
    }
}

#[tokio::test]
async fn an_exempt_route_with_a_final_slash_is_exempt_without_it_too() {
    let table = [("/healthz/", Route::exempt())];
    for (path, remaining) in [("/healthz/", None), ("/healthz", None), ("/healthz//", Some("999"))] {
        assert_eq!(remaining_after(&table, path).await.as_deref(), remaining, "{path}");
    }
}

/// The path is not exempt, and the other matching routes apply.
#[tokio::test]
async fn law_14_a_path_with_dot_segments_gets_the_next_route_that_is_not_exempt() {
    let by_method = [("GET /static/{*rest}", Route::exempt()), ("/static/{*rest}", Route::new().cost(5))];
    assert_eq!(remaining_after(&by_method, "/static/../login").await.as_deref(), Some("995"));
    let by_place = [("/static/{*rest}", Route::exempt()), ("/{*rest}", Route::new().cost(7))];
    assert_eq!(remaining_after(&by_place, "/static/../login").await.as_deref(), Some("993"));
    let all = [("/{*rest}", Route::exempt())];
    assert_eq!(remaining_after(&all, "/").await, None);
    assert_eq!(remaining_after(&all, "/a/../b").await.as_deref(), Some("999"));
}

/// The table in the docs of `RateLimitLayer::route`.
#[tokio::test]
async fn law_14_repeated_slashes_do_not_bypass_a_route() {
    let table = [
        ("/login", Route::new().cost(10)),
        ("/tree/b", Route::new().cost(20)),
        ("/users/{id}/posts", Route::new().cost(30)),
        ("/mcp/{*rest}", Route::new().cost(40)),
    ];
    for (path, remaining) in [
        ("/login", "990"),
        ("//login", "990"),
        ("///login//", "990"),
        ("/tree//b", "980"),
        ("/users//7///posts", "970"),
        ("//mcp//x", "960"),
        ("//mcp", "960"),
        ("/login/.", "999"),
        ("/x/../login", "999"),
        ("/login;x", "999"),
        ("/%6cogin", "999"),
        ("/mcp/../login", "960"),
    ] {
        assert_eq!(remaining_after(&table, path).await.as_deref(), Some(remaining), "{path}");
    }
}
