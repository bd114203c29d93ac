//! The local fallback under a policy with shards: the share of the whole policy, and debts that all shards are charged.

use std::time::Duration;

use tokio::time::Instant;
use tollgate::{Limiter, ManualClock, MemoryStore, Policy, decision::Source, failure::BreakerSettings};

use super::{WINDOW, policy};
use crate::limiter::two_domain_store::TwoDomainStore;
use crate::support::unhealthy_store::{Health, UNAVAILABLE, UnhealthyStore};

/// One of eight instances, the store that the instances share, and the clock of all counts.
fn one_of_eight() -> (Limiter, UnhealthyStore, ManualClock) {
    let clock = ManualClock::default();
    let memory = || MemoryStore::new().with_clock(clock.clone());
    let store = UnhealthyStore::new(Health::Healthy).counting_in(memory());
    let limiter = Limiter::new(store.clone()).with_local_fallback(memory(), 8);
    (limiter, store, clock)
}

async fn admitted(limiter: &Limiter, policy: &Policy) -> u64 {
    let mut admitted = 0;
    for _ in 0..1_000 {
        let decision = limiter.check("k", policy, 1).fail_local().await.unwrap();
        admitted += u64::from(decision.is_allowed());
    }
    admitted
}

/// Waits until the breaker has probed, the debts are settled and the caution after an outage has ended.
async fn settle(limiter: &Limiter, policy: &Policy) {
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let _ = limiter.peek("k", policy).await;
    }
}

#[tokio::test(start_paused = true)]
async fn law_1_the_share_is_one_of_the_whole_policy_and_counts_what_the_shards_have_admitted() {
    for before in [0, 4, 10, 30] {
        let (limiter, store, _clock) = one_of_eight();
        let policy = policy(80, 4);
        let mut spent = 0;
        while spent < before {
            spent += u64::from(limiter.check("k", &policy, 1).await.unwrap().is_allowed());
        }
        store.set_health(UNAVAILABLE);
        assert_eq!(admitted(&limiter, &policy).await, 10_u64.saturating_sub(before), "{before} before");
        let decision = limiter.check("k", &policy, 1).fail_local().await.unwrap();
        assert_eq!((decision.source(), &decision.policies()[0].policy), (Source::Local, &policy));
    }
}

#[tokio::test(start_paused = true)]
async fn law_1_what_the_share_has_admitted_is_charged_to_the_shards() {
    for (limit, shards, instances) in [(80, 4, 8), (80, 64, 8), (81, 7, 1), (10, 10, 2)] {
        let clock = ManualClock::default();
        let memory = || MemoryStore::new().with_clock(clock.clone());
        let store = UnhealthyStore::new(Health::Healthy).counting_in(memory());
        let limiter = Limiter::new(store.clone()).with_local_fallback(memory(), instances);
        let policy = policy(limit, shards);
        store.set_health(UNAVAILABLE);
        let local = admitted(&limiter, &policy).await;
        assert_eq!(local, limit.div_ceil(instances.into()));
        store.set_health(Health::Healthy);
        settle(&limiter, &policy).await;
        // Without the fallback, so that nothing is held back.
        let other = Limiter::new(store.clone());
        assert_eq!(super::admitted(&other, &policy).await, limit - local, "{limit} in {shards} shards");
    }
}

/// The even parts of a debt do not fit everywhere, and the rest goes where there is room.
#[tokio::test(start_paused = true)]
async fn a_debt_that_does_not_fit_evenly_goes_to_the_shards_with_room() {
    let (limiter, store, _clock) = one_of_eight();
    let policy = policy(80, 2);
    let other = Limiter::new(store.clone());
    // One of two shards of forty has two units left.
    assert!(other.check("k", &policy, 38).await.unwrap().is_allowed());
    store.set_health(UNAVAILABLE);
    assert_eq!(admitted(&limiter, &policy).await, 10);
    store.set_health(Health::Healthy);
    settle(&limiter, &policy).await;
    assert_eq!(super::admitted(&other, &policy).await, 80 - 38 - 10);
}

#[tokio::test(start_paused = true)]
async fn law_1_a_debt_of_a_policy_that_counts_rejections_is_charged_as_far_as_it_fits() {
    // Ten units are charged evenly: two or three in each shard of twenty.
    for (shards, left, whole) in [(4, 18, 20), (1, 70, 80)] {
        let (limiter, store, clock) = one_of_eight();
        let policy = policy(80, shards).with_denials_counted(true);
        store.set_health(UNAVAILABLE);
        assert_eq!(admitted(&limiter, &policy).await, 10);
        store.set_health(Health::Healthy);
        settle(&limiter, &policy).await;
        let other = Limiter::new(store.clone());
        assert_eq!(other.peek("k", &policy).await.unwrap().available(), Some(left));
        clock.advance(WINDOW);
        assert_eq!(other.peek("k", &policy).await.unwrap().available(), Some(whole));
    }
}

#[tokio::test(start_paused = true)]
async fn a_cost_that_fits_no_shard_does_not_fit_the_share_either() {
    let memory = MemoryStore::new();
    let store = UnhealthyStore::new(UNAVAILABLE);
    let limiter = Limiter::new(store).with_local_fallback(memory, 1);
    let policy = policy(80, 4);
    for (cost, allowed) in [(21, false), (80, false), (20, true)] {
        let decision = limiter.check("k", &policy, cost).fail_local().await.unwrap();
        assert_eq!(decision.is_allowed(), allowed, "{cost}");
        assert_eq!((decision.policies()[0].cost, decision.retry_after()), (cost, None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_also_resets_the_share() {
    let (limiter, store, _clock) = one_of_eight();
    let policy = policy(80, 4);
    store.set_health(UNAVAILABLE);
    assert_eq!(admitted(&limiter, &policy).await, 10);
    store.set_health(Health::Healthy);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(limiter.reset("k", &policy).await.unwrap());
    store.set_health(UNAVAILABLE);
    assert_eq!(admitted(&limiter, &policy).await, 10);
}

/// The second shard is in a failure domain of its own, which the key of the check is not in.
#[tokio::test(start_paused = true)]
async fn law_1_right_after_an_outage_of_a_shard_its_checks_also_need_room_in_the_share() {
    let clock = ManualClock::default();
    let memory = || MemoryStore::new().with_clock(clock.clone());
    let domains = [Health::Healthy, UNAVAILABLE];
    let domains = domains.map(|health| UnhealthyStore::with_breaker(health, None).counting_in(memory()));
    let domain_of = |key: &tollgate::Key| usize::from(key.encoded().ends_with(b"|1|)"));
    let store = TwoDomainStore { domains, breaker: Some(BreakerSettings::default()), domain_of };
    let limiter = Limiter::new(store.clone()).with_local_fallback(memory(), 8);
    let policy = policy(400, 2);
    let check = async || limiter.check("k", &policy, 1).fail_local().await.unwrap();
    // The first shard admits more than the share of 50 units.
    for _ in 0..120 {
        let _ = check().await;
    }
    store.domains[1].set_health(Health::Healthy);
    let start = Instant::now();
    let mut asked = Vec::new();
    for _ in 0..150 {
        let before = store.domains[1].sent();
        let _ = check().await;
        // Also what is sent in the background.
        tokio::time::sleep(Duration::from_millis(20)).await;
        if store.domains[1].sent() > before {
            asked.push(start.elapsed());
        }
    }
    // Six checks in a row ask one shard, so otherwise no pause is longer than a quarter of a second.
    let longest = asked.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(longest > Duration::from_millis(700), "the second shard is asked at {asked:?}");
}
