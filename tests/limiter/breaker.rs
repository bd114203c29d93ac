//! The circuit breaker: one test for each arrow, on a paused clock.

use std::time::Duration;

use http::StatusCode;
use tokio::{task::JoinSet, time::Instant};
use tokio_test::{assert_pending, task};
use tollgate::{ErrorKind, Limiter, Policy, RateLimitLayer, failure::Breaker};
use tower::ServiceBuilder;

use crate::support::{
    counting::{CountingService, layer, status, within_10_seconds},
    unhealthy_store::{Health, UNAVAILABLE, UnhealthyStore},
};

const DEADLINE: Duration = Duration::from_millis(50);
const MS: Duration = Duration::from_millis(1);

fn policy() -> Policy {
    Policy::per_hour("p", 1_000_000).unwrap()
}

async fn check(limiter: &Limiter) -> Result<(), ErrorKind> {
    within_10_seconds(limiter.check("k", &policy(), 1)).await.map(drop).map_err(|error| error.kind())
}

async fn checks(limiter: &Limiter, count: usize) {
    for _ in 0..count {
        let _ = check(limiter).await;
    }
}

/// So many at the same time, all sent before the first one ends.
async fn wave(limiter: &Limiter, count: usize) {
    let mut wave = JoinSet::new();
    for _ in 0..count {
        let limiter = limiter.clone();
        wave.spawn(async move { check(&limiter).await });
    }
    wave.join_all().await;
}

/// A limiter whose breaker has just opened.
async fn opened(health: Health) -> (Limiter, UnhealthyStore) {
    let store = UnhealthyStore::new(health);
    let limiter = Limiter::new(store.clone());
    checks(&limiter, 5).await;
    assert!(limiter.is_breaker_open());
    (limiter, store)
}

/// Checks every millisecond and tells when the store was asked.
async fn probes(limiter: &Limiter, store: &UnhealthyStore, during: Duration) -> Vec<Duration> {
    let start = Instant::now();
    let (mut seen, mut times) = (store.sent(), Vec::new());
    while start.elapsed() < during {
        let asked = start.elapsed();
        let _ = check(limiter).await;
        if store.sent() > seen {
            assert_eq!(store.sent(), seen + 1, "one probe at a time");
            (seen, times) = (seen + 1, [times, vec![asked]].concat());
        }
        tokio::time::sleep(MS).await;
    }
    times
}

