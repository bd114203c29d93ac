//! What the last checks have come to: rows of failures, and the last second.

use std::time::Duration;

use tokio::time::Instant;

use super::settings::Breaker;
use crate::{
    error::{Error, ErrorKind, StoreEvidence},
    verdict::{Source, Verdict},
};

/// What the end of a check says about the store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CallOutcome {
    /// It answers, whatever the answer.
    Answered,
    /// It cannot be reached, or says that it cannot serve.
    Failed,
    /// It says nothing.
    TimedOut,
    /// The check never got as far.
    NoEvidence,
}

impl CallOutcome {
    pub(crate) fn of<T>(result: &Result<T, Error>) -> Self {
        let Err(error) = result else { return Self::Answered };
        match error.evidence() {
            StoreEvidence::FromKind => {}
            #[cfg(feature = "redis")]
            StoreEvidence::Late => {}
            #[cfg(feature = "redis")]
            StoreEvidence::Answered => return Self::Answered,
            StoreEvidence::HeldBack | StoreEvidence::NotSent => return Self::NoEvidence,
        }
        match error.kind() {
            ErrorKind::Deadline => Self::TimedOut,
            ErrorKind::Unavailable => Self::Failed,
            ErrorKind::Overloaded => Self::NoEvidence,
            // Whoever opens for these opens again after every probe.
            ErrorKind::BadKey | ErrorKind::Config | ErrorKind::Misconfigured => Self::Answered,
        }
    }

    /// The same of a check. A denial from memory is no answer of the store's.
    pub(crate) fn of_verdict(result: &Result<Verdict, Error>) -> Self {
        match result {
            Ok(verdict) if verdict.source == Source::DenyCache => Self::NoEvidence,
            _ => Self::of(result),
        }
    }
}

/// Counts while the circuit is closed.
#[derive(Debug)]
pub(super) struct Tally {
    failures: u32,
    timeouts: u32,
    /// Checks of the same wave were sent before the last failure or timeout that counted.
    pub(super) wave: u64,
    /// What was sent in an earlier wave is of the time before the circuit closed.
    since: u64,
    second: Second,
}

impl Tally {
    pub(super) fn new(wave: u64, now: Instant) -> Self {
        Self { failures: 0, timeouts: 0, wave, since: wave, second: Second::new(now) }
    }

    /// Counts a check and tells whether the circuit is to open.
    pub(super) fn note(&mut self, signal: CallOutcome, wave: u64, now: Instant, limits: &Breaker) -> bool {
        if wave < self.since {
            return false;
        }
        match signal {
            CallOutcome::NoEvidence => return false,
            CallOutcome::Answered => (self.failures, self.timeouts) = (0, 0),
            // A connection that breaks takes all with it that is under way: one failure.
            CallOutcome::Failed if wave < self.wave => return false,
            CallOutcome::Failed => {
                self.failures = self.failures.saturating_add(1);
                self.wave += 1;
            }
            CallOutcome::TimedOut if wave == self.wave => {
                self.timeouts = self.timeouts.saturating_add(1);
                self.wave += 1;
            }
            // One stall, one timeout in a row; but each of them took somebody's time.
            CallOutcome::TimedOut => {}
        }
        self.second.add(signal != CallOutcome::Answered, now);
        let reached = |count: u32, limit: u32| limit > 0 && count >= limit;
        let Count { checks, failed } = self.second.sum();
        reached(self.failures, limits.failures)
            || reached(self.timeouts, limits.timeouts)
            || (reached(checks, limits.half_of) && failed.saturating_mul(2) >= checks)
    }

    /// When it began to count.
    pub(super) fn closed_at(&self) -> Instant {
        self.second.began
    }

    /// Whether there is nothing that an answer could change or dilute.
    pub(super) fn is_quiet(&self) -> bool {
        self.failures == 0 && self.timeouts == 0 && self.second.sum().failed == 0
    }
}

/// The last second, in tenths.
#[derive(Debug)]
struct Second {
    began: Instant,
    latest: u128,
    tenths: [Count; TENTHS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    checks: u32,
    failed: u32,
}

const TENTHS: usize = 10;

impl Second {
    fn new(now: Instant) -> Self {
        Self { began: now, latest: 0, tenths: Default::default() }
    }

    fn add(&mut self, failed: bool, now: Instant) {
        let tenth = now.saturating_duration_since(self.began).as_nanos() / Duration::from_millis(100).as_nanos();
        let passed = tenth.saturating_sub(self.latest);
        for step in 1..=passed.min(TENTHS as u128) {
            *self.at(self.latest + step) = Count::default();
        }
        self.latest += passed;
        let count = self.at(self.latest);
        count.checks = count.checks.saturating_add(1);
        count.failed = count.failed.saturating_add(u32::from(failed));
    }

    fn at(&mut self, tenth: u128) -> &mut Count {
        let index = usize::try_from(tenth % TENTHS as u128).unwrap_or(0);
        &mut self.tenths[index]
    }

    fn sum(&self) -> Count {
        self.tenths.iter().fold(Count::default(), |sum, count| Count {
            checks: sum.checks.saturating_add(count.checks),
            failed: sum.failed.saturating_add(count.failed),
        })
    }
}
