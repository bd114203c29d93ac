//! A deadline that does not count the time in which the process did not run.
//!
//! A handler may hold its worker threads, and an operating system may stop a whole process (a CPU quota, SIGSTOP, a
//! virtual machine that is moved). Timers then fire before replies that have arrived are read. A plain timeout would
//! take that for a silent store. So a deadline passes in short steps. A step whose timer is late shows that the process
//! was away: the deadline moves by as much as the timer was late, and by a moment to read what has arrived.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};

pin_project! {
    /// Resolves when the process has been running for as long as it was given.
    #[derive(Debug)]
    pub(crate) struct Deadline {
        #[pin]
        timer: Sleep,
        step: Duration,
        step_ends: Instant,
        ends: Instant,
        // How often it may still be extended by CATCH_UP.
        catch_ups: u8,
    }
}

/// More steps find shorter absences and cost more wake-ups of checks that wait.
const STEPS: u32 = 8;
/// Timers have a resolution of a millisecond.
const SHORTEST_STEP: Duration = Duration::from_millis(2);
/// A timer that is later than this was kept from firing. Healthy ones are up to two milliseconds late.
const LATE: Duration = Duration::from_millis(3);
/// Time to read replies and to run the tasks that they wake, after an absence.
const CATCH_UP: Duration = Duration::from_millis(4);
/// So that an executor that is always late does not wait for ever.
const CATCH_UPS: u8 = 4;
/// Sums of times must not overflow.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3_600);

impl Deadline {
    /// Starts now. Needs a tokio runtime with its timer.
    pub(crate) fn after(time: Duration) -> Self {
        let time = time.min(LONGEST);
        let (now, step) = (Instant::now(), (time / STEPS).max(SHORTEST_STEP));
        let ends = now + time;
        let step_ends = ends.min(now + step);
        Self { timer: sleep_until(step_ends), step, step_ends, ends, catch_ups: CATCH_UPS }
    }

    pub(crate) fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        loop {
            ready!(this.timer.as_mut().poll(cx));
            let now = Instant::now();
            let late = now.saturating_duration_since(*this.step_ends);
            if late > LATE {
                *this.ends += late;
                if *this.ends < now + CATCH_UP && *this.catch_ups > 0 {
                    *this.ends = now + CATCH_UP;
                    *this.catch_ups -= 1;
                }
                *this.step_ends = now;
            }
            if *this.step_ends >= *this.ends {
                return Poll::Ready(());
            }
            *this.step_ends = (*this.ends).min(*this.step_ends + *this.step);
            this.timer.as_mut().reset(*this.step_ends);
        }
    }
}

/// The output of `future`, or `None` if it is not ready within `time` of this process running.
///
/// Needs a tokio runtime with its timer only if the future is not ready at its first poll.
#[cfg(feature = "redis")]
pub(crate) async fn within<F: Future>(time: Duration, future: F) -> Option<F::Output> {
    let (mut future, mut deadline) = (pin!(future), pin!(None));
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        if deadline.is_none() {
            deadline.set(Some(Deadline::after(time)));
        }
        let deadline = deadline.as_mut().as_pin_mut().expect("the deadline has just been set");
        deadline.poll(cx).map(|()| None)
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const TIME: Duration = Duration::from_millis(50);

    async fn waited(during: impl FnOnce()) -> Duration {
        let start = std::time::Instant::now();
        let mut deadline = pin!(Deadline::after(TIME));
        let mut during = Some(during);
        poll_fn(|cx| {
            let poll = deadline.as_mut().poll(cx);
            if let Some(during) = during.take() {
                during();
            }
            poll
        })
        .await;
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn it_passes_when_it_ends_and_not_earlier() {
        for time in [1, 2, 3, 7, 49, 50, 1_000, 86_400_000].map(Duration::from_millis) {
            let start = Instant::now();
            let mut deadline = pin!(Deadline::after(time));
            poll_fn(|cx| deadline.as_mut().poll(cx)).await;
            assert_eq!(start.elapsed(), time);
        }
        // So long that it never comes.
        let mut never = pin!(Deadline::after(Duration::MAX));
        assert!(poll_fn(|cx| Poll::Ready(never.as_mut().poll(cx))).await.is_pending());
    }

    /// Real time, because it is about threads that do not run.
    #[tokio::test]
    async fn law_8_time_in_which_the_executor_was_held_up_does_not_count() {
        let away = Duration::from_millis(200);
        // Held up while somebody waits: a plain timeout would be over when the thread comes back.
        let waited = waited(|| thread::sleep(away)).await;
        assert!(waited >= away + TIME * 3 / 4, "{waited:?}");
        assert!(waited < away + 4 * TIME, "{waited:?}");
    }

    #[tokio::test]
    async fn law_8_an_executor_that_is_always_late_does_not_wait_for_ever() {
        let hog = tokio::spawn(async {
            loop {
                thread::sleep(Duration::from_millis(10));
                tokio::task::yield_now().await;
            }
        });
        let waited = waited(|| {}).await;
        hog.abort();
        assert!(waited < 8 * TIME, "{waited:?}");
    }
}
