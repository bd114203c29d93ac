//! Debts: units that the fallback admitted are charged in the store after the outage.

use std::time::Duration;

use tollgate::{
    Check, ErrorKind, Limiter, ManualClock, MemoryStore, Policy, decision::Source, policy::HoldSettings,
    store::WhenFull,
};

use super::{WINDOW, admitted, check, one_of_eight, per_minute, settle, spent, with_little_room};
use crate::support::stopwatch::Stopwatch;
use crate::support::unhealthy_store::{Health, UNAVAILABLE, UnhealthyStore};

#[tokio::test(start_paused = true)]
async fn debts_are_charged_once_when_the_store_is_back() {
    let (limiter, store, _clock) = one_of_eight();
    let policy = per_minute(80);
    assert!(check(&limiter, &policy, 1).await.is_allowed());
    store.set_health(UNAVAILABLE);
    assert_eq!(admitted(&limiter, &policy).await, 9);
    store.set_health(Health::Healthy);
    for _ in 0..3 {
        settle().await;
        assert_eq!(spent(&limiter, &policy).await, if store.sent() == 7 { 1 } else { 10 });
    }
    // One check before the outage, five that opened the breaker, three peeks, and one debit of nine units.
    assert_eq!((store.sent(), spent(&limiter, &policy).await), (10, 10));
}

#[tokio::test(start_paused = true)]
async fn units_that_have_left_their_window_are_no_debt() {
    let (limiter, store, clock) = one_of_eight();
    let policy = per_minute(80);
    store.set_health(UNAVAILABLE);
    for _ in 0..5 {
        assert_eq!(admitted(&limiter, &policy).await, 10);
        clock.advance(WINDOW);
    }
    for _ in 0..4 {
        let _ = check(&limiter, &policy, 1).await;
    }
    store.set_health(Health::Healthy);
    settle().await;
    spent(&limiter, &policy).await;
    settle().await;
    assert_eq!(spent(&limiter, &policy).await, 4);
}

#[tokio::test(start_paused = true)]
async fn units_that_the_store_has_counted_are_no_debt() {
    let (limiter, store, clock) = one_of_eight();
    let policy = per_minute(80);
    store.set_health(UNAVAILABLE);
    assert_eq!(admitted(&limiter, &policy).await, 10);
    clock.advance(10 * WINDOW);
    store.set_health(Health::Healthy);
    settle().await;
    let _ = check(&limiter, &policy, 8).await;
    settle().await;
    assert_eq!(spent(&limiter, &policy).await, 8);
}

#[tokio::test(start_paused = true)]
async fn law_2_units_without_a_count_in_a_full_fallback_are_no_debt() {
    for when_full in [WhenFull::Deny, WhenFull::ShareOneKey] {
        let (limiter, store, clock) = with_little_room(2, when_full).await;
        let policy = per_minute(80);
        store.set_health(UNAVAILABLE);
        assert!(check(&limiter, &policy, 4).await.is_allowed());
        clock.advance(WINDOW);
        assert!(limiter.check("other", &policy, 4).fail_local().await.unwrap().is_allowed());
        store.set_health(Health::Healthy);
        for _ in 0..2 {
            settle().await;
            assert_eq!(spent(&limiter, &policy).await, 0, "{when_full:?}: the units have left their window");
        }
    }
}

#[test]
fn debts_are_settled_although_the_runtime_of_the_settlement_is_idle() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (idle, active) = (runtime(), runtime());
    let (limiter, store, _clock) = one_of_eight();
    let policy = per_minute(80);
    idle.block_on(async {
        store.set_health(UNAVAILABLE);
        assert_eq!(admitted(&limiter, &policy).await, 10);
        store.set_health(Health::Healthy);
        settle().await;
        // This answer starts the settlement on `idle`, which does not run after this block.
        spent(&limiter, &policy).await;
    });
    active.block_on(async {
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            spent(&limiter, &policy).await;
            settle().await;
        }
        assert_eq!(spent(&limiter, &policy).await, 10);
    });
}

