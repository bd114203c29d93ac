//! The attempts of a check: one shard, and one other if that is full, within one deadline.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{sync::Arc, time::Duration};

use tollgate::store::{Answer, Store, Verdict};
use tollgate::{Check, Error, ErrorKind, Key, Limiter, ManualClock, MemoryStore, Policy, decision::Source};

use super::{admitted, policy};
use crate::support::counting::{AnswerKind, CountingStore};
use crate::support::unhealthy_store::{Health, UNAVAILABLE, UnhealthyStore};
use crate::support::{PendingStore, per_minute};
use crate::support::{recorder::Recorder, stopwatch::Stopwatch};

const DEADLINE: Duration = Duration::from_millis(50);

/// The number of calls of the store for one check.
async fn calls(store: &CountingStore, limiter: &Limiter, check: Check) -> usize {
    let before = store.sent();
    let _ = limiter.check_all(check).await.unwrap();
    store.sent() - before
}

#[tokio::test]
async fn law_9_a_denied_check_asks_one_other_shard_and_no_more() {
    for kind in AnswerKind::BOTH {
        let store = kind.store();
        let limiter = Limiter::new(store.clone());
        let policy = policy(8, 8);
        let check = || Check::new("k", &policy, 1);
        assert_eq!(calls(&store, &limiter, check()).await, 1, "{kind:?}");
        admitted(&limiter, &policy).await;
        for _ in 0..50 {
            assert_eq!(calls(&store, &limiter, check()).await, 2, "{kind:?}");
        }
        let beside = check().and("k", &per_minute("plain", 1_000), 1);
        assert_eq!(calls(&store, &limiter, beside).await, 2, "{kind:?}: the plain policy denies nothing");
    }
}

/// The first eight checks take the shards in turn, so none of them is denied.
#[tokio::test]
async fn the_checks_of_a_limiter_take_the_shards_in_turn() {
    for kind in AnswerKind::BOTH {
        let store = kind.store();
        let limiter = Limiter::new(store.clone());
        let policy = policy(8, 8);
        for _ in 0..8 {
            assert!(limiter.clone().check("k", &policy, 1).await.unwrap().is_allowed(), "{kind:?}");
        }
        assert_eq!(store.sent(), 8);
    }
}

/// One of eight shards has a unit left. Each check sees two shards, so a quarter of the checks find it.
#[tokio::test]
async fn a_check_sees_two_of_the_shards() {
    let memory = MemoryStore::new().with_clock(ManualClock::default());
    let policy = policy(8, 8);
    let mut found = 0;
    for key in 0..400_u64 {
        for _ in 0..7 {
            // Eight checks of one limiter would find all shards.
            while !Limiter::new(memory.clone()).check(key, &policy, 1).await.unwrap().is_allowed() {}
        }
        found += u64::from(Limiter::new(memory.clone()).check(key, &policy, 1).await.unwrap().is_allowed());
    }
    // 100 are expected; these bounds are six standard deviations away.
    assert!((45..=155).contains(&found), "{found} of 400");
}

#[tokio::test]
async fn a_denial_that_another_shard_cannot_change_is_final() {
    for kind in AnswerKind::BOTH {
        let store = kind.store();
        let limiter = Limiter::new(store.clone());
        let (sharded, plain) = (policy(40, 4), per_minute("plain", 1));
        let both = || Check::new("k", &sharded, 1).and("k", &plain, 1);
        assert_eq!(calls(&store, &limiter, both()).await, 1);
        assert_eq!(calls(&store, &limiter, both()).await, 1, "{kind:?}: the plain policy denies");
        assert_eq!(calls(&store, &limiter, Check::new("k", &sharded, 11)).await, 1, "{kind:?}: the cost fits no shard");
        let counting = Policy::per_minute("counting", 4).unwrap().with_shards(4).with_denials_counted(true);
        admitted(&limiter, &counting).await;
        let check = Check::new("k", &counting, 1);
        assert_eq!(calls(&store, &limiter, check).await, 1, "{kind:?}: a second attempt would be counted too");
    }
}

/// A memory store that counts the checks that it gets, and has two failure domains, as a cluster of two nodes has.
#[derive(Clone, Debug)]
struct Counting(MemoryStore, Arc<AtomicUsize>);

impl Store for Counting {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.check(check)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.0.reset(key, policy)
    }

    fn failure_domains(&self) -> usize {
        2
    }

    fn inner(&self) -> Option<&dyn Store> {
        Some(&self.0)
    }
}

