//! Waiters that are dropped leave no trace.

use std::sync::atomic::{AtomicUsize, Ordering};

use tollgate::store::{Answer, Store, Verdict};
use tollgate::{Check, Key};

use super::*;
use crate::support::unhealthy_store::{Health, UnhealthyStore};
use crate::support::{random::Random, seed::seeds};

#[tokio::test(start_paused = true)]
async fn the_rest_drain_as_if_dropped_waiters_had_never_come() {
    for seed in seeds(20) {
        let (limiter, ended, start) = (limiter(), Ended::default(), Instant::now());
        let mut random = Random(seed);
        let mut tasks = Vec::new();
        for waiter in 0..200 {
            tasks.push(ended.start(waiter, limiter.acquire(KEY, &bucket(50), 1).within(60 * SECOND)).await);
        }
        // The first waiter has been served at once.
        let mut dropped: Vec<usize> = Vec::new();
        while dropped.len() < 100 {
            let waiter = 1 + random.index(199);
            if !dropped.contains(&waiter) {
                tasks[waiter].abort();
                dropped.push(waiter);
            }
        }
        tokio::time::sleep(10 * SECOND).await;
        let rest: Vec<usize> = (0..200).filter(|waiter| !dropped.contains(waiter)).collect();
        assert_eq!(ended.admitted(), rest, "seed {seed}");
        let took = ended.last_at() - start;
        assert!(took >= Duration::from_millis(1_980) && took < Duration::from_millis(2_150), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_charged_for_a_dropped_waiter() {
    let limiter = limiter();
    let policy = Policy::per_minute("p", 10).unwrap();
    assert!(limiter.check(KEY, &policy, 10).await.unwrap().is_allowed());
    let ended = Ended::default();
    let waiting = ended.start(0, limiter.acquire(KEY, &policy, 5).within(120 * SECOND)).await;
    drop(limiter.acquire(KEY, &policy, 5).within(120 * SECOND));
    tokio::time::sleep(SECOND).await;
    waiting.abort();
    tokio::time::sleep(120 * SECOND).await;
    assert_eq!(limiter.peek(KEY, &policy).await.unwrap().available(), Some(10));
    assert_eq!(ended.admitted(), [0; 0]);
}

/// The check of the waiter is on its way when it leaves, and is denied because of a rival.
#[tokio::test(start_paused = true)]
async fn law_2_nothing_is_charged_later_for_a_waiter_that_has_left_while_its_check_was_denied() {
    let memory = MemoryStore::new().with_clock(TokioClock::new());
    let (way, rival) = (Duration::from_millis(100), Limiter::new(memory.clone()));
    let store = UnhealthyStore::with_breaker(Health::Slow(way), None).with_deadline(SECOND).counting_in(memory);
    let limiter = Limiter::new(store.clone());
    let policy = Policy::per_second("p", 10).unwrap();
    assert!(limiter.check(KEY, &policy, 6).await.unwrap().is_allowed());
    let leaving = tokio::spawn(limiter.acquire(KEY, &policy, 7).within(60 * SECOND));
    tokio::time::sleep(SECOND / 2).await;
    assert!(rival.check(KEY, &policy, 4).await.unwrap().is_allowed());
    let before = store.sent();
    while store.sent() == before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    leaving.abort();
    tokio::time::sleep(SECOND + SECOND / 5).await;
    assert_eq!(rival.peek(KEY, &policy).await.unwrap().available(), Some(10));
}

#[tokio::test(start_paused = true)]
async fn the_next_waiter_takes_the_place_of_a_dropped_head() {
    let (limiter, ended) = (limiter(), Ended::default());
    let policy = Policy::per_second("p", 10).unwrap();
    assert!(limiter.check(KEY, &policy, 8).await.unwrap().is_allowed());
    let head = ended.start(0, limiter.acquire(KEY, &policy, 5).within(60 * SECOND)).await;
    ended.start(1, limiter.acquire(KEY, &policy, 2).within(60 * SECOND)).await;
    tokio::time::sleep(SECOND / 10).await;
    head.abort();
    tokio::time::sleep(SECOND / 10).await;
    assert_eq!(ended.admitted(), [1], "two units are available");
}

#[tokio::test]
async fn waiters_of_another_runtime_go_on_when_the_dispatchers_runtime_ends() {
    let limiter = Limiter::new(MemoryStore::new());
    let policy = Policy::new("p", 1, Duration::from_millis(300)).unwrap();
    assert!(limiter.check(KEY, &policy, 1).await.unwrap().is_allowed());
    let other = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let first = other.spawn(limiter.acquire(KEY, &policy, 1).within(60 * SECOND));
    // The dispatcher runs on the other runtime once its waiter has joined.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let waiting = tokio::spawn(limiter.acquire(KEY, &policy, 1).within(60 * SECOND));
    tokio::time::sleep(Duration::from_millis(50)).await;
    other.shutdown_background();
    assert!(first.await.is_err());
    assert!(waiting.await.unwrap().unwrap().is_allowed());
}

/// One unit a fifth of a second: four callers wait ahead of the last one, which has time for seven.
#[tokio::test]
async fn law_2_waiters_that_join_again_after_their_runtime_has_ended_are_not_counted_twice() {
    let limiter = Limiter::new(MemoryStore::new());
    let policy = Policy::new("p", 1, Duration::from_millis(200)).unwrap();
    assert!(limiter.check(KEY, &policy, 1).await.unwrap().is_allowed());
    let other = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let first = other.spawn(limiter.acquire(KEY, &policy, 1).within(60 * SECOND));
    tokio::time::sleep(Duration::from_millis(20)).await;
    let ended = Ended::default();
    for waiter in 0..4 {
        ended.start(waiter, limiter.acquire(KEY, &policy, 1).within(60 * SECOND)).await;
    }
    other.shutdown_background();
    assert!(first.await.is_err());
    tokio::time::sleep(Duration::from_millis(20)).await;
    let last = limiter.acquire(KEY, &policy, 1).within(Duration::from_millis(1_400)).await.unwrap();
    assert!(last.is_allowed(), "{last:?}");
    assert_eq!(ended.admitted().len(), 4);
}

/// The first runtime serves the queue, and then blocks its only thread.
#[tokio::test]
async fn waiters_go_on_when_the_runtime_that_serves_the_queue_stands_still() {
    let limiter = Limiter::new(MemoryStore::new());
    let policy = Policy::new("p", 1, Duration::from_millis(200)).unwrap();
    assert!(limiter.check(KEY, &policy, 1).await.unwrap().is_allowed());
    let (blocked, is_blocked) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let first = limiter.acquire(KEY, &policy, 1).within(60 * SECOND);
    let other = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let waiting = tokio::spawn(first);
            tokio::time::sleep(Duration::from_millis(20)).await;
            blocked.send(()).unwrap();
            // A handler that blocks its thread.
            let _ = ended.recv();
            waiting.await.unwrap().unwrap().is_allowed()
        })
    });
    is_blocked.recv().unwrap();
    let second = limiter.acquire(KEY, &policy, 1).within(60 * SECOND);
    let admitted = tokio::time::timeout(5 * SECOND, second).await.expect("another runtime takes over").unwrap();
    assert!(admitted.is_allowed());
    end.send(()).unwrap();
    assert!(tokio::task::spawn_blocking(|| other.join().unwrap()).await.unwrap());
}

