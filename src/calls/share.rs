//! Checks and debits while the store's counts may be behind: they may lack what instances have admitted by their
//! shares.
//!
//! That is so until the breaker has closed, this instance has charged the store for what it has admitted, and every
//! other instance has had time to do so. Meanwhile, a check that fails local needs room in the instance's share as
//! well, also if it is a probe.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::{Calls, CheckCall, Purpose};
use crate::breaker::{Breakers, Permit};
use crate::check::{Charge, Check};
use crate::error::{Error, ErrorKind, StoreEvidence};
use crate::fallback::{Debt, Fallback, Reservation, Settlement};
use crate::{decision::Decision, store::Answer};

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

impl Calls {
    /// Starts to charge the store for what the fallback has admitted, if a debt is due. Called when the store has just
    /// answered.
    pub(super) fn settle_debts(self: &Arc<Self>, fallback: &Arc<Fallback>) {
        fallback.debts().settle_if_due(|| {
            let (calls, fallback) = (Arc::clone(self), Arc::clone(fallback));
            move |debt| charge_debt(Arc::clone(&calls), Arc::clone(&fallback), debt)
        });
    }
}

/// Charges the store for one debt, as far as it fits. A debt that has left its window is dropped.
///
/// Debits are ordinary checks, so the store never counts more than the limit. Under a policy with shards, each shard is
/// charged its part of the debt, and then what has not fitted into others.
async fn charge_debt(calls: Arc<Calls>, fallback: Arc<Fallback>, debt: Debt) -> Settlement {
    let Debt { key, policy, cost, .. } = &debt;
    let mut rest = (*cost).min(fallback.unsettled(key, policy));
    if rest == 0 {
        return Settlement::NotSent;
    }
    let whole = Charge::new(key.clone(), policy.clone(), rest);
    let shards = policy.shards();
    for evenly in [true, false] {
        for number in 0..shards {
            let part = if evenly { rest.div_ceil((shards - number).into()) } else { rest };
            match charge_what_fits(&calls, Charge { cost: part, ..whole.of_shard(number) }).await {
                Ok(charged) => {
                    rest -= charged;
                    fallback.debts().go_on();
                }
                // The store is healthy and would refuse this debt again.
                Err(Uncharged { error, .. }) if concerns_only_the_key(&error) => {
                    return Settlement::Answered { rest: 0 };
                }
                // Law 9: what the store may have charged is not sent again.
                Err(Uncharged { unknown, .. }) => {
                    if unknown > 0 {
                        fallback.note_unsure(key, policy);
                    }
                    return Settlement::Failed { rest: rest - unknown };
                }
            }
        }
        // Without shards, the store has just refused the rest.
        if rest == 0 || shards == 1 {
            break;
        }
    }
    Settlement::Answered { rest }
}

/// A debit without a verdict.
struct Uncharged {
    error: Error,
    /// The units that the store may have charged.
    unknown: u64,
}

/// Charges one count as far as it has room. Returns the charged units.
async fn charge_what_fits(calls: &Arc<Calls>, charge: Charge) -> Result<u64, Uncharged> {
    let Charge { key, policy, mut cost, .. } = charge;
    // A policy that counts denials must not count a rejected debit, so a peek first finds how much fits.
    let mut peeks = policy.denials_counted();
    // A rejected debit must not lead to a ban, and must be seen to be rejected.
    let policy = policy.without_ban().with_shadow(false);
    while cost > 0 {
        let sent = if peeks { 0 } else { cost };
        let decision = debit(calls, Check::new(key.clone(), &policy, sent)).await.map_err(|error| {
            let unknown = if error.may_have_charged() { sent } else { 0 };
            Uncharged { error, unknown }
        })?;
        if decision.is_allowed() && !peeks {
            return Ok(cost);
        }
        cost = cost.saturating_sub(u64::from(!peeks)).min(decision.available().unwrap_or(0));
        peeks = false;
    }
    Ok(0)
}

/// Sends one debit to the store. Debits are not reported to observers: the request was reported when it was admitted.
async fn debit(calls: &Arc<Calls>, mut check: Check) -> Result<Decision, Error> {
    if let Some(beside) = calls.held.check_beside(&check) {
        check = beside;
    }
    let verdict = calls.verdict(&check).await?;
    calls.notice_answer(&verdict);
    Ok(Decision::new(&mut check, &verdict))
}

/// Whether the error says that the key or the check is unusable, and nothing about the store.
fn concerns_only_the_key(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::BadKey | ErrorKind::InvalidCall)
}
