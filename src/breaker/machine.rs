//! The states of a breaker: closed, open, probing; and the reports of its changes to an observer.
//! `tests/limiter/breaker/` has one test for each transition.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, mem, time::Duration};

use tokio::time::Instant;

use crate::breaker::settings::{BreakerSettings, HOUR};
use crate::breaker::window::{CallOutcome, FailureWindow};
use crate::error::{Error, ErrorKind, StoreEvidence};
use crate::observe::{BreakerState, Event, Observer, ObserverCell};

/// Decides whether a check is sent, and records the outcomes of checks.
///
/// A closed breaker without failures costs a check a few atomic loads: outcomes are recorded only after a first
/// failure.
pub(super) struct Machine {
    settings: BreakerSettings,
    /// How long a probe may take before another probe replaces it. A caller may keep the probe's future without polling
    /// it.
    probe_timeout: Duration,
    /// Time from the return of the store until every instance has noticed it.
    recovery: Duration,
    /// Set when the breaker closes after an outage. Cleared by the first [`is_recovering`](Self::is_recovering)
    /// after the recovery time.
    recovering: AtomicBool,
    /// Whether the state is open or probing, readable without the lock.
    not_closed: AtomicBool,
    /// Whether the window has a failure, so that answers have to be recorded too.
    has_failures: AtomicBool,
    /// Incremented, under the lock only, with every failure or timeout that counts and every change of state except to
    /// open. Results of checks that were sent in an earlier epoch are ignored.
    epoch: AtomicU64,
    state: Mutex<MachineState>,
    notifier: Arc<Notifier>,
}

enum MachineState {
    Closed(FailureWindow),
    /// No check is sent before `until`.
    Open {
        until: Instant,
        round: u32,
    },
    /// One check is in flight, or after a pause many; after `until` they count as lost.
    Probing {
        number: u64,
        until: Instant,
        round: u32,
        /// Whether all checks are probes: none has come for so long that the failures say nothing about the store.
        after_pause: bool,
    },
}

impl MachineState {
    fn name(&self) -> BreakerState {
        match self {
            Self::Closed(_) => BreakerState::Closed,
            Self::Open { .. } => BreakerState::Open,
            Self::Probing { .. } => BreakerState::Probing,
        }
    }
}

/// The right to send a check.
pub(super) enum Grant {
    Ordinary { epoch: u64 },
    Probe(Probe),
}

/// A probe: the only check in flight, or one of those after a pause. If a probe is dropped without an outcome, another
/// probe may be sent.
pub(super) struct Probe {
    machine: Arc<Machine>,
    number: u64,
    settled: bool,
}

/// Time within which an instance notices that its store is back, including the time to dial.
const RECOVERY: Duration = Duration::from_secs(1);

impl Machine {
    pub(super) fn new(settings: BreakerSettings, deadline: Duration, notifier: Arc<Notifier>) -> Self {
        // A deadline may be arbitrarily long; sums of times must not overflow.
        let deadline = deadline.min(HOUR);
        Self {
            settings,
            probe_timeout: deadline + settings.probe_interval(0),
            recovery: RECOVERY.max(settings.longest_probe_interval + 2 * deadline),
            recovering: AtomicBool::new(false),
            not_closed: AtomicBool::new(false),
            has_failures: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            state: Mutex::new(MachineState::Closed(FailureWindow::new(0, Instant::now()))),
            notifier,
        }
    }

    /// Permits a check, or returns an error while the breaker is open.
    pub(super) fn admit(self: &Arc<Self>) -> Result<Grant, Error> {
        if !self.not_closed.load(Ordering::Acquire) {
            return Ok(Grant::Ordinary { epoch: self.epoch.load(Ordering::Acquire) });
        }
        let state = self.lock();
        let now = Instant::now();
        let (until, round, after_pause) = match *state {
            MachineState::Closed(_) => return Ok(Grant::Ordinary { epoch: self.epoch.load(Ordering::Acquire) }),
            MachineState::Open { until, round } => (until, round, now >= until + self.settings.longest_probe_interval),
            MachineState::Probing { number, until, after_pause: true, .. } if now < until => {
                return Ok(Grant::Probe(self.probe(number)));
            }
            MachineState::Probing { until, round, .. } => (until, round, false),
        };
        if now < until {
            let message = "the circuit breaker is open, because the last checks failed";
            return Err(Error::new(ErrorKind::Unavailable, message).with_evidence(StoreEvidence::NotSent));
        }
        // Open => Probing; Probing => Probing, when the probe is lost.
        let number = self.next_epoch();
        self.change(state, MachineState::Probing { number, until: now + self.probe_timeout, round, after_pause });
        Ok(Grant::Probe(self.probe(number)))
    }

