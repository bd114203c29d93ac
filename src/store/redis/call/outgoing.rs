//! A check on its way to Redis, its steps, and the requests that carry it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;

use super::denials::{Denials, Ticket};
use super::progress::Progress;
use crate::check::{Charge, Check, first_of};
use crate::hold::{HoldChange, HoldId};
use crate::verdict::{Outcome, Verdict};
use crate::{algorithm::Held, key::Key, store::CountChange};

/// A check on its way to Redis. All requests of the check share it, so the check itself is never copied.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) check: Check,
    /// The keys of the charges as Redis gets them, in order.
    pub(crate) keys: SmallVec<[Key; 1]>,
    pub(crate) progress: Arc<Progress>,
    /// What is needed to remember a denial. `None` if denials are not remembered.
    pub(crate) ticket: Option<Ticket>,
    /// Whether units of a charge were held when the check was evaluated.
    meets_holds: AtomicBool,
    /// Whether a key of a charge was banned by hand when the check was evaluated.
    meets_ban_by_hand: AtomicBool,
}

impl Outgoing {
    /// A check that is about to be sent.
    pub(crate) fn new(check: Check, keys: SmallVec<[Key; 1]>, progress: Arc<Progress>, ticket: Option<Ticket>) -> Self {
        let (meets_holds, meets_ban_by_hand) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { check, keys, progress, ticket, meets_holds, meets_ban_by_hand }
    }

    /// Records that units of a charge are held.
    pub(crate) fn meets_holds(&self) {
        self.meets_holds.store(true, Ordering::Relaxed);
    }

    /// Records that a key of a charge with a cost is banned by hand.
    pub(crate) fn meets_ban_by_hand(&self) {
        self.meets_ban_by_hand.store(true, Ordering::Relaxed);
    }

    /// Whether a ban by hand denies the check. Then no rejection is counted.
    pub(crate) fn is_banned_by_hand(&self) -> bool {
        self.meets_ban_by_hand.load(Ordering::Relaxed)
    }

    /// Remembers the verdict on the check, if it is a denial that is certain to hold for a while. Not beside open
    /// holds: they may end at any time.
    pub(crate) fn remember(&self, denials: &Denials, verdict: &Verdict) {
        if let Some(ticket) = &self.ticket {
            let may_change = self.meets_holds.load(Ordering::Relaxed);
            denials.remember(&self.check, ticket, (!may_change).then_some(verdict));
        }
    }
}

/// One step with the charges of a check that belong to one slot.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) outgoing: Arc<Outgoing>,
    pub(crate) charges: Charges,
    pub(crate) step: Step,
}

/// Which charges of a check a request carries.
#[derive(Clone, Debug)]
pub(crate) enum Charges {
    /// All charges of the check.
    All,
    /// The charges at these indices.
    Some(Indices),
}

/// Indices of charges. A check has at most [`Check::MAX_CHARGES`].
pub(crate) type Indices = SmallVec<[u8; 16]>;

impl Request {
    /// A request that carries a whole check.
    pub(crate) fn whole(outgoing: Arc<Outgoing>) -> Self {
        Self { outgoing, charges: Charges::All, step: Step::Commit }
    }

    /// The charges with their keys as Redis gets them.
    pub(crate) fn charges(&self) -> impl Iterator<Item = (&Charge, &Key)> + Clone {
        (0..self.len()).map(|number| {
            let index = match &self.charges {
                Charges::All => number,
                Charges::Some(indices) => usize::from(indices[number]),
            };
            (&self.outgoing.check.charges()[index], &self.outgoing.keys[index])
        })
    }

    /// The number of charges.
    pub(crate) fn len(&self) -> usize {
        match &self.charges {
            Charges::All => self.outgoing.check.charges().len(),
            Charges::Some(indices) => indices.len(),
        }
    }

    /// Whether these outcomes of the charges allow the check: all fit that are not under shadow policies, and of
    /// alternatives one.
    pub(super) fn is_allowed_by(&self, outcomes: &[Outcome]) -> bool {
        first_of::pass(self.charges().zip(outcomes).map(|((charge, _), outcome)| (charge, outcome.fits)))
    }

    /// The denial of the check, if one was remembered since the check was made. `None` for a part of a check.
    pub(crate) fn denied_since(&self, denials: &Denials) -> Option<Verdict> {
        let ticket = self.outgoing.ticket.as_ref().filter(|_| self.is_whole())?;
        denials.denied_since(&self.outgoing.check, ticket)
    }

    /// Remembers the verdict, if it is a denial of the whole check.
    pub(crate) fn remember(&self, denials: &Denials, verdict: &Verdict) {
        if self.is_whole() {
            self.outgoing.remember(denials, verdict);
        }
    }

