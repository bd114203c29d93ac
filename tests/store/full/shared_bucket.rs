//! `WhenFull::ShareOneKey`: new keys share one count for each policy.

use std::{collections::HashMap, time::Duration};

use tollgate::{Check, Policy, store::WhenFull};

use super::{MINUTE, flood, store};
use crate::support::{ALGORITHMS, random::Random, seed::seeds};

#[tokio::test]
async fn law_14_while_the_store_is_full_new_keys_share_one_bucket_for_each_policy() {
    for algorithm in ALGORITHMS {
        let (limiter, store, _clock) = store(8, WhenFull::ShareOneKey);
        let policy = |name| Policy::per_day(name, 10).unwrap().with_algorithm(algorithm);
        assert_eq!(flood(&limiter, &policy("p"), "kept", 8).await, 8);
        assert_eq!(flood(&limiter, &policy("p"), "new", 500).await, 10, "{algorithm:?}");
        assert_eq!(flood(&limiter, &policy("q"), "new", 500).await, 10, "{algorithm:?}");
        assert_eq!(flood(&limiter, &policy("p"), "newer", 500).await, 0, "{algorithm:?}");
        for key in 0..8 {
            let standing = limiter.peek(format!("kept {key}"), &policy("p")).await.unwrap();
            assert_eq!(standing.available(), Some(9), "{algorithm:?}");
        }
        assert_eq!((store.keys(), store.evicted()), (8, 0));
    }
}

#[tokio::test]
async fn law_14_units_spent_in_the_shared_bucket_count_when_the_key_gets_its_own_count() {
    let (limiter, store, clock) = store(2, WhenFull::ShareOneKey);
    let (policy, short) = (Policy::per_minute("p", 10).unwrap(), Policy::per_second("short", 1).unwrap());
    flood(&limiter, &short, "kept", 2).await;
    assert!(limiter.check("client", &policy, 10).await.unwrap().is_allowed());
    clock.advance(Duration::from_secs(1));
    // The keys with a count are idle, so there is room for new ones.
    let denied = limiter.check("client", &policy, 1).await.unwrap();
    assert_eq!((denied.is_allowed(), denied.retry_after()), (false, Some(MINUTE - Duration::from_secs(1))));
    assert_eq!(limiter.check("another", &policy, 0).await.unwrap().available(), Some(0));
    assert_eq!(store.keys(), 0, "nothing was charged, so there is nothing to keep");
    clock.advance(denied.retry_after().unwrap());
    for key in ["client", "another"] {
        assert_eq!(limiter.check(key, &policy, 1).await.unwrap().available(), Some(9), "a count of its own");
    }
}

#[tokio::test]
async fn law_14_units_spent_in_the_shared_bucket_count_after_a_change_by_hand() {
    for algorithm in ALGORITHMS {
        let (limiter, _store, clock) = store(2, WhenFull::ShareOneKey);
        let policy = Policy::per_day("p", 10).unwrap().with_algorithm(algorithm);
        flood(&limiter, &Policy::per_second("short", 1).unwrap(), "kept", 2).await;
        assert!(limiter.check("banned", &policy, 6).await.unwrap().is_allowed());
        assert!(limiter.check("charged", &policy, 4).await.unwrap().is_allowed());
        // The keys with a count are idle, so there is room for the keys that are changed.
        clock.advance(Duration::from_secs(1));
        assert!(!limiter.unban("banned", &policy).await.unwrap(), "{algorithm:?}");
        limiter.record("charged", &policy, 1).await.unwrap();
        limiter.ban("banned", &policy, MINUTE).await.unwrap();
        assert!(limiter.unban("banned", &policy).await.unwrap(), "{algorithm:?}");
        for key in ["banned", "charged"] {
            assert!(!limiter.check(key, &policy, 1).await.unwrap().is_allowed(), "{algorithm:?}: {key} spends more");
        }
    }
}

#[tokio::test]
async fn law_1_two_new_keys_of_one_check_spend_the_shared_bucket_together() {
    let (limiter, _store, _clock) = store(1, WhenFull::ShareOneKey);
    let [policy, lower] = [3, 2].map(|limit| Policy::per_day("p", limit).unwrap());
    let _ = limiter.check("kept", &policy, 1).await.unwrap();
    let both = |cost| Check::new("a", &policy, cost).and("b", &policy, cost);
    assert!(!limiter.check_all(both(2)).await.unwrap().is_allowed());
    let mixed = Check::new("a", &policy, 2).and("b", &lower, 1);
    assert!(!limiter.check_all(mixed).await.unwrap().is_allowed(), "one bucket, also under another limit");
    assert!(limiter.check_all(both(1)).await.unwrap().is_allowed());
    assert!(!limiter.check_all(both(1)).await.unwrap().is_allowed());
    assert_eq!(flood(&limiter, &policy, "new", 10).await, 1);
}

