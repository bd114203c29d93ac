//! Checks on a cluster: atomic within a slot, and never over across slots.
//!
//! A check of one slot is like one on a single server. One whose keys are in several slots is looked at first, in all of
//! them at once and without a charge; that is all that most denials take. If all of it fits, it is paid slot by slot, in
//! the order of the slots: of two checks that want the same, one is ahead everywhere. A part that is refused then,
//! because another request was faster, ends the check, and what was paid before is given back.
//!
//! So such a check may hold for a moment what it does not get, and nothing is ever admitted that was not charged. What
//! is given back is sent once, like everything that changes a count: if that is lost, it stays paid (law 9). So does a
//! check that gets no verdict, for its failure policy may let it pass.
//!
//! One slot that denies is enough: then the check is denied, whatever the other slots answer, or if they do not answer.
//! They have a part of the deadline to answer in, because a longer wait of theirs belongs into Retry-After.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::{
    sync::mpsc,
    task::{JoinError, JoinSet},
    time::Instant,
};

use super::{
    batch::SLOTS,
    parts::Leave,
    progress::Progress,
    protocol::{Request, Step},
    shared::{self, Forget, KeyGroups, Original, Shared},
};
use crate::{
    check::{Charge, Check},
    error::{Error, ErrorKind},
    runtime::{deadline::within, stalls::Begin},
    verdict::{Outcome, Source, Verdict},
};

/// The charges of one slot.
struct Part {
    slot: u16,
    /// Where they are in the whole check.
    places: SmallVec<[usize; 4]>,
    /// Which remembered denials concern their keys.
    groups: KeyGroups,
    check: Check,
    /// Of the whole check.
    progress: Arc<Progress>,
}

impl Shared {
    pub(super) async fn send_by_slots(
        self: Arc<Self>,
        check: Check,
        original: Option<Box<Original>>,
        progress: Arc<Progress>,
    ) -> Result<Verdict, Error> {
        let slots: SmallVec<[u16; 4]> = check.charges().iter().map(|charge| slot_of(charge.key.encoded())).collect();
        let Some(&slot) = slots.first() else {
            return Err(Error::new(ErrorKind::Config, "a check without a charge"));
        };
        if slots.iter().all(|&other| other == slot) {
            return self.ask(slot, Request { check, step: Step::Pay, progress }, original).await;
        }
        self.first_connection(&*self.link()?, &slots, &progress).await?;
        // The steps are tasks.
        let started = Begin::now(self.deadline).ok_or_else(shared::no_runtime)?;
        let keys = original.iter().flat_map(|original| original.check.charges()).map(|charge| &charge.key);
        let parts = parts_of(&check, &slots, &self.groups(keys), &progress);
        let mut verdict = self.look(&parts, check.charges().len(), started).await?;
        if verdict.allowed {
            self.pay(&parts, &mut verdict, started).await?;
        } else {
            self.refuse(&parts, &mut verdict, started).await;
        }
        if let Some(original) = original {
            self.remember(&original, &verdict);
        }
        Ok(verdict)
    }

    /// What is left of the deadline.
    fn left(&self, started: Begin) -> Duration {
        self.deadline.saturating_sub(started.running(Instant::now()))
    }

    async fn step(self: &Arc<Self>, part: &Part, step: Step) -> Result<Verdict, Error> {
        Arc::clone(self).ask(part.slot, part.request(step), None).await
    }

    /// One step with the keys of a slot, by leave of the breaker of its part.
    async fn ask(
        self: Arc<Self>,
        slot: u16,
        request: Request,
        original: Option<Box<Original>>,
    ) -> Result<Verdict, Error> {
        let leave = Leave::ask(slot, &request.progress, self.deadline)?;
        let is_probe = leave.is_probe();
        let asked = async move {
            let result = self.request(slot, request, original).await;
            leave.end(&result);
            result
        };
        match is_probe {
            // The breaker waits for its end, also when the caller goes away.
            true => tokio::spawn(asked).await.unwrap_or_else(|_| Err(given_up())),
            false => asked.await,
        }
    }

