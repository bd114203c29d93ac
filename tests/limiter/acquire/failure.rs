//! Waiting while the store fails: bounded by the caller's time, and nothing is sent twice.

use tollgate::{
    ErrorKind, FailurePolicy, decision::Source, failure::BreakerSettings, observe::Tracing, policy::HoldSettings,
    store::FailingStore,
};
use tracing::Level;

use super::*;
use crate::support::unhealthy_store::{Health, UNAVAILABLE, UnhealthyStore};
use crate::support::{FlakyStore, log::Log, recorder::Recorder};

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_waited_for_until_max_wait_and_then_the_failure_policy_decides() {
    let limiter = Limiter::new(UnhealthyStore::new(UNAVAILABLE)).without_notices();
    let start = Instant::now();
    let results = [1, 2, 3].map(|waits| limiter.acquire(KEY, &bucket(1), 1).within(waits * SECOND));
    for (waits, result) in (1..).zip(results.map(tokio::spawn)) {
        let result = result.await.unwrap();
        assert_eq!(start.elapsed().as_millis() / 10, waits * 100, "waited for as long as it could");
        assert_eq!(result.as_ref().unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(FailurePolicy::Open.resolve(result.clone()).is_allowed());
        assert!(!FailurePolicy::Closed.resolve(result).is_allowed());
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_go_on_in_their_order_when_the_store_is_back() {
    let store =
        UnhealthyStore::with_breaker(UNAVAILABLE, None).counting_in(MemoryStore::new().with_clock(TokioClock::new()));
    let limiter = Limiter::new(store.clone()).without_notices();
    let ended = Ended::default();
    for waiter in 0..10 {
        ended.start(waiter, limiter.acquire(KEY, &bucket(10), 1).within(60 * SECOND)).await;
    }
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(ended.admitted(), [0; 0]);
    assert!(store.sent() < 40, "only the head asks, a few times a second: {}", store.sent());
    store.set_health(Health::Healthy);
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!(ended.admitted(), (0..10).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn after_a_long_outage_a_short_one_is_left_at_once() {
    let store =
        UnhealthyStore::with_breaker(UNAVAILABLE, None).counting_in(MemoryStore::new().with_clock(TokioClock::new()));
    let limiter = Limiter::new(store.clone()).without_notices();
    let ended = Ended::default();
    for waiter in 0..20 {
        ended.start(waiter, limiter.acquire(KEY, &bucket(10), 1).within(60 * SECOND)).await;
    }
    tokio::time::sleep(5 * SECOND).await;
    store.set_health(Health::Healthy);
    tokio::time::sleep(SECOND).await;
    assert!((5..15).contains(&ended.admitted().len()), "callers still wait: {:?}", ended.admitted());
    // Until the head has asked.
    store.set_health(UNAVAILABLE);
    let sent = store.sent();
    while store.sent() == sent {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    store.set_health(Health::Healthy);
    let (before, start) = (ended.admitted().len(), Instant::now());
    while ended.admitted().len() == before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(start.elapsed() < Duration::from_millis(50), "{:?} after the outage", start.elapsed());
}

/// A check that is about to be sent may take a little longer, and so does a check that is on its way.
const SLACK: Duration = Duration::from_millis(250);

#[tokio::test(start_paused = true)]
async fn law_8_no_caller_waits_much_longer_than_it_can_for_a_silent_store() {
    for breaker in [None, Some(BreakerSettings::default())] {
        let limiter = Limiter::new(UnhealthyStore::with_breaker(Health::Silent, breaker)).without_notices();
        let (ended, start) = (Ended::default(), Instant::now());
        for waiter in 0..200 {
            ended.start(waiter, limiter.acquire(KEY, &bucket(1_000), 1).within(Duration::from_millis(120))).await;
        }
        tokio::time::sleep(60 * SECOND).await;
        assert_eq!(ended.0.lock().unwrap().len(), 200);
        assert!(ended.last_at() - start < Duration::from_millis(120) + SLACK, "{:?}", ended.last_at() - start);
    }
}

#[tokio::test(start_paused = true)]
async fn law_8_no_caller_waits_much_longer_than_it_can_for_shards_or_mixed_limits() {
    let store = || MemoryStore::new().with_clock(TokioClock::new());
    let sharded = Policy::per_minute("p", 6).unwrap().with_shards(2);
    let mixed = [6, 7].map(|limit| Policy::per_minute("p", limit).unwrap());
    for policies in [[sharded.clone(), sharded], mixed] {
        let slow = UnhealthyStore::with_breaker(Health::Slow(Duration::from_millis(30)), None).counting_in(store());
        let limiter = Limiter::new(slow);
        let (ended, start) = (Ended::default(), Instant::now());
        for waiter in 0..16 {
            let acquired = limiter.acquire(KEY, &policies[waiter % 2], 1).within(Duration::from_millis(20));
            ended.start(waiter, acquired).await;
        }
        tokio::time::sleep(120 * SECOND).await;
        assert_eq!(ended.0.lock().unwrap().len(), 16);
        assert!(ended.last_at() - start < Duration::from_millis(20) + SLACK, "{:?}", ended.last_at() - start);
    }
}

#[tokio::test(start_paused = true)]
async fn law_9_a_check_whose_fate_is_unknown_is_not_sent_again() {
    let store = UnhealthyStore::with_breaker(Health::Silent, None);
    let limiter = Limiter::new(store.clone()).without_notices();
    let start = Instant::now();
    let error = limiter.acquire(KEY, &bucket(1), 1).within(60 * SECOND).await.unwrap_err();
    assert!(error.may_have_charged());
    assert_eq!(store.sent(), 1);
    assert!(start.elapsed() < SECOND, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_wrong_setup_is_an_error_at_once() {
    let store = FailingStore::new();
    store.fail(ErrorKind::StoreMisconfigured);
    let limiter = Limiter::new(store).without_notices();
    let error = limiter.acquire(KEY, &bucket(1), 1).within(60 * SECOND).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreMisconfigured);
    let error = limiter.acquire(KEY, &bucket(1), 1).fail_local().within(60 * SECOND).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidCall, "no fallback");
}

#[tokio::test(start_paused = true)]
async fn waiters_that_fail_local_wait_for_the_instances_share() {
    let store = FlakyStore::default();
    store.fail(Some(tollgate::Error::new(ErrorKind::Unavailable, "away")));
    let shares = MemoryStore::new().with_clock(TokioClock::new());
    let limiter = Limiter::new(store).with_local_fallback(shares, 2).without_notices();
    let policy = Policy::per_second("p", 4).unwrap();
    let (ended, start) = (Ended::default(), Instant::now());
    for waiter in 0..6 {
        ended.start(waiter, limiter.acquire(KEY, &policy, 1).fail_local().within(60 * SECOND)).await;
    }
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(ended.admitted(), (0..6).collect::<Vec<_>>());
    let took = ended.last_at() - start;
    assert!(took >= 2 * SECOND && took < Duration::from_millis(2_200), "two of the share's units a second: {took:?}");
    assert!(ended.0.lock().unwrap().iter().all(|(.., result)| result.as_ref().unwrap().source() == Source::Local));
}

#[tokio::test(start_paused = true)]
async fn waiters_that_fail_local_do_not_wait_behind_others_during_an_outage() {
    let store = FlakyStore::default();
    store.fail(Some(tollgate::Error::new(ErrorKind::Unavailable, "away")));
    let plain = Limiter::new(store).without_notices();
    let shares = MemoryStore::new().with_clock(TokioClock::new());
    let limiter = plain.clone().with_local_fallback(shares, 2);
    let (policy, ended, start) = (bucket(4), Ended::default(), Instant::now());
    ended.start(0, limiter.acquire(KEY, &policy, 1).within(30 * SECOND)).await;
    ended.start(1, plain.acquire(KEY, &policy, 1).within(30 * SECOND)).await;
    ended.start(2, limiter.acquire(KEY, &policy, 1).fail_local().within(SECOND)).await;
    tokio::time::sleep(SECOND / 10).await;
    assert_eq!(ended.admitted(), [2]);
    assert!(ended.last_at() - start < SECOND / 10);
}

#[tokio::test(start_paused = true)]
async fn observers_see_one_decision_for_each_call() {
    let recorder = Recorder::default();
    let limiter = limiter().with_observer(recorder.clone());
    let ended = Ended::default();
    for waiter in 0..3 {
        ended.start(waiter, limiter.acquire(KEY, &bucket(10), 1).within(SECOND)).await;
    }
    tokio::time::sleep(SECOND).await;
    assert_eq!(ended.admitted(), [0, 1, 2]);
    assert_eq!(recorder.outcomes(), [("allowed", Source::Store); 3]);
}

/// The observer replaces the notices, which say that limits are not enforced.
#[tokio::test]
async fn law_13_the_failure_of_a_check_that_waits_is_reported_although_its_caller_gets_a_decision() {
    let (log, _guard) = Log::start(Level::WARN);
    for is_shadow in [false, true] {
        let (recorder, store) = (Recorder::default(), FailingStore::new());
        store.fail(ErrorKind::BadKey);
        let limiter = Limiter::new(store).with_local_fallback(MemoryStore::new(), 1);
        let limiter = limiter.with_observer(Tracing::new()).with_observer(recorder.clone());
        let policy = bucket(10).with_holds(HoldSettings::new()).with_shadow(is_shadow);
        let effect = if is_shadow {
            assert!(limiter.acquire_hold(KEY, &policy, 1).within(SECOND).await.unwrap().is_allowed());
            "Requests pass, because only shadow policies apply to them."
        } else {
            assert!(limiter.acquire(KEY, &policy, 1).fail_local().within(SECOND).await.unwrap().is_allowed());
            "Requests are judged by this instance's share (fail_local)."
        };
        let lines = log.take();
        let [line] = &lines[..] else { panic!("{lines:#?}") };
        assert!(line.contains(" Limits are not enforced: ") && line.contains(effect), "{line}");
        let seen = recorder.take();
        assert_eq!(seen.failures, [(ErrorKind::BadKey, vec!["p".to_owned()])]);
        assert_eq!(seen.decisions.len(), 1, "{}", seen.debug);
    }
}

#[test]
fn a_runtime_without_timers_is_an_error() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let limiter = Limiter::new(MemoryStore::new()).without_notices();
    let error = runtime.block_on(limiter.acquire(KEY, &bucket(1), 1).within(SECOND)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreMisconfigured);
}
