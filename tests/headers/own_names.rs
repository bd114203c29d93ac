//! Fields under names of the service's own, and limits that no field tells of.

use axum::http::{HeaderMap, HeaderName};
use tollgate::rejection::{Denial, EmptyBody, PlainText};
use tollgate::{GlobalKey, HeaderStyle, Limiter, MemoryStore, Policy, RateLimitLayer, headers::HeaderWriter};

use crate::support::app::{app, down_limiter, layer, limiter, per_minute};
use crate::support::{http::get, says};

fn renamed(style: HeaderStyle, names: &[(&'static str, &'static str)]) -> HeaderWriter {
    names.iter().fold(HeaderWriter::new(style), |writer, (field, own)| {
        writer.with_name(HeaderName::from_static(field), HeaderName::from_static(own))
    })
}

#[tokio::test]
async fn a_hidden_limit_is_in_no_field_and_no_wait_is_in_a_body() {
    let hidden = || layer(1, GlobalKey).with_headers(HeaderStyle::Hidden);
    let closed = RateLimitLayer::new(down_limiter(), per_minute(1), GlobalKey).fail_closed();
    let with_millis = HeaderWriter::new(HeaderStyle::Hidden).with_retry_after_ms(true);
    for (app, body) in [
        (app(hidden().with_rejection(PlainText::default())), "rate limit exceeded\n"),
        (app(hidden().with_rejection(EmptyBody::default())), ""),
        (app(hidden().with_headers(with_millis).with_rejection(EmptyBody::default())), ""),
        (app(closed.with_headers(HeaderStyle::Hidden).with_rejection(EmptyBody::default())), ""),
    ] {
        let _ = get(&app, "/").await;
        let reply = get(&app, "/").await;
        assert!([429, 503].contains(&reply.status.as_u16()));
        let names = reply.headers.keys().map(HeaderName::as_str);
        let told: Vec<&str> = names.filter(|name| !["content-type", "content-length"].contains(name)).collect();
        assert_eq!((told, reply.text()), (vec!["cache-control"], body));
    }
    // A computed cost, because a fixed one above the limit is a mistake of the layer.
    let costly = layer(7, GlobalKey).with_cost_fn(|_: &axum::http::request::Parts| 9_999);
    let reply = get(&app(costly.with_headers(HeaderStyle::Hidden)), "/").await;
    let told = reply.text();
    assert!(told.contains("it can never pass") && !told.contains('7') && !told.contains("9999"), "{told}");
    let allowed = get(&app(hidden()), "/").await;
    assert!(allowed.headers.keys().all(|name| name.as_str().starts_with("content-")), "{:?}", allowed.headers);
}

/// The service itself still learns the wait.
#[tokio::test]
async fn an_outer_layer_learns_the_wait_of_a_hidden_limit() {
    use tower::ServiceExt;
    let app = app(layer(1, GlobalKey).with_headers(HeaderStyle::Hidden));
    let ask = || app.clone().oneshot(crate::support::http::request(axum::http::Method::GET, "/", &[]));
    let _ = ask().await.unwrap();
    let response = ask().await.unwrap();
    assert_eq!(response.extensions().get::<Denial>().unwrap().retry_after().unwrap().as_secs(), 60);
}

#[tokio::test]
async fn fields_have_the_names_of_the_service_and_are_merged_under_them() {
    let names = [
        ("x-ratelimit-limit", "x-acme-quota"),
        ("x-ratelimit-remaining", "x-acme-left"),
        ("x-ratelimit-limit", "x-acme-limit"),
    ];
    let writer = renamed(HeaderStyle::XRateLimitDelta, &names);
    let (wide, narrow) = (Policy::per_minute("wide", 9).unwrap(), Policy::per_minute("narrow", 3).unwrap());
    let limiter = limiter();
    let inner = RateLimitLayer::new(limiter.clone(), narrow, GlobalKey).with_headers(writer.clone());
    let outer = RateLimitLayer::new(limiter, wide, GlobalKey).with_headers(writer);
    let app = app(inner.validated().unwrap()).layer(outer.validated().unwrap());
    for (status, left) in [(200, "2"), (200, "1"), (200, "0"), (429, "0")] {
        let reply = get(&app, "/").await;
        assert_eq!(reply.status, status);
        let field = |name| reply.header(name);
        assert_eq!((field("x-acme-limit").as_deref(), field("x-acme-left").as_deref()), (Some("3"), Some(left)));
        for name in ["x-ratelimit-limit", "x-ratelimit-remaining", "x-acme-quota"] {
            assert_eq!(field(name), None, "{name}");
        }
        assert!(field("x-ratelimit-reset").is_some() && field("retry-after").is_some() == (status == 429));
    }
}

