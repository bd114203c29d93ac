//! Debts to a store with two failure domains, of which one may be unavailable.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tollgate::{Key, Limiter, ManualClock, MemoryStore, Policy, failure::BreakerSettings, store::Store};

use crate::limiter::two_domain_store::TwoDomainStore;
use crate::support::unhealthy_store::{Health, UNAVAILABLE, UnhealthyStore};

const KEYS: u64 = 2_000;

fn policy() -> Policy {
    Policy::per_hour("p", 80).unwrap()
}

fn domain_of(key: &Key) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    usize::from(hasher.finish() % 2 == 1)
}

/// An instance with a debt of one unit for each key, its store, and the memory store of each failure domain.
async fn in_debt(breaker: Option<BreakerSettings>) -> (Limiter, TwoDomainStore, [MemoryStore; 2]) {
    let clock = ManualClock::default();
    let memory = || MemoryStore::new().with_clock(clock.clone());
    let counts = [memory(), memory()];
    let domains = counts.clone().map(|counts| UnhealthyStore::with_breaker(UNAVAILABLE, None).counting_in(counts));
    let store = TwoDomainStore { domains, breaker, domain_of };
    let limiter = Limiter::new(store.clone()).with_local_fallback(memory(), 8);
    for key in 0..KEYS {
        assert!(limiter.check(key, &policy(), 1).fail_local().await.unwrap().is_allowed());
    }
    (limiter, store, counts)
}

/// The number of keys of a failure domain, and how many of them are charged in the store.
async fn charged(store: &TwoDomainStore, counts: &[MemoryStore; 2], domain: usize) -> (usize, usize) {
    let limiter = Limiter::new(counts[domain].clone());
    let (mut keys, mut charged) = (0, 0);
    for key in (0..KEYS).filter(|key| store.failure_domain_of(&Key::from(*key)) == domain) {
        keys += 1;
        charged += usize::from(limiter.peek(key, &policy()).await.unwrap().available() == Some(79));
    }
    (keys, charged)
}

/// Sends a check every tenth of a second. The limiter settles debts when a check succeeds.
async fn traffic(limiter: &Limiter, seconds: u64) {
    for tenth in 0..seconds * 10 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        // The key may belong to either failure domain.
        let _ = limiter.peek(tenth, &policy()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn debts_of_an_unavailable_domain_do_not_delay_those_of_a_recovered_domain() {
    for health in [UNAVAILABLE, Health::Silent] {
        let (limiter, store, counts) = in_debt(Some(BreakerSettings::default())).await;
        store.domains[1].set_health(health);
        store.domains[0].set_health(Health::Healthy);
        traffic(&limiter, 3).await;
        let (keys, charged_here) = charged(&store, &counts, 0).await;
        assert_eq!(charged_here, keys, "debts of the recovered domain; the other one is {health:?}");
        store.domains[1].set_health(Health::Healthy);
        traffic(&limiter, 3).await;
        let (keys, charged_there) = charged(&store, &counts, 1).await;
        // A debit that timed out is not sent again.
        let lost = if matches!(health, Health::Silent) { 5 } else { 0 };
        assert!(charged_there + lost >= keys, "{charged_there} of {keys} keys are charged after {health:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn many_debts_are_charged_at_once_to_a_store_that_takes_its_time() {
    let (limiter, store, counts) = in_debt(Some(BreakerSettings::default())).await;
    store.domains.iter().for_each(|domain| domain.set_health(Health::Slow(Duration::from_millis(20))));
    traffic(&limiter, 4).await;
    for domain in [0, 1] {
        let (keys, charged) = charged(&store, &counts, domain).await;
        assert_eq!(charged, keys);
    }
}

/// Without a breaker, the store receives every debit that is tried.
#[tokio::test(start_paused = true)]
async fn an_unavailable_domain_receives_one_debit_a_second() {
    let (limiter, store, _counts) = in_debt(None).await;
    store.domains[0].set_health(Health::Healthy);
    let key = (0..KEYS).find(|key| store.failure_domain_of(&Key::from(*key)) == 0).unwrap();
    let before = store.domains[1].sent();
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let _ = limiter.peek(key, &policy()).await.unwrap();
    }
    let sent = store.domains[1].sent() - before;
    assert!((5..=11).contains(&sent), "{sent} debits in ten seconds");
}

/// A share of 10 units would not admit a cost of 30.
#[tokio::test(start_paused = true)]
async fn law_2_debts_to_an_unavailable_domain_deny_nothing_in_a_healthy_one() {
    let (limiter, store, _counts) = in_debt(Some(BreakerSettings::default())).await;
    store.domains[0].set_health(Health::Healthy);
    traffic(&limiter, 3).await;
    let here = |key: &String| store.failure_domain_of(&Key::from(key.as_str())) == 0;
    for key in (0..20).map(|number| format!("new {number}")).filter(here) {
        let decision = limiter.check(key.as_str(), &policy(), 30).fail_local().await.unwrap();
        assert!(decision.is_allowed(), "{key}: {decision:?}");
    }
}
