//! Bans: denials are counted under a policy of their own, and that count stands in the way when it is full.
//!
//! So a charge under a policy that bans is two counts to a store: its own, and behind it that of its denials, which
//! takes part in the judgement without being charged for what is admitted. It is a sliding window log of as many units as
//! denials are let pass, over the ban's duration. A denial charges one unit. With the last one, as many again are
//! charged at once: until these leave the window there is no room, and then there is all of it.
//!
//! While somebody is banned nothing is charged, so the ban ends when it was said to end.

use super::Outcome;
use crate::{check::Charge, policy::Policy};

/// A count that a charge concerns, and by how much.
#[derive(Clone, Copy)]
pub(super) struct Count<'a> {
    pub(super) policy: &'a Policy,
    pub(super) cost: u32,
}

/// The charge's own count, and that of its denials if they lead to a ban.
pub(super) fn counts(charge: &Charge) -> impl Iterator<Item = Count<'_>> {
    let Charge { policy, cost, .. } = charge;
    // Neither a peek nor what could never pass is a denial.
    let denial = u32::from((1..=policy.capacity()).contains(cost));
    let ban = policy.ban().map(|ban| Count { policy: ban, cost: denial });
    std::iter::once(Count { policy, cost: *cost }).chain(ban)
}

/// One outcome of both counts.
pub(super) fn merge(own: Outcome, ban: Outcome) -> Outcome {
    if ban.available > 0 {
        return own;
    }
    let end_us = ban.next_us;
    let own_next_us = if own.available > 0 { 0 } else { own.next_us };
    Outcome {
        fits: own.fits && ban.fits,
        available: 0,
        retry_after_us: if ban.fits { own.retry_after_us } else { Some(own.retry_after_us.unwrap_or(0).max(end_us)) },
        next_us: own_next_us.max(end_us),
        reset_us: own.reset_us.max(end_us),
        ban_us: end_us,
    }
}
