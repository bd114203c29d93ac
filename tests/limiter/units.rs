//! Units that are charged and given back by hand, around the store.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tollgate::store::{Answer, CountChange, FailingStore, Store, Verdict};
use tollgate::{Check, Error, ErrorKind, Key, Limiter, ManualClock, MemoryStore, Policy, decision::Source};

use crate::support::{recorder::Recorder, says};

fn limiter() -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    (Limiter::new(MemoryStore::new().with_clock(clock.clone())), clock)
}

fn policy() -> Policy {
    Policy::per_minute("p", 10).unwrap()
}

#[tokio::test]
async fn an_order_of_several_policies_is_charged_and_given_back_with_one_check() {
    let (limiter, _) = limiter();
    let recorder = Recorder::default();
    let limiter = limiter.with_observer(recorder.clone());
    let (minute, day) = (policy(), Policy::per_day("day", 100).unwrap());
    let order = Check::new("k", &minute, 20).and("k", &day, 30).and("other", &day, 1);
    limiter.record_all(order.clone()).await.unwrap();
    assert_eq!(limiter.peek("k", &minute).await.unwrap().available(), Some(0));
    assert_eq!(limiter.peek("k", &day).await.unwrap().available(), Some(70));
    assert_eq!(limiter.credit("k", &day, 5).await.unwrap(), 5);
    assert_eq!(limiter.credit_all(order).await.unwrap(), [20, 25, 1]);
    for (key, policy, units) in [("k", &minute, 10), ("k", &day, 100), ("other", &day, 100)] {
        assert_eq!(limiter.peek(key, policy).await.unwrap().available(), Some(units), "{key}");
    }
    let zero = limiter.record_all(Check::new("k", &minute, 1).and("k", &day, 0)).await.unwrap_err();
    assert_eq!(zero.kind(), ErrorKind::InvalidCall);
    says(&zero, r#"policy "day": 0 units change nothing; "#);
    assert_eq!(limiter.peek("k", &minute).await.unwrap().available(), Some(10), "nothing was charged");
    assert_eq!(recorder.take().by_hand.len(), 3 + 1 + 3, "each charge is reported");
}

#[tokio::test]
async fn shards_are_charged_and_give_back_the_whole_of_the_units() {
    let (limiter, _) = limiter();
    for shards in [2, 3, 7] {
        let policy = Policy::per_minute("p", 20).unwrap().with_shards(shards);
        limiter.record("k", &policy, 17).await.unwrap();
        let mut passed = 0;
        while limiter.check("k", &policy, 1).await.unwrap().is_allowed() {
            passed += 1;
        }
        assert!(passed <= 3, "{shards} shards: {passed} beside 17");
        assert_eq!(limiter.credit("k", &policy, 12).await.unwrap(), 12, "{shards} shards");
        assert_eq!(limiter.credit("k", &policy, 100).await.unwrap(), 5 + passed, "{shards} shards: what is left");
        assert_eq!(limiter.credit("k", &policy, 1).await.unwrap(), 0, "{shards} shards");
        let mut free = 0;
        for _ in 0..200 {
            free += u64::from(limiter.check("k", &policy, 1).await.unwrap().is_allowed());
        }
        assert_eq!(free, 20, "{shards} shards");
        limiter.reset("k", &policy).await.unwrap();
    }
}

#[tokio::test]
async fn units_that_one_shard_was_charged_are_given_back_as_far_as_they_are_asked_for() {
    let (limiter, _) = limiter();
    let policy = Policy::per_minute("p", 40).unwrap().with_shards(2);
    assert!(limiter.check("k", &policy, 20).await.unwrap().is_allowed());
    assert_eq!(limiter.credit("k", &policy, 15).await.unwrap(), 15);
    assert_eq!(limiter.credit("k", &policy, 15).await.unwrap(), 5);
}

/// A memory store that changes counts as often as its number says, and then refuses.
#[derive(Debug)]
struct MakesSome(MemoryStore, AtomicUsize);

impl Store for MakesSome {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        self.0.check(check)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.0.reset(key, policy)
    }

    fn change_count(&self, key: &Key, policy: &Policy, change: CountChange) -> Answer<u64> {
        match self.1.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
            Ok(_) => self.0.change_count(key, policy, change),
            Err(_) => Answer::Ready(Err(Error::new(ErrorKind::Unavailable, "connection refused"))),
        }
    }
}

