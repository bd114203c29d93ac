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
    holds: Mutex<RandomMap<HoldId, Renewal>>,
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
        self.renewals.lock().remove(&self.id);
    }
}

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
    /// Adds a hold of the runtime `home`, which is due for the first time after a third of its time-to-live. Returns its
    /// guard, and when it is due there and elsewhere. `None` for a policy without holds.
    pub(super) fn add(
        self: &Arc<Self>,
        hold: &OpenHold,
        is_local: bool,
        home: Option<runtime::Id>,
    ) -> Option<(RenewedHold, Instant, Instant)> {
        let interval = (hold.policy.holds()?.ttl() / 3).max(SHORTEST);
        let due = Instant::now() + interval;
        let renewal = Renewal { hold: hold.clone(), is_local, home, interval, due, asked: None };
        let elsewhere = due + renewal.retry();
        self.lock().insert(hold.id, renewal);
        Some((RenewedHold { renewals: Arc::clone(self), id: hold.id }, due, elsewhere))
    }

    fn lock(&self) -> MutexGuard<'_, RandomMap<HoldId, Renewal>> {
        // A panic under the lock leaves the map valid, so a poisoned lock is usable.
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the holds of a runtime to the others.
    pub(super) fn on_runtime_end(&self, ended: runtime::Id) {
        for renewal in self.lock().values_mut() {
            if renewal.home == Some(ended) {
                renewal.home = None;
            }
        }
    }

    /// Takes the holds that are due, and those of `here` that are due soon, so that they share calls. Returns them, and
    /// when the next one is due.
    pub(super) fn take_due(&self, here: runtime::Id) -> (VecDeque<(OpenHold, bool)>, Option<Instant>) {
        let now = Instant::now();
        let mut due = VecDeque::new();
        let mut next = None::<Instant>;
        let mut holds = self.lock();
        if holds.capacity() > 1_024 && holds.len() < holds.capacity() / 8 {
            let some = holds.len() * 2;
            holds.shrink_to(some);
        }
        let is_any_due = holds.values().any(|renewal| renewal.due_in(here) <= now);
        for renewal in holds.values_mut() {
            if is_any_due && renewal.is_due_soon_in(here, now) {
                (renewal.home, renewal.asked) = (Some(here), Some(now));
                due.push_back((renewal.hold.clone(), renewal.is_local));
            }
            let wakes = renewal.due_in(here);
            next = Some(next.map_or(wakes, |next| next.min(wakes)));
        }
        (due, next)
    }

    /// Notes the answer to a renewal that was sent at `sent`.
    pub(super) fn on_renewed(&self, id: HoldId, sent: Instant, result: &Result<Settlement, Error>) {
        let mut holds = self.lock();
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
