//! Checks with alternatives whose keys cannot be in one call, because their slot moves between two masters (TRYAGAIN).
//!
//! Each charge is evaluated alone. Then a check without alternatives is sent: the first of them that fits, and the
//! other charges. If it has lost its room meanwhile, the next one follows. So an alternative is charged only if an
//! earlier one had no room during the check, and never two of them. A check that holds units beside the alternatives is
//! not sent again, but is an error that can be repeated.

use std::sync::Arc;

use smallvec::SmallVec;

use super::outgoing::{Outgoing, Step};
use super::parts::{Part, one_by_one};
use super::{by_key, client::Client};
use crate::check::{Check, first_of};
use crate::error::Error;
use crate::verdict::{Outcome, Outcomes, Source, Verdict};

/// A check with alternatives, each of whose keys is asked alone.
struct OneByOne<'a> {
    client: Arc<Client>,
    outgoing: Arc<Outgoing>,
    slots: &'a [u16],
    /// By charge: what is known so far.
    outcomes: SmallVec<[Outcome; 4]>,
    time_us: u64,
}

/// Sends a check with alternatives, or only evaluates it if `step` does. `slots` are those of its charges. `send_plain`
/// sends a check without alternatives, whose parts are one charge each. `error` is why its keys cannot be in one call.
pub(super) async fn send<F>(
    client: Arc<Client>,
    outgoing: Arc<Outgoing>,
    slots: &[u16],
    step: Step,
    send_plain: impl Fn(Arc<Client>, Arc<Outgoing>, Vec<Part>) -> F,
    error: Error,
) -> Result<Verdict, Error>
where
    F: Future<Output = Result<Verdict, Error>>,
{
    let mut check = OneByOne { client, outgoing, slots, outcomes: SmallVec::new(), time_us: 0 };
    for index in 0..slots.len() {
        let verdict = check.ask(index, Step::Evaluate).await?;
        check.outcomes.extend_from_slice(&verdict.outcomes);
        check.time_us = verdict.time_us;
    }
    let passes = check.passes();
    if step == Step::Evaluate {
        return Ok(check.verdict(passes));
    }
    // With each attempt that is denied, a charge has lost its room. A second one would make the holds beside the
    // alternatives under the names that the first one releases.
    let whole = &check.outgoing.check;
    let holds_beside = whole.may_hold_in_part() && whole.groups().count() > 1;
    let attempts = if holds_beside { 1 } else { slots.len() };
    for _ in 0..attempts {
        if check.passes() && check.commit(&send_plain).await? {
            return Ok(check.verdict(true));
        }
    }
    if passes && check.passes() {
        // Another alternative has room, so this is no denial.
        return Err(error);
    }
    if !passes && !check.outgoing.is_banned_by_hand() {
        // An attempt has counted the rejection itself. Beside a ban by hand, none is counted.
        check.reject().await;
    }
    Ok(check.verdict(false))
}

impl OneByOne<'_> {
    /// Makes one step with one charge.
    async fn ask(&self, index: usize, step: Step) -> Result<Verdict, Error> {
        let number = u8::try_from(index).expect("a check has at most Check::MAX_CHARGES charges");
        // Boxed, because it is rare and its future is large.
        Box::pin(by_key::run(Arc::clone(&self.client), Arc::clone(&self.outgoing), self.slots[index], number, step))
            .await
    }

    /// Whether the check passes by what is known.
    fn passes(&self) -> bool {
        first_of::pass(self.outgoing.check.charges().iter().zip(&self.outcomes).map(|(one, found)| (one, found.fits)))
    }

    /// Sends the charges that fit, of alternatives the first. Returns whether they were charged.
    async fn commit<F>(
        &mut self,
        send_plain: &impl Fn(Arc<Client>, Arc<Outgoing>, Vec<Part>) -> F,
    ) -> Result<bool, Error>
    where
        F: Future<Output = Result<Verdict, Error>>,
    {
        let mut is_charged = first_of::charged();
        let charges = self.outgoing.check.charges().iter().zip(&self.outcomes).enumerate();
        let sent: SmallVec<[usize; 4]> = charges
            .filter(|(_, (charge, found))| is_charged(charge, found.fits) || !charge.is_alternative())
            .map(|(index, _)| index)
            .collect();
        if sent.is_empty() {
            // Shadow charges alone, of which none fits.
            return Ok(true);
        }
        let check = Check::of_distinct(sent.iter().map(|&index| self.outgoing.check.charges()[index].alone()));
        let slots: SmallVec<[u16; 4]> = sent.iter().map(|&index| self.slots[index]).collect();
        let keys = sent.iter().map(|&index| self.outgoing.keys[index].clone()).collect();
        let parts = one_by_one(&check, &slots);
        let outgoing = Outgoing::new(check, keys, Arc::clone(&self.outgoing.progress), None);
        if self.outgoing.is_banned_by_hand() {
            outgoing.meets_ban_by_hand();
        }
        let verdict = send_plain(Arc::clone(&self.client), Arc::new(outgoing), parts).await?;
        for (&index, outcome) in sent.iter().zip(&verdict.outcomes) {
            self.outcomes[index] = *outcome;
        }
        self.time_us = verdict.time_us;
        Ok(verdict.allowed)
    }

    /// Counts the rejection where policies count it. The check is denied even without these answers.
    async fn reject(&mut self) {
        for index in 0..self.slots.len() {
            let counts = self.outgoing.check.charges()[index].policy.counts_denials();
            if counts && let Ok(verdict) = self.ask(index, Step::Reject).await {
                // A charge that has got room meanwhile keeps its outcome: the check is denied.
                verdict.outcomes.iter().filter(|found| !found.fits).for_each(|found| self.outcomes[index] = *found);
            }
        }
    }

    fn verdict(self, allowed: bool) -> Verdict {
        let outcomes: Outcomes = self.outcomes.into_iter().collect();
        Verdict { allowed, source: Source::Store, time_us: self.time_us, outcomes }
    }
}
