//! Alternatives while the store gives no verdict: the share of each is judged in order.

use tollgate::{Check, Decision, Limiter, ManualClock, MemoryStore, Policy, decision::Source};

use super::{named, policy};
use crate::support::unhealthy_store::{Health, UNAVAILABLE, UnhealthyStore};

async fn check(limiter: &Limiter, alternatives: [&Policy; 2]) -> Decision {
    limiter.check_all(Check::first_of("k", alternatives, 1)).fail_local().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_share_of_the_first_is_spent_before_that_of_the_second() {
    let clock = ManualClock::default();
    let memory = || MemoryStore::new().with_clock(clock.clone());
    let store = UnhealthyStore::new(Health::Healthy).counting_in(memory());
    let limiter = Limiter::new(store.clone()).with_local_fallback(memory(), 2);
    let (included, credits) = (policy("included", 8), policy("credits", 4));
    let alternatives = [&included, &credits];
    assert_eq!(named(&check(&limiter, alternatives).await), "included");
    store.set_health(UNAVAILABLE);
    let mut charged = [0, 0];
    for _ in 0..20 {
        let decision = check(&limiter, alternatives).await;
        assert_eq!(decision.source(), Source::Local);
        if decision.is_allowed() {
            charged[usize::from(named(&decision) == "credits")] += 1;
        }
    }
    // Half of each limit, and the store has admitted one before.
    assert_eq!(charged, [3, 2]);

    store.set_health(Health::Healthy);
    for _ in 0..20 {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let _ = limiter.check("other", &included, 1).fail_local().await.unwrap();
    }
    let left = |policy: Policy| {
        let limiter = limiter.clone();
        async move { limiter.peek("k", &policy).await.unwrap().available().unwrap() }
    };
    assert_eq!((left(included.clone()).await, left(credits.clone()).await), (4, 2), "each debt is that of its policy");
}
