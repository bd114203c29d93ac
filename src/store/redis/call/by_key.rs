//! Checks whose keys cannot be in one call, because their slot moves between two masters (TRYAGAIN): some keys are with
//! the old master, others with the new one or with neither. Redis answers calls with one key wherever the key is, so
//! each key is asked alone. The charges of such a check are its parts, as if each were in a slot of its own.
//!
//! * **A ban.** The count of denials is evaluated, then the count is committed, and a denial is counted last. A ban
//!   that begins in between is met by the next check.
//! * **Holds.** A charge is first held, beside all other holds, and then fits if the count has room for all that is
//!   held. After that a plain charge is committed and its hold released. So whatever happens in between, what is spent
//!   and what is held are never more than the limit. Two checks at the same time may deny each other.
//! * **As much as fits.** The charge is evaluated, and then as much is committed as had room. If another check is
//!   faster, both are done once more; the third time, one unit is committed or denied. Only that denial counts.
//! * **Changes of a hold.** A release and a renewal need the key of the holds alone. A settlement that charges units
//!   would have to change two nodes at once: it is not made until the keys are together again, and keeps its hold open.

use std::sync::Arc;

use smallvec::smallvec;
use tokio::runtime::Handle;

use super::outgoing::{Alone, AloneHold, Charges, Outgoing, Request, Step, Then};
use super::{
    super::net::error::is_about_several_keys, batch, client::Client, domain_permit::ask, parts, refund_list::Refund,
};
use crate::check::{Charge, Check};
use crate::hold::{HoldChange, HoldId, random_id};
use crate::verdict::{Outcome, Outcomes, Source, Verdict};
use crate::{algorithm::Held, error::Error, store::ban};

/// One charge of a check, each of whose keys is asked alone.
struct KeyByKey {
    client: Arc<Client>,
    outgoing: Arc<Outgoing>,
    slot: u16,
    index: u8,
}

/// Whether the keys of a check may be asked one by one after this error. Not after an earlier part was committed, if
/// the check holds units: a refund that is late would end a second hold of the same name.
pub(super) fn may_ask(check: &Check, error: &Error) -> bool {
    is_about_several_keys(error) && !(error.may_have_charged() && check.may_hold_in_part())
}

/// Makes one step with a charge.
pub(super) async fn run(
    client: Arc<Client>,
    outgoing: Arc<Outgoing>,
    slot: u16,
    index: u8,
    step: Step,
) -> Result<Verdict, Error> {
    let charge = KeyByKey { client, outgoing, slot, index };
    let then = match step {
        Step::Evaluate => Then::Evaluate,
        Step::Reject => Then::Reject,
        Step::UpTo => Then::Try,
        _ => Then::Commit,
    };
    if charge.charge().policy.ban().is_some() { charge.with_ban(then).await } else { charge.ask_own(then).await }
}

impl KeyByKey {
    fn charge(&self) -> &Charge {
        &self.outgoing.check.charges()[usize::from(self.index)]
    }

    fn request(&self, alone: Alone) -> Request {
        let charges = Charges::Some(smallvec![self.index]);
        Request { outgoing: Arc::clone(&self.outgoing), charges, step: Step::Alone(alone) }
    }

    async fn ask(&self, alone: Alone) -> Result<Verdict, Error> {
        ask(Arc::clone(&self.client), self.slot, self.request(alone)).await
    }

    /// The verdict with another outcome.
    fn verdict(&self, outcome: Outcome, time_us: u64) -> Verdict {
        let allowed = outcome.fits || self.charge().policy.is_shadow();
        Verdict { allowed, source: Source::Store, time_us, outcomes: Outcomes::of_one(outcome) }
    }

    /// Makes one step with the charge's own count and its holds.
    async fn ask_own(&self, then: Then) -> Result<Verdict, Error> {
        match self.charge().policy.holds() {
            Some(_) => self.beside_holds(then).await,
            None => self.ask(Alone::Count { held: Held::default(), then }).await,
        }
    }

