//! A count with the open holds beside it, and with a ban.
//!
//! Most counts have neither, so they are kept as they are. The first hold moves a count into a box together with its
//! holds, and the end of the last one moves it back. A ban moves the count into a box too, and nothing is charged to it
//! by checks until the ban has ended.

use std::mem;

use crate::algorithm::{Admission, CountState, Held};
use crate::check::Charge;
use crate::hold::{HoldChange, HoldId, SettleAnswer};
use crate::policy::{BanGrowth, Policy, micros_up};
use crate::store::{CountChange, ban, memory::open_holds::OpenHolds};
use crate::verdict::{Outcome, Verdict};

/// What one key has spent under one policy, and what it holds.
#[derive(Clone, Debug)]
pub(super) enum Count {
    Plain(CountState),
    Held(Box<HeldCount>),
    Banned(Box<BannedCount>),
    Growing(Box<GrowingCount>),
}

/// A count whose key is banned by hand, or a count of denials that have led to a ban that grows.
#[derive(Clone, Debug)]
pub(super) struct BannedCount {
    /// Not banned itself.
    count: Count,
    /// When the ban ends, in microseconds.
    until: u64,
    /// How long the ban lasts, in microseconds.
    duration: u64,
}

/// A count with open holds.
#[derive(Clone, Debug)]
pub(super) struct HeldCount {
    state: CountState,
    open: OpenHolds,
    /// The time in which the most units that were held together leave the count, under the policy that held them.
    /// Policies that share the count may have other limits.
    span_us: u64,
}

/// A count of denials, and the last ban to which they have led.
#[derive(Clone, Debug)]
pub(super) struct GrowingCount {
    state: CountState,
    /// How long the last ban lasted, in microseconds.
    last_ban: u64,
    /// When that is forgotten, in microseconds.
    forgotten_at: u64,
}

/// Most holds whose time has passed that one check ends, so that none takes long: those that are released, and those
/// that are charged. The others count as open until further checks end them. They have units, so this affects no check
/// that costs fewer units.
const MOST_RELEASED: usize = 4_096;
const MOST_CHARGED: usize = 1_024;

impl Count {
    pub(super) fn new(policy: &Policy) -> Self {
        Self::Plain(CountState::new(policy))
    }

    /// Judges a plain charge, for a check with a single charge. Each arm writes its outcome into the verdict, because
    /// the outcome is copied once more where arms meet.
    #[inline(always)]
    pub(super) fn judge(&mut self, charge: &Charge, now: u64) -> Verdict {
        match self {
            Self::Plain(state) => {
                let outcome = state.evaluate_and_commit(&charge.policy, now, charge.cost);
                Verdict::of_one(outcome, &charge.policy, now)
            }
            Self::Held(_) | Self::Banned(_) | Self::Growing(_) => self.judge_in_box(charge, now),
        }
    }

    #[cold]
    fn judge_in_box(&mut self, charge: &Charge, now: u64) -> Verdict {
        let fits = match self.is_banned(&charge.policy, now) {
            true => !charge.is_denied_by_ban(),
            false => self.evaluate(&charge.policy, now, charge.cost),
        };
        let outcome = self.commit(&charge.policy, now, charge.cost, None, fits, Admission::of(fits));
        Verdict::of_one(outcome, &charge.policy, now)
    }

    /// Begins a ban that the last denial has led to, of which `denied` is the outcome. Each ban is twice as long as the
    /// last one, unless that is forgotten.
    pub(super) fn begin_ban(&mut self, policy: &Policy, now: u64, growth: BanGrowth, denied: Outcome) -> Outcome {
        let last_ban = match self {
            Self::Growing(count) if count.forgotten_at > now => Some(count.last_ban),
            _ => None,
        };
        let (length, remembered) = growth.next_ban(policy.window_us(), last_ban);
        // All denials will have left the window when the ban ends.
        let state = CountState::new(policy);
        let count = Self::Growing(Box::new(GrowingCount { state, last_ban: length, forgotten_at: now + remembered }));
        *self = Self::Banned(Box::new(BannedCount { count, until: now + length, duration: length }));
        ban::by_hand(denied, false, length)
    }

    /// Whether the key is banned by hand. A ban that has ended is lifted. After the clock was set back, a ban lasts for
    /// its whole duration once more, and not for the time of the step.
    pub(super) fn is_banned(&mut self, policy: &Policy, now: u64) -> bool {
        if let Self::Banned(banned) = self {
            banned.until = banned.until.min(now + banned.duration);
        }
        match self {
            Self::Banned(banned) if banned.until > now => true,
            Self::Banned(_) => {
                self.lift(policy);
                false
            }
            _ => false,
        }
    }

    /// Evaluates a count that is not banned: returns whether `cost` fits. Ends holds whose time has passed, and changes
    /// nothing otherwise.
    pub(super) fn evaluate(&mut self, policy: &Policy, now: u64, cost: u64) -> bool {
        self.end_expired(policy, now);
        self.fits(policy, now, cost)
    }

