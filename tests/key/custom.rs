//! Keys from extensions, closures, tuples and boxed extractors.

use axum::{Extension, http::request::Parts};
use tollgate::{ExtensionKey, GlobalKey, HeaderKey, Key, KeyExtractor, key::KeyError};

use crate::support::app::{app, get_passes, get_passes_with, layer};
use crate::support::http::{get, get_with};

#[derive(Clone)]
struct UserId(u64);

impl From<&UserId> for Key {
    fn from(user: &UserId) -> Self {
        Self::from(user.0)
    }
}

#[tokio::test]
async fn an_extension_from_an_outer_layer_is_a_key() {
    let limit = layer(1, ExtensionKey::<UserId>::new());
    let (ann, bob) = (app(limit.clone()).layer(Extension(UserId(1))), app(limit.clone()).layer(Extension(UserId(2))));
    assert!(get_passes(&ann, "/").await);
    assert!(get_passes(&bob, "/").await);
    assert!(!get_passes(&ann, "/").await);
    assert_eq!(get(&app(limit), "/").await.status, 500, "without the extension, the layers are in the wrong order");
}

fn query(parts: &Parts) -> Option<&str> {
    parts.uri.query()
}

#[tokio::test]
async fn a_closure_returns_a_key() {
    let app = app(layer(1, |parts: &Parts| Key::from(query(parts).unwrap_or("none"))));
    assert!(get_passes(&app, "/?a").await);
    assert!(get_passes(&app, "/?b").await);
    assert!(!get_passes(&app, "/?a").await);
}

#[tokio::test]
async fn a_closure_returns_an_option_and_none_is_exempt() {
    let app = app(layer(1, |parts: &Parts| query(parts).map(Key::from)));
    assert!(get_passes(&app, "/?a").await);
    assert!(!get_passes(&app, "/?a").await);
    for _ in 0..3 {
        let exempt = get(&app, "/").await;
        assert_eq!((exempt.status.as_u16(), exempt.header("ratelimit")), (200, None));
    }
}

#[tokio::test]
async fn a_closure_returns_a_result_and_an_error_is_400() {
    let strict = |parts: &Parts| query(parts).map(Key::from).ok_or_else(|| KeyError::missing("a query"));
    let app = app(layer(1, strict));
    assert!(get_passes(&app, "/?a").await);
    assert!(!get_passes(&app, "/?a").await);
    assert_eq!(get(&app, "/").await.status, 400);
}

#[tokio::test]
async fn a_closure_returns_a_result_of_an_option() {
    let app = app(layer(1, |parts: &Parts| match query(parts) {
        Some("internal") => Ok(None),
        Some(query) => Ok(Some(query.to_owned())),
        None => Err(KeyError::missing("a query")),
    }));
    assert!(get_passes(&app, "/?a").await);
    assert!(!get_passes(&app, "/?a").await);
    assert!(get_passes(&app, "/?internal").await);
    assert!(get_passes(&app, "/?internal").await);
    assert_eq!(get(&app, "/").await.status, 400);
}

#[tokio::test]
async fn a_closure_may_return_any_bytes() {
    let app = app(layer(1, |parts: &Parts| match query(parts) {
        Some("control") => Key::new(b"\r\n\0"),
        Some("newline") => Key::new(b"\n"),
        _ => Key::new(b""),
    }));
    for path in ["/", "/?control", "/?newline"] {
        assert!(get_passes(&app, path).await, "{path}");
        assert!(!get_passes(&app, path).await, "{path}");
    }
}

fn header(name: &str) -> HeaderKey {
    HeaderKey::new(name).unwrap()
}

#[tokio::test]
async fn a_tuple_is_one_key_of_all_its_parts() {
    let app = app(layer(1, (header("x-a"), header("x-b"))));
    let pass = async |a, b| get_with(&app, "/", &[("x-a", a), ("x-b", b)]).await.status == 200;
    assert!(pass("1", "2").await);
    assert!(!pass("1", "2").await);
    assert!(pass("2", "1").await, "the order matters");
    assert!(pass("1", "3").await);
    assert!(pass("12", "3").await);
    assert!(pass("1", "23").await, "the boundaries matter");
    assert!(pass("1|2", "3").await);
    assert!(pass("1", "2|3").await);
    assert_eq!(get_with(&app, "/", &[("x-a", "1")]).await.status, 400, "all parts are needed");
}

#[tokio::test]
async fn a_tuple_with_an_exempt_part_is_exempt() {
    let staff = |parts: &Parts| (!parts.headers.contains_key("x-staff")).then(|| Key::from("public"));
    let app = app(layer(1, (GlobalKey, staff, header("x-a"))));
    let pass = async |headers: &[(&str, &str)]| get_with(&app, "/", headers).await.status == 200;
    assert!(pass(&[("x-a", "1")]).await);
    assert!(!pass(&[("x-a", "1")]).await);
    assert!(pass(&[("x-a", "1"), ("x-staff", "1")]).await);
    assert!(pass(&[("x-staff", "1")]).await, "the parts after the exempt one are not extracted");
}

#[tokio::test]
async fn an_extractor_is_chosen_at_run_time() {
    for (name, other_passes) in [("x-tenant", true), ("global", false)] {
        let key: Box<dyn KeyExtractor> = if name == "global" { Box::new(GlobalKey) } else { Box::new(header(name)) };
        let app = app(layer(1, key));
        assert!(get_passes_with(&app, "/", "x-tenant", "a").await, "{name}");
        assert_eq!(get_passes_with(&app, "/", "x-tenant", "b").await, other_passes, "{name}");
    }
}

/// Authentication inserts the number or the UUID of an account.
#[cfg(feature = "uuid")]
#[tokio::test]
async fn integers_and_uuids_from_an_outer_layer_are_keys() {
    let account = || layer(1, ExtensionKey::<i64>::new());
    assert!(get_passes(&app(account()).layer(Extension(-5_i64)), "/").await);
    let uuid = |last| uuid::Uuid::from_u128(last);
    let limit = layer(1, ExtensionKey::<uuid::Uuid>::new());
    let [ann, bob] = [1, 2].map(|last| app(limit.clone()).layer(Extension(uuid(last))));
    assert!(get_passes(&ann, "/").await);
    assert!(get_passes(&bob, "/").await);
    assert!(!get_passes(&ann, "/").await);
}
