//! The numbers of one count in a reply, the outcome of its charge, changes of counts by hand, and changes of open
//! holds.

use std::sync::Arc;

use smallvec::smallvec;

use super::outgoing::{Charges, Outgoing, Request, Step};
use super::{batch, by_key, client::Client, packed::Packed, progress::Progress, reply::denied_cost};
use crate::algorithm::{Held, Reported};
use crate::check::{Charge, Check, open_hold::OpenHold};
use crate::hold::{HoldChange, SettleAnswer};
use crate::policy::{Algorithm, Policy};
use crate::store::{CountChange, redis::net::error};
use crate::{error::Error, key::Key, verdict::Outcome};

impl Packed<'_> {
    /// The outcome of one count.
    pub(super) fn outcome(&mut self, policy: &Policy, cost: u64) -> Result<Outcome, Error> {
        match self.count(policy)? {
            (_, Count::Log(outcome)) => Ok(outcome),
            (fits, Count::Other(reported)) => Ok(reported.outcome(policy, cost, fits)),
        }
    }

    /// One count, and whether its charge fits.
    fn count(&mut self, policy: &Policy) -> Result<(bool, Count), Error> {
        let ((fits, has_more, number), time) = (self.number()?, self.time()?);
        let reported = match policy.algorithm() {
            Algorithm::SlidingWindowLog => {
                return Ok((fits, Count::Log(self.log(policy, fits, has_more, number, time)?)));
            }
            Algorithm::SlidingWindowCounter => {
                let previous = if has_more { self.more()? } else { 0 };
                Reported::SlidingWindowCounter { previous, current: number, left: time }
            }
            Algorithm::FixedWindow => {
                self.has_calendar |= policy.calendar_windows().is_some();
                Reported::FixedWindow { count: number, left: time }
            }
            Algorithm::TokenBucket => Reported::TokenBucket { ahead: time, fraction: number },
        };
        Ok((fits, Count::Other(reported)))
    }

    /// The outcome of a charge beside open holds. Its numbers are those of its count, as if nothing were held, and
    /// those of the holds. A changed hold fits if it was open.
    pub(super) fn outcome_beside_holds(&mut self, charge: &Charge, request: &Request) -> Result<Outcome, Error> {
        let (policy, cost) = (&charge.policy, denied_cost(charge, request.step));
        let (_, count) = self.count(policy)?;
        let ((fits, _, units), last_end) = (self.number()?, self.time()?);
        let held = Held { units, last_end };
        if held.units > 0 {
            request.outgoing.meets_holds();
        }
        let plain = match count {
            Count::Log(plain) => Outcome { fits, ..plain },
            Count::Other(reported) => return Ok(reported.outcome_beside(policy, cost, fits, held)),
        };
        if held.units == 0 || !request.step.is_check() {
            return Ok(plain);
        }
        // The script has searched the log for the waits beside the holds.
        let retry_us = if fits { None } else { self.wait()? };
        let next_us = if plain.available < held.units { self.wait()? } else { None };
        let denied = (!fits && cost <= policy.capacity()).then_some(cost);
        let wait = |asked: u64| match asked {
            _ if asked <= plain.available => 0,
            _ if denied == Some(asked) => plain.retry_after_us.unwrap_or(0),
            _ if asked == plain.available + 1 => plain.next_us,
            _ if asked == policy.capacity() => plain.reset_us,
            beside if beside == cost.saturating_add(held.units) => retry_us.unwrap_or(u64::MAX),
            beside if beside == 1 + held.units => next_us.unwrap_or(u64::MAX),
            _ => 0,
        };
        Ok(held.outcome(policy, 0, plain, denied, wait))
    }

    /// The outcome of a log, which alone can search its records for the waits.
    fn log(
        &mut self,
        policy: &Policy,
        fits: bool,
        has_more: bool,
        number: u64,
        next_us: u64,
    ) -> Result<Outcome, Error> {
        let (available, retry_after_us, reset_us) = match (has_more, fits) {
            // The charge is the newest record. Stamps are rounded up to the resolution.
            (false, true) => {
                let newest_us = self.time_us.next_multiple_of(policy.resolution_us());
                (number, None, newest_us - self.time_us + policy.window_us())
            }
            (false, false) => (0, Some(next_us), number),
            (true, true) => (number, None, self.more()?),
            (true, false) => (number, self.wait()?, self.more()?),
        };
        let available = self.units(available);
        Ok(Outcome { fits, available, retry_after_us, next_us, reset_us, ban_us: 0 })
    }
}

/// What the script reports about one count.
enum Count {
    /// A log, whose outcome the script has found.
    Log(Outcome),
    /// The state of another count.
    Other(Reported),
}

/// Changes a count. `key` is as the caller has it, `redis_key` as Redis gets it. Forgets the denials of the key now and
/// after the change_count, because a check in flight may be judged before the change_count or after it.
pub(crate) async fn change_count(
    client: Arc<Client>,
    key: Key,
    redis_key: Key,
    policy: Policy,
    change_count: CountChange,
    progress: Arc<Progress>,
) -> Result<u64, Error> {
    let _forget = client.denials.forget(client.denials.group_of(&key));
    let slot = client.keys.slot_of(&redis_key);
    let check = Check::new(key, &policy, 0);
    let outgoing = Arc::new(Outgoing::new(check, smallvec![redis_key], progress, None));
    let request = Request { outgoing, charges: Charges::All, step: Step::ByHand(change_count) };
    let verdict = batch::send(Arc::clone(&client), slot, request).await?;
    // What was changed, in the place of the available units.
    Ok(verdict.outcomes.first().map_or(0, |outcome| outcome.available))
}

/// Changes a hold. `key` is its key as Redis gets it. No denial is forgotten, because none is remembered that open
/// holds have caused.
pub(crate) async fn change_hold(
    client: Arc<Client>,
    hold: OpenHold,
    key: Key,
    change_hold: HoldChange,
    progress: Arc<Progress>,
) -> Result<SettleAnswer, Error> {
    let slot = client.keys.slot_of(&key);
    let check = Check::of_open_hold(hold);
    let outgoing = Arc::new(Outgoing::new(check, smallvec![key], progress, None));
    let moving = Arc::clone(&outgoing);
    let request = Request { outgoing, charges: Charges::All, step: Step::Change(change_hold) };
    let verdict = batch::send(Arc::clone(&client), slot, request).await;
    let verdict = match verdict {
        Err(error) if error::is_about_several_keys(&error) => {
            Box::pin(by_key::change_hold(client, moving, slot, change_hold, error)).await
        }
        verdict => verdict,
    }?;
    let is_open = verdict.outcomes.first().is_some_and(|outcome| outcome.fits);
    Ok(if is_open { SettleAnswer::Settled } else { SettleAnswer::Expired })
}
