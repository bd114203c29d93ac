//! Rejections of HEAD requests: the headers of GET without content.

use axum::{Router, http::Method};
use tollgate::{GlobalKey, PeerIp, RateLimitLayer};
use tower::Layer;

use crate::support::app::{app, down_limiter, layer, per_minute, routes};
use crate::support::http::{Connection, Reply, get, request, send, serve};

async fn head(app: &Router) -> Reply {
    send(app, request(Method::HEAD, "/", &[])).await
}

/// Asserts that HEAD has the headers of GET and no content (RFC 9110, section 9.3.2).
#[track_caller]
fn assert_same_fields(head: &Reply, get: &Reply) {
    assert_eq!(head.status, get.status);
    assert!(head.body.is_empty(), "{:?}", head.body);
    assert!(!get.body.is_empty());
    for name in ["content-type", "retry-after", "cache-control", "ratelimit", "ratelimit-policy"] {
        assert_eq!(head.header(name), get.header(name), "{name}");
    }
    // Content-Length may be absent, but must not differ (section 8.6).
    if let Some(length) = head.header("content-length") {
        assert_eq!(length, get.body.len().to_string());
    }
}

#[tokio::test]
async fn a_denied_head_has_no_content() {
    let app = app(layer(1, GlobalKey));
    assert_eq!(head(&app).await.status, 200);
    assert_same_fields(&head(&app).await, &get(&app, "/").await);
}

#[tokio::test]
async fn a_head_that_cannot_be_checked_has_no_content() {
    let without_address = app(layer(1, PeerIp::new()));
    assert_same_fields(&head(&without_address).await, &get(&without_address, "/").await);
    let closed = app(RateLimitLayer::new(down_limiter(), per_minute(1), GlobalKey).fail_closed());
    assert_same_fields(&head(&closed).await, &get(&closed, "/").await);
}

/// The client would read content after a HEAD response as the next response.
#[tokio::test]
async fn a_denied_head_leaves_the_connection_usable() {
    let around = Router::new().fallback_service(layer(1, GlobalKey).layer(routes()));
    for app in [app(layer(1, GlobalKey)), around] {
        let mut connection = Connection::open(serve(app).await).await;
        let mut head = async || connection.send(request(Method::HEAD, "/", &[])).await;
        assert_eq!(head().await.status, 200);
        let (first, second) = (head().await, head().await);
        assert_same_fields(&first, &connection.get("/").await);
        assert_eq!(second.status, 429);
    }
}
