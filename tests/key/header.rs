//! Keys from request headers.

use axum::http::{HeaderValue, Request};
use axum::{Router, body::Body};
use tollgate::{ApiKey, HeaderKey};

use crate::support::app::{app, get_passes_with, layer, passes};
use crate::support::http::{Http2, get, get_with, serve};
use crate::support::says;

fn by_tenant(limit: u64) -> Router {
    app(layer(limit, HeaderKey::new("x-tenant").unwrap()))
}

fn tenant(value: impl Into<Vec<u8>>) -> Request<Body> {
    let value = HeaderValue::from_bytes(&value.into()).unwrap();
    Request::builder().header("x-tenant", value).body(Body::empty()).unwrap()
}

#[tokio::test]
async fn every_value_of_the_header_has_a_budget() {
    let app = by_tenant(1);
    assert!(get_passes_with(&app, "/", "x-tenant", "a").await);
    assert!(get_passes_with(&app, "/", "X-Tenant", "b").await);
    assert!(
        !get_passes_with(&app, "/search", "X-TENANT", "a").await,
        "neither the path nor the case of the name matters"
    );
    assert!(get_passes_with(&app, "/", "x-tenant", "A").await, "values are compared byte by byte");
}

#[tokio::test]
async fn a_missing_or_empty_header_is_400() {
    let app = by_tenant(10);
    for headers in [&[][..], &[("x-tenant", "")], &[("x-other", "a")]] {
        let reply = get_with(&app, "/", headers).await;
        assert_eq!(reply.status, 400, "{headers:?}");
        assert_eq!(reply.json()["type"], "about:blank");
    }
}

#[tokio::test]
async fn a_repeated_header_is_400_even_if_its_values_agree() {
    let app = by_tenant(10);
    assert_eq!(get_with(&app, "/", &[("x-tenant", "a"), ("x-tenant", "b")]).await.status, 400);
    assert_eq!(get_with(&app, "/", &[("x-tenant", "a"), ("x-tenant", "a")]).await.status, 400);
    assert_eq!(get_with(&app, "/", &[("x-tenant", "a"), ("x-tenant", "")]).await.status, 400);
}

#[tokio::test]
async fn values_of_a_megabyte_are_distinct_keys() {
    let app = by_tenant(1);
    let (mut a, mut b) = (vec![b'x'; 1 << 20], vec![b'x'; 1 << 20]);
    a.push(b'a');
    b.push(b'b');
    assert!(passes(&app, tenant(a.clone())).await);
    assert!(passes(&app, tenant(b)).await);
    assert!(!passes(&app, tenant(a)).await);
}

/// Characters with a meaning in Redis keys, and bytes that are not UTF-8, are values like any other.
#[tokio::test]
async fn values_with_special_characters_are_distinct_keys() {
    let app = by_tenant(1);
    let values: [&[u8]; 14] = [
        b"a",
        b"{a}",
        b"{a",
        b"%7Ba%7D",
        b"{{a}}",
        b"a:p",
        b"a|b",
        b"a\tb",
        b"a b",
        b"a\xff",
        b"\xff\xfe",
        b"*",
        b"#a",
        "é".as_bytes(),
    ];
    for value in values {
        assert!(passes(&app, tenant(value)).await, "{:?} has its own budget", value.escape_ascii().to_string());
    }
    for value in values {
        assert!(!passes(&app, tenant(value)).await, "{:?} has one budget", value.escape_ascii().to_string());
    }
}

#[tokio::test]
async fn a_bearer_token_is_a_key() {
    let app = app(layer(1, ApiKey::bearer()));
    assert!(get_passes_with(&app, "/", "authorization", "Bearer secret-1").await);
    assert!(get_passes_with(&app, "/", "authorization", "Bearer secret-2").await);
    for same in ["Bearer secret-1", "bearer secret-1", "BEARER   secret-1 "] {
        assert!(!get_passes_with(&app, "/", "authorization", same).await, "{same}");
    }
}

#[tokio::test]
async fn another_scheme_is_not_a_bearer_token() {
    let app = app(layer(10, ApiKey::bearer()));
    assert_eq!(get(&app, "/").await.status, 401);
    for value in ["Basic c2VjcmV0", "Bearer", "Bearer ", "Bearersecret", "secret", ""] {
        assert_eq!(get_with(&app, "/", &[("authorization", value)]).await.status, 401, "{value:?}");
    }
    let twice = [("authorization", "Bearer a"), ("authorization", "Bearer b")];
    assert_eq!(get_with(&app, "/", &twice).await.status, 400);
}

#[tokio::test]
async fn an_api_key_is_read_from_its_header() {
    let app = app(layer(1, ApiKey::header("X-Api-Key").unwrap()));
    assert!(get_passes_with(&app, "/", "x-api-key", "secret-1").await);
    assert!(get_passes_with(&app, "/", "x-api-key", "secret-2").await);
    assert!(!get_passes_with(&app, "/", "x-api-key", "secret-1").await);
    assert_eq!(get(&app, "/").await.status, 401);
}

/// HTTP/2 forwards the whitespace that HTTP/1.1 trims.
#[tokio::test]
async fn law_14_whitespace_around_a_key_gives_no_new_budget() {
    for (app, missing) in [(app(layer(1, ApiKey::header("x-tenant").unwrap())), 401), (by_tenant(1), 400)] {
        let mut connection = Http2::open(serve(app).await).await;
        let mut statuses = Vec::new();
        for spelling in ["sk-1", " sk-1", "sk-1 ", "\tsk-1", " \t sk-1 \t ", "sk- 1", " \t", ""] {
            statuses.push(connection.get("/", &[("x-tenant", spelling)]).await.status.as_u16());
        }
        assert_eq!(statuses, [200, 429, 429, 429, 429, 200, missing, missing]);
    }
    let bearer = app(layer(1, ApiKey::bearer()));
    assert!(get_passes_with(&bearer, "/", "authorization", "Bearer a").await);
    for same in [" Bearer a", "\tbearer a ", "Bearer \ta"] {
        assert!(!get_passes_with(&bearer, "/", "authorization", same).await, "{same:?}");
    }
}

#[test]
fn the_whole_authorization_header_as_a_key_is_an_error() {
    for name in ["authorization", "Authorization", "AUTHORIZATION"] {
        for message in [ApiKey::header(name).unwrap_err().to_string(), HeaderKey::new(name).unwrap_err().to_string()] {
            assert!(message.contains(name) && message.contains("`ApiKey::bearer()`"), "{message}");
        }
    }
}

#[test]
fn an_invalid_header_name_is_an_error() {
    for name in ["", "x tenant", "x-tenant:", "é"] {
        let invalid = format!("{name:?} is not a header name; ");
        says(HeaderKey::new(name).unwrap_err(), &invalid);
        says(ApiKey::header(name).unwrap_err(), &invalid);
    }
}
