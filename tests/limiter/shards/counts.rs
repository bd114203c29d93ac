//! What all shards together admit, and what peeks and resets say about them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{collections::VecDeque, sync::Arc, time::Duration};

use tollgate::store::{Answer, Store, Verdict};
use tollgate::{Algorithm, Check, Key, Limiter, MemoryStore, Policy};

use super::{MANY, WINDOW, admitted, limiter, policy};
use crate::support::{per_minute, random::Random, seed::seeds, time_us};

#[tokio::test]
async fn law_1_all_shards_together_admit_the_limit_and_not_a_unit_more() {
    for (limit, shards) in [(100, 2), (100, 7), (64, 64), (101, 64), (5, 4), (9, 1)] {
        let (limiter, clock) = limiter();
        for algorithm in [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow] {
            let policy = Policy::new("p", limit, WINDOW).unwrap().with_algorithm(algorithm).with_shards(shards);
            assert_eq!(admitted(&limiter, &policy).await, limit, "{policy:?}");
            clock.advance(2 * WINDOW);
            assert_eq!(admitted(&limiter, &policy).await, limit, "{policy:?}");
        }
    }
}

#[tokio::test]
async fn law_1_the_buckets_of_all_shards_hold_the_burst_and_gain_the_limit() {
    let bucket = Policy::new("p", 60, WINDOW).unwrap().with_algorithm(Algorithm::TokenBucket).with_burst(23);
    let (limiter, clock) = limiter();
    let policy = bucket.with_shards(7);
    assert_eq!(admitted(&limiter, &policy).await, 23);
    // A shard gains eight or nine units a minute.
    clock.advance(Duration::from_millis(7_500));
    assert_eq!(admitted(&limiter, &policy).await, 7);
    clock.advance(WINDOW);
    assert_eq!(admitted(&limiter, &policy).await, 23);
}

#[tokio::test]
async fn law_1_holds_in_every_window_for_all_shards_together() {
    for seed in seeds(8) {
        let (limit, shards) = [(100, 3), (17, 16), (1_000, 8), (50, 2)][seed as usize % 4];
        let policy = policy(limit, shards);
        let (limiter, clock) = limiter();
        let mut random = Random(seed);
        let mut window: VecDeque<(u64, u64)> = VecDeque::new();
        for _ in 0..5_000 {
            clock.advance(WINDOW * u32::try_from(random.below(60)).unwrap() / 4_000);
            let cost = random.cost(policy.capacity());
            let decision = limiter.check("k", &policy, cost).await.unwrap();
            if decision.is_allowed() {
                window.push_back((time_us(&decision).unwrap(), cost));
                let (end, _) = *window.back().unwrap();
                while window.front().is_some_and(|(at, _)| at + 60_000_000 <= end) {
                    window.pop_front();
                }
                let spent: u64 = window.iter().map(|(_, cost)| cost).sum();
                assert!(spent <= limit, "seed {seed}: {spent} of {limit}");
            }
        }
    }
}

/// A check sees both of two shards, so nothing is out of its sight.
#[tokio::test]
async fn law_2_with_two_shards_a_denial_means_that_neither_has_room() {
    let (limiter, _clock) = limiter();
    let policy = policy(101, 2);
    for unit in 0..101 {
        assert!(limiter.check("k", &policy, 1).await.unwrap().is_allowed(), "unit {unit}");
    }
    assert!(!limiter.check("k", &policy, 1).await.unwrap().is_allowed());
}

