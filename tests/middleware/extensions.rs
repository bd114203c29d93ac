//! The extensions that the layer reads from a request.

use std::net::SocketAddr;

use axum::extract::connect_info::{ConnectInfo, MockConnectInfo};
use axum::{Router, routing::get};
use http::Request;
use tollgate::{Key, KeyExtractor, MatchedPathKey, PeerIp, Policy, RateLimitLayer};

use crate::support::{counting::AnswerKind, http::get as fetch};

#[test]
fn connect_info_missing_is_a_key_error_not_a_panic() {
    let (parts, ()) = Request::new(()).into_parts();
    let error = PeerIp::new().extract(&parts).unwrap_err();
    assert_eq!(error.cause(), "no_peer");
    assert!(error.is_missing());
    assert!(error.to_string().contains("into_make_service_with_connect_info::<SocketAddr>()"), "{error}");
}

#[tokio::test]
async fn mock_connect_info_is_honoured() {
    let (mut parts, ()) = Request::new(()).into_parts();
    let mock: SocketAddr = "203.0.113.7:40000".parse().unwrap();
    parts.extensions.insert(MockConnectInfo(mock));
    assert_eq!(PeerIp::new().extract(&parts), Ok(Some(Key::from("203.0.113.7"))));
    let real: SocketAddr = "203.0.113.8:40000".parse().unwrap();
    parts.extensions.insert(ConnectInfo(real));
    assert_eq!(PeerIp::new().extract(&parts), Ok(Some(Key::from("203.0.113.8"))), "the real address precedes the mock");

    let policy = Policy::per_minute("per-client", 1).unwrap();
    for kind in AnswerKind::BOTH {
        let limit = RateLimitLayer::new(kind.limiter(), policy.clone(), PeerIp::new());
        let app = Router::new().route("/", get(|| async {})).layer(limit).layer(MockConnectInfo(mock));
        assert_eq!(fetch(&app, "/").await.status, 200, "{kind:?}");
        assert_eq!(fetch(&app, "/").await.status, 429, "{kind:?}");
    }
}

#[tokio::test]
async fn matched_path_absent_in_fallback_uses_shared_bucket() {
    for kind in AnswerKind::BOTH {
        let policy = Policy::per_minute("per-route", 2).unwrap();
        let limit = RateLimitLayer::new(kind.limiter(), policy, MatchedPathKey);
        let app = Router::new().route("/", get(|| async {})).layer(limit);
        for path in ["/.env", "/wp-login.php"] {
            assert_eq!(fetch(&app, path).await.status, 404, "{kind:?}");
        }
        assert_eq!(fetch(&app, "/admin").await.status, 429, "{kind:?}: unmatched paths share one budget");
        assert_eq!(fetch(&app, "/").await.status, 200, "{kind:?}: a route has its own budget");
    }
}
