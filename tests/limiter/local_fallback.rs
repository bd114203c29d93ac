//! The local fallback: shares, warmth, debts.

use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;
use tollgate::{
    Algorithm, ConfigError, Decision, ErrorKind, FailurePolicy, GlobalKey, Limiter, ManualClock, MemoryStore, Policy,
    RateLimitLayer, Route, decision::Source, store::WhenFull,
};
use tower::{Service, ServiceBuilder, ServiceExt};

use crate::support::{
    DownStore, SilentStore,
    counting::{CountingService, EmptyRequest, layer, status},
    unhealthy_store::{Health, UNAVAILABLE, UnhealthyStore},
};

const WINDOW: Duration = Duration::from_secs(60);

fn per_minute(limit: u32) -> Policy {
    Policy::new("p", limit, WINDOW).unwrap()
}

/// One instance of eight, the store that it shares with the others, and everybody's clock.
fn one_of_eight() -> (Limiter, UnhealthyStore, ManualClock) {
    let clock = ManualClock::default();
    let memory = || MemoryStore::new().with_clock(clock.clone());
    let store = UnhealthyStore::new(Health::Healthy).counting_in(memory());
    let limiter = Limiter::new(store.clone()).with_local(memory(), 8).unwrap();
    (limiter, store, clock)
}

async fn decide(limiter: &Limiter, policy: &Policy, cost: u32) -> Decision {
    limiter.check("k", policy, cost).fail_local().await.unwrap()
}

/// How many of a hundred units pass, one by one.
async fn admitted(limiter: &Limiter, policy: &Policy) -> u32 {
    let mut admitted = 0;
    for _ in 0..100 {
        let decision = decide(limiter, policy, 1).await;
        admitted += u32::from(decision.is_allowed());
    }
    admitted
}

/// Lets the breaker probe, the debts be paid and the caution after an outage end.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(3)).await;
}

