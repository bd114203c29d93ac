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

/// While an instance has debts, a check needs room in one of the shares. The store alone knows what others have spent.
#[tokio::test(start_paused = true)]
async fn a_share_that_is_full_holds_no_check_back_while_that_of_another_alternative_has_room() {
    let clock = ManualClock::default();
    let memory = || MemoryStore::new().with_clock(clock.clone());
    let store = UnhealthyStore::new(Health::Healthy).counting_in(memory());
    let limiter = Limiter::new(store.clone()).with_local_fallback(memory(), 2);
    let (included, credits) = (policy("included", 8), policy("credits", 4));
    assert!(Limiter::new(store.clone()).check("k", &included, 8).await.unwrap().is_allowed());
    store.set_health(UNAVAILABLE);
    assert!(limiter.check("k", &included, 3).fail_local().await.unwrap().is_allowed());
    store.set_health(Health::Healthy);
    let check = async |check: Check| limiter.check_all(check).fail_local().await.unwrap();
    let decision = check(Check::first_of("k", [&included, &credits], 2)).await;
    assert_eq!((named(&decision), decision.source()), ("credits", Source::Store));
    // Shadow policies need no room, so the store is asked here too.
    let shadows = [policy("a", 1), policy("b", 1)].map(|policy| policy.with_shadow(true));
    let decision = check(Check::first_of("k", &shadows, 1).and("k", &included, 1)).await;
    assert_eq!((decision.is_allowed(), decision.source()), (false, Source::Store));
}
