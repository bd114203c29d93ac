//! At most three uploads of a client at once.

use tollgate::{ConfigError, KeyExtractor, Limiter, Policy, RateLimitLayer};

fn uploads<K: KeyExtractor>(limiter: Limiter, client: K) -> Result<RateLimitLayer<K>, ConfigError> {
    Ok(RateLimitLayer::new(limiter, Policy::concurrent("uploads", 3)?, client).fail_closed())
}

#[tokio::test]
async fn at_most_three_uploads_at_once() {
    use tower::ServiceExt;

    let app = crate::support::app::app(uploads(crate::support::app::limiter(), tollgate::GlobalKey).unwrap());
    let send = || app.clone().oneshot(crate::support::http::request(http::Method::POST, "/login", &[]));
    let mut open = Vec::new();
    for status in [200, 200, 200, 429] {
        let response = send().await.unwrap();
        assert_eq!(response.status(), status);
        open.push(response);
    }
    open.clear();
    assert_eq!(send().await.unwrap().status(), 200);
}
