//! The parts of a check on a cluster: its charges by slot, the verdict that their evaluations make, and what refunds
//! the commit of one part. Refunds are repeated until they are answered.
//!
//! A refund outlives the task that has made it: its caller may have left, or the runtime of the check may have ended.
//! So refunds wait in a list of the store, and a task of any runtime sends them. If that task is not seen to run, the
//! next check on the cluster starts another one.

use std::{future::Future, sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::{runtime::Handle, sync::oneshot};

use super::outgoing::{Alone, AloneHold, Charges, Committed, Indices, Outgoing, Request, Step};
use super::{batch, client::Client, denials::KeyGroups, refund_list::Refund};
use crate::check::{Charge, Check, first_of};
use crate::error::{Error, ErrorKind};
use crate::verdict::{Outcome, Source, Verdict};
use crate::{policy::Policy, runtime::deadline::within, store::contract::DeadlineHandler};

/// The charges of one slot.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) slot: u16,
    /// The indices of the charges in the check.
    pub(super) charges: Indices,
    /// Whether a charge is under an enforced policy. The other parts deny nothing, and their slots may fail.
    pub(super) decides: bool,
}

impl Part {
    /// The charges of this part, with their indices in the check.
    pub(super) fn charges_of<'a>(&'a self, check: &'a Check) -> impl Iterator<Item = (usize, &'a Charge)> {
        let indices = self.charges.iter().map(|&index| usize::from(index));
        indices.map(|index| (index, &check.charges()[index]))
    }

    /// Copies the outcomes of this part into the verdict on the check.
    pub(super) fn put(&self, found: &Verdict, verdict: &mut Verdict) {
        for (&index, outcome) in self.charges.iter().zip(&found.outcomes) {
            verdict.outcomes[usize::from(index)] = *outcome;
        }
    }

    /// Copies the outcomes of shadow charges that do not fit into the verdict on the check.
    pub(super) fn put_would_deny(&self, found: &Verdict, check: &Check, verdict: &mut Verdict) {
        for ((index, charge), outcome) in self.charges_of(check).zip(&found.outcomes) {
            if charge.policy.is_shadow() && !outcome.fits {
                verdict.outcomes[index] = *outcome;
            }
        }
    }

    /// The groups of remembered denials that the keys of this part belong to.
    pub(super) fn groups(&self, outgoing: &Outgoing) -> KeyGroups {
        let groups = outgoing.ticket.as_ref().map_or(&[][..], |ticket| &ticket.fingerprint.groups);
        self.charges.iter().filter_map(|&index| groups.get(usize::from(index)).copied()).collect()
    }
}

/// The parts of a check whose charges are in these slots: those that decide, in the order of their slots, then the
/// others in that order.
pub(super) fn parts_of(check: &Check, slots: &[u16]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for ((index, &slot), charge) in (0_u8..).zip(slots).zip(check.charges()) {
        let decides = !charge.policy.is_shadow();
        match parts.iter_mut().find(|part| part.slot == slot) {
            Some(part) => {
                part.charges.push(index);
                part.decides |= decides;
            }
            None => parts.push(Part { slot, charges: Indices::from_slice(&[index]), decides }),
        }
    }
    parts.sort_by_key(|part| (!part.decides, part.slot));
    parts
}

/// A part for each charge of a check, in the order of [`parts_of`].
pub(super) fn one_by_one(check: &Check, slots: &[u16]) -> Vec<Part> {
    let charges = (0_u8..).zip(slots).zip(check.charges());
    let parts = charges.map(|((index, &slot), charge)| {
        let decides = !charge.policy.is_shadow();
        Part { slot, charges: Indices::from_slice(&[index]), decides }
    });
    let mut parts: Vec<Part> = parts.collect();
    parts.sort_by_key(|part| (!part.decides, part.slot));
    parts
}

/// Refunds the commits of a check.
#[derive(Clone)]
pub(super) struct PartRefunds {
    pub(super) client: Arc<Client>,
    pub(super) outgoing: Arc<Outgoing>,
    /// Whether each key of the check is asked alone.
    pub(super) is_by_key: bool,
    pub(super) runtime: Handle,
}

