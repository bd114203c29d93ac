//! tower_governor: its example of a bearer token as the key. governor: the threads of its guide.

use std::{thread, time::Duration};

use axum::{Router, routing::get};
use http::{HeaderValue, header::AUTHORIZATION, request::Parts};
use tollgate::{
    Algorithm, HeaderStyle, Key, KeyExtractor, Limiter, MemoryStore, Policy, RateLimitLayer, key::KeyError,
};

use crate::support::{app::limiter_and_clock, http::get_with};

/// `impl KeyExtractor for UserToken`.
struct UserToken;

impl KeyExtractor for UserToken {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        let token = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let key = token.map(|token| Key::from(token.trim()));
        key.map(Some).ok_or(KeyError::missing_credential(AUTHORIZATION, HeaderValue::from_static("Bearer")))
    }
}

#[tokio::test]
async fn tower_governors_bearer_example_gives_each_token_five_and_then_one_each_twenty_seconds() {
    // `.per_second(20).burst_size(5).key_extractor(UserToken).use_headers().finish()`
    let (limiter, clock) = limiter_and_clock();
    let policy = Policy::new("api", 1, Duration::from_secs(20)).unwrap();
    let policy = policy.with_algorithm(Algorithm::TokenBucket).with_burst(5);
    let limit = RateLimitLayer::new(limiter, policy, UserToken).with_headers(HeaderStyle::TowerGovernorCompat);
    let app = Router::new().route("/", get(|| async { "Hello world" })).layer(limit.validated().unwrap());
    let ann = [("authorization", "Bearer ann")];

    for left in ["4", "3", "2", "1", "0"] {
        let reply = get_with(&app, "/", &ann).await;
        assert_eq!((reply.status.as_u16(), reply.header("x-ratelimit-remaining").as_deref()), (200, Some(left)));
    }
    let denied = get_with(&app, "/", &ann).await;
    assert_eq!((denied.status.as_u16(), denied.header("x-ratelimit-after").as_deref()), (429, Some("20")));
    assert_eq!(get_with(&app, "/", &[("authorization", "Bearer bob")]).await.status, 200);
    assert_eq!(get_with(&app, "/", &[]).await.status, 401);
    clock.advance(Duration::from_secs(20));
    assert_eq!(get_with(&app, "/", &ann).await.status, 200);
    assert_eq!(get_with(&app, "/", &ann).await.status, 429);
}

#[test]
fn governors_guide_shares_a_limiter_with_twenty_threads_without_a_future() {
    // `Arc::new(RateLimiter::direct(Quota::per_second(nonzero!(20u32))))`
    let (limiter, _clock) = limiter_and_clock();
    let quota = Policy::per_second("jobs", 20).unwrap().with_algorithm(Algorithm::TokenBucket);
    let threads = [(); 20].map(|()| {
        let (limiter, quota) = (limiter.clone(), quota.clone());
        thread::spawn(move || limiter.try_check("all", &quota, 1).unwrap().is_allowed())
    });
    assert!(threads.map(|thread| thread.join().unwrap()).iter().all(|allowed| *allowed));
    let denied = limiter.try_check("all", &quota, 1).unwrap();
    assert_eq!(denied.retry_after(), Some(Duration::from_millis(50)), "wait_time_from(now)");
    // `check_key(&"cus_1")`, `check_key_n(&"cus_1", 21)`
    assert!(limiter.try_check("cus_1", &quota, 1).unwrap().is_allowed());
    let too_much = limiter.try_check("cus_1", &quota, 21).unwrap();
    assert_eq!((too_much.is_allowed(), too_much.retry_after()), (false, None), "InsufficientCapacity");
}

#[tokio::test(start_paused = true)]
async fn governors_until_ready_waits_for_its_turn() {
    let limiter = Limiter::new(MemoryStore::new().with_clock(tollgate::clock::TokioClock::new()));
    let quota = Policy::per_second("calls", 10).unwrap().with_algorithm(Algorithm::TokenBucket);
    let start = tokio::time::Instant::now();
    for _ in 0..15 {
        let turn = limiter.acquire("all", &quota, 1).within(Duration::from_secs(2)).await.unwrap();
        assert!(turn.is_allowed());
    }
    let waited = start.elapsed();
    assert!((500..=510).contains(&waited.as_millis()), "{waited:?}");
}
