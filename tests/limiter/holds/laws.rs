//! The laws with holds, on the memory store.

use std::time::Duration;

use tollgate::store::{Answer, HoldChange, SettleAnswer, Store};
use tollgate::{Algorithm, Check, Limiter, ManualClock, MemoryStore, Policy, policy::HoldSettings};

use super::{TTL, available, limiter, of, tokens, with_holds};
use crate::support::{ALGORITHMS, random::Random};

/// In every window, settled units and open holds are within the limit and the units by which holds were too small.
#[tokio::test]
async fn law_1_holds_never_exceed_the_limit_and_the_underestimates() {
    const LIMIT: u64 = 50;
    let (limiter, clock) = limiter();
    let policy = with_holds(LIMIT, HoldSettings::new().with_unsettled_released(true));
    let mut random = Random(7);
    // What was charged, when, and how much of it no hold has covered.
    let (mut charged, mut open): (Vec<(u64, u64, u64)>, Vec<_>) = (Vec::new(), Vec::new());
    let mut now = 0;
    for _ in 0..20_000 {
        let step = random.below(1_000_000);
        now += step;
        clock.advance(Duration::from_micros(step));
        open.retain(|(_, _, ends)| *ends > now);
        if !open.is_empty() && random.one_in(2) {
            let place = random.index(open.len());
            let (hold, held, _): (tollgate::limiter::Hold, u64, u64) = open.swap_remove(place);
            let actual = random.pick(&[0, held / 2, held, held + 3]);
            assert_eq!(hold.settle(actual).await.unwrap(), SettleAnswer::Settled);
            charged.push((now, actual, actual.saturating_sub(held)));
        } else {
            let cost = random.cost(8);
            if let Ok(hold) = limiter.hold("k", &policy, cost).await.unwrap().into_result() {
                open.push((hold, cost, now + TTL.as_micros() as u64));
            }
        }
        charged.retain(|(at, ..)| at + 60_000_000 > now);
        let spent: u64 = charged.iter().map(|(_, units, _)| units).sum();
        let held: u64 = open.iter().map(|(_, units, _)| units).sum();
        let under: u64 = charged.iter().map(|(_, _, under)| under).sum();
        assert!(spent + held <= LIMIT + under, "{spent} spent and {held} held, {under} too small");
    }
    assert!(!charged.is_empty());
    open.into_iter().for_each(|(hold, ..)| std::mem::forget(hold));
}

#[tokio::test]
async fn law_4_available_beside_holds_means_it() {
    for algorithm in ALGORITHMS {
        let (limiter, _) = limiter();
        let policy = of(algorithm, 100);
        assert!(limiter.check("k", &policy, 30).await.unwrap().is_allowed());
        let _hold = limiter.hold("k", &policy, 50).await.unwrap();
        assert_eq!(available(&limiter, &policy).await, 20);
        assert!(!limiter.check("k", &policy, 21).await.unwrap().is_allowed());
        assert!(limiter.check("k", &policy, 20).await.unwrap().is_allowed());
    }
}

/// What was charged beyond the hold makes later requests wait until it has left, under every algorithm.
#[tokio::test]
async fn law_5_after_an_underestimate_the_wait_is_the_truth() {
    for algorithm in ALGORITHMS {
        let (limiter, clock) = limiter();
        let policy = of(algorithm, 10);
        let hold = limiter.hold("k", &policy, 4).await.unwrap().into_result().unwrap();
        hold.settle(25).await.unwrap();
        let wait = limiter.check("k", &policy, 5).await.unwrap().retry_after().unwrap();
        clock.advance(wait - Duration::from_micros(1));
        assert!(!limiter.check("k", &policy, 5).await.unwrap().is_allowed(), "{algorithm:?}: not earlier");
        clock.advance(Duration::from_micros(1));
        assert!(limiter.check("k", &policy, 5).await.unwrap().is_allowed(), "{algorithm:?}: after {wait:?}");
    }
}

/// Sums beyond the largest limit, and settlements that no window can hold.
#[tokio::test]
async fn law_6_extreme_holds_neither_overflow_nor_touch_other_keys() {
    for algorithm in ALGORITHMS {
        let (limiter, clock) = limiter();
        let policy = Policy::new("tokens", Policy::MAX_LIMIT, Policy::MAX_WINDOW / 2)
            .unwrap()
            .with_holds(HoldSettings::new().with_ttl(TTL))
            .with_algorithm(algorithm);
        let first = limiter.hold("k", &policy, Policy::MAX_LIMIT).await.unwrap().into_result().unwrap();
        assert!(!limiter.hold("k", &policy, Policy::MAX_LIMIT).await.unwrap().is_allowed());
        first.settle(u64::MAX).await.unwrap();
        let slow = Policy::new("slow", 1, Policy::MAX_WINDOW)
            .unwrap()
            .with_holds(HoldSettings::new().with_ttl(TTL))
            .with_algorithm(algorithm);
        for _ in 0..3 {
            if let Ok(hold) = limiter.hold("k", &slow, 1).await.unwrap().into_result() {
                hold.settle(u64::MAX).await.unwrap();
            }
            assert_eq!(available(&limiter, &slow).await, 0);
            clock.advance(Policy::MAX_WINDOW / 3);
        }
        let other = limiter.check("other", &slow, 1).await.unwrap();
        assert!(other.is_allowed(), "{algorithm:?}");
    }
}

