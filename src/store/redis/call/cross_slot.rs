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
//!
//! Slots in which only shadow policies count decide nothing. They are committed last, if they have answered the
//! evaluation, and a check that passes does not wait for them longer than for half of the rest of its deadline.

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
    domain_permit::DomainPermit,
    findings::{Findings, given_up, no_charge},
    outgoing::{Charges, Indices, Outgoing, Request, Step},
    parts::{Part, parts_of},
    per_runtime::no_runtime,
};
use crate::{
    check::Charge,
    error::Error,
    runtime::{deadline::within, stalls::Begin},
    store::pending::DeadlineHandler,
    verdict::{Outcome, Verdict},
};

/// A check in flight, divided into one part for each slot.
struct CrossSlotCheck {
    client: Arc<Client>,
    outgoing: Arc<Outgoing>,
    /// The parts that decide, in the order of their slots, and then the others.
    parts: Vec<Part>,
    started: Begin,
}

/// Sends a check to the slots of its keys.
pub(crate) async fn send(client: Arc<Client>, outgoing: Arc<Outgoing>) -> Result<Verdict, Error> {
    let slots: SmallVec<[u16; 4]> = outgoing.keys.iter().map(|key| client.keys.slot_of(key)).collect();
    let &slot = slots.first().ok_or_else(no_charge)?;
    if slots.iter().all(|&other| other == slot) {
        return ask(client, slot, Request::whole(outgoing)).await;
    }
    let parts = parts_of(&outgoing.check, &slots);
    // A slot that does not decide delays no check, unless there are no others.
    let deciding = parts.iter().filter(|part| part.decides || !parts[0].decides);
    let deciding: SmallVec<[u16; 4]> = deciding.map(|part| part.slot).collect();
    client.await_first_dials(&client.runtime()?.pool, &deciding, &outgoing.progress).await?;
    // Some steps run in tasks, so a runtime with timers is needed.
    let started = Begin::now(client.settings.deadline).ok_or_else(no_runtime)?;
    let check = CrossSlotCheck { client, outgoing, parts, started };
    let (mut verdict, answered) = check.evaluate().await?;
    if verdict.allowed {
        check.commit(&mut verdict, &answered).await?;
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

    /// Evaluates the check in all slots at the same time. Also returns whether each part has answered.
    ///
    /// The first denial or error decides that the check is not committed. The other slots then have half of the rest of
    /// the deadline: after an error another slot may still deny the check, and Retry-After is the longest wait of all
    /// denials. Slots that decide nothing have the same time after all others have answered.
    async fn evaluate(&self) -> Result<(Verdict, SmallVec<[bool; 4]>), Error> {
        let mut evaluations = JoinSet::new();
        let deadline = self.client.settings.deadline;
        for (number, part) in self.parts.iter().enumerate() {
            let evaluation = ask(Arc::clone(&self.client), part.slot, self.request(part, Step::Evaluate));
            let decides = part.decides;
            evaluations.spawn(async move {
                // The check itself has a deadline, but it may be over before a slot that does not decide has answered.
                let result = if decides { Some(evaluation.await) } else { within(deadline, evaluation).await };
                (number, result)
            });
        }
        let mut findings = Findings::new(&self.outgoing.check);
        let mut answered: SmallVec<[bool; 4]> = SmallVec::from_elem(false, self.parts.len());
        let mut undecided = self.parts.iter().filter(|part| part.decides).count();
        let mut add = |findings: &mut Findings, evaluation: Result<(usize, Option<_>), JoinError>| match evaluation {
            Ok((number, result)) => {
                let part = &self.parts[number];
                let result = result.unwrap_or_else(|| Err(self.outgoing.progress.error(deadline)));
                answered[number] = result.is_ok();
                findings.add(&part.charges, part.decides, result);
                part.decides
            }
            Err(_) => {
                findings.add(&[], true, Err(given_up()));
                false
            }
        };
        while undecided > 0
            && !findings.are_decisive()
            && let Some(evaluation) = evaluations.join_next().await
        {
            undecided -= usize::from(add(&mut findings, evaluation));
        }
        let others = async {
            while let Some(evaluation) = evaluations.join_next().await {
                add(&mut findings, evaluation);
            }
        };
        // Evaluations that are still unanswered are given up. They change no count.
        let _ = within(self.left() / 2, others).await;
        if undecided == 0 {
            // The check may be over before its deadline. The breaker of a silent slot has to learn of it nevertheless.
            evaluations.detach_all();
        }
        Ok((findings.into_verdict(&self.outgoing.check)?, answered))
    }

    /// Commits a check that fits, slot by slot. Refunds the commits if a slot denies its part. `answered` are the parts
    /// that have answered the evaluation.
    ///
    /// Slots in which only costs of 0 are charged get no commit, because it would change nothing: a peek at many shards
    /// takes one round trip.
    async fn commit(&self, verdict: &mut Verdict, answered: &[bool]) -> Result<(), Error> {
        let mut commits: SmallVec<[(&Part, Verdict); 4]> = SmallVec::new();
        let decides = |(_, part): &(usize, &Part)| part.decides && self.has_cost(part);
        for (number, part) in self.parts.iter().enumerate().filter(decides) {
            let commit = ask(Arc::clone(&self.client), part.slot, self.request(part, Step::Commit)).await;
            let is_first = commits.is_empty();
            let commit = commit.map_err(|error| if is_first { error } else { error.charge_unknown() })?;
            if !commit.allowed {
                for (part, commit) in &commits {
                    self.refund(part, commit);
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
        let changes_count = |(index, charge): (usize, &Charge)| {
            charge.cost > 0 && (verdict.outcomes[index].fits || charge.policy.counts_denials())
        };
        let others = self.parts.iter().zip(answered).filter(|(part, is_answered)| {
            !part.decides && **is_answered && part.charges_of(&self.outgoing.check).any(changes_count)
        });
        let others: SmallVec<[&Part; 4]> = others.map(|(part, _)| part).collect();
        self.send_in_tasks(&others, Step::Commit, |part, committed| part.put(&committed, verdict)).await;
        Ok(())
    }

    /// Whether a charge of this part has a cost.
    fn has_cost(&self, part: &Part) -> bool {
        part.charges_of(&self.outgoing.check).any(|(_, charge)| charge.cost > 0)
    }

    /// Sends the rejection to the slots of `parts` that count rejections. Their answers may make the wait longer or
    /// lead to a ban. The check is denied even without them.
    async fn reject(&self, parts: &[Part], verdict: &mut Verdict) {
        let check = &self.outgoing.check;
        let counts = |part: &&Part| part.charges_of(check).any(|(_, charge)| charge.policy.counts_denials());
        let parts: SmallVec<[&Part; 4]> = parts.iter().filter(counts).collect();
        let put = |part: &Part, rejected: Verdict| match rejected.allowed {
            // A part that was denied before and fits by now keeps its earlier outcome.
            true => part.put_would_deny(&rejected, check, verdict),
            false => part.put(&rejected, verdict),
        };
        self.send_in_tasks(&parts, Step::Reject, put).await;
    }

    /// Sends one step to the slots of `parts`, and passes their answers to `put`.
    ///
    /// A task sends it to each slot, once, so the step also counts when the caller has gone. The slots have half of the
    /// rest of the deadline to answer.
    async fn send_in_tasks(&self, parts: &[&Part], step: Step, mut put: impl FnMut(&Part, Verdict)) {
        let deadline = self.client.settings.deadline;
        let (sender, mut answers) = mpsc::unbounded_channel();
        for (number, part) in parts.iter().enumerate() {
            let answer = batch::send(Arc::clone(&self.client), part.slot, self.request(part, step));
            let sender = sender.clone();
            tokio::spawn(async move {
                if let Some(Ok(verdict)) = within(deadline, answer).await {
                    // Fails if the caller has its answer already.
                    let _ = sender.send((number, verdict));
                }
            });
        }
        drop(sender);
        let all = async {
            while let Some((number, verdict)) = answers.recv().await {
                put(parts[number], verdict);
            }
        };
        let _ = within(self.left() / 2, all).await;
    }

    /// Refunds a commit in a task, because the caller has its answer already, and a caller that leaves must not stop
    /// the refund.
    fn refund(&self, part: &Part, commit: &Verdict) {
        let committed_us = commit.time_us;
        // A shadow charge that did not fit was not committed.
        let is_refunded =
            |charge: &Charge, outcome: &Outcome| charge.cost > 0 && outcome.fits && !charge.policy.count_rejected();
        let committed = part.charges.iter().zip(part.charges_of(&self.outgoing.check)).zip(&commit.outcomes);
        let refunded = committed.filter(|((_, (_, charge)), outcome)| is_refunded(charge, outcome));
        let charges: Indices = refunded.map(|((&index, _), _)| index).collect();
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
