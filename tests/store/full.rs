//! A memory store that is full of live counts: what new keys get, and what the others keep.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tollgate::{
    Check, Limiter, ManualClock, MemoryStore, Policy,
    observe::{Evicted, Observer, Warning},
    store::WhenFull,
};

use super::suite::{ALGORITHMS, random::Random};

const MINUTE: Duration = Duration::from_secs(60);

/// A store with room for `keys` keys in one shard, on a clock that is moved.
fn store(keys: usize, when_full: WhenFull) -> (Limiter, MemoryStore, ManualClock) {
    let clock = ManualClock::default();
    let store = MemoryStore::with_capacity(keys).unwrap().with_clock(clock.clone()).when_full(when_full);
    (Limiter::new(store.clone()), store, clock)
}

/// How many of `keys` new keys get one unit each.
async fn flood(limiter: &Limiter, policy: &Policy, name: &str, keys: u64) -> u32 {
    let mut admitted = 0;
    for key in 0..keys {
        admitted += u32::from(limiter.check(format!("{name} {key}"), policy, 1).await.unwrap().is_allowed());
    }
    admitted
}

#[tokio::test]
async fn law_14_a_client_that_has_spent_its_limit_stays_denied_through_a_flood_of_made_up_keys() {
    let limiter = Limiter::new(MemoryStore::new());
    let policy = Policy::per_day("p", 10).unwrap();
    limiter.check("client", &policy, 10).await.unwrap();
    flood(&limiter, &policy, "flood", 200_000).await;
    assert!(!limiter.check("client", &policy, 1).await.unwrap().is_allowed());
}

#[tokio::test]
async fn law_14_a_spent_limit_of_a_short_window_survives_a_flood_under_a_long_one() {
    for algorithm in ALGORITHMS {
        let (limiter, store, _clock) = store(1_000, WhenFull::EvictLeastSpent);
        let short = Policy::per_second("short", 5).unwrap().with_algorithm(algorithm);
        limiter.check("client", &short, 5).await.unwrap();
        flood(&limiter, &Policy::per_day("long", 10).unwrap(), "flood", 20_000).await;
        assert!(!limiter.check("client", &short, 1).await.unwrap().is_allowed(), "{algorithm:?}");
        assert_eq!(store.evicted(), 19_001);
    }
}

#[tokio::test]
async fn law_14_a_new_client_is_limited_although_all_others_have_spent_more() {
    let (limiter, _store, _clock) = store(4, WhenFull::EvictLeastSpent);
    let policy = Policy::per_day("p", 10).unwrap();
    for key in 0..4_u64 {
        limiter.check(key, &policy, 10).await.unwrap();
    }
    for left in (0..10).rev() {
        assert_eq!(limiter.check("new", &policy, 1).await.unwrap().available(), Some(left));
    }
    assert!(!limiter.check("new", &policy, 1).await.unwrap().is_allowed());
}

#[tokio::test]
async fn law_14_while_the_store_is_full_new_keys_share_one_bucket_for_each_policy() {
    for algorithm in ALGORITHMS {
        let (limiter, store, _clock) = store(8, WhenFull::ShareOneBucket);
        let policy = |name| Policy::per_day(name, 10).unwrap().with_algorithm(algorithm);
        assert_eq!(flood(&limiter, &policy("p"), "kept", 8).await, 8);
        assert_eq!(flood(&limiter, &policy("p"), "new", 500).await, 10, "{algorithm:?}");
        assert_eq!(flood(&limiter, &policy("q"), "new", 500).await, 10, "{algorithm:?}");
        assert_eq!(flood(&limiter, &policy("p"), "newer", 500).await, 0, "{algorithm:?}");
        for key in 0..8 {
            let standing = limiter.peek(format!("kept {key}"), &policy("p")).await.unwrap();
            assert_eq!(standing.available(), Some(9), "{algorithm:?}");
        }
        assert_eq!((store.len(), store.evicted()), (8, 0));
    }
}

