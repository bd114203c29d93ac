//! Events of outages: each change of the breaker once and in order, and no event without a request.

use std::{thread, time::Duration};

use tollgate::observe::{Event, Observer};
use tollgate::{Key, Limiter, ManualClock, MemoryStore, Policy, failure::BreakerSettings};

use super::two_domain_store::TwoDomainStore;
use crate::support::unhealthy_store::{Health, UNAVAILABLE, UnhealthyStore};
use crate::support::{observed::BreakerChange, recorder::Recorder};

fn policy() -> Policy {
    Policy::per_minute("p", 80).unwrap()
}

/// The states after the changes, in the order of their sequence numbers.
fn states(mut changes: Vec<BreakerChange>) -> Vec<&'static str> {
    changes.sort_by_key(|change| change.sequence);
    changes.iter().map(|change| change.to).collect()
}

/// Records the opening of the breaker with a delay, in which other threads change its state.
struct SlowRecorder(Recorder);

impl Observer for SlowRecorder {
    fn on_event(&self, event: &Event<'_>) {
        if event.name() == "breaker_change" {
            if event.outcome() == "open" {
                thread::sleep(Duration::from_millis(300));
            }
            self.0.on_event(event);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_failure_domain_does_not_affect_the_other() {
    let domains = [UnhealthyStore::new(Health::Healthy), UnhealthyStore::new(UNAVAILABLE)];
    let domain_of = |key: &Key| usize::from(*key == Key::from("b"));
    let store = TwoDomainStore { domains: domains.clone(), breaker: Some(BreakerSettings::default()), domain_of };
    let recorder = Recorder::default();
    let limiter = Limiter::new(store).with_observer(recorder.clone());
    for _ in 0..20 {
        assert!(limiter.check("a", &policy(), 1).await.is_ok());
        assert!(limiter.check("b", &policy(), 1).await.is_err());
    }
    assert!(limiter.is_breaker_open());
    assert_eq!((domains[0].sent(), domains[1].sent()), (20, 5));
    domains[1].set_health(Health::Healthy);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(limiter.check("b", &policy(), 1).await.is_ok() && !limiter.is_breaker_open());
    assert_eq!(states(recorder.take().changes), ["open", "probing", "closed"]);
}

#[test]
fn changes_that_a_slow_observer_receives_late_have_sequence_numbers_in_order() {
    let store = UnhealthyStore::new(UNAVAILABLE);
    let recorder = Recorder::default();
    let limiter = Limiter::new(store.clone()).with_observer(SlowRecorder(recorder.clone()));
    let check = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(limiter.check("k", &policy(), 1)).is_ok()
    };
    thread::scope(|scope| {
        scope.spawn(|| assert!((0..5).all(|_| !check())));
        while !limiter.is_breaker_open() {
            thread::yield_now();
        }
        store.set_health(Health::Healthy);
        while !check() {
            thread::yield_now();
        }
    });
    let changes = recorder.take().changes;
    assert_eq!(changes.last().map(|change| change.to), Some("open"), "the opening is recorded last");
    assert_eq!(states(changes), ["open", "probing", "closed"]);
}

#[tokio::test(start_paused = true)]
async fn neither_debits_nor_caution_are_reported_as_decisions_or_failures() {
    let clock = ManualClock::default();
    let memory = || MemoryStore::new().with_clock(clock.clone());
    let store = UnhealthyStore::new(UNAVAILABLE).counting_in(memory());
    let recorder = Recorder::default();
    let limiter = Limiter::new(store.clone()).with_local_fallback(memory(), 8).with_observer(recorder.clone());
    let check = || async { limiter.check("k", &policy(), 1).fail_local().await.unwrap().is_allowed() };
    for _ in 0..12 {
        check().await;
    }
    store.set_health(Health::Healthy);
    tokio::time::sleep(Duration::from_millis(600)).await;
    // The breaker closes with a peek and the debts are settled. Checks during the caution find the share spent.
    let _ = limiter.peek("k", &policy()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    let outage = recorder.take();
    assert_eq!((outage.failures.len(), outage.decisions.len()), (12, 12), "{:?}", outage.decisions);
    assert!(!check().await);
    let caution = recorder.take();
    assert_eq!((caution.failures.len(), caution.decisions.len()), (0, 1), "{:?}", caution.decisions);
    assert_eq!(limiter.peek("k", &policy()).await.unwrap().available(), Some(70));
}
