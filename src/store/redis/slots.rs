//! Checks on a cluster: atomic within a slot, and never over across slots.
//!
//! A check of one slot is a call of its own: Redis takes only the keys of one slot in a call, so that checks of different
//! keys could hardly ever share one. The client sends them side by side to their nodes.
//!
//! One whose keys are in several slots is looked at first, without a charge;
//! only if all of it fits is it paid, part by part. A part that is refused then, because another request was faster,
//! ends the check: what was paid before it stays paid, for the script has no way to give units back. So such a check may
//! charge without admitting, and never admits without charging.

use smallvec::SmallVec;

use super::{Connection, Shared};
use crate::{
    check::{Charge, Check},
    error::{Error, ErrorKind},
    store::{Outcome, Verdict},
};

/// Where the charges of a part are in the whole check.
type Places = SmallVec<[usize; 4]>;
/// The charges of one slot.
type Part = (u16, Places, Check);

impl Shared {
    pub(super) async fn send_by_slots(&self, check: Check) -> Result<Verdict, Error> {
        let connection = self.connect(&*self.link()?).await?;
        let mut parts = parts_of(&check);
        if parts.len() < 2 {
            return self.call_one(&connection, &check).await;
        }
        if counts_nothing_when_refused(&check) {
            let looks = self.judge_parts(&connection, &parts, &check, Step::Look).await?;
            // Those that do not fit go first. They are refused again, with their figures and before anything is paid; or
            // they fit by now, and the check goes on.
            let fits = |(_, places, _): &Part| places.iter().all(|&place| looks.outcomes[place].fits);
            parts.sort_by_key(fits);
        }
        self.judge_parts(&connection, &parts, &check, Step::Pay).await
    }

    async fn judge_parts(
        &self,
        connection: &Connection,
        parts: &[Part],
        check: &Check,
        step: Step,
    ) -> Result<Verdict, Error> {
        let mut whole: Option<Verdict> = None;
        let mut outcomes: SmallVec<[Option<Outcome>; 4]> = check.charges().iter().map(|_| None).collect();
        let mut paid = false;
        for (_, places, part) in parts {
            // After a refusal the rest is only looked at, to tell what it has.
            let refused = whole.as_ref().is_some_and(|whole| !whole.allowed);
            let looks = step == Step::Look || refused;
            let call = if looks { self.look(connection, part).await } else { self.call_one(connection, part).await };
            let verdict = call.map_err(|error| if paid { error.charge_unknown() } else { error })?;
            paid |= !looks && verdict.allowed;
            for (&place, outcome) in places.iter().zip(&verdict.outcomes) {
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

    /// What a part would get, without a charge.
    async fn look(&self, connection: &Connection, part: &Check) -> Result<Verdict, Error> {
        let mut free = Check::empty();
        for Charge { key, policy, .. } in part.charges() {
            let pushed = free.push(key.clone(), policy.clone(), 0);
            pushed.expect("charges that were valid together are valid without a cost");
        }
        let mut verdict = self.call_one(connection, &free).await?;
        for (outcome, charge) in verdict.outcomes.iter_mut().zip(part.charges()) {
            outcome.fits = charge.cost <= outcome.available;
            if !outcome.fits {
                // The earliest that anything comes back; the cost may have to wait longer.
                outcome.retry_after_us = (charge.cost <= charge.policy.capacity()).then_some(outcome.next_us.max(1));
            }
        }
        verdict.allowed = verdict.outcomes.iter().all(|outcome| outcome.fits);
        Ok(verdict)
    }

    async fn call_one(&self, connection: &Connection, check: &Check) -> Result<Verdict, Error> {
        self.call(connection.clone(), std::iter::once(check)).await?.swap_remove(0)
    }
}

/// The check, cut by slot. The order is that of the slots, so two checks of the same keys pay in the same order and the
/// slower one is refused before it has paid anything.
fn parts_of(check: &Check) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (place, charge) in check.charges().iter().enumerate() {
        let slot = slot_of(charge);
        let index = parts.iter().position(|(known, ..)| *known == slot).unwrap_or_else(|| {
            parts.push((slot, Places::new(), Check::empty()));
            parts.len() - 1
        });
        let (_, places, part) = &mut parts[index];
        places.push(place);
        let pushed = part.push(charge.key.clone(), charge.policy.clone(), charge.cost);
        pushed.expect("charges that were valid together are valid in a part");
    }
    parts.sort_by_key(|(slot, ..)| *slot);
    parts
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Step {
    Look,
    Pay,
}

/// A policy that counts what it refuses has to be asked in earnest.
fn counts_nothing_when_refused(check: &Check) -> bool {
    !check.charges().iter().any(|Charge { policy, .. }| policy.counts_rejected() || policy.ban().is_some())
}

/// The slot of a charge's key: CRC-16 (XMODEM) of its hash tag, which is the subject.
fn slot_of(charge: &Charge) -> u16 {
    let mut crc = 0_u16;
    for &byte in charge.key.encoded() {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
        }
    }
    crc % SLOTS
}

const SLOTS: u16 = 16_384;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{key::Key, policy::Policy};

    #[test]
    fn slots_are_those_of_the_specification() {
        let policy = Policy::per_second("p", 1).unwrap();
        let slot = |key: &str| slot_of(&Charge { key: Key::from(key), policy: policy.clone(), cost: 1 });
        // `CLUSTER KEYSLOT` says so.
        assert_eq!((slot("123456789"), slot("foo"), slot("bar")), (0x31c3, 12_182, 5_061));
    }
}
