//! Raw keys do not appear in `Debug` output, headers or bodies.

use axum::Router;
use axum::http::{Method, request::Parts};
use tollgate::{
    ApiKey, Check, Decision, ExtensionKey, GlobalKey, HeaderKey, Key, KeyExtractor, MatchedPathKey, MissingKey, Policy,
    RateLimitLayer, rejection::Denial,
};
use tower::Layer;

use crate::support::app::{app, limiter, per_minute};
use crate::support::http::{Reply, get_with, request};

const SECRET: &str = "sk-live-x7q2";

#[track_caller]
fn assert_no_key(what: &str, text: &str) {
    for secret in [SECRET, "sk-live", "x7q2"] {
        assert!(!text.contains(secret), "{what} shows the key: {text}");
    }
}

fn assert_no_key_in_reply(what: &str, reply: &Reply) {
    assert_no_key(what, &format!("{:?} {}", reply.headers, reply.text()));
    assert_no_key(what, &format!("{:?} {:?}", reply.extensions.get::<Decision>(), reply.extensions.get::<Denial>()));
}

fn extractors() -> [(&'static str, Box<dyn KeyExtractor>); 5] {
    let by_header = |parts: &Parts| Key::new(parts.headers.get("x-api-key").unwrap());
    [
        ("header", Box::new(HeaderKey::new("x-api-key").unwrap())),
        ("api key", Box::new(ApiKey::header("x-api-key").unwrap())),
        ("bearer", Box::new(ApiKey::bearer())),
        ("closure", Box::new(by_header)),
        ("tuple", Box::new((HeaderKey::new("x-api-key").unwrap(), MatchedPathKey, GlobalKey))),
    ]
}

#[tokio::test]
async fn law_10_no_raw_key_in_debug_or_bodies() {
    let bearer = format!("Bearer {SECRET}");
    let headers = [("x-api-key", SECRET), ("authorization", bearer.as_str())];
    for (name, extractor) in extractors() {
        let limiter = limiter();
        let layer = RateLimitLayer::new(limiter.clone(), per_minute(1), extractor).with_decision_in_response(true);
        let app = app(layer.clone());
        for status in [200, 429] {
            let reply = get_with(&app, "/", &headers).await;
            assert_eq!(reply.status, status, "{name}");
            assert_no_key_in_reply(name, &reply);
        }
        assert_no_key(name, &format!("{layer:?} {:?} {limiter:?}", layer.layer(())));
    }
}

#[tokio::test]
async fn law_10_no_raw_key_in_refusals_of_unusable_keys() {
    for missing in [MissingKey::Reject, MissingKey::Exempt, MissingKey::ShareOneKey] {
        let app: Router =
            app(RateLimitLayer::new(limiter(), per_minute(1), HeaderKey::new("x-api-key").unwrap())
                .on_missing_key(missing));
        let reply = get_with(&app, "/", &[("x-api-key", SECRET), ("x-api-key", "other")]).await;
        assert_eq!(reply.status, 400);
        assert_no_key_in_reply("a repeated header", &reply);
    }
    let above_limit = RateLimitLayer::new(limiter(), per_minute(1), HeaderKey::new("x-api-key").unwrap());
    let app = app(above_limit.with_cost_fn(|_| 2));
    let reply = get_with(&app, "/", &[("x-api-key", SECRET)]).await;
    assert_eq!(reply.status, 400);
    assert_no_key_in_reply("a cost above the limit", &reply);
}

#[test]
fn law_10_no_raw_key_in_the_debug_of_keys_and_checks() {
    let policy = Policy::per_minute("p", 1).unwrap();
    let keys = [Key::from(SECRET), Key::hashed(SECRET), Key::join([Key::from(SECRET), Key::from(SECRET)])];
    for key in keys {
        let check = Check::new(&key, &policy, 1);
        assert_no_key("a key", &format!("{key:?} {check:?} {:?}", check.charges()));
    }
    let (parts, _) = request(Method::GET, "/", &[("x-api-key", SECRET)]).into_parts();
    let extracted = HeaderKey::new("x-api-key").unwrap().extract(&parts);
    assert_no_key("an extraction", &format!("{extracted:?}"));
    let missing = ExtensionKey::<String>::new().extract(&parts);
    assert_no_key("an error", &format!("{missing:?}"));
}
