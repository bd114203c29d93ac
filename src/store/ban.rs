//! Bans: a second policy counts the denials of a key, and denies the key while that count is full.
//!
//! A charge under a policy with a ban has two counts in a store: its own count, and the count of its denials. A store
//! evaluates both together, but an admitted charge is committed only to its own count. The count of denials is a
//! sliding window log over the duration of the ban; its limit is the number of denials that lead to the ban. A denial
//! charges one unit. The last denial also charges the whole limit, so the count has no room until these units leave the
//! window, all at the same time.
//!
//! During a ban nothing is charged, so the ban ends at the time that its first verdict gave.
//!
//! A ban that grows may last longer than the window in which denials count. So it is kept as a ban by hand is, beside
//! the count of denials, and its length beside that, in what the last denial alone reads.
//!
//! A ban by hand is kept beside the count itself, and denies every charge that a ban denies.

use std::time::Duration;

use crate::{check::Charge, error::ConfigError, hold::HoldChange, policy::Policy, verdict::Outcome};

/// A cost under one of the policies of a charge.
#[derive(Clone, Copy)]
pub(super) struct PolicyCost<'a> {
    pub(super) policy: &'a Policy,
    pub(super) cost: u64,
    /// Whether a ban beside the count denies the cost, also if it is 0.
    pub(super) is_denied_by_ban: bool,
}

/// The cost under the charge's own policy.
pub(super) fn own_cost(charge: &Charge) -> PolicyCost<'_> {
    PolicyCost { policy: &charge.policy, cost: charge.cost, is_denied_by_ban: charge.is_denied_by_ban() }
}

/// The cost under the policy that counts the charge's denials, if they lead to a ban.
pub(super) fn denial(charge: &Charge) -> Option<PolicyCost<'_>> {
    let policy = charge.policy.ban()?;
    // A denied cost above the capacity could never pass and is not counted. A peek (cost 0) is never denied. A request
    // that costs nothing is denied by a ban alone, during which no denial is counted.
    let is_denied_by_ban = charge.is_denied_by_ban() && charge.cost <= charge.policy.capacity();
    Some(PolicyCost { policy, cost: is_denied_by_ban.into(), is_denied_by_ban })
}

/// The cost of a settlement under the policy that counts the denials of its hold, if it may be one: it charges units.
pub(super) fn denied_settlement(hold: &Charge, change: HoldChange) -> Option<PolicyCost<'_>> {
    let may_be_denied = matches!(change, HoldChange::Settle(1..)) && !hold.policy.is_concurrent();
    let policy = hold.policy.ban().filter(|_| may_be_denied)?;
    Some(PolicyCost { policy, cost: 1, is_denied_by_ban: true })
}

/// Merges the outcome of a charge's own count with the outcome of the count of its denials.
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
        // A ban by hand may last longer.
        ban_us: own.ban_us.max(end_us),
    }
}

/// The outcome of a charge whose key is banned for `left_us` more, by hand or by a ban that grows. `own` is the outcome
/// without the ban, and `fits` says whether the charge fits beside it.
pub(super) fn by_hand(own: Outcome, fits: bool, left_us: u64) -> Outcome {
    let own_next_us = if own.available > 0 { 0 } else { own.next_us };
    // A cost that does not fit now and has no wait can never fit.
    let passes_after_ban = own.fits || own.retry_after_us.is_some();
    Outcome {
        fits,
        available: 0,
        retry_after_us: (!fits && passes_after_ban).then(|| own.retry_after_us.unwrap_or(0).max(left_us)),
        next_us: own_next_us.max(left_us),
        reset_us: own.reset_us.max(left_us),
        ban_us: own.ban_us.max(left_us),
    }
}

/// A change of the count of one key under one policy that no request makes: an operator does, or the service's code.
///
/// A store gets it with [`Store::change_count`](crate::store::Store::change_count).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum CountChange {
    /// Bans the key for this time, which is 1 µs to [`Policy::MAX_WINDOW`]. A later ban replaces an earlier one.
    Ban(Duration),
    /// Ends a ban of the key.
    Unban,
    /// Charges this number of units, at least 1, whether or not they fit. More than [`Policy::MAX_LIMIT`] count as that
    /// many.
    Record(u64),
    /// Gives back up to this number of units, at least 1.
    Credit(u64),
}

impl CountChange {
    /// Whether a store can make the change of a count under `policy`.
    pub(crate) fn validate(self, policy: &Policy) -> Result<(), ConfigError> {
        let error = |message: &str| Err(ConfigError::of_policy(policy.name(), message));
        match self {
            Self::Ban(duration) if !(Duration::from_micros(1)..=Policy::MAX_WINDOW).contains(&duration) => {
                error(&format!("a ban for {duration:?} is out of range; use 1 µs to 366 days"))
            }
            Self::Record(0) | Self::Credit(0) => error("0 units change nothing; charge or give back 1 or more"),
            Self::Record(_) | Self::Credit(_) if policy.is_concurrent() => {
                Err(ConfigError::concurrency_needs_hold(policy.name()))
            }
            _ => Ok(()),
        }
    }
}
