//! Mistakes in the settings of an extractor: the first one is reported, and no request passes without a limit.

use std::net::{IpAddr, Ipv4Addr};

use axum::{Router, extract::Extension, routing::get};
use http::request::Parts;
use tollgate::{
    ApiKey, ClientIp, GlobalKey, Key, KeyExtractor, Limiter, MemoryStore, MissingKey, Policy, RateLimitLayer, Route,
    key::{KeyError, PrefixList},
};

use crate::support::{DownStore, app::never_run, http::get_with, recorder::Recorder, says};

/// A setting that is wrong, and its message.
type Wrong = (fn(ClientIp) -> ClientIp, &'static str);

/// Makes an extractor with a mistake.
type Make = Box<dyn Fn() -> Box<dyn KeyExtractor>>;

/// Settings of a `ClientIp` that are wrong, and their message.
const WRONG: [Wrong; 5] = [
    (|client| client.with_ipv6_prefix(16), "an IPv6 prefix of /16 is out of range; "),
    (|client| client.with_nat64_prefix("2001:db8::/60"), "2001:db8::/60"),
    (|client| client.exempt("office"), r#""office" is not an address or a prefix; "#),
    (|client| client.deny(PrefixList::default().and("crowd")), r#""crowd" is not an address or a prefix; "#),
    (|client| client.only_from(""), "the list of trusted proxies is empty, "),
];

fn policy() -> Policy {
    Policy::per_minute("p", 9).unwrap()
}

#[test]
fn an_extractor_reports_the_first_of_its_mistakes() {
    for (first, message) in WRONG {
        for (second, _) in WRONG {
            says(second(first(ClientIp::peer())).validate().unwrap_err(), message);
        }
        says(first(ClientIp::peer()).with_ipv6_prefix(56).exempt("10.0.0.0/8").validate().unwrap_err(), message);
    }
    let key = ApiKey::bearer().with_challenge("").with_challenge("Bearer");
    says(key.validate().unwrap_err(), r#""" is no challenge; "#);
    let list = PrefixList::new("10.0.0.0/8").unwrap().and("one").and("two").and("192.0.2.0/24");
    says(ClientIp::peer().exempt(list).validate().unwrap_err(), r#""one" is not an address or a prefix; "#);
}

/// Sends requests with all that the extractors could need. Every answer has to be 500.
async fn refuses_all(layers: Vec<(&str, RateLimitLayer<Box<dyn KeyExtractor>>)>, recorder: &Recorder, message: &str) {
    for (what, layer) in layers {
        let handler = get(never_run);
        let app = Router::new().route("/", handler.clone()).route("/healthz", handler).layer(layer);
        let app = app.layer(Extension(IpAddr::from(Ipv4Addr::new(10, 0, 0, 1))));
        for path in ["/", "/healthz"] {
            for headers in [&[("authorization", "Bearer a-token")][..], &[]] {
                let reply = get_with(&app, path, headers).await;
                assert_eq!(reply.status, 500, "{what}, {path}: {message}");
                says(reply.json()["detail"].as_str().unwrap(), message);
            }
        }
        let seen = recorder.take();
        assert_eq!(seen.refusals, ["misconfigured"; 4], "{what}");
        says(&seen.debug, message);
    }
}

fn boxed(key: impl KeyExtractor) -> Box<dyn KeyExtractor> {
    Box::new(key)
}

#[tokio::test]
async fn a_layer_whose_key_has_a_mistake_lets_no_request_pass() {
    let mut wrong: Vec<(Make, &str)> = vec![
        (Box::new(|| boxed(ClientIp::peer().with_ipv6_prefix(16))), "an IPv6 prefix of /16 is out of range; "),
        (Box::new(|| boxed(ApiKey::bearer().with_challenge(""))), r#""" is no challenge; "#),
        (Box::new(|| boxed((GlobalKey, ClientIp::peer().with_ipv6_prefix(17)))), "/17 is out of range; "),
    ];
    for (setting, message) in WRONG {
        wrong.push((Box::new(move || boxed(setting(ClientIp::peer()))), message));
    }
    for (key, message) in wrong {
        for store in [Limiter::new(MemoryStore::new()), Limiter::new(DownStore)] {
            let recorder = Recorder::default();
            let limiter = store.with_observer(recorder.clone()).without_notices();
            let first = RateLimitLayer::new(limiter.clone(), policy(), key()).fail_open();
            let further = RateLimitLayer::new(limiter.clone(), policy(), boxed(GlobalKey));
            let further = further.and(Policy::per_minute("further", 9).unwrap(), key());
            let exempting = RateLimitLayer::new(limiter, policy(), key()).on_missing_key(MissingKey::Exempt);
            let layers = [("first key", first), ("further key", further), ("exempting", exempting)];
            let layers = layers.map(|(what, layer)| (what, layer.route("/healthz", Route::exempt())));
            for (_, layer) in &layers {
                says(layer.clone().validated().unwrap_err(), message);
            }
            refuses_all(layers.into(), &recorder, message).await;
        }
    }
}

/// The layer cannot ask a closure for mistakes, so the extractor inside of it returns them with each request.
#[tokio::test]
async fn an_extractor_with_a_mistake_inside_a_closure_refuses_each_request() {
    for (setting, message) in WRONG {
        let recorder = Recorder::default();
        let limiter = Limiter::new(DownStore).with_observer(recorder.clone()).without_notices();
        let client = setting(ClientIp::peer());
        let by_resolve = client.clone();
        let keys: [Box<dyn KeyExtractor>; 2] = [
            Box::new(move |parts: &Parts| client.extract(parts)),
            Box::new(move |parts: &Parts| -> Result<Option<Key>, KeyError> {
                // An address that is known would be exempt.
                by_resolve.resolve(parts).map(|_| None)
            }),
        ];
        for key in keys {
            let layer = RateLimitLayer::new(limiter.clone(), policy(), key).fail_open();
            let app = Router::new().route("/", get(never_run)).layer(layer);
            let app = app.layer(Extension(IpAddr::from(Ipv4Addr::new(10, 0, 0, 1))));
            assert_eq!(get_with(&app, "/", &[]).await.status, 500);
            let seen = recorder.take();
            assert_eq!(seen.refusals, ["misconfigured"]);
            says(&seen.debug, message);
        }
    }
}
