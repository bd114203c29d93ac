//! The queue of one key: who waits, and when the head may ask the store. Pure: no I/O, no timers.

mod late;
mod results;
mod turns;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{sync::Notify, time::Instant};

use crate::{
    error::Error,
    limiter::acquire::{
        aim::Aim,
        forecast::Forecast,
        rivals::Rivals,
        waiter::{Reply, Waiter},
    },
    policy::Policy,
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
    pub(super) has_dispatcher: bool,
    /// Wakes the dispatcher: the head has left, or the reason for its wait has changed.
    pub(super) changed: Arc<Notify>,
}

/// Waiters for whom one check charges.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) waiters: Vec<(u64, Waiter)>,
    pub(super) units: u32,
}

/// What the dispatcher does next.
#[derive(Debug)]
pub(super) enum Step {
    /// Nobody waits.
    Done,
    /// The head has to wait until then.
    Sleep(Instant),
    Ask(Group),
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Whether the queue has nothing to remember.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.waiters.is_empty() && !self.has_dispatcher && self.paused_for(now).is_none()
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

    /// Takes all waiters out, because their dispatcher has ended. They join again.
    pub(super) fn disband(&mut self) -> BTreeMap<u64, Waiter> {
        self.has_dispatcher = false;
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

    /// The earliest time at which `waiter` can pass, after `ahead` units of others.
    fn certain(&self, waiter: &Waiter, ahead: u64, now: Instant) -> Instant {
        let forecast = self.forecast.as_ref().filter(|forecast| forecast.is_of(&waiter.policy));
        let earliest = forecast.map_or(now, |forecast| forecast.earliest(ahead + u64::from(waiter.cost)));
        self.paused_until.map_or(earliest, |until| earliest.max(until)).max(now)
    }

    fn is_hopeless(&self, waiter: &Waiter, ahead: u64, now: Instant) -> bool {
        self.certain(waiter, ahead, now) > waiter.deadline.max(now)
    }
}

/// The time in which a policy gains `units` on average.
fn interval(policy: &Policy, units: u32) -> Duration {
    let micros = policy.window().as_micros() * u128::from(units) / u128::from(policy.limit());
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}