impl PartRefunds {
    /// Refunds the commit of a part. `verdict` is its answer, if there was one.
    pub(super) fn add(&self, part: &Part, verdict: Option<&Verdict>, committed: Committed) {
        // A ban by hand denies the check, and then no rejection is counted.
        let counts_rejection = |charge: &Charge| charge.policy.denials_counted() && !self.outgoing.is_banned_by_hand();
        // A shadow charge that did not fit was not committed, and of alternatives only the first that did.
        let mut charged = first_of::charged();
        let mut is_committed = |number: usize, charge: &Charge| {
            verdict.is_none_or(|verdict| charged(charge, verdict.outcomes[number].fits))
        };
        let refunded = part.charges_of(&self.outgoing.check).zip(&part.charges).enumerate();
        let refunded = refunded.filter(|(number, ((_, charge), _))| {
            is_committed(*number, charge) && charge.cost > 0 && !counts_rejection(charge)
        });
        let charges: Indices = refunded.map(|(_, (_, index))| *index).collect();
        if charges.is_empty() {
            return;
        }
        let (outgoing, groups) = (Arc::clone(&self.outgoing), part.groups(&self.outgoing));
        let step = match self.outgoing.check.charges()[usize::from(charges[0])].hold {
            // Alone, because its count may still be on another node.
            Some(id) if self.is_by_key => Step::Alone(Alone::Holds { usage: AloneHold::Release, id: Some(id) }),
            _ => Step::Refund(committed),
        };
        let refund = Refund { outgoing, charges, slot: part.slot, groups, step };
        add(&self.client, &self.runtime, refund);
    }

    /// Makes a commit that no refund can name before it is answered. A task waits for the answer, and refunds the
    /// commit if the caller has left.
    pub(super) async fn commit(
        self,
        part: Part,
        commit: impl Future<Output = Result<Verdict, Error>> + Send + 'static,
    ) -> Result<Verdict, Error> {
        let (sender, answer) = oneshot::channel();
        let (deadline, progress) = (self.client.settings.deadline, Arc::clone(&self.outgoing.progress));
        let runtime = self.runtime.clone();
        runtime.spawn(async move {
            let result = within(deadline, commit).await.unwrap_or_else(|| Err(progress.error(deadline)));
            // Dropped here if the caller has left.
            let _ = sender.send(result.map(|verdict| Unclaimed { refunds: self, part, verdict: Some(verdict) }));
        });
        let answer = answer.await.unwrap_or_else(|_| Err(given_up().charge_unknown()))?;
        answer.claim().ok_or_else(given_up)
    }
}

/// The answer of a commit. Refunds the commit unless its caller takes the answer.
struct Unclaimed {
    refunds: PartRefunds,
    part: Part,
    verdict: Option<Verdict>,
}

impl Unclaimed {
    fn claim(mut self) -> Option<Verdict> {
        self.verdict.take()
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let Some(verdict) = self.verdict.take().filter(|verdict| verdict.allowed) {
            self.refunds.add(&self.part, Some(&verdict), Committed::At(verdict.time_us));
        }
    }
}

/// How often the task shows that it runs.
const HEARTBEAT: Duration = Duration::from_millis(50);
/// Sends a refund, now and until it is answered.
pub(super) fn add(client: &Arc<Client>, runtime: &Handle, refund: Refund) {
    client.refunds.add(refund);
    start_task(client, runtime);
}

/// Starts a task for refunds that wait, if none is seen to run.
pub(super) fn resume(client: &Arc<Client>) {
    if !client.refunds.is_empty()
        && let Ok(runtime) = Handle::try_current()
    {
        start_task(client, &runtime);
    }
}

fn start_task(client: &Arc<Client>, runtime: &Handle) {
    if client.refunds.needs_task() {
        // A runtime that has ended drops the task. The next check starts another one.
        runtime.spawn(send_all(Arc::clone(client)));
    }
}

/// Sends refunds until none waits.
async fn send_all(client: Arc<Client>) {
    let deadline = client.settings.deadline;
    while let Some(due) = client.refunds.take_due(deadline) {
        for (number, refund) in due {
            tokio::spawn(attempt(Arc::clone(&client), number, refund));
        }
        let _ = within(HEARTBEAT, client.refunds.added()).await;
    }
}

