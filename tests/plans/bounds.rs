//! Bounds: one look-up for each key, look-ups on their way, and keys in the cache.

use std::sync::{Arc, Barrier};

use tokio::time::sleep;
use tollgate::{GlobalKey, RateLimitLayer, plans::Plans};

use super::{Answer, DEFAULT, Events, SECOND, Source, limit, observed, plan, settle};
use crate::support::app::{app, get_passes, limiter};
use crate::support::per_minute;

#[tokio::test(start_paused = true)]
async fn a_thousand_requests_of_one_key_start_one_look_up() {
    let source = Source::new(Answer::After(SECOND, 2_000));
    let app = app(RateLimitLayer::new(limiter(), source.plans(), GlobalKey));
    let requests = (0..1_000).map(|_| {
        let app = app.clone();
        tokio::spawn(async move { get_passes(&app, "/").await })
    });
    let mut admitted = 0;
    for request in requests.collect::<Vec<_>>() {
        admitted += u64::from(request.await.unwrap());
    }
    assert_eq!((admitted, source.asked()), (DEFAULT, 1));
}

/// In real time, because the threads run in parallel. A source that answers at once makes the race between an answer
/// and the next request likely.
#[test]
fn threads_and_runtimes_that_ask_at_the_same_time_start_one_look_up() {
    for _ in 0..50 {
        let source = Source::new(plan(50));
        let plans = Plans::new(source.clone(), per_minute("p", DEFAULT)).unwrap();
        let start = Arc::new(Barrier::new(4));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (plans, start) = (plans.clone(), Arc::clone(&start));
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                    start.wait();
                    runtime.block_on(async {
                        while limit(&plans, "k") == DEFAULT {
                            tokio::task::yield_now().await;
                        }
                        for _ in 0..100 {
                            assert_eq!(limit(&plans, "k"), 50);
                        }
                    });
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(source.asked(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_keys_starts_no_more_look_ups_than_allowed() {
    let (source, events) = (Source::new(Answer::After(SECOND, 50)), Events::default());
    let plans = observed(source.plans().with_max_lookups(10), events.clone());
    for number in 0..10_000 {
        assert_eq!(limit(&plans, &format!("flood {number}")), DEFAULT);
    }
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 8, "two are kept for known keys");
    settle().await;
    assert_eq!(source.asked(), 8);
    let busy = events.fallbacks().iter().filter(|(cause, _)| *cause == "busy").count();
    assert_eq!(busy, 9_992);
    // The places are free again afterwards.
    sleep(SECOND * 2).await;
    limit(&plans, "a client");
    sleep(SECOND * 2).await;
    assert_eq!(limit(&plans, "a client"), 50);
}

#[tokio::test(start_paused = true)]
async fn a_busy_source_leaves_old_plans_in_force() {
    let source = Source::new(plan(10));
    let plans = source.plans().with_max_lookups(1);
    limit(&plans, "k");
    settle().await;
    sleep(SECOND * 60).await;
    source.answers(Answer::Never);
    limit(&plans, "other");
    assert_eq!(limit(&plans, "k"), 10);
    settle().await;
    assert_eq!(source.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_cache_is_bounded_and_a_flood_of_keys_does_not_push_out_a_busy_key() {
    let source = Source::new(plan(10));
    let plans = source.plans().with_capacity(100);
    for number in 0..4_000 {
        limit(&plans, "busy");
        limit(&plans, &format!("flood {number}"));
        settle().await;
    }
    assert_eq!(limit(&plans, "busy"), 10);
    assert_eq!(source.asked(), 4_001, "the busy key was looked up once");
    let kept = (0..4_000).filter(|number| limit(&plans, &format!("flood {number}")) == 10).count();
    assert!((50..=100).contains(&kept), "{kept} keys of 100 are kept");
}

#[tokio::test(start_paused = true)]
async fn keys_without_a_plan_of_their_own_are_looked_up_once_while_the_cache_has_room_for_them() {
    let source = Source::new(Answer::NoPlan);
    // A quarter is for such keys.
    let plans = source.plans().with_capacity(100);
    for _ in 0..2 {
        for number in 0..20 {
            assert_eq!(limit(&plans, &format!("free {number}")), DEFAULT);
            settle().await;
        }
        assert_eq!(source.asked(), 20);
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_look_ups_a_flood_of_keys_gets_one() {
    let source = Source::new(plan(10));
    let plans = source.plans().with_max_lookups(2);
    limit(&plans, "known");
    settle().await;
    sleep(SECOND * 60).await;
    source.answers(Answer::Never);
    for number in 0..10 {
        limit(&plans, &format!("flood {number}"));
    }
    settle().await;
    assert_eq!(source.asked(), 2, "one of the flood");
    limit(&plans, "known");
    settle().await;
    assert_eq!(source.asked(), 3, "the other one is kept for keys that are known");
}
