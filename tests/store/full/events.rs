//! Warnings and eviction events of a full store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tollgate::observe::{Event, Observer, Warning};
use tollgate::{Algorithm, Check, Limiter, ManualClock, MemoryStore, Policy, store::WhenFull};

use super::{MINUTE, flood, store};
use crate::support::{observed::values, recorder::assert_warnings};

/// Calls the store from every event, which would deadlock if the store reported events under its lock.
#[derive(Clone)]
struct ReentrantObserver {
    store: MemoryStore,
    evicted: Arc<AtomicU64>,
    units: Arc<AtomicU64>,
    warnings: Arc<Mutex<Vec<Warning>>>,
}

impl Observer for ReentrantObserver {
    fn on_event(&self, event: &Event<'_>) {
        if event.name() == "eviction" {
            assert!(self.store.keys() > 0 && values(event, "policy") == ["p"]);
            self.evicted.fetch_add(1, Ordering::SeqCst);
            self.units.fetch_add(values(event, "spent")[0].parse().unwrap(), Ordering::SeqCst);
        }
        if let Some(warning) = event.warning() {
            assert!(self.store.keys() > 0);
            self.warnings.lock().unwrap().push(warning.clone());
        }
    }
}

/// A limiter with a store of 100 keys, and its observer.
fn observed(when_full: WhenFull) -> (Limiter, MemoryStore, ReentrantObserver) {
    let (limiter, store, _clock) = store(100, when_full);
    let (evicted, units, warnings) = Default::default();
    let observer = ReentrantObserver { store: store.clone(), evicted, units, warnings };
    (limiter.with_observer(observer.clone()), store, observer)
}

#[tokio::test]
async fn law_13_a_full_store_warns_once_and_reports_every_live_count_that_it_evicts() {
    let (limiter, store, observer) = observed(WhenFull::EvictLeastSpent);
    let policy = Policy::per_day("p", 10).unwrap();
    flood(&limiter, &policy, "a", 100).await;
    assert_eq!(
        (store.evicted(), observer.warnings.lock().unwrap().len()),
        (0, 0),
        "the last place may be taken without a warning"
    );
    flood(&limiter, &policy, "b", 300).await;
    // A check with several charges evicts as well.
    let check = Check::new("c", &policy, 1).and("d", &policy, 1);
    let _ = limiter.check_all(check).await.unwrap();
    assert_eq!((store.evicted(), observer.evicted.load(Ordering::SeqCst)), (302, 302));
    assert_eq!(observer.units.load(Ordering::SeqCst), 302);
    let warnings = observer.warnings.lock().unwrap().clone();
    assert_warnings(&warnings, &[("store_full", "room for 100 keys")]);
    assert!(warnings[0].to_string().contains("with_capacity"));
}

#[tokio::test]
async fn law_13_changes_by_hand_evict_and_warn_as_checks_do() {
    let (limiter, store, observer) = observed(WhenFull::EvictLeastSpent);
    let policy = Policy::per_day("p", 10).unwrap();
    flood(&limiter, &policy, "a", 98).await;
    for (names, evicted) in [(["b", "c"], 0), (["d", "e"], 2)] {
        limiter.record(names[0], &policy, 1).await.unwrap();
        limiter.ban(names[1], &policy, MINUTE).await.unwrap();
        assert_eq!((store.keys(), store.evicted(), observer.evicted.load(Ordering::SeqCst)), (100, evicted, evicted));
        assert_eq!(observer.warnings.lock().unwrap().len(), usize::from(evicted > 0));
    }
}

#[tokio::test]
async fn law_13_a_full_store_that_evicts_nothing_warns_too() {
    for when_full in [WhenFull::Deny, WhenFull::ShareOneKey] {
        let (limiter, store, observer) = observed(when_full);
        let policy = Policy::per_day("p", 10).unwrap();
        flood(&limiter, &policy, "a", 100).await;
        assert!(observer.warnings.lock().unwrap().is_empty());
        flood(&limiter, &policy, "b", 100).await;
        assert_warnings(&observer.warnings.lock().unwrap(), &[("store_full", "room for 100 keys")]);
        assert_eq!((store.evicted(), observer.evicted.load(Ordering::SeqCst)), (0, 0));
    }
}

#[tokio::test]
async fn evictions_of_idle_counts_are_not_reported() {
    let clock = ManualClock::default();
    let store = MemoryStore::with_capacity(100).unwrap().with_clock(clock.clone());
    let limiter = Limiter::new(store.clone());
    let policy = Policy::per_minute("p", 10).unwrap();
    for round in 0..20 {
        flood(&limiter, &policy, &round.to_string(), 100).await;
        clock.advance(MINUTE);
    }
    assert_eq!(store.evicted(), 0);
}

#[tokio::test]
async fn an_eviction_of_a_count_that_becomes_idle_just_now_is_not_reported() {
    let (limiter, store, clock) = store(64, WhenFull::EvictLeastSpent);
    let policies = [Policy::per_day("p", 1), Policy::per_minute("p", 1)].map(Result::unwrap);
    let [daily, short] = policies.map(|policy| policy.with_algorithm(Algorithm::FixedWindow));
    clock.set_us(1_767_225_600_000_000);
    // The counts at which a new key looks first are live, so it takes the place of a random one.
    flood(&limiter, &daily, "live", 16).await;
    flood(&limiter, &short, "idle", 48).await;
    clock.advance(MINUTE);
    assert_eq!(flood(&limiter, &daily, "new", 1).await, 1);
    assert_eq!((store.keys(), store.evicted()), (64, 0));
}