#[tokio::test]
async fn law_14_a_key_that_has_spent_in_the_shared_bucket_has_spent_it_when_it_gets_its_own_place() {
    let (limiter, _store, clock) = store(2, WhenFull::ShareOneBucket);
    let (policy, short) = (Policy::per_minute("p", 10).unwrap(), Policy::per_second("short", 1).unwrap());
    flood(&limiter, &short, "kept", 2).await;
    assert!(limiter.check("client", &policy, 10).await.unwrap().is_allowed());
    clock.advance(Duration::from_secs(1));
    // There is room now.
    let denied = limiter.check("client", &policy, 1).await.unwrap();
    assert_eq!((denied.is_allowed(), denied.retry_after()), (false, Some(MINUTE - Duration::from_secs(1))));
    assert_eq!(limiter.check("another", &policy, 0).await.unwrap().available(), Some(0));
    clock.advance(denied.retry_after().unwrap());
    for key in ["client", "another"] {
        assert_eq!(limiter.check(key, &policy, 1).await.unwrap().available(), Some(9), "a count of its own");
    }
}

#[tokio::test]
async fn law_1_two_new_keys_of_one_check_spend_the_shared_bucket_together() {
    let (limiter, _store, _clock) = store(1, WhenFull::ShareOneBucket);
    let policy = Policy::per_day("p", 3).unwrap();
    limiter.check("kept", &policy, 1).await.unwrap();
    let both = |cost| Check::new("a", &policy, cost).and("b", &policy, cost).unwrap();
    assert!(!limiter.check_all(both(2)).await.unwrap().is_allowed());
    assert!(limiter.check_all(both(1)).await.unwrap().is_allowed());
    assert!(!limiter.check_all(both(1)).await.unwrap().is_allowed());
    assert_eq!(flood(&limiter, &policy, "new", 10).await, 1);
}

#[tokio::test]
async fn law_5_a_new_key_that_is_denied_by_a_full_store_passes_at_retry_after() {
    for algorithm in ALGORITHMS {
        let (limiter, store, clock) = store(4, WhenFull::Deny);
        let policy = Policy::per_minute("p", 10).unwrap().with_algorithm(algorithm);
        for key in 0..4_u64 {
            limiter.check(key, &policy, 1).await.unwrap();
            clock.advance(Duration::from_millis(100));
        }
        let denied = limiter.check("new", &policy, 1).await.unwrap();
        assert!(!denied.is_allowed() && denied.violated().count() == 1, "{algorithm:?}");
        assert!(!limiter.peek("new", &policy).await.unwrap().is_allowed());
        assert!(limiter.check("new", &policy, 0).await.unwrap().is_allowed());
        assert_eq!(limiter.check("new", &policy, 11).await.unwrap().retry_after(), None, "it never fits");
        // A key that is kept is judged as ever; by a bucket its count now becomes idle later.
        assert!(limiter.check(0_u64, &policy, 1).await.unwrap().is_allowed());
        let wait = limiter.check("new", &policy, 1).await.unwrap().retry_after().unwrap();
        clock.advance(wait - Duration::from_micros(1));
        assert_eq!(
            limiter.check("new", &policy, 1).await.unwrap().retry_after(),
            Some(Duration::from_micros(1)),
            "{algorithm:?}"
        );
        clock.advance(Duration::from_micros(1));
        assert!(limiter.check("new", &policy, 1).await.unwrap().is_allowed(), "{algorithm:?}");
        assert_eq!(store.evicted(), 0);
    }
}

#[tokio::test]
async fn a_full_store_bans_nobody_for_what_others_spend_in_the_shared_bucket() {
    for when_full in [WhenFull::Deny, WhenFull::ShareOneBucket] {
        let (limiter, _store, clock) = store(1, when_full);
        let short = Policy::per_second("short", 1).unwrap();
        let policy = Policy::per_minute("p", 1).unwrap().ban_after(1, 10 * MINUTE).unwrap();
        limiter.check("kept", &short, 1).await.unwrap();
        limiter.check("somebody", &policy, 1).await.unwrap();
        for _ in 0..5 {
            let denied = limiter.check("client", &policy, 1).await.unwrap();
            assert!(!denied.is_allowed() && denied.policies()[0].ban.is_none());
        }
        clock.advance(MINUTE);
        assert!(limiter.check("client", &policy, 1).await.unwrap().is_allowed(), "{when_full:?}");
    }
}