#[tokio::test]
async fn what_a_check_charges_elsewhere_takes_no_room_of_the_shared_bucket() {
    let (limiter, _store, _clock) = store(1, WhenFull::ShareOneKey);
    let [policy, other] = ["p", "other"].map(|name| Policy::per_day(name, 3).unwrap());
    let _ = limiter.check("kept", &policy, 1).await.unwrap();
    let check = Check::new("kept", &policy, 2).and("new", &other, 3).and("new", &policy, 3);
    assert!(limiter.check_all(check).await.unwrap().is_allowed());
}

#[tokio::test]
async fn law_6_there_are_1024_shared_buckets_and_new_keys_under_further_policies_are_denied() {
    let (limiter, store, clock) = store(1, WhenFull::ShareOneKey);
    let _ = limiter.check("kept", &Policy::per_day("kept", 1).unwrap(), 1).await.unwrap();
    let check = async |key: &str, number: u32| {
        let policy = Policy::per_minute(format!("p{number}"), 2).unwrap();
        limiter.check(key, &policy, 1).await.unwrap().is_allowed()
    };
    for number in 0..1_023 {
        assert!(check("new", number).await, "{number}");
    }
    let [last, further] = [1_023, 1_024].map(|number| Policy::per_minute(format!("p{number}"), 2).unwrap());
    let never = Policy::per_minute("never", 1).unwrap();
    let both = limiter.check_all(Check::new("new", &last, 1).and("new", &further, 1)).await.unwrap();
    assert!(!both.is_allowed(), "one check needs two buckets");
    let free = Check::new("a", &last, 0).and("b", &last, 1).and("c", &further, 1);
    assert!(!limiter.check_all(free).await.unwrap().is_allowed(), "the charge of nothing has taken none");
    let first = limiter.check_all(Check::first_of("new", [&never, &last], 2)).await.unwrap();
    assert!(first.is_allowed(), "what never fits needs no bucket");
    assert!(!check("new", 1_024).await);
    assert!(check("newer", 7).await && !check("newest", 7).await, "a policy with a bucket");
    clock.advance(MINUTE);
    assert!(check("new", 1_024).await, "the units of the others have left their windows");
    assert_eq!((store.keys(), store.evicted()), (1, 0));
}

#[tokio::test]
async fn a_new_key_that_costs_nothing_violates_nothing_beside_a_key_that_finds_the_shared_bucket_spent() {
    let (limiter, _store, _clock) = store(1, WhenFull::ShareOneKey);
    let policy = Policy::per_day("p", 3).unwrap();
    let _ = limiter.check("kept", &policy, 1).await.unwrap();
    let both = Check::new("a", &policy, 4).and("b", &policy, 0);
    let decision = limiter.check_all(both).await.unwrap();
    let violated: Vec<bool> = decision.policies().iter().map(|policy| policy.violated).collect();
    assert_eq!(violated, [true, false]);
}

#[tokio::test]
async fn denials_by_the_shared_bucket_of_a_full_store_do_not_ban() {
    for when_full in [WhenFull::Deny, WhenFull::ShareOneKey] {
        let (limiter, _store, clock) = store(1, when_full);
        let short = Policy::per_second("short", 1).unwrap();
        let policy = Policy::per_minute("p", 1).unwrap().ban_after(1, 10 * MINUTE);
        let _ = limiter.check("kept", &short, 1).await.unwrap();
        let _ = limiter.check("other", &policy, 1).await.unwrap();
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
    for when_full in [WhenFull::Deny, WhenFull::ShareOneKey] {
        for seed in seeds(20) {
            let (limiter, store, clock) = store(12, when_full);
            let window = Duration::from_millis(100);
            let policies = [Policy::new("p", 5, window).unwrap(), Policy::new("q", 9, 3 * window).unwrap()];
            let (mut random, mut spent) = (Random(seed), HashMap::<(u64, usize), Vec<(Duration, u64)>>::new());
            let (mut now, mut denied) = (Duration::ZERO, 0);
            for _ in 0..2_000 {
                let step = Duration::from_micros(random.below(9_000));
                clock.advance(step);
                now += step;
                let (key, cost) = (random.below(24), random.cost(3));
                let both = random.below(2) == 0;
                let mut check = Check::new(key, &policies[0], cost);
                if both {
                    check = check.and(key, &policies[1], cost);
                }
                if !limiter.check_all(check).await.unwrap().is_allowed() {
                    denied += 1;
                    continue;
                }
                for (index, policy) in policies.iter().enumerate().take(1 + usize::from(both)) {
                    let spent = spent.entry((key, index)).or_default();
                    spent.push((now, cost));
                    let live = spent.iter().filter(|(at, _)| *at + policy.window().unwrap() > now);
                    let sum: u64 = live.map(|(_, cost)| cost).sum();
                    assert!(sum <= policy.limit(), "{when_full:?}, seed {seed}: {sum} units under {policy:?}");
                }
            }
            assert!((100..1_900).contains(&denied) && store.keys() <= 12, "{denied} denied, {} keys", store.keys());
            assert_eq!(store.evicted(), 0);
        }
    }
}