/// The runtime ends while a batch of debits is under way: some were sent, and the others have not run yet.
#[test]
fn debits_that_an_ended_runtime_has_not_sent_are_sent_by_another_one() {
    const KEYS: u64 = 120;
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let keys = || (0..KEYS).map(|key| key.to_string());
    let policy = per_minute(80);
    let (mut least, mut most) = (KEYS, 0);
    for turns in 0..10 {
        let (ended, active) = (runtime(), runtime());
        let (limiter, store, _clock) = one_of_eight();
        ended.block_on(async {
            store.set_health(UNAVAILABLE);
            for key in keys() {
                assert!(limiter.check(key, &policy, 1).fail_local().await.unwrap().is_allowed());
            }
            store.set_health(Health::Healthy);
            settle().await;
            spent(&limiter, &policy).await;
        });
        let before = store.sent();
        ended.block_on(async {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
        });
        let sent = u64::try_from(store.sent() - before).unwrap();
        drop(ended);
        let charged: u64 = active.block_on(async {
            for _ in 0..3 {
                settle().await;
                spent(&limiter, &policy).await;
            }
            settle().await;
            let mut charged = 0;
            for key in keys() {
                charged += 80 - limiter.peek(key, &policy).await.unwrap().available().unwrap();
            }
            charged
        });
        (least, most) = (least.min(sent), most.max(sent));
        assert!(charged <= KEYS, "{charged} of {KEYS} units are charged");
        assert!(charged >= KEYS - sent, "{charged} of {KEYS} units are charged, and only {sent} debits were sent");
    }
    assert!(least < KEYS && most > 0, "{least} to {most} debits were sent by the runtime that ended");
}

/// A settlement may take long if the store has a long deadline. One that has ended must not delay the next.
#[test]
fn debts_are_settled_at_once_by_another_runtime_if_that_of_the_settlement_has_ended() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (ended, active) = (runtime(), runtime());
    let clock = ManualClock::default();
    let memory = || MemoryStore::new().with_clock(clock.clone());
    let store = UnhealthyStore::new(UNAVAILABLE).counting_in(memory()).with_deadline(Duration::from_secs(10));
    let limiter = Limiter::new(store.clone()).with_local_fallback(memory(), 8);
    let policy = per_minute(80);
    ended.block_on(async {
        assert_eq!(admitted(&limiter, &policy).await, 10);
        store.set_health(Health::Healthy);
        settle().await;
        // This answer starts the settlement.
        spent(&limiter, &policy).await;
    });
    drop(ended);
    active.block_on(async {
        spent(&limiter, &policy).await;
        settle().await;
        assert_eq!(spent(&limiter, &policy).await, 10);
    });
}

#[tokio::test(start_paused = true)]
async fn debts_never_make_the_store_count_more_than_the_limit() {
    for count_rejected in [false, true] {
        let (limiter, store, clock) = one_of_eight();
        let policy = per_minute(80).with_denials_counted(count_rejected);
        store.set_health(UNAVAILABLE);
        assert_eq!(admitted(&limiter, &policy).await, 10);
        store.set_health(Health::Healthy);
        let other = Limiter::new(store.clone());
        assert!(other.check("k", &policy, 77).await.unwrap().is_allowed());
        clock.advance(Duration::from_secs(1));
        settle().await;
        spent(&limiter, &policy).await;
        settle().await;
        assert_eq!(spent(&limiter, &policy).await, 80);
        // The debit leaves the window last. It is as large as what fitted, and no rejection was counted.
        clock.advance(WINDOW - Duration::from_secs(1));
        assert_eq!(spent(&limiter, &policy).await, 3);
    }
}