#[tokio::test(start_paused = true)]
async fn closed_opens_after_five_failures_in_a_row() {
    let store = UnhealthyStore::new(UNAVAILABLE);
    let limiter = Limiter::new(store.clone());
    for _ in 0..3 {
        checks(&limiter, 4).await;
        store.set_health(Health::Healthy);
        check(&limiter).await.unwrap();
        store.set_health(UNAVAILABLE);
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    checks(&limiter, 4).await;
    assert!(!limiter.is_breaker_open(), "an answer ends the row");
    checks(&limiter, 1).await;
    assert!(limiter.is_breaker_open());
}

#[tokio::test(start_paused = true)]
async fn closed_opens_after_three_timeouts_in_a_row() {
    let store = UnhealthyStore::new(Health::Silent);
    let limiter = Limiter::new(store.clone());
    checks(&limiter, 2).await;
    store.set_health(Health::Healthy);
    check(&limiter).await.unwrap();
    store.set_health(Health::Silent);
    checks(&limiter, 2).await;
    assert!(!limiter.is_breaker_open(), "an answer ends the row");
    let start = Instant::now();
    assert_eq!(check(&limiter).await, Err(ErrorKind::Deadline));
    assert_eq!(start.elapsed(), DEADLINE);
    assert!(limiter.is_breaker_open());
}

#[tokio::test(start_paused = true)]
async fn a_wave_of_timeouts_counts_once() {
    let limiter = Limiter::new(UnhealthyStore::new(Health::Silent));
    for waves in 1..=3 {
        wave(&limiter, 6).await;
        assert_eq!(limiter.is_breaker_open(), waves == 3, "{waves}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_under_load_is_one_failure() {
    let store = UnhealthyStore::new(Health::Healthy);
    let limiter = Limiter::new(store.clone());
    for _ in 0..4 {
        store.set_health(UNAVAILABLE);
        wave(&limiter, 100).await;
        assert!(!limiter.is_breaker_open());
        // In a second, half of twenty checks would be another matter.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    wave(&limiter, 100).await;
    assert!(limiter.is_breaker_open(), "five times in a row");
}

#[tokio::test(start_paused = true)]
async fn closed_opens_when_half_of_twenty_fail_within_a_second() {
    let store = UnhealthyStore::new(Health::Healthy);
    let limiter = Limiter::new(store.clone());
    checks(&limiter, 100).await;
    for pair in 1..=10 {
        assert!(!limiter.is_breaker_open(), "{pair}");
        for health in [UNAVAILABLE, Health::Healthy] {
            store.set_health(health);
            let _ = check(&limiter).await;
        }
    }
    assert!(limiter.is_breaker_open());
}

#[tokio::test(start_paused = true)]
async fn closed_stays_closed_when_fewer_than_half_fail_or_over_a_longer_time() {
    let store = UnhealthyStore::new(Health::Healthy);
    let limiter = Limiter::new(store.clone());
    for (answers, pause) in [(2, MS), (1, Duration::from_millis(120))] {
        for _ in 0..100 {
            store.set_health(UNAVAILABLE);
            checks(&limiter, 1).await;
            store.set_health(Health::Healthy);
            checks(&limiter, answers).await;
            tokio::time::sleep(pause).await;
            assert!(!limiter.is_breaker_open());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Whoever opens for a wrong password opens again after every probe.
#[tokio::test(start_paused = true)]
async fn an_answer_that_helps_nobody_neither_opens_nor_keeps_open() {
    for kind in [ErrorKind::BadKey, ErrorKind::Config, ErrorKind::Misconfigured] {
        let store = UnhealthyStore::new(Health::Fails(kind));
        let limiter = Limiter::new(store.clone());
        checks(&limiter, 100).await;
        wave(&limiter, 100).await;
        assert_eq!((limiter.is_breaker_open(), store.sent()), (false, 200), "{kind:?}");

        let (limiter, store) = opened(UNAVAILABLE).await;
        store.set_health(Health::Fails(kind));
        tokio::time::sleep(Duration::from_millis(121)).await;
        assert_eq!(check(&limiter).await, Err(kind));
        assert!(!limiter.is_breaker_open(), "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn open_answers_at_once_and_asks_nobody() {
    let (limiter, store) = opened(UNAVAILABLE).await;
    let start = Instant::now();
    checks(&limiter, 1_000).await;
    assert_eq!(check(&limiter).await, Err(ErrorKind::Unavailable));
    assert!(!limiter.check("k", &policy(), 1).await.unwrap_err().may_have_charged());
    assert_eq!((start.elapsed(), store.sent()), (Duration::ZERO, 5));
}

#[tokio::test(start_paused = true)]
async fn open_follows_the_failure_policy_of_the_route() {
    let (limiter, store) = opened(UNAVAILABLE).await;
    let inner = CountingService::default();
    let layer: RateLimitLayer<_> = layer(limiter, 1);
    let start = Instant::now();
    for (layer, expected) in
        [(layer.clone().fail_open(), StatusCode::OK), (layer.fail_closed(), StatusCode::SERVICE_UNAVAILABLE)]
    {
        let mut service = ServiceBuilder::new().layer(layer).service(inner.share());
        assert_eq!(status(&mut service).await, expected);
    }
    assert_eq!((start.elapsed(), store.sent(), inner.calls()), (Duration::ZERO, 5, 1));
}

#[tokio::test(start_paused = true)]
async fn open_probes_after_a_tenth_of_a_second_one_at_a_time() {
    let (limiter, store) = opened(Health::Fails(ErrorKind::Unavailable)).await;
    store.set_health(Health::Silent);
    tokio::time::sleep(Duration::from_millis(99)).await;
    checks(&limiter, 10).await;
    assert_eq!(store.sent(), 5);
    tokio::time::sleep(Duration::from_millis(22)).await;
    let start = Instant::now();
    let mut probe = task::spawn(limiter.check("k", &policy(), 1));
    assert_pending!(probe.poll());
    checks(&limiter, 100).await;
    assert_eq!((start.elapsed(), store.sent()), (Duration::ZERO, 6), "the others do not wait for the probe");
}

#[tokio::test(start_paused = true)]
async fn probing_closes_with_an_answer() {
    let (limiter, store) = opened(UNAVAILABLE).await;
    store.set_health(Health::Healthy);
    tokio::time::sleep(Duration::from_millis(121)).await;
    check(&limiter).await.unwrap();
    assert!(!limiter.is_breaker_open());
    wave(&limiter, 100).await;
    assert_eq!(store.sent(), 106);
    // And begins to count anew.
    store.set_health(UNAVAILABLE);
    checks(&limiter, 4).await;
    assert!(!limiter.is_breaker_open());
}

#[tokio::test(start_paused = true)]
async fn probing_opens_again_with_a_failure_for_longer_and_longer() {
    for health in [UNAVAILABLE, Health::Silent] {
        let (limiter, store) = opened(UNAVAILABLE).await;
        store.set_health(health);
        let times = probes(&limiter, &store, Duration::from_secs(20)).await;
        let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let waited = if matches!(health, Health::Silent) { DEADLINE } else { Duration::ZERO };
        for (gap, (least, most)) in gaps.iter().zip([(200, 240), (400, 480), (416, 500), (416, 500), (416, 500)]) {
            let least = Duration::from_millis(least) + waited;
            // A check each millisecond, and timers round up.
            let most = Duration::from_millis(most) + waited + 3 * MS;
            assert!((least..=most).contains(gap), "{health:?}: {gaps:?}");
        }
        assert!(gaps.iter().all(|gap| *gap <= Duration::from_millis(953)), "{gaps:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn probing_opens_again_when_a_probe_that_was_dropped_gets_no_answer() {
    let (limiter, store) = opened(UNAVAILABLE).await;
    store.set_health(Health::Silent);
    for probes in 1..=10 {
        // The probe's own deadline, and the longest pause after it.
        tokio::time::sleep(DEADLINE + Duration::from_millis(501)).await;
        let mut probe = task::spawn(limiter.check("k", &policy(), 1));
        assert_pending!(probe.poll());
        assert_eq!(store.sent(), 5 + probes);
        drop(probe);
        checks(&limiter, 3).await;
        assert_eq!(store.sent(), 5 + probes, "a dropped probe is not followed by another one at once");
    }
}

#[tokio::test(start_paused = true)]
async fn probing_makes_room_for_another_when_the_probe_is_kept_and_not_polled() {
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
    assert!(!limiter.is_breaker_open(), "its end says nothing any more");
}

#[tokio::test(start_paused = true)]
async fn a_future_that_was_never_polled_is_no_probe() {
    let (limiter, store) = opened(UNAVAILABLE).await;
    store.set_health(Health::Healthy);
    tokio::time::sleep(Duration::from_millis(121)).await;
    let unpolled = limiter.check("k", &policy(), 1);
    check(&limiter).await.unwrap();
    drop(unpolled);
}

/// What was sent before the circuit opened says nothing about the time since.
#[tokio::test(start_paused = true)]
async fn late_results_change_nothing() {
    let store = UnhealthyStore::new(Health::Silent);
    let limiter = Limiter::new(store.clone());
    let mut late: Vec<_> = (0..40).map(|_| task::spawn(limiter.check("k", &policy(), 1))).collect();
    late.iter_mut().for_each(|late| assert_pending!(late.poll()));
    store.set_health(UNAVAILABLE);
    checks(&limiter, 5).await;
    let mut answered = late.split_off(20);
    store.set_health(Health::Healthy);
    // Their second poll finds the store well.
    answered.iter_mut().for_each(|late| assert!(late.poll().is_ready()));
    assert!(limiter.is_breaker_open());
    tokio::time::sleep(Duration::from_millis(121)).await;
    check(&limiter).await.unwrap();
    store.set_health(UNAVAILABLE);
    late.iter_mut().for_each(|late| assert!(late.poll().is_ready()));
    assert!(!limiter.is_breaker_open());
}

#[tokio::test(start_paused = true)]
async fn without_traffic_nothing_happens() {
    let (limiter, store) = opened(UNAVAILABLE).await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!((store.sent(), limiter.is_breaker_open()), (5, true));
}

#[tokio::test(start_paused = true)]
async fn switched_off_it_asks_always() {
    for breaker in [
        None,
        Some(
            Breaker::default()
                .with_consecutive_failures(0)
                .with_consecutive_timeouts(0)
                .with_failure_rate_min_samples(0),
        ),
    ] {
        for health in [UNAVAILABLE, Health::Silent] {
            let store = UnhealthyStore::with_breaker(health, breaker);
            let limiter = Limiter::new(store.clone());
            checks(&limiter, 20).await;
            wave(&limiter, 100).await;
            assert_eq!((store.sent(), limiter.is_breaker_open()), (120, false), "{breaker:?}");
        }
    }
}

/// From the moment at which the store answers again, however long it was away.
#[tokio::test(start_paused = true)]
async fn the_first_enforced_decision_comes_within_a_second_of_recovery() {
    let mut random = Random(7);
    for health in [UNAVAILABLE, Health::Silent] {
        for _ in 0..25 {
            let (limiter, store) = opened(UNAVAILABLE).await;
            store.set_health(health);
            probes(&limiter, &store, Duration::from_millis(random.below(8_000))).await;
            store.set_health(Health::Healthy);
            let back = Instant::now();
            while check(&limiter).await.is_err() {
                tokio::time::sleep(MS).await;
            }
            assert!(back.elapsed() <= Duration::from_secs(1), "{:?}", back.elapsed());
        }
    }
}

/// Requests are dropped after any number of polls, or kept for a while without being polled.
#[tokio::test(start_paused = true)]
async fn dropped_probes_never_leave_it_stuck() {
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
        let back = Instant::now();
        // The last of twenty checks may open it although it was answered, if half of them failed.
        while check(&limiter).await.is_err() || limiter.is_breaker_open() {
            tokio::time::sleep(MS).await;
        }
        assert!(back.elapsed() <= Duration::from_secs(1), "round {round}: {:?}", back.elapsed());
    }
}

/// Checks that are given up after a millisecond, each a millisecond after the last one.
async fn reset(limiter: &Limiter, checks: usize) {
    for _ in 0..checks {
        let _ = tokio::time::timeout(MS, limiter.check("k", &policy(), 1)).await;
        tokio::time::sleep(MS).await;
    }
}

/// Clients that reset their streams right after the request are the only ones there are.
#[tokio::test(start_paused = true)]
async fn law_14_clients_that_reset_their_requests_do_not_keep_it_open() {
    let (limiter, store) = opened(UNAVAILABLE).await;
    store.set_health(Health::Slow(10 * MS));
    reset(&limiter, 1_000).await;
    assert!(!limiter.is_breaker_open());
    // One that fails is noticed likewise.
    store.set_health(UNAVAILABLE);
    checks(&limiter, 5).await;
    let asked = store.sent();
    store.set_health(Health::Silent);
    reset(&limiter, 1_000).await;
    assert!(limiter.is_breaker_open());
    assert!((2..20).contains(&(store.sent() - asked)), "{}", store.sent() - asked);
}

/// A generator of xorshift's kind: the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).unwrap()
    }
}
