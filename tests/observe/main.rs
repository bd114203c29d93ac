//! What observers are told, and what is never told to anybody.
#![allow(clippy::unwrap_used)]

mod beside;
mod events;
mod eviction;
mod exempt;
mod instances;
mod log;
mod metrics;
mod notices;
mod privacy;
mod recorder;
mod redis;
mod setup;
#[path = "../support/mod.rs"]
mod support;

use tollgate::{Limiter, ManualClock, MemoryStore, Policy};

use crate::recorder::Recorder;

/// A limiter in memory on a clock that stands still, and what its observer has seen.
pub(crate) fn recorded() -> (Limiter, Recorder) {
    let recorder = Recorder::default();
    let store = MemoryStore::new().with_clock(ManualClock::default());
    (Limiter::new(store).with_observer(recorder.clone()), recorder)
}

pub(crate) fn per_minute(name: &str, limit: u32) -> Policy {
    Policy::per_minute(name, limit).unwrap()
}
