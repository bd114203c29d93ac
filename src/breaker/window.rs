//! The outcomes of calls, as a breaker counts them, and the recent failures: how many in a row, and how many within the
//! last second.

use std::time::Duration;

use tokio::time::Instant;

use crate::breaker::settings::BreakerSettings;
use crate::error::{Error, ErrorKind, StoreEvidence};
use crate::verdict::{Source, Verdict};

/// Counts failures while the breaker is closed.
#[derive(Debug)]
pub(super) struct FailureWindow {
    consecutive_failures: u32,
    consecutive_timeouts: u32,
    /// The current epoch. Each failure or timeout that counts starts another one.
    pub(super) epoch: u64,
    /// The epoch in which the breaker closed. Results of checks from earlier epochs are ignored.
    first_epoch: u64,
    last_second: LastSecond,
}

impl FailureWindow {
    pub(super) fn new(epoch: u64, now: Instant) -> Self {
        Self {
            consecutive_failures: 0,
            consecutive_timeouts: 0,
            epoch,
            first_epoch: epoch,
            last_second: LastSecond::new(now),
        }
    }

    /// Records the outcome of a check that was sent in `epoch`. Returns whether the breaker has to open.
    pub(super) fn record(
        &mut self,
        outcome: CallOutcome,
        epoch: u64,
        now: Instant,
        settings: &BreakerSettings,
    ) -> bool {
        if epoch < self.first_epoch {
            return false;
        }
        match outcome {
            CallOutcome::NoEvidence => return false,
            CallOutcome::Answered => (self.consecutive_failures, self.consecutive_timeouts) = (0, 0),
            // A broken connection fails all checks in flight, which count as one failure.
            CallOutcome::Failed if epoch < self.epoch => return false,
            CallOutcome::Failed => {
                self.consecutive_failures = self.consecutive_failures.saturating_add(1);
                self.epoch += 1;
            }
            CallOutcome::TimedOut if epoch == self.epoch => {
                self.consecutive_timeouts = self.consecutive_timeouts.saturating_add(1);
                self.epoch += 1;
            }
            // Checks in flight together met one stall: one timeout in a row, but each counts in the failure rate.
            CallOutcome::TimedOut => {}
        }
        self.last_second.add(outcome != CallOutcome::Answered, now);
        let reached = |count: u32, threshold: u32| threshold > 0 && count >= threshold;
        let Samples { checks, failed } = self.last_second.sum();
        reached(self.consecutive_failures, settings.consecutive_failures)
            || reached(self.consecutive_timeouts, settings.consecutive_timeouts)
            || (reached(checks, settings.failure_rate_min_samples) && failed.saturating_mul(2) >= checks)
    }

    /// When the breaker closed.
    pub(super) fn closed_at(&self) -> Instant {
        self.last_second.start
    }

    /// Whether the last outcome was a failure.
    pub(super) fn is_failing(&self) -> bool {
        self.consecutive_failures > 0 || self.consecutive_timeouts > 0
    }

    /// Whether there is a failure on record, so that the next answer has to be recorded too.
    pub(super) fn has_failures(&self) -> bool {
        self.consecutive_failures > 0 || self.consecutive_timeouts > 0 || self.last_second.sum().failed > 0
    }
}