#[tokio::test]
async fn fields_of_the_default_style_have_the_names_of_the_service_too() {
    let app = app(layer(1, GlobalKey).with_headers(renamed(HeaderStyle::Draft11, &[("ratelimit", "x-acme-left")])));
    for status in [200, 429] {
        let reply = get(&app, "/").await;
        assert_eq!((reply.status.as_u16(), reply.header("ratelimit")), (status, None));
        assert_eq!(reply.header("x-acme-left").as_deref(), Some(r#""p";r=0;t=60"#));
    }
}

#[tokio::test]
async fn every_style_can_have_other_names() {
    let limiter = Limiter::new(MemoryStore::new());
    let policy = Policy::per_minute("p", 1).unwrap();
    let decisions = [limiter.check("k", &policy, 1).await.unwrap(), limiter.check("k", &policy, 1).await.unwrap()];
    for style in super::fields::STYLES {
        let fields: Vec<HeaderName> =
            style.names().iter().filter(|name| !name.as_str().starts_with("retry-after")).cloned().collect();
        let own = |field: &HeaderName| HeaderName::try_from(format!("x-own-{field}")).unwrap();
        let writer = HeaderWriter::new(style);
        let writer = fields.iter().fold(writer, |writer, field| writer.with_name(field.clone(), own(field)));
        for decision in &decisions {
            let (mut plain, mut renamed) = (HeaderMap::new(), HeaderMap::new());
            HeaderWriter::new(style).write(decision, &mut plain);
            writer.write(decision, &mut renamed);
            let expected: HeaderMap = plain
                .iter()
                .map(|(name, value)| {
                    let name = if fields.contains(name) { own(name) } else { name.clone() };
                    (name, value.clone())
                })
                .collect();
            assert_eq!(renamed, expected, "{style:?}");
        }
    }
}

#[test]
fn a_name_that_no_field_can_have_is_a_mistake_of_the_layer() {
    for (style, names, expected) in [
        (HeaderStyle::Draft11, &[("ratelimit-limit", "x-a")][..], "the style draft-11 sends no field ratelimit-limit"),
        (HeaderStyle::Draft11, &[("retry-after", "x-a")], "sends no field retry-after that can have another name"),
        (HeaderStyle::Hidden, &[("ratelimit", "x-a")], "the style hidden sends no field ratelimit"),
        (HeaderStyle::Draft11, &[("ratelimit", "ratelimit-policy")], "ratelimit-policy is the name of another field"),
        (HeaderStyle::Draft11, &[("ratelimit", "retry-after")], "retry-after is the name of another field"),
        (
            HeaderStyle::Draft11,
            &[("ratelimit", "x-a"), ("ratelimit-policy", "x-a")],
            "x-a is the name of another field",
        ),
    ] {
        let layer = layer(1, GlobalKey).with_headers(renamed(style, names));
        says(layer.validated().unwrap_err(), expected);
    }
    let swapped = renamed(HeaderStyle::Draft11, &[("ratelimit", "x-a"), ("ratelimit-policy", "ratelimit")]);
    assert!(layer(1, GlobalKey).with_headers(swapped).validated().is_ok());
}

#[test]
fn fields_of_the_framing_and_of_rejections_are_no_names() {
    for own in [
        "content-length",
        "transfer-encoding",
        "connection",
        "content-type",
        "www-authenticate",
        "grpc-status",
        "set-cookie",
    ] {
        let limit =
            layer(1, GlobalKey).with_headers(renamed(HeaderStyle::XRateLimitDelta, &[("x-ratelimit-limit", own)]));
        assert!(limit.validated().is_err(), "{own}");
    }
}
