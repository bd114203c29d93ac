//! The open holds that are renewed for as long as they are held: the slots of concurrency limits, and all holds of
//! layers.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{runtime, time::Instant};

use crate::{
    error::Error,
    hold::{HoldId, OpenHold, Settlement},
    runtime::random::RandomMap,
};

/// The holds that this process renews.
#[derive(Debug, Default)]
pub(in crate::limiter) struct Renewals {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    holds: RandomMap<HoldId, Renewal>,
    /// The holds that are renewed next.
    queue: VecDeque<HoldId>,
}

#[derive(Debug)]
struct Renewal {
    hold: OpenHold,
    /// Whether the local fallback has made the hold.
    is_local: bool,
    /// The runtime that renews the hold. If it is late, another one takes over. `None` without a runtime.
    home: Option<runtime::Id>,
    interval: Duration,
    due: Instant,
    is_queued: bool,
    /// When the store was asked last, without an answer so far.
    asked: Option<Instant>,
}

/// A hold that is renewed until this is dropped.
#[derive(Debug)]
pub(crate) struct RenewedHold {
    renewals: Arc<Renewals>,
    id: HoldId,
}

impl Drop for RenewedHold {
    fn drop(&mut self) {
        self.renewals.lock().holds.remove(&self.id);
    }
}

/// The pause of a worker while holds wait for their renewal, so that it helps the other workers.
const HELP: Duration = Duration::from_millis(100);
/// The shortest time between two renewals, whatever the time-to-live is.
const SHORTEST: Duration = Duration::from_millis(1);

impl Renewal {
    /// After a renewal without an answer, and the time by which another runtime waits longer.
    fn retry(&self) -> Duration {
        (self.interval / 4).max(SHORTEST)
    }

    /// When a worker of `here` renews the hold.
    fn due_in(&self, here: runtime::Id) -> Instant {
        let is_abroad = self.home.is_some_and(|home| home != here);
        let due = if is_abroad { self.due + self.retry() } else { self.due };
        self.asked.map_or(due, |asked| due.max(asked + self.retry()))
    }

    /// Whether a worker of `here` that renews others may renew this one too: it is due soon.
    fn is_due_soon_in(&self, here: runtime::Id, now: Instant) -> bool {
        self.due_in(here) <= now
            || self.asked.is_none() && self.home == Some(here) && self.due <= now + self.interval / 2
    }
}

impl Renewals {
    /// Adds a hold of the runtime `home`, which is due for the first time after a third of its time-to-live. Returns
    /// its guard, and when it is due there and elsewhere. `None` for a policy without holds.
    pub(super) fn add(
        self: &Arc<Self>,
        hold: &OpenHold,
        is_local: bool,
        home: Option<runtime::Id>,
    ) -> Option<(RenewedHold, Instant, Instant)> {
        let interval = (hold.policy.holds()?.ttl() / 3).max(SHORTEST);
        let due = Instant::now() + interval;
        let renewal = Renewal { hold: hold.clone(), is_local, home, interval, due, is_queued: false, asked: None };
        let elsewhere = due + renewal.retry();
        self.lock().holds.insert(hold.id, renewal);
        Some((RenewedHold { renewals: Arc::clone(self), id: hold.id }, due, elsewhere))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock leaves the state valid, so a poisoned lock is usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the holds of a runtime to the others.
    pub(super) fn on_runtime_end(&self, ended: runtime::Id) {
        for renewal in self.lock().holds.values_mut() {
            if renewal.home == Some(ended) {
                renewal.home = None;
            }
        }
    }

    /// Queues the holds that are due, and those of `here` that are due soon, so that they share calls. Returns the
    /// number of holds in the queue, and when the next one is due.
    pub(super) fn queue_due(&self, here: runtime::Id) -> (usize, Option<Instant>) {
        let now = Instant::now();
        let mut state = self.lock();
        let State { holds, queue } = &mut *state;
        if holds.capacity() > 1_024 && holds.len() < holds.capacity() / 8 {
            let some = holds.len() * 2;
            holds.shrink_to(some);
            queue.shrink_to(some);
        }
        let is_any_due = holds.values().any(|renewal| !renewal.is_queued && renewal.due_in(here) <= now);
        let mut next = None::<Instant>;
        for (id, renewal) in holds {
            if is_any_due && !renewal.is_queued && renewal.is_due_soon_in(here, now) {
                (renewal.home, renewal.is_queued) = (Some(here), true);
                queue.push_back(*id);
            }
            let wakes = if renewal.is_queued { now + HELP } else { renewal.due_in(here) };
            next = Some(next.map_or(wakes, |next| next.min(wakes)));
        }
        (queue.len(), next)
    }

    /// Takes the next hold to renew, and whether the local fallback has made it.
    pub(super) fn take(&self) -> Option<(OpenHold, bool)> {
        let now = Instant::now();
        let State { holds, queue } = &mut *self.lock();
        while let Some(id) = queue.pop_front() {
            // A hold may have ended meanwhile.
            if let Some(renewal) = holds.get_mut(&id) {
                (renewal.is_queued, renewal.asked) = (false, Some(now));
                return Some((renewal.hold.clone(), renewal.is_local));
            }
        }
        None
    }

    /// Notes the answer to a renewal that was sent at `sent`.
    pub(super) fn on_renewed(&self, id: HoldId, sent: Instant, result: &Result<Settlement, Error>) {
        let holds = &mut self.lock().holds;
        match result {
            Ok(Settlement::Settled) => {
                if let Some(renewal) = holds.get_mut(&id) {
                    (renewal.due, renewal.asked) = (sent + renewal.interval, None);
                }
            }
            // The hold was lost, or has just ended.
            Ok(_) => drop(holds.remove(&id)),
            // It is due again soon.
            Err(_) => {}
        }
    }
}