    fn probe(self: &Arc<Self>, number: u64) -> Probe {
        Probe { machine: Arc::clone(self), number, settled: false }
    }

    /// Reports the outcome of a check.
    pub(super) fn settle(&self, grant: Grant, outcome: CallOutcome) {
        match grant {
            Grant::Ordinary { .. }
                if outcome == CallOutcome::Answered && !self.has_failures.load(Ordering::Acquire) => {}
            Grant::Ordinary { epoch } => self.record(epoch, outcome),
            Grant::Probe(probe) => probe.settle(outcome),
        }
    }

    /// Whether no checks are sent except probes.
    pub(super) fn is_open(&self) -> bool {
        self.not_closed.load(Ordering::Acquire)
    }

    /// Whether an answer to the next check would say that the store is back: the check would be a probe, or the breaker
    /// is closed and the last check has failed.
    pub(super) fn awaits_answer(&self) -> bool {
        (self.is_open() || self.has_failures.load(Ordering::Acquire))
            && match &*self.lock() {
                MachineState::Closed(window) => window.is_failing(),
                MachineState::Probing { after_pause: true, .. } => true,
                MachineState::Open { until, .. } | MachineState::Probing { until, .. } => *until <= Instant::now(),
            }
    }

    /// Whether the store has come back so recently that other instances may not have noticed.
    pub(super) fn is_recovering(&self) -> bool {
        if !self.recovering.load(Ordering::Acquire) {
            return false;
        }
        let state = self.lock();
        let is_recent = |window: &FailureWindow| Instant::now() < window.closed_at() + self.recovery;
        let recovering = matches!(&*state, MachineState::Closed(window) if is_recent(window));
        self.recovering.store(recovering, Ordering::Release);
        recovering
    }

    fn record(&self, epoch: u64, outcome: CallOutcome) {
        let mut state = self.lock();
        // In another state, the check was sent before the breaker opened. Only a probe can close the breaker.
        let MachineState::Closed(window) = &mut *state else { return };
        let now = Instant::now();
        let opens = window.record(outcome, epoch, now, &self.settings);
        self.epoch.store(window.epoch, Ordering::Release);
        self.has_failures.store(opens || window.has_failures(), Ordering::Release);
        if opens {
            // Closed => Open.
            self.not_closed.store(true, Ordering::Release);
            self.change(state, MachineState::Open { until: now + self.settings.probe_interval(0), round: 0 });
        }
    }

    fn settle_probe(&self, number: u64, outcome: CallOutcome) {
        let state = self.lock();
        let MachineState::Probing { number: current, round, after_pause, .. } = *state else { return };
        let now = Instant::now();
        let open = |round, interval| MachineState::Open { until: now + self.settings.probe_interval(interval), round };
        let next = match outcome {
            // Probing => Closed. An answer to a probe that counted as lost closes the breaker too.
            CallOutcome::Answered => {
                self.has_failures.store(false, Ordering::Release);
                self.recovering.store(true, Ordering::Release);
                self.not_closed.store(false, Ordering::Release);
                MachineState::Closed(FailureWindow::new(self.next_epoch(), now))
            }
            _ if number != current => return,
            // Probing => Open, for longer than before.
            CallOutcome::Failed | CallOutcome::TimedOut => open(round.saturating_add(1), round.saturating_add(1)),
            // The other probes are still in flight.
            CallOutcome::NoEvidence if after_pause => return,
            // Probing => Open for the shortest interval: a dropped probe says nothing, and the store may be back.
            CallOutcome::NoEvidence => open(round, 0),
        };
        self.change(state, next);
    }

    fn change(&self, mut state: MutexGuard<'_, MachineState>, next: MachineState) {
        let change = self.notifier.count(state.name(), next.name());
        *state = next;
        drop(state);
        if let Some(change) = change {
            self.notifier.report(&change);
        }
    }

    fn next_epoch(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn lock(&self) -> MutexGuard<'_, MachineState> {
        // The state is replaced as a whole, so a poisoned lock is usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Probe {
    pub(super) fn settle(mut self, outcome: CallOutcome) {
        self.settled = true;
        self.machine.settle_probe(self.number, outcome);
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if !mem::replace(&mut self.settled, true) {
            self.machine.settle_probe(self.number, CallOutcome::NoEvidence);
        }
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine")
            .field("settings", &self.settings)
            .field("open", &self.is_open())
            .finish_non_exhaustive()
    }
}

/// Sums up the breakers of one store as one state: open if one is open, else probing if one is probing, else closed.
///
/// Observers are called without a lock, because they may block or do something that changes a breaker again.
/// Two threads may therefore report two changes in either order; their sequence numbers say which came first.
#[derive(Default)]
pub(super) struct Notifier {
    observer: ObserverCell,
    counts: Mutex<NotClosed>,
}

/// Number of breakers in each state other than closed.
#[derive(Default)]
struct NotClosed {
    open: usize,
    probing: usize,
}

impl NotClosed {
    fn state(&self) -> BreakerState {
        match (self.open, self.probing) {
            (0, 0) => BreakerState::Closed,
            (0, _) => BreakerState::Probing,
            _ => BreakerState::Open,
        }
    }

