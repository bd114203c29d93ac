//! Probes: what closes the breaker, what opens it again, and how soon it closes after a recovery.

use std::{thread, time::Duration};

use tokio::{task::JoinSet, time::Instant};
use tokio_test::{assert_pending, task};
use tollgate::{Limiter, Policy};

use super::{DEADLINE, MS, check, checks, concurrent_checks, opened, policy, probes};
use crate::support::unhealthy_store::{Health, UNAVAILABLE, UnhealthyStore};
use crate::support::{random::Random, stopwatch::Stopwatch};

#[tokio::test(start_paused = true)]
async fn probing_closes_when_the_probe_succeeds() {
    let (limiter, store) = opened(UNAVAILABLE).await;
    store.set_health(Health::Healthy);
    tokio::time::sleep(Duration::from_millis(121)).await;
    check(&limiter).await.unwrap();
    assert!(!limiter.is_breaker_open());
    concurrent_checks(&limiter, 100).await;
    assert_eq!(store.sent(), 106);
    // Failures from before the outage no longer count.
    store.set_health(UNAVAILABLE);
    checks(&limiter, 4).await;
    assert!(!limiter.is_breaker_open());
}

/// Sends a burst of checks under a limit of 10. Returns how many are allowed, denied, and without a verdict.
async fn burst(limiter: &Limiter, count: usize) -> [usize; 3] {
    let policy = Policy::per_hour("burst", 10).unwrap();
    let mut checks = JoinSet::new();
    for _ in 0..count {
        let check = limiter.check("k", &policy, 1);
        checks.spawn(async move { check.await.map(|decision| decision.is_allowed()) });
    }
    let results = checks.join_all().await;
    let count = |wanted: Option<bool>| results.iter().filter(|result| result.as_ref().ok() == wanted.as_ref()).count();
    [count(Some(true)), count(Some(false)), count(None)]
}