#[tokio::test]
async fn law_3_a_denied_check_charges_no_shard_and_no_other_policy() {
    let (limiter, _clock) = limiter();
    let (sharded, plain) = (policy(8, 4), per_minute("plain", 1_000));
    let both = || Check::new("k", &sharded, 1).and("k", &plain, 1);
    let mut passed = 0;
    for _ in 0..500 {
        passed += u64::from(limiter.check_all(both()).await.unwrap().is_allowed());
    }
    assert_eq!(passed, 8);
    assert_eq!(limiter.peek("k", &plain).await.unwrap().available(), Some(992));

    let narrow = per_minute("narrow", 1);
    let both = || Check::new("other", &sharded, 1).and("other", &narrow, 1);
    for allowed in [true, false, false, false] {
        assert_eq!(limiter.check_all(both()).await.unwrap().is_allowed(), allowed);
    }
    let mut left = 0;
    for _ in 0..MANY {
        left += u64::from(limiter.check("other", &sharded, 1).await.unwrap().is_allowed());
    }
    assert_eq!(left, 7);
}

#[tokio::test]
async fn a_cost_above_the_smallest_shard_never_passes_and_a_smaller_one_does() {
    let (limiter, _clock) = limiter();
    // Two shards of three units, two of two.
    let policy = policy(10, 4);
    for _ in 0..200 {
        let decision = limiter.check("k", &policy, 3).await.unwrap();
        assert!(!decision.is_allowed() && decision.retry_after().is_none());
    }
    assert!(limiter.check("k", &policy, 2).await.unwrap().is_allowed(), "nothing was charged");
    assert!(limiter.check("k", &policy, 0).await.unwrap().is_allowed());
}

#[tokio::test]
async fn decisions_are_about_the_whole_policy_and_the_room_of_one_shard() {
    let (limiter, _clock) = limiter();
    let policy = policy(40, 4);
    let decision = limiter.check("k", &policy, 4).await.unwrap();
    let [standing] = decision.policies() else { panic!("{decision:?}") };
    assert_eq!((&standing.policy, standing.cost, standing.available), (&policy, 4, 6));
    assert_eq!(standing.policy.name(), "p");
}

