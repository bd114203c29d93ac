//! Checks while the store's counts may be behind: they may lack what instances have admitted by their shares.
//!
//! That is so until the breaker has closed, this instance has charged the store for what it has admitted, and every
//! other instance has had time to do so. Meanwhile, a check that fails local needs room in the instance's share as
//! well, also if it is a probe.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::{Calls, CheckCall, Purpose};
use crate::{
    breaker::{Breakers, Permit},
    check::{Charge, Check},
    error::{Error, ErrorKind, StoreEvidence},
    fallback::{Fallback, Reservation},
    store::Answer,
};

impl Calls {
    /// Holds back a check that exceeds the instance's share while the store may be behind; if it was to be a probe, the
    /// store is probed with a check that costs nothing. Returns the permit of a check that may be sent.
    ///
    /// `sent` is what the store would get; it differs from `check` in the keys of shards, which may be on a node that
    /// has had no outage.
    pub(super) fn keep_to_share_or_probe(
        self: &Arc<Self>,
        sent: &Check,
        check: &Check,
        purpose: Purpose,
        permit: Option<Permit>,
        reserved: &mut Option<Box<Reservation>>,
    ) -> Result<Option<Permit>, Error> {
        match self.keep_to_share(sent, check, purpose) {
            Ok(room) => {
                *reserved = room;
                Ok(permit)
            }
            Err(error) => {
                // Without an answer, the breaker would neither open nor close while all checks are held back.
                if permit.as_ref().is_some_and(Permit::is_probe) || self.awaits_answer(sent) {
                    self.probe_without_cost(sent, permit);
                }
                Err(error)
            }
        }
    }

    /// Returns an error for a check that exceeds the instance's share while the store may be behind. Otherwise takes
    /// room of the share until the result is dropped.
    pub(crate) fn keep_to_share(
        self: &Arc<Self>,
        sent: &Check,
        check: &Check,
        purpose: Purpose,
    ) -> Result<Option<Box<Reservation>>, Error> {
        let Some(fallback) = self.fallback.as_ref().filter(|_| purpose.uses_fallback()) else { return Ok(None) };
        let is_closed = sent.charges().iter().all(|charge| self.is_closed(charge));
        let owes = check.charges().iter().any(|charge| self.owes(fallback, charge));
        let least = u64::from(purpose.is_peek());
        let room = if !is_closed || owes || sent.charges().iter().any(|charge| self.is_recovering(charge)) {
            fallback.reserve(check, least)
        } else if check.charges().iter().any(|charge| fallback.debts().is_unsure(&charge.key, &charge.policy)) {
            fallback.reserve_whole(check, least)
        } else {
            return Ok(None);
        };
        if let Some(room) = room {
            return Ok(Some(Box::new(room)));
        }
        if is_closed && !self.awaits_answer(sent) {
            // While all checks are held back, no answer leads to the next settlement.
            self.settle_debts(fallback);
        }
        Err(Self::held_back())
    }

    /// The error of a check that needs room in the share and has none.
    pub(super) fn held_back() -> Error {
        let message = "held back: after an outage, instances may still have to charge the store";
        Error::new(ErrorKind::Unavailable, message).with_evidence(StoreEvidence::HeldBack)
    }

    /// Whether a block of this charge can be requested: a block is spent without a look at the store, so it must not be
    /// taken from a count that may be behind.
    pub(crate) fn may_take_blocks(&self, charge: &Charge) -> bool {
        let is_behind = |fallback: &Arc<Fallback>| self.is_recovering(charge) || self.owes(fallback, charge);
        self.is_closed(charge) && !self.fallback.as_ref().is_some_and(is_behind)
    }

    fn awaits_answer(&self, check: &Check) -> bool {
        check
            .charges()
            .iter()
            .filter_map(|charge| self.breaker_of(charge))
            .any(|(breakers, domain)| breakers.awaits_answer(domain))
    }

    fn is_closed(&self, charge: &Charge) -> bool {
        self.breaker_of(charge).is_none_or(|(breakers, domain)| breakers.is_closed(domain))
    }

    fn is_recovering(&self, charge: &Charge) -> bool {
        self.breaker_of(charge).is_some_and(|(breakers, domain)| breakers.is_recovering(domain))
    }

    fn breaker_of(&self, charge: &Charge) -> Option<(&Breakers, usize)> {
        let breakers = self.breakers.as_deref()?;
        Some((breakers, self.failure_domain_of(Some(&charge.key))))
    }

    fn owes(&self, fallback: &Fallback, charge: &Charge) -> bool {
        let domain = || self.failure_domain_of(Some(&charge.key));
        fallback.debts().owe(domain, &charge.key, &charge.policy)
    }

    /// Asks the store in the background with a check that charges nothing. Without a runtime, the probe is given up,
    /// and another check becomes the probe.
    fn probe_without_cost(self: &Arc<Self>, sent: &Check, permit: Option<Permit>) {
        let Ok(runtime) = Handle::try_current() else { return };
        let charge = |charge: &Charge| Charge::new(charge.key.clone(), charge.policy.clone(), 0);
        let probe = Check::of_distinct(sent.charges().iter().map(charge));
        let Answer::Pending(pending) = self.store.check(&probe) else { return };
        let calls = Arc::clone(self);
        runtime.spawn(async move {
            if let Ok(verdict) = CheckCall::new(pending).answer_probe(&calls, &probe, permit).await {
                calls.on_answer(&verdict);
            }
        });
    }
}
