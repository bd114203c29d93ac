//! The queue of one key: who waits, and when the head may ask the store. Pure: no I/O, no timers.

mod blocked;
mod peeks;
mod results;
mod turns;

use std::sync::atomic::{AtomicU64, Ordering};
use std::{cmp::Reverse, collections::BTreeMap, sync::Arc, time::Duration};

use tokio::runtime::{self, Handle};
use tokio::{sync::Notify, time::Instant};

pub(super) use self::peeks::Recalled;
use self::{blocked::Blocked, peeks::Peeks};
use crate::decision::{Decision, Source};
use crate::limiter::acquire::forecast::{Forecast, after};
use crate::limiter::acquire::rivals::{Aim, Rivals};
use crate::limiter::acquire::seat::{Dispatching, Seat};
use crate::limiter::acquire::waiter::{Further, Reply, Room, Waiter};
use crate::{error::Error, limiter::acquire::paused_keys::KeyPause, policy::Policy};

/// The waiters of one key under one policy, in their order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// By ticket: a waiter that comes later has a higher one.
    waiters: BTreeMap<u64, Waiter>,
    /// The sum of the waiters' costs.
    cost: u64,
    /// What the last decision says about the time after it.
    forecast: Option<Forecast>,
    /// What the store has said of costs that the queue refuses.
    pub(super) peeks: Peeks,
    rivals: Rivals,
    aim: Aim,
    /// Whether the turn of the head is aimed at the time at which its units come back.
    is_aimed: bool,
    /// What an upstream has asked for.
    pause: KeyPause,
    /// The head, if further limits have denied it.
    blocked: Option<Blocked>,
    /// What further limits have left.
    room: Room,
    /// Whether admissions are spaced evenly, because the waiters have piled up during a pause.
    is_paced: bool,
    /// No check is sent before this time, because the store has failed or admissions are spaced.
    not_before: Option<Instant>,
    /// The last denial, if nothing but itself says when to ask again.
    denial: Option<Denial>,
    /// The last failure of the store, until it answers.
    failure: Option<Error>,
    /// Whether the store has answered, and has not failed since then. The forecast may be over earlier.
    has_answered: bool,
    /// The next time between two checks while the store fails.
    backoff: Duration,
    /// The head's ticket, and when it asks.
    turn: Option<(u64, Instant)>,
    /// When the last check was sent that was admitted, or the end of a pause after it.
    last_admission: Option<Instant>,
    /// The number of checks that were denied in a row.
    denials: u32,
    /// Whether the time of a waiter is over that may still pass with the next check.
    has_late: bool,
    /// Whether a check is on its way.
    is_asking: bool,
    /// Whether a hold has ended since the last check was sent.
    has_hold_ended: bool,
    /// Whether a waiter has joined for whom it was not known how long it would wait.
    has_unjudged: bool,
    /// The dispatcher that asks for the waiters.
    dispatch: Dispatch,
    /// Wakes the dispatcher: the head has left, or the reason for its wait has changed.
    pub(super) changed: Arc<Notify>,
}

/// The dispatcher of a queue, as the queue knows it.
#[derive(Debug, Default)]
struct Dispatch {
    is_running: bool,
    /// The number of the dispatcher. An earlier one stops.
    number: u64,
    /// The runtime of the dispatcher.
    runtime: Option<runtime::Id>,
    /// Where the caller that has started the dispatcher polls it, unless it is a task.
    seat: Option<Arc<Seat>>,
    /// When the dispatcher is back at the latest, if its runtime runs.
    back_by: Option<Instant>,
}

/// A denial that may be over at any time: its check is asked again later. One that needs less may pass at once.
#[derive(Debug)]
struct Denial {
    policy: Policy,
    cost: u64,
    again: Instant,
}

/// Waiters for whom one check charges.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) waiters: Vec<(u64, Waiter)>,
    pub(super) units: u64,
    /// The sum of the waiters' further costs.
    pub(super) further: Further,
}

impl Group {
    /// Whether the check of the group asks for the pause of the fleet.
    pub(super) fn shares_pauses(&self) -> bool {
        self.waiters.first().is_some_and(|(_, head)| head.shares_pauses)
    }

    /// For how long the fleet is paused, by the answer to the check of the group: zero if it is not, `None` if the
    /// store has not said.
    pub(super) fn answer_on_pause(&self, result: &Result<Decision, Error>) -> Option<Duration> {
        let decision = result.as_ref().ok()?;
        if !matches!(decision.source(), Source::Store | Source::DenyCache) {
            return None;
        }
        // The charge that a pause denies comes after those of the group.
        let pause = decision.policies().get(1 + self.further.len())?;
        Some(pause.retry_after.filter(|_| pause.violated).unwrap_or_default())
    }
}

/// What the dispatcher does next.
#[derive(Debug)]
pub(super) enum Step {
    /// No caller waits.
    Done,
    /// The head of the queue may send its check at `until`.
    Sleep {
        until: Instant,
        /// Whether a millisecond more would add up to a part of the rate.
        is_precise: bool,
    },
    Ask(Group),
    /// The dispatcher becomes a task, before it waits.
    Leave(Arc<Seat>),
}

