//! Checks without a future: the same decisions as with one, on stores that answer at once.

use std::time::Duration;

use tollgate::store::{Answer, Store};
use tollgate::{Check, ErrorKind, FailurePolicy, Limiter, ManualClock, MemoryStore, decision::Source};
use tracing::Level;

use crate::support::counting::{AnswerKind, CountingStore};
use crate::support::unhealthy_store::{UNAVAILABLE, UnhealthyStore};
use crate::support::{DownStore, FlakyStore, PendingStore, per_minute};
use crate::support::{log::Log, recorder::Recorder};

#[tokio::test]
async fn law_11_checks_with_and_without_a_future_spend_from_one_budget() {
    let limiter = Limiter::new(MemoryStore::new().with_clock(ManualClock::default()));
    let policy = per_minute("p", 4);
    for available in [3, 1] {
        assert_eq!(limiter.try_check("k", &policy, 1).unwrap().available(), Some(available));
        assert_eq!(limiter.check("k", &policy, 1).await.unwrap().available(), Some(available - 1));
    }
    let denied = [limiter.try_check("k", &policy, 1).unwrap(), limiter.check("k", &policy, 1).await.unwrap()];
    let [without, with] = denied.map(|denied| format!("{denied:?}"));
    assert_eq!(without, with);
    assert!(!limiter.try_check("k", &policy, 1).unwrap().is_allowed());
}

#[test]
fn law_3_a_check_of_several_charges_is_all_or_nothing_without_a_future() {
    let limiter = Limiter::new(MemoryStore::new());
    let (narrow, wide) = (per_minute("narrow", 1), per_minute("wide", 9));
    let check = || Check::new("a", &narrow, 1).and("b", &wide, 1);
    assert!(limiter.try_check_all(check()).unwrap().is_allowed());
    assert!(!limiter.try_check_all(check()).unwrap().is_allowed());
    assert_eq!(limiter.try_check("b", &wide, 0).unwrap().available(), Some(8));
}

#[test]
fn without_a_future_observers_get_the_same_events() {
    let recorder = Recorder::default();
    let limiter = Limiter::new(MemoryStore::new()).with_observer(recorder.clone());
    let _ = limiter.try_check("k", &per_minute("p", 1), 1).unwrap();
    let _ = limiter.try_check("k", &per_minute("p", 1), 1).unwrap();
    assert_eq!(recorder.outcomes(), [("allowed", Source::Store), ("denied", Source::Store)]);
    let limiter = Limiter::new(DownStore).with_observer(recorder.clone());
    assert_eq!(limiter.try_check("k", &per_minute("p", 1), 1).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(recorder.take().failures, [(ErrorKind::Unavailable, vec!["p".to_owned()])]);
}

#[test]
fn a_store_that_has_to_wait_is_an_error_that_charges_nothing() {
    let recorder = Recorder::default();
    let memory = MemoryStore::new();
    let store = CountingStore::new(PendingStore(memory.clone()));
    let limiter = Limiter::new(store.clone()).with_observer(recorder.clone());
    let error = limiter.try_check("k", &per_minute("p", 1), 1).unwrap_err();
    assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::InvalidCall, false));
    assert!(error.to_string().contains("`.check(..).await`"), "{error}");
    assert_eq!((store.sent(), memory.keys()), (0, 0));
    let seen = recorder.take();
    assert_eq!(seen.failures, [(ErrorKind::InvalidCall, vec!["p".to_owned()])]);
    assert!(seen.decisions.is_empty() && seen.abandoned.is_empty());
}

#[test]
fn a_failure_policy_decides_about_the_error_as_for_a_check_with_a_future() {
    let limiter = Limiter::new(DownStore);
    let resolve = |failure: FailurePolicy| failure.resolve(limiter.try_check("k", &per_minute("p", 1), 1));
    assert_eq!(resolve(FailurePolicy::Open).source(), Source::Open);
    assert_eq!(resolve(FailurePolicy::Closed).source(), Source::Closed);
}

#[test]
fn law_13_a_limiter_that_cannot_answer_at_once_says_so_once() {
    let (log, _guard) = Log::start(Level::WARN);
    let limiter = AnswerKind::Pending.limiter();
    for _ in 0..10 {
        let result = limiter.try_check("k", &per_minute("p", 1), 1);
        assert!(!FailurePolicy::Open.resolve(result).is_allowed(), "a wrong call is no outage");
    }
    let lines = log.take();
    let [line] = &lines[..] else { panic!("{lines:#?}") };
    assert!(line.contains("Checks get no verdict: the check is misconfigured: try_check needs a store"), "{line}");
}

/// A store that was not asked has not failed, so neither the breaker nor the local fallback acts.
#[tokio::test(start_paused = true)]
async fn a_store_that_was_not_asked_opens_no_breaker() {
    let store = UnhealthyStore::new(UNAVAILABLE);
    let limiter = Limiter::new(store.clone());
    for _ in 0..20 {
        assert_eq!(limiter.try_check("k", &per_minute("p", 1), 1).unwrap_err().kind(), ErrorKind::InvalidCall);
    }
    assert!(!limiter.is_breaker_open() && store.sent() == 0);
}

#[tokio::test]
async fn law_1_what_is_charged_without_a_future_counts_in_the_local_fallback() {
    let store = FlakyStore::default();
    let limiter = Limiter::new(store.clone()).with_local_fallback(MemoryStore::new(), 1);
    let policy = per_minute("p", 2);
    assert!(limiter.try_check("k", &policy, 2).unwrap().is_allowed());
    store.fail(Some(tollgate::Error::new(ErrorKind::Unavailable, "down")));
    let decision = limiter.check("k", &policy, 1).fail_local().await.unwrap();
    assert_eq!((decision.source(), decision.is_allowed()), (Source::Local, false));
}

/// A wrapper whose answer is pending or ready, depending on the check.
#[derive(Debug)]
struct RemembersDenials(MemoryStore);

impl Store for RemembersDenials {
    fn check(&self, check: &Check) -> Answer<tollgate::store::Verdict> {
        match self.0.check(check) {
            Answer::Ready(Ok(verdict)) if verdict.allowed => Answer::pending(async move { Ok(verdict) }),
            answer => answer,
        }
    }

    fn reset(&self, key: &tollgate::Key, policy: &tollgate::Policy) -> Answer<bool> {
        self.0.reset(key, policy)
    }

    fn deadline(&self) -> Duration {
        self.0.deadline()
    }
}

#[test]
fn a_store_that_waits_for_some_checks_answers_the_others() {
    let memory = MemoryStore::new();
    let policy = per_minute("p", 1);
    assert!(Limiter::new(memory.clone()).try_check("k", &policy, 1).unwrap().is_allowed());
    let limiter = Limiter::new(RemembersDenials(memory));
    assert!(!limiter.try_check("k", &policy, 1).unwrap().is_allowed());
    assert_eq!(limiter.try_check("other", &policy, 1).unwrap_err().kind(), ErrorKind::InvalidCall);
}