    async fn with_ban(&self, then: Then) -> Result<Verdict, Error> {
        let before = self.ask(Alone::Denials { commits: false }).await?.outcomes[0];
        // During a ban nothing is charged, and no denial is counted.
        let then = if before.fits { then } else { Then::Evaluate };
        let own = self.ask_own(then).await?;
        let counts = matches!(then, Then::Commit | Then::Reject) && self.charge().cost > 0;
        // During a ban by hand, of which the count itself tells, no denial is counted either.
        let is_counted = counts && before.fits && !own.outcomes[0].fits && own.outcomes[0].ban_us == 0;
        let denials = match is_counted {
            true => self.ask(Alone::Denials { commits: true }).await?.outcomes[0],
            false => before,
        };
        Ok(self.verdict(ban::merge(own.outcomes[0], denials), own.time_us))
    }

    async fn beside_holds(&self, then: Then) -> Result<Verdict, Error> {
        let &Charge { cost, hold, .. } = self.charge();
        if !matches!(then, Then::Commit | Then::Try) || cost == 0 {
            let held = held_of(self.ask(self.holds(AloneHold::Look, None)).await?.outcomes[0], 0);
            return self.ask(Alone::Count { held, then: Then::Evaluate }).await;
        }
        // A plain charge is held under a name of its own.
        let id = hold.unwrap_or_else(random_id);
        let mut reservation = Reservation { charge: self, id, is_kept: false, runtime: Handle::current() };
        let made = self.ask(self.holds(AloneHold::Hold, Some(id))).await?.outcomes[0];
        let held = held_of(made, cost);
        let then = if hold.is_some() || !made.fits { Then::Evaluate } else { then };
        let mut verdict = self.ask(Alone::Count { held, then }).await?;
        let is_made = made.fits && verdict.outcomes[0].fits && hold.is_some();
        // Released before the answer, so that the next check finds the room. If that fails, it is repeated later.
        reservation.is_kept = is_made || self.ask(self.holds(AloneHold::Release, Some(id))).await.is_ok();
        if is_made {
            // The count was evaluated without the units of this hold.
            let outcome = &mut verdict.outcomes[0];
            outcome.available = outcome.available.saturating_sub(cost);
        }
        Ok(match made.fits {
            true => verdict,
            // So many units are held that no more can be.
            false => self.verdict(Outcome { fits: false, ..verdict.outcomes[0] }, verdict.time_us),
        })
    }

    fn holds(&self, usage: AloneHold, id: Option<HoldId>) -> Alone {
        Alone::Holds { usage, id }
    }
}

/// What is held beside `own` units.
fn held_of(outcome: Outcome, own: u64) -> Held {
    Held { units: outcome.available.saturating_sub(own), last_end: outcome.reset_us }
}

/// A hold that may have been made. Released when it is dropped, unless it is kept.
struct Reservation<'a> {
    charge: &'a KeyByKey,
    id: HoldId,
    is_kept: bool,
    runtime: Handle,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            let KeyByKey { client, outgoing, slot, index } = self.charge;
            let release = self.charge.holds(AloneHold::Release, Some(self.id));
            let refund = Refund {
                outgoing: Arc::clone(outgoing),
                charges: smallvec![*index],
                slot: *slot,
                groups: smallvec![],
                step: Step::Alone(release),
            };
            parts::add(client, &self.runtime, refund);
        }
    }
}

/// How often a charge of as much as fits looks for room. Other checks were faster after each look but the last.
const MOST_LOOKS: u32 = 3;