/// The number of dispatchers that have been started.
static DISPATCHERS: AtomicU64 = AtomicU64::new(0);

/// The longest space between two admissions after a pause.
const LONGEST_PACE: Duration = Duration::from_millis(100);
/// By how much a dispatcher may be late before another runtime takes over.
const STUCK: Duration = Duration::from_millis(100);

impl Queue {
    /// Begins anew, with this pause of its key. What the store has said of costs ends by itself.
    pub(super) fn begin_anew(&mut self, pause: KeyPause) {
        *self = Self { pause, peeks: std::mem::take(&mut self.peeks), ..Self::default() };
        self.resume_slowly();
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Whether nobody waits, and the queue does not know when units come back. [`PausedKeys`] keeps its pause.
    ///
    /// [`PausedKeys`]: crate::limiter::acquire::paused_keys::PausedKeys
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.is_idle() && !self.forecast.as_ref().is_some_and(|forecast| forecast.is_fresh(now))
    }

    /// Whether nothing waits in the queue or for the queue.
    pub(super) fn is_idle(&self) -> bool {
        self.waiters.is_empty() && !self.dispatch.is_running
    }

    /// When the pause of the key ends, for callers that share pauses or not; `None` if they are not paused.
    pub(super) fn paused_until(&self, shares: bool, now: Instant) -> Option<Instant> {
        self.pause.end(shares, now)
    }

    /// Adds a waiter, unless it is certain to wait for longer than it can.
    pub(super) fn join(&mut self, ticket: u64, mut waiter: Waiter, now: Instant) -> Result<(), Box<Reply>> {
        self.unblock();
        if self.is_hopeless(&waiter, self.cost, now) {
            return Err(Box::new(self.deny(waiter, self.cost, now)));
        }
        waiter.deadline = after(waiter.deadline, waiter.grace);
        self.has_unjudged |= self.is_asking || !self.forecast.as_ref().is_some_and(|of| of.is_of(&waiter.policy));
        self.insert(ticket, waiter);
        Ok(())
    }

    fn insert(&mut self, ticket: u64, waiter: Waiter) {
        self.cost += waiter.units();
        self.waiters.insert(ticket, waiter);
    }

    pub(super) fn remove(&mut self, ticket: u64) -> Option<Waiter> {
        let was_head = self.waiters.first_key_value().is_some_and(|(first, _)| *first == ticket);
        let waiter = self.waiters.remove(&ticket)?;
        self.cost -= waiter.units();
        if was_head {
            self.dispatch.back_by = Some(Instant::now());
            self.changed.notify_one();
        }
        Some(waiter)
    }

    /// What a caller that has just joined does for the dispatcher. If there is none, it starts one on the current
    /// runtime.
    pub(super) fn dispatching(&mut self, now: Instant) -> Dispatching {
        if self.dispatch.is_running {
            return Dispatching::Others(self.take_seat());
        }
        let (number, seat) = (self.replace_dispatcher(now), Arc::new(Seat::new()));
        self.dispatch.seat = Some(Arc::clone(&seat));
        Dispatching::Start(number, seat)
    }

    /// The seat of the dispatcher, which has to leave it.
    pub(super) fn take_seat(&mut self) -> Option<Arc<Seat>> {
        self.dispatch.seat.take()
    }

    /// The number of a dispatcher that the caller has to start on the current runtime, because the runtime of the
    /// present one does not run. `time` is the longest time of a check.
    pub(super) fn take_over(&mut self, now: Instant, time: Duration) -> Option<u64> {
        let back_by = self.dispatch.back_by?;
        let is_stuck = !self.waiters.is_empty() && now > after(back_by, time.saturating_add(STUCK));
        is_stuck.then(|| self.replace_dispatcher(now))
    }

    /// Whether `dispatcher` serves the queue. One that was replaced serves it again if its successor has ended and it
    /// has brought waiters back.
    fn is_served_by(&mut self, dispatcher: u64) -> bool {
        if self.dispatch.number != dispatcher && !self.dispatch.is_running && !self.waiters.is_empty() {
            (self.dispatch.number, self.dispatch.is_running) = (dispatcher, true);
        }
        self.dispatch.number == dispatcher
    }

    fn replace_dispatcher(&mut self, now: Instant) -> u64 {
        let number = 1 + DISPATCHERS.fetch_add(1, Ordering::Relaxed);
        let runtime = Handle::try_current().ok().map(|runtime| runtime.id());
        self.dispatch = Dispatch { is_running: true, number, runtime, seat: None, back_by: Some(now) };
        number
    }

    /// Whether the dispatcher runs on another runtime than the current one.
    pub(super) fn is_dispatched_elsewhere(&self) -> bool {
        Handle::try_current().ok().map(|runtime| runtime.id()) != self.dispatch.runtime
    }

