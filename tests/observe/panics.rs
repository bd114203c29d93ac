//! Observers that panic.

use std::time::Duration;

use tokio::{task::JoinSet, time::Instant};
use tollgate::observe::{Event, Observer};
use tollgate::{Algorithm, Check, Limiter, ManualClock, MemoryStore, Policy, clock::TokioClock, policy::HoldSettings};
use tracing::Level;

use crate::support::unhealthy_store::{UNAVAILABLE, UnhealthyStore};
use crate::support::{log::Log, recorder::Recorder};

/// Panics on each event.
struct Panics;

impl Observer for Panics {
    fn on_event(&self, _: &Event<'_>) {
        panic!("the observer of a test");
    }
}

fn tokens() -> Policy {
    Policy::per_minute("tokens", 10).unwrap().with_holds(HoldSettings::new())
}

/// What a limiter answers to checks, holds, a settlement and a reset.
async fn answers(limiter: Limiter) -> Vec<String> {
    let (mut answers, policy) = (Vec::new(), tokens());
    for cost in [3, 3, 3] {
        let decision = limiter.check("k", &policy, cost).await.unwrap();
        answers.push(format!("{} {:?}", decision.is_allowed(), decision.available()));
    }
    let hold = limiter.hold("k", &policy, 1).await.unwrap().into_result().unwrap();
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

/// Each caller gets what it gets without an observer, when it gets it. One that panics must not end the task that asks
/// for all of them.
#[tokio::test(start_paused = true)]
async fn law_16_an_observer_that_panics_delays_and_refuses_no_caller_that_waits() {
    let policies = [
        Policy::per_second("bucket", 10).unwrap().with_algorithm(Algorithm::TokenBucket).with_burst(1),
        Policy::per_second("leased", 10).unwrap().with_lease(5),
    ];
    for policy in policies {
        let mut ends = Vec::new();
        for panics in [true, false] {
            let limiter = Limiter::new(MemoryStore::new().with_clock(TokioClock::new()));
            let limiter = if panics { limiter.with_observer(Panics) } else { limiter };
            let (start, mut waiting) = (Instant::now(), JoinSet::new());
            for _ in 0..30 {
                waiting.spawn(limiter.acquire("k", &policy, 1).within(Duration::from_secs(60)));
            }
            for acquired in waiting.join_all().await {
                assert!(acquired.unwrap().is_allowed());
            }
            ends.push(start.elapsed());
        }
        let difference = ends[0].abs_diff(ends[1]);
        // Checks are spread over some milliseconds by chance.
        assert!(difference <= Duration::from_millis(50), "{}: {ends:?}", policy.name());
    }
}

/// A slot for which callers wait, whose ends are reported.
#[tokio::test(start_paused = true)]
async fn law_16_an_observer_that_panics_keeps_no_slot_from_callers_that_wait() {
    let limiter = Limiter::new(MemoryStore::new().with_clock(TokioClock::new())).with_observer(Panics);
    let one = Policy::concurrent("one", 1).unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..10 {
        let (limiter, one) = (limiter.clone(), one.clone());
        waiting.spawn(async move {
            let slot = limiter.acquire_hold("k", &one, 1).within(Duration::from_secs(20)).await.unwrap();
            assert!(slot.is_allowed());
            tokio::time::sleep(Duration::from_millis(100)).await;
            drop(slot);
        });
    }
    waiting.join_all().await;
    assert_eq!(limiter.peek("k", &one).await.unwrap().available(), Some(1));
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