    /// What the check would get, asked in all slots at the same time.
    ///
    /// The first denial or error decides that the check is not paid. The other slots then have half of what is left of
    /// the deadline: one of them may deny where the first had an error, and the longest wait of all denials is the true
    /// one.
    async fn look(self: &Arc<Self>, parts: &[Part], charges: usize, started: Begin) -> Result<Verdict, Error> {
        let mut looks = JoinSet::new();
        for (number, part) in parts.iter().enumerate() {
            let look = Arc::clone(self).ask(part.slot, part.request(Step::Look), None);
            looks.spawn(async move { (number, look.await) });
        }
        let mut found = Found::nothing(charges);
        while !found.decides()
            && let Some(look) = looks.join_next().await
        {
            found.add(parts, look);
        }
        let others = async {
            while let Some(look) = looks.join_next().await {
                found.add(parts, look);
            }
        };
        // Looks that are not answered by then are given up. They change no count.
        let _ = within(self.left(started) / 2, others).await;
        found.into_verdict()
    }

    /// Pays what has been found to fit, or gives back what was paid when that is not so any more.
    async fn pay(self: &Arc<Self>, parts: &[Part], verdict: &mut Verdict, started: Begin) -> Result<(), Error> {
        let mut paid: SmallVec<[Verdict; 4]> = SmallVec::new();
        for (number, part) in parts.iter().enumerate() {
            let pay = self.step(part, Step::Pay).await;
            let pay = pay.map_err(|error| if number > 0 { error.charge_unknown() } else { error })?;
            if !pay.allowed {
                for (part, pay) in parts.iter().zip(&paid) {
                    self.give_back(part, pay.time_us);
                }
                verdict.allowed = false;
                part.put(&pay, verdict);
                // What counts rejections keeps what was paid.
                self.refuse(&parts[number + 1..], verdict, started).await;
                return Ok(());
            }
            paid.push(pay);
        }
        for (part, pay) in parts.iter().zip(&paid) {
            part.put(pay, verdict);
        }
        Ok(())
    }

    /// Has the rejection counted where it is to be counted.
    ///
    /// A task of its own sends it to each slot, once, so the rejection also counts when the caller has gone. The
    /// answers have half of what is left of the deadline, because the rejection may make the wait longer or lead to a
    /// ban. The denial stands without them.
    async fn refuse(self: &Arc<Self>, parts: &[Part], verdict: &mut Verdict, started: Begin) {
        let counts = |charge: &Charge| charge.policy.count_rejected() || charge.policy.ban().is_some();
        let (sender, mut counted) = mpsc::unbounded_channel();
        for (number, part) in parts.iter().enumerate() {
            if part.check.charges().iter().any(counts) {
                let request = part.request(Step::Refuse);
                let refusal = within(self.deadline, Arc::clone(self).request(part.slot, request, None));
                let sender = sender.clone();
                tokio::spawn(async move {
                    if let Some(Ok(refused)) = refusal.await {
                        // The caller may have its answer already.
                        let _ = sender.send((number, refused));
                    }
                });
            }
        }
        drop(sender);
        let all = async {
            while let Some((number, refused)) = counted.recv().await {
                // It may fit by now, but is refused all the same, and for the reason that was found.
                if !refused.allowed {
                    parts[number].put(&refused, verdict);
                }
            }
        };
        let _ = within(self.left(started) / 2, all).await;
    }

    /// In a task of its own: the caller has its answer already, and what is given back is not given up with the caller.
    fn give_back(self: &Arc<Self>, part: &Part, paid_us: u64) {
        let mut check = Check::empty();
        for Charge { key, policy, cost } in part.check.charges() {
            if *cost > 0 && !policy.count_rejected() {
                // What was admitted was no denial.
                let pushed = check.push(key.clone(), policy.without_ban(), *cost);
                pushed.expect("charges that were valid together are valid in a part");
            }
        }
        if check.charges().is_empty() {
            return;
        }
        let (shared, slot, progress) = (Arc::clone(self), part.slot, Arc::clone(&part.progress));
        let groups = part.groups.clone();
        tokio::spawn(async move {
            // Others may have been denied for what was held.
            let _forget = Forget::new(&shared, groups);
            let request = Request { check, step: Step::GiveBack { paid_us }, progress };
            // If it fails, it stays paid.
            let _ = Arc::clone(&shared).request(slot, request, None).await;
        });
    }
}