    /// Whether the request carries all charges of the check.
    fn is_whole(&self) -> bool {
        matches!(self.charges, Charges::All)
    }
}

/// One step of a check.
///
/// A single server takes a check in one step, which evaluates all charges and commits them if all fit. Across the slots
/// of a cluster a check takes several steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    /// Evaluates the charges. Changes no count.
    Evaluate,
    /// Evaluates the charges, and commits them if all fit.
    Commit,
    /// The same for one part of a check, with a receipt that a refund can name.
    CommitPart(Receipt),
    /// Changes the hold that the only charge names.
    Change(HoldChange),
    /// Changes the count of the only charge by hand.
    ByHand(CountChange),
    /// Charges as much of the only charge as fits.
    UpTo,
    /// Evaluates the charges of a check that another slot has denied, and commits what counts denials.
    Reject,
    /// Refunds a commit. Evaluates nothing.
    Refund(Committed),
    /// Asks one key of the only charge alone, because the slot moves between two masters.
    Alone(Alone),
}

/// One key of a charge, and what is done with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Alone {
    /// The count itself, beside units that are held.
    Count { held: Held, then: Then },
    /// The count of denials: counts one more denial, or only evaluates.
    Denials { commits: bool },
    /// The open holds: changes the hold with this name. Its units are those of the charge.
    Holds { usage: AloneHold, id: Option<HoldId> },
}

/// What is done with a count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Then {
    /// Evaluates the charge.
    Evaluate,
    /// Commits the charge if it fits.
    Commit,
    /// The same, but a denial is not counted.
    Try,
    /// Commits the charge if it counts denials, because the check is denied.
    Reject,
}

/// What is done with open holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum AloneHold {
    /// Adds up what is held.
    Look,
    /// Holds units, whether or not they fit.
    Hold,
    /// Ends a hold, and charges nothing.
    Release,
    /// Moves the end of a hold.
    Renew,
}

/// The receipt of a commit: a key of its own in the slot of the commit. `lua/refund.lua` describes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Receipt {
    /// A random number for each check.
    pub(crate) check: u64,
    /// The number of the part of the check.
    pub(crate) part: u8,
}

/// How a refund names its commit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Committed {
    /// By its receipt. Such a refund may be sent again, and before it is known whether the commit was made.
    Receipt(Receipt),
    /// By its time in microseconds, by the server's clock. Such a refund is sent once.
    At(u64),
}

impl Step {
    /// Whether the step evaluates the charges.
    pub(crate) fn is_check(self) -> bool {
        !matches!(self, Self::Change(_) | Self::ByHand(_) | Self::Refund(_))
    }

    /// Whether the step is for one key of a slot that moves.
    pub(super) fn is_alone(self) -> bool {
        matches!(self, Self::Alone(_))
    }

    /// Whether the step may charge units.
    pub(crate) fn may_charge(self) -> bool {
        matches!(
            self,
            Self::Commit
                | Self::CommitPart(_)
                | Self::Change(_)
                | Self::ByHand(_)
                | Self::UpTo
                | Self::Alone(
                    Alone::Count { then: Then::Commit | Then::Try, .. } | Alone::Holds { usage: AloneHold::Hold, .. }
                )
        )
    }

    /// The receipt that the step names.
    pub(crate) fn receipt(self) -> Option<Receipt> {
        match self {
            Self::CommitPart(receipt) | Self::Refund(Committed::Receipt(receipt)) => Some(receipt),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::{policy::Policy, store::redis::call::reply};

    #[test]
    fn a_ban_by_hand_denies_a_check_unless_it_is_under_a_shadow_policy_or_without_a_cost() {
        for (is_shadow, cost, is_denied) in [(false, 1, true), (false, 0, false), (true, 1, false)] {
            let policy = Policy::per_minute("p", 10).unwrap().with_shadow(is_shadow);
            let (check, keys) = (Check::new("k", &policy, cost), smallvec![Key::from("k")]);
            let request = Request::whole(Arc::new(Outgoing::new(check, keys, Progress::new(false), None)));
            let fits = Outcome { fits: true, available: 9, retry_after_us: None, next_us: 0, reset_us: 0, ban_us: 0 };
            let mut verdict = Verdict::of_one(fits, &policy, 5);
            reply::add(&mut verdict, &request, &[12]);
            assert_eq!((verdict.allowed, verdict.outcomes[0].ban_us), (!is_denied, 7), "{is_shadow} {cost}");
            assert_eq!(request.outgoing.is_banned_by_hand(), is_denied, "{is_shadow} {cost}");
        }
    }
}
