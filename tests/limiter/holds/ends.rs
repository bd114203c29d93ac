//! The ends of many holds, over a network with a round trip of 20 ms.

use std::sync::atomic::{AtomicU64, Ordering};
use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, timeout};
use tollgate::{FailurePolicy, Limiter, MemoryStore, Policy, limiter::Hold};

use super::distant_store::{DistantStore, LATENCY};
use crate::support::{recorder::Recorder, stopwatch::Stopwatch};

const ROUND_TRIP: Duration = Duration::from_millis(20);

fn slots() -> Policy {
    Policy::concurrent("slots", 1_000_000).unwrap()
}

/// Holds of one slot each, made at the same time.
async fn holds(limiter: &Limiter, key: &'static str, number: usize) -> Vec<Hold> {
    let made: Vec<_> = (0..number).map(|_| tokio::spawn(limiter.hold(key, &slots(), 1))).collect();
    let mut holds = Vec::new();
    for hold in made {
        holds.push(hold.await.unwrap().unwrap().into_result().unwrap());
    }
    holds
}

/// The slots that are taken, in the store.
async fn taken(memory: &MemoryStore, key: &'static str) -> u64 {
    1_000_000 - Limiter::new(memory.clone()).peek(key, &slots()).await.unwrap().available().unwrap()
}

fn stage() -> (Limiter, DistantStore, MemoryStore) {
    let memory = MemoryStore::new();
    let store = DistantStore::over(memory.clone());
    (Limiter::new(store.clone()), store, memory)
}

#[tokio::test(start_paused = true)]
async fn two_thousand_ends_travel_in_one_round_trip() {
    let (limiter, _, memory) = stage();
    let held = holds(&limiter, "k", 2_000).await;
    assert_eq!(taken(&memory, "k").await, 2_000);
    drop(held);
    sleep(ROUND_TRIP).await;
    assert_eq!(taken(&memory, "k").await, 0);
}

/// A burst of clients that hang up on a store that is well.
#[tokio::test(start_paused = true)]
async fn law_15_no_end_of_a_burst_is_given_up_while_the_store_is_well() {
    let recorder = Recorder::default();
    let (limiter, _, memory) = stage();
    let limiter = limiter.with_observer(recorder.clone());
    let held = holds(&limiter, "k", 20_000).await;
    drop(held);
    sleep(20 * ROUND_TRIP).await;
    assert_eq!(taken(&memory, "k").await, 0);
    let events = recorder.take();
    assert_eq!(events.holds.len(), 20_000);
    assert!(events.holds.iter().all(|(.., end)| *end == "dropped"), "none is unanswered");
}

/// The ends of holds whose checks have no verdict are repeated, because a hold may arrive after its end.
#[tokio::test(start_paused = true)]
async fn repeated_ends_delay_no_first_end() {
    let (limiter, store, memory) = stage();
    store.fail_checks(true);
    let lost: Vec<_> = (0..3_000).map(|_| tokio::spawn(limiter.hold("lost", &slots(), 1))).collect();
    for hold in lost {
        assert!(hold.await.unwrap().is_err());
    }
    store.fail_checks(false);
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        let held = holds(&limiter, "k", 100).await;
        drop(held);
        sleep(ROUND_TRIP).await;
        assert_eq!(taken(&memory, "k").await, 0, "the ends of this round");
    }
    let repeats = store.changes();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(store.changes(), repeats, "the repetitions end");
}

/// A master of a cluster is lost with its open holds.
#[tokio::test(start_paused = true)]
async fn a_silent_failure_domain_delays_no_end_of_another_one() {
    let (limiter, store, memory) = stage();
    let lost = holds(&limiter, "first", 3_000).await;
    store.silence_first_domain(true);
    drop(lost);
    for _ in 0..200 {
        let held = holds(&limiter, "second", 10).await;
        drop(held);
        sleep(ROUND_TRIP).await;
        assert_eq!(taken(&memory, "second").await, 0, "the ends of this round");
    }
    store.silence_first_domain(false);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(taken(&memory, "first").await, 0, "sent again when the domain is back");
}

