//! Bans, and units that are charged or given back by hand.

use std::time::Duration;

use tollgate::store::{Answer, FailingStore, Store, Verdict};
use tollgate::{
    Check, Error, ErrorKind, Key, Limiter, ManualClock, MemoryStore, Policy, limiter::HoldAnswer, policy::HoldSettings,
};

use crate::support::{recorder::Recorder, says};

const BAN: Duration = Duration::from_secs(30);

fn limiter() -> (Limiter, ManualClock) {
    let clock = ManualClock::default();
    (Limiter::new(MemoryStore::new().with_clock(clock.clone())), clock)
}

fn policy() -> Policy {
    Policy::per_minute("p", 10).unwrap()
}

/// Asserts that an error refuses a call with a message.
#[track_caller]
fn refused(error: &Error, message: &str) {
    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::InvalidCall, false));
    says(error, message);
}

#[tokio::test]
async fn invalid_changes_by_hand_are_errors_that_say_what_to_write() {
    let (limiter, _) = limiter();
    let policy = policy();
    for duration in [Duration::ZERO, Policy::MAX_WINDOW + Duration::from_micros(1)] {
        let error = limiter.ban("k", &policy, duration).await.unwrap_err();
        refused(&error, &format!("policy \"p\": a ban for {duration:?} is out of range; use 1 µs to 366 days"));
    }
    let zero = r#"policy "p": 0 units change nothing; charge or give back 1 or more"#;
    refused(&limiter.record("k", &policy, 0).await.unwrap_err(), zero);
    refused(&limiter.credit("k", &policy, 0).await.unwrap_err(), zero);

    let slots = Policy::concurrent("p", 2).unwrap();
    let needs_hold = r#"policy "p" limits how much runs at once, and a plain check would never give its units back; "#;
    refused(&limiter.record("k", &slots, 1).await.unwrap_err(), needs_hold);
    refused(&limiter.credit("k", &slots, 1).await.unwrap_err(), needs_hold);
}

/// A store that leaves the default of each method.
#[derive(Debug)]
struct Plain(MemoryStore);

impl Store for Plain {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        self.0.check(check)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.0.reset(key, policy)
    }
}

#[tokio::test]
async fn a_store_without_changes_by_hand_says_so() {
    let limiter = Limiter::new(Plain(MemoryStore::new()));
    let cannot = "the store cannot ban a key or change its units by hand; ";
    refused(&limiter.ban("k", &policy(), BAN).await.unwrap_err(), cannot);
    refused(&limiter.unban("k", &policy()).await.unwrap_err(), cannot);
    refused(&limiter.record("k", &policy(), 1).await.unwrap_err(), cannot);
    refused(&limiter.credit("k", &policy(), 1).await.unwrap_err(), cannot);
}

#[tokio::test]
async fn a_ban_by_hand_ends_with_its_window_and_holds_again_with_it() {
    let (limiter, _) = limiter();
    let other_window = Policy::per_hour("p", 100).unwrap();
    let other_limit = Policy::per_minute("p", 20).unwrap();
    limiter.ban("k", &policy(), BAN).await.unwrap();
    for (policy, is_allowed) in [(other_window, true), (other_limit, false), (policy(), false)] {
        assert_eq!(limiter.check("k", &policy, 1).await.unwrap().is_allowed(), is_allowed, "{policy:?}");
    }
}

