//! Bans to which denials of the fallback have led, and bans by hand of keys with debts.

use super::*;
use crate::support::unhealthy_store::UNAVAILABLE;

#[tokio::test(start_paused = true)]
async fn unban_ends_a_ban_of_the_fallback() {
    let day = Duration::from_secs(86_400);
    let policy = per_minute(8).ban_after(1, day);
    let (limiter, store, clock) = one_of_eight();
    store.set_health(UNAVAILABLE);
    assert!(check(&limiter, &policy, 1).await.is_allowed());
    assert_eq!(check(&limiter, &policy, 1).await.policies()[0].ban, Some(day));
    clock.advance(WINDOW);
    assert!(!check(&limiter, &policy, 1).await.is_allowed());
    assert!(limiter.unban("k", &policy).await.is_err(), "the store does not answer");
    assert!(check(&limiter, &policy, 1).await.is_allowed());
}

/// A debit that a ban denies is not sent again at once with fewer units.
#[tokio::test(start_paused = true)]
async fn law_1_a_debt_of_a_key_that_was_banned_by_hand_is_tried_by_single_calls_and_charged_after_the_ban() {
    let clock = ManualClock::default();
    let memory = || MemoryStore::new().with_clock(clock.clone());
    let counts = memory();
    let store = UnhealthyStore::new(UNAVAILABLE).counting_in(counts.clone());
    let limiter = Limiter::new(store.clone()).with_local_fallback(memory(), 8);
    let policy = per_minute(80);
    assert_eq!(admitted(&limiter, &policy).await, 10);
    Limiter::new(counts).ban("k", &policy, WINDOW / 4).await.unwrap();
    store.set_health(Health::Healthy);
    settle().await;
    let sent = store.sent();
    spent(&limiter, &policy).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(store.sent() - sent, 2, "a peek and a debit");
    clock.advance(WINDOW / 2);
    settle().await;
    spent(&limiter, &policy).await;
    settle().await;
    assert_eq!(spent(&limiter, &policy).await, 10);
}
