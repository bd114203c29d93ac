//! `Limiter::peek_all` and `Limiter::check_up_to`, around the store.

use std::time::Duration;

use tollgate::{
    Check, Error, ErrorKind, Limiter, ManualClock, MemoryStore, Policy, decision::Source, policy::HoldSettings,
    store::FailingStore,
};

use crate::support::{recorder::Recorder, says};

const MINUTE: Duration = Duration::from_secs(60);

fn limiter() -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    (Limiter::new(MemoryStore::new().with_clock(clock.clone())), clock)
}

fn policy() -> Policy {
    Policy::per_minute("p", 10).unwrap()
}

#[track_caller]
fn refused(error: &Error, message: &str) {
    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::InvalidCall, false));
    says(error, message);
}

#[tokio::test]
async fn what_cannot_be_charged_in_part_is_an_error_that_says_so() {
    let (limiter, _) = limiter();
    let zero = limiter.check_up_to("k", &policy(), 0).await.unwrap_err();
    refused(&zero, r#"policy "p": up to 0 units are none; ask for 1 or more"#);
    let sharded = limiter.check_up_to("k", &policy().with_shards(2), 5).await.unwrap_err();
    refused(&sharded, r#"policy "p": its shards have units of their own, so no step charges as many as fit; "#);
    let slots = limiter.check_up_to("k", &Policy::concurrent("p", 5).unwrap(), 5).await.unwrap_err();
    refused(&slots, r#"policy "p" limits how much runs at once, "#);
    let mistake = limiter.check_up_to("k", &policy().with_unit("a b"), 5).await.unwrap_err();
    refused(&mistake, r#"policy "p": unit "a b""#);
    let local = limiter.check_up_to("k", &policy(), 5).fail_local().await.unwrap_err();
    assert_eq!(local.kind(), ErrorKind::InvalidCall, "a fallback that there is not: {local}");
    assert_eq!(limiter.peek("k", &policy()).await.unwrap().available(), Some(10));
}

#[tokio::test]
async fn law_14_parallel_charges_of_as_much_as_fits_never_pass_the_limit() {
    let limiter = Limiter::new(MemoryStore::new());
    let policy = Policy::per_hour("p", 1_000).unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for units in 1..=100 {
        let (limiter, policy) = (limiter.clone(), policy.clone());
        tasks.spawn(async move { limiter.check_up_to("k", &policy, units).await.unwrap().policies()[0].cost });
    }
    let charged: u64 = tasks.join_all().await.into_iter().sum();
    assert_eq!(charged, 1_000, "all units, and no more");
}

#[tokio::test]
async fn a_decision_names_what_was_charged_and_a_denial_nothing() {
    let (limiter, _) = limiter();
    let recorder = Recorder::default();
    let limiter = limiter.with_observer(recorder.clone());
    for (charged, is_allowed) in [(7, true), (3, true), (0, false)] {
        let decision = limiter.check_up_to("k", &policy(), 7).await.unwrap();
        let standing = &decision.policies()[0];
        assert_eq!((standing.cost, decision.is_allowed(), standing.violated), (charged, is_allowed, !is_allowed));
        assert_eq!(decision.retry_after().is_some(), !is_allowed);
    }
    let shadow = limiter.check_up_to("k", &policy().with_shadow(true), 7).await.unwrap();
    assert!(shadow.is_allowed() && shadow.would_deny() && shadow.policies()[0].cost == 0);
    let peek = limiter.peek_all(Check::new("k", &policy(), 4)).await.unwrap();
    assert!(!peek.is_allowed());
    let seen = recorder.take();
    let costs: Vec<(u64, bool)> =
        seen.decisions.iter().map(|decision| (decision.charges[0].1, decision.charges[0].2)).collect();
    assert_eq!(costs, [(7, false), (3, false), (1, true), (1, false)], "what was charged, and no peek");
    assert_eq!(seen.abandoned.len(), 0);
}

#[tokio::test]
async fn blocks_of_a_lease_are_given_back_before_as_much_as_fits_is_charged() {
    let limiter = Limiter::new(MemoryStore::new());
    let policy = Policy::per_hour("p", 100_000).unwrap().with_lease(1_000);
    for _ in 0..5_000 {
        assert!(limiter.check("k", &policy, 1).await.unwrap().is_allowed());
    }
    let peek = limiter.peek_all(Check::new("k", &policy, 95_000)).await.unwrap();
    assert!(peek.is_allowed() && peek.available() == Some(95_000), "what this process holds counts: {peek:?}");
    assert!(!limiter.peek_all(Check::new("k", &policy, 95_001)).await.unwrap().is_allowed());
    let decision = limiter.check_up_to("k", &policy, 200_000).await.unwrap();
    assert_eq!(decision.policies()[0].cost, 95_000);
    assert!(!limiter.check("k", &policy, 1).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_peek_at_shards_is_about_the_shard_with_the_most_room() {
    let (limiter, clock) = limiter();
    let policy = Policy::per_minute("p", 20).unwrap().with_shards(2);
    assert!(limiter.peek_all(Check::new("k", &policy, 10)).await.unwrap().is_allowed());
    assert!(limiter.check("k", &policy, 6).await.unwrap().is_allowed());
    assert!(limiter.peek_all(Check::new("k", &policy, 10)).await.unwrap().is_allowed(), "the other shard");
    clock.advance(MINUTE / 4);
    assert!(limiter.check("k", &policy, 6).await.unwrap().is_allowed());
    assert!(limiter.check("k", &policy, 4).await.unwrap().is_allowed());
    let peek = limiter.peek_all(Check::new("k", &policy, 5)).await.unwrap();
    assert!(!peek.is_allowed() && peek.retry_after() == Some(MINUTE * 3 / 4), "{peek:?}");
    let other = Policy::per_minute("other", 5).unwrap();
    let both = limiter.peek_all(Check::new("k", &policy, 1).and("k", &other, 6)).await.unwrap();
    let violated: Vec<&str> = both.violated().map(|standing| standing.policy.name()).collect();
    assert_eq!(violated, ["other"]);
}

#[tokio::test]
async fn the_share_of_an_instance_answers_while_the_store_gives_no_verdict() {
    let clock = ManualClock::default();
    let store = FailingStore::over(MemoryStore::new().with_clock(clock.clone()));
    let fallback = MemoryStore::new().with_clock(clock.clone());
    let limiter = Limiter::new(store.clone()).with_local_fallback(fallback, 2).without_notices();
    assert!(limiter.check_up_to("k", &policy(), 7).await.is_err());
    assert!(limiter.peek_all(Check::new("k", &policy(), 1)).await.is_err());
    for (peek, charged) in [(true, 3), (true, 2), (false, 0)] {
        let ahead = limiter.peek_all(Check::new("k", &policy(), 2)).fail_local().await.unwrap();
        assert_eq!((ahead.is_allowed(), ahead.source()), (peek, Source::Local));
        let decision = limiter.check_up_to("k", &policy(), 3).fail_local().await.unwrap();
        assert_eq!((decision.policies()[0].cost, decision.source()), (charged, Source::Local), "half of the limit");
    }
    store.recover();
    // What the share has admitted is charged to the store first.
    for _ in 0..100 {
        if limiter.peek("k", &policy()).await.unwrap().available() == Some(5) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // For a second, the other instance may have debts too.
    let cautious = limiter.check_up_to("k", &policy(), 1).fail_local().await.unwrap();
    assert_eq!((cautious.is_allowed(), cautious.policies()[0].cost, cautious.source()), (false, 0, Source::Local));
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let decision = limiter.check_up_to("k", &policy(), 100).fail_local().await.unwrap();
    assert_eq!((decision.policies()[0].cost, decision.source()), (4, Source::Store), "one has paid for a debt");
}

#[tokio::test]
async fn a_share_that_has_no_room_counts_one_denial_for_each_call() {
    let clock = ManualClock::default();
    let store = FailingStore::over(MemoryStore::new().with_clock(clock.clone()));
    let fallback = MemoryStore::new().with_clock(clock);
    let limiter = Limiter::new(store).with_local_fallback(fallback, 2).without_notices();
    let banning = policy().ban_after(3, 10 * MINUTE);
    for (charged, is_banned) in [(5, false), (0, false), (0, false), (0, true)] {
        let decision = limiter.check_up_to("k", &banning, 7).fail_local().await.unwrap();
        let standing = &decision.policies()[0];
        assert_eq!((standing.cost, standing.ban.is_some()), (charged, is_banned));
    }
}

#[tokio::test]
async fn a_check_of_holds_is_looked_at_without_holding_anything() {
    let (limiter, _) = limiter();
    let policy = policy().with_holds(HoldSettings::new());
    for _ in 0..3 {
        assert!(limiter.peek_all(Check::hold("k", &policy, 10)).await.unwrap().is_allowed());
    }
    let slots = Policy::concurrent("slots", 2).unwrap();
    let held = limiter.hold("k", &slots, 2).await.unwrap();
    assert!(!limiter.peek_all(Check::new("k", &slots, 1)).await.unwrap().is_allowed());
    drop(held);
    assert!(limiter.hold("k", &policy, 10).await.unwrap().is_allowed());
}

#[tokio::test]
async fn holds_leave_less_room_to_policies_with_holds_only() {
    let (limiter, _) = limiter();
    let holding = policy().with_holds(HoldSettings::new());
    let hold = limiter.hold("k", &holding, 4).await.unwrap();
    let beside = limiter.check_up_to("k", &holding, 100).await.unwrap();
    assert_eq!(beside.policies()[0].cost, 6);
    let plain = limiter.check_up_to("k", &policy(), 100).await.unwrap();
    assert_eq!(plain.policies()[0].cost, 4, "a policy without holds does not look for them");
    drop(hold);
}