/// A cluster may have made the hold before the node of the shard denies the check. It releases the hold by its name,
/// which a second attempt would use again.
#[tokio::test]
async fn law_1_a_check_that_holds_units_beside_a_full_shard_is_sent_once() {
    let store = Counting(MemoryStore::new().with_clock(ManualClock::default()), Arc::default());
    let limiter = Limiter::new(store.clone());
    let (sharded, slots) = (policy(8, 8), Policy::concurrent("slots", 3).unwrap());
    admitted(&limiter, &sharded).await;
    let before = store.1.load(Ordering::SeqCst);
    let held = limiter.hold_all(Check::hold("k", &slots, 1).and("k", &sharded, 1)).await.unwrap();
    assert!(!held.is_allowed());
    assert_eq!(store.1.load(Ordering::SeqCst), before + 1);
    assert_eq!(limiter.peek("k", &slots).await.unwrap().available(), Some(3));
}

/// The check takes the full shard first for some of the keys.
#[tokio::test]
async fn law_2_on_one_node_a_check_that_holds_units_asks_another_shard() {
    let limiter = Limiter::new(MemoryStore::new().with_clock(ManualClock::default()));
    let (sharded, slots) = (policy(2, 2), Policy::concurrent("slots", 1).unwrap());
    for key in 0..32_u64 {
        assert!(limiter.check(key, &sharded, 1).await.unwrap().is_allowed());
        let _ = limiter.check("another key", &sharded, 1).await.unwrap();
        let both = Check::hold(key, &slots, 1).and(key, &sharded, 1);
        assert!(limiter.hold_all(both).await.unwrap().is_allowed(), "{key}");
    }
}

/// A store of full shards that answers after `by`.
async fn full(by: Duration, policy: &Policy) -> (Limiter, UnhealthyStore) {
    let memory = MemoryStore::new().with_clock(ManualClock::default());
    let store = UnhealthyStore::with_breaker(Health::Healthy, None).counting_in(memory);
    let limiter = Limiter::new(store.clone());
    admitted(&limiter, policy).await;
    store.set_health(Health::Slow(by));
    (limiter, store)
}

#[tokio::test(start_paused = true)]
async fn law_8_two_attempts_take_one_deadline_at_most() {
    let policy = policy(4, 4);
    for (by_ms, waited_ms, attempts) in [(1, 2, 2), (20, 40, 2), (24, 48, 2), (26, 26, 1), (49, 49, 1)] {
        let (limiter, store) = full(Duration::from_millis(by_ms), &policy).await;
        let before = store.sent();
        let stopwatch = Stopwatch::start();
        let decision = limiter.check("k", &policy, 1).await.unwrap();
        stopwatch.assert_elapsed(Duration::from_millis(waited_ms));
        assert!(!decision.is_allowed() && decision.source() == Source::Store);
        assert_eq!(store.sent() - before, attempts, "{by_ms} ms");
    }
}

/// A store whose first shards are full and whose next ones do not answer, or fail.
#[derive(Debug)]
struct SilentAtSecond(UnhealthyStore, Health);

impl Store for SilentAtSecond {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        let answer = self.0.check(check);
        let (store, health) = (self.0.clone(), self.1);
        Answer::pending(async move {
            let Answer::Pending(verdict) = answer else { panic!("the store is pending") };
            let verdict = verdict.await;
            store.set_health(health);
            verdict
        })
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.0.reset(key, policy)
    }
}

#[tokio::test(start_paused = true)]
async fn law_8_a_silent_second_shard_ends_at_the_deadline_of_the_check() {
    let policy = policy(4, 4);
    let (_, store) = full(Duration::from_millis(10), &policy).await;
    let limiter = Limiter::new(SilentAtSecond(store.clone(), Health::Silent));
    let before = store.sent();
    let stopwatch = Stopwatch::start();
    let error = limiter.check("k", &policy, 1).await.unwrap_err();
    stopwatch.assert_elapsed(DEADLINE);
    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Deadline, true));
    assert_eq!(store.sent() - before, 2);
}

