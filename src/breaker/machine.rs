//! The circuit breaker: closed, open, probing. One test per arrow is in `tests/contract/breaker.rs`.

use std::{
    fmt, mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::{
    notifier::Notifier,
    settings::{Breaker, HOUR},
    window::{CallOutcome, Tally},
};
use crate::{
    error::{Error, ErrorKind, StoreEvidence},
    observe::BreakerState,
};

/// Decides whether a check is sent, and learns from what comes of it.
///
/// While all is well, a check costs two loads: nothing is counted before something fails.
pub(super) struct Circuit {
    limits: Breaker,
    /// How long a probe may take before another one takes its place: its future may be kept and not be polled.
    patience: Duration,
    /// Within so long after the store is back, every instance has noticed.
    recovery: Duration,
    /// Whether the circuit has closed, perhaps not long ago.
    recovering: AtomicBool,
    /// Whether the circuit is not closed.
    broken: AtomicBool,
    /// Whether an answer is worth counting.
    noted: AtomicBool,
    /// Goes up with every timeout that counts and every change of state, so that a result can be told from one of a
    /// check that was sent before. Changed under the lock only.
    wave: AtomicU64,
    state: Mutex<State>,
    notifier: Arc<Notifier>,
}

enum State {
    Closed(Tally),
    /// Nobody asks before `until`.
    Open {
        until: Instant,
        round: u32,
    },
    /// One check is on its way; after `until` it is given up for lost.
    Probing {
        number: u64,
        until: Instant,
        round: u32,
    },
}

impl State {
    fn name(&self) -> BreakerState {
        match self {
            Self::Closed(_) => BreakerState::Closed,
            Self::Open { .. } => BreakerState::Open,
            Self::Probing { .. } => BreakerState::Probing,
        }
    }
}

/// The right to send a check.
pub(super) enum Pass {
    Ordinary { wave: u64 },
    Probe(Probe),
}

/// The only check under way. Dropped without a result, it makes room for another one.
pub(super) struct Probe {
    circuit: Arc<Circuit>,
    number: u64,
    settled: bool,
}

/// Within so long an instance has noticed that its store is back, dialling included.
const RECOVERY: Duration = Duration::from_secs(1);

impl Circuit {
    pub(super) fn new(limits: Breaker, deadline: Duration, notifier: Arc<Notifier>) -> Self {
        // A deadline may be set so long that it never comes.
        let deadline = deadline.min(HOUR);
        Self {
            limits,
            patience: deadline + limits.interval(0),
            recovery: RECOVERY.max(limits.longest + 2 * deadline),
            recovering: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            noted: AtomicBool::new(false),
            wave: AtomicU64::new(0),
            state: Mutex::new(State::Closed(Tally::new(0, Instant::now()))),
            notifier,
        }
    }

    /// Lets a check through, or fails at once.
    pub(super) fn admit(self: &Arc<Self>) -> Result<Pass, Error> {
        if !self.broken.load(Ordering::Acquire) {
            return Ok(Pass::Ordinary { wave: self.wave.load(Ordering::Acquire) });
        }
        let state = self.lock();
        let (until, round) = match *state {
            State::Closed(_) => return Ok(Pass::Ordinary { wave: self.wave.load(Ordering::Acquire) }),
            State::Open { until, round } | State::Probing { until, round, .. } => (until, round),
        };
        let now = Instant::now();
        if now < until {
            return Err(Error::new(ErrorKind::Unavailable, "not asked, for it has not answered lately")
                .with_evidence(StoreEvidence::NotSent));
        }
        // ## Open => Probing; Probing => Probing, when the probe is lost.
        let number = self.next_wave();
        self.change(state, State::Probing { number, until: now + self.patience, round });
        Ok(Pass::Probe(Probe { circuit: Arc::clone(self), number, settled: false }))
    }

    /// Learns what came of a check.
    pub(super) fn settle(&self, pass: Pass, signal: CallOutcome) {
        match pass {
            Pass::Ordinary { .. } if signal == CallOutcome::Answered && !self.noted.load(Ordering::Acquire) => {}
            Pass::Ordinary { wave } => self.note(wave, signal),
            Pass::Probe(probe) => probe.settle(signal),
        }
    }

    /// Whether checks are not sent, probes aside.
    pub(super) fn is_open(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Whether the store has come back so short a time ago that other instances may not have noticed.
    pub(super) fn is_recovering(&self) -> bool {
        if !self.recovering.load(Ordering::Acquire) {
            return false;
        }
        let state = self.lock();
        let recovering = matches!(&*state, State::Closed(tally) if Instant::now() < tally.closed_at() + self.recovery);
        self.recovering.store(recovering, Ordering::Release);
        recovering
    }

    fn note(&self, wave: u64, signal: CallOutcome) {
        let mut state = self.lock();
        // Otherwise it was sent before the circuit opened, and only a probe can close it.
        let State::Closed(tally) = &mut *state else { return };
        let now = Instant::now();
        let opens = tally.note(signal, wave, now, &self.limits);
        self.wave.store(tally.wave, Ordering::Release);
        self.noted.store(opens || !tally.is_quiet(), Ordering::Release);
        if opens {
            // ## Closed => Open
            self.broken.store(true, Ordering::Release);
            self.change(state, State::Open { until: now + self.limits.interval(0), round: 0 });
        }
    }

    fn probed(&self, number: u64, signal: CallOutcome) {
        let state = self.lock();
        let State::Probing { number: current, round, .. } = *state else { return };
        let now = Instant::now();
        let open = |round, interval| State::Open { until: now + self.limits.interval(interval), round };
        let next = match signal {
            // ## Probing => Closed. Good news is welcome also from a probe that was given up for lost.
            CallOutcome::Answered => {
                self.noted.store(false, Ordering::Release);
                self.recovering.store(true, Ordering::Release);
                self.broken.store(false, Ordering::Release);
                State::Closed(Tally::new(self.next_wave(), now))
            }
            _ if number != current => return,
            // ## Probing => Open, for longer than before.
            CallOutcome::Failed | CallOutcome::TimedOut => open(round.saturating_add(1), round.saturating_add(1)),
            // ## Probing => Open, when the probe was dropped: it says nothing, and the store may be back already.
            CallOutcome::NoEvidence => open(round, 0),
        };
        self.change(state, next);
    }

    fn change(&self, mut state: MutexGuard<'_, State>, next: State) {
        let change = self.notifier.count(state.name(), next.name());
        *state = next;
        drop(state);
        if let Some(change) = change {
            self.notifier.report(&change);
        }
    }

    fn next_wave(&self) -> u64 {
        self.wave.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A state is put in whole, so a poisoned lock is as good as any.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Probe {
    pub(super) fn settle(mut self, signal: CallOutcome) {
        self.settled = true;
        self.circuit.probed(self.number, signal);
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if !mem::replace(&mut self.settled, true) {
            self.circuit.probed(self.number, CallOutcome::NoEvidence);
        }
    }
}

impl fmt::Debug for Circuit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Circuit").field("limits", &self.limits).field("open", &self.is_open()).finish_non_exhaustive()
    }
}
