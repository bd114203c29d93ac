//! Debits: charging the store for what the local fallback has admitted.

use std::sync::Arc;

use super::Calls;
use crate::{
    check::{Charge, Check},
    decision::Decision,
    error::{Error, ErrorKind},
    fallback::{Debt, Fallback, Settlement},
};

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