impl Part {
    fn request(&self, step: Step) -> Request {
        Request { check: self.check.clone(), step, progress: Arc::clone(&self.progress) }
    }

    /// Puts what was found in this slot into the verdict on the whole.
    fn put(&self, found: &Verdict, verdict: &mut Verdict) {
        for (&place, outcome) in self.places.iter().zip(&found.outcomes) {
            verdict.outcomes[place] = *outcome;
        }
    }
}

/// What has been found in some of the slots.
struct Found {
    /// By charge; `None` where the slot has not answered.
    outcomes: SmallVec<[Option<Outcome>; 4]>,
    /// When the first slot judged, by its clock.
    time_us: Option<u64>,
    denied: bool,
    failure: Option<Error>,
}

impl Found {
    fn nothing(charges: usize) -> Self {
        Self { outcomes: SmallVec::from_elem(None, charges), time_us: None, denied: false, failure: None }
    }

    /// Whether the check is not to be paid, whatever else is found.
    fn decides(&self) -> bool {
        self.denied || self.failure.is_some()
    }

    fn add(&mut self, parts: &[Part], look: Result<(usize, Result<Verdict, Error>), JoinError>) {
        let failure = match look {
            Ok((number, Ok(verdict))) => {
                for (&place, outcome) in parts[number].places.iter().zip(&verdict.outcomes) {
                    self.outcomes[place] = Some(*outcome);
                }
                self.time_us.get_or_insert(verdict.time_us);
                self.denied |= !verdict.allowed;
                return;
            }
            Ok((_, Err(error))) => error,
            Err(_) => given_up(),
        };
        self.failure.get_or_insert(failure);
    }

    /// A denial wins over an error: whatever the failed slot would have said, the check does not fit.
    fn into_verdict(self) -> Result<Verdict, Error> {
        match (self.failure, self.time_us) {
            (Some(error), _) if !self.denied => Err(error),
            (_, Some(time_us)) => {
                let known = self.outcomes.iter().flatten();
                let wait = known.filter(|outcome| !outcome.fits).filter_map(|outcome| outcome.retry_after_us).max();
                let unknown = unknown_until(wait.unwrap_or(0));
                let outcomes = self.outcomes.into_iter().map(|outcome| outcome.unwrap_or(unknown)).collect();
                Ok(Verdict { allowed: !self.denied, source: Source::Store, time_us, outcomes })
            }
            (_, None) => Err(Error::new(ErrorKind::Config, "a check without a charge")),
        }
    }
}

/// The runtime ends.
fn given_up() -> Error {
    Error::new(ErrorKind::Unavailable, "the call was given up")
}

/// The outcome of a charge whose slot has not answered, beside a denial with a wait of `wait_us`. The check is not
/// denied because of it. Nothing is available by it until the check may be repeated.
fn unknown_until(wait_us: u64) -> Outcome {
    Outcome { fits: true, available: 0, retry_after_us: None, next_us: wait_us, reset_us: wait_us, ban_us: 0 }
}

/// The check, cut by slot, in the order of the slots.
fn parts_of(check: &Check, slots: &[u16], groups: &KeyGroups, progress: &Arc<Progress>) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (place, (charge, &slot)) in check.charges().iter().zip(slots).enumerate() {
        let index = parts.iter().position(|part| part.slot == slot).unwrap_or_else(|| {
            let (places, groups, progress) = (SmallVec::new(), KeyGroups::new(), Arc::clone(progress));
            parts.push(Part { slot, places, groups, check: Check::empty(), progress });
            parts.len() - 1
        });
        parts[index].places.push(place);
        parts[index].groups.extend(groups.get(place).copied());
        let pushed = parts[index].check.push(charge.key.clone(), charge.policy.clone(), charge.cost);
        pushed.expect("charges that were valid together are valid in a part");
    }
    parts.sort_by_key(|part| part.slot);
    parts
}

/// The slot of a hash tag, which is the subject of a key.
pub(super) fn slot_of(tag: &[u8]) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(tag) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        let slot = |key: &str| slot_of(key.as_bytes());
        // `CLUSTER KEYSLOT` says so.
        assert_eq!((slot("123456789"), slot("foo"), slot("bar")), (0x31c3, 12_182, 5_061));
    }
}
