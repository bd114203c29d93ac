//! Charges of as much as fits, and peeks at costs.

use std::sync::Arc;

use smallvec::smallvec;

use super::super::net::{error, slot::NO_SLOT};
use super::outgoing::{Charges, Outgoing, Request, Step};
use super::{super::KeyHash, batch, by_key, client::Client, cross_slot, progress::Progress};
use crate::check::{Charge, Check};
use crate::store::{Answer, Pending};
use crate::verdict::Verdict;

/// Charges as much of the cost of a charge as fits. Returns the charged units.
pub(crate) fn charge_up_to(client: &Arc<Client>, hash: &KeyHash, charge: &Charge) -> Answer<(Verdict, u64)> {
    let (client, key, progress) = (Arc::clone(client), hash.apply(&charge.key), Progress::new(false));
    // A denial of more than the capacity would not be counted.
    let charge = Charge { cost: charge.cost.min(charge.policy.capacity()), ..charge.clone() };
    let slot = client.keys.slot_of(&key);
    let outgoing = Outgoing::new(Check::of_distinct([charge]), smallvec![key], Arc::clone(&progress), None);
    let outgoing = Arc::new(outgoing);
    let request = Request { outgoing: Arc::clone(&outgoing), charges: Charges::All, step: Step::UpTo };
    let charged = async move {
        let verdict = batch::send(Arc::clone(&client), slot, request).await;
        if verdict.as_ref().is_err_and(error::is_about_several_keys) {
            // The slot moves. Boxed, because that is rare and its future is large.
            return Box::pin(by_key::charge_up_to(client, outgoing, slot)).await;
        }
        let mut verdict = verdict?;
        // The charged units follow the outcome of the charge.
        let units = verdict.outcomes.0.pop().map_or(0, |units| units.available);
        Ok((verdict, units))
    };
    Answer::Pending(Pending::new(charged).with_deadline_handler(progress))
}

/// Evaluates a check. Charges nothing.
pub(crate) fn peek(client: &Arc<Client>, hash: &KeyHash, check: &Check, progress: Arc<Progress>) -> Answer<Verdict> {
    if let Err(mistake) = check.validate() {
        return Answer::Ready(Err(mistake.into()));
    }
    let client = Arc::clone(client);
    let outgoing = Arc::new(Outgoing::new(check.clone(), hash.keys_of(check).0, Arc::clone(&progress), None));
    let verdict = async move {
        if client.target.is_cluster() {
            return Box::pin(cross_slot::evaluate(client, outgoing)).await;
        }
        batch::send(client, NO_SLOT, Request { outgoing, charges: Charges::All, step: Step::Evaluate }).await
    };
    Answer::Pending(Pending::new(verdict).with_deadline_handler(progress))
}
