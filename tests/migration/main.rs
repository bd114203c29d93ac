//! The programs of `docs/migrating.md`: before and after admit the same requests, and differ where the page says.
#![allow(missing_docs, missing_debug_implementations, unreachable_pub, clippy::unwrap_used)]

#[path = "../server/support/ports.rs"]
#[allow(dead_code)]
mod ports;
#[path = "../server/support/redis_server.rs"]
#[allow(dead_code)]
mod redis_server;

// The page shows the programs, which are 80 columns wide.
#[rustfmt::skip]
mod express;
#[rustfmt::skip]
mod governor {
    pub mod after;
    pub mod before;
}
#[rustfmt::skip]
mod script {
    pub mod after;
    pub mod before;
}

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use axum::{Router, body::Body, extract::ConnectInfo, http::Request, response::Response};
use tollgate::{Limiter, MemoryStore, RedisStore};
use tower::ServiceExt;

use self::redis_server::RedisServer;

const PAGE: &str = include_str!("../../docs/migrating.md");

/// A request of the client at this address.
async fn get(app: &Router, address: Option<&str>) -> Response {
    let mut request = Request::new(Body::empty());
    if let Some(address) = address {
        request.extensions_mut().insert(ConnectInfo(SocketAddr::new(address.parse().unwrap(), 4711)));
    }
    app.clone().oneshot(request).await.unwrap()
}

/// The statuses of ten requests at once of one client.
async fn ten(app: &Router) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..10 {
        statuses.push(get(app, Some("203.0.113.7")).await.status().as_u16());
    }
    statuses
}

/// Five pass, five are refused.
const FIVE_OF_TEN: [u16; 10] = [200, 200, 200, 200, 200, 429, 429, 429, 429, 429];

#[tokio::test]
async fn from_tower_governor_the_same_five_of_ten_requests_pass() {
    let (before, after) = (governor::before::app().unwrap(), governor::after::app().unwrap());
    for app in [&before, &after] {
        assert_eq!(ten(app).await, FIVE_OF_TEN);
    }
}

#[tokio::test]
async fn from_tower_governor_the_fields_keep_their_names_and_waits_are_rounded_up() {
    let (before, after) = (governor::before::app().unwrap(), governor::after::app().unwrap());
    for (app, is_early) in [(&before, true), (&after, false)] {
        let start = Instant::now();
        for left in ["4", "3", "2", "1", "0"] {
            let passed = get(app, Some("203.0.113.7")).await;
            assert_eq!(passed.headers()["x-ratelimit-limit"], "5");
            assert_eq!(passed.headers()["x-ratelimit-remaining"], left);
        }
        let denied = get(app, Some("203.0.113.7")).await;
        let elapsed = start.elapsed();
        for name in ["retry-after", "x-ratelimit-after"] {
            // The next unit is back 20 seconds after the first request: 19 and 20, if the test was not kept waiting.
            let wait = Duration::from_secs(denied.headers()[name].to_str().unwrap().parse().unwrap());
            assert_eq!(elapsed + wait < Duration::from_secs(20), is_early, "{wait:?}");
        }
    }
}

#[tokio::test]
async fn from_tower_governor_the_addresses_of_a_home_network_become_one_client() {
    let (before, after) = (governor::before::app().unwrap(), governor::after::app().unwrap());
    for (app, expected) in [(&before, 200), (&after, 429)] {
        for _ in 0..5 {
            assert_eq!(get(app, Some("2001:db8:17::1")).await.status().as_u16(), 200);
        }
        assert_eq!(get(app, Some("2001:db8:17::2")).await.status().as_u16(), expected);
    }
    // Without an address.
    assert_eq!(get(&before, None).await.status().as_u16(), 500);
    assert_eq!(get(&after, None).await.status().as_u16(), 400);
}

