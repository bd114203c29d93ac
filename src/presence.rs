//! How long an executor was away: held up by a handler, by more tasks than it can run, or stopped with its process.
//!
//! While checks wait, one task of each tokio runtime sleeps in short steps. A step that ends late shows that the runtime
//! did not run in the meantime, so replies that had arrived could not be read.

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{
        Arc, LazyLock, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::{self, Handle},
    time::{Instant, sleep_until},
};

/// What is known about one runtime.
#[derive(Debug)]
pub(crate) struct Presence {
    /// Times below count from here.
    start: Instant,
    /// Callers that wait.
    waiting: AtomicUsize,
    is_measured: AtomicBool,
    /// When the step that is under way ends.
    step_ends_us: AtomicU64,
    /// The sum of all absences.
    away_us: AtomicU64,
    /// When the last absence ended.
    back_us: AtomicU64,
}

/// Timers have a resolution of a millisecond.
const STEP: Duration = Duration::from_millis(2);
/// Healthy timers are up to two milliseconds late.
const LATE_US: u64 = 3_000;

/// The time of an absence that has not been.
const NEVER: u64 = u64::MAX;

/// Learns of absences while it lives.
#[derive(Debug)]
pub(crate) struct Watched(Arc<Presence>);

/// Absences up to an instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Absences {
    pub(crate) sum: Duration,
    /// How long ago the last one ended.
    pub(crate) last: Option<Duration>,
}

impl Presence {
    /// Measures the current runtime for as long as the result lives. `None` without a runtime.
    pub(crate) fn watch() -> Option<Watched> {
        let this = Self::current()?;
        this.waiting.fetch_add(1, Ordering::SeqCst);
        if !this.is_measured.swap(true, Ordering::SeqCst) {
            let ends = this.begin_step();
            tokio::spawn(measure(Measuring { presence: Arc::clone(&this), ended: false }, ends));
        }
        Some(Watched(this))
    }

    fn current() -> Option<Arc<Self>> {
        thread_local! {
            static LAST: RefCell<Option<(runtime::Id, Arc<Presence>)>> = const { RefCell::new(None) };
        }
        let id = Handle::try_current().ok()?.id();
        LAST.with_borrow_mut(|last| match last {
            Some((last, presence)) if *last == id => Some(Arc::clone(presence)),
            _ => Some(Arc::clone(&last.insert((id, Self::of(id))).1)),
        })
    }

    /// That of a runtime, by whichever thread it is asked for.
    fn of(id: runtime::Id) -> Arc<Self> {
        static ALL: LazyLock<Mutex<HashMap<runtime::Id, Weak<Presence>>>> = LazyLock::new(Mutex::default);
        // No invariant spans a panic.
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(presence) = all.get(&id).and_then(Weak::upgrade) {
            return presence;
        }
        all.retain(|_, presence| presence.strong_count() > 0);
        let presence = Arc::new(Self {
            start: Instant::now(),
            waiting: AtomicUsize::new(0),
            is_measured: AtomicBool::new(false),
            step_ends_us: AtomicU64::new(0),
            away_us: AtomicU64::new(0),
            back_us: AtomicU64::new(NEVER),
        });
        all.insert(id, Arc::downgrade(&presence));
        presence
    }

    fn us(&self, instant: Instant) -> u64 {
        u64::try_from(instant.saturating_duration_since(self.start).as_micros()).unwrap_or(u64::MAX)
    }

    fn begin_step(&self) -> Instant {
        let ends = Instant::now() + STEP;
        self.step_ends_us.store(self.us(ends), Ordering::Release);
        ends
    }

    fn end_step(&self, ends: Instant) {
        let now_us = self.us(Instant::now());
        let late_us = now_us.saturating_sub(self.us(ends));
        if late_us > LATE_US {
            self.back_us.store(now_us, Ordering::Release);
            self.away_us.fetch_add(late_us, Ordering::Release);
        }
    }

    /// Whether no caller waits. Then the next one starts another measurement.
    fn ends(&self) -> bool {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            return false;
        }
        self.is_measured.store(false, Ordering::SeqCst);
        // A caller that came in between has seen a measurement that was about to end.
        self.waiting.load(Ordering::SeqCst) == 0 || self.is_measured.swap(true, Ordering::SeqCst)
    }
}

impl Watched {
    /// All absences until now, the one that is just ending included: its step may not have been measured yet.
    pub(crate) fn absences(&self, now: Instant) -> Absences {
        let Presence { step_ends_us, away_us, back_us, .. } = &*self.0;
        let now_us = self.0.us(now);
        let overdue_us = now_us.saturating_sub(step_ends_us.load(Ordering::Acquire));
        let unmeasured_us = if overdue_us > LATE_US { overdue_us } else { 0 };
        let back_us = if unmeasured_us > 0 { now_us } else { back_us.load(Ordering::Acquire) };
        Absences {
            sum: Duration::from_micros(away_us.load(Ordering::Acquire) + unmeasured_us),
            last: now_us.checked_sub(back_us).map(Duration::from_micros),
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The duty to measure; a runtime that ends drops it.
struct Measuring {
    presence: Arc<Presence>,
    ended: bool,
}

impl Drop for Measuring {
    fn drop(&mut self) {
        // After a proper end another task may measure already.
        if !self.ended {
            self.presence.is_measured.store(false, Ordering::SeqCst);
        }
    }
}

async fn measure(mut measuring: Measuring, mut ends: Instant) {
    while !measuring.ended {
        sleep_until(ends).await;
        let presence = &measuring.presence;
        presence.end_step(ends);
        ends = presence.begin_step();
        measuring.ended = presence.ends();
    }
}
