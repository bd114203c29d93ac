//! Checks on a cluster: atomic within a slot, and never over a limit across slots.
//!
//! A check of one slot is sent as on a single server. A check whose keys are in several slots is first evaluated in all
//! of them at the same time, without a charge; most denials need no more. If all of it fits, it is committed slot by
//! slot, in the order of the slots: of two checks that compete for the same units, one is first everywhere. If a slot
//! denies its part because another request was faster, the check is denied and the earlier commits are refunded.
//!
//! So such a check may hold units for a moment without being admitted, and nothing is ever admitted that was not
//! charged. A refund is sent once, like everything that changes a count; if it is lost, the units stay charged. The
//! commits of a check that gets no verdict also stay, because its failure policy may admit it.
//!
//! One slot that denies is enough: then the check is denied, whatever the other slots answer, or if they do not answer.
//! The other slots have a part of the deadline to answer, because Retry-After is the longest wait of all slots.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::{
    sync::mpsc,
    task::{JoinError, JoinSet},
    time::Instant,
};

use super::{
    batch,
    client::Client,
    denials::KeyGroups,
    domain_permit::DomainPermit,
    findings::{Findings, given_up, no_charge},
    outgoing::{Charges, Indices, Outgoing, Request, Step},
    per_runtime::no_runtime,
};
use crate::{check::Charge, error::Error, runtime::deadline::within, runtime::stalls::Begin, verdict::Verdict};

/// A check in flight, divided into one part for each slot.
struct CrossSlotCheck {
    client: Arc<Client>,
    outgoing: Arc<Outgoing>,
    /// The parts, in the order of their slots.
    parts: Vec<Part>,
    started: Begin,
}

/// The charges of one slot.
struct Part {
    slot: u16,
    /// The indices of the charges in the check.
    charges: Indices,
}

/// Sends a check to the slots of its keys.
pub(crate) async fn send(client: Arc<Client>, outgoing: Arc<Outgoing>) -> Result<Verdict, Error> {
    let slots: SmallVec<[u16; 4]> = outgoing.keys.iter().map(|key| client.keys.slot_of(key)).collect();
    let &slot = slots.first().ok_or_else(no_charge)?;
    if slots.iter().all(|&other| other == slot) {
        return ask(client, slot, Request::whole(outgoing)).await;
    }
    client.await_first_dials(&client.runtime()?.pool, &slots, &outgoing.progress).await?;
    // Some steps run in tasks, so a runtime with timers is needed.
    let started = Begin::now(client.settings.deadline).ok_or_else(no_runtime)?;
    let check = CrossSlotCheck { client, outgoing, parts: parts_of(&slots), started };
    let mut verdict = check.evaluate().await?;
    if verdict.allowed {
        check.commit(&mut verdict).await?;
    } else {
        check.reject(&check.parts, &mut verdict).await;
    }
    check.outgoing.remember(&check.client.denials, &verdict);
    Ok(verdict)
}

/// Sends a request with a permit of the breaker of its failure domain.
async fn ask(client: Arc<Client>, slot: u16, request: Request) -> Result<Verdict, Error> {
    let permit = DomainPermit::acquire(slot, &request.outgoing.progress, client.settings.deadline)?;
    let is_probe = permit.is_probe();
    let asked = async move {
        let result = batch::send(client, slot, request).await;
        permit.end(&result);
        result
    };
    match is_probe {
        // A task, because the breaker waits for the outcome of its probe, also when the caller leaves.
        true => tokio::spawn(asked).await.unwrap_or_else(|_| Err(given_up())),
        false => asked.await,
    }
}

impl CrossSlotCheck {
    /// The rest of the deadline.
    fn left(&self) -> Duration {
        self.client.settings.deadline.saturating_sub(self.started.running(Instant::now()))
    }

    /// The request for one step with the charges of `part`.
    fn request(&self, part: &Part, step: Step) -> Request {
        Request { outgoing: Arc::clone(&self.outgoing), charges: Charges::Some(part.charges.clone()), step }
    }

    /// Evaluates the check in all slots at the same time.
    ///
    /// The first denial or error decides that the check is not committed. The other slots then have half of the rest of
    /// the deadline: after an error another slot may still deny the check, and Retry-After is the longest wait of all
    /// denials.
    async fn evaluate(&self) -> Result<Verdict, Error> {
        let mut evaluations = JoinSet::new();
        for (number, part) in self.parts.iter().enumerate() {
            let evaluation = ask(Arc::clone(&self.client), part.slot, self.request(part, Step::Evaluate));
            evaluations.spawn(async move { (number, evaluation.await) });
        }
        let mut findings = Findings::new(self.outgoing.keys.len());
        let add = |findings: &mut Findings, evaluation: Result<(usize, _), JoinError>| match evaluation {
            Ok((number, result)) => findings.add(&self.parts[number].charges, result),
            Err(_) => findings.add(&[], Err(given_up())),
        };
        while !findings.are_decisive()
            && let Some(evaluation) = evaluations.join_next().await
        {
            add(&mut findings, evaluation);
        }
        let others = async {
            while let Some(evaluation) = evaluations.join_next().await {
                add(&mut findings, evaluation);
            }
        };
        // Evaluations that are still unanswered are given up. They change no count.
        let _ = within(self.left() / 2, others).await;
        findings.into_verdict()
    }