#[tokio::test]
async fn law_14_no_key_spends_more_than_its_limit_in_a_store_that_is_full_most_of_the_time() {
    for when_full in [WhenFull::Deny, WhenFull::ShareOneBucket] {
        for seed in 0..20 {
            let (limiter, store, clock) = store(12, when_full);
            let window = Duration::from_millis(100);
            let policies = [Policy::new("p", 5, window).unwrap(), Policy::new("q", 9, 3 * window).unwrap()];
            let (mut random, mut spent) = (Random(seed), HashMap::<(u64, usize), Vec<(Duration, u32)>>::new());
            let (mut now, mut denied) = (Duration::ZERO, 0);
            for _ in 0..2_000 {
                let step = Duration::from_micros(random.below(9_000));
                clock.advance(step);
                now += step;
                let (key, cost) = (random.below(24), random.cost(3));
                let both = random.below(2) == 0;
                let mut check = Check::new(key, &policies[0], cost);
                if both {
                    check = check.and(key, &policies[1], cost).unwrap();
                }
                if !limiter.check_all(check).await.unwrap().is_allowed() {
                    denied += 1;
                    continue;
                }
                for (index, policy) in policies.iter().enumerate().take(1 + usize::from(both)) {
                    let spent = spent.entry((key, index)).or_default();
                    spent.push((now, cost));
                    let live = spent.iter().filter(|(at, _)| *at + policy.window() > now);
                    let sum: u32 = live.map(|(_, cost)| cost).sum();
                    assert!(sum <= policy.limit(), "{when_full:?}, seed {seed}: {sum} units under {policy:?}");
                }
            }
            assert!((100..1_900).contains(&denied) && store.len() <= 12, "{denied} denied, {} keys", store.len());
            assert_eq!(store.evicted(), 0);
        }
    }
}

/// Counts of one client after the other lie side by side, so all that is looked at nearby may be spent.
#[tokio::test]
async fn law_14_clients_that_spent_their_limits_one_after_the_other_stay_denied_through_a_flood_of_made_up_keys() {
    const SPENT: u64 = 7_000;
    let clock = ManualClock::default();
    let store = MemoryStore::with_capacity(10_000).unwrap().with_clock(clock.clone());
    let limiter = Limiter::new(store.clone());
    let policy = Policy::per_minute("p", 60).unwrap();
    for key in 0..SPENT {
        limiter.check(key, &policy, 60).await.unwrap();
    }
    flood(&limiter, &policy, "flood", 60_000).await;
    let mut lifted = 0;
    for key in 0..SPENT {
        lifted += u32::from(limiter.peek(key, &policy).await.unwrap().is_allowed());
    }
    assert!(lifted <= 3, "{lifted} of {SPENT} clients start afresh");
    assert!(store.evicted() > 40_000);
}

#[tokio::test]
async fn law_14_both_counts_of_a_new_client_are_kept_although_all_others_have_spent_more() {
    let (limiter, _store, _clock) = store(2, WhenFull::EvictLeastSpent);
    let [policy, daily] = ["p", "daily"].map(|name| Policy::per_day(name, 10).unwrap());
    for key in 0..2_u64 {
        limiter.check(key, &policy, 10).await.unwrap();
    }
    let both = || Check::new("new", &policy, 1).and("new", &daily, 1).unwrap();
    for _ in 0..10 {
        assert!(limiter.check_all(both()).await.unwrap().is_allowed());
    }
    assert!(!limiter.check_all(both()).await.unwrap().is_allowed());
}

#[tokio::test]
async fn law_2_a_count_that_will_not_be_written_takes_no_place_from_one_that_will() {
    let [burst, daily] = ["burst", "daily"].map(|name| Policy::per_minute(name, 10).unwrap());
    let banning = Policy::per_minute("banning", 10).unwrap().ban_after(1, MINUTE).unwrap();
    for check in [
        Check::new("new", &burst, 0).and("new", &daily, 1).unwrap(),
        Check::new("new", &burst, 1).and("new", &daily, 0).unwrap(),
        Check::new("new", &banning, 1),
        Check::new("new", &banning, 0).and("new", &daily, 1).unwrap(),
    ] {
        let (limiter, store, _clock) = store(1, WhenFull::Deny);
        assert!(limiter.check_all(check.clone()).await.unwrap().is_allowed(), "{check:?}");
        assert_eq!(store.len(), 1);
    }
    for (first, second) in [(&banning, &daily), (&daily, &banning)] {
        let (limiter, store, _clock) = store(2, WhenFull::Deny);
        let check = Check::new("new", first, 1).and("new", second, 1).unwrap();
        assert!(limiter.check_all(check).await.unwrap().is_allowed());
        // No place is left for the denials.
        assert!(!limiter.check("new", &banning, 10).await.unwrap().is_allowed());
        assert_eq!((store.len(), store.evicted()), (2, 0));
    }
    let (limiter, store, _clock) = store(2, WhenFull::Deny);
    limiter.check("new", &banning, 10).await.unwrap();
    let denied = limiter.check("new", &banning, 1).await.unwrap();
    assert_eq!((denied.policies()[0].ban, store.len()), (Some(MINUTE), 2), "one place is left for the denials");
}

