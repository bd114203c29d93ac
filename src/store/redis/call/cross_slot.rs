//! Checks on a cluster: atomic within a slot, and never over a limit across slots.
//!
//! A check of one slot is sent as on a single server. A check whose keys are in several slots is first evaluated in all
//! of them at the same time, without a charge; most denials need no more. If all of it fits, it is committed slot by
//! slot, in the order of the slots: of two checks that compete for the same units, one is first everywhere. If a slot
//! denies its part because another request was faster, the check is denied and the earlier commits are refunded.
//!
//! So such a check may hold units for a moment without being admitted, and nothing is ever admitted that was not
//! charged. Every commit leaves a receipt in its slot, which a refund names. So commits are also refunded if their fate
//! is unknown: a slot has failed, the deadline has passed, the caller has left, or the runtime has ended. `parts.rs`
//! repeats a refund until it is answered.
//!
//! One slot that denies is enough: then the check is denied, whatever the other slots answer, or if they do not answer.
//! The other slots have a part of the deadline to answer, because Retry-After is the longest wait of all slots.
//!
//! While a slot moves between two masters, Redis refuses calls with several keys of it (TRYAGAIN). Then the charges of
//! the check are its parts, and `by_key.rs` asks each of their keys alone.
//!
//! Slots in which only shadow policies count decide nothing. They are committed last, if they have answered the
//! evaluation, and a check that passes does not wait for them longer than for half of the rest of its deadline.

