//! Probes: the first checks after an outage, while what the fallback has admitted is not charged yet.

use tollgate::decision::Source;

use super::*;
use crate::support::unhealthy_store::UNAVAILABLE;

/// Instances that share a limit, each with its own way to the store.
struct Fleet {
    instances: Vec<(Limiter, UnhealthyStore)>,
    clock: ManualClock,
}

impl Fleet {
    fn new(number: u32) -> Self {
        let clock = ManualClock::default();
        let memory = MemoryStore::new().with_clock(clock.clone());
        let instance = |_| {
            let store = UnhealthyStore::new(Health::Healthy).counting_in(memory.clone());
            let local = MemoryStore::new().with_clock(clock.clone());
            (Limiter::new(store.clone()).with_local_fallback(local, number), store)
        };
        Self { instances: (0..number).map(instance).collect(), clock }
    }

    fn set_health(&self, health: Health) {
        self.instances.iter().for_each(|(_, store)| store.set_health(health));
    }

    /// The units that all instances admit, by checks of `cost` until each has denied several of them.
    async fn admitted(&self, policy: &Policy, cost: u64) -> u64 {
        let mut admitted = 0;
        for (limiter, _) in &self.instances {
            for _ in 0..policy.limit() / cost + 9 {
                admitted += if check(limiter, policy, cost).await.is_allowed() { cost } else { 0 };
            }
        }
        admitted
    }
}

/// The documented bound of balanced load: the limit, and a unit for each further instance.
#[tokio::test(start_paused = true)]
async fn law_1_probes_admit_nothing_beyond_the_share_of_their_instance() {
    for (instances, cost) in [(1, 1), (1, 1_000), (4, 1), (4, 250), (4, 500)] {
        let (fleet, policy) = (Fleet::new(instances), per_minute(2_000));
        fleet.set_health(UNAVAILABLE);
        let mut admitted = fleet.admitted(&policy, cost).await;
        fleet.set_health(Health::Healthy);
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(130)).await;
            admitted += fleet.admitted(&policy, cost).await;
        }
        assert!(admitted < 2_000 + u64::from(instances), "{admitted} of 2 000 by {instances} instances, {cost} each");
        for (limiter, _) in &fleet.instances {
            let decision = check(limiter, &policy, cost).await;
            assert_eq!((decision.is_allowed(), decision.source()), (false, Source::Store), "the breaker has closed");
        }
        fleet.clock.advance(WINDOW);
        assert!(check(&fleet.instances[0].0, &policy, 2_000).await.is_allowed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_that_exceeds_the_share_probes_without_waiting_and_without_a_charge() {
    let (limiter, store, _clock) = one_of_eight();
    let policy = per_minute(80);
    store.set_health(UNAVAILABLE);
    assert_eq!(admitted(&limiter, &policy).await, 10);
    store.set_health(Health::Healthy);
    tokio::time::sleep(Duration::from_millis(130)).await;
    let (sent, start) = (store.sent(), tokio::time::Instant::now());
    let decision = check(&limiter, &policy, 1).await;
    assert_eq!((decision.is_allowed(), decision.source()), (false, Source::Local));
    assert_eq!(start.elapsed(), Duration::ZERO);
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(store.sent() > sent && !limiter.is_breaker_open(), "the probe was answered");
    settle().await;
    assert_eq!(spent(&limiter, &policy).await, 10, "the debt, and nothing for the probe");
}

/// A probe whose caller goes away, and one that gets no answer, leave the breaker as other probes do.
#[tokio::test(start_paused = true)]
async fn a_probe_of_a_store_that_is_still_away_leaves_the_breaker_open() {
    let (limiter, store, _clock) = one_of_eight();
    let policy = per_minute(80);
    store.set_health(UNAVAILABLE);
    assert_eq!(admitted(&limiter, &policy).await, 10);
    for health in [UNAVAILABLE, Health::Silent] {
        store.set_health(health);
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert!(!check(&limiter, &policy, 1).await.is_allowed());
        tokio::time::sleep(Duration::from_millis(60)).await;
        let sent = store.sent();
        assert!(!check(&limiter, &policy, 1).await.is_allowed());
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(limiter.is_breaker_open() && store.sent() == sent, "{health:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn law_4_a_decision_by_the_share_leaves_out_what_a_probe_has_taken() {
    let (limiter, store, _clock) = one_of_eight();
    let policy = per_minute(80);
    store.set_health(UNAVAILABLE);
    for _ in 0..5 {
        let _ = check(&limiter, &policy, 1).await;
    }
    store.set_health(Health::Silent);
    tokio::time::sleep(Duration::from_millis(600)).await;
    let mut probe = limiter.check("k", &policy, 3).fail_local();
    assert!(tokio::time::timeout(Duration::ZERO, &mut probe).await.is_err(), "the probe waits for the store");
    // Five of the ten units of the share are spent.
    let denied = check(&limiter, &policy, 3).await;
    assert_eq!((denied.is_allowed(), denied.source(), denied.available()), (false, Source::Local, Some(2)));
    let allowed = check(&limiter, &policy, 1).await;
    assert_eq!((allowed.is_allowed(), allowed.source(), allowed.available()), (true, Source::Local, Some(1)));
}
