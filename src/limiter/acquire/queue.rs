//! The queue of one key: who waits, and when the head may ask the store. Pure: no I/O, no timers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{sync::Notify, time::Instant};

use crate::{
    decision::Decision,
    error::{Error, ErrorKind},
    limiter::acquire::{
        aim::Aim,
        denial,
        forecast::{Forecast, after},
        rivals::Rivals,
        waiter::{Reply, Waiter},
    },
    policy::Policy,
    verdict::Source,
};

/// The waiters of one key under one policy, in their order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// By ticket: a waiter that comes later has a higher one.
    waiters: BTreeMap<u64, Waiter>,
    /// The sum of the waiters' costs.
    cost: u64,
    /// What the last decision says about the time after it.
    forecast: Option<Forecast>,
    rivals: Rivals,
    aim: Aim,
    /// No check is sent before this time: an upstream has asked for a pause.
    paused_until: Option<Instant>,
    /// Whether admissions are spaced evenly, because the waiters have piled up during a pause.
    is_paced: bool,
    /// No check is sent before this time, because the store has failed or admissions are spaced.
    not_before: Option<Instant>,
    /// The last failure of the store, until it answers.
    failure: Option<Error>,
    /// The next time between two checks while the store fails.
    backoff: Duration,
    /// The head's ticket, and when it asks.
    turn: Option<(u64, Instant)>,
    /// Whether the time of a waiter is over that may still pass with the next check.
    has_late: bool,
    pub(super) has_driver: bool,
    /// Wakes the driver: the head has left, or the reason for its wait has changed.
    pub(super) changed: Arc<Notify>,
}

/// Waiters for whom one check charges.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) waiters: Vec<(u64, Waiter)>,
    pub(super) units: u32,
}

/// What the driver does next.
#[derive(Debug)]
pub(super) enum Step {
    /// Nobody waits.
    Done,
    /// The head has to wait until then.
    Sleep(Instant),
    Ask(Group),
}

