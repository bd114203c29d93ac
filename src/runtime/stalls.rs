//! Stalls: times in which the executor did not run, because a handler blocked it, it had more tasks than it could run,
//! or its process was stopped.
//!
//! While checks wait, one task of each tokio runtime sleeps in short steps. A step that ends late shows that the
//! runtime did not run meanwhile, so that replies that had arrived were not read.
//!
//! Checks mostly read the shared values and rarely write them, to avoid contention between all checks of a process.

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{
        Arc, LazyLock, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::{self, Handle},
    time::{Instant, sleep_until},
};

use crate::{clock::micros, runtime::drivers::Driver};

/// The stalls of one runtime.
#[derive(Debug)]
pub(crate) struct Presence {
    /// The origin of the times below. Real time, because a test that advances tokio's clock does not stall the
    /// executor.
    start: std::time::Instant,
    /// Whether the runtime has timers. Without timers, no wait is possible.
    has_timers: bool,
    is_measured: AtomicBool,
    /// Whether a wait has started since the last step started.
    is_used: AtomicBool,
    /// The longest wait that has started.
    longest_us: AtomicU64,
    /// When the current step ends.
    step_ends_us: AtomicU64,
    /// The sum of all stalls.
    away_us: AtomicU64,
    /// When the last stall ended.
    back_us: AtomicU64,
}

/// Length of a step. Timers have a resolution of one millisecond.
const STEP: Duration = Duration::from_millis(2);
/// Usual delay of a timer on a healthy runtime.
const USUALLY_LATE_US: u64 = 1_000;
/// Largest delay of a timer on a healthy runtime.
const LATE_US: u64 = 3_000;
/// Longer waits are not measured to their ends, because stalls hardly affect them.
const LONGEST_US: u64 = 1_000_000;
/// How long a measurement continues after the longest wait, so that measurements do not start too often.
const REST_US: u64 = 100_000;

/// The runtime and the time at which a wait started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begin {
    runtime: runtime::Id,
    at: Instant,
    /// The sum of all stalls until then.
    away: Duration,
}

impl Begin {
    /// Starts a wait of at most `time` on the current runtime. `None` without a runtime with timers.
    pub(crate) fn now(time: Duration) -> Option<Self> {
        with_current(|runtime, presence| {
            if !presence.has_timers {
                return None;
            }
            let time_us = micros(time).min(LONGEST_US);
            if presence.longest_us.load(Ordering::Relaxed) < time_us {
                presence.longest_us.fetch_max(time_us, Ordering::SeqCst);
            }
            if !presence.is_used.load(Ordering::SeqCst) {
                presence.is_used.store(true, Ordering::SeqCst);
            }
            if !presence.is_measured.load(Ordering::SeqCst) {
                let ends = presence.begin_step();
                if !presence.is_measured.swap(true, Ordering::SeqCst) {
                    tokio::spawn(measure(Measuring { presence: Arc::clone(presence), ended: false }, ends));
                }
            }
            Some(Self { runtime, at: Instant::now(), away: presence.away() })
        })?
    }

    /// The length of all stalls since the start. Zero on another runtime, whose stalls are unknown.
    fn away(&self) -> Duration {
        let away = |runtime, presence: &Arc<Presence>| {
            if runtime == self.runtime { presence.away().saturating_sub(self.away) } else { Duration::ZERO }
        };
        with_current(away).unwrap_or_default()
    }

    /// Time since the last stall. `None` without a stall since the start.
    pub(crate) fn back(&self) -> Option<Duration> {
        with_current(|runtime, presence| {
            let away = runtime == self.runtime && presence.away() > self.away;
            away.then(|| presence.back())
        })?
    }

    /// For how long the runtime has been running since the start.
    pub(crate) fn running(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.at).saturating_sub(self.away())
    }
}

fn with_current<T>(work: impl FnOnce(runtime::Id, &Arc<Presence>) -> T) -> Option<T> {
    thread_local! {
        static LAST: RefCell<Option<(runtime::Id, Arc<Presence>)>> = const { RefCell::new(None) };
    }
    let id = Handle::try_current().ok()?.id();
    if LAST.with_borrow(|last| last.as_ref().is_none_or(|(last, _)| *last != id)) {
        LAST.set(Some((id, Presence::of(id))));
    }
    LAST.with_borrow(|last| last.as_ref().map(|(_, presence)| work(id, presence)))
}

