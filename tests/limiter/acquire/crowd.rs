//! Very many callers.

use std::fs;
use std::task::{Context, Waker};

use super::*;

/// Each of them is dropped in its own time, so none must look at the others.
#[tokio::test(start_paused = true)]
async fn ten_thousand_callers_that_leave_cost_little_and_leave_nothing() {
    let (limiter, policy) = (limiter(), bucket(1));
    assert!(limiter.check(KEY, &policy, 1).await.unwrap().is_allowed());
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting: Vec<_> =
        (0..10_000).map(|_| Box::pin(limiter.acquire(KEY, &policy, 1).within(100_000 * SECOND))).collect();
    for acquired in &mut waiting {
        assert!(acquired.as_mut().poll(&mut context).is_pending());
    }
    let full = limiter.acquire(KEY, &policy, 1).within(100_000 * SECOND).await.unwrap();
    assert!(!full.is_allowed(), "ten thousand wait");
    let start = std::time::Instant::now();
    drop(waiting);
    let left = start.elapsed();
    println!("10 000 callers left in {left:?}");
    // If each looked at the others, they would take seconds.
    let asserts_times = std::env::var_os("TOLLGATE_TIMES").is_some();
    assert!(!asserts_times || left < SECOND / 10, "{left:?}");
    // The next unit goes to the next caller, as if nobody had waited.
    let start = Instant::now();
    assert!(limiter.acquire(KEY, &policy, 1).within(2 * SECOND).await.unwrap().is_allowed());
    assert!(start.elapsed() <= SECOND + SECOND / 100, "{:?}", start.elapsed());
}

/// The resident memory of this process, in bytes.
fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}

/// Alone in its process, because other tests take memory too.
#[tokio::test(start_paused = true)]
#[ignore = "long"]
#[cfg(target_os = "linux")]
async fn long_a_hundred_thousand_waiters_of_a_hundred_thousand_keys_take_less_than_two_hundred_megabytes() {
    let (limiter, policy) = (limiter(), Policy::per_hour("p", 1).unwrap());
    for key in 0..100_000_u64 {
        assert!(limiter.check(key, &policy, 1).await.unwrap().is_allowed());
    }
    let before = resident();
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting: Vec<_> =
        (0..100_000_u64).map(|key| Box::pin(limiter.acquire(key, &policy, 1).within(7_200 * SECOND))).collect();
    for acquired in &mut waiting {
        assert!(acquired.as_mut().poll(&mut context).is_pending());
    }
    tokio::time::sleep(SECOND).await;
    let taken = resident().saturating_sub(before);
    println!("100 000 waiters of 100 000 keys take {} MB with their tasks and futures", taken / 1_000_000);
    assert!(taken < 200_000_000, "{taken}");
    let refused = limiter.acquire(0_u64, &policy, 1).within(7_200 * SECOND).await.unwrap();
    assert_eq!(refused.source(), tollgate::decision::Source::WaitersFull);
}