/// The first time between two checks while the store fails, and the longest. Short, because the limiter's breaker
/// already protects the store.
const FIRST_BACKOFF: Duration = Duration::from_millis(10);
const LONGEST_BACKOFF: Duration = Duration::from_millis(250);
/// The longest space between two admissions after a pause.
const LONGEST_PACE: Duration = Duration::from_millis(100);
/// A denial with a shorter wait only means that the check arrived a little early.
const EARLY: Duration = Duration::from_millis(1);
/// The shortest time between two checks, for stores that answer with a wait of zero.
const SHORTEST_WAIT: Duration = Duration::from_micros(50);

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Whether the queue has nothing to remember.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.waiters.is_empty() && !self.has_driver && self.paused_for(now).is_none()
    }

    pub(super) fn paused_for(&self, now: Instant) -> Option<Duration> {
        self.paused_until?.checked_duration_since(now).filter(|left| !left.is_zero())
    }

    /// Adds a waiter, unless it is certain to wait for longer than it can.
    pub(super) fn join(&mut self, ticket: u64, waiter: Waiter, now: Instant) -> Result<(), Box<Reply>> {
        if self.is_hopeless(&waiter, self.cost, now) {
            return Err(Box::new(self.deny(waiter, self.cost, now)));
        }
        self.insert(ticket, waiter);
        Ok(())
    }

    fn insert(&mut self, ticket: u64, waiter: Waiter) {
        self.cost += u64::from(waiter.cost);
        self.waiters.insert(ticket, waiter);
    }

    pub(super) fn remove(&mut self, ticket: u64) -> Option<Waiter> {
        let was_head = self.waiters.first_key_value().is_some_and(|(first, _)| *first == ticket);
        let waiter = self.waiters.remove(&ticket)?;
        self.cost -= u64::from(waiter.cost);
        if was_head {
            self.changed.notify_one();
        }
        Some(waiter)
    }

    /// Removes a waiter whose time is over, unless it may still pass with the next check.
    pub(super) fn give_up(&mut self, ticket: u64, now: Instant) -> Option<Reply> {
        let ahead = self.waiters.range(..ticket).map(|(_, waiter)| u64::from(waiter.cost)).sum();
        if self.can_pass_now(self.waiters.get(&ticket)?, ahead, now) {
            self.has_late = true;
            return None;
        }
        self.remove(ticket).map(|waiter| self.time_out(waiter, ahead, now))
    }

    /// Whether nothing is known that keeps `waiter` from passing now, after `ahead` units of others.
    fn can_pass_now(&self, waiter: &Waiter, ahead: u64, now: Instant) -> bool {
        let is_due = |time: Instant| time <= now;
        self.not_before.is_none_or(is_due)
            && self.turn.is_none_or(|(_, at)| is_due(at))
            && is_due(self.certain(waiter, ahead, now))
    }

    /// Takes out the waiters whose time is over and who cannot pass now.
    fn give_up_late(&mut self, now: Instant) -> Vec<Reply> {
        if !std::mem::take(&mut self.has_late) {
            return Vec::new();
        }
        self.turn =
            self.turn.filter(|(ticket, _)| self.waiters.first_key_value().is_some_and(|(head, _)| head == ticket));
        self.take_out(now, |queue, waiter, ahead| waiter.deadline <= now && !queue.can_pass_now(waiter, ahead, now))
    }

    /// Takes all waiters out, because their driver has ended. They join again.
    pub(super) fn disband(&mut self) -> BTreeMap<u64, Waiter> {
        self.has_driver = false;
        self.cost = 0;
        std::mem::take(&mut self.waiters)
    }

    /// Holds the waiters back. Returns those that cannot wait for so long.
    pub(super) fn pause(&mut self, until: Instant, now: Instant) -> Vec<Reply> {
        self.paused_until = Some(self.paused_until.map_or(until, |other| other.max(until)));
        self.is_paced = true;
        self.refresh();
        self.deny_hopeless(now)
    }

    /// Forgets what the last decision said, because the count was reset.
    pub(super) fn forget(&mut self) {
        self.forecast = None;
        self.not_before = None;
        self.refresh();
    }

    fn refresh(&mut self) {
        self.turn = None;
        self.changed.notify_one();
    }

    /// What the driver does at `now`, and the replies to waiters whose time is over. A group that it returns is no longer
    /// in the queue.
    pub(super) fn step(&mut self, now: Instant) -> (Step, Vec<Reply>) {
        let late = self.give_up_late(now);
        (self.next_step(now), late)
    }

    fn next_step(&mut self, now: Instant) -> Step {
        let Some((&ticket, head)) = self.waiters.first_key_value() else {
            self.has_driver = false;
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

    /// Ends a check of a group that was sent at `sent`.
    pub(super) fn finish(
        &mut self,
        group: Group,
        result: Result<Decision, Error>,
        sent: Instant,
        now: Instant,
    ) -> Vec<Reply> {
        match result {
            Err(error) => self.failed(group, error, now),
            Ok(decision) if decision.is_allowed() => {
                self.aim.hit();
                self.admitted(group, &decision, sent)
            }
            Ok(decision) => self.denied(group, &decision, sent, now),
        }
    }

    fn admitted(&mut self, group: Group, decision: &Decision, sent: Instant) -> Vec<Reply> {
        self.answered(sent);
        self.rivals.won(self.has_rivals(decision, group.units));
        self.forecast = Forecast::of(decision, sent);
        if let Some((_, head)) = group.waiters.first().filter(|_| self.is_paced) {
            self.not_before = Some(after(sent, interval(&head.policy, group.units).min(LONGEST_PACE)));
        }
        let reply = |(_, waiter): (u64, Waiter)| {
            let outcome = Ok(denial::for_waiter(decision, waiter.cost));
            Reply { waiter, outcome }
        };
        group.waiters.into_iter().map(reply).collect()
    }

    /// Waiters at the head for whom `units` were charged in place of waiters that are gone.
    pub(super) fn inherit(&mut self, units: &mut u32, decision: &Decision) -> Vec<Reply> {
        let mut replies = Vec::new();
        while let Some(entry) = self.waiters.first_entry() {
            let waiter = entry.get();
            let is_same = decision.policies().first().is_some_and(|standing| standing.policy == waiter.policy);
            if !is_same || waiter.cost > *units {
                break;
            }
            *units -= waiter.cost;
            self.cost -= u64::from(waiter.cost);
            let waiter = entry.remove();
            let outcome = Ok(denial::for_waiter(decision, waiter.cost));
            replies.push(Reply { waiter, outcome });
        }
        replies
    }

    fn denied(&mut self, group: Group, decision: &Decision, sent: Instant, now: Instant) -> Vec<Reply> {
        self.answered(sent);
        let wait = decision.retry_after().unwrap_or(FIRST_BACKOFF).max(SHORTEST_WAIT);
        let [standing, others @ ..] = decision.policies() else {
            self.not_before = Some(after(now, wait));
            return self.put_back(group, now);
        };
        // A pause of the fleet is a charge of its own.
        for pause in others.iter().filter(|standing| standing.violated) {
            let until = after(sent, pause.retry_after.unwrap_or_default());
            self.paused_until = Some(self.paused_until.map_or(until, |other| other.max(until)));
            self.is_paced = true;
        }
        if standing.violated {
            if self.has_rivals(decision, group.units) {
                self.rivals.lost();
            } else if !self.rivals.are_likely() && standing.retry_after.is_some_and(|wait| wait <= EARLY) {
                self.aim.missed(now.saturating_duration_since(sent));
            }
        }
        self.forecast = Forecast::of(decision, sent);
        // Without a forecast, the denial itself says when to ask again.
        self.not_before = Some(after(now, if self.forecast.is_some() { SHORTEST_WAIT } else { wait }));
        if let ([(_, head)], None) = (&group.waiters[..], decision.retry_after())
            && standing.violated
        {
            // No wait helps, whoever is ahead.
            let outcome = Ok(denial::for_waiter(decision, head.cost));
            return group.waiters.into_iter().map(|(_, waiter)| Reply { waiter, outcome: outcome.clone() }).collect();
        }
        let mut replies = self.put_back(group, now);
        replies.extend(self.deny_hopeless(now));
        replies
    }

    fn failed(&mut self, group: Group, error: Error, now: Instant) -> Vec<Reply> {
        // Nothing is known about the count, and a check whose fate is unknown is never sent again.
        self.forecast = None;
        let is_final = matches!(error.kind(), ErrorKind::BadKey | ErrorKind::Config | ErrorKind::Misconfigured);
        if error.may_have_charged() || is_final {
            let reply = |(_, waiter): (u64, Waiter)| Reply { waiter, outcome: Err(error.clone()) };
            return group.waiters.into_iter().map(reply).collect();
        }
        self.backoff = (self.backoff * 2).clamp(FIRST_BACKOFF, LONGEST_BACKOFF);
        self.not_before = Some(after(now, self.backoff));
        self.failure = Some(error);
        self.put_back(group, now)
    }

    fn answered(&mut self, sent: Instant) {
        self.failure = None;
        self.backoff = Duration::ZERO;
        self.not_before = None;
        if self.paused_until.is_some_and(|until| until <= sent) {
            self.paused_until = None;
        }
    }

    /// Returns a group to the head of the queue, but for waiters whose time is over.
    fn put_back(&mut self, group: Group, now: Instant) -> Vec<Reply> {
        let mut replies = Vec::new();
        for (ticket, waiter) in group.waiters {
            if waiter.deadline > now {
                self.insert(ticket, waiter);
            } else {
                replies.push(self.time_out(waiter, 0, now));
            }
        }
        replies
    }

    fn has_rivals(&self, decision: &Decision, cost: u32) -> bool {
        self.forecast.as_ref().is_some_and(|forecast| forecast.is_disproved_by(decision, cost))
    }

    /// The earliest time at which `waiter` can pass, after `ahead` units of others.
    fn certain(&self, waiter: &Waiter, ahead: u64, now: Instant) -> Instant {
        let forecast = self.forecast.as_ref().filter(|forecast| forecast.is_of(&waiter.policy));
        let earliest = forecast.map_or(now, |forecast| forecast.earliest(ahead + u64::from(waiter.cost)));
        self.paused_until.map_or(earliest, |until| earliest.max(until)).max(now)
    }

    fn is_hopeless(&self, waiter: &Waiter, ahead: u64, now: Instant) -> bool {
        self.certain(waiter, ahead, now) > waiter.deadline.max(now)
    }

    /// Takes out the waiters that are certain to wait for longer than they can.
    fn deny_hopeless(&mut self, now: Instant) -> Vec<Reply> {
        self.take_out(now, |queue, waiter, ahead| queue.is_hopeless(waiter, ahead, now))
    }

    /// Takes out the waiters for whom `is_over` returns true, given the units of those who stay ahead of them.
    fn take_out(&mut self, now: Instant, is_over: impl Fn(&Self, &Waiter, u64) -> bool) -> Vec<Reply> {
        let (mut ahead, mut over) = (0, Vec::new());
        for (ticket, waiter) in &self.waiters {
            if is_over(self, waiter, ahead) {
                over.push((*ticket, ahead));
            } else {
                ahead += u64::from(waiter.cost);
            }
        }
        let reply = |(ticket, ahead)| self.remove(ticket).map(|waiter| self.time_out(waiter, ahead, now));
        over.into_iter().filter_map(reply).collect()
    }

    /// The reply to a waiter whose time is over.
    fn time_out(&self, waiter: Waiter, ahead: u64, now: Instant) -> Reply {
        match &self.failure {
            Some(error) => Reply { waiter, outcome: Err(error.clone()) },
            None => self.deny(waiter, ahead, now),
        }
    }

    fn deny(&self, waiter: Waiter, ahead: u64, now: Instant) -> Reply {
        let wait = self.certain(&waiter, ahead, now).saturating_duration_since(now);
        let forecast = self.forecast.as_ref().filter(|forecast| forecast.is_of(&waiter.policy));
        let outcome = Ok(denial::by_queue(&waiter, Source::Queue, forecast, wait, now));
        Reply { waiter, outcome }
    }

    /// The reply to a waiter for whom there is no room.
    pub(super) fn refuse(&self, waiter: Waiter, now: Instant) -> Reply {
        let wait = self.certain(&waiter, self.cost, now).saturating_duration_since(now);
        let forecast = self.forecast.as_ref().filter(|forecast| forecast.is_of(&waiter.policy));
        let outcome = Ok(denial::by_queue(&waiter, Source::WaitersFull, forecast, wait, now));
        Reply { waiter, outcome }
    }
}

/// The time in which a policy gains `units` on average.
fn interval(policy: &Policy, units: u32) -> Duration {
    let micros = policy.window().as_micros() * u128::from(units) / u128::from(policy.limit());
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}
