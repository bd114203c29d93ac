//! A deadline that does not count the time in which the executor did not run.
//!
//! A handler may block its worker threads, and the operating system may stop the whole process (a CPU quota, SIGSTOP, a
//! virtual machine that migrates). Timers then fire before replies that have arrived are read. A plain timeout would
//! take a stall for a silent store. The deadline therefore moves by the length of the stall (see `stalls`), and by
//! `CATCH_UP`, the time to read what has arrived.

use std::task::{Context, Poll, ready};
use std::{future::Future, pin::Pin, time::Duration};

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep};

use crate::runtime::stalls::Begin;

pin_project! {
    /// A deadline that passes when the executor has been running for `time`.
    #[derive(Debug)]
    pub(crate) struct Deadline {
        #[pin]
        timer: Sleep,
        begin: Begin,
        time: Duration,
    }
}

/// Time after a stall to read replies and to run the tasks that they wake. Timers may add 2 ms.
pub(crate) const CATCH_UP: Duration = Duration::from_millis(2);

impl Deadline {
    /// Starts a deadline. `None` without a tokio runtime with timers.
    pub(crate) fn after(time: Duration) -> Option<Self> {
        Some(Self { begin: Begin::now(time)?, timer: sleep(time), time })
    }

    /// Moves the end of the deadline to `more` from now.
    pub(crate) fn extend(self: Pin<&mut Self>, more: Duration) {
        let now = Instant::now();
        let mut this = self.project();
        *this.time = this.begin.running(now).saturating_add(more);
        // A time that cannot be represented never comes.
        if let Some(end) = now.checked_add(more) {
            this.timer.as_mut().reset(end);
        }
    }

    pub(crate) fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        loop {
            ready!(this.timer.as_mut().poll(cx));
            let now = Instant::now();
            let is_catching_up = this.begin.since_last_stall().is_some_and(|since| since < CATCH_UP);
            let time = if is_catching_up { this.time.saturating_add(CATCH_UP) } else { *this.time };
            let left = time.saturating_sub(this.begin.running(now));
            if left.is_zero() {
                return Poll::Ready(());
            }
            this.timer.as_mut().reset(now + left);
        }
    }
}

/// The output of `future`, or `None` if it is not ready within `time`, not counting stalls. Without a tokio runtime
/// with timers, `None` if it is not ready at once.
pub(crate) fn within<F: Future>(time: Duration, future: F) -> Within<F> {
    Within { future, time, deadline: None }
}

pin_project! {
    /// See [`within`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub(crate) struct Within<F> {
        #[pin]
        future: F,
        time: Duration,
        // Starts when the future is not ready at once.
        #[pin]
        deadline: Option<Deadline>,
    }
}

impl<F: Future> Future for Within<F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Some(output));
        }
        if this.deadline.is_none() {
            this.deadline.set(Deadline::after(*this.time));
        }
        match this.deadline.as_pin_mut() {
            Some(deadline) => deadline.poll(cx).map(|()| None),
            None => Poll::Ready(None),
        }
    }
}