#[tokio::test(start_paused = true)]
async fn law_9_a_check_whose_fate_is_unknown_is_not_charged_again() {
    let (limiter, store, _clock) = one_of_eight();
    store.set_health(Health::Silent);
    let stopwatch = Stopwatch::start();
    assert_eq!(check(&limiter, &per_minute(80), 1).await.source(), Source::Local);
    stopwatch.assert_elapsed(Duration::from_millis(50));
    store.set_health(Health::Healthy);
    spent(&limiter, &per_minute(80)).await;
    settle().await;
    assert_eq!((spent(&limiter, &per_minute(80)).await, store.sent()), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn a_failed_settlement_is_repeated_later_unless_the_store_refuses_the_key_or_may_have_charged_it() {
    for (failure, settled, left) in
        [(UNAVAILABLE, 10, 70), (Health::Fails(ErrorKind::BadKey), 0, 80), (Health::Silent, 0, 70)]
    {
        let (limiter, store, _clock) = one_of_eight();
        let policy = per_minute(80);
        store.set_health(UNAVAILABLE);
        assert_eq!(admitted(&limiter, &policy).await, 10);
        store.set_health(Health::Healthy);
        settle().await;
        spent(&limiter, &policy).await;
        store.set_health(failure);
        tokio::time::sleep(Duration::from_millis(10)).await;
        store.set_health(Health::Healthy);
        settle().await;
        for expected in [0, settled, settled] {
            assert_eq!(spent(&limiter, &policy).await, expected, "{failure:?}");
            settle().await;
        }
        assert_eq!(admitted(&limiter, &policy).await, left, "{failure:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn debts_of_at_most_ten_thousand_keys_are_kept() {
    let (limiter, store, _clock) = one_of_eight();
    let policy = per_minute(80);
    store.set_health(UNAVAILABLE);
    for key in 0..10_100_u64 {
        assert!(limiter.check(key, &policy, 1).fail_local().await.unwrap().is_allowed());
    }
    store.set_health(Health::Healthy);
    settle().await;
    let before = store.sent();
    spent(&limiter, &policy).await;
    settle().await;
    assert_eq!(store.sent() - before, 10_001);
}

#[tokio::test(start_paused = true)]
async fn a_reset_removes_the_counts_and_debts_of_the_fallback() {
    let (limiter, store, _clock) = one_of_eight();
    let policy = per_minute(80);
    store.set_health(UNAVAILABLE);
    assert_eq!(admitted(&limiter, &policy).await, 10);
    assert!(limiter.reset("k", &policy).await.unwrap(), "the fallback has a count");
    assert_eq!(admitted(&limiter, &policy).await, 10);
    limiter.reset("k", &policy).await.unwrap();
    assert!(!limiter.reset("k", &policy).await.unwrap());
    store.set_health(Health::Healthy);
    settle().await;
    spent(&limiter, &policy).await;
    settle().await;
    assert_eq!(spent(&limiter, &policy).await, 0);
}

/// Instances notice at different times that the store has recovered.
#[tokio::test(start_paused = true)]
async fn the_first_instance_after_an_outage_does_not_spend_the_unsettled_debts_of_the_others() {
    let clock = ManualClock::default();
    let (memory, policy) = (MemoryStore::new().with_clock(clock.clone()), per_minute(16));
    let instance = || {
        let store = UnhealthyStore::new(UNAVAILABLE).counting_in(memory.clone());
        let local = MemoryStore::new().with_clock(clock.clone());
        (Limiter::new(store.clone()).with_local_fallback(local, 2), store)
    };
    let ((first, first_store), (second, second_store)) = (instance(), instance());
    assert_eq!(admitted(&first, &policy).await, 8);
    assert_eq!(admitted(&second, &policy).await, 8);
    tokio::time::sleep(Duration::from_millis(130)).await;
    first_store.set_health(Health::Healthy);
    spent(&first, &policy).await;
    for _ in 0..9 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(admitted(&first, &policy).await, 0);
    }
    assert_eq!(spent(&first, &policy).await, 8);
    second_store.set_health(Health::Healthy);
    spent(&second, &policy).await;
    tokio::time::sleep(Duration::from_millis(101)).await;
    assert_eq!(spent(&first, &policy).await, 16);
    // The caution has ended: the store alone decides.
    clock.advance(WINDOW);
    assert_eq!(admitted(&first, &policy).await, 16);
}

/// What holds the units may be a hold that nobody will settle with its full cost.
#[tokio::test(start_paused = true)]
async fn law_1_a_debt_that_does_not_fit_is_kept_and_charged_when_it_fits() {
    let clock = ManualClock::default();
    let memory = || MemoryStore::new().with_clock(clock.clone());
    let counts = memory();
    let store = UnhealthyStore::new(UNAVAILABLE).counting_in(counts.clone());
    let limiter = Limiter::new(store.clone()).with_local_fallback(memory(), 8);
    let policy = per_minute(80).with_holds(HoldSettings::new());
    let other = Limiter::new(counts);
    let hold = other.hold("k", &policy, 77).await.unwrap().into_result().unwrap();
    assert_eq!(admitted(&limiter, &policy).await, 10);
    store.set_health(Health::Healthy);
    settle().await;
    spent(&limiter, &policy).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(spent(&limiter, &policy).await, 80, "three of ten units fit");
    hold.release().await.unwrap();
    // The debt is still open after the caution, so the store does not decide alone.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(admitted(&limiter, &policy).await, 0);
    // Checks that are held back have it charged, although the store answers none of them.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(spent(&other, &policy).await, 10);
    settle().await;
    assert_eq!(admitted(&limiter, &policy).await, 70);
}

/// The debit of each shard is a call of its own.
#[tokio::test(start_paused = true)]
async fn law_1_a_debt_of_many_shards_is_charged_to_a_distant_store() {
    let clock = ManualClock::default();
    let memory = || MemoryStore::new().with_clock(clock.clone());
    let counts = memory();
    let store = UnhealthyStore::new(UNAVAILABLE).counting_in(counts.clone());
    let limiter = Limiter::new(store.clone()).with_local_fallback(memory(), 8);
    let policy = per_minute(6_400).with_shards(64);
    for _ in 0..8 {
        assert!(check(&limiter, &policy, 80).await.is_allowed());
    }
    store.set_health(Health::Slow(Duration::from_millis(40)));
    settle().await;
    // Answers while the debits are on their way.
    for _ in 0..100 {
        let _ = limiter.peek("other", &policy).await;
    }
    // Each of the 64 shards was charged 10 of 640 units.
    let fullest = Limiter::new(counts).peek("k", &policy).await.unwrap().available();
    assert_eq!(fullest, Some(90));
}

/// A store may be far away, and have a long deadline.
#[tokio::test(start_paused = true)]
async fn law_1_a_debit_that_is_on_its_way_for_seconds_is_not_taken_for_lost() {
    let clock = ManualClock::default();
    let memory = || MemoryStore::new().with_clock(clock.clone());
    let counts = memory();
    let store = UnhealthyStore::new(UNAVAILABLE).counting_in(counts.clone()).with_deadline(Duration::from_secs(10));
    let limiter = Limiter::new(store.clone()).with_local_fallback(memory(), 8);
    let policy = per_minute(80).with_holds(HoldSettings::new());
    let other = Limiter::new(counts);
    let hold = other.hold("k", &policy, 77).await.unwrap().into_result().unwrap();
    assert_eq!(admitted(&limiter, &policy).await, 10);
    // The debit takes two calls: three of its ten units fit.
    store.set_health(Health::Slow(Duration::from_secs(2)));
    settle().await;
    for _ in 0..5 {
        spent(&limiter, &policy).await;
    }
    assert_eq!(spent(&limiter, &policy).await, 80);
    hold.release().await.unwrap();
    for _ in 0..5 {
        spent(&limiter, &policy).await;
    }
    assert_eq!(spent(&limiter, &policy).await, 10);
}

/// The share has room for another alternative than the one that the store has charged, and for a charge beside both.
#[tokio::test(start_paused = true)]
async fn law_1_a_check_whose_charged_alternative_has_no_room_in_the_share_is_denied() {
    let (first, second) = (per_minute(10), Policy::per_minute("second", 10).unwrap());
    let beside = Policy::per_minute("beside", 100).unwrap();
    let either = Check::first_of("k", [&first, &second], 1);
    for check in [either.clone(), either.and("k", &beside, 1)] {
        let clock = ManualClock::default();
        let memory = || MemoryStore::new().with_clock(clock.clone());
        let store = UnhealthyStore::new(Health::Slow(Duration::from_millis(30))).counting_in(memory());
        let limiter = Limiter::new(store.clone()).with_local_fallback(memory(), 1);
        let send = || tokio::spawn(limiter.check_all(check.clone()).fail_local());
        let on_their_way: Vec<_> = (0..10).map(|_| send()).collect();
        tokio::time::sleep(Duration::from_millis(1)).await;
        store.set_health(UNAVAILABLE);
        let mut admitted = admitted(&limiter, &first).await;
        store.set_health(Health::Healthy);
        for decision in on_their_way {
            let decision = decision.await.unwrap().unwrap();
            let is_first = decision.policies().iter().any(|policy| policy.policy == first && policy.cost > 0);
            admitted += u64::from(decision.is_allowed() && is_first);
        }
        assert_eq!(admitted, 10);
    }
}
