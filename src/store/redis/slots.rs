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

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::task::JoinSet;

use super::{
    Forget, Shared,
    progress::Progress,
    protocol::{Request, Step},
    shared::Original,
};
use crate::{
    check::{Charge, Check},
    error::{Error, ErrorKind},
    key::Key,
    store::{Outcome, Verdict},
};

/// The charges of one slot.
struct Part {
    slot: u16,
    /// Where they are in the whole check.
    places: SmallVec<[usize; 4]>,
    check: Check,
    /// Of the whole check.
    progress: Arc<Progress>,
}

impl Shared {
    pub(super) async fn send_by_slots(
        self: Arc<Self>,
        check: Check,
        original: Option<Original>,
        progress: Arc<Progress>,
    ) -> Result<Verdict, Error> {
        let slots: SmallVec<[u16; 4]> = check.charges().iter().map(|charge| slot_of(&charge.key)).collect();
        let Some(&slot) = slots.first() else {
            return Err(Error::new(ErrorKind::Config, "a check without a charge"));
        };
        if slots.iter().all(|&other| other == slot) {
            return self.request(slot, Request { check, step: Step::Pay, progress }, original).await;
        }
        let parts = parts_of(&check, &slots, &progress);
        let mut verdict = self.look(&parts, check.charges().len()).await?;
        if verdict.allowed {
            self.pay(&parts, &mut verdict).await?;
        } else {
            self.refuse(&parts, &mut verdict).await;
        }
        if let Some(original) = original {
            self.remember(&original, &verdict);
        }
        Ok(verdict)
    }

    async fn step(self: &Arc<Self>, part: &Part, step: Step) -> Result<Verdict, Error> {
        Arc::clone(self).request(part.slot, part.request(step), None).await
    }

    /// What the check would get, asked in all slots at the same time.
    async fn look(self: &Arc<Self>, parts: &[Part], charges: usize) -> Result<Verdict, Error> {
        let mut looks = JoinSet::new();
        for (number, part) in parts.iter().enumerate() {
            let look = Arc::clone(self).request(part.slot, part.request(Step::Look), None);
            looks.spawn(async move { (number, look.await) });
        }
        let mut whole: Option<Verdict> = None;
        let mut outcomes: SmallVec<[Option<Outcome>; 4]> = SmallVec::from_elem(None, charges);
        while let Some(look) = looks.join_next().await {
            let (number, verdict) = look.map_err(|_| Error::new(ErrorKind::Unavailable, "the call was given up"))?;
            let verdict = verdict?;
            for (&place, outcome) in parts[number].places.iter().zip(&verdict.outcomes) {
                outcomes[place] = Some(*outcome);
            }
            whole = Some(match whole {
                Some(whole) => Verdict { allowed: whole.allowed && verdict.allowed, ..whole },
                None => verdict,
            });
        }
        let mut whole = whole.ok_or_else(|| Error::new(ErrorKind::Config, "a check without a charge"))?;
        whole.outcomes = outcomes.into_iter().flatten().collect();
        Ok(whole)
    }

    /// Pays what has been found to fit, or gives back what was paid when that is not so any more.
    async fn pay(self: &Arc<Self>, parts: &[Part], verdict: &mut Verdict) -> Result<(), Error> {
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
                self.refuse(&parts[number + 1..], verdict).await;
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
    async fn refuse(self: &Arc<Self>, parts: &[Part], verdict: &mut Verdict) {
        let counts = |charge: &Charge| charge.policy.counts_rejected() || charge.policy.ban().is_some();
        for part in parts {
            if part.check.charges().iter().any(counts) {
                // The verdict is known: what cannot be counted makes no outage of it.
                let Ok(refused) = self.step(part, Step::Refuse).await else { continue };
                // It may fit by now, but is refused all the same, and for the reason that was found.
                if !refused.allowed {
                    part.put(&refused, verdict);
                }
            }
        }
    }

    /// In a task of its own: the caller has its answer already, and what is given back is not given up with the caller.
    fn give_back(self: &Arc<Self>, part: &Part, paid_us: u64) {
        let mut check = Check::empty();
        for Charge { key, policy, cost } in part.check.charges() {
            if *cost > 0 && !policy.counts_rejected() {
                // What was admitted was no denial.
                let pushed = check.push(key.clone(), policy.without_ban(), *cost);
                pushed.expect("charges that were valid together are valid in a part");
            }
        }
        if check.charges().is_empty() {
            return;
        }
        let (shared, slot, progress) = (Arc::clone(self), part.slot, Arc::clone(&part.progress));
        tokio::spawn(async move {
            // Others may have been denied for what was held.
            let _forget = Forget::new(&shared);
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

/// The check, cut by slot, in the order of the slots.
fn parts_of(check: &Check, slots: &[u16], progress: &Arc<Progress>) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (place, (charge, &slot)) in check.charges().iter().zip(slots).enumerate() {
        let index = parts.iter().position(|part| part.slot == slot).unwrap_or_else(|| {
            let progress = Arc::clone(progress);
            parts.push(Part { slot, places: SmallVec::new(), check: Check::empty(), progress });
            parts.len() - 1
        });
        parts[index].places.push(place);
        let pushed = parts[index].check.push(charge.key.clone(), charge.policy.clone(), charge.cost);
        pushed.expect("charges that were valid together are valid in a part");
    }
    parts.sort_by_key(|part| part.slot);
    parts
}

/// The slot of a key, whose hash tag is the subject.
fn slot_of(key: &Key) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(key.encoded()) % SLOTS
}

const SLOTS: u16 = 16_384;

/// Parts that have a breaker each. A master usually has neighbouring slots, and which ones is its own affair: so many
/// parts that few belong to two masters, and so few that each has the traffic that a breaker learns from.
pub(super) const PARTS: usize = 64;

pub(super) fn part_of(key: &Key) -> usize {
    usize::from(slot_of(key)) * PARTS / usize::from(SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        let slot = |key: &str| slot_of(&Key::from(key));
        // `CLUSTER KEYSLOT` says so.
        assert_eq!((slot("123456789"), slot("foo"), slot("bar")), (0x31c3, 12_182, 5_061));
    }
}
