//! Events, warnings, logs and metrics.

mod calls_back;
mod event_names;
mod events;
mod exempt;
mod log;
mod metrics;
mod metrics_table;
mod most_refused;
mod near_limit;
mod notices;
mod panics;
mod refusals;
mod requests;
mod setup_warnings;

use tollgate::{Limiter, ManualClock, MemoryStore, observe::Observer};

use crate::support::{per_minute, recorder::Recorder};

/// A limiter over a memory store whose clock stands still, and the recorder of its events.
pub(crate) fn recorded() -> (Limiter, Recorder) {
    let recorder = Recorder::default();
    let store = MemoryStore::new().with_clock(ManualClock::default());
    (Limiter::new(store).with_observer(recorder.clone()), recorder)
}

/// Causes a warning: a store of one key gets a second one.
fn fill_a_store(observer: impl Observer) {
    let limiter = Limiter::new(MemoryStore::with_capacity(1).unwrap()).with_observer(observer);
    for key in 0..2_u64 {
        assert!(limiter.try_check(key, &per_minute("full", 10), 1).unwrap().is_allowed());
    }
}