#[tokio::test(start_paused = true)]
async fn the_error_of_the_second_attempt_goes_to_the_caller() {
    let policy = policy(4, 4);
    let (_, store) = full(Duration::ZERO, &policy).await;
    let recorder = Recorder::default();
    let limiter = Limiter::new(SilentAtSecond(store.clone(), UNAVAILABLE)).with_observer(recorder.clone());
    assert_eq!(limiter.check("k", &policy, 1).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let seen = recorder.take();
    assert_eq!(seen.failures, [(ErrorKind::Unavailable, vec!["p".to_owned()])]);
    assert!(seen.decisions.is_empty());
}

#[tokio::test(start_paused = true)]
async fn law_9_a_shard_that_gives_no_verdict_is_not_replaced_by_another() {
    let policy = policy(4, 4);
    for health in [UNAVAILABLE, Health::Silent] {
        let store = UnhealthyStore::with_breaker(health, None);
        assert!(Limiter::new(store.clone()).check("k", &policy, 1).await.is_err());
        assert_eq!(store.sent(), 1);
    }
}

#[tokio::test]
async fn observers_get_one_decision_on_the_check_as_it_was_made() {
    for kind in AnswerKind::BOTH {
        let recorder = Recorder::default();
        let limiter = Limiter::new(kind.store()).with_observer(recorder.clone());
        let policy = policy(2, 2);
        for _ in 0..3 {
            let _ = limiter.check("k", &policy, 1).await.unwrap();
        }
        let plain = limiter.check("k", &per_minute("plain", 1), 1).await;
        assert!(plain.is_ok());
        let seen = recorder.take();
        let outcomes: Vec<_> = seen.decisions.iter().map(|decision| decision.outcome).collect();
        assert_eq!(outcomes, ["allowed", "allowed", "denied", "allowed"], "{kind:?}");
        assert_eq!(seen.decisions[2].charges, [("p".to_owned(), 1, true)]);
        assert_eq!(
            seen.decisions[0].fingerprints, seen.decisions[3].fingerprints,
            "the key of the check, not a shard's"
        );
        assert!(limiter.reset("k", &policy).await.unwrap());
        assert_eq!(recorder.take().resets, [("p".to_owned(), Some(true))]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_that_is_dropped_while_it_waits_is_reported_once() {
    let recorder = Recorder::default();
    let store = UnhealthyStore::new(Health::Silent);
    let limiter = Limiter::new(store).with_observer(recorder.clone());
    let policy = policy(4, 4);
    let check = limiter.check("k", &policy, 1);
    assert!(tokio::time::timeout(DEADLINE / 2, check).await.is_err());
    assert_eq!(recorder.take().abandoned, [[("p".to_owned(), 1)]]);
}

#[test]
fn law_9_nothing_is_sent_before_the_first_poll() {
    let store = AnswerKind::Pending.store();
    let limiter = Limiter::new(store.clone());
    drop(limiter.check("k", &policy(4, 4), 1));
    assert_eq!(store.sent(), 0);
}

#[test]
fn without_a_future_both_shards_are_asked_at_once() {
    let store = AnswerKind::Ready.store();
    let limiter = Limiter::new(store.clone());
    let policy = policy(2, 2);
    for allowed in [true, true, false] {
        assert_eq!(limiter.try_check("k", &policy, 1).unwrap().is_allowed(), allowed);
    }
    assert!(store.sent() >= 4);
}

#[test]
fn without_a_future_a_shard_that_has_to_be_awaited_is_an_error_that_charges_nothing() {
    let memory = MemoryStore::new();
    let store = CountingStore::new(PendingStore(memory.clone()));
    let limiter = Limiter::new(store.clone());
    let error = limiter.try_check("k", &policy(4, 4), 1).unwrap_err();
    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::InvalidCall, false));
    assert_eq!((store.sent(), memory.keys()), (0, 0));
}

/// A store that fails to reset one of the shards.
#[derive(Debug)]
struct FailsToReset(MemoryStore);

impl Store for FailsToReset {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        self.0.check(check)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        if *key == Key::join([Key::from("k"), Key::from(1)]) {
            return Answer::Ready(Err(Error::new(ErrorKind::Unavailable, "down")));
        }
        self.0.reset(key, policy)
    }
}

#[tokio::test]
async fn a_reset_that_fails_for_one_shard_is_an_error_and_resets_the_others() {
    let memory = MemoryStore::new();
    let limiter = Limiter::new(FailsToReset(memory.clone()));
    let policy = policy(4, 4);
    assert_eq!(admitted(&limiter, &policy).await, 4);
    assert_eq!(limiter.reset("k", &policy).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(admitted(&limiter, &policy).await, 3);
}
