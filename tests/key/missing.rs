//! Requests without a key, and requests whose key is unusable.

use axum::{Router, http::request::Parts};
use tollgate::{GlobalKey, HeaderKey, Key, KeyExtractor, MissingKey, PeerIp, Policy, key::KeyError};

use crate::support::app::{app, get_passes, get_passes_with, layer};
use crate::support::http::{get, get_with};

fn by_tenant(missing: MissingKey) -> Router {
    app(layer(1, HeaderKey::new("x-tenant").unwrap()).on_missing_key(missing))
}

#[tokio::test]
async fn reject_is_the_default_and_answers_400_without_retry_after() {
    let default = app(layer(1, HeaderKey::new("x-tenant").unwrap()));
    for app in [default, by_tenant(MissingKey::Reject)] {
        for _ in 0..3 {
            let reply = get(&app, "/").await;
            assert_eq!(reply.status, 400);
            assert_eq!(reply.header("retry-after"), None, "the request can never pass");
            assert_eq!(reply.header("cache-control").as_deref(), Some("no-store"));
            assert_eq!(reply.header("ratelimit"), None);
            assert_eq!(reply.json()["status"], 400);
        }
        assert!(get_passes_with(&app, "/", "x-tenant", "a").await);
    }
}

#[tokio::test]
async fn exempt_lets_requests_without_a_key_pass() {
    let app = by_tenant(MissingKey::Exempt);
    for _ in 0..3 {
        let reply = get(&app, "/").await;
        assert_eq!((reply.status.as_u16(), reply.header("ratelimit")), (200, None));
    }
    assert!(get_passes_with(&app, "/", "x-tenant", "a").await);
    assert!(!get_passes_with(&app, "/", "x-tenant", "a").await);
}