/// A runtime that stands still while its check is on its way. Meanwhile another runtime serves and ends the queue.
#[tokio::test]
async fn law_9_a_verdict_that_is_read_late_still_reaches_its_waiter() {
    let store = UnhealthyStore::with_breaker(Health::Slow(Duration::from_millis(30)), None);
    let limiter = Limiter::new(store.clone());
    let policy = Policy::per_minute("p", 10).unwrap();
    let (blocked, is_blocked) = std::sync::mpsc::channel();
    let first = limiter.acquire(KEY, &policy, 1).within(60 * SECOND);
    let other = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let waiting = tokio::spawn(first);
            tokio::time::sleep(Duration::from_millis(10)).await;
            blocked.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(700));
            waiting.await.unwrap().unwrap().is_allowed()
        })
    });
    is_blocked.recv().unwrap();
    let second = limiter.acquire(KEY, &policy, 1).within(60 * SECOND).await.unwrap();
    assert!(second.is_allowed());
    // Without waiters and without anything to remember, the queue is gone when the first runtime goes on.
    limiter.reset(KEY, &policy).await.unwrap();
    assert!(tokio::task::spawn_blocking(|| other.join().unwrap()).await.unwrap());
    assert_eq!(store.sent(), 2, "one check for each");
}

/// A store that charges at once and answers later, as over a network.
#[derive(Clone, Debug, Default)]
struct LateAnswers {
    memory: MemoryStore,
    /// The number of checks that were charged.
    charged: Arc<AtomicUsize>,
}

