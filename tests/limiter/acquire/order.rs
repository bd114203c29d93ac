//! Waiters of one key are served in their order, at the policy's rate.

use std::collections::VecDeque;

use tollgate::store::{Answer, Store, Verdict};
use tollgate::{Check, Key};

use super::*;

/// A store to which checks travel for as long as given here, one after the other, and then at once.
#[derive(Clone, Debug)]
struct FarStore {
    store: MemoryStore,
    ways: Arc<Mutex<VecDeque<Duration>>>,
}

impl Store for FarStore {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        let (store, check) = (self.store.clone(), check.clone());
        let way = self.ways.lock().unwrap().pop_front().unwrap_or_default();
        Answer::pending(async move {
            tokio::time::sleep(way).await;
            match store.check(&check) {
                Answer::Ready(verdict) => verdict,
                Answer::Pending(verdict) => verdict.await,
            }
        })
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.store.reset(key, policy)
    }
}

/// A check that is judged early counts as a denial, and the first denial bans the key.
#[tokio::test(start_paused = true)]
async fn no_check_is_early_under_a_policy_that_bans_although_others_were_held_up_on_their_way() {
    let policy = bucket(100).ban_after(1, Duration::from_secs(3_600));
    for ways_ms in [[8, 0, 0, 0], [0, 8, 0, 0], [1, 9, 3, 0], [30, 20, 10, 5]] {
        let ways = ways_ms.map(Duration::from_millis).into();
        let store = MemoryStore::new().with_clock(TokioClock::new());
        let limiter = Limiter::new(FarStore { store, ways: Arc::new(Mutex::new(ways)) });
        let ended = Ended::default();
        let mut waiting = Vec::new();
        for waiter in 0..6 {
            waiting.push(ended.start(waiter, limiter.acquire(KEY, &policy, 1).within(60 * SECOND)).await);
        }
        for waiter in waiting {
            waiter.await.unwrap();
        }
        assert_eq!(ended.admitted(), [0, 1, 2, 3, 4, 5], "{ways_ms:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_are_served_in_their_order_at_the_rate() {
    let (limiter, ended, start) = (limiter(), Ended::default(), Instant::now());
    for waiter in 0..200 {
        ended.start(waiter, limiter.acquire(KEY, &bucket(50), 1).within(60 * SECOND)).await;
    }
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(ended.admitted(), (0..200).collect::<Vec<_>>());
    let took = ended.last_at() - start;
    // Paused time moves in steps of a millisecond, and a process that is not sure to be alone yields a little at first.
    assert!(took >= Duration::from_millis(3_980) && took < Duration::from_millis(4_200), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_later_and_smaller_request_does_not_overtake() {
    let (limiter, ended) = (limiter(), Ended::default());
    let policy = Policy::per_second("p", 10).unwrap();
    assert!(limiter.check(KEY, &policy, 8).await.unwrap().is_allowed());
    for (waiter, cost) in [(0, 5), (1, 1), (2, 2)] {
        ended.start(waiter, limiter.acquire(KEY, &policy, cost).within(60 * SECOND)).await;
    }
    tokio::time::sleep(SECOND / 2).await;
    assert_eq!(ended.admitted(), [0; 0], "two units are available, and the head needs five");
    tokio::time::sleep(SECOND).await;
    assert_eq!(ended.admitted(), [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn keys_and_policies_have_queues_of_their_own() {
    let (limiter, ended) = (limiter(), Ended::default());
    let (slow, fast) = (bucket(1), Policy::per_second("fast", 10).unwrap());
    ended.start(0, limiter.acquire(KEY, &slow, 1).within(60 * SECOND)).await;
    ended.start(1, limiter.acquire(KEY, &slow, 1).within(60 * SECOND)).await;
    ended.start(2, limiter.acquire("other", &slow, 1).within(60 * SECOND)).await;
    ended.start(3, limiter.acquire(KEY, &fast, 1).within(60 * SECOND)).await;
    tokio::time::sleep(SECOND / 2).await;
    assert_eq!(ended.admitted(), [0, 2, 3]);
    tokio::time::sleep(SECOND).await;
    assert_eq!(ended.admitted(), [0, 2, 3, 1]);
}

#[tokio::test(start_paused = true)]
async fn law_11_clones_share_a_queue_and_plain_checks_share_the_budget() {
    let (limiter, ended) = (limiter(), Ended::default());
    let policy = bucket(1);
    assert!(limiter.check(KEY, &policy, 1).await.unwrap().is_allowed());
    ended.start(0, limiter.clone().acquire(KEY, &policy, 1).within(60 * SECOND)).await;
    ended.start(1, limiter.acquire(KEY, &policy, 1).within(60 * SECOND)).await;
    tokio::time::sleep(SECOND * 3 / 2).await;
    assert_eq!(ended.admitted(), [0]);
    tokio::time::sleep(SECOND).await;
    assert_eq!(ended.admitted(), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn law_1_no_window_of_a_log_admits_more_than_the_limit() {
    let (limiter, ended, start) = (limiter(), Ended::default(), Instant::now());
    let policy = Policy::per_second("p", 10).unwrap();
    for waiter in 0..45 {
        ended.start(waiter, limiter.acquire(KEY, &policy, 1 + waiter as u64 % 3).within(60 * SECOND)).await;
    }
    tokio::time::sleep(20 * SECOND).await;
    assert_eq!(ended.admitted(), (0..45).collect::<Vec<_>>());
    let times: Vec<(u128, u64)> = ended
        .0
        .lock()
        .unwrap()
        .iter()
        .map(|(waiter, at, _)| ((*at - start).as_micros(), 1 + *waiter as u64 % 3))
        .collect();
    for (end, _) in &times {
        let in_window = times.iter().filter(|(at, _)| *at <= *end && *at + 1_000_000 > *end);
        assert!(in_window.map(|(_, cost)| cost).sum::<u64>() <= 10);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_lets_the_waiters_pass() {
    let (limiter, ended) = (limiter(), Ended::default());
    let policy = Policy::per_hour("p", 1).unwrap();
    assert!(limiter.check(KEY, &policy, 1).await.unwrap().is_allowed());
    ended.start(0, limiter.acquire(KEY, &policy, 1).within(7_200 * SECOND)).await;
    tokio::time::sleep(SECOND).await;
    assert_eq!(ended.admitted(), [0; 0]);
    assert!(limiter.reset(KEY, &policy).await.unwrap());
    tokio::time::sleep(SECOND).await;
    assert_eq!(ended.admitted(), [0]);
    // Those who wait for a share during an outage have a queue of their own.
    let limiter = limiter.with_local_fallback(MemoryStore::new(), 1);
    ended.start(1, limiter.acquire(KEY, &policy, 1).fail_local().within(7_200 * SECOND)).await;
    assert!(limiter.reset(KEY, &policy).await.unwrap());
    tokio::time::sleep(SECOND).await;
    assert_eq!(ended.admitted(), [0, 1]);
}
