//! Turns: when the head asks the store, and for whom.

use tokio::time::Instant;

use super::{Group, Queue, Step, interval};
use crate::limiter::acquire::{forecast::after, waiter::Reply};

impl Queue {
    /// What the dispatcher does at `now`, and the replies to waiters whose time is over. A group that it returns is no
    /// longer in the queue.
    pub(in crate::limiter::acquire) fn step(&mut self, now: Instant) -> (Step, Vec<Reply>) {
        let late = self.give_up_late(now);
        (self.next_step(now), late)
    }

    fn next_step(&mut self, now: Instant) -> Step {
        let Some((&ticket, head)) = self.waiters.first_key_value() else {
            self.has_dispatcher = false;
            self.is_paced = self.paused_for(now).is_some();
            return Step::Done;
        };
        let at = match self.turn {
            Some((whose, at)) if whose == ticket => at,
            _ => {
                let certain = self.certain(head, 0, now);
                let interval = interval(&head.policy, head.cost);
                let wait = certain.saturating_duration_since(now);
                let at = match self.rivals.delay(wait, interval) {
                    Some(delay) => after(certain, delay),
                    None if wait.is_zero() => certain,
                    None => self.aim.adjust(certain),
                };
                // Nothing but its units delays a head beyond its time.
                at.min(head.deadline.max(certain))
            }
        };
        self.turn = Some((ticket, at));
        let at = self.not_before.map_or(at, |not_before| at.max(not_before));
        if at > now { Step::Sleep(at) } else { Step::Ask(self.take_group(now)) }
    }

    fn take_group(&mut self, now: Instant) -> Group {
        let mut group = Group { waiters: Vec::new(), units: 0 };
        while let Some(entry) = self.waiters.first_entry() {
            let waiter = entry.get();
            if let Some((_, head)) = group.waiters.first() {
                let known = self.forecast.as_ref().filter(|forecast| forecast.is_of(&head.policy) && !self.is_paced);
                let most = known.map_or(0, |forecast| self.rivals.share_of(forecast.available_at(now)));
                if !waiter.can_join(head) || group.units.saturating_add(waiter.cost) > most {
                    break;
                }
            }
            group.units = group.units.saturating_add(waiter.cost);
            self.cost -= u64::from(waiter.cost);
            group.waiters.push(entry.remove_entry());
        }
        self.turn = None;
        group
    }
}