    /// Commits a check that fits, slot by slot. Refunds the commits if a slot denies its part.
    ///
    /// Slots in which only costs of 0 are charged get no commit, because it would change nothing: a peek at many shards
    /// takes one round trip.
    async fn commit(&self, verdict: &mut Verdict) -> Result<(), Error> {
        let mut commits: SmallVec<[(&Part, Verdict); 4]> = SmallVec::new();
        for (number, part) in self.parts.iter().enumerate().filter(|(_, part)| self.has_cost(part)) {
            let commit = ask(Arc::clone(&self.client), part.slot, self.request(part, Step::Commit)).await;
            let is_first = commits.is_empty();
            let commit = commit.map_err(|error| if is_first { error } else { error.charge_unknown() })?;
            if !commit.allowed {
                for (part, commit) in &commits {
                    self.refund(part, commit.time_us);
                }
                verdict.allowed = false;
                part.put(&commit, verdict);
                // Earlier slots need no rejection, because their policies that count rejections keep the commit.
                self.reject(&self.parts[number + 1..], verdict).await;
                return Ok(());
            }
            commits.push((part, commit));
        }
        for (part, commit) in &commits {
            part.put(commit, verdict);
        }
        Ok(())
    }

    /// Whether a charge of this part has a cost.
    fn has_cost(&self, part: &Part) -> bool {
        part.charges.iter().any(|&index| self.outgoing.check.charges()[usize::from(index)].cost > 0)
    }

    /// Sends the rejection to the slots of `parts` that count rejections.
    ///
    /// A task sends it to each slot, once, so the rejection also counts when the caller has gone. The slots have half
    /// of the rest of the deadline to answer, because the rejection may make the wait longer or lead to a ban. The
    /// check is denied even without their answers.
    async fn reject(&self, parts: &[Part], verdict: &mut Verdict) {
        let deadline = self.client.settings.deadline;
        let (sender, mut rejections) = mpsc::unbounded_channel();
        for (number, part) in parts.iter().enumerate() {
            let counts = |Charge { policy, .. }: &Charge| policy.count_rejected() || policy.ban().is_some();
            let request = self.request(part, Step::Reject);
            if request.charges().any(|(charge, _)| counts(charge)) {
                let rejection = within(deadline, batch::send(Arc::clone(&self.client), part.slot, request));
                let sender = sender.clone();
                tokio::spawn(async move {
                    if let Some(Ok(rejected)) = rejection.await {
                        // Fails if the caller has its answer already.
                        let _ = sender.send((number, rejected));
                    }
                });
            }
        }
        drop(sender);
        let all = async {
            while let Some((number, rejected)) = rejections.recv().await {
                // A part that was denied before and fits by now keeps its earlier outcome.
                if !rejected.allowed {
                    parts[number].put(&rejected, verdict);
                }
            }
        };
        let _ = within(self.left() / 2, all).await;
    }

    /// Refunds a commit in a task, because the caller has its answer already, and a caller that leaves must not stop
    /// the refund.
    fn refund(&self, part: &Part, committed_us: u64) {
        let is_refunded = |&&index: &&u8| {
            let Charge { policy, cost, .. } = &self.outgoing.check.charges()[usize::from(index)];
            *cost > 0 && !policy.count_rejected()
        };
        let charges: Indices = part.charges.iter().filter(is_refunded).copied().collect();
        if charges.is_empty() {
            return;
        }
        let (client, outgoing, slot) = (Arc::clone(&self.client), Arc::clone(&self.outgoing), part.slot);
        let groups = part.groups(&self.outgoing);
        tokio::spawn(async move {
            // Other checks may have been denied because of the units that are refunded.
            let _forget = client.denials.forget(groups);
            let request = Request { outgoing, charges: Charges::Some(charges), step: Step::Refund { committed_us } };
            // If the refund fails, the units stay charged.
            let _ = batch::send(Arc::clone(&client), slot, request).await;
        });
    }
}

impl Part {
    /// Copies the outcomes of this part into the verdict on the check.
    fn put(&self, found: &Verdict, verdict: &mut Verdict) {
        for (&index, outcome) in self.charges.iter().zip(&found.outcomes) {
            verdict.outcomes[usize::from(index)] = *outcome;
        }
    }

    /// The groups of remembered denials that the keys of this part belong to.
    fn groups(&self, outgoing: &Outgoing) -> KeyGroups {
        let groups = outgoing.ticket.as_ref().map_or(&[][..], |ticket| ticket.groups());
        self.charges.iter().filter_map(|&index| groups.get(usize::from(index)).copied()).collect()
    }
}

/// The parts of a check whose charges are in these slots, in the order of the slots.
fn parts_of(slots: &[u16]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (index, &slot) in (0_u8..).zip(slots) {
        match parts.iter_mut().find(|part| part.slot == slot) {
            Some(part) => part.charges.push(index),
            None => parts.push(Part { slot, charges: Indices::from_slice(&[index]) }),
        }
    }
    parts.sort_by_key(|part| part.slot);
    parts
}
