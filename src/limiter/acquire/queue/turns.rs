//! Turns: when the head asks the store, and for whom.

use std::{ops::RangeInclusive, time::Duration};

use tokio::time::Instant;

use super::{Group, Queue, Step, interval, pace};
use crate::{
    limiter::acquire::{
        forecast::after,
        waiter::{Further, Reply},
    },
    policy::Policy,
};

/// The intervals between admissions for which a millisecond counts. A longer interval hardly notices a millisecond, and
/// a shorter one needs a burst anyway.
const PRECISE_INTERVALS: RangeInclusive<Duration> = Duration::from_micros(500)..=Duration::from_millis(250);

/// By how much a check is sent later than computed if a denial would count against the caller.
const SAFELY_LATE: Duration = Duration::from_millis(1);

impl Queue {
    /// What the dispatcher does at `now`, and the replies to waiters whose time is over. A group that it returns is no
    /// longer in the queue.
    pub(in crate::limiter::acquire) fn step(&mut self, dispatcher: u64, now: Instant) -> (Step, Vec<Reply>) {
        if !self.is_served_by(dispatcher) {
            return (Step::Done, Vec::new());
        }
        let late = self.give_up_late(now);
        let step = self.next_step(now);
        self.dispatch.back_by = Some(match &step {
            Step::Sleep { until, .. } => *until,
            Step::Done | Step::Ask(_) | Step::Leave(_) => now,
        });
        (step, late)
    }

    fn next_step(&mut self, now: Instant) -> Step {
        self.unblock();
        let Some((&ticket, head)) = self.waiters.first_key_value() else {
            (self.dispatch.is_running, self.dispatch.seat) = (false, None);
            self.is_paced = self.paused_until(true, now).is_some();
            return Step::Done;
        };
        let at = match self.turn {
            Some((whose, at)) if whose == ticket => at,
            _ => {
                let certain = self.due(head, now);
                let interval = interval(&head.policy, head.cost);
                let wait = certain.saturating_duration_since(now);
                self.is_aimed = false;
                let at = match self.rivals.delay(wait, interval) {
                    // Units that are there already are only delayed after an admission just before.
                    Some(delay) if wait.is_zero() => after(self.last_admission.unwrap_or(now), delay).max(certain),
                    Some(delay) => after(certain, delay),
                    None if wait.is_zero() => certain,
                    None => {
                        self.is_aimed = true;
                        self.aim.adjust(certain)
                    }
                };
                // A check that is early must not count as a rejection.
                let at = if head.policy.counts_denials() { at.max(after(certain, SAFELY_LATE)) } else { at };
                // Nothing but its units delays a head beyond its time.
                at.min(head.deadline.max(certain))
            }
        };
        self.turn = Some((ticket, at));
        let at = self.asks_from(head).map_or(at, |from| at.max(from));
        if at <= now {
            return Step::Ask(self.take_group(now));
        }
        let is_precise = PRECISE_INTERVALS.contains(&interval(&head.policy, head.cost));
        Step::Sleep { until: at, is_precise }
    }

    fn take_group(&mut self, now: Instant) -> Group {
        let mut group = Group { waiters: Vec::new(), units: 0, further: Further::default() };
        let since_last = self.last_admission.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        while let Some(entry) = self.waiters.first_entry() {
            let waiter = entry.get();
            if let Some((_, head)) = group.waiters.first() {
                let known = self.forecast.as_ref().filter(|forecast| forecast.is_of(&head.policy));
                let available = known.map_or(0, |forecast| self.rivals.share_of(forecast.available_at(now)));
                let most = if self.is_paced { available.min(paced_units(&head.policy, since_last)) } else { available };
                let further = group.further.plus(&waiter.further);
                let fits = group.units.saturating_add(waiter.cost) <= most && self.room.holds(&further);
                if !waiter.can_join(head) || !fits {
                    break;
                }
                group.further = further;
            } else {
                group.further = waiter.further.clone();
            }
            group.units = group.units.saturating_add(waiter.cost);
            self.cost -= waiter.units();
            group.waiters.push(entry.remove_entry());
        }
        self.turn = None;
        (self.is_asking, self.has_hold_ended) = (true, false);
        group
    }
}

/// The units that a policy gains on average in `time`, as far as admissions are spaced.
fn paced_units(policy: &Policy, time: Duration) -> u64 {
    u64::try_from(time.as_micros() / pace(policy).as_micros().max(1)).unwrap_or(u64::MAX)
}
