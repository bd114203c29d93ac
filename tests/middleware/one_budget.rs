//! All services, routes and connections of a layer share one budget (tokio-rs/axum#2634).

use axum::Router;
use axum::routing::{get, post};
use http::Method;
use tollgate::{HeaderStyle, MemoryStore, PeerIp, Policy, RateLimitLayer};
use tower::{Layer, ServiceBuilder};

use crate::support::counting::{AnswerKind, CountingService, status};
use crate::support::http::{Connection, request, serve};

fn per_client(kind: AnswerKind, limit: u64) -> RateLimitLayer<PeerIp> {
    let policy = Policy::per_minute("per-client", limit).unwrap();
    RateLimitLayer::new(kind.limiter(), policy, PeerIp::new())
}

#[tokio::test]
async fn two_routes_and_two_connections_share_one_limit() {
    for kind in AnswerKind::BOTH {
        let app = Router::new().route("/a", get(|| async {})).route("/b", get(|| async {})).layer(per_client(kind, 4));
        let address = serve(app).await;
        let (mut one, mut two) = (Connection::open(address).await, Connection::open(address).await);
        for path in ["/a", "/b"] {
            assert_eq!(one.get(path).await.status, 200, "{kind:?}");
            assert_eq!(two.get(path).await.status, 200, "{kind:?}");
        }
        for path in ["/a", "/b", "/none"] {
            assert_eq!(one.get(path).await.status, 429, "{kind:?} {path}");
            assert_eq!(two.get(path).await.status, 429, "{kind:?} {path}");
        }
        assert_eq!(Connection::open(address).await.get("/a").await.status, 429, "{kind:?}: a new connection");
    }
}

/// Derived layers have their own settings and share the budget.
#[tokio::test]
async fn law_11_routes_connections_and_clones_spend_from_one_budget() {
    for kind in AnswerKind::BOTH {
        let limit = per_client(kind, 10);
        let open = limit.clone().fail_open().with_headers(HeaderStyle::XRateLimitDelta);
        let expensive = limit.clone().with_cost(5).fail_closed();
        let app = Router::new()
            .route("/watch", get(|| async {}).layer(open))
            .route("/search", get(|| async {}).layer(expensive))
            .route("/write", post(|| async {}))
            .route_layer(limit);
        // `/watch` and `/search` have two layers each, so their requests are charged twice.
        let address = serve(app).await;
        let (mut one, mut two) = (Connection::open(address).await, Connection::open(address).await);
        assert_eq!(one.get("/watch").await.status, 200, "{kind:?}: 2 units");
        assert_eq!(two.get("/search").await.status, 200, "{kind:?}: 6 units more");
        assert_eq!(
            one.get("/search").await.status,
            429,
            "{kind:?}: the outer layer charges 1, the inner one is denied 5"
        );
        let write = || request(Method::POST, "/write", &[]);
        assert_eq!(two.send(write()).await.status, 200, "{kind:?}: the tenth unit");
        assert_eq!(one.send(write()).await.status, 429, "{kind:?}");
        assert_eq!(two.get("/watch").await.status, 429, "{kind:?}");
    }
}

#[tokio::test]
async fn law_11_two_limiters_over_one_store_share_the_budget() {
    let store = MemoryStore::new();
    let layer = || crate::support::counting::layer(tollgate::Limiter::new(store.clone()), 2);
    let mut one = ServiceBuilder::new().layer(layer()).service(CountingService::default());
    let mut two = layer().layer(CountingService::default());
    assert!(status(&mut one).await.is_success());
    assert!(status(&mut two).await.is_success());
    assert_eq!(status(&mut one).await, 429);
    assert_eq!(status(&mut two).await, 429);
}

#[tokio::test]
async fn law_11_many_connections_at_once_spend_one_budget() {
    for kind in AnswerKind::BOTH {
        let address = serve(Router::new().route("/", get(|| async {})).layer(per_client(kind, 10))).await;
        let mut connections = tokio::task::JoinSet::new();
        for _ in 0..20 {
            connections.spawn(async move {
                let mut connection = Connection::open(address).await;
                let mut passed = 0;
                for _ in 0..5 {
                    passed += usize::from(connection.get("/").await.status == 200);
                }
                passed
            });
        }
        let passed: usize = connections.join_all().await.into_iter().sum();
        assert_eq!(passed, 10, "{kind:?}: of 100 requests on 20 connections");
    }
}