    /// Takes all waiters out, because their dispatcher has ended. They join again.
    pub(super) fn disband(&mut self, dispatcher: u64) -> BTreeMap<u64, Waiter> {
        if self.dispatch.number != dispatcher {
            return BTreeMap::new();
        }
        self.dispatch.is_running = false;
        self.cost = 0;
        std::mem::take(&mut self.waiters)
    }

    /// Holds the waiters back. Returns those that cannot wait for so long.
    pub(super) fn pause(&mut self, until: Instant, now: Instant) -> Vec<Reply> {
        self.pause.extend(until);
        self.resume_slowly();
        self.refresh();
        self.deny_hopeless(now)
    }

    /// Takes over what the store has said of the pause of the fleet.
    pub(super) fn follow(&mut self, pause: KeyPause) {
        if self.pause.has_fleet() || pause.has_fleet() {
            self.pause.follow(pause);
            self.resume_slowly();
            self.refresh();
        }
    }

    /// Ends the pause, because the key was reset.
    pub(super) fn end_pause(&mut self, now: Instant) {
        if self.pause.end(true, now).is_some() {
            (self.pause, self.last_admission) = (KeyPause::default(), Some(now));
        }
    }

    /// Lets the waiters go on one by one after a pause.
    fn resume_slowly(&mut self) {
        if let Some(at) = self.pause.ask_at(true) {
            (self.last_admission, self.is_paced) = (self.last_admission.max(Some(at)), true);
        }
    }

    /// Forgets what the last decision said, because the count was reset.
    pub(super) fn forget(&mut self) {
        self.forecast = None;
        self.peeks.forget();
        (self.not_before, self.blocked, self.denial) = (None, None, None);
        self.refresh();
    }

    /// The earliest time at which the store is asked for `waiter` again, whatever may come back until then.
    fn asks_from(&self, waiter: &Waiter) -> Option<Instant> {
        let denial = self.denial.as_ref();
        let denied = denial.filter(|denial| waiter.cost >= denial.cost && waiter.policy == denial.policy);
        self.not_before.max(denied.map(|denial| denial.again))
    }

    /// Forgets what a further limit has said about a head that has left.
    fn unblock(&mut self) {
        self.blocked = self.blocked.filter(|blocked| self.waiters.contains_key(&blocked.ticket));
    }

    /// Lets the head ask at once, because a hold has ended whose units it may get. Checks that the store's failures or
    /// pauses keep back stay back.
    pub(super) fn hold_ended(&mut self) {
        self.has_hold_ended = true;
        self.peeks.forget();
        if self.denials > 0 && self.failure.is_none() {
            self.forecast = None;
            (self.not_before, self.denial) = (None, None);
            self.refresh();
        }
    }

    fn refresh(&mut self) {
        self.turn = None;
        self.changed.notify_one();
    }

    /// The earliest time at which `waiter` can pass, after `ahead` units of others.
    fn certain(&self, waiter: &Waiter, ahead: u64, now: Instant) -> Instant {
        let blocked = self.blocked.and_then(|blocked| blocked.certain);
        self.earliest(waiter, ahead, [self.pause.certain_end(waiter.shares_pauses, now), blocked], now)
    }

    /// When the head may ask: as soon as it may pass, and during a pause of the fleet from time to time.
    fn due(&self, head: &Waiter, now: Instant) -> Instant {
        let blocked = self.blocked.and_then(|blocked| blocked.asks_at(head.deadline));
        self.earliest(head, 0, [self.pause.ask_at(head.shares_pauses), blocked], now)
    }

    fn earliest(&self, waiter: &Waiter, ahead: u64, others: [Option<Instant>; 2], now: Instant) -> Instant {
        let forecast = self.forecast.as_ref().filter(|forecast| forecast.is_of(&waiter.policy));
        let earliest = forecast.map_or(now, |forecast| forecast.earliest(ahead + waiter.units()));
        others.into_iter().flatten().fold(earliest, Instant::max).max(now)
    }

    fn is_hopeless(&self, waiter: &Waiter, ahead: u64, now: Instant) -> bool {
        self.certain(waiter, ahead, now) > waiter.deadline.max(now)
    }
}

/// The time in which a policy gains `units` on average. A blocked one, which gains none, is a shadow policy here.
fn interval(policy: &Policy, units: u64) -> Duration {
    let micros = policy.window_length().as_micros() * u128::from(units) / u128::from(policy.limit().max(1));
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

/// The space between two units after a pause: that of the limit with the shortest window, because a long window, as
/// that of a day's quota, does not say how close calls may be. A concurrency limit has no rate, and nobody waits for a
/// shadow policy.
fn pace(head: &Waiter) -> Duration {
    let rates = head.limits().filter(|(policy, cost)| policy.delays(*cost) && !policy.is_concurrent());
    let shortest = rates.map(|(policy, _)| (policy.window_length(), Reverse(interval(policy, 1)))).min();
    shortest.map_or_else(|| interval(&head.policy, 1), |(_, Reverse(space))| space).min(LONGEST_PACE)
}