use std::{future::Future, sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::task::{JoinError, JoinSet};
use tokio::{runtime::Handle, sync::mpsc, time::Instant};

use super::outgoing::{Charges, Committed, Outgoing, Receipt, Request, Step};
use super::parts::{self, Findings, Part, PartRefunds, given_up, no_charge, one_by_one, parts_of};
use super::{super::net::error, alternatives, by_key, client::Client, domain_permit::ask, no_runtime};
use crate::runtime::{deadline::within, stalls::Begin};
use crate::{check::Charge, error::Error, hold::random_id, store::contract::DeadlineHandler, verdict::Verdict};

/// A check in flight, divided into one part for each slot.
struct CrossSlotCheck {
    client: Arc<Client>,
    outgoing: Arc<Outgoing>,
    /// The parts that decide, in the order of their slots, and then the others.
    parts: Vec<Part>,
    /// Whether each part is one charge, and each of its keys is asked alone.
    is_by_key: bool,
    started: Begin,
    runtime: Handle,
}

/// Sends a check to the slots of its keys.
pub(crate) async fn send(client: Arc<Client>, outgoing: Arc<Outgoing>) -> Result<Verdict, Error> {
    parts::resume(&client);
    run(client, outgoing, Step::Commit).await
}

/// Evaluates a check in the slots of its keys. Charges nothing.
pub(crate) async fn evaluate(client: Arc<Client>, outgoing: Arc<Outgoing>) -> Result<Verdict, Error> {
    run(client, outgoing, Step::Evaluate).await
}

/// Sends a check to the slots of its keys: commits it, or only evaluates it.
async fn run(client: Arc<Client>, outgoing: Arc<Outgoing>, step: Step) -> Result<Verdict, Error> {
    let slots: SmallVec<[u16; 4]> = outgoing.keys.iter().map(|key| client.keys.slot_of(key)).collect();
    let &slot = slots.first().ok_or_else(no_charge)?;
    let (moving, check) = (Arc::clone(&client), Arc::clone(&outgoing));
    let verdict = match slots.iter().all(|&other| other == slot) {
        true => ask(client, slot, Request { step, ..Request::whole(outgoing) }).await,
        false => {
            let parts = parts_of(&outgoing.check, &slots);
            // Boxed, because otherwise the future of each check of one slot would contain this large future.
            Box::pin(send_parts(client, outgoing, parts, step, false)).await
        }
    };
    match verdict {
        // A slot moves. Nothing is charged, or what was is refunded. Boxed, because that is rare.
        Err(error) if !by_key::may_ask(&check.check, &error) => Err(error),
        Err(error) if check.check.has_alternatives() => {
            let plain = |client, outgoing, parts| send_parts(client, outgoing, parts, Step::Commit, true);
            Box::pin(alternatives::send(moving, check, &slots, step, plain, error)).await
        }
        Err(_) => {
            let parts = one_by_one(&check.check, &slots);
            Box::pin(send_parts(moving, check, parts, step, true)).await
        }
        verdict => verdict,
    }
}

/// Evaluates the parts of a check, and commits them if all fit, unless `step` only evaluates.
async fn send_parts(
    client: Arc<Client>,
    outgoing: Arc<Outgoing>,
    parts: Vec<Part>,
    step: Step,
    is_by_key: bool,
) -> Result<Verdict, Error> {
    // A slot that does not decide delays no check, unless there are no others.
    let deciding = parts.iter().filter(|part| part.decides || !parts[0].decides);
    let deciding: SmallVec<[u16; 4]> = deciding.map(|part| part.slot).collect();
    client.await_first_dials(&client.runtime()?.pool, &deciding, &outgoing.progress).await?;
    // Some steps run in tasks, so a runtime with timers is needed.
    let started = Begin::now(client.settings.deadline).ok_or_else(no_runtime)?;
    let check = CrossSlotCheck { client, outgoing, parts, is_by_key, started, runtime: Handle::current() };
    let (mut verdict, answered) = check.evaluate().await?;
    if step == Step::Evaluate {
        return Ok(verdict);
    }
    if verdict.allowed {
        check.commit(&mut verdict, &answered).await?;
    } else {
        check.reject(&check.parts, &mut verdict).await;
    }
    check.outgoing.remember(&check.client.denials, &verdict);
    Ok(verdict)
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

    /// Sends one step to the slot of `part`.
    fn ask(&self, part: &Part, step: Step) -> impl Future<Output = Result<Verdict, Error>> + Send + use<> {
        let (client, slot) = (Arc::clone(&self.client), part.slot);
        let request = self.request(part, step);
        let by_key = self.is_by_key.then(|| (Arc::clone(&self.outgoing), part.charges[0]));
        async move {
            match by_key {
                // Boxed, because it is rare and its future is large.
                Some((outgoing, index)) => Box::pin(by_key::run(client, outgoing, slot, index, step)).await,
                None => ask(client, slot, request).await,
            }
        }
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
            let evaluation = self.ask(part, Step::Evaluate);
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
        let mut commits = Commits::new(self);
        let decides = |(_, part): &(usize, &Part)| part.decides && self.has_cost(part);
        for (number, part) in self.parts.iter().enumerate().filter(decides) {
            let is_first = commits.begun.is_empty();
            let commit = commits.make(number).await;
            let commit = commit.map_err(|error| if is_first { error } else { error.charge_unknown() })?;
            if !commit.allowed {
                drop(commits);
                verdict.allowed = false;
                part.put(&commit, verdict);
                // Earlier slots need no rejection, because their policies that count denials keep the commit.
                self.reject(&self.parts[number + 1..], verdict).await;
                return Ok(());
            }
        }
        for commit in &commits.begun {
            commit.verdict.iter().for_each(|committed| self.parts[commit.number].put(committed, verdict));
        }
        let changes_count = |(index, charge): (usize, &Charge)| {
            charge.cost > 0 && (verdict.outcomes[index].fits || charge.policy.counts_denials())
        };
        let others = (0..self.parts.len()).filter(|&number| {
            let part = &self.parts[number];
            !part.decides && answered[number] && part.charges_of(&self.outgoing.check).any(changes_count)
        });
        let others: SmallVec<[(&Part, Step); 4]> = others.map(|number| commits.begin(number)).collect();
        self.send_in_tasks(&others, |part, committed| part.put(&committed, verdict)).await;
        commits.is_kept = true;
        Ok(())
    }

    /// Whether a charge of this part has a cost.
    fn has_cost(&self, part: &Part) -> bool {
        part.charges_of(&self.outgoing.check).any(|(_, charge)| charge.cost > 0)
    }

    /// Sends the rejection to the slots of `parts` that count denials. Their answers may make the wait longer or
    /// lead to a ban. The check is denied even without them.
    ///
    /// A check that a ban by hand denies counts no rejection, as on a single server.
    async fn reject(&self, parts: &[Part], verdict: &mut Verdict) {
        let check = &self.outgoing.check;
        if self.outgoing.is_banned_by_hand() {
            return;
        }
        let counts = |part: &&Part| part.charges_of(check).any(|(_, charge)| charge.policy.counts_denials());
        let parts: SmallVec<[(&Part, Step); 4]> =
            parts.iter().filter(counts).map(|part| (part, Step::Reject)).collect();
        let put = |part: &Part, rejected: Verdict| match rejected.allowed {
            // A part that was denied before and fits by now keeps its earlier outcome.
            true => part.put_would_deny(&rejected, check, verdict),
            false => part.put(&rejected, verdict),
        };
        self.send_in_tasks(&parts, put).await;
    }

    /// Sends steps to the slots of `parts`, and passes their answers to `put`.
    ///
    /// A task sends it to each slot, once, so the step also counts when the caller has gone. The slots have half of the
    /// rest of the deadline to answer.
    async fn send_in_tasks(&self, parts: &[(&Part, Step)], mut put: impl FnMut(&Part, Verdict)) {
        let deadline = self.client.settings.deadline;
        let (sender, mut answers) = mpsc::unbounded_channel();
        for (number, (part, step)) in parts.iter().enumerate() {
            let answer = self.ask(part, *step);
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
                put(parts[number].0, verdict);
            }
        };
        let _ = within(self.left() / 2, all).await;
    }

    fn refunds(&self) -> PartRefunds {
        PartRefunds {
            client: Arc::clone(&self.client),
            outgoing: Arc::clone(&self.outgoing),
            is_by_key: self.is_by_key,
            runtime: self.runtime.clone(),
        }
    }
}

