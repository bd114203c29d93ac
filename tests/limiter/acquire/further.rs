//! Callers that are charged under several limits.

use tollgate::ErrorKind;

use super::*;

fn tokens() -> Policy {
    Policy::per_second("tokens", 20).unwrap().with_algorithm(Algorithm::TokenBucket).with_burst(1)
}

fn requests(limit: u64) -> Policy {
    Policy::per_second("requests", limit).unwrap()
}

#[tokio::test(start_paused = true)]
async fn two_limits_are_both_waited_for_and_charged_together() {
    let (limiter, ended, start) = (limiter(), Ended::default(), Instant::now());
    for waiter in 0..5 {
        ended.start(waiter, limiter.acquire(KEY, &tokens(), 1).and(&requests(2), 1).within(10 * SECOND)).await;
    }
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(ended.admitted(), [0, 1, 2, 3, 4]);
    let millis = ended.0.lock().unwrap().iter().map(|(_, at, _)| (*at - start).as_millis()).collect::<Vec<_>>();
    for (at, expected) in millis.iter().zip([0, 50, 1_000, 1_050, 2_000]) {
        // Rivals may be near, so a check is up to 3 ms late; timers tick in milliseconds.
        assert!((expected..expected + 8).contains(at), "{millis:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_charged_for_a_caller_that_one_limit_denies() {
    let (limiter, start) = (limiter(), Instant::now());
    let (first, second) = (Policy::per_minute("first", 10).unwrap(), Policy::per_hour("second", 3).unwrap());
    let acquire = |cost| limiter.acquire(KEY, &first, 1).and(&second, cost).within(SECOND);
    assert!(acquire(2).await.unwrap().is_allowed());
    // A wait of an hour is denied at once, and says how long it would have been.
    let denied = acquire(2).await.unwrap();
    assert!(!denied.is_allowed());
    assert_eq!((denied.retry_after(), start.elapsed()), (Some(3_600 * SECOND), Duration::ZERO));
    // What never fits does not wait either.
    let never = limiter.acquire(KEY, &first, 1).and(&second, 4).within(60 * SECOND).await.unwrap();
    assert!(!never.is_allowed() && start.elapsed().is_zero());
    assert_eq!(limiter.peek(KEY, &first).await.unwrap().available(), Some(9));
    assert_eq!(limiter.peek(KEY, &second).await.unwrap().available(), Some(1));
    assert!(acquire(1).await.unwrap().is_allowed());
}

/// Ten callers wait when units of both limits come back. One check charges for as many as both have room for.
#[tokio::test(start_paused = true)]
async fn waiters_share_a_check_as_far_as_both_limits_have_room() {
    let (limiter, ended, start) = (limiter(), Ended::default(), Instant::now());
    let first = Policy::per_second("first", 100).unwrap();
    for waiter in 0..10 {
        ended.start(waiter, limiter.acquire(KEY, &first, 1).and(&requests(3), 1).within(10 * SECOND)).await;
    }
    // A caller without the further limit keeps its place.
    ended.start(10, limiter.acquire(KEY, &first, 1).within(10 * SECOND)).await;
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(ended.admitted(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    let seconds: Vec<_> = ended.0.lock().unwrap().iter().map(|(_, at, _)| (*at - start).as_secs()).collect();
    assert_eq!(seconds, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3]);
}

#[tokio::test(start_paused = true)]
async fn two_further_limits_of_one_name_are_an_error_of_the_call() {
    let limiter = limiter();
    let acquired = limiter.acquire(KEY, &tokens(), 1).and(&requests(2), 1).and(&requests(3), 1);
    assert_eq!(acquired.within(SECOND).await.unwrap_err().kind(), ErrorKind::InvalidCall);
    assert_eq!(limiter.peek(KEY, &requests(2)).await.unwrap().available(), Some(2));
}

/// One caller waits for an hour for its further limit, another one behind it has none.
#[tokio::test(start_paused = true)]
async fn law_2_a_caller_that_leaves_does_not_keep_the_next_one_back_by_its_further_limit() {
    let (limiter, ended, start) = (limiter(), Ended::default(), Instant::now());
    let (first, second) = (Policy::per_minute("first", 10).unwrap(), Policy::per_hour("second", 3).unwrap());
    assert!(limiter.check(KEY, &second, 3).await.unwrap().is_allowed());
    let hour = 3_600 * SECOND;
    let leaves = ended.start(0, limiter.acquire(KEY, &first, 1).and(&second, 1).within(2 * hour)).await;
    ended.start(1, limiter.acquire(KEY, &first, 1).within(2 * hour)).await;
    tokio::time::sleep(SECOND).await;
    leaves.abort();
    tokio::time::sleep(2 * hour).await;
    assert_eq!((ended.admitted(), ended.last_at() - start), (vec![1], SECOND));
}

/// Both callers wait for the first limit. Then one learns that its further limit takes an hour.
#[tokio::test(start_paused = true)]
async fn law_2_a_caller_that_cannot_wait_for_its_further_limit_takes_nobody_with_it() {
    let (limiter, ended, start) = (limiter(), Ended::default(), Instant::now());
    let (first, second) = (bucket(1), Policy::per_hour("second", 3).unwrap());
    assert!(limiter.check(KEY, &first, 1).await.unwrap().is_allowed());
    assert!(limiter.check(KEY, &second, 3).await.unwrap().is_allowed());
    ended.start(0, limiter.acquire(KEY, &first, 1).and(&second, 1).within(10 * SECOND)).await;
    ended.start(1, limiter.acquire(KEY, &first, 1).within(10 * SECOND)).await;
    tokio::time::sleep(20 * SECOND).await;
    assert_eq!(ended.admitted(), [1]);
    assert!(ended.last_at() - start < SECOND + Duration::from_millis(10), "{:?}", ended.last_at() - start);
}

/// A slot is taken for 100 ms. The first caller is denied for an hour by its further limit.
#[tokio::test(start_paused = true)]
async fn law_2_a_further_limit_denies_no_other_caller_that_waits_for_a_slot() {
    let limiter = limiter();
    let (calls, second) = (Policy::concurrent("calls", 1).unwrap(), Policy::per_hour("second", 3).unwrap());
    assert!(limiter.check(KEY, &second, 3).await.unwrap().is_allowed());
    let held = limiter.hold(KEY, &calls, 1).await.unwrap();
    let acquire = || limiter.acquire_hold(KEY, &calls, 1);
    assert!(!acquire().and(&second, 1).within(10 * SECOND).await.unwrap().is_allowed());
    let waits = tokio::spawn(acquire().within(10 * SECOND));
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(held);
    assert!(waits.await.unwrap().unwrap().is_allowed());
}

/// A caller waits for the further limit alone.
#[tokio::test(start_paused = true)]
async fn a_first_limit_that_delays_nobody_ends_no_wait_for_a_further_one() {
    let low = Policy::per_hour("low", 1).unwrap();
    let blocked = Policy::blocked("blocked").unwrap().with_shadow(true);
    for (first, cost) in [(low.clone().with_shadow(true), 1), (blocked, 1), (low, 0)] {
        let (limiter, ended, start) = (limiter(), Ended::default(), Instant::now());
        let acquire = |max_wait| limiter.acquire(KEY, &first, cost).and(&requests(2), 1).within(max_wait);
        for waiter in 0..5 {
            ended.start(waiter, acquire(10 * SECOND)).await;
        }
        tokio::time::sleep(10 * SECOND).await;
        assert_eq!(ended.admitted(), [0, 1, 2, 3, 4], "{first:?}");
        let seconds: Vec<_> = ended.0.lock().unwrap().iter().map(|(_, at, _)| (*at - start).as_secs()).collect();
        assert_eq!(seconds, [0, 0, 1, 1, 2], "{first:?}");
        // A wait that is too long is denied at once, by the limit that is in the way.
        assert!(limiter.check(KEY, &requests(2), 2).await.unwrap().is_allowed());
        let denied = acquire(SECOND / 2).await.unwrap();
        let names: Vec<&str> = denied.violated().map(|violated| violated.policy.name()).collect();
        assert_eq!((names, denied.retry_after()), (vec!["requests"], Some(SECOND)), "{first:?}");
    }
}

/// A shadow policy denies nothing, so it must not turn a wait into a denial either.
#[tokio::test(start_paused = true)]
async fn shadow_policies_that_never_have_room_end_no_wait() {
    let blocked = Policy::blocked("blocked").unwrap().with_shadow(true);
    let low = Policy::per_hour("low", 1).unwrap().with_shadow(true);
    for (shadow, cost) in [(blocked, 1), (low, 5)] {
        let limiter = limiter();
        let first = Policy::per_second("first", 1).unwrap();
        let acquire = || limiter.acquire(KEY, &first, 1).and(&shadow, cost).within(10 * SECOND);
        assert!(acquire().await.unwrap().is_allowed());
        assert!(acquire().await.unwrap().is_allowed(), "{}", shadow.name());
    }
}