#[tokio::test(start_paused = true)]
async fn law_14_the_first_burst_after_an_outage_whose_end_nobody_saw_is_judged() {
    for quiet in [1, 10, 30, 30_000] {
        let (limiter, store) = opened(UNAVAILABLE).await;
        checks(&limiter, 50).await;
        store.set_health(Health::Healthy);
        tokio::time::sleep(Duration::from_secs(quiet)).await;
        assert_eq!(burst(&limiter, 200).await, [10, 190, 0], "after {quiet} s");
        assert!(!limiter.is_breaker_open());
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_still_down_after_a_pause_gets_one_burst() {
    for health in [UNAVAILABLE, Health::Silent] {
        let (limiter, store) = opened(UNAVAILABLE).await;
        store.set_health(health);
        tokio::time::sleep(Duration::from_secs(10)).await;
        concurrent_checks(&limiter, 200).await;
        let sent = store.sent();
        checks(&limiter, 10).await;
        assert_eq!(store.sent(), sent, "the breaker is open again");
    }
}

/// A dropped probe says nothing about the store, and the others are in flight.
#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_in_the_first_burst_takes_no_verdict_from_the_others() {
    let (limiter, store) = opened(UNAVAILABLE).await;
    store.set_health(Health::Silent);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let mut dropped = task::spawn(limiter.check("k", &policy(), 1));
    assert_pending!(dropped.poll());
    // A thread without a runtime cannot wait for the answer in its place.
    thread::spawn(|| drop(dropped)).join().unwrap();
    store.set_health(Health::Healthy);
    assert_eq!(burst(&limiter, 200).await, [10, 190, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_probe_opens_the_breaker_again_for_a_longer_time() {
    for health in [UNAVAILABLE, Health::Silent] {
        let (limiter, store) = opened(UNAVAILABLE).await;
        store.set_health(health);
        let times = probes(&limiter, &store, Duration::from_secs(20)).await;
        let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let waited = if matches!(health, Health::Silent) { DEADLINE } else { Duration::ZERO };
        for (gap, (least, most)) in gaps.iter().zip([(200, 240), (400, 480), (416, 500), (416, 500), (416, 500)]) {
            let least = Duration::from_millis(least) + waited;
            // Checks are a millisecond apart, and timers round up.
            let most = Duration::from_millis(most) + waited + 3 * MS;
            assert!((least..=most).contains(gap), "{health:?}: {gaps:?}");
        }
        assert!(gaps.iter().all(|gap| *gap <= Duration::from_millis(953)), "{gaps:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_probe_without_an_answer_opens_the_breaker_again() {
    let (limiter, store) = opened(UNAVAILABLE).await;
    store.set_health(Health::Silent);
    for probes in 1..=10 {
        // The deadline of the probe and the longest pause after it.
        let stopwatch = Stopwatch::start();
        tokio::time::sleep(DEADLINE + Duration::from_millis(501)).await;
        tokio::time::sleep(stopwatch.longest_stall()).await;
        let mut probe = task::spawn(limiter.check("k", &policy(), 1));
        assert_pending!(probe.poll());
        assert_eq!(store.sent(), 5 + probes);
        drop(probe);
        checks(&limiter, 3).await;
        assert_eq!(store.sent(), 5 + probes, "the next probe waits, although the last one was dropped");
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_no_longer_polled_does_not_block_the_next_one() {
    let (limiter, store) = opened(UNAVAILABLE).await;
    store.set_health(Health::Silent);
    tokio::time::sleep(Duration::from_millis(121)).await;
    let mut kept = task::spawn(limiter.check("k", &policy(), 1));
    assert_pending!(kept.poll());
    store.set_health(Health::Healthy);
    tokio::time::sleep(DEADLINE + Duration::from_millis(121)).await;
    check(&limiter).await.unwrap();
    assert!(!limiter.is_breaker_open());
    drop(kept);
    assert!(!limiter.is_breaker_open(), "the end of the old probe is ignored");
}

#[tokio::test(start_paused = true)]
async fn a_future_that_was_never_polled_is_not_the_probe() {
    let (limiter, store) = opened(UNAVAILABLE).await;
    store.set_health(Health::Healthy);
    tokio::time::sleep(Duration::from_millis(121)).await;
    let unpolled = limiter.check("k", &policy(), 1);
    check(&limiter).await.unwrap();
    drop(unpolled);
}

/// Measured from the moment at which the store answers again, for outages of up to eight seconds.
#[tokio::test(start_paused = true)]
async fn the_first_enforced_decision_comes_within_a_second_of_recovery() {
    let mut random = Random(7);
    for health in [UNAVAILABLE, Health::Silent] {
        for _ in 0..25 {
            let (limiter, store) = opened(UNAVAILABLE).await;
            store.set_health(health);
            probes(&limiter, &store, Duration::from_millis(random.below(8_000))).await;
            store.set_health(Health::Healthy);
            let recovered = Instant::now();
            while check(&limiter).await.is_err() {
                tokio::time::sleep(MS).await;
            }
            assert!(recovered.elapsed() <= Duration::from_secs(1), "{:?}", recovered.elapsed());
        }
    }
}

/// Requests are dropped after any number of polls, or kept for a while without being polled.
#[tokio::test(start_paused = true)]
async fn dropped_probes_never_leave_the_breaker_open() {
    let mut random = Random(42);
    for round in 0..60 {
        let store = UnhealthyStore::new(UNAVAILABLE);
        let limiter = Limiter::new(store.clone());
        let mut held = Vec::new();
        for _ in 0..300 {
            store.set_health([UNAVAILABLE, Health::Silent, Health::Healthy][random.index(3)]);
            let mut request = task::spawn(limiter.check("k", &policy(), 1));
            let done = (0..random.below(4)).any(|_| request.poll().is_ready());
            if !done && random.below(2) == 0 {
                held.push(request);
            }
            if !held.is_empty() && random.below(2) == 0 {
                let index = random.index(held.len());
                drop(held.swap_remove(index));
            }
            tokio::time::advance(Duration::from_millis(random.below(60))).await;
        }
        store.set_health(Health::Healthy);
        let recovered = Instant::now();
        // A success may open the breaker if it completes twenty checks of which half failed.
        while check(&limiter).await.is_err() || limiter.is_breaker_open() {
            tokio::time::sleep(MS).await;
        }
        assert!(recovered.elapsed() <= Duration::from_secs(1), "round {round}: {:?}", recovered.elapsed());
    }
}

/// Sends checks that are dropped after a millisecond, each a millisecond after the last one.
async fn abandoned_checks(limiter: &Limiter, checks: usize) {
    for _ in 0..checks {
        let _ = tokio::time::timeout(MS, limiter.check("k", &policy(), 1)).await;
        tokio::time::sleep(MS).await;
    }
}

/// All clients reset their HTTP/2 streams right after the request.
#[tokio::test(start_paused = true)]
async fn law_14_clients_that_reset_their_requests_do_not_keep_the_breaker_open() {
    let (limiter, store) = opened(UNAVAILABLE).await;
    store.set_health(Health::Slow(10 * MS));
    abandoned_checks(&limiter, 1_000).await;
    assert!(!limiter.is_breaker_open());
    // A failure of the store is noticed as well.
    store.set_health(UNAVAILABLE);
    checks(&limiter, 5).await;
    let before = store.sent();
    store.set_health(Health::Silent);
    abandoned_checks(&limiter, 1_000).await;
    assert!(limiter.is_breaker_open());
    assert!((2..20).contains(&(store.sent() - before)), "{}", store.sent() - before);
}
