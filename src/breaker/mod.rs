//! The circuit breaker, which stops asking a store that does not answer.
//!
//! `settings` has the settings, `machine` the three states of one failure domain and their reports, `window` the
//! recent failures. This file has one machine for each failure domain of a store.

mod machine;
pub(crate) mod settings;
mod window;

use std::{fmt, sync::Arc, time::Duration};

use self::machine::{Grant, Machine, Notifier};
use self::settings::BreakerSettings;
use crate::{error::Error, observe::Observer};

pub(crate) use self::window::CallOutcome;

/// The breaker machines of one store, in the order of its failure domains.
pub(crate) struct Breakers {
    machines: Box<[Arc<Machine>]>,
    notifier: Arc<Notifier>,
}

/// The right to send a check to one failure domain.
pub(crate) struct Permit {
    domain: usize,
    grant: Grant,
}

impl Permit {
    /// Whether this check is a probe, for whose outcome the breaker waits.
    pub(crate) fn is_probe(&self) -> bool {
        matches!(self.grant, Grant::Probe(_))
    }

    /// Reports the outcome of a probe. Other checks are settled by [`Breakers::settle`].
    pub(crate) fn settle_probe(self, outcome: CallOutcome) {
        if let Grant::Probe(probe) = self.grant {
            probe.settle(outcome);
        }
    }
}

impl Breakers {
    pub(crate) fn new(settings: BreakerSettings, deadline: Duration, domains: usize) -> Self {
        let notifier = Arc::<Notifier>::default();
        let machine = |_| Arc::new(Machine::new(settings, deadline, Arc::clone(&notifier)));
        Self { machines: (0..domains.max(1)).map(machine).collect(), notifier }
    }

    /// Permits a check of a failure domain, or returns an error while the breaker is open.
    pub(crate) fn admit(&self, domain: usize) -> Result<Permit, Error> {
        Ok(Permit { domain, grant: self.machine(domain).admit()? })
    }

    /// Reports the outcome of a check.
    pub(crate) fn settle(&self, permit: Permit, outcome: CallOutcome) {
        self.machine(permit.domain).settle(permit.grant, outcome);
    }

    /// Whether at least one failure domain gets no checks except probes.
    pub(crate) fn is_open(&self) -> bool {
        self.machines.iter().any(|machine| machine.is_open())
    }

    /// Whether a failure domain has come back so recently that other instances may not have noticed.
    pub(crate) fn is_recovering(&self, domain: usize) -> bool {
        self.machine(domain).is_recovering()
    }

    /// Whether a failure domain gets all checks, and no probes.
    pub(crate) fn is_closed(&self, domain: usize) -> bool {
        !self.machine(domain).is_open()
    }

    /// Whether an answer to the next check of a failure domain would say that the store is back.
    pub(crate) fn awaits_answer(&self, domain: usize) -> bool {
        self.machine(domain).awaits_answer()
    }

    pub(crate) fn set_observer(&self, observer: Option<&Arc<dyn Observer>>) {
        self.notifier.set_observer(observer);
    }

    fn machine(&self, domain: usize) -> &Arc<Machine> {
        // A number beyond the store's failure domains must not panic: it wraps around.
        &self.machines[domain % self.machines.len()]
    }
}

impl fmt::Debug for Breakers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.machines.iter().filter(|machine| machine.is_open())).finish()
    }
}
