//! Events, warnings, logs and metrics.

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

use tollgate::{Limiter, ManualClock, MemoryStore};

use crate::support::recorder::Recorder;

/// A limiter over a memory store whose clock stands still, and the recorder of its events.
pub(crate) fn recorded() -> (Limiter, Recorder) {
    let recorder = Recorder::default();
    let store = MemoryStore::new().with_clock(ManualClock::default());
    (Limiter::new(store).with_observer(recorder.clone()), recorder)
}