#[tokio::test]
async fn retry_after_is_the_shorter_wait_of_two_full_shards() {
    let (limiter, clock) = limiter();
    let policy = policy(2, 2);
    assert!(limiter.check("k", &policy, 1).await.unwrap().is_allowed());
    clock.advance(WINDOW / 4);
    assert!(limiter.check("k", &policy, 1).await.unwrap().is_allowed());
    for _ in 0..20 {
        let denied = limiter.check("k", &policy, 1).await.unwrap();
        assert_eq!(denied.retry_after(), Some(WINDOW * 3 / 4));
    }
    assert_eq!(limiter.peek("k", &policy).await.unwrap().retry_after(), Some(WINDOW * 3 / 4));
    clock.advance(WINDOW * 3 / 4);
    assert!(limiter.check("k", &policy, 1).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_peek_reports_the_largest_room_of_any_shard_and_charges_nothing() {
    let (limiter, clock) = limiter();
    let policy = policy(9, 4);
    let peek = async || limiter.peek("k", &policy).await.unwrap();
    // One of the shards has three units, but a check of three may meet one of the others.
    assert_eq!((peek().await.available(), peek().await.is_allowed()), (Some(2), true));
    // Two units fit into any shard, and no shard gets a third one.
    let mut spent = 0;
    while spent < 8 {
        spent += 2 * u64::from(limiter.check("k", &policy, 2).await.unwrap().is_allowed());
    }
    assert_eq!(peek().await.available(), Some(1));
    clock.advance(WINDOW / 2);
    assert_eq!(admitted(&limiter, &policy).await, 1);
    let full = peek().await;
    assert!(!full.is_allowed() && full.policies()[0].violated);
    assert_eq!((full.available(), full.retry_after()), (Some(0), Some(WINDOW / 2)));
    assert_eq!(full.policies()[0].reset, WINDOW, "until the last shard is empty");
    assert_eq!(full.policies().len(), 1);
}

#[tokio::test]
async fn a_reset_resets_all_shards() {
    let (limiter, _clock) = limiter();
    let policy = policy(20, 5);
    assert!(!limiter.reset("k", &policy).await.unwrap());
    assert_eq!(admitted(&limiter, &policy).await, 20);
    assert!(!limiter.reset("other", &policy).await.unwrap());
    assert!(limiter.reset("k", &policy).await.unwrap());
    assert_eq!(admitted(&limiter, &policy).await, 20);
}

#[tokio::test]
async fn another_number_of_shards_starts_fresh_counts_and_another_limit_does_not() {
    let (limiter, _clock) = limiter();
    assert_eq!(admitted(&limiter, &policy(20, 5)).await, 20);
    assert_eq!(admitted(&limiter, &policy(20, 4)).await, 20);
    assert_eq!(admitted(&limiter, &policy(20, 1)).await, 20);
    assert_eq!(admitted(&limiter, &policy(30, 5)).await, 10);
    assert_eq!(admitted(&limiter, &policy(20, 5)).await, 0);
}

#[tokio::test]
async fn a_policy_with_shards_may_count_rejections() {
    let (limiter, clock) = limiter();
    let policy = policy(4, 2).with_denials_counted(true);
    assert_eq!(admitted(&limiter, &policy).await, 4);
    clock.advance(WINDOW / 2);
    assert_eq!(admitted(&limiter, &policy).await, 0);
    clock.advance(WINDOW / 2);
    assert_eq!(admitted(&limiter, &policy).await, 0, "the rejections count");
    clock.advance(WINDOW);
    assert_eq!(admitted(&limiter, &policy).await, 4);
}

/// Two of the shards have seven units, the third one six.
#[tokio::test]
async fn law_4_no_decision_calls_more_available_than_a_check_may_cost() {
    let policy = policy(20, 3);
    for cost in [0, 1] {
        let (limiter, _clock) = limiter();
        let decision = limiter.check("k", &policy, cost).await.unwrap();
        // It speaks of one shard.
        let (available, next) = (decision.policies()[0].available, decision.policies()[0].next);
        assert!(available == 6 && next.is_zero() || available == 6 - cost, "{decision:?}");
        let peeked = limiter.peek("k", &policy).await.unwrap();
        assert_eq!((peeked.available(), peeked.policies()[0].next), (Some(6), Duration::ZERO), "{peeked:?}");
        assert!(limiter.check("k", &policy, 6).await.unwrap().is_allowed());
    }
}

/// A memory store that notes the most charges at which a check lets it look.
#[derive(Clone, Debug)]
struct Noting(MemoryStore, Arc<AtomicUsize>);

impl Store for Noting {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        self.0.check(check)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.0.reset(key, policy)
    }

    fn peek(&self, check: &Check) -> Answer<Verdict> {
        self.1.fetch_max(check.charges().len(), Ordering::SeqCst);
        self.0.peek(check)
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&self.0)
    }
}

#[tokio::test]
async fn a_peek_at_the_shards_of_many_keys_lets_the_store_look_at_no_more_charges_than_a_check_has() {
    let store = Noting(MemoryStore::new(), Arc::default());
    let limiter = Limiter::new(store.clone());
    let (plain, sharded, few) = (per_minute("plain", 5), policy(640, 64), policy(9, 3));
    limiter.record("b", &sharded, 640).await.unwrap();
    let check = |cost| {
        let check = Check::new("k", &plain, cost).and("a", &sharded, 7).and("few", &few, 2);
        check.and("c", &sharded, 10).and("last", &plain, 1)
    };
    for (check, is_allowed, available) in [
        (check(5), true, vec![5, 10, 3, 10, 5]),
        (check(6), false, vec![5, 10, 3, 10, 5]),
        (check(5).and("b", &sharded, 1), false, vec![5, 10, 3, 10, 5, 0]),
    ] {
        let decision = limiter.peek_all(check).await.unwrap();
        let found: Vec<u64> = decision.policies().iter().map(|standing| standing.available).collect();
        assert_eq!((decision.is_allowed(), found), (is_allowed, available));
    }
    assert_eq!(store.1.load(Ordering::SeqCst), Check::MAX_CHARGES);
}