    fn count_mut(&mut self, state: BreakerState) -> Option<&mut usize> {
        match state {
            BreakerState::Closed => None,
            BreakerState::Open => Some(&mut self.open),
            BreakerState::Probing => Some(&mut self.probing),
        }
    }
}

impl Notifier {
    pub(super) fn set_observer(&self, observer: Option<&Arc<dyn Observer>>) {
        self.observer.set(observer.cloned());
    }

    /// Counts the change of one breaker. Returns the change of the sum, if there is one.
    ///
    /// Must be called under the breaker's lock, so that sequence numbers follow the order of changes.
    pub(super) fn count(&self, from: BreakerState, to: BreakerState) -> Option<Event<'static>> {
        // No foreign code runs under the lock, so the counts stay valid and a poisoned lock is usable.
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let before = counts.state();
        if let Some(count) = counts.count_mut(from) {
            *count -= 1;
        }
        if let Some(count) = counts.count_mut(to) {
            *count += 1;
        }
        let after = counts.state();
        (before != after).then(|| Event::breaker_change(before, after))
    }

    /// Reports a change. Must be called without a lock.
    pub(super) fn report(&self, change: &Event<'static>) {
        if let Some(observer) = self.observer.get() {
            observer.on_event(change);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const DEADLINE: Duration = Duration::from_millis(50);
    /// No breaker with the default settings waits longer for its first probe.
    const PAUSE: Duration = Duration::from_millis(120);

    /// A breaker that has just opened.
    fn opened() -> Arc<Machine> {
        let machine = Arc::new(Machine::new(BreakerSettings::default(), DEADLINE, Arc::default()));
        settle(&machine, CallOutcome::Failed, 5);
        machine
    }

    /// Sends checks one after the other.
    fn settle(machine: &Arc<Machine>, outcome: CallOutcome, checks: usize) {
        (0..checks).for_each(|_| machine.settle(machine.admit().unwrap(), outcome));
    }

    #[tokio::test(start_paused = true)]
    async fn one_probe_follows_a_lost_one_and_the_failure_of_the_lost_one_does_not_hide_its_answer() {
        // After the longer pause, the first check is one of many probes.
        for pause in [PAUSE, Duration::from_secs(10)] {
            let machine = opened();
            advance(pause).await;
            let lost = machine.admit().unwrap();
            advance(DEADLINE + PAUSE).await;
            let probe = machine.admit().unwrap();
            assert!(machine.admit().is_err(), "one at a time");
            machine.settle(lost, CallOutcome::Failed);
            machine.settle(probe, CallOutcome::Answered);
            assert!(!machine.is_open());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_outage_other_instances_have_a_second_and_failures_count_as_before() {
        let machine = opened();
        advance(PAUSE).await;
        // A dropped probe costs the shortest interval, not the time of an answer.
        drop(machine.admit().unwrap());
        assert!(machine.admit().is_err());
        advance(PAUSE).await;
        settle(&machine, CallOutcome::Answered, 1);
        advance(RECOVERY - Duration::from_millis(1)).await;
        assert!(machine.is_recovering() && !machine.awaits_answer());
        advance(Duration::from_millis(1)).await;
        assert!(!machine.is_recovering());
        for round in 1..=5 {
            let grants = [machine.admit().unwrap(), machine.admit().unwrap()];
            grants.into_iter().for_each(|grant| machine.settle(grant, CallOutcome::Failed));
            assert_eq!(machine.is_open(), round == 5, "two checks in flight together in round {round}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_awaited_after_a_failure_and_when_a_check_would_be_a_probe() {
        let machine = Arc::new(Machine::new(BreakerSettings::default(), DEADLINE, Arc::default()));
        for outcome in [CallOutcome::Failed, CallOutcome::Answered, CallOutcome::TimedOut] {
            settle(&machine, outcome, 1);
            assert_eq!(machine.awaits_answer(), outcome != CallOutcome::Answered, "{outcome:?}");
        }
        let machine = opened();
        assert!(!machine.awaits_answer());
        advance(PAUSE).await;
        assert!(machine.awaits_answer());
    }
}
