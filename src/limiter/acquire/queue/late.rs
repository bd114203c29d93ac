//! Waiters that cannot wait any longer, or for whom there is no room.

use tokio::time::Instant;

use super::Queue;
use crate::{
    limiter::acquire::{
        forecast,
        waiter::{Reply, Waiter},
    },
    verdict::Source,
};

impl Queue {
    /// Removes a waiter whose time is over, unless it may still pass with the next check.
    pub(in crate::limiter::acquire) fn give_up(&mut self, ticket: u64, now: Instant) -> Option<Reply> {
        let ahead = self.waiters.range(..ticket).map(|(_, waiter)| waiter.units()).sum();
        if self.can_pass_now(self.waiters.get(&ticket)?, ahead, now) {
            self.has_late = true;
            return None;
        }
        self.remove(ticket).map(|waiter| self.time_out(waiter, ahead, now))
    }

    /// Removes a waiter whose time is over, whatever may come.
    pub(in crate::limiter::acquire) fn expire(&mut self, ticket: u64, now: Instant) -> Option<Reply> {
        let ahead = self.waiters.range(..ticket).map(|(_, waiter)| waiter.units()).sum();
        self.remove(ticket).map(|waiter| self.time_out(waiter, ahead, now))
    }

    /// Whether nothing is known that keeps `waiter` from passing now, after `ahead` units of others.
    fn can_pass_now(&self, waiter: &Waiter, ahead: u64, now: Instant) -> bool {
        let is_due = |time: Instant| time <= now;
        let head = self.waiters.values().next().unwrap_or(waiter);
        [head, waiter].into_iter().all(|one| self.asks_from(one).is_none_or(is_due))
            && self.turn.is_none_or(|(_, at)| is_due(at))
            && is_due(self.certain(waiter, ahead, now))
    }

    /// Takes out the waiters whose time is over and who cannot pass now.
    pub(super) fn give_up_late(&mut self, now: Instant) -> Vec<Reply> {
        if !std::mem::take(&mut self.has_late) {
            return Vec::new();
        }
        self.turn =
            self.turn.filter(|(ticket, _)| self.waiters.first_key_value().is_some_and(|(head, _)| head == ticket));
        let is_late = |waiter: &Waiter| waiter.deadline <= now;
        let over =
            self.take_out(now, |queue, waiter, ahead| is_late(waiter) && !queue.can_pass_now(waiter, ahead, now));
        self.has_late = self.waiters.values().any(is_late);
        over
    }

    /// Takes out the waiters that are certain to wait for longer than they can.
    pub(super) fn deny_hopeless(&mut self, now: Instant) -> Vec<Reply> {
        // A head that cannot wait for its further limit is denied first, so that it delays no other caller.
        let blocked = self
            .blocked
            .filter(|(ticket, _)| self.waiters.get(ticket).is_some_and(|head| self.is_hopeless(head, 0, now)));
        let head = blocked.and_then(|(ticket, _)| self.remove(ticket)).map(|head| self.time_out(head, 0, now));
        self.unblock();
        let others = self.take_out(now, |queue, waiter, ahead| queue.is_hopeless(waiter, ahead, now));
        head.into_iter().chain(others).collect()
    }

    /// Takes out the waiters for whom `is_over` returns true, given the units of those who stay ahead of them.
    fn take_out(&mut self, now: Instant, is_over: impl Fn(&Self, &Waiter, u64) -> bool) -> Vec<Reply> {
        let (mut ahead, mut over) = (0, Vec::new());
        for (ticket, waiter) in &self.waiters {
            if is_over(self, waiter, ahead) {
                over.push((*ticket, ahead));
            } else {
                ahead += waiter.units();
            }
        }
        let reply = |(ticket, ahead)| self.remove(ticket).map(|waiter| self.time_out(waiter, ahead, now));
        over.into_iter().filter_map(reply).collect()
    }

    /// The reply to a waiter whose time is over.
    pub(super) fn time_out(&self, waiter: Waiter, ahead: u64, now: Instant) -> Reply {
        match &self.failure {
            Some(error) => Reply { waiter, outcome: Err(error.clone()) },
            None => self.deny(waiter, ahead, now),
        }
    }

    pub(super) fn deny(&self, waiter: Waiter, ahead: u64, now: Instant) -> Reply {
        self.deny_from(Source::Queue, waiter, ahead, now)
    }

    /// The reply to a waiter for whom there is no room.
    pub(in crate::limiter::acquire) fn refuse(&self, waiter: Waiter, now: Instant) -> Reply {
        self.deny_from(Source::WaitersFull, waiter, self.cost, now)
    }

    fn deny_from(&self, source: Source, waiter: Waiter, ahead: u64, now: Instant) -> Reply {
        let wait = self.certain(&waiter, ahead, now).saturating_duration_since(now);
        let forecast = self.forecast.as_ref().filter(|forecast| forecast.is_of(&waiter.policy));
        let outcome = Ok(forecast::by_queue(&waiter, source, forecast, wait, now));
        Reply { waiter, outcome }
    }
}