/// The exemption holds for the subject whose key is missing, not for the others.
#[tokio::test]
async fn exempt_does_not_exempt_from_other_subjects() {
    let limit = layer(1, HeaderKey::new("x-tenant").unwrap()).on_missing_key(MissingKey::Exempt);
    let app = app(limit.and(Policy::per_minute("all", 2).unwrap(), GlobalKey));
    assert_eq!(get(&app, "/").await.header("ratelimit").as_deref(), Some(r#""all";r=1;t=60"#));
    assert!(get_passes(&app, "/").await);
    assert!(!get_passes(&app, "/").await);
}

/// Anonymous requests have no limit by user, and the usual limit by address.
#[tokio::test]
async fn law_14_exempting_anonymous_users_leaves_the_limit_by_address() {
    let per_user = || Policy::per_minute("per-user", 1).unwrap();
    let by_address = || layer(3, HeaderKey::new("x-address").unwrap());
    let app = app(by_address().and_optional(per_user(), HeaderKey::new("x-user").unwrap()));
    let anonymous = [("x-address", "a")];
    assert_eq!(get_with(&app, "/", &anonymous).await.header("ratelimit").as_deref(), Some(r#""p";r=2;t=60"#));
    let known = [("x-address", "a"), ("x-user", "u")];
    assert_eq!(get_with(&app, "/", &known).await.status, 200);
    assert_eq!(get_with(&app, "/", &known).await.status, 429, "the user's limit");
    assert_eq!(get_with(&app, "/", &anonymous).await.status, 200);
    assert_eq!(get_with(&app, "/", &anonymous).await.status, 429, "the address's limit");
    // The setting of one subject does not change that of the layer: a request without an address is refused.
    assert_eq!(get_with(&app, "/", &[("x-user", "v")]).await.status, 400);
}

/// Whatever the layer says about the other subjects.
#[tokio::test]
async fn an_optional_subject_is_optional_whatever_the_setting_of_the_layer() {
    let all = || Policy::per_minute("all", 9).unwrap();
    let header = |name: &str| HeaderKey::new(name).unwrap();
    for missing in [MissingKey::Reject, MissingKey::Exempt, MissingKey::ShareOneKey] {
        let limit = layer(9, GlobalKey).on_missing_key(missing);
        let optional = app(limit.clone().and_optional(all(), header("x-user")));
        assert_eq!(get(&optional, "/").await.header("ratelimit").as_deref(), Some(r#""p";r=8;t=60"#), "{missing:?}");
    }
    let limit = layer(9, GlobalKey).and(all(), header("x-tenant"));
    let app = app(limit.and_optional(Policy::per_minute("users", 9).unwrap(), header("x-user")));
    assert_eq!(get_with(&app, "/", &[("x-tenant", "a")]).await.status, 200);
    assert_eq!(get_with(&app, "/", &[("x-user", "u")]).await.status, 400, "the tenant is not optional");
}

/// A boxed extractor, a tuple and a closure.
#[tokio::test]
async fn every_extractor_has_the_setting_of_the_layer_for_a_missing_key() {
    let header = |name: &str| HeaderKey::new(name).unwrap();
    let boxed: Box<dyn KeyExtractor> = Box::new(header("x-tenant"));
    let boxed = app(layer(1, boxed).on_missing_key(MissingKey::ShareOneKey));
    assert!(get_passes(&boxed, "/").await);
    assert!(!get_passes(&boxed, "/").await);

    let tuple = app(layer(1, (header("x-a"), header("x-b"))).on_missing_key(MissingKey::Exempt));
    assert_eq!(get_with(&tuple, "/", &[("x-b", "1")]).await.header("ratelimit"), None, "exempt");
    assert_eq!(get_with(&tuple, "/", &[("x-a", "1")]).await.header("ratelimit"), None, "exempt");

    let closure = |parts: &Parts| parts.uri.query().map(Key::from).ok_or_else(|| KeyError::missing("a query"));
    let closure = app(layer(1, closure).on_missing_key(MissingKey::Exempt));
    assert!(get_passes(&closure, "/").await && get_passes(&closure, "/").await && get_passes(&closure, "/?a").await);
    assert!(!get_passes(&closure, "/?a").await);
}

#[tokio::test]
async fn share_one_key_counts_requests_without_a_key_together() {
    let app = by_tenant(MissingKey::ShareOneKey);
    assert!(get_passes(&app, "/").await);
    assert!(!get_passes(&app, "/search").await);
    for own in ["a", "*missing", "missing", "*"] {
        assert!(get_passes_with(&app, "/", "x-tenant", own).await, "the header value {own} is not the shared bucket");
    }
}

#[tokio::test]
async fn a_missing_peer_address_is_a_missing_key() {
    let without_address = |missing| app(layer(1, PeerIp::new()).on_missing_key(missing));
    let exempt = without_address(MissingKey::Exempt);
    assert!(get_passes(&exempt, "/").await);
    assert!(get_passes(&exempt, "/").await);
    let shared = without_address(MissingKey::ShareOneKey);
    assert!(get_passes(&shared, "/").await);
    assert!(!get_passes(&shared, "/").await);
    assert_eq!(get(&without_address(MissingKey::Reject), "/").await.status, 400);
}

/// Otherwise a client could bypass the limit with a malformed key.
#[tokio::test]
async fn an_unusable_key_is_400_whatever_the_setting() {
    let malformed = |parts: &Parts| match parts.headers.get("x-token") {
        Some(_) => Err(KeyError::malformed("x-token".parse().unwrap())),
        None => Ok(Key::from("all")),
    };
    for missing in [MissingKey::Reject, MissingKey::Exempt, MissingKey::ShareOneKey] {
        let repeated = [("x-tenant", "a"), ("x-tenant", "b")];
        assert_eq!(get_with(&by_tenant(missing), "/", &repeated).await.status, 400, "{missing:?}");
        let app = app(layer(1, malformed).on_missing_key(missing));
        assert_eq!(get_with(&app, "/", &[("x-token", "?")]).await.status, 400, "{missing:?}");
        assert!(get_passes(&app, "/").await);
    }
}