/// The commits of a check that have begun. Unless they are kept, they are refunded when this is dropped: a slot has
/// denied its part or has failed, the caller has left, or the runtime has ended.
struct Commits<'a> {
    check: &'a CrossSlotCheck,
    /// The number of the check in its receipts.
    receipt: u64,
    begun: SmallVec<[Commit; 4]>,
    is_kept: bool,
}

/// The commit of one part.
struct Commit {
    /// The number of the part.
    number: usize,
    /// The answer, if there was one.
    verdict: Option<Verdict>,
    /// Whether the commit has a receipt.
    has_receipt: bool,
}

impl<'a> Commits<'a> {
    fn new(check: &'a CrossSlotCheck) -> Self {
        Self { check, receipt: random_id().get(), begun: SmallVec::new(), is_kept: false }
    }

    fn receipt_of(&self, number: usize) -> Receipt {
        let part = u8::try_from(number).expect("a check has at most Check::MAX_CHARGES charges");
        Receipt { check: self.receipt, part }
    }

    /// Begins the commit of a part. Returns the part and the step that commits it.
    fn begin(&mut self, number: usize) -> (&'a Part, Step) {
        self.begun.push(Commit { number, verdict: None, has_receipt: !self.check.is_by_key });
        (&self.check.parts[number], Step::CommitPart(self.receipt_of(number)))
    }

    /// Commits a part. A commit that has certainly charged nothing is not refunded.
    ///
    /// While a slot moves, Redis makes no receipt beside a count that is still with the old master. Then a commit is
    /// made without one, and can only be refunded if it is answered.
    async fn make(&mut self, number: usize) -> Result<Verdict, Error> {
        let check = self.check;
        let (part, step) = self.begin(number);
        let without_receipt = || check.refunds().commit(part.clone(), check.ask(part, Step::Commit));
        let mut result = match check.is_by_key {
            true => without_receipt().await,
            false => check.ask(part, step).await,
        };
        if result.as_ref().is_err_and(error::is_about_several_keys) {
            self.begun.last_mut().into_iter().for_each(|commit| commit.has_receipt = false);
            // Boxed, because it is rare.
            result = Box::pin(without_receipt()).await;
        }
        match &result {
            Ok(verdict) if verdict.allowed => {
                self.begun.last_mut().into_iter().for_each(|commit| commit.verdict = Some(verdict.clone()));
            }
            Err(error) if error.may_have_charged() => {}
            _ => drop(self.begun.pop()),
        }
        result
    }
}

impl Drop for Commits<'_> {
    fn drop(&mut self) {
        // Nothing was sent if the first commit was still in its queue.
        if self.is_kept || !self.check.outgoing.progress.may_have_charged() {
            return;
        }
        for Commit { number, verdict, has_receipt } in &self.begun {
            let committed = match verdict {
                _ if *has_receipt => Committed::Receipt(self.receipt_of(*number)),
                Some(verdict) => Committed::At(verdict.time_us),
                None => continue,
            };
            self.check.refunds().add(&self.check.parts[*number], verdict.as_ref(), committed);
        }
    }
}