/// 1 000 holds of a process that was killed: once they have ended, they are in the way of nothing.
#[test]
fn law_2_holds_that_have_ended_deny_no_check_however_many_they_are() {
    for (released, algorithm) in [false, true].into_iter().flat_map(|kind| ALGORITHMS.map(|one| (kind, one))) {
        let clock = ManualClock::default();
        let store = MemoryStore::new().with_clock(clock.clone());
        let policy =
            with_holds(10_000, HoldSettings::new().with_unsettled_released(released)).with_algorithm(algorithm);
        for _ in 0..1_000 {
            judge(&store, &Check::hold("k", &policy, 10));
        }
        assert_eq!(judge(&store, &Check::new("k", &policy, 0)), 0);
        clock.advance(TTL + 2 * policy.window().unwrap());
        assert_eq!(judge(&store, &Check::new("k", &policy, 0)), 10_000, "{released:?}, {algorithm:?}");
        assert_eq!(judge(&store, &Check::new("k", &policy, 10_000)), 0, "{released:?}, {algorithm:?}");
    }
}

/// A check ends at most 1 024 holds that are charged, and 4 096 that are released while others are open. The others
/// count until they are ended.
#[test]
fn law_6_a_check_ends_a_bounded_number_of_holds() {
    let clock = ManualClock::default();
    let store = MemoryStore::new().with_clock(clock.clone());
    let charged = with_holds(10_000, HoldSettings::new());
    for _ in 0..1_100 {
        judge(&store, &Check::hold("k", &charged, 1));
    }
    clock.advance(TTL + 2 * charged.window().unwrap());
    let peek = |policy| judge(&store, &Check::new("k", policy, 0));
    assert_eq!([peek(&charged), peek(&charged)], [9_924, 10_000]);

    let released = Policy::per_minute("released", 10_000).unwrap();
    let released = released.with_holds(HoldSettings::new().with_ttl(TTL).with_unsettled_released(true));
    for _ in 0..4_100 {
        judge(&store, &Check::hold("k", &released, 1));
    }
    clock.advance(TTL);
    judge(&store, &Check::hold("k", &released, 1));
    assert_eq!([peek(&released), peek(&released)], [9_999, 9_999]);

    // Without an open hold, all that are released end at once.
    for _ in 0..4_100 {
        judge(&store, &Check::hold("other", &released, 1));
    }
    clock.advance(TTL);
    assert_eq!(judge(&store, &Check::new("other", &released, 0)), 10_000);
}

fn judge(store: &MemoryStore, check: &Check) -> u64 {
    let Answer::Ready(verdict) = store.check(check) else { panic!("a memory store answers at once") };
    verdict.unwrap().outcomes[0].available
}

/// A hold that has ended stays ended, although it is not the first to be ended by a check.
#[test]
fn a_settlement_after_the_end_changes_nothing_however_many_holds_have_ended() {
    let clock = ManualClock::default();
    let store = MemoryStore::new().with_clock(clock.clone());
    let policy = with_holds(1_000, HoldSettings::new());
    let checks: Vec<Check> = (0..100).map(|_| Check::hold("k", &policy, 1)).collect();
    for check in &checks {
        clock.advance(Duration::from_micros(1));
        judge(&store, check);
    }
    clock.advance(TTL);
    let last = checks.last().unwrap().charges()[0].clone();
    let Answer::Ready(settlement) = store.change_hold(&last, HoldChange::Settle(500)) else { panic!("at once") };
    assert_eq!(settlement.unwrap(), SettleAnswer::Expired);
    assert_eq!(judge(&store, &Check::new("k", &policy, 0)), 900);
}

/// A policy without holds shares its counts with one that has them, and does not see them.
#[tokio::test]
async fn a_policy_without_holds_does_not_look_for_them() {
    let (limiter, _) = limiter();
    let plain = Policy::per_minute("tokens", 10).unwrap();
    let hold = limiter.hold("k", &tokens(), 8).await.unwrap().into_result().unwrap();
    assert_eq!(available(&limiter, &plain).await, 10);
    assert!(limiter.check("k", &plain, 5).await.unwrap().is_allowed());
    assert_eq!(available(&limiter, &tokens()).await, 0);
    hold.settle(1).await.unwrap();
    assert_eq!((available(&limiter, &plain).await, available(&limiter, &tokens()).await), (4, 4));
}

/// The clock of a count does not run backwards, and neither do its holds.
#[tokio::test]
async fn a_clock_that_runs_backwards_ends_no_hold_early() {
    let (limiter, clock) = limiter();
    let start = 1_800_000_000_000_000;
    clock.set_us(start);
    let hold = limiter.hold("k", &tokens(), 4).await.unwrap().into_result().unwrap();
    clock.set_us(start - 10_000_000);
    assert_eq!(available(&limiter, &tokens()).await, 6);
    assert_eq!(hold.settle(4).await.unwrap(), SettleAnswer::Settled);
    assert_eq!(available(&limiter, &tokens()).await, 6);
}

#[tokio::test]
async fn holds_of_one_key_are_not_those_of_another() {
    let (limiter, _): (Limiter, _) = limiter();
    let _hold = limiter.hold("other", &tokens(), 10).await.unwrap();
    assert_eq!(available(&limiter, &tokens()).await, 10);
    let fixed = of(Algorithm::FixedWindow, 10);
    assert!(limiter.hold("other", &fixed, 10).await.unwrap().is_allowed(), "another algorithm has its own counts");
}