/// A store that waits for a Redis that shares its cores with other tests.
fn store(server: &RedisServer) -> RedisStore {
    const LONG: Duration = Duration::from_secs(5);
    RedisStore::builder().deadline(LONG).first_dial_deadline(LONG).open(&server.url()).unwrap()
}

#[tokio::test]
async fn from_a_script_the_same_five_of_ten_requests_pass_and_responses_tell_the_limit() {
    let server = RedisServer::start();
    let before = script::before::app(&server.url()).await.unwrap();
    let after = script::after::app(store(&server)).unwrap();
    for app in [&before, &after] {
        assert_eq!(ten(app).await, FIVE_OF_TEN);
    }
    let (old, new) = (get(&before, Some("203.0.113.7")).await, get(&after, Some("203.0.113.7")).await);
    assert_eq!(old.headers().get("retry-after"), None);
    // Less than a minute if the test was kept waiting.
    let wait: u64 = new.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert!(new.headers().contains_key("ratelimit"));
}

#[tokio::test]
async fn from_a_script_requests_pass_while_redis_is_away_instead_of_failing_after_the_timeout_of_the_pool() {
    let mut server = RedisServer::start();
    let before = script::before::app(&server.url()).await.unwrap();
    let after = script::after::app(store(&server)).unwrap();
    for app in [&before, &after] {
        assert_eq!(get(app, Some("203.0.113.7")).await.status().as_u16(), 200);
    }
    server.kill();
    assert_eq!(get(&before, Some("203.0.113.7")).await.status().as_u16(), 500);
    assert_eq!(get(&after, Some("203.0.113.7")).await.status().as_u16(), 200);
}

#[tokio::test]
async fn from_express_a_client_behind_the_proxy_has_five_requests_and_no_more_with_a_forged_address() {
    let app = express::app(Limiter::new(MemoryStore::new())).unwrap();
    let mut statuses = Vec::new();
    for forged in 0..10 {
        let mut request = Request::new(Body::empty());
        request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([10, 0, 0, 1], 4711))));
        let addresses = format!("198.51.100.{forged}, 203.0.113.7").parse().unwrap();
        request.headers_mut().insert("x-forwarded-for", addresses);
        statuses.push(app.clone().oneshot(request).await.unwrap().status().as_u16());
    }
    assert_eq!(statuses, FIVE_OF_TEN);
}

#[tokio::test]
async fn from_express_a_denied_consume_is_a_value_and_charges_nothing() {
    let limiter = Limiter::new(MemoryStore::new());
    for left in [40, 30, 20, 10, 0] {
        assert_eq!(express::export(&limiter, 17).await.unwrap().available(), Some(left));
    }
    let denied = express::export(&limiter, 17).await.unwrap();
    assert_eq!((denied.is_allowed(), denied.available()), (false, Some(0)));
    assert!(express::export(&limiter, 18).await.unwrap().is_allowed(), "another user");
}

/// Both sides of a diff on the page.
fn sides(diff: &str) -> [String; 2] {
    ['-', '+'].map(|sign| {
        let lines = diff.lines().filter_map(|line| match line.chars().next() {
            Some(first) if first == sign || first == ' ' => Some(&line[1..]),
            None => Some(""),
            Some(_) => None,
        });
        lines.map(|line| format!("{line}\n")).collect()
    })
}

#[test]
fn the_page_shows_the_programs_that_these_tests_run() {
    let diffs: Vec<_> = PAGE.split("```diff\n").skip(1).map(|rest| sides(rest.split("```").next().unwrap())).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let programs = ["governor", "script"].map(|name| {
        ["before", "after"].map(|side| fs::read_to_string(folder.join(name).join(side).with_extension("rs")).unwrap())
    });
    assert_eq!(diffs, programs, "docs/migrating.md differs from the programs beside this test: copy `diff -U99`");
    let express = format!("```rust\n{}```", fs::read_to_string(folder.join("express.rs")).unwrap());
    assert!(PAGE.contains(&express), "docs/migrating.md differs from express.rs: copy the program");
}
