//! Several subjects in one layer: all are charged or none.

use std::time::Duration;

use axum::http::request::Parts;
use tollgate::{GlobalKey, HeaderKey, Limiter, Policy, RateLimitLayer};

use crate::support::app::{app, get_passes_with, limiter_and_clock};
use crate::support::http::get_with;

fn per_client() -> Policy {
    Policy::per_minute("per-client", 1).unwrap()
}

fn clients_and_all(limiter: Limiter, all: u64) -> RateLimitLayer<HeaderKey> {
    let all = Policy::per_minute("all", all).unwrap();
    RateLimitLayer::new(limiter, per_client(), HeaderKey::new("x-client").unwrap()).and(all, GlobalKey)
}

#[tokio::test]
async fn law_3_all_subjects_are_charged_or_none() {
    let (limiter, clock) = limiter_and_clock();
    let app = app(clients_and_all(limiter.clone(), 3));
    let pass = async |client| get_passes_with(&app, "/", "x-client", client).await;

    assert!(pass("a").await);
    for _ in 0..10 {
        assert!(!pass("a").await, "the client has spent its own limit");
    }
    assert!(pass("b").await, "the denied requests did not spend the limit of all clients");
    assert!(pass("c").await);
    for _ in 0..10 {
        assert!(!pass("d").await, "the limit of all clients is spent");
    }
    let own = limiter.peek("d", &per_client()).await.unwrap();
    assert_eq!(own.available(), Some(1), "the limit of the client was not charged");
    clock.advance(Duration::from_secs(60));
    assert!(pass("d").await);
}

#[tokio::test]
async fn headers_list_all_subjects() {
    let app = app(clients_and_all(limiter_and_clock().0, 3));
    let reply = get_with(&app, "/", &[("x-client", "a")]).await;
    assert_eq!(reply.header("ratelimit").as_deref(), Some(r#""per-client";r=0;t=60, "all";r=2;t=60"#));
    assert_eq!(reply.header("ratelimit-policy").as_deref(), Some(r#""per-client";q=1;w=60, "all";q=3;w=60"#));
    let denied = get_with(&app, "/", &[("x-client", "a")]).await;
    assert_eq!(denied.header("ratelimit").as_deref(), Some(r#""per-client";r=0;t=60"#));
    assert_eq!(denied.json()["violated-policies"], serde_json::json!(["per-client"]));
}

#[tokio::test]
async fn the_cost_is_charged_to_every_subject() {
    let limiter = limiter_and_clock().0;
    let per_client = Policy::per_minute("per-client", 10).unwrap();
    let all = Policy::per_minute("all", 15).unwrap();
    let limit = RateLimitLayer::new(limiter, per_client, HeaderKey::new("x-client").unwrap());
    let app = app(limit.and(all, GlobalKey).with_cost(8));
    let reply = get_with(&app, "/", &[("x-client", "a")]).await;
    assert_eq!(reply.header("ratelimit").as_deref(), Some(r#""per-client";r=2;t=60, "all";r=7;t=60"#));
    assert!(!get_passes_with(&app, "/", "x-client", "b").await);
}

/// Every subject needs its key, and an exemption holds for one subject.
#[tokio::test]
async fn subjects_find_their_keys_independently() {
    let staff = |parts: &Parts| (!parts.headers.contains_key("x-staff")).then(|| "public".to_owned());
    let limit = clients_and_all(limiter_and_clock().0, 10).and(Policy::per_minute("public", 1).unwrap(), staff);
    let app = app(limit);
    assert_eq!(get_with(&app, "/", &[("x-staff", "1")]).await.status, 400, "the client is missing");
    assert_eq!(get_with(&app, "/", &[("x-client", "a")]).await.status, 200);
    assert_eq!(get_with(&app, "/", &[("x-client", "b")]).await.status, 429, "the budget of the public is spent");
    let reply = get_with(&app, "/", &[("x-client", "c"), ("x-staff", "1")]).await;
    assert_eq!(reply.header("ratelimit").as_deref(), Some(r#""per-client";r=0;t=60, "all";r=8;t=60"#));
}