/// What the store knows to be spent.
async fn spent(limiter: &Limiter, policy: &Policy) -> u32 {
    policy.limit() - limiter.peek("k", policy).await.unwrap().available().unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_instance_has_its_share_rounded_up() {
    for (limit, share) in [(1, 1), (7, 1), (8, 1), (9, 2), (80, 10)] {
        let limiter = Limiter::new(DownStore).with_local(MemoryStore::new(), 8).unwrap();
        assert_eq!(admitted(&limiter, &per_minute(limit)).await, share, "{limit}");
        let bucket = per_minute(limit).with_algorithm(Algorithm::TokenBucket).with_burst(2 * limit).unwrap();
        let limiter =
            Limiter::new(DownStore).with_local(MemoryStore::new().with_clock(ManualClock::default()), 8).unwrap();
        assert_eq!(admitted(&limiter, &bucket).await, (2 * limit).div_ceil(8), "{limit}");
    }
    let nobody = Limiter::new(DownStore).with_local(MemoryStore::new(), 0).unwrap_err();
    assert_eq!(nobody, ConfigError::ZeroInstances);
}

/// The share in `q` would tell how many instances there are.
#[tokio::test(start_paused = true)]
async fn decisions_and_fields_tell_the_whole_limit_and_what_the_share_has_left() {
    let limiter = Limiter::new(DownStore).with_local(MemoryStore::new(), 8).unwrap();
    let mut service =
        ServiceBuilder::new().layer(layer(limiter, 16).fail_local().unwrap()).service(CountingService::default());
    for (status, left) in [(200, 1), (200, 0), (429, 0)] {
        let response = service.ready().await.unwrap().call(EmptyRequest::default()).await.unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(response.headers()["ratelimit-policy"], r#""all";q=16;w=60"#);
        assert_eq!(response.headers()["ratelimit"], format!(r#""all";r={left};t=60"#));
        assert_eq!(response.headers().contains_key("retry-after"), status == 429);
        let decision = response.extensions().get::<Decision>().unwrap();
        assert_eq!((decision.source(), decision.available()), (Source::Local, Some(left)));
        assert_eq!(decision.policies()[0].policy.limit(), 16);
        assert!(decision.time().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn local_without_a_fallback_is_an_error_where_it_is_written() {
    let limiter = Limiter::new(MemoryStore::new());
    let layer = layer(limiter.clone(), 9);
    assert_eq!(layer.clone().fail_local().unwrap_err(), ConfigError::LocalWithoutFallback);
    let route = Route::cost(2).fail_local();
    assert_eq!(layer.route("/search", route).unwrap_err(), ConfigError::LocalWithoutFallback);
    // Of a check, at the first one and not in the first outage. It charges nothing.
    let error = limiter.check("k", &per_minute(9), 1).fail_local().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("Limiter::with_local"), "{error}");
    assert_eq!(limiter.peek("k", &per_minute(9)).await.unwrap().available(), Some(9));
    let decision = FailurePolicy::Local.resolve(Err(error));
    assert_eq!((decision.is_allowed(), decision.source()), (false, Source::Closed));
}

#[tokio::test(start_paused = true)]
async fn routes_choose_for_themselves() {
    let limiter = Limiter::new(DownStore).with_local(MemoryStore::new(), 8).unwrap();
    assert!(limiter.check("k", &per_minute(8), 1).await.is_err(), "nobody asked for it");
    let layer = RateLimitLayer::new(limiter, per_minute(8), GlobalKey).fail_local().unwrap();
    let sibling = ServiceBuilder::new().layer(layer.clone().fail_open()).service(CountingService::default());
    let mut service = ServiceBuilder::new().layer(layer).service(CountingService::default());
    assert_eq!(status(&mut service).await, StatusCode::OK);
    assert_eq!(status(&mut service).await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(status(&mut sibling.clone()).await, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn an_outage_gives_nobody_a_fresh_budget() {
    let log = per_minute(80);
    let kinds = [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow];
    let policies = kinds.map(|kind| log.clone().with_algorithm(kind));
    for policy in policies.iter().chain([&log.clone().with_algorithm(Algorithm::TokenBucket)]) {
        for (before, after) in [(0, 10), (1, 9), (7, 3), (10, 0), (30, 0)] {
            let (limiter, store, _clock) = one_of_eight();
            for _ in 0..before {
                assert_eq!(decide(&limiter, policy, 1).await.source(), Source::Store);
            }
            store.set_health(UNAVAILABLE);
            assert_eq!(admitted(&limiter, policy).await, after, "{before} before, {policy:?}");
        }
    }
}

/// The units above the share are counted as well, so they free nothing too early.
#[tokio::test(start_paused = true)]
async fn what_was_admitted_above_the_share_counts_until_it_leaves_the_window() {
    let (limiter, store, clock) = one_of_eight();
    assert!(decide(&limiter, &per_minute(80), 10).await.is_allowed());
    clock.advance(WINDOW / 2);
    assert!(decide(&limiter, &per_minute(80), 10).await.is_allowed());
    store.set_health(UNAVAILABLE);
    clock.advance(WINDOW / 2);
    assert_eq!(admitted(&limiter, &per_minute(80)).await, 0);
    clock.advance(WINDOW / 2);
    assert_eq!(admitted(&limiter, &per_minute(80)).await, 10);
}

#[tokio::test(start_paused = true)]
async fn a_cost_above_the_share_waits_for_the_store() {
    let (limiter, store, _clock) = one_of_eight();
    store.set_health(UNAVAILABLE);
    let denied = decide(&limiter, &per_minute(80), 11).await;
    assert!(!denied.is_allowed());
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(1)));
    assert_eq!(decide(&limiter, &per_minute(80), 81).await.retry_after(), None, "it never fits");
}

#[tokio::test(start_paused = true)]
async fn law_4_a_peek_that_fails_local_tells_whether_the_share_admits_a_cost_of_1() {
    let (limiter, store, _clock) = one_of_eight();
    let policy = per_minute(80);
    let peek = async || limiter.peek("k", &policy).fail_local().await.unwrap();
    store.set_health(UNAVAILABLE);
    for _ in 0..10 {
        assert!(peek().await.is_allowed());
        assert!(decide(&limiter, &policy, 1).await.is_allowed());
    }
    for _ in 0..3 {
        let spent = peek().await;
        assert_eq!((spent.is_allowed(), spent.source(), spent.available()), (false, Source::Local, Some(0)));
        assert_eq!(spent.retry_after(), Some(WINDOW));
    }
    assert!(!decide(&limiter, &policy, 1).await.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn what_the_fallback_admitted_is_charged_once_when_the_store_is_back() {
    let (limiter, store, _clock) = one_of_eight();
    let policy = per_minute(80);
    assert!(decide(&limiter, &policy, 1).await.is_allowed());
    store.set_health(UNAVAILABLE);
    assert_eq!(admitted(&limiter, &policy).await, 9);
    store.set_health(Health::Healthy);
    for _ in 0..3 {
        settle().await;
        assert_eq!(spent(&limiter, &policy).await, if store.sent() == 7 { 1 } else { 10 });
    }
    // One before, five that opened the breaker, three peeks, and the nine units in one debit.
    assert_eq!((store.sent(), spent(&limiter, &policy).await), (10, 10));
}

#[tokio::test(start_paused = true)]
async fn what_has_left_its_window_is_no_debt_any_more() {
    let (limiter, store, clock) = one_of_eight();
    let policy = per_minute(80);
    store.set_health(UNAVAILABLE);
    for _ in 0..5 {
        assert_eq!(admitted(&limiter, &policy).await, 10);
        clock.advance(WINDOW);
    }
    for _ in 0..4 {
        decide(&limiter, &policy, 1).await;
    }
    store.set_health(Health::Healthy);
    settle().await;
    spent(&limiter, &policy).await;
    settle().await;
    assert_eq!(spent(&limiter, &policy).await, 4);
}

#[tokio::test(start_paused = true)]
async fn what_the_store_has_counted_is_not_taken_for_an_old_debt() {
    let (limiter, store, clock) = one_of_eight();
    let policy = per_minute(80);
    store.set_health(UNAVAILABLE);
    assert_eq!(admitted(&limiter, &policy).await, 10);
    clock.advance(10 * WINDOW);
    store.set_health(Health::Healthy);
    settle().await;
    decide(&limiter, &policy, 8).await;
    settle().await;
    assert_eq!(spent(&limiter, &policy).await, 8);
}

/// One instance of eight, whose fallback has room for `keys` keys, of which another one keeps one all day.
async fn with_little_room(keys: usize, when_full: WhenFull) -> (Limiter, UnhealthyStore, ManualClock) {
    let clock = ManualClock::default();
    let memory = || MemoryStore::new().with_clock(clock.clone());
    let store = UnhealthyStore::new(Health::Healthy).counting_in(memory());
    let local = MemoryStore::with_capacity(keys).unwrap().with_clock(clock.clone()).when_full(when_full);
    Limiter::new(local.clone()).check("kept", &Policy::per_day("kept", 1).unwrap(), 1).await.unwrap();
    (Limiter::new(store.clone()).with_local(local, 8).unwrap(), store, clock)
}

#[tokio::test(start_paused = true)]
async fn law_2_what_a_full_fallback_has_no_count_of_is_no_debt() {
    for when_full in [WhenFull::Deny, WhenFull::ShareOneBucket] {
        let (limiter, store, clock) = with_little_room(2, when_full).await;
        let policy = per_minute(80);
        store.set_health(UNAVAILABLE);
        assert!(decide(&limiter, &policy, 4).await.is_allowed());
        clock.advance(WINDOW);
        assert!(limiter.check("other", &policy, 4).fail_local().await.unwrap().is_allowed());
        store.set_health(Health::Healthy);
        for _ in 0..2 {
            settle().await;
            assert_eq!(spent(&limiter, &policy).await, 0, "{when_full:?}: it has left its window");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn law_2_what_the_store_admits_is_not_spent_in_the_bucket_that_new_keys_share_in_the_fallback() {
    let (limiter, store, _clock) = with_little_room(1, WhenFull::ShareOneBucket).await;
    let policy = per_minute(80);
    for key in 0..30_u64 {
        assert!(limiter.check(key, &policy, 1).fail_local().await.unwrap().is_allowed());
    }
    store.set_health(UNAVAILABLE);
    assert_eq!(admitted(&limiter, &policy).await, 10);
    assert!(!limiter.check("other", &policy, 1).fail_local().await.unwrap().is_allowed(), "they share the bucket");
}

#[test]
fn debts_are_paid_although_the_runtime_that_was_to_pay_rests() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (resting, working) = (runtime(), runtime());
    let (limiter, store, _clock) = one_of_eight();
    let policy = per_minute(80);
    resting.block_on(async {
        store.set_health(UNAVAILABLE);
        assert_eq!(admitted(&limiter, &policy).await, 10);
        store.set_health(Health::Healthy);
        settle().await;
        // With this answer it begins to pay, and rests.
        spent(&limiter, &policy).await;
    });
    working.block_on(async {
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            spent(&limiter, &policy).await;
            settle().await;
        }
        assert_eq!(spent(&limiter, &policy).await, 10);
    });
}

#[tokio::test(start_paused = true)]
async fn debts_never_make_the_store_count_more_than_the_limit() {
    for count_rejected in [false, true] {
        let (limiter, store, clock) = one_of_eight();
        let policy = per_minute(80).with_count_rejected(count_rejected);
        store.set_health(UNAVAILABLE);
        assert_eq!(admitted(&limiter, &policy).await, 10);
        store.set_health(Health::Healthy);
        let other = Limiter::new(store.clone());
        assert!(other.check("k", &policy, 77).await.unwrap().is_allowed());
        clock.advance(Duration::from_secs(1));
        settle().await;
        spent(&limiter, &policy).await;
        settle().await;
        assert_eq!(spent(&limiter, &policy).await, 80);
        // The debit of what fitted, and no counted rejection, leaves last.
        clock.advance(WINDOW - Duration::from_secs(1));
        assert_eq!(spent(&limiter, &policy).await, 3);
    }
}

#[tokio::test(start_paused = true)]
async fn law_9_a_check_whose_fate_is_unknown_is_not_charged_again() {
    let (limiter, store, _clock) = one_of_eight();
    store.set_health(Health::Silent);
    let start = Instant::now();
    assert_eq!(decide(&limiter, &per_minute(80), 1).await.source(), Source::Local);
    assert_eq!(start.elapsed(), Duration::from_millis(50));
    store.set_health(Health::Healthy);
    spent(&limiter, &per_minute(80)).await;
    settle().await;
    assert_eq!((spent(&limiter, &per_minute(80)).await, store.sent()), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn a_payment_that_fails_is_made_later() {
    let (limiter, store, _clock) = one_of_eight();
    let policy = per_minute(80);
    store.set_health(UNAVAILABLE);
    assert_eq!(admitted(&limiter, &policy).await, 10);
    store.set_health(Health::Healthy);
    settle().await;
    spent(&limiter, &policy).await;
    store.set_health(UNAVAILABLE);
    tokio::time::sleep(Duration::from_millis(10)).await;
    store.set_health(Health::Healthy);
    settle().await;
    for expected in [0, 10, 10] {
        assert_eq!(spent(&limiter, &policy).await, expected);
        settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn debts_are_remembered_for_ten_thousand_keys() {
    let (limiter, store, _clock) = one_of_eight();
    let policy = per_minute(80);
    store.set_health(UNAVAILABLE);
    for key in 0..10_100_u64 {
        assert!(limiter.check(key, &policy, 1).fail_local().await.unwrap().is_allowed());
    }
    store.set_health(Health::Healthy);
    settle().await;
    let before = store.sent();
    spent(&limiter, &policy).await;
    settle().await;
    assert_eq!(store.sent() - before, 10_001);
}

#[tokio::test(start_paused = true)]
async fn a_reset_forgets_the_fallbacks_counts_and_debts() {
    let (limiter, store, _clock) = one_of_eight();
    let policy = per_minute(80);
    store.set_health(UNAVAILABLE);
    assert_eq!(admitted(&limiter, &policy).await, 10);
    assert!(limiter.reset("k", &policy).await.unwrap(), "only the fallback has a count");
    assert_eq!(admitted(&limiter, &policy).await, 10);
    limiter.reset("k", &policy).await.unwrap();
    assert!(!limiter.reset("k", &policy).await.unwrap());
    store.set_health(Health::Healthy);
    settle().await;
    spent(&limiter, &policy).await;
    settle().await;
    assert_eq!(spent(&limiter, &policy).await, 0);
}

/// A silent store costs the deadline until the breaker opens, then nothing.
#[tokio::test(start_paused = true)]
async fn local_answers_at_once_while_the_breaker_is_open() {
    let silent = Limiter::new(SilentStore).with_local(MemoryStore::new(), 1).unwrap();
    let start = Instant::now();
    assert!(decide(&silent, &per_minute(80), 1).await.is_allowed());
    assert_eq!(start.elapsed(), Duration::from_millis(50));
    let (limiter, store, _clock) = one_of_eight();
    store.set_health(Health::Silent);
    for _ in 0..3 {
        decide(&limiter, &per_minute(80), 1).await;
    }
    let start = Instant::now();
    assert_eq!(admitted(&limiter, &per_minute(80)).await, 7);
    assert_eq!(start.elapsed(), Duration::ZERO);
}

/// Instances notice at different times that the store is back.
#[tokio::test(start_paused = true)]
async fn who_is_back_first_does_not_spend_what_the_others_are_about_to_tell() {
    let clock = ManualClock::default();
    let (memory, policy) = (MemoryStore::new().with_clock(clock.clone()), per_minute(16));
    let instance = || {
        let store = UnhealthyStore::new(UNAVAILABLE).counting_in(memory.clone());
        let local = MemoryStore::new().with_clock(clock.clone());
        (Limiter::new(store.clone()).with_local(local, 2).unwrap(), store)
    };
    let ((first, first_store), (second, second_store)) = (instance(), instance());
    assert_eq!(admitted(&first, &policy).await, 8);
    assert_eq!(admitted(&second, &policy).await, 8);
    tokio::time::sleep(Duration::from_millis(130)).await;
    first_store.set_health(Health::Healthy);
    spent(&first, &policy).await;
    for _ in 0..9 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(admitted(&first, &policy).await, 0);
    }
    assert_eq!(spent(&first, &policy).await, 8);
    second_store.set_health(Health::Healthy);
    spent(&second, &policy).await;
    tokio::time::sleep(Duration::from_millis(101)).await;
    assert_eq!(spent(&first, &policy).await, 16);
    // From now on the store alone decides.
    clock.advance(WINDOW);
    assert_eq!(admitted(&first, &policy).await, 16);
}