    /// The largest cost that fits. Ends holds whose time has passed, and changes nothing otherwise.
    pub(super) fn room(&mut self, policy: &Policy, now: u64) -> u64 {
        if self.is_banned(policy, now) {
            return 0;
        }
        self.end_expired(policy, now);
        match self {
            Self::Held(count) if policy.holds().is_none() => count.state.available(policy, now),
            _ => self.available(policy, now),
        }
    }

    /// Whether `cost` fits, without a ban.
    fn fits(&self, policy: &Policy, now: u64, cost: u64) -> bool {
        match self {
            Self::Plain(state) => state.evaluate(policy, now, cost),
            Self::Held(count) if policy.holds().is_some() => {
                count.state.evaluate_beside(policy, now, cost, count.open.held())
            }
            Self::Held(count) => count.state.evaluate(policy, now, cost),
            Self::Growing(count) => count.state.evaluate(policy, now, cost),
            Self::Banned(banned) => banned.count.fits(policy, now, cost),
        }
    }

    /// Commits: charges or holds `cost` if the whole check is admitted. Returns the outcome.
    pub(super) fn commit(
        &mut self,
        policy: &Policy,
        now: u64,
        cost: u64,
        hold: Option<HoldId>,
        fits: bool,
        admission: Admission,
    ) -> Outcome {
        if let Self::Banned(banned) = self {
            let fits_after = banned.count.fits(policy, now, cost);
            let own = banned.count.commit(policy, now, cost, None, fits_after, Admission::Banned);
            return ban::by_hand(own, fits, banned.until - now);
        }
        let is_admitted = admission == Admission::Admitted && cost <= policy.capacity();
        if let (Some(id), true) = (hold, is_admitted) {
            self.hold(policy, now, id, cost);
        }
        match self {
            Self::Held(count) if policy.holds().is_some() => {
                if is_admitted && hold.is_none() {
                    count.state.settle(policy, now, cost);
                }
                count.state.outcome_beside(policy, now, cost, fits, count.open.held())
            }
            Self::Plain(state) => state.commit(policy, now, cost, fits, admission),
            Self::Held(count) => count.state.commit(policy, now, cost, fits, admission),
            Self::Growing(count) => count.state.commit(policy, now, cost, fits, admission),
            Self::Banned(_) => unreachable!("the outcome of a banned count is returned above"),
        }
    }

    /// Holds units, whether or not they fit.
    pub(super) fn hold(&mut self, policy: &Policy, now: u64, id: HoldId, units: u64) {
        if let Some(holds) = policy.holds() {
            let count = self.with_holds(policy);
            count.open.open(id, units.min(Policy::MAX_LIMIT), now + holds.ttl_us());
            count.span_us = count.span_us.max(count.state.span(policy, count.open.held().units));
        }
    }

    /// Changes a hold. The answer is `Expired` if it is not open.
    pub(super) fn change(&mut self, policy: &Policy, now: u64, id: HoldId, change: HoldChange) -> SettleAnswer {
        if let Self::Banned(banned) = self {
            return banned.count.change(policy, now, id, change);
        }
        self.end_expired(policy, now);
        let Self::Held(count) = self else { return SettleAnswer::Expired };
        if count.open.end_of(id).is_none_or(|end| end <= now) {
            return SettleAnswer::Expired;
        }
        let units = count.open.close(id);
        match change {
            HoldChange::Settle(actual) => count.state.settle(policy, now, actual),
            HoldChange::Renew => {
                let ttl = policy.holds().map_or(0, |holds| holds.ttl_us());
                count.open.open(id, units.unwrap_or(0), now + ttl);
            }
        }
        self.without_empty_holds(policy);
        SettleAnswer::Settled
    }

    /// Whether a settlement charges more than was held, and more than fits beside the other holds. Not during a ban.
    pub(super) fn denies_settlement(&mut self, policy: &Policy, now: u64, id: HoldId, actual: u64) -> bool {
        if self.is_banned(policy, now) {
            return false;
        }
        self.end_expired(policy, now);
        let Self::Held(count) = self else { return false };
        let Some(units) = count.open.units_of(id, now).filter(|units| actual > *units) else { return false };
        let held = count.open.held();
        let others = Held { units: held.units - units, ..held };
        !count.state.evaluate_beside(policy, now, actual, others)
    }

    /// Forgets what was spent, and what is held if the policy has holds. Returns whether anything is left: open holds,
    /// for which a policy without holds does not look.
    pub(super) fn forget(&mut self, policy: &Policy) -> bool {
        self.lift(policy);
        match self {
            Self::Held(count) if policy.holds().is_none() => {
                count.state = CountState::new(policy);
                true
            }
            _ => false,
        }
    }