/// Charges as much of the only charge as fits. Returns the charged units.
pub(super) async fn charge_up_to(
    client: Arc<Client>,
    outgoing: Arc<Outgoing>,
    slot: u16,
) -> Result<(Verdict, u64), Error> {
    let (whole, mut looks) = (&outgoing.check.charges()[0], 0);
    loop {
        looks += 1;
        let found = run(Arc::clone(&client), Arc::clone(&outgoing), slot, 0, Step::Evaluate).await?.outcomes[0];
        let cost = match found.fits {
            _ if looks == MOST_LOOKS => 1,
            true => whole.cost,
            false => found.available.max(1),
        };
        // Only the denial of one unit counts.
        let step = if cost == 1 { Step::Commit } else { Step::UpTo };
        let check = Check::of_distinct([Charge { cost, ..whole.clone() }]);
        let part = parts::parts_of(&check, &[slot]).remove(0);
        let fitting = Arc::new(Outgoing::new(check, outgoing.keys.clone(), Arc::clone(&outgoing.progress), None));
        let refunds = parts::PartRefunds {
            client: Arc::clone(&client),
            outgoing: Arc::clone(&fitting),
            is_by_key: true,
            runtime: Handle::current(),
        };
        let verdict = refunds.commit(part, run(Arc::clone(&client), fitting, slot, 0, step)).await?;
        let is_charged = verdict.outcomes[0].fits;
        if is_charged || cost == 1 {
            return Ok((verdict, if is_charged { cost } else { 0 }));
        }
    }
}

/// Changes the hold of the only charge. `error` is why its keys cannot be in one call.
pub(super) async fn change_hold(
    client: Arc<Client>,
    outgoing: Arc<Outgoing>,
    slot: u16,
    change: HoldChange,
    error: Error,
) -> Result<Verdict, Error> {
    let charge = KeyByKey { client, outgoing, slot, index: 0 };
    let usage = if change == HoldChange::Settle(0) { AloneHold::Release } else { AloneHold::Renew };
    let request = charge.request(charge.holds(usage, charge.charge().hold));
    let verdict = batch::send(Arc::clone(&charge.client), slot, request).await?;
    match change {
        // The hold stays open until the settlement can be made. One that has ended is the answer.
        HoldChange::Settle(1..) if verdict.outcomes[0].fits => Err(error),
        _ => Ok(verdict),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        RedisStore,
        error::ErrorKind,
        key::Key,
        policy::{HoldSettings, Policy},
        store::redis::call::{outgoing::Committed, progress::Progress},
    };

    #[tokio::test(start_paused = true)]
    async fn law_3_where_the_keys_of_a_hold_are_apart_a_refund_releases_the_hold_alone() {
        let client = Arc::clone(&RedisStore::open("redis://127.0.0.1:1").unwrap().inner.client);
        let policy = Policy::per_minute("p", 10).unwrap().with_holds(HoldSettings::new());
        let (hold, plain) = (Check::hold("a", &policy, 3), Check::new("a", &policy, 3));
        let alone = Step::Alone(Alone::Holds { usage: AloneHold::Release, id: hold.charges()[0].hold });
        let refund = Step::Refund(Committed::At(5));
        for (check, is_by_key, step) in [(&hold, true, alone), (&hold, false, refund), (&plain, true, refund)] {
            let outgoing = Outgoing::new(check.clone(), smallvec![Key::from("a")], Progress::new(false), None);
            let (client, runtime) = (Arc::clone(&client), Handle::current());
            let refunds = parts::PartRefunds { client, outgoing: Arc::new(outgoing), is_by_key, runtime };
            refunds.add(&parts::parts_of(check, &[0])[0], None, Committed::At(5));
            let due = refunds.client.refunds.take_due(Duration::ZERO).unwrap();
            assert_eq!(due.iter().map(|(_, refund)| refund.step).collect::<Vec<_>>(), [step], "{is_by_key}");
        }
    }

    #[test]
    fn a_check_that_holds_units_is_not_asked_key_by_key_after_an_earlier_part_was_committed() {
        let (plain, slots) = (Policy::per_minute("p", 10).unwrap(), Policy::concurrent("slots", 3).unwrap());
        let moving = || Error::new(ErrorKind::Unavailable, "TRYAGAIN Multiple keys request during rehashing of slot");
        let held = Check::hold("a", &slots, 1);
        for (check, is_asked) in [
            (held.clone().and("b", &plain, 1), false),
            (held, true),
            (Check::new("a", &plain, 1).and("b", &plain, 1), true),
        ] {
            assert!(may_ask(&check, &moving()));
            assert_eq!(may_ask(&check, &moving().charge_unknown()), is_asked);
            let away = Error::new(ErrorKind::Unavailable, "away");
            assert!(!may_ask(&check, &away));
        }
    }
}