#[tokio::test(start_paused = true)]
async fn law_15_close_waits_until_the_ends_have_arrived() {
    // In each failure domain.
    for (first, second) in [(5_000, 0), (1, 5_000)] {
        let (limiter, _, memory) = stage();
        let held = [holds(&limiter, "first", first).await, holds(&limiter, "second", second).await];
        drop(held);
        limiter.close().await;
        assert_eq!([taken(&memory, "first").await, taken(&memory, "second").await], [0, 0]);
        let stopwatch = Stopwatch::start();
        limiter.close().await;
        stopwatch.assert_elapsed(Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn close_gives_up_on_a_silent_store() {
    let (limiter, store, _) = stage();
    let held = holds(&limiter, "k", 100).await;
    store.silence_first_domain(true);
    drop(held);
    timeout(Duration::from_secs(2), limiter.close()).await.expect("close is bounded");
}

#[tokio::test(start_paused = true)]
async fn law_15_a_hold_future_that_is_dropped_gives_back_what_it_may_have_made() {
    let (limiter, store, memory) = stage();
    for wait in [0, 5, 10, 15] {
        let hold = timeout(Duration::from_millis(wait), limiter.hold("k", &slots(), 1)).await;
        assert!(hold.is_err(), "the future is dropped before its verdict");
        sleep(Duration::from_secs(4)).await;
        assert_eq!(taken(&memory, "k").await, 0, "dropped after {wait} ms");
    }
    let changes = store.changes();
    drop(limiter.hold("k", &slots(), 1));
    sleep(Duration::from_secs(4)).await;
    assert_eq!(store.changes(), changes, "a future that was not polled has sent nothing");
}

#[tokio::test(start_paused = true)]
async fn a_settlement_whose_answer_was_lost_is_counted_in_the_fallback() {
    let memory = MemoryStore::new();
    let store = DistantStore::over(memory.clone());
    let limiter = Limiter::new(store.clone()).with_local_fallback(MemoryStore::new(), 1);
    let tokens = super::with_holds(1_000, tollgate::policy::HoldSettings::new());
    let hold = limiter.hold("k", &tokens, 900).await.unwrap().into_result().unwrap();
    let settled = hold.settle(10);
    // The store has made the change, and its answer is on the way.
    assert!(timeout(LATENCY + Duration::from_millis(5), settled).await.is_err());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(Limiter::new(memory).peek("k", &tokens).await.unwrap().available(), Some(990));
    store.fail_checks(true);
    let decision = FailurePolicy::Closed.resolve(limiter.check("k", &tokens, 990).fail_local().await);
    assert!(decision.is_allowed(), "the share counts 10 units, and not 900");
}

/// Two servers with 10 000 requests a second that run for 5 ms each, and a client of one slot that resets 4 000 a
/// second.
#[tokio::test(start_paused = true)]
async fn law_2_no_request_is_denied_while_slots_are_free_beside_a_client_that_resets_its_requests() {
    const MS: Duration = Duration::from_millis(1);
    let (first, store, memory) = stage();
    let servers = [first, Limiter::new(store)];
    let slots = Policy::concurrent("slots", 400).unwrap();
    let one = Policy::concurrent("one", 1).unwrap();
    let running = Arc::new(AtomicU64::new(0));
    let denied = Arc::new(AtomicU64::new(0));
    let mut most = 0.0_f64;
    for ms in 0..1_500 {
        for request in 0..10 {
            let (limiter, slots) = (servers[request % 2].clone(), slots.clone());
            let (running, denied) = (Arc::clone(&running), Arc::clone(&denied));
            tokio::spawn(async move {
                running.fetch_add(1, Ordering::SeqCst);
                let held = limiter.hold("tenant", &slots, 1).await.unwrap().into_result().ok();
                denied.fetch_add(u64::from(held.is_none()), Ordering::SeqCst);
                sleep(5 * MS).await;
                drop(held);
                running.fetch_sub(1, Ordering::SeqCst);
            });
        }
        for reset in 0..4_u32 {
            let hold = servers[reset as usize % 2].hold("reset", &one, 1);
            tokio::spawn(timeout((5 + 4 * reset) * MS, hold));
        }
        sleep(MS).await;
        if ms >= 500 && ms % 100 == 0 {
            let available = Limiter::new(memory.clone()).peek("tenant", &slots).await.unwrap().available().unwrap();
            most = most.max((400 - available) as f64 / running.load(Ordering::SeqCst) as f64);
        }
    }
    assert_eq!(denied.load(Ordering::SeqCst), 0, "no request is denied");
    assert!(most <= 1.3, "{most} slots are held for each request that runs");
}