/// Counts of the checks of the last second, one for each tenth of a second.
#[derive(Debug)]
struct LastSecond {
    start: Instant,
    /// Number of the latest tenth since `start`.
    latest: u128,
    tenths: [Samples; TENTHS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Samples {
    checks: u32,
    failed: u32,
}

const TENTHS: usize = 10;

impl LastSecond {
    fn new(now: Instant) -> Self {
        Self { start: now, latest: 0, tenths: Default::default() }
    }

    fn add(&mut self, failed: bool, now: Instant) {
        let tenth = now.saturating_duration_since(self.start).as_nanos() / Duration::from_millis(100).as_nanos();
        let passed = tenth.saturating_sub(self.latest);
        for step in 1..=passed.min(TENTHS as u128) {
            *self.at(self.latest + step) = Samples::default();
        }
        self.latest += passed;
        let samples = self.at(self.latest);
        samples.checks = samples.checks.saturating_add(1);
        samples.failed = samples.failed.saturating_add(u32::from(failed));
    }

    fn at(&mut self, tenth: u128) -> &mut Samples {
        let index = usize::try_from(tenth % TENTHS as u128).unwrap_or(0);
        &mut self.tenths[index]
    }

    fn sum(&self) -> Samples {
        self.tenths.iter().fold(Samples::default(), |sum, samples| Samples {
            checks: sum.checks.saturating_add(samples.checks),
            failed: sum.failed.saturating_add(samples.failed),
        })
    }
}

/// What the end of a call says about the store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CallOutcome {
    /// The store answered, with a result or with an error that says nothing about its health.
    Answered,
    /// The store cannot be reached, or answered that it cannot serve.
    Failed,
    /// The store did not answer in time.
    TimedOut,
    /// The call says nothing about the store: it was not sent, or the process itself was the cause of its failure.
    NoEvidence,
}

impl CallOutcome {
    pub(crate) fn of<T>(result: &Result<T, Error>) -> Self {
        let Err(error) = result else { return Self::Answered };
        match error.evidence() {
            StoreEvidence::FromKind | StoreEvidence::Mistake => {}
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
            // A breaker that opened on these kinds would stay open: each probe gets the same reply.
            ErrorKind::BadKey | ErrorKind::InvalidCall | ErrorKind::StoreMisconfigured => Self::Answered,
        }
    }

    /// The outcome of a check. A verdict of the deny cache says nothing, because the store was not asked.
    pub(crate) fn of_verdict(result: &Result<Verdict, Error>) -> Self {
        match result {
            Ok(verdict) if verdict.source == Source::DenyCache => Self::NoEvidence,
            _ => Self::of(result),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the breaker opens when a failure and an answer come `times` times, once in each `pause`, long after its
    /// start.
    fn opens(times: u32, pause: Duration) -> bool {
        let start = Instant::now();
        let mut window = FailureWindow::new(0, start);
        let mut record = |outcome, now| window.record(outcome, u64::MAX, now, &BreakerSettings::default());
        (0..times).map(|number| start + Duration::from_secs(60) + pause * number).any(|now| {
            let opened = record(CallOutcome::Failed, now);
            record(CallOutcome::Answered, now) || opened
        })
    }

    #[test]
    fn half_of_twenty_checks_open_the_breaker_wherever_they_are_in_a_second() {
        for (times, pause, expected) in [(10, 0, true), (10, 100, true), (9, 100, false), (100, 112, false)] {
            assert_eq!(opens(times, Duration::from_millis(pause)), expected, "{times} times, each {pause} ms");
        }
    }

    #[test]
    fn answers_are_recorded_until_the_last_failure_is_a_second_old() {
        for failure in [CallOutcome::Failed, CallOutcome::TimedOut] {
            let start = Instant::now();
            let mut window = FailureWindow::new(0, start);
            let mut has_failures = |outcome, millis| {
                window.record(outcome, 0, start + Duration::from_millis(millis), &BreakerSettings::default());
                window.has_failures()
            };
            assert!(has_failures(failure, 0) && has_failures(CallOutcome::Answered, 999), "{failure:?}");
            assert!(!has_failures(CallOutcome::Answered, 1_000), "{failure:?}");
        }
    }

    #[test]
    fn only_verdicts_of_the_store_are_evidence_that_the_store_answers() {
        for (source, outcome) in [(Source::Store, CallOutcome::Answered), (Source::DenyCache, CallOutcome::NoEvidence)]
        {
            let verdict = Verdict { allowed: false, source, time_us: 0, outcomes: Default::default() };
            assert_eq!(CallOutcome::of_verdict(&Ok(verdict)), outcome);
        }
    }
}