/// The length of a stall, from a timer that was due at `due_us` and has not fired before `now_us`.
fn stall_us(now_us: u64, due_us: u64) -> u64 {
    let late_us = now_us.saturating_sub(due_us);
    if late_us > LATE_US { late_us - USUALLY_LATE_US } else { 0 }
}

impl Presence {
    /// The shared state of a runtime, created by the first thread that needs it.
    fn of(id: runtime::Id) -> Arc<Self> {
        static ALL: LazyLock<Mutex<HashMap<runtime::Id, Weak<Presence>>>> = LazyLock::new(Mutex::default);
        // The map is valid behind a poisoned lock too.
        let lock = || ALL.lock().unwrap_or_else(PoisonError::into_inner);
        let known = |all: &HashMap<runtime::Id, Weak<Presence>>| all.get(&id).and_then(Weak::upgrade);
        if let Some(presence) = known(&lock()) {
            return presence;
        }
        // Without the lock, because a panic hook may check a limit.
        let has_timers = Driver::Timers.is_there();
        let mut all = lock();
        if let Some(presence) = known(&all) {
            return presence;
        }
        all.retain(|_, presence| presence.strong_count() > 0);
        let presence = Arc::new(Self {
            start: std::time::Instant::now(),
            has_timers,
            is_measured: AtomicBool::new(false),
            is_used: AtomicBool::new(false),
            longest_us: AtomicU64::new(0),
            step_ends_us: AtomicU64::new(0),
            away_us: AtomicU64::new(0),
            back_us: AtomicU64::new(0),
        });
        all.insert(id, Arc::downgrade(&presence));
        presence
    }

    fn now_us(&self) -> u64 {
        micros(self.start.elapsed())
    }

    fn begin_step(&self) -> Instant {
        self.step_ends_us.store(self.now_us() + micros(STEP), Ordering::Release);
        Instant::now() + STEP
    }

    fn end_step(&self) {
        let now_us = self.now_us();
        let stall_us = stall_us(now_us, self.step_ends_us.load(Ordering::Acquire));
        if stall_us > 0 {
            self.back_us.store(now_us, Ordering::Release);
            self.away_us.fetch_add(stall_us, Ordering::Release);
        }
    }

    /// The sum of all stalls until now, including one that is just ending and not measured yet.
    fn away(&self) -> Duration {
        Duration::from_micros(self.away_us.load(Ordering::Acquire) + self.unmeasured_us(self.now_us()))
    }

    fn unmeasured_us(&self, now_us: u64) -> u64 {
        let overdue_us = stall_us(now_us, self.step_ends_us.load(Ordering::Acquire));
        if self.is_measured.load(Ordering::SeqCst) { overdue_us } else { 0 }
    }

    /// Time since the last stall.
    fn back(&self) -> Duration {
        let now_us = self.now_us();
        let since_us = now_us.saturating_sub(self.back_us.load(Ordering::Acquire));
        Duration::from_micros(if self.unmeasured_us(now_us) > 0 { 0 } else { since_us })
    }

    /// Whether the measurement ends: the last wait started so long ago that no wait can still be in progress. The next
    /// wait then starts another measurement.
    fn ends(&self, present_since_us: u64) -> bool {
        let longest_us = self.longest_us.load(Ordering::SeqCst);
        if present_since_us < longest_us.saturating_mul(2).saturating_add(REST_US) {
            return false;
        }
        self.is_measured.store(false, Ordering::SeqCst);
        // A wait that started in between has seen a measurement that was about to end.
        !self.is_used.load(Ordering::SeqCst) || self.is_measured.swap(true, Ordering::SeqCst)
    }
}

/// A measurement in progress. A runtime that shuts down drops it.
struct Measuring {
    presence: Arc<Presence>,
    ended: bool,
}

impl Drop for Measuring {
    fn drop(&mut self) {
        // After a regular end another task may already measure.
        if !self.ended {
            self.presence.is_measured.store(false, Ordering::SeqCst);
        }
    }
}

async fn measure(mut measuring: Measuring, mut ends: Instant) {
    let mut used = (0, 0);
    while !measuring.ended {
        sleep_until(ends).await;
        let presence = &measuring.presence;
        presence.end_step();
        ends = presence.begin_step();
        let now = (presence.now_us(), presence.away_us.load(Ordering::Acquire));
        if presence.is_used.swap(false, Ordering::SeqCst) {
            used = now;
        }
        // Waits go on during a stall, so stalls do not count here.
        measuring.ended = presence.ends((now.0 - used.0).saturating_sub(now.1 - used.1));
    }
}