/// Sends a refund once, and removes it from the list if it is not to be sent again.
async fn attempt(client: Arc<Client>, number: u64, refund: Arc<Refund>) {
    let sent = within(client.settings.deadline, send(&client, &refund)).await;
    match is_over(sent.as_ref(), || refund.is_sent_once()) {
        true => client.refunds.remove(number),
        false => client.refunds.repeat(number),
    }
}

/// Whether a refund is not to be sent again. `sent` is `None` without an answer.
fn is_over(sent: Option<&Result<(), Error>>, is_sent_once: impl FnOnce() -> bool) -> bool {
    match sent {
        Some(Ok(())) => true,
        // A value that is not a count has lost the commit.
        Some(Err(error)) if error.kind() == ErrorKind::BadKey => true,
        Some(Err(error)) if !error.may_have_charged() => false,
        // It is unknown whether it was made.
        _ => is_sent_once(),
    }
}

async fn send(client: &Arc<Client>, refund: &Refund) -> Result<(), Error> {
    // Other checks may have been denied because of the units that are refunded.
    let _forget = client.denials.forget(refund.groups.clone());
    let request = Request {
        outgoing: Arc::clone(&refund.outgoing),
        charges: Charges::Some(refund.charges.clone()),
        step: refund.step,
    };
    batch::send(Arc::clone(client), refund.slot, request).await.map(|_| ())
}

/// The results of one check, from the slots that have answered so far.
pub(crate) struct Findings {
    /// By charge; `None` where the slot has not answered.
    outcomes: SmallVec<[Option<Outcome>; 4]>,
    /// When the first slot evaluated its part, by its clock.
    time_us: Option<u64>,
    is_denied: bool,
    /// The first error of a slot that decides.
    failure: Option<Error>,
    /// The first error of a slot in which only shadow policies count.
    failure_of_others: Option<Error>,
}

impl Findings {
    /// Findings about a check, before any slot has answered.
    pub(crate) fn new(check: &Check) -> Self {
        let outcomes = SmallVec::from_elem(None, check.charges().len());
        Self { outcomes, time_us: None, is_denied: false, failure: None, failure_of_others: None }
    }

    /// Whether the check cannot be committed, whatever the other slots find.
    pub(crate) fn are_decisive(&self) -> bool {
        self.is_denied || self.failure.is_some()
    }

    /// Adds the result of the slot that has the charges at `indices`. `decides` is `false` if all of them are shadow
    /// charges.
    pub(crate) fn add(&mut self, indices: &[u8], decides: bool, result: Result<Verdict, Error>) {
        match result {
            Ok(verdict) => {
                for (&index, outcome) in indices.iter().zip(&verdict.outcomes) {
                    self.outcomes[usize::from(index)] = Some(*outcome);
                }
                self.time_us.get_or_insert(verdict.time_us);
                self.is_denied |= !verdict.allowed;
            }
            Err(error) => {
                let failure = if decides { &mut self.failure } else { &mut self.failure_of_others };
                failure.get_or_insert(error);
            }
        }
    }

    /// The verdict on the check. A denial wins over an error: the check does not fit, whatever the failed slot would
    /// have answered.
    pub(crate) fn into_verdict(self, check: &Check) -> Result<Verdict, Error> {
        match (self.failure, self.time_us) {
            (Some(error), _) if !self.is_denied => Err(error),
            (_, Some(time_us)) => {
                let known = self.outcomes.iter().flatten();
                let wait = known.filter(|outcome| !outcome.fits).filter_map(|outcome| outcome.retry_after_us).max();
                let wait_us = wait.unwrap_or(0);
                let unknown = |policy: &Policy| match self.is_denied {
                    true => unknown_until(wait_us),
                    false => unspent(policy),
                };
                let outcomes = self.outcomes.iter().zip(check.charges());
                let outcomes = outcomes.map(|(outcome, charge)| outcome.unwrap_or_else(|| unknown(&charge.policy)));
                let outcomes = outcomes.collect();
                Ok(Verdict { allowed: !self.is_denied, source: Source::Store, time_us, outcomes })
            }
            (_, None) => Err(self.failure_of_others.unwrap_or_else(no_charge)),
        }
    }
}

/// The outcome of a charge whose slot has not answered, beside a denial with a wait of `wait_us`.
///
/// The charge does not deny the check. It has nothing available until the check may be repeated.
fn unknown_until(wait_us: u64) -> Outcome {
    Outcome { fits: true, available: 0, retry_after_us: None, next_us: wait_us, reset_us: wait_us, ban_us: 0 }
}