#[tokio::test]
async fn law_5_a_check_of_several_new_counts_that_is_denied_by_a_full_store_passes_at_retry_after() {
    for algorithm in ALGORITHMS {
        for seed in 0..20 {
            let (limiter, store, clock) = store(50, WhenFull::Deny);
            let mut random = Random(seed);
            let new = 2 + random.below(9);
            for key in 0..50 - random.below(2) {
                let window = Duration::from_micros(1 + random.below(60_000_000));
                limiter.check(key, &Policy::new("p", 1, window).unwrap(), 1).await.unwrap();
            }
            let mut check = Check::new("new", &Policy::per_minute("new-0", 10).unwrap().with_algorithm(algorithm), 1);
            for number in 1..new {
                let policy = Policy::per_minute(format!("new-{number}"), 10).unwrap().with_algorithm(algorithm);
                check = check.and("new", &policy, 1).unwrap();
            }
            let denied = limiter.check_all(check.clone()).await.unwrap();
            assert!(!denied.is_allowed());
            clock.advance(denied.retry_after().unwrap());
            assert!(
                limiter.check_all(check).await.unwrap().is_allowed(),
                "{algorithm:?}, seed {seed}, {new} new counts"
            );
            assert_eq!(store.evicted(), 0);
        }
    }
}

#[tokio::test]
async fn law_5_a_check_of_two_new_counts_waits_for_the_second_place_and_not_longer() {
    for when in [0, 1] {
        let (limiter, _store, clock) = store(4 + when, WhenFull::Deny);
        let [policy, daily] = ["p", "daily"].map(|name| Policy::per_minute(name, 10).unwrap());
        for key in 0..4_u64 {
            limiter.check(key, &policy, 1).await.unwrap();
            clock.advance(Duration::from_secs(1));
        }
        let both = || Check::new("new", &policy, 1).and("new", &daily, 1).unwrap();
        let wait = limiter.check_all(both()).await.unwrap().retry_after().unwrap();
        assert_eq!(wait, MINUTE - Duration::from_secs(if when == 0 { 3 } else { 4 }));
        clock.advance(wait - Duration::from_micros(1));
        assert!(!limiter.check_all(both()).await.unwrap().is_allowed());
        clock.advance(Duration::from_micros(1));
        assert!(limiter.check_all(both()).await.unwrap().is_allowed());
    }
}

#[tokio::test]
async fn law_11_what_a_new_key_gets_is_one_setting_of_all_clones() {
    let clock = ManualClock::default();
    let first = MemoryStore::with_capacity(2).unwrap().with_clock(clock.clone());
    let second = first.clone().when_full(WhenFull::Deny);
    let policy = Policy::per_day("p", 10).unwrap();
    let [evicting, denying] = [first, second.clone()].map(Limiter::new);
    flood(&denying, &policy, "kept", 2).await;
    assert_eq!(flood(&evicting, &policy, "new", 10).await, 0);
    assert_eq!(second.evicted(), 0);
    let third = second.when_full(WhenFull::EvictLeastSpent);
    assert_eq!(flood(&denying, &policy, "new", 10).await, 10);
    assert_eq!(third.evicted(), 10);
}

/// Asks the store whenever it is told something, as nothing may that is called under a lock of the store.
#[derive(Clone)]
struct Curious {
    store: MemoryStore,
    evicted: Arc<AtomicU64>,
    units: Arc<AtomicU64>,
    warnings: Arc<Mutex<Vec<Warning>>>,
}