#[cfg(test)]
#[path = "../../tests/support/stopwatch.rs"]
#[allow(unreachable_pub)]
mod stopwatch;

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::pin, thread};

    use tokio::{runtime::Handle, task::yield_now, time::advance};

    use super::{stopwatch::Stopwatch, *};
    use crate::{
        clock::micros,
        runtime::{real_time::world_us, stalls::Budget, world::World},
    };

    const TIME: Duration = Duration::from_millis(50);
    /// Stalls of the machine lengthen a wait, as they should. So one of these runs has to be short.
    const RUNS: u32 = 5;

    async fn waited(during: impl FnOnce()) -> Duration {
        let start = std::time::Instant::now();
        let mut deadline = pin!(Deadline::after(TIME).unwrap());
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
    async fn the_deadline_passes_at_its_end_and_not_earlier() {
        for time in [1, 2, 3, 7, 49, 50, 1_000].map(Duration::from_millis) {
            let stopwatch = Stopwatch::start();
            let mut deadline = pin!(Deadline::after(time).unwrap());
            poll_fn(|cx| deadline.as_mut().poll(cx)).await;
            stopwatch.assert_elapsed(time);
        }
        // A time that cannot be represented never comes.
        let mut never = pin!(Deadline::after(Duration::MAX).unwrap());
        assert!(poll_fn(|cx| Poll::Ready(never.as_mut().poll(cx))).await.is_pending());
    }

    #[tokio::test(start_paused = true)]
    async fn an_extended_deadline_passes_at_its_new_end() {
        let mut deadline = pin!(Deadline::after(TIME).unwrap());
        poll_fn(|cx| deadline.as_mut().poll(cx)).await;
        for more in [30, 70].map(Duration::from_millis) {
            let stopwatch = Stopwatch::start();
            deadline.as_mut().extend(more);
            poll_fn(|cx| deadline.as_mut().poll(cx)).await;
            stopwatch.assert_elapsed(more);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_deadline_passes_when_a_test_advances_the_clock() {
        let mut deadline = pin!(Deadline::after(TIME).unwrap());
        assert!(poll_fn(|cx| Poll::Ready(deadline.as_mut().poll(cx))).await.is_pending());
        tokio::time::advance(Duration::from_millis(49)).await;
        assert!(poll_fn(|cx| Poll::Ready(deadline.as_mut().poll(cx))).await.is_pending());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(poll_fn(|cx| Poll::Ready(deadline.as_mut().poll(cx))).await.is_ready());
    }

    /// Time passes in a world, and nothing runs meanwhile.
    async fn stand_still(world: &World, time: Duration) {
        world.set_time_us(world_us().unwrap() + micros(time));
        advance(time).await;
    }

    /// Time passes in a world, and all tasks run each millisecond.
    async fn run(world: &World, millis: u32) {
        for _ in 0..millis {
            stand_still(world, Duration::from_millis(1)).await;
            yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn stalls_are_measured_until_each_wait_must_have_ended() {
        let world = World::enter(0, 1);
        let tasks = || Handle::current().metrics().num_alive_tasks();
        let [wait, stall] = [300, 10_000].map(Duration::from_millis);
        // The second time, the runtime is older than its waits, and has stalled before.
        for _ in 0..2 {
            let (begin, budget) = (Begin::now(wait).unwrap(), Budget::of(wait));
            // A timer of a healthy runtime may be late by 3 ms.
            stand_still(&world, Duration::from_millis(5)).await;
            assert_eq!((budget.spent(), begin.since_last_stall()), (Duration::from_millis(5), None));
            yield_now().await;
            run(&world, 295).await;
            stand_still(&world, stall).await;
            // Before and after its end is measured. 1 ms of a step was left, and a timer is usually late by 2 ms.
            for _ in 0..2 {
                assert_eq!(begin.running(Instant::now()), Duration::from_millis(303));
                assert_eq!(begin.since_last_stall(), Some(Duration::ZERO));
                yield_now().await;
            }
            run(&world, 400).await;
            assert_eq!((begin.since_last_stall(), tasks()), (Some(Duration::from_millis(400)), 1));
            #[cfg(feature = "redis")]
            assert!(!crate::runtime::stalls::has_stalled_within(CATCH_UP));
            run(&world, 10).await;
            assert_eq!(tasks(), 0, "the measurement has ended");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_stall_a_deadline_leaves_the_time_to_read_what_has_arrived() {
        let world = World::enter(0, 1);
        let mut deadline = pin!(Deadline::after(TIME).unwrap());
        assert!(poll_fn(|cx| Poll::Ready(deadline.as_mut().poll(cx))).await.is_pending());
        run(&world, 47).await;
        // With the rest of a step and the usual delay of a timer, the runtime has been running for 50 ms.
        stand_still(&world, 4 * TIME).await;
        for has_passed in [false, false, true] {
            assert_eq!(poll_fn(|cx| Poll::Ready(deadline.as_mut().poll(cx))).await.is_ready(), has_passed);
            yield_now().await;
            run(&world, 1).await;
        }
    }

    /// Uses real time, because the test blocks threads.
    #[tokio::test]
    async fn law_8_stalls_of_the_executor_do_not_count() {
        let stall = Duration::from_millis(200);
        let mut shortest = Duration::MAX;
        for _ in 0..RUNS {
            // The thread blocks during a wait. A plain timeout would have passed when the thread continues.
            let waited = waited(|| thread::sleep(stall)).await;
            assert!(waited >= stall + TIME * 3 / 4, "{waited:?}");
            shortest = shortest.min(waited);
        }
        assert!(shortest < stall + 4 * TIME, "{shortest:?}");
    }

    #[tokio::test]
    async fn law_8_a_stall_late_in_a_long_wait_does_not_count() {
        let (time, before, stall) = (TIME * 8, TIME * 5, TIME * 6);
        let start = std::time::Instant::now();
        let mut deadline = pin!(Deadline::after(time).unwrap());
        let early = tokio::time::timeout(before, poll_fn(|cx| deadline.as_mut().poll(cx))).await;
        assert!(early.is_err(), "{:?}", start.elapsed());
        thread::sleep(stall);
        poll_fn(|cx| deadline.as_mut().poll(cx)).await;
        let waited = start.elapsed();
        assert!(waited >= stall + time * 3 / 4, "{waited:?}");
    }

    #[tokio::test]
    async fn law_8_the_deadline_passes_on_an_executor_that_is_always_late() {
        let hog = tokio::spawn(async {
            loop {
                thread::sleep(Duration::from_millis(10));
                tokio::task::yield_now().await;
            }
        });
        let mut shortest = Duration::MAX;
        for _ in 0..RUNS {
            shortest = shortest.min(waited(|| {}).await);
        }
        hog.abort();
        assert!(shortest < 8 * TIME, "{shortest:?}");
    }
}
