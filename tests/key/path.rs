//! Budgets by route, and one budget for all requests.

use axum::{Router, routing};
use tollgate::{GlobalKey, HeaderKey, MatchedPathKey};

use crate::support::app::{app, get_passes, get_passes_with, layer, routes};
use crate::support::http::get;

#[tokio::test]
async fn all_ids_of_a_route_share_its_budget() {
    let app = app(layer(2, MatchedPathKey));
    assert!(get_passes(&app, "/users/1").await);
    assert!(get_passes(&app, "/users/2").await);
    assert!(!get_passes(&app, "/users/3").await);
    assert!(get_passes(&app, "/search").await, "another route has its own");
}

/// `/api` and `/api/` are one place of a router that is nested as a service.
#[tokio::test]
async fn law_11_a_trailing_slash_gives_no_new_budget() {
    let inside = Router::new().route("/", routing::get(|| async {})).layer(layer(1, MatchedPathKey));
    let app = Router::new().nest_service("/api", inside);
    assert!(get_passes(&app, "/api").await);
    assert!(!get_passes(&app, "/api/").await);
    let both = Router::new().route("/a", routing::get(|| async {})).route("/a/", routing::get(|| async {}));
    let app = both.layer(layer(1, MatchedPathKey));
    assert!(get_passes(&app, "/a/").await);
    assert!(!get_passes(&app, "/a").await);
}

#[tokio::test]
async fn a_query_gives_no_new_budget() {
    let app = app(layer(1, MatchedPathKey));
    assert!(get_passes(&app, "/search?x=1").await);
    assert!(!get_passes(&app, "/search?x=2").await);
    assert!(!get_passes(&app, "/search").await);
}

/// A scanner could otherwise get a new budget with each path that does not exist.
#[tokio::test]
async fn unmatched_paths_share_one_budget() {
    let app = app(layer(3, MatchedPathKey));
    for path in ["/a", "/b?x=1", "/users/1/2"] {
        assert_eq!(get(&app, path).await.status, 404, "{path}");
    }
    assert_eq!(get(&app, "/c").await.status, 429);
    assert!(get_passes(&app, "/").await);
}

#[tokio::test]
async fn unmatched_paths_of_a_custom_fallback_share_one_budget() {
    let app = Router::new().nest("/api", routes()).fallback(|| async { "fallback" }).layer(layer(2, MatchedPathKey));
    assert_eq!(get(&app, "/a").await.text(), "fallback");
    assert_eq!(get(&app, "/api/b").await.text(), "fallback");
    assert_eq!(get(&app, "/c").await.status, 429);
    assert!(get_passes(&app, "/api").await);
}

/// axum has no template for paths below `nest_service`.
#[tokio::test]
async fn paths_below_nest_service_share_the_budget_of_unmatched_paths() {
    let app = Router::new().nest_service("/files", routes()).layer(layer(2, MatchedPathKey));
    assert!(get_passes(&app, "/files/users/1").await);
    assert!(get_passes(&app, "/files/search").await);
    assert!(!get_passes(&app, "/files/users/2").await);
}

#[tokio::test]
async fn a_tuple_is_a_budget_for_each_client_and_route() {
    let app = app(layer(1, (HeaderKey::new("x-tenant").unwrap(), MatchedPathKey)));
    for tenant in ["a", "b"] {
        for path in ["/search", "/users/1"] {
            assert!(get_passes_with(&app, path, "x-tenant", tenant).await, "{tenant} {path}");
        }
    }
    assert!(!get_passes_with(&app, "/users/2", "x-tenant", "a").await);
}

#[tokio::test]
async fn the_global_key_is_one_budget_for_all_requests() {
    let app = app(layer(2, GlobalKey));
    assert!(get_passes_with(&app, "/", "x-tenant", "a").await);
    assert!(get_passes_with(&app, "/search", "x-tenant", "b").await);
    assert!(!get_passes_with(&app, "/users/1", "x-tenant", "c").await);
}