impl Observer for Curious {
    fn on_evicted(&self, evicted: &Evicted<'_>) {
        assert!(!self.store.is_empty() && evicted.policy.name() == "p");
        self.evicted.fetch_add(1, Ordering::SeqCst);
        self.units.fetch_add(evicted.spent.into(), Ordering::SeqCst);
    }

    fn on_warning(&self, warning: &Warning) {
        assert!(!self.store.is_empty());
        self.warnings.lock().unwrap().push(warning.clone());
    }
}

fn observed(when_full: WhenFull) -> (Limiter, MemoryStore, Curious) {
    let (limiter, store, _clock) = store(100, when_full);
    let (evicted, units, warnings) = Default::default();
    let curious = Curious { store: store.clone(), evicted, units, warnings };
    (limiter.with_observer(curious.clone()), store, curious)
}

#[tokio::test]
async fn law_13_a_full_store_warns_once_and_tells_of_every_live_count_that_it_drops() {
    let (limiter, store, curious) = observed(WhenFull::EvictLeastSpent);
    let policy = Policy::per_day("p", 10).unwrap();
    flood(&limiter, &policy, "a", 100).await;
    assert_eq!((store.evicted(), curious.warnings.lock().unwrap().len()), (0, 0), "full is not too full");
    flood(&limiter, &policy, "b", 300).await;
    // Of several charges too.
    let check = Check::new("c", &policy, 1).and("d", &policy, 1).unwrap();
    limiter.check_all(check).await.unwrap();
    assert_eq!((store.evicted(), curious.evicted.load(Ordering::SeqCst)), (302, 302));
    assert_eq!(curious.units.load(Ordering::SeqCst), 302);
    assert_eq!(*curious.warnings.lock().unwrap(), [Warning::StoreFull { capacity: 100 }]);
    let text = Warning::StoreFull { capacity: 100 }.to_string();
    assert!(text.contains("room for 100 keys") && text.contains("with_capacity"), "{text}");
}

#[tokio::test]
async fn law_13_a_full_store_that_drops_nothing_warns_too() {
    for when_full in [WhenFull::Deny, WhenFull::ShareOneBucket] {
        let (limiter, store, curious) = observed(when_full);
        let policy = Policy::per_day("p", 10).unwrap();
        flood(&limiter, &policy, "a", 100).await;
        assert!(curious.warnings.lock().unwrap().is_empty());
        flood(&limiter, &policy, "b", 100).await;
        assert_eq!(*curious.warnings.lock().unwrap(), [Warning::StoreFull { capacity: 100 }]);
        assert_eq!((store.evicted(), curious.evicted.load(Ordering::SeqCst)), (0, 0));
    }
}

/// What the documentation of `MemoryStore` says: `cargo test --all-features --test store bytes -- --ignored
/// --nocapture`.
#[tokio::test]
#[ignore = "measures this process, so it runs alone"]
async fn bytes_per_key() {
    const STORES: u32 = 3;
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        4_096 * statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap()
    };
    let address = |key: u32| std::net::IpAddr::from((0x0a00_0000 + key).to_be_bytes());
    let mut stores = Vec::new();
    for (algorithm, requests) in
        ALGORITHMS.map(|algorithm| (algorithm, 1)).into_iter().chain([(ALGORITHMS[2], 5), (ALGORITHMS[2], 60)])
    {
        let (before, keys) = (resident(), STORES * MemoryStore::DEFAULT_CAPACITY as u32);
        let policy = Policy::per_day("per-client", 100).unwrap().with_algorithm(algorithm);
        let clock = ManualClock::default();
        for _ in 0..STORES {
            let store = MemoryStore::new().with_clock(clock.clone());
            let limiter = Limiter::new(store.clone());
            for _ in 0..requests {
                for key in 0..keys / STORES {
                    limiter.check(address(key), &policy, 1).await.unwrap();
                }
                clock.advance(Duration::from_micros(1));
            }
            assert_eq!(store.len(), MemoryStore::DEFAULT_CAPACITY);
            stores.push(store);
        }
        println!("{algorithm:?}, {requests} requests a key: {} bytes", (resident() - before) / keys as usize);
    }
}

#[tokio::test]
async fn idle_counts_that_make_room_are_not_told() {
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
