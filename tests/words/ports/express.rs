//! express-rate-limit: its options `limit`, `message`, `keyGenerator` and `skip`.

use std::net::SocketAddr;

use axum::response::{IntoResponse, Response};
use axum::{Json, Router, extract::connect_info::MockConnectInfo, routing::get};
use http::request::Parts;
use tollgate::{
    ClientIp, Key, KeyExtractor, Limiter, MemoryStore, Policy, RateLimitLayer, key, policy, rejection::Denial,
};

use crate::support::http::get_with;

fn is_premium(parts: &Parts) -> bool {
    parts.headers.get("x-api-key").is_some_and(|key| key == "gold")
}

/// `message: (req) => ..`
fn message(parts: &Parts, denial: &Denial) -> Response {
    let limit = if is_premium(parts) { 10 } else { 5 };
    (denial.status(), Json(format!("You can only make {limit} requests every hour."))).into_response()
}

/// A router that limits `client`: `app.use(rateLimit({ limit, keyGenerator, skip, message }))`.
fn app(client: [u8; 4]) -> Router {
    let (premium, free) = (Policy::per_hour("premium", 10).unwrap(), Policy::per_hour("free", 5).unwrap());
    let limits = policy::from_fn(move |parts, _| if is_premium(parts) { premium.clone() } else { free.clone() });
    let addresses = ClientIp::peer().exempt(["192.168.0.56"]);
    let keys = key::from_fn(move |parts| match parts.headers.get("x-api-key") {
        Some(value) => Ok(Some(Key::new(value))),
        None => addresses.extract(parts),
    });
    let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), limits, keys).with_rejection(message);
    let routes = Router::new().route("/", get(|| async { "welcome" })).layer(limit);
    routes.layer(MockConnectInfo(SocketAddr::from((client, 4711))))
}

/// The statuses of twelve requests, and the last body.
async fn twelve(app: &Router, headers: &[(&str, &str)]) -> (usize, String) {
    let (mut passed, mut last) = (0, String::new());
    for _ in 0..12 {
        let reply = get_with(app, "/", headers).await;
        passed += usize::from(reply.status == 200);
        last = reply.text().to_owned();
    }
    (passed, last)
}

#[tokio::test]
async fn express_options_give_each_client_its_limit_and_its_message() {
    let app = app([198, 51, 100, 7]);
    let refused = |limit: u8| format!("\"You can only make {limit} requests every hour.\"");
    assert_eq!(twelve(&app, &[("x-api-key", "gold")]).await, (10, refused(10)));
    assert_eq!(twelve(&app, &[("x-api-key", "tin")]).await, (5, refused(5)));
    assert_eq!(twelve(&app, &[]).await, (5, refused(5)), "without a key, the address is the client");
}

#[tokio::test]
async fn express_skip_lets_a_listed_address_pass_without_a_limit() {
    let app = app([192, 168, 0, 56]);
    assert_eq!(twelve(&app, &[]).await, (12, "welcome".to_owned()));
}
