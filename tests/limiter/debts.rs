//! Debts to a store in parts, of which one may be away without the other.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use tollgate::{
    Check, Key, Limiter, ManualClock, MemoryStore, Policy,
    failure::Breaker,
    store::{Answer, Store, Verdict},
};

use crate::support::unhealthy_store::{Health, UNAVAILABLE, UnhealthyStore};

/// Two stores side by side, each with about half of the keys.
#[derive(Clone, Debug)]
struct Halves {
    halves: [UnhealthyStore; 2],
    breaker: Option<Breaker>,
}

impl Store for Halves {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        self.halves[self.failure_domain_of(&check.charges()[0].key)].check(check)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.halves[self.failure_domain_of(key)].reset(key, policy)
    }

    fn breaker(&self) -> Option<Breaker> {
        self.breaker
    }

    fn failure_domains(&self) -> usize {
        2
    }

    fn failure_domain_of(&self, key: &Key) -> usize {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        usize::from(hasher.finish() % 2 == 1)
    }
}

const KEYS: u64 = 2_000;

fn policy() -> Policy {
    Policy::per_hour("p", 80).unwrap()
}

/// An instance that owes one unit for each key, both halves of its store, and what each of them counts in.
async fn in_debt(breaker: Option<Breaker>) -> (Limiter, Halves, [MemoryStore; 2]) {
    let clock = ManualClock::default();
    let memory = || MemoryStore::new().with_clock(clock.clone());
    let counts = [memory(), memory()];
    let halves = counts.clone().map(|counts| UnhealthyStore::with_breaker(UNAVAILABLE, None).counting_in(counts));
    let store = Halves { halves, breaker };
    let limiter = Limiter::new(store.clone()).with_local(memory(), 8).unwrap();
    for key in 0..KEYS {
        assert!(limiter.check(key, &policy(), 1).fail_local().await.unwrap().is_allowed());
    }
    (limiter, store, counts)
}

/// How many keys of a half there are, and how many of them are charged.
async fn charged(store: &Halves, counts: &[MemoryStore; 2], half: usize) -> (usize, usize) {
    let limiter = Limiter::new(counts[half].clone());
    let (mut keys, mut charged) = (0, 0);
    for key in (0..KEYS).filter(|key| store.failure_domain_of(&Key::from(*key)) == half) {
        keys += 1;
        charged += usize::from(limiter.peek(key, &policy()).await.unwrap().available() == Some(79));
    }
    (keys, charged)
}

/// Seconds of traffic, which pays debts on its back.
async fn traffic(limiter: &Limiter, seconds: u32) {
    for tenth in 0..seconds * 10 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        // Whichever half has it.
        let _ = limiter.peek(u64::from(tenth), &policy()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn debts_of_a_part_that_is_away_do_not_hold_up_those_of_a_part_that_is_back() {
    for health in [UNAVAILABLE, Health::Silent] {
        let (limiter, store, counts) = in_debt(Some(Breaker::default())).await;
        store.halves[1].set_health(health);
        store.halves[0].set_health(Health::Healthy);
        traffic(&limiter, 3).await;
        let (keys, charged_here) = charged(&store, &counts, 0).await;
        assert_eq!(charged_here, keys, "of the part that is back; the other one is {health:?}");
        store.halves[1].set_health(Health::Healthy);
        traffic(&limiter, 3).await;
        let (keys, charged_there) = charged(&store, &counts, 1).await;
        // A debit that was not answered in time is not sent again.
        let lost = if matches!(health, Health::Silent) { 5 } else { 0 };
        assert!(charged_there + lost >= keys, "{charged_there} of {keys} after it was {health:?}");
    }
}

/// Without a breaker, each debit that is tried is sent.
#[tokio::test(start_paused = true)]
async fn a_part_that_stays_away_is_asked_with_one_debt_a_second() {
    let (limiter, store, _counts) = in_debt(None).await;
    store.halves[0].set_health(Health::Healthy);
    let key = (0..KEYS).find(|key| store.failure_domain_of(&Key::from(*key)) == 0).unwrap();
    let before = store.halves[1].sent();
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        limiter.peek(key, &policy()).await.unwrap();
    }
    let asked = store.halves[1].sent() - before;
    assert!((5..=11).contains(&asked), "{asked} times in ten seconds");
}
