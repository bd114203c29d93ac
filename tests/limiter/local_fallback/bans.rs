//! Bans to which denials of the fallback have led.

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