    /// Changes the count by hand. See [`Store::change_count`](crate::store::Store::change_count).
    pub(super) fn change_by_hand(&mut self, policy: &Policy, now: u64, change: CountChange) -> u64 {
        let was_banned = self.is_banned(policy, now);
        match change {
            CountChange::Ban(duration) => {
                self.lift(policy);
                let (count, duration) = (mem::replace(self, Self::new(policy)), micros_up(duration));
                *self = Self::Banned(Box::new(BannedCount { count, until: now + duration, duration }));
                0
            }
            CountChange::Unban => {
                self.lift(policy);
                was_banned.into()
            }
            CountChange::Record(units) => {
                let units = units.min(Policy::MAX_LIMIT);
                self.state_mut().settle(policy, now, units);
                units
            }
            CountChange::Credit(units) => self.state_mut().credit(policy, now, units),
        }
    }

    /// The count of the charges.
    fn state_mut(&mut self) -> &mut CountState {
        match self {
            Self::Plain(state) => state,
            Self::Held(count) => &mut count.state,
            Self::Growing(count) => &mut count.state,
            Self::Banned(banned) => banned.count.state_mut(),
        }
    }

    /// Ends a ban.
    fn lift(&mut self, policy: &Policy) {
        if let Self::Banned(banned) = self {
            *self = mem::replace(&mut banned.count, Self::new(policy));
        }
    }

    /// Whether a hold is open whose time has not passed.
    pub(super) fn has_open_holds(&self, now: u64) -> bool {
        self.parts().1.last_end > now
    }

    /// The largest cost that fits now.
    pub(super) fn available(&self, policy: &Policy, now: u64) -> u64 {
        match self {
            Self::Banned(banned) if banned.until > now => return 0,
            _ => {}
        }
        let (state, held) = self.parts();
        state.available(policy, now).saturating_sub(held.units)
    }

    /// The time from which this count equals a fresh one.
    pub(super) fn idle_at(&self, policy: &Policy) -> u64 {
        match self {
            Self::Plain(state) => state.idle_at(policy),
            // The holds are charged one after the other, and the last of these charges leaves last. Released holds are
            // not charged, but the policy may have been replaced by one that charges them.
            Self::Held(count) => count.state.idle_at(policy).max(count.open.held().last_end) + count.span_us,
            Self::Growing(count) => count.state.idle_at(policy).max(count.forgotten_at),
            Self::Banned(banned) => banned.count.idle_at(policy).max(banned.until),
        }
    }

    /// The time from which the count is worth less than the memory that it takes.
    pub(super) fn stale_at(&self, policy: &Policy) -> u64 {
        match self {
            Self::Plain(state) => state.stale_at(policy),
            Self::Held(count) => count.state.stale_at(policy).max(self.idle_at(policy)),
            Self::Growing(count) => count.state.stale_at(policy).max(count.forgotten_at),
            Self::Banned(banned) => banned.count.stale_at(policy).max(banned.until),
        }
    }

    /// Ends holds whose time has passed, in the order of their ends: each is charged at its end, or released.
    pub(super) fn end_expired(&mut self, policy: &Policy, now: u64) {
        let (Self::Held(count), Some(holds)) = (&mut *self, policy.holds()) else { return };
        match holds.unsettled_released() {
            true if count.open.held().last_end <= now => count.open = OpenHolds::default(),
            true => (0..MOST_RELEASED).map_while(|_| count.open.close_first(now)).for_each(drop),
            false => {
                let ended = (0..MOST_CHARGED).map_while(|_| count.open.close_first(now));
                ended.for_each(|(end, units)| count.state.settle(policy, end, units));
            }
        }
        self.without_empty_holds(policy);
    }

    /// The count with its holds. A count without holds gets room for them.
    fn with_holds(&mut self, policy: &Policy) -> &mut HeldCount {
        if let Self::Plain(state) = self {
            let state = mem::replace(state, CountState::new(policy));
            *self = Self::Held(Box::new(HeldCount { state, open: OpenHolds::default(), span_us: 0 }));
        }
        match self {
            Self::Held(count) => count,
            Self::Banned(banned) => banned.count.with_holds(policy),
            Self::Plain(_) => unreachable!("a plain count has just been changed"),
            Self::Growing(_) => unreachable!("no denials are held"),
        }
    }

    /// Moves the count back if no hold is left.
    fn without_empty_holds(&mut self, policy: &Policy) {
        if let Self::Held(count) = self
            && count.open.is_empty()
        {
            let state = mem::replace(&mut count.state, CountState::new(policy));
            *self = Self::Plain(state);
        }
    }

    fn parts(&self) -> (&CountState, Held) {
        match self {
            Self::Plain(state) => (state, Held::default()),
            Self::Held(count) => (&count.state, count.open.held()),
            Self::Growing(count) => (&count.state, Held::default()),
            Self::Banned(banned) => banned.count.parts(),
        }
    }
}
