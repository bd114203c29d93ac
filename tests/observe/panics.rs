//! Observers that panic.

use std::time::Duration;

use tollgate::{
    Check, Limiter, ManualClock, MemoryStore, Policy,
    observe::{Event, Observer},
    policy::Holds,
};
use tracing::Level;

use crate::support::{
    log::Log,
    recorder::Recorder,
    unhealthy_store::{UNAVAILABLE, UnhealthyStore},
};

/// Panics on each event.
struct Panics;

impl Observer for Panics {
    fn on_event(&self, _: &Event<'_>) {
        panic!("the observer of a test");
    }
}

fn tokens() -> Policy {
    Policy::per_minute("tokens", 10).unwrap().with_holds(Holds::new()).unwrap()
}

/// What a limiter answers to checks, holds, a settlement and a reset.
async fn answers(limiter: Limiter) -> Vec<String> {
    let (mut answers, policy) = (Vec::new(), tokens());
    for cost in [3, 3, 3] {
        let decision = limiter.check("k", &policy, cost).await.unwrap();
        answers.push(format!("{} {:?}", decision.is_allowed(), decision.available()));
    }
    let hold = limiter.hold("k", &policy, 1).await.unwrap().into_hold().unwrap();
    answers.push(format!("{:?}", limiter.hold("k", &policy, 1).await.unwrap().is_allowed()));
    answers.push(format!("{:?}", hold.settle(0).await.unwrap()));
    drop(limiter.hold_all(Check::hold("k", &policy, 1)).await.unwrap());
    answers.push(format!("{:?}", limiter.peek("k", &policy).await.unwrap().available()));
    answers.push(format!("{:?}", limiter.reset("k", &policy).await.unwrap()));
    answers
}

#[tokio::test]
async fn law_16_an_observer_that_panics_on_each_event_changes_no_answer() {
    let limiter = || Limiter::new(MemoryStore::new().with_clock(ManualClock::default()));
    let recorder = Recorder::default();
    let observed = limiter().with_observer(Panics).with_observer(recorder.clone());
    assert_eq!(answers(observed).await, answers(limiter()).await);
    assert!(!recorder.take().holds.is_empty(), "the other observer gets the events");
}

#[tokio::test]
async fn law_16_an_observer_that_panics_changes_no_error() {
    let store = UnhealthyStore::new(UNAVAILABLE);
    let limiter = Limiter::new(store).with_observer(Panics);
    while !limiter.is_breaker_open() {
        let error = limiter.check("k", &tokens(), 1).await.unwrap_err();
        assert!(!error.may_have_charged());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn law_13_the_first_panic_of_an_observer_is_reported_once() {
    let (log, _guard) = Log::start(Level::WARN);
    let limiter = Limiter::new(MemoryStore::new()).with_observer(Panics);
    for _ in 0..3 {
        let _ = limiter.check("k", &tokens(), 1).await.unwrap();
    }
    let lines = log.take();
    let is_report = |line: &&String| line.contains("An observer panicked");
    assert_eq!(lines.iter().filter(is_report).count(), 1, "{lines:?}");
}