/// The outcome of a shadow charge whose slot has not answered, in a check that passes: as if nothing were spent, so
/// that no report follows from it.
fn unspent(policy: &Policy) -> Outcome {
    Outcome { fits: true, available: policy.capacity(), retry_after_us: None, next_us: 0, reset_us: 0, ban_us: 0 }
}

/// The error of a task that ended with its runtime.
pub(crate) fn given_up() -> Error {
    Error::new(ErrorKind::Unavailable, "the tokio runtime of the call has ended")
}

/// The error of a check without charges.
pub(crate) fn no_charge() -> Error {
    Error::new(ErrorKind::InvalidCall, "the check has no charge")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A check of shadow charges and others.
    fn mixed() -> Check {
        let policy = Policy::per_minute("p", 10).unwrap();
        let shadow = Policy::per_minute("s", 10).unwrap().with_shadow(true);
        Check::new("a", &shadow, 1).and("b", &policy, 1).and("b", &shadow, 1).and("c", &policy, 1)
    }

    #[test]
    fn parts_that_decide_are_first_and_a_shadow_charge_takes_no_decision_from_a_charge_beside_it() {
        let shape = |part: Part| (part.slot, part.charges.to_vec(), part.decides);
        let of = |parts: Vec<Part>| parts.into_iter().map(shape).collect::<Vec<_>>();
        let (check, slots) = (mixed(), [1, 9, 9, 5]);
        let by_slot = [(5, vec![3], true), (9, vec![1, 2], true), (1, vec![0], false)];
        assert_eq!(of(parts_of(&check, &slots)), by_slot);
        let each = [(5, vec![3], true), (9, vec![1], true), (1, vec![0], false), (9, vec![2], false)];
        assert_eq!(of(one_by_one(&check, &slots)), each);
    }

    /// The verdict on charges that fit, or else wait for so long.
    fn verdict(waits: &[Option<u64>]) -> Verdict {
        let outcome = |&retry_after_us: &Option<u64>| {
            let fits = retry_after_us.is_none();
            Outcome { fits, retry_after_us, ..unknown_until(1) }
        };
        let (allowed, outcomes) = (waits.iter().all(Option::is_none), waits.iter().map(outcome).collect());
        Verdict { allowed, source: Source::Store, time_us: 0, outcomes }
    }

    #[test]
    fn a_rejection_that_passes_tells_of_the_shadow_charges_that_would_deny_alone() {
        let part = Part { slot: 0, charges: Indices::from_slice(&[0, 1, 2, 3]), decides: true };
        let mut told = verdict(&[Some(1), Some(2), Some(3), Some(4)]);
        part.put_would_deny(&verdict(&[None, Some(20), Some(30), None]), &mixed(), &mut told);
        let waits: Vec<_> = told.outcomes.iter().map(|outcome| outcome.retry_after_us).collect();
        assert_eq!(waits, [Some(1), Some(2), Some(30), Some(4)]);
    }

    #[test]
    fn beside_denials_a_silent_slot_has_nothing_available_until_the_longest_wait() {
        let check = mixed();
        let mut findings = Findings::new(&check);
        findings.add(&[1], true, Ok(verdict(&[Some(7)])));
        findings.add(&[3], true, Ok(verdict(&[Some(5)])));
        let found = findings.into_verdict(&check).unwrap();
        assert_eq!((found.allowed, found.outcomes[0], found.outcomes[2]), (false, unknown_until(7), unknown_until(7)));
    }

    #[test]
    fn law_3_a_refund_is_sent_until_its_store_has_answered_it() {
        let failed = |kind| Error::new(kind, "of the test");
        assert!(is_over(Some(&Ok(())), || false));
        assert!(is_over(Some(&Err(failed(ErrorKind::BadKey))), || false), "there is no count to refund to");
        assert!(!is_over(Some(&Err(failed(ErrorKind::Unavailable))), || true), "refused");
        for is_sent_once in [true, false] {
            assert_eq!(is_over(None, || is_sent_once), is_sent_once);
            let unknown = Err(failed(ErrorKind::Deadline).charge_unknown());
            assert_eq!(is_over(Some(&unknown), || is_sent_once), is_sent_once);
        }
    }
}
