//! The traffic of one runtime with one failure domain.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use crate::{
    check::Check,
    clock::{Clock, SystemClock, micros},
};
use std::time::Duration;

/// The most charges in one call. They take Redis less than half a millisecond.
pub(crate) const MAX_CHARGES_PER_CALL: usize = 2 * Check::MAX_CHARGES;

/// Counts the answers of a failure domain, and the checks that wait for answers.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// Calls that have been answered.
    answers: AtomicU64,
    /// When the last call was answered, by the process's clock.
    answered_us: AtomicU64,
    load: Arc<Load>,
}

/// The checks of all failure domains of a runtime, because all domains share its threads.
#[derive(Debug, Default)]
struct Load {
    /// Checks that wait or are in flight.
    checks: AtomicUsize,
    /// How often there have come to be too many checks.
    crowds: AtomicU64,
}

/// With more checks than two full calls carry, checks delay each other.
const UNCROWDED: usize = 2 * MAX_CHARGES_PER_CALL;

impl Traffic {
    /// The traffic of each of `domains` failure domains of one runtime.
    pub(crate) fn of_domains(domains: usize) -> Box<[Arc<Self>]> {
        let load = Arc::<Load>::default();
        (0..domains).map(|_| Arc::new(Self { load: Arc::clone(&load), ..Self::default() })).collect()
    }

    pub(crate) fn add_check(&self) {
        if self.load.checks.fetch_add(1, Ordering::Relaxed) == UNCROWDED {
            self.load.crowds.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn remove_checks(&self, count: usize) {
        self.load.checks.fetch_sub(count, Ordering::Relaxed);
    }

    /// Records the answer of a call.
    pub(crate) fn answered(&self) {
        self.answered_at(SystemClock.now_us());
    }

    pub(super) fn answered_at(&self, now_us: u64) {
        self.answered_us.store(now_us, Ordering::Relaxed);
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Whether a call was answered within `period` before `now_us`.
    pub(crate) fn has_answered_within(&self, period: Duration, now_us: u64) -> bool {
        now_us.saturating_sub(self.answered_us.load(Ordering::Relaxed)) < micros(period)
    }

    /// The checks that wait or are in flight, in all failure domains.
    pub(crate) fn checks(&self) -> usize {
        self.load.checks.load(Ordering::Relaxed)
    }

    /// Whether there are so many checks that they delay each other.
    pub(crate) fn is_crowded(&self) -> bool {
        self.checks() > UNCROWDED
    }

    /// How often the traffic has become crowded.
    pub(crate) fn crowds(&self) -> u64 {
        self.load.crowds.load(Ordering::Relaxed)
    }
}
