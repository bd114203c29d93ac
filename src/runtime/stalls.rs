//! Stalls: times in which the executor did not run, because a handler blocked it, it had more tasks than it could run,
//! or its process was stopped.
//!
//! While checks wait, one task of each tokio runtime sleeps in short steps. A step that ends late shows that the
//! runtime did not run meanwhile, and did not read replies that had arrived.
//!
//! Checks mostly read the shared values and rarely write them, to avoid contention between all checks of a process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::{cell::RefCell, collections::HashMap, time::Duration};

use tokio::runtime::{self, Handle};
use tokio::time::{Instant, sleep_until};

use crate::clock::micros;
use crate::runtime::{drivers::Driver, real_time::RealInstant};

/// The stalls of one runtime.
#[derive(Debug)]
pub(crate) struct RuntimeStalls {
    /// The origin of the times below, in real time, because a test that advances tokio's clock does not stall the
    /// executor.
    start: RealInstant,
    /// Whether the runtime has timers. Without timers, no wait is possible.
    has_timers: bool,
    is_measured: AtomicBool,
    /// Whether a wait has started since the last step started.
    has_new_wait: AtomicBool,
    /// The longest time of a wait that has started.
    longest_us: AtomicU64,
    /// When the current step ends, in microseconds since `start`.
    step_ends_us: AtomicU64,
    /// The origin of the next time, by tokio's clock. While a test has paused that clock, no time passes for a wait, so
    /// the executor does not stall however long a task computes.
    tokio_start: Instant,
    /// When the current step ends, in microseconds since `tokio_start`.
    tokio_step_ends_us: AtomicU64,
    /// The sum of all stalls.
    stalled_us: AtomicU64,
    /// When the last stall ended, in microseconds since `start`.
    last_end_us: AtomicU64,
}

/// Length of a step. Timers have a resolution of one millisecond.
const STEP: Duration = Duration::from_millis(2);
/// Usual delay of a timer on a healthy runtime, in microseconds: timers tick in milliseconds, and the driver rounds its
/// wait up to a millisecond.
const USUALLY_LATE_US: u64 = 2_000;
/// Largest delay of a timer on a healthy runtime, in microseconds.
const LATE_US: u64 = 3_000;
/// Longest wait that is measured to its end, in microseconds. Stalls hardly affect longer waits.
const LONGEST_US: u64 = 1_000_000;
/// How long a measurement continues after the longest wait, in microseconds, so that measurements do not start too
/// often.
const REST_US: u64 = 100_000;

/// The time that a call of several steps has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    begin: Option<Begin>,
    time: Duration,
}

impl Budget {
    /// Starts the first step.
    pub(crate) fn of(time: Duration) -> Self {
        Self { begin: Begin::now(time), time }
    }

    pub(crate) fn spent(&self) -> Duration {
        self.begin.map_or(Duration::ZERO, |begin| begin.running(Instant::now()))
    }

    /// What `spent` leaves: whole milliseconds, because timers round up to them, and two of them must not be later than
    /// one.
    pub(crate) fn left_after(&self, spent: Duration) -> Duration {
        Duration::from_millis(u64::try_from(self.time.saturating_sub(spent).as_millis()).unwrap_or(u64::MAX))
    }
}

/// The runtime and the time at which a wait started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begin {
    runtime: runtime::Id,
    at: Instant,
    /// The sum of all stalls before that time.
    stalled_before: Duration,
}

impl Begin {
    /// Starts a wait of at most `time` on the current runtime. `None` without a runtime with timers.
    pub(crate) fn now(time: Duration) -> Option<Self> {
        with_current(|runtime, stalls| {
            if !stalls.has_timers {
                return None;
            }
            let time_us = micros(time).min(LONGEST_US);
            if stalls.longest_us.load(Ordering::Relaxed) < time_us {
                stalls.longest_us.fetch_max(time_us, Ordering::SeqCst);
            }
            if !stalls.has_new_wait.load(Ordering::SeqCst) {
                stalls.has_new_wait.store(true, Ordering::SeqCst);
            }
            if !stalls.is_measured.load(Ordering::SeqCst) {
                let ends = stalls.begin_step();
                if !stalls.is_measured.swap(true, Ordering::SeqCst) {
                    tokio::spawn(measure(Measuring { stalls: Arc::clone(stalls), ended: false }, ends));
                }
            }
            Some(Self { runtime, at: Instant::now(), stalled_before: stalls.stalled() })
        })?
    }

