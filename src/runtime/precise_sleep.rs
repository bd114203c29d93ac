//! Sleeping to a fraction of a millisecond.
//!
//! tokio's timers tick in milliseconds. A token bucket with a burst of 1 loses the time by which each check is late, so
//! a millisecond for each admission would add up: at 100 admissions a second, a tenth of the rate.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{task::Poll, thread, time::Duration};

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{self, Instant};

use super::real_time::world_us;

/// The last part of a sleep, in which a thread sleeps in place of a timer: the resolution of timers, and the time by
/// which a busy executor is late.
const LAST: Duration = Duration::from_micros(1_500);
/// The end of a sleep, in which the task yields in a loop, because a thread usually sleeps this much too long.
const OVERSLEEP: Duration = Duration::from_micros(200);

/// The number of sleeps that may be precise at a time. The others are as late as a timer. Bounds the processor time and
/// the threads that sleeps take.
const MOST_PRECISE: usize = 2;

/// The number of sleeps that are precise now.
static PRECISE: AtomicUsize = AtomicUsize::new(0);

/// The right to a precise sleep.
struct Permit;

impl Permit {
    fn get() -> Option<Self> {
        // A thread sleeps in real time.
        if world_us().is_some() {
            return None;
        }
        let more = |count: usize| (count < MOST_PRECISE).then_some(count + 1);
        PRECISE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        PRECISE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A thread that sleeps. Aborted when dropped, so that no thread sleeps for a task that is gone.
struct SleepingThread(JoinHandle<()>);

impl Drop for SleepingThread {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sleeps until `until`, and never longer than a timer would.
pub(crate) async fn sleep_until(until: Instant) {
    if let Some(early) = until.checked_sub(LAST)
        && early > Instant::now()
    {
        time::sleep_until(early).await;
    }
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return;
    }
    let Some(_permit) = Permit::get() else { return time::sleep_until(until).await };
    let started = std::time::Instant::now();
    // The timer ends the sleep if all threads for blocking work are busy, and in tests whose time is paused.
    let mut timer = pin!(time::sleep_until(until));
    let mut thread = SleepingThread(spawn_blocking(move || thread::sleep(left.saturating_sub(OVERSLEEP))));
    let mut is_awake = false;
    poll_fn(|cx| {
        if timer.as_mut().poll(cx).is_ready() || Instant::now() >= until {
            return Poll::Ready(());
        }
        is_awake = is_awake || Pin::new(&mut thread.0).poll(cx).is_ready();
        // In real time, because paused time would never pass in this loop.
        if is_awake && started.elapsed() < left {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_sleep_ends_at_its_time_when_time_is_paused() {
        for micros in [0, 1, 70, 999, 1_000, 1_500, 1_501, 20_300, 3_600_000_000] {
            let until = Instant::now() + Duration::from_micros(micros);
            sleep_until(until).await;
            assert!(Instant::now() >= until, "{micros} us");
            assert!(Instant::now() < until + Duration::from_millis(2), "{micros} us");
        }
    }

    #[test]
    fn two_sleeps_are_precise_at_a_time() {
        let start = Instant::now();
        let permit = || loop {
            if let Some(permit) = Permit::get() {
                return permit;
            }
            // The sleeps of other tests may be precise for a while.
            assert!(start.elapsed() < Duration::from_secs(60), "a sleep has not returned its permit");
            std::thread::yield_now();
        };
        for _ in 0..3 {
            let _permits = [permit(), permit()];
            assert!(Permit::get().is_none());
        }
    }

    #[tokio::test]
    async fn a_sleep_ends_when_all_threads_for_blocking_work_are_busy() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
        let (sender, blocked) = std::sync::mpsc::channel::<()>();
        runtime.spawn_blocking(move || blocked.recv());
        let waited = thread::spawn(move || {
            let start = Instant::now();
            runtime.block_on(async {
                let until = Instant::now() + Duration::from_millis(5);
                sleep_until(until).await;
            });
            drop(sender);
            start.elapsed()
        });
        let waited = waited.join().unwrap();
        assert!(waited >= Duration::from_millis(5) && waited < Duration::from_secs(1), "{waited:?}");
    }
}