#[tokio::test]
async fn a_ban_covers_all_shards() {
    let (limiter, clock) = limiter();
    let policy = Policy::per_minute("p", 40).unwrap().with_shards(4);
    limiter.ban("k", &policy, BAN).await.unwrap();
    for _ in 0..100 {
        let decision = limiter.check("k", &policy, 1).await.unwrap();
        assert_eq!((decision.is_allowed(), decision.retry_after()), (false, Some(BAN)));
    }
    assert_eq!(limiter.peek("k", &policy).await.unwrap().policies()[0].ban, Some(BAN));
    assert!(limiter.unban("k", &policy).await.unwrap());
    assert!(!limiter.unban("k", &policy).await.unwrap());
    for _ in 0..20 {
        assert!(limiter.check("k", &policy, 1).await.unwrap().is_allowed());
    }
    limiter.ban("k", &policy, BAN).await.unwrap();
    clock.advance(BAN);
    assert!(limiter.check("k", &policy, 1).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_ban_ends_the_blocks_of_a_lease_and_charges_what_they_have_spent() {
    let limiter = Limiter::new(MemoryStore::new());
    let policy = Policy::per_hour("p", 100_000).unwrap().with_lease(1_000);
    for _ in 0..5_000 {
        assert!(limiter.check("k", &policy, 1).await.unwrap().is_allowed());
    }
    limiter.ban("k", &policy, BAN).await.unwrap();
    for _ in 0..100 {
        assert!(!limiter.check("k", &policy, 1).await.unwrap().is_allowed());
    }
    limiter.unban("k", &policy).await.unwrap();
    assert_eq!(limiter.peek("k", &policy).await.unwrap().available(), Some(95_000));
}

#[tokio::test]
async fn slots_are_refused_during_a_ban_and_come_back_when_they_are_released() {
    let (limiter, _) = limiter();
    let slots = Policy::concurrent("slots", 2).unwrap();
    let held = limiter.hold("k", &slots, 1).await.unwrap();
    limiter.ban("k", &slots, BAN).await.unwrap();
    let denied = limiter.hold("k", &slots, 1).await.unwrap();
    assert!(!denied.is_allowed());
    if let HoldAnswer::Open(hold) = held {
        hold.release().await.unwrap();
    }
    limiter.unban("k", &slots).await.unwrap();
    assert_eq!(limiter.peek("k", &slots).await.unwrap().available(), Some(2));
}

#[tokio::test]
async fn a_waiter_is_served_after_an_unban_and_after_a_credit() {
    let (limiter, _) = limiter();
    let policy = policy();
    let _ = limiter.check("k", &policy, 10).await.unwrap();
    assert_eq!(limiter.credit("k", &policy, 4).await.unwrap(), 4);
    assert!(limiter.acquire("k", &policy, 4).within(Duration::ZERO).await.unwrap().is_allowed());
    limiter.ban("k", &policy, BAN).await.unwrap();
    assert!(!limiter.acquire("k", &policy, 1).within(Duration::ZERO).await.unwrap().is_allowed());
    limiter.unban("k", &policy).await.unwrap();
    limiter.credit("k", &policy, 1).await.unwrap();
    assert!(limiter.acquire("k", &policy, 1).within(Duration::ZERO).await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_change_by_hand_is_reported_with_what_it_has_changed_or_its_error() {
    let (store, recorder) = (FailingStore::new(), Recorder::default());
    let limiter = Limiter::new(store.clone()).with_observer(recorder.clone());
    assert!(limiter.ban("k", &policy(), BAN).await.is_err());
    store.recover();
    limiter.ban("k", &policy(), BAN).await.unwrap();
    limiter.record("k", &policy(), 7).await.unwrap();
    limiter.credit("k", &policy(), 9).await.unwrap();
    limiter.unban("k", &policy()).await.unwrap();
    assert!(limiter.record("k", &policy(), 0).await.is_err(), "not reported");
    let seen = recorder.take();
    let expected = [("ban", None), ("ban", Some(0)), ("record", Some(7)), ("credit", Some(7)), ("unban", Some(1))];
    assert_eq!(seen.by_hand, expected.map(|(change, changed)| (change.to_owned(), changed)));
    assert!(!seen.debug.contains("\"k\""), "{}", seen.debug);
}

#[tokio::test]
async fn holds_that_were_open_before_a_ban_are_charged_after_it() {
    let (limiter, clock) = limiter();
    let policy = policy().with_holds(HoldSettings::new().with_ttl(BAN));
    let held = limiter.hold("k", &policy, 6).await.unwrap();
    limiter.ban("k", &policy, 2 * BAN).await.unwrap();
    std::mem::forget(held);
    clock.advance(2 * BAN);
    // The hold has expired during the ban and was charged at its end.
    assert_eq!(limiter.peek("k", &policy).await.unwrap().available(), Some(4));
    clock.advance(BAN);
    assert_eq!(limiter.peek("k", &policy).await.unwrap().available(), Some(10));
}

#[tokio::test]
async fn a_ban_lasts_at_most_once_more_after_the_clock_was_set_back() {
    let (limiter, clock) = limiter();
    let hour = Duration::from_secs(3_600);
    let start = 1_800_000_000_000_000;
    clock.set_us(start);
    limiter.ban("k", &policy(), BAN).await.unwrap();
    clock.set_us(start - 3_600_000_000);
    let denied = limiter.check("k", &policy(), 1).await.unwrap();
    assert_eq!(denied.retry_after(), Some(BAN), "and not {:?}", hour + BAN);
    clock.advance(BAN);
    assert!(limiter.check("k", &policy(), 1).await.unwrap().is_allowed());
}
