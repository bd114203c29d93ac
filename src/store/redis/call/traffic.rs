//! The traffic of one runtime with one failure domain, which on a cluster is a group of slots with its own breaker.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::{
    check::Check,
    clock::{Clock, SystemClock, micros},
    store::redis::net::slot::SLOT_COUNT,
};

/// The most charges in one call. They take Redis less than half a millisecond.
pub(crate) const MAX_CHARGES_PER_CALL: usize = 2 * Check::MAX_CHARGES;

/// Counts the answers of a failure domain, and the checks that wait for answers.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// Calls that have been answered.
    answers: AtomicU64,
    /// When the last call was answered, by the process's clock.
    answered_us: AtomicU64,
    /// The last time in which the runtime was too late to fire timers, and so to read answers.
    late: Mutex<Lateness>,
    load: Arc<Load>,
}

/// A time in which a runtime fired no timers, by the process's clock.
#[derive(Clone, Copy, Debug, Default)]
struct Lateness {
    from_us: u64,
    until_us: u64,
}

impl Lateness {
    fn length_us(self) -> u64 {
        self.until_us - self.from_us
    }
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

    /// Records that a timer of a check has fired late: the runtime has read no answers for this time.
    pub(crate) fn was_late(&self, by: Duration, now_us: u64) {
        let new = Lateness { from_us: now_us.saturating_sub(micros(by)), until_us: now_us };
        let mut late = self.late();
        // Timers that were due at different times fire together. The one that was due first was late for the whole
        // time.
        if new.from_us > late.until_us || new.length_us() > late.length_us() {
            *late = new;
        }
    }

    /// Whether a call was answered within `period` before `now_us`. The time in which the runtime was late does not
    /// count: answers may have come that the runtime has not read.
    pub(crate) fn has_answered_within(&self, period: Duration, now_us: u64) -> bool {
        let answered_us = self.answered_us.load(Ordering::Relaxed);
        let late = *self.late();
        let late_us = late.until_us.min(now_us).saturating_sub(late.from_us.max(answered_us));
        now_us.saturating_sub(answered_us).saturating_sub(late_us) < micros(period)
    }

    fn late(&self) -> MutexGuard<'_, Lateness> {
        // The value is replaced as a whole, so a poisoned lock is usable.
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
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

/// The number of failure domains of a cluster. A master usually has neighbouring slots. With this number, few domains
/// contain slots of two masters, and each domain has enough traffic for its breaker.
pub(crate) const CLUSTER_DOMAINS: usize = 64;

/// The domain of `slot`, where neighbouring slots form `domains` domains of equal size.
pub(crate) fn domain_of(slot: u16, domains: usize) -> usize {
    usize::from(slot) * domains / usize::from(SLOT_COUNT)
}
