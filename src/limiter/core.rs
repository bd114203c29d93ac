//! The core of a limiter: store, breakers, fallback and observers.

use std::{fmt, sync::Arc};

use crate::{
    breaker::{Breakers, CallOutcome, Permit},
    check::Check,
    error::{ConfigError, Error, FirstMistake},
    fallback::Fallback,
    key::Key,
    limiter::{
        acquire::queues::Queues,
        hold::{ends::Ends, renewals::Renewals},
        lease::table::Leases,
        sharded::turn::Turns,
    },
    observe::{CheckSpan, Event, NearLimits, Notices, Observer, Warning},
    runtime::workers::Workers,
    store::{Pending, Store},
    verdict::{Source, Verdict},
};

/// The state that clones of a limiter share.
#[derive(Clone)]
pub(super) struct Core {
    pub(super) store: Arc<dyn Store>,
    pub(super) observer: Option<Arc<dyn Observer>>,
    /// Writes what the limiter reports by itself; `None` if the limiter is quiet.
    pub(super) notices: Option<Arc<Notices>>,
    /// Receives warnings and refusals: the observer, the notices, or both.
    pub(super) listener: Option<Arc<dyn Observer>>,
    /// `None` for a store that is always available.
    pub(super) breakers: Option<Arc<Breakers>>,
    pub(super) fallback: Option<Arc<Fallback>>,
    /// The callers that wait for their units.
    pub(super) queues: Arc<Queues>,
    /// The blocks that this process holds, of policies with leases.
    pub(super) leases: Arc<Leases>,
    /// The ends of holds that the store has not answered yet.
    pub(super) ends: Arc<Ends>,
    /// The holds that are renewed while they are held.
    pub(super) renewals: Arc<Renewals>,
    /// The tasks that look after both, one in each runtime.
    pub(super) workers: Arc<Workers>,
    /// The turns of checks under policies with shards.
    pub(super) turns: Arc<Turns>,
    /// The keys that were reported to observers as near a limit.
    pub(super) near_limits: Arc<NearLimits>,
    /// What is wrong with the settings of the limiter.
    pub(super) mistake: FirstMistake,
}

impl Core {
    /// Starts the span of a check that no layer has sent, if there is an observer.
    #[inline]
    pub(super) fn start_span(&self, check: &Check) -> Option<Box<CheckSpan>> {
        self.observer.as_ref().map(|observer| CheckSpan::start(observer, check, None, None))
    }

    /// Refuses a check whose settings, or those of the limiter, have a mistake: a part of its limits would be missing.
    #[inline]
    pub(super) fn validate(&self, check: &Check) -> Result<(), ConfigError> {
        self.mistake.found()?;
        check.validate()
    }

    /// Whether a check goes to the store as it is: its policies have neither shards nor leases, and this process holds
    /// no blocks of its counts.
    #[inline]
    pub(super) fn asks_directly(&self, check: &Check) -> bool {
        check.is_direct() && self.leases.beside_blocks(check).is_none()
    }

    /// Asks the breaker whether a call for `key` may be sent. A call that the store answers without waiting does not
    /// ask the breaker.
    pub(super) fn admit(&self, key: Option<&Key>) -> Result<Option<Permit>, Error> {
        self.breakers.as_ref().map(|breakers| breakers.admit(self.failure_domain_of(key))).transpose()
    }

    /// Asks the breaker whether a check may be sent, unless the store asks the breaker of each failure domain itself.
    pub(super) fn admit_check(&self, check: &Check, pending: &Pending<Verdict>) -> Result<Option<Permit>, Error> {
        if pending.takes_over(self.breakers.as_ref()) { Ok(None) } else { self.admit(check.first_key()) }
    }

    /// Reports the outcome of a call to the breaker.
    pub(super) fn settle(&self, permit: Option<Permit>, outcome: CallOutcome) {
        if let (Some(breakers), Some(permit)) = (&self.breakers, permit) {
            breakers.settle(permit, outcome);
        }
    }

    pub(super) fn failure_domain_of(&self, key: Option<&Key>) -> usize {
        key.map_or(0, |key| self.store.failure_domain_of(key))
    }

    /// Warns once if pauses were given up, because too many keys were paused.
    pub(super) fn warn_of_full_pauses(&self) {
        if let Some(listener) = &self.listener
            && let Some(keys) = self.queues.claim_pause_warning()
        {
            listener.on_event(&Event::Warning(Warning::pauses_full(keys)));
        }
    }

    /// Ends the outage that the notices have reported, if there is one and the store has answered.
    #[inline]
    pub(super) fn notice_answer(&self, verdict: &Verdict) {
        if let Some(notices) = &self.notices
            && notices.awaits_answer()
            && verdict.source == Source::Store
        {
            notices.answered();
        }
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, breakers, fallback, .. } = self;
        f.debug_struct("Limiter")
            .field("store", store)
            .field("breakers", breakers)
            .field("fallback", fallback)
            .finish_non_exhaustive()
    }
}
