//! The core of a limiter: its calls, and the state of the ways in which checks are asked.

use std::{sync::Arc, time::Duration};

use crate::calls::{Calls, CheckCall, Purpose};
use crate::error::{ConfigError, Error, FirstMistake};
use crate::limiter::sharded::{self, ShardTurns};
use crate::limiter::{acquire::queues::Queues, hold::SharedHolds, lease::table::Leases};
use crate::observe::{CheckSpan, Event, Warning};
use crate::store::{Answer, Pending};
use crate::{check::Check, decision::Decision, failure::FailurePolicy, verdict::Verdict};

/// The state that clones of a limiter share.
#[derive(Clone)]
pub(super) struct Core {
    pub(super) calls: Arc<Calls>,
    /// The callers that wait for their units.
    pub(super) queues: Arc<Queues>,
    /// The blocks that this process holds, of policies with leases.
    pub(super) leases: Arc<Leases>,
    pub(super) holds: Arc<SharedHolds>,
    /// The turns of checks under policies with shards.
    pub(super) turns: Arc<ShardTurns>,
    /// What is wrong with the settings of the limiter.
    pub(super) mistake: FirstMistake,
}

impl Core {
    /// Makes the holds follow the calls and the queues, after one of them was replaced.
    pub(super) fn connect_holds(&mut self) {
        let (calls, queues) = (Arc::clone(&self.calls), Arc::clone(&self.queues));
        self.holds = Arc::new(self.holds.with(calls, queues));
    }

    /// Refuses a check whose settings, or those of the limiter, have a mistake: a part of its limits would be missing.
    #[inline]
    pub(super) fn validate(&self, check: &Check) -> Result<(), ConfigError> {
        self.mistake.found()?;
        if check.has_alternatives() && !self.calls.store.has_alternatives() {
            return Err(ConfigError::store_without_alternatives());
        }
        check.validate()
    }

    /// Turns a verdict into the decision of a check, and takes the charges out of `check`. Also sends the ends of holds
    /// that an ended runtime has left: the store answers.
    #[inline(always)]
    pub(super) fn on_verdict(
        self: &Arc<Self>,
        check: &mut Check,
        verdict: &Verdict,
        purpose: Purpose,
        span: Option<Box<CheckSpan>>,
    ) -> Decision {
        self.holds.look_after();
        self.calls.on_verdict(check, verdict, purpose, span, |check| self.holds.release_uncertain(check))
    }

    /// Ends a check that got no verdict, whose caller handles errors.
    #[cold]
    pub(super) fn on_error(
        self: &Arc<Self>,
        check: &Check,
        error: Error,
        purpose: Purpose,
        span: Option<Box<CheckSpan>>,
    ) -> Result<Decision, Error> {
        self.calls.on_error(check, error, purpose, None, span, |check| self.holds.release_uncertain(check))
    }

    /// Ends a check that got no verdict, by the failure policy of a layer.
    #[cold]
    pub(super) fn apply_failure_policy(
        self: &Arc<Self>,
        check: &Check,
        error: Error,
        failure: FailurePolicy,
        span: Option<Box<CheckSpan>>,
    ) -> Decision {
        let release = |check: &Check| self.holds.release_uncertain(check);
        failure.resolve(self.calls.on_error(check, error, failure.into(), Some(failure), span, release))
    }

    /// Warns once if pauses were given up, because too many keys were paused.
    pub(super) fn warn_of_full_pauses(&self) {
        if let Some(listener) = &self.calls.listener
            && let Some(keys) = self.queues.claim_pause_warning()
        {
            listener.on_event(&Event::of_warning(Warning::pauses_full(keys)));
        }
    }
}

/// One call of the store, or of two shards of a policy.
pub(super) enum OneCall {
    Judged(Result<Verdict, Error>),
    Store {
        /// What the store gets, if it is not the check itself.
        beside: Option<Check>,
        pending: Pending<Verdict>,
    },
    Shards(Pending<Verdict>),
}

impl OneCall {
    /// Asks the store. What has to wait is sent at its first poll.
    pub(super) fn start(core: &Arc<Core>, check: &Check, purpose: Purpose, time: Duration) -> Self {
        let beside = core.calls.held.check_beside(check);
        let sent = beside.as_ref().unwrap_or(check);
        if sent.is_sharded() {
            return match sharded::ask(&core.calls, &core.turns, sent, purpose, time) {
                Answer::Ready(result) => Self::Judged(result),
                Answer::Pending(pending) => Self::Shards(pending),
            };
        }
        match core.calls.store.check(sent) {
            Answer::Ready(result) => Self::Judged(result),
            Answer::Pending(pending) => Self::Store { beside, pending },
        }
    }

    /// The answer, behind the breaker and within `time`.
    pub(super) async fn answer(
        self,
        core: &Arc<Core>,
        check: &Check,
        purpose: Purpose,
        time: Duration,
    ) -> Result<Verdict, Error> {
        match self {
            Self::Judged(result) => result,
            Self::Store { beside, pending } => {
                let sent = beside.as_ref().unwrap_or(check);
                CheckCall::new(pending).within(time).answer(&core.calls, sent, check, purpose).await
            }
            Self::Shards(pending) => pending.await,
        }
    }
}
