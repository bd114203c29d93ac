//! When a key is denied if it goes on at its pace.

use std::time::Duration;

use tollgate::{
    Algorithm, Calendar, Check, FailurePolicy, Limiter, ManualClock, MemoryStore, Policy, policy::HoldSettings,
};

use crate::support::app::{down_limiter, limiter_and_clock, per_minute};
use crate::support::{forecast::forecasts, seed::seeds};

const SECOND: Duration = Duration::from_secs(1);

/// What a peek tells about `policy` after `spent` units.
async fn after(limiter: &Limiter, policy: &Policy, spent: u64) -> Option<Duration> {
    assert!(limiter.check("k", policy, spent).await.unwrap().is_allowed());
    limiter.peek("k", policy).await.unwrap().exhausted_in()
}

#[tokio::test]
async fn law_12_forecasts_are_those_of_the_oracle_and_no_key_is_denied_before() {
    let (mut exact, mut other, mut never) = (0, 0, 0);
    for seed in seeds(40) {
        let (limiter, clock) = limiter_and_clock();
        let told = forecasts(&limiter, &clock, seed, 60).await;
        (exact, other, never) = (exact + told.exact, other + told.other, never + told.never);
    }
    println!("{exact} exact, {other} others, {never} never");
    assert!(exact > 1_000 && other > 1_000 && never > 1_000, "{exact} exact, {other} others, {never} never");
}

#[tokio::test]
async fn a_key_that_has_spent_nothing_is_never_denied_and_one_that_has_nothing_left_is_denied_now() {
    for algorithm in crate::support::ALGORITHMS {
        let (limiter, _) = limiter_and_clock();
        let policy = per_minute(10).with_algorithm(algorithm);
        assert_eq!(limiter.peek("k", &policy).await.unwrap().exhausted_in(), None, "{algorithm:?}");
        assert_eq!(after(&limiter, &policy, 10).await, Some(Duration::ZERO), "{algorithm:?}");
    }
}

#[tokio::test]
async fn the_pace_of_a_fixed_window_counts_from_its_start() {
    let (limiter, clock) = limiter_and_clock();
    let policy = per_minute(100).with_algorithm(Algorithm::FixedWindow);
    clock.advance(20 * SECOND);
    // Three a second, so the other 40 last for 13 1/3 seconds.
    assert_eq!(after(&limiter, &policy, 60).await, Some(Duration::from_micros(13_333_333)));
    clock.advance(20 * SECOND);
    // 1.5 a second, and the window ends after 20.
    assert_eq!(limiter.peek("k", &policy).await.unwrap().exhausted_in(), None);
}

#[tokio::test]
async fn a_month_is_exhausted_on_the_day_that_its_pace_tells() {
    let (limiter, clock) = limiter_and_clock();
    let month = Policy::calendar("month", 3_000, Calendar::monthly()).unwrap();
    // It is January the eleventh.
    clock.advance(Duration::from_secs(10 * 86_400));
    assert_eq!(after(&limiter, &month, 2_000).await, Some(Duration::from_secs(5 * 86_400)));
}

#[tokio::test]
async fn of_several_policies_the_first_that_is_exhausted_counts_and_a_shadow_policy_does_not() {
    let (limiter, _) = limiter_and_clock();
    let (fast, slow) = (Policy::per_minute("fast", 30).unwrap(), Policy::per_hour("slow", 25).unwrap());
    let shadow = Policy::per_second("shadow", 25).unwrap().with_shadow(true);
    let check = Check::new("k", &fast, 20).and("k", &slow, 20).and("k", &shadow, 20);
    assert_eq!(limiter.check_all(check).await.unwrap().exhausted_in(), Some(30 * SECOND));
}

#[tokio::test]
async fn what_is_held_counts_as_spent_also_after_the_hold_may_have_ended() {
    let (limiter, _) = limiter_and_clock();
    let policy = per_minute(100).with_holds(HoldSettings::new().with_ttl(SECOND).with_unsettled_released(true));
    let _hold = limiter.hold("k", &policy, 80).await.unwrap();
    assert_eq!(limiter.peek("k", &policy).await.unwrap().exhausted_in(), Some(15 * SECOND));
}

#[tokio::test]
async fn slots_shards_shares_and_decisions_without_a_verdict_have_no_forecast() {
    let (limiter, _) = limiter_and_clock();
    let slots = Policy::concurrent("slots", 3).unwrap();
    let _slots = limiter.hold("k", &slots, 2).await.unwrap();
    assert_eq!(limiter.peek("k", &slots).await.unwrap().exhausted_in(), None);
    let _last = limiter.hold("k", &slots, 1).await.unwrap();
    assert_eq!(limiter.peek("k", &slots).await.unwrap().exhausted_in(), Some(Duration::ZERO));
    // Four of five units in one shard, and then in both.
    for _ in 0..2 {
        assert_eq!(after(&limiter, &per_minute(10).with_shards(2), 4).await, None);
    }
    let local = MemoryStore::new().with_clock(ManualClock::default());
    let limiter = down_limiter().with_local_fallback(local, 2);
    let share = limiter.check("k", &per_minute(10), 4).fail_local().await.unwrap();
    assert_eq!((share.available(), share.exhausted_in()), (Some(1), None));
    let open = FailurePolicy::Open.resolve(down_limiter().check("k", &per_minute(10), 1).await);
    assert_eq!(open.exhausted_in(), None);
}