impl Store for LateAnswers {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        let (store, check) = (self.clone(), check.clone());
        Answer::pending(async move {
            let Answer::Ready(verdict) = store.memory.check(&check) else { panic!("memory answers at once") };
            store.charged.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(30)).await;
            verdict
        })
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.memory.reset(key, policy)
    }
}

/// A caller whose check may have charged may go on, by its failure policy, so its unit must not go to another caller.
#[tokio::test]
async fn law_14_the_unit_of_a_caller_that_got_an_error_goes_to_no_other_caller() {
    let store = LateAnswers::default();
    let (limiter, charged) = (Limiter::new(store.clone()).without_notices(), store.charged);
    let policy = Policy::new("p", 2, 2 * SECOND).unwrap();
    let start = std::time::Instant::now();
    let first = limiter.acquire(KEY, &policy, 1).within(60 * SECOND);
    let (asking, is_asking) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let first = tokio::spawn(first);
            tokio::time::sleep(Duration::from_millis(5)).await;
            asking.send(()).unwrap();
            assert!(first.await.unwrap().unwrap().is_allowed());
            // The answer to the second check is on its way when this thread stands still.
            while charged.load(Ordering::SeqCst) < 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            std::thread::sleep(SECOND);
            tokio::time::sleep(SECOND / 10).await;
        });
    });
    is_asking.recv().unwrap();
    let second = limiter.acquire(KEY, &policy, 1).within(Duration::from_millis(10)).await;
    assert!(second.unwrap_err().may_have_charged());
    let third = limiter.acquire(KEY, &policy, 1).within(60 * SECOND).await.unwrap();
    assert!(third.is_allowed());
    assert!(start.elapsed() >= 2 * SECOND, "both units of the window were charged: {:?}", start.elapsed());
    tokio::task::spawn_blocking(|| other.join().unwrap()).await.unwrap();
}

/// A runtime that serves a queue and then does not run, because no thread drives it.
#[test]
fn a_queue_does_not_wait_for_a_runtime_that_no_thread_drives() {
    let limiter = Limiter::new(MemoryStore::new());
    let policy = Policy::per_second("p", 100).unwrap();
    let runtimes = [(); 2].map(|()| tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());
    for runtime in runtimes.iter().cycle().take(6) {
        let acquired = limiter.acquire(KEY, &policy, 1).within(SECOND);
        let in_time = async { tokio::time::timeout(SECOND, acquired).await };
        assert!(runtime.block_on(in_time).unwrap().unwrap().is_allowed());
    }
}

/// The reply has woken the caller's task, which is dropped before it runs.
#[tokio::test(start_paused = true)]
async fn the_unit_of_a_caller_that_leaves_before_it_reads_its_admission_goes_to_the_next() {
    let (limiter, ended, start) = (limiter(), Ended::default(), Instant::now());
    assert!(limiter.check(KEY, &bucket(1), 1).await.unwrap().is_allowed());
    let mut leaving = Box::pin(limiter.acquire(KEY, &bucket(1), 1).within(60 * SECOND));
    tokio::time::timeout(Duration::ZERO, &mut leaving).await.unwrap_err();
    ended.start(0, limiter.acquire(KEY, &bucket(1), 1).within(60 * SECOND)).await;
    tokio::time::sleep(Duration::from_millis(1_030)).await;
    drop(leaving);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(ended.admitted(), [0], "one unit was there after 1 s, and its caller has left");
    assert!(ended.last_at() - start < Duration::from_millis(1_032));
}

/// Ten callers in one task, which does something else while their turns come, and then goes away.
#[tokio::test(start_paused = true)]
async fn units_of_callers_that_leave_long_after_their_turns_admit_nobody() {
    let (limiter, ended) = (limiter(), Ended::default());
    assert!(limiter.check(KEY, &bucket(1), 1).await.unwrap().is_allowed());
    let mut leaving = Vec::new();
    for _ in 0..10 {
        let mut acquired = Box::pin(limiter.acquire(KEY, &bucket(1), 1).within(60 * SECOND));
        tokio::time::timeout(Duration::ZERO, &mut acquired).await.unwrap_err();
        leaving.push(acquired);
    }
    for waiter in 0..3 {
        ended.start(waiter, limiter.acquire(KEY, &bucket(1), 1).within(60 * SECOND)).await;
    }
    tokio::time::sleep(Duration::from_millis(10_500)).await;
    drop(leaving);
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(ended.admitted(), [0, 1, 2]);
    let times: Vec<Instant> = ended.0.lock().unwrap().iter().map(|(_, at, _)| *at).collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= SECOND * 99 / 100), "{times:?}");
}
