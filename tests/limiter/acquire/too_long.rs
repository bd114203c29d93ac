//! Waits that are longer than a caller can wait, and too many waiters.

use axum::response::IntoResponse;
use tollgate::{decision::Source, rejection::Reason};

use super::*;
use crate::support::unhealthy_store::{Health, UnhealthyStore};
use crate::support::{PendingStore, says};

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_certain_to_be_too_long_is_denied_at_once() {
    let (limiter, ended, start) = (limiter(), Ended::default(), Instant::now());
    let policy = bucket(10);
    for waiter in 0..20 {
        ended.start(waiter, limiter.acquire(KEY, &policy, 1).within(60 * SECOND)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let denied = limiter.acquire(KEY, &policy, 1).within(SECOND).await.unwrap();
    assert_eq!(start.elapsed().as_millis() / 10, 5, "at once");
    assert!(!denied.is_allowed());
    assert_eq!(denied.source(), Source::Queue);
    // Nineteen wait ahead; the next unit comes after 50 ms.
    let wait = denied.retry_after().unwrap();
    assert!(wait > Duration::from_millis(1_900) && wait <= Duration::from_millis(2_000), "{wait:?}");
    assert!(denied.time().is_some());
    assert!(limiter.acquire(KEY, &policy, 1).within(3 * SECOND).await.unwrap().is_allowed());
}

#[tokio::test(start_paused = true)]
async fn the_units_of_those_ahead_are_waited_for_and_not_those_of_callers_that_have_passed() {
    let (limiter, ended, policy) = (limiter(), Ended::default(), bucket(10).with_burst(5));
    assert!(limiter.check(KEY, &policy, 5).await.unwrap().is_allowed());
    ended.start(0, limiter.acquire(KEY, &policy, 4).within(SECOND)).await;
    let denied = limiter.acquire(KEY, &policy, 5).within(SECOND * 4 / 5).await.unwrap();
    assert_eq!((denied.is_allowed(), denied.retry_after()), (false, Some(SECOND * 9 / 10)));
    // A store that is asked for each of them.
    let (limiter, policy) = (
        Limiter::new(PendingStore(MemoryStore::new().with_clock(TokioClock::new()))),
        Policy::per_hour("p", 100).unwrap(),
    );
    for passed in 0..80 {
        let decision = limiter.acquire(KEY, &policy, 1).within(Duration::ZERO).await.unwrap();
        assert!(decision.is_allowed(), "behind {passed}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_head_is_denied_by_the_store_if_its_wait_is_too_long() {
    let (limiter, start) = (limiter(), Instant::now());
    let policy = Policy::per_minute("p", 1).unwrap();
    assert!(limiter.acquire(KEY, &policy, 1).within(SECOND).await.unwrap().is_allowed());
    let denied = limiter.acquire(KEY, &policy, 1).within(59 * SECOND).await.unwrap();
    assert_eq!(denied.retry_after(), Some(60 * SECOND));
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(limiter.acquire(KEY, &policy, 1).within(60 * SECOND).await.unwrap().is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_zero_is_a_check_that_does_not_overtake() {
    let (limiter, ended) = (limiter(), Ended::default());
    let policy = Policy::per_second("p", 10).unwrap();
    assert!(limiter.acquire(KEY, &policy, 8).within(Duration::ZERO).await.unwrap().is_allowed());
    assert!(!limiter.acquire(KEY, &policy, 3).within(Duration::ZERO).await.unwrap().is_allowed());
    assert!(limiter.acquire(KEY, &policy, 1).within(Duration::ZERO).await.unwrap().is_allowed());
    ended.start(0, limiter.acquire(KEY, &policy, 5).within(SECOND)).await;
    tokio::time::sleep(SECOND / 10).await;
    let overtaking = limiter.acquire(KEY, &policy, 1).within(Duration::ZERO).await.unwrap();
    assert!(!overtaking.is_allowed(), "a unit is available, but somebody waits");
    tokio::time::sleep(SECOND).await;
    assert_eq!(ended.admitted(), [0]);
}

#[tokio::test(start_paused = true)]
async fn a_cost_that_never_fits_is_denied_at_once_and_a_cost_of_zero_passes() {
    let (limiter, start) = (limiter(), Instant::now());
    let policy = bucket(10);
    for is_behind_another in [false, true] {
        let denied = limiter.acquire(KEY, &policy, 2).within(60 * SECOND).await.unwrap();
        assert!(!denied.is_allowed(), "{is_behind_another}");
        assert_eq!(denied.retry_after(), None, "no wait helps");
        assert!(limiter.acquire(KEY, &policy, 0).within(SECOND).await.unwrap().is_allowed(), "{is_behind_another}");
        for waiter in 0..2 {
            Ended::default().start(waiter, limiter.acquire(KEY, &policy, 1).within(SECOND)).await;
        }
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_wait_without_end_is_possible() {
    let limiter = limiter();
    let policy = bucket(1);
    for _ in 0..3 {
        assert!(limiter.acquire(KEY, &policy, 1).within(Duration::MAX).await.unwrap().is_allowed());
    }
}

#[tokio::test(start_paused = true)]
async fn law_6_the_waiters_of_a_key_and_in_all_are_bounded() {
    // The fallback gets queues of its own, with the same bounds.
    let limiter = limiter().with_max_waiters(2, 3).with_local_fallback(MemoryStore::new(), 1);
    let (ended, policy) = (Ended::default(), bucket(1));
    for key in ["a", "b"] {
        assert!(limiter.check(key, &policy, 1).await.unwrap().is_allowed());
    }
    let mut waiting = Vec::new();
    for (waiter, key) in ["a", "a", "b"].into_iter().enumerate() {
        waiting.push(ended.start(waiter, limiter.acquire(key, &policy, 1).within(60 * SECOND)).await);
    }
    for key in ["a", "b", "c"] {
        let refused = limiter.acquire(key, &policy, 1).within(60 * SECOND).await.unwrap();
        assert!(!refused.is_allowed(), "{key}");
        assert_eq!(refused.source(), Source::WaitersFull, "{key}");
        assert!(key != "c" || refused.time().is_none(), "the store has not been asked");
    }
    // A waiter that leaves makes room, also in another queue.
    waiting[0].abort();
    tokio::task::yield_now().await;
    assert!(limiter.acquire("c", &policy, 1).within(60 * SECOND).await.unwrap().is_allowed());
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(ended.admitted().len(), 2);
    says(limiter.with_max_waiters(0, 1).validated().unwrap_err(), "no caller could wait with a bound of 0 waiters; ");
}

/// The response is that of a store that cannot answer. The quota is not spent, as far as anybody knows.
#[tokio::test(start_paused = true)]
async fn a_handler_that_has_no_room_to_wait_responds_with_503_while_nothing_is_known_of_the_key() {
    let (limiter, ended, policy) = (limiter().with_max_waiters(1, 1), Ended::default(), bucket(1));
    assert!(limiter.check("a", &policy, 1).await.unwrap().is_allowed());
    ended.start(0, limiter.acquire("a", &policy, 1).within(60 * SECOND)).await;
    let slots = Policy::concurrent("slots", 1).unwrap();
    let refusals = [
        limiter.acquire("c", &policy, 1).within(60 * SECOND).await.unwrap().into_result().unwrap_err(),
        limiter.acquire_hold("c", &slots, 1).within(60 * SECOND).await.unwrap().into_result().unwrap_err(),
    ];
    for denial in refusals {
        assert_eq!((denial.reason(), denial.retry_after()), (Reason::StoreUnavailable, Some(SECOND)));
        let response = denial.into_response();
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["retry-after"], "1");
        assert_eq!(response.headers()["cache-control"], "no-store");
        assert_eq!(response.extensions().get::<Decision>().unwrap().source(), Source::WaitersFull);
    }
}

/// Nothing is known about the count when the callers join. The first admission shows who cannot pass in time.
#[tokio::test(start_paused = true)]
async fn of_a_burst_on_a_cold_key_those_who_cannot_pass_in_time_are_denied_at_once() {
    let round_trip = Health::Slow(Duration::from_millis(5));
    let store = UnhealthyStore::with_breaker(round_trip, None);
    let limiter = Limiter::new(store.counting_in(MemoryStore::new().with_clock(TokioClock::new())));
    let (ended, start) = (Ended::default(), Instant::now());
    for waiter in 0..8 {
        ended.start(waiter, limiter.acquire(KEY, &bucket(10), 1).within(Duration::from_millis(350))).await;
    }
    tokio::time::sleep(Duration::from_millis(10)).await;
    let hopeless: Vec<usize> = ended.0.lock().unwrap()[1..].iter().map(|(waiter, ..)| *waiter).collect();
    assert_eq!(hopeless, [4, 5, 6, 7], "the units for the others come after 100, 200 and 300 ms");
    tokio::time::sleep(SECOND).await;
    assert_eq!(ended.admitted(), [0, 1, 2, 3]);
    assert!(ended.last_at() - start < Duration::from_millis(350));
}
