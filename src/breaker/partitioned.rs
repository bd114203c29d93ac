//! One circuit for each part of a store that may be away by itself.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    machine::{Circuit, Pass},
    notifier::Notifier,
    settings::Breaker,
    window::CallOutcome,
};
use crate::{error::Error, observe::Observer};

/// The breakers of one store, in the order of its parts.
pub(crate) struct Breakers {
    breakers: Box<[Arc<Circuit>]>,
    notifier: Arc<Notifier>,
}

/// The right to send a check.
pub(crate) struct Permit {
    part: usize,
    pass: Pass,
}

impl Permit {
    /// Whether the breaker waits for what comes of this check.
    pub(crate) fn is_probe(&self) -> bool {
        matches!(self.pass, Pass::Probe(_))
    }

    /// Learns what came of a probe. Other checks are settled with the breakers that they were admitted by.
    pub(crate) fn settle_probe(self, signal: CallOutcome) {
        if let Pass::Probe(probe) = self.pass {
            probe.settle(signal);
        }
    }
}

impl Breakers {
    pub(crate) fn new(limits: Breaker, deadline: Duration, parts: usize) -> Self {
        let notifier = Arc::<Notifier>::default();
        let circuit = |_| Arc::new(Circuit::new(limits, deadline, Arc::clone(&notifier)));
        Self { breakers: (0..parts.max(1)).map(circuit).collect(), notifier }
    }

    /// Lets a check of a part through, or fails at once.
    pub(crate) fn admit(&self, part: usize) -> Result<Permit, Error> {
        Ok(Permit { part, pass: self.circuit(part).admit()? })
    }

    /// Learns what came of a check.
    pub(crate) fn settle(&self, permit: Permit, signal: CallOutcome) {
        self.circuit(permit.part).settle(permit.pass, signal);
    }

    /// Whether checks are not sent, probes aside, to one part at least.
    pub(crate) fn is_open(&self) -> bool {
        self.breakers.iter().any(|circuit| circuit.is_open())
    }

    /// Whether a part has come back so short a time ago that other instances may not have noticed.
    pub(crate) fn is_recovering(&self, part: usize) -> bool {
        self.circuit(part).is_recovering()
    }

    pub(crate) fn set_observer(&self, observer: Option<&Arc<dyn Observer>>) {
        self.notifier.set_observer(observer);
    }

    fn circuit(&self, part: usize) -> &Arc<Circuit> {
        // A store that names a part it does not have means some part.
        &self.breakers[part % self.breakers.len()]
    }
}

impl fmt::Debug for Breakers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.breakers.iter().filter(|circuit| circuit.is_open())).finish()
    }
}