    /// The length of all stalls since the wait started. Zero on another runtime, whose stalls are unknown.
    fn stalled(&self) -> Duration {
        let stalled = |runtime, stalls: &Arc<RuntimeStalls>| {
            if runtime == self.runtime { stalls.stalled().saturating_sub(self.stalled_before) } else { Duration::ZERO }
        };
        with_current(stalled).unwrap_or_default()
    }

    /// Time since the last stall. `None` without a stall since the wait started.
    pub(crate) fn since_last_stall(&self) -> Option<Duration> {
        with_current(|runtime, stalls| {
            let has_stalled = runtime == self.runtime && stalls.stalled() > self.stalled_before;
            has_stalled.then(|| stalls.since_last_stall())
        })?
    }

    /// For how long the runtime has been running since the wait started, without stalls.
    pub(crate) fn running(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.at).saturating_sub(self.stalled())
    }
}

/// Whether the current runtime has stalled within `time`, as far as a wait on it has measured that.
#[cfg(feature = "redis")]
pub(crate) fn has_stalled_within(time: Duration) -> bool {
    // What a thread drops while it ends may ask.
    LAST.try_with(|_| ()).is_ok()
        && with_current(|_, stalls| !stalls.stalled().is_zero() && stalls.since_last_stall() < time).unwrap_or_default()
}

thread_local! {
    /// The runtime that this thread has asked for last.
    static LAST: RefCell<Option<(runtime::Id, Arc<RuntimeStalls>)>> = const { RefCell::new(None) };
}

/// Calls `work` with the stalls of the current runtime. `None` without a runtime.
fn with_current<T>(work: impl FnOnce(runtime::Id, &Arc<RuntimeStalls>) -> T) -> Option<T> {
    let id = Handle::try_current().ok()?.id();
    if LAST.with_borrow(|last| last.as_ref().is_none_or(|(last, _)| *last != id)) {
        LAST.set(Some((id, RuntimeStalls::of(id))));
    }
    LAST.with_borrow(|last| last.as_ref().map(|(_, stalls)| work(id, stalls)))
}

/// The length of a stall, from a timer that was due at `due_us` and has not fired before `now_us`.
fn stall_us(now_us: u64, due_us: u64) -> u64 {
    let late_us = now_us.saturating_sub(due_us);
    if late_us > LATE_US { late_us - USUALLY_LATE_US } else { 0 }
}

impl RuntimeStalls {
    /// The shared state of a runtime, created by the first thread that needs it.
    fn of(id: runtime::Id) -> Arc<Self> {
        static ALL: LazyLock<Mutex<HashMap<runtime::Id, Weak<RuntimeStalls>>>> = LazyLock::new(Mutex::default);
        // A panic under the lock leaves the map valid, so a poisoned lock is usable.
        let lock = || ALL.lock().unwrap_or_else(PoisonError::into_inner);
        let known = |all: &HashMap<runtime::Id, Weak<RuntimeStalls>>| all.get(&id).and_then(Weak::upgrade);
        if let Some(stalls) = known(&lock()) {
            return stalls;
        }
        // Asked without the lock, because a panic hook may check a limit.
        let has_timers = Driver::Timers.is_there();
        let mut all = lock();
        if let Some(stalls) = known(&all) {
            return stalls;
        }
        all.retain(|_, stalls| stalls.strong_count() > 0);
        let stalls = Arc::new(Self {
            start: RealInstant::now(),
            has_timers,
            is_measured: AtomicBool::new(false),
            has_new_wait: AtomicBool::new(false),
            longest_us: AtomicU64::new(0),
            step_ends_us: AtomicU64::new(0),
            tokio_start: Instant::now(),
            tokio_step_ends_us: AtomicU64::new(0),
            stalled_us: AtomicU64::new(0),
            last_end_us: AtomicU64::new(0),
        });
        all.insert(id, Arc::downgrade(&stalls));
        stalls
    }