#[tokio::test]
async fn the_error_of_a_change_that_was_made_in_part_says_so() {
    let memory = MemoryStore::new().with_clock(ManualClock::default());
    let shards = policy().with_shards(2);
    assert!(Limiter::new(memory.clone()).check("k", &shards, 4).await.unwrap().is_allowed());
    let limiter = |made| Limiter::new(MakesSome(memory.clone(), AtomicUsize::new(made)));
    let two_keys = || Check::new("k", &policy(), 4).and("other", &policy(), 4);
    for made in [0, 1] {
        for error in [
            limiter(made).record("k", &shards, 4).await.unwrap_err(),
            limiter(made).record_all(two_keys()).await.unwrap_err(),
            limiter(made).credit("k", &shards, 8).await.unwrap_err(),
            limiter(made).credit_all(two_keys()).await.unwrap_err(),
        ] {
            let seen = (error.kind(), error.may_have_charged());
            assert_eq!(seen, (ErrorKind::Unavailable, made > 0), "{made} of two changes are made");
        }
    }
    let error = limiter(2).credit("k", &shards, 8).await.unwrap_err();
    assert!(error.may_have_charged(), "both shards have given what they had, and one is asked for the rest");
}

#[tokio::test]
async fn units_that_a_block_of_a_lease_has_spent_can_be_given_back() {
    let limiter = Limiter::new(MemoryStore::new());
    let policy = Policy::per_hour("p", 100_000).unwrap().with_lease(1_000);
    for _ in 0..5_000 {
        assert!(limiter.check("k", &policy, 1).await.unwrap().is_allowed());
    }
    assert_eq!(limiter.credit("k", &policy, 100_000).await.unwrap(), 5_000);
    assert_eq!(limiter.peek("k", &policy).await.unwrap().available(), Some(100_000));
    limiter.record("k", &policy, 100_000).await.unwrap();
    assert!(!limiter.check("k", &policy, 1).await.unwrap().is_allowed());
}

fn with_fallback(instances: u32) -> (Limiter, FailingStore) {
    let clock = ManualClock::default();
    let store = FailingStore::over(MemoryStore::new().with_clock(clock.clone()));
    let fallback = MemoryStore::new().with_clock(clock);
    (Limiter::new(store.clone()).with_local_fallback(fallback, instances).without_notices(), store)
}

#[tokio::test]
async fn units_that_are_recorded_during_an_outage_count_in_the_share_and_then_in_the_store() {
    let (limiter, store) = with_fallback(1);
    limiter.record("k", &policy(), 7).await.unwrap();
    let decision = limiter.check("k", &policy(), 4).fail_local().await.unwrap();
    assert_eq!((decision.is_allowed(), decision.source()), (false, Source::Local));
    assert!(limiter.credit("k", &policy(), 1).await.is_err(), "no store gives units back");
    store.recover();
    for _ in 0..100 {
        if limiter.peek("k", &policy()).await.unwrap().available() == Some(3) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the store was not charged: {:?}", limiter.peek("k", &policy()).await);
}

#[tokio::test(start_paused = true)]
async fn a_reset_forgets_the_units_that_were_recorded_during_an_outage() {
    for (policy, available) in [(policy(), 10), (policy().with_shards(2), 5)] {
        let (limiter, store) = with_fallback(1);
        limiter.record("k", &policy, 7).await.unwrap();
        store.recover();
        limiter.reset("k", &policy).await.unwrap();
        for _ in 0..20 {
            // A peek that the store answers lets what is owed be charged.
            assert_eq!(limiter.peek("k", &policy).await.unwrap().available(), Some(available), "{policy:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test]
async fn an_outage_gives_nobody_a_fresh_budget_after_units_were_recorded_and_given_back() {
    let (limiter, store) = with_fallback(1);
    store.recover();
    limiter.record("k", &policy(), 9).await.unwrap();
    assert_eq!(limiter.credit("k", &policy(), 4).await.unwrap(), 4);
    store.fail(ErrorKind::Unavailable);
    assert!(!limiter.check("k", &policy(), 6).fail_local().await.unwrap().is_allowed());
    assert!(limiter.check("k", &policy(), 5).fail_local().await.unwrap().is_allowed());
}