    fn now_us(&self) -> u64 {
        micros(self.start.elapsed())
    }

    fn begin_step(&self) -> Instant {
        let ends = Instant::now() + STEP;
        self.tokio_step_ends_us.store(micros(ends.saturating_duration_since(self.tokio_start)), Ordering::Release);
        self.step_ends_us.store(self.now_us() + micros(STEP), Ordering::Release);
        ends
    }

    /// The length of a stall that ends at `now_us`.
    fn overdue_us(&self, now_us: u64) -> u64 {
        let overdue_us = stall_us(now_us, self.step_ends_us.load(Ordering::Acquire));
        if overdue_us == 0 {
            return 0;
        }
        let tokio_us = micros(Instant::now().saturating_duration_since(self.tokio_start));
        overdue_us.min(stall_us(tokio_us, self.tokio_step_ends_us.load(Ordering::Acquire)))
    }

    fn end_step(&self) {
        let now_us = self.now_us();
        let stall_us = self.overdue_us(now_us);
        if stall_us > 0 {
            self.last_end_us.store(now_us, Ordering::Release);
            self.stalled_us.fetch_add(stall_us, Ordering::Release);
        }
    }

    /// The sum of all stalls until now, including a stall that is just ending and not measured yet.
    fn stalled(&self) -> Duration {
        Duration::from_micros(self.stalled_us.load(Ordering::Acquire) + self.unmeasured_us(self.now_us()))
    }

    fn unmeasured_us(&self, now_us: u64) -> u64 {
        let overdue_us = self.overdue_us(now_us);
        if self.is_measured.load(Ordering::SeqCst) { overdue_us } else { 0 }
    }

    /// Time since the last stall.
    fn since_last_stall(&self) -> Duration {
        let now_us = self.now_us();
        let since_us = now_us.saturating_sub(self.last_end_us.load(Ordering::Acquire));
        Duration::from_micros(if self.unmeasured_us(now_us) > 0 { 0 } else { since_us })
    }

    /// Whether the measurement ends: the last wait started so long ago that no wait can still be in progress. The next
    /// wait then starts another measurement.
    fn ends(&self, idle_us: u64) -> bool {
        let longest_us = self.longest_us.load(Ordering::SeqCst);
        if idle_us < longest_us.saturating_mul(2).saturating_add(REST_US) {
            return false;
        }
        self.is_measured.store(false, Ordering::SeqCst);
        // A wait that started just before has relied on the measurement that was about to end.
        !self.has_new_wait.load(Ordering::SeqCst) || self.is_measured.swap(true, Ordering::SeqCst)
    }
}

/// A measurement in progress. A runtime that shuts down drops the measurement.
struct Measuring {
    stalls: Arc<RuntimeStalls>,
    ended: bool,
}

impl Drop for Measuring {
    fn drop(&mut self) {
        // After a regular end, another measurement may have started.
        if !self.ended {
            self.stalls.is_measured.store(false, Ordering::SeqCst);
        }
    }
}

async fn measure(mut measuring: Measuring, mut ends: Instant) {
    let mut last_wait = (0, 0);
    while !measuring.ended {
        sleep_until(ends).await;
        let stalls = &measuring.stalls;
        stalls.end_step();
        ends = stalls.begin_step();
        let now = (stalls.now_us(), stalls.stalled_us.load(Ordering::Acquire));
        if stalls.has_new_wait.swap(false, Ordering::SeqCst) {
            last_wait = now;
        }
        // Stalls do not count here, because waits go on during a stall.
        measuring.ended = stalls.ends((now.0 - last_wait.0).saturating_sub(now.1 - last_wait.1));
    }
}
