//! The open holds that are renewed for as long as they are held: the slots of concurrency limits, and all holds of
//! layers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{collections::VecDeque, time::Duration};

use tokio::{runtime, time::Instant};

use crate::hold::{HoldId, SettleAnswer};
use crate::limiter::hold::age::{Age, AgedHold, Claim};
use crate::{check::open_hold::OpenHold, clock::whole_micros, error::Error, observe::Once, runtime::random::RandomMap};

/// The holds that this process renews.
#[derive(Debug, Default)]
pub(in crate::limiter) struct Renewals {
    state: Mutex<State>,
    /// Whether the warning of holds that have reached their longest age is due.
    pub(super) too_long: Once,
    /// Whether the warning of an unknown name on a bill is due.
    pub(super) unknown_name: Once,
}

#[derive(Debug, Default)]
struct State {
    holds: RandomMap<HoldId, Renewal>,
    /// The holds that are renewed next.
    queue: VecDeque<HoldId>,
    /// No hold is too old before. `None` if none gets too old.
    next_age: Option<Instant>,
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
    /// `None` if the hold may get as old as it likes.
    age: Option<Age>,
}

/// A hold that is renewed until this is dropped.
#[derive(Debug)]
pub(crate) struct RenewedHold {
    renewals: Arc<Renewals>,
    id: HoldId,
    /// Whether the hold was ended because of its age.
    claim: Option<Claim>,
}

impl RenewedHold {
    /// Whether the owner of the hold is to end it. If not, it was ended because of its age.
    pub(super) fn claim(&self) -> bool {
        self.claim.as_ref().is_none_or(Claim::claim)
    }

    /// Has the hold renewed in the runtime `home` from now on. Returns when it is due there.
    pub(super) fn move_to(&self, home: runtime::Id) -> Option<Instant> {
        self.renewals.move_to(self.id, home)
    }
}

impl Drop for RenewedHold {
    fn drop(&mut self) {
        // It may have the last waker of a request, which drops what it likes, so it is dropped without the lock.
        let removed = self.renewals.lock().holds.remove(&self.id);
        drop(removed);
    }
}

/// The pause of a worker while holds wait for their renewal, so that it helps the other workers.
const HELP: Duration = Duration::from_millis(100);
/// The shortest time between two renewals, whatever the time-to-live is.
const SHORTEST: Duration = Duration::from_millis(1);

impl Renewal {
    /// After a renewal without an answer, and the time by which another runtime waits longer.
    fn retry(&self) -> Duration {
        whole_micros(self.interval / 4).max(SHORTEST)
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
        age: Option<Age>,
    ) -> Option<(RenewedHold, Instant, Instant)> {
        let interval = whole_micros(hold.policy.holds()?.ttl() / 3).max(SHORTEST);
        let due = Instant::now() + interval;
        let claim = age.as_ref().and_then(Age::claim);
        let ends = age.as_ref().map(|age| age.at);
        let renewal = Renewal { hold: hold.clone(), is_local, home, interval, due, is_queued: false, asked: None, age };
        let elsewhere = if home.is_some() { due + renewal.retry() } else { due };
        {
            let mut state = self.lock();
            state.next_age = [state.next_age, ends].into_iter().flatten().min();
            state.holds.insert(hold.id(), renewal);
        }
        let or_end = |due: Instant| ends.map_or(due, |ends| due.min(ends));
        Some((RenewedHold { renewals: Arc::clone(self), id: hold.id(), claim }, or_end(due), or_end(elsewhere)))
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

    /// When the next hold is due, or too old, that no runtime renews, because its own has ended.
    pub(super) fn next_orphan(&self) -> Option<Instant> {
        let state = self.lock();
        let orphans = state.holds.values().filter(|renewal| renewal.home.is_none());
        orphans.map(|orphan| orphan.age.as_ref().map_or(orphan.due, |age| age.at.min(orphan.due))).min()
    }

    /// Moves a hold to the runtime `home`. Returns when it is due there.
    fn move_to(&self, id: HoldId, home: runtime::Id) -> Option<Instant> {
        let mut state = self.lock();
        let renewal = state.holds.get_mut(&id)?;
        renewal.home = Some(home);
        Some(renewal.due_in(home))
    }

    /// Takes the holds out that have reached their longest age.
    pub(super) fn take_aged(&self) -> Vec<AgedHold> {
        let now = Instant::now();
        let mut state = self.lock();
        if state.next_age.is_none_or(|next| next > now) {
            return Vec::new();
        }
        let is_aged = |_: &HoldId, renewal: &mut Renewal| renewal.age.as_ref().is_some_and(|age| age.at <= now);
        let aged = state.holds.extract_if(is_aged).map(|(_, Renewal { hold, age, .. })| {
            let owner = age.and_then(|age| age.owner);
            AgedHold { hold, owner }
        });
        let aged = aged.collect();
        state.next_age = state.holds.values().filter_map(|renewal| Some(renewal.age.as_ref()?.at)).min();
        aged
    }

    /// Queues the holds that are due, and those of `here` that are due soon, so that they share calls. Returns the
    /// number of holds in the queue, and when the next one is due or too old.
    pub(super) fn queue_due(&self, here: runtime::Id) -> (usize, Option<Instant>) {
        let now = Instant::now();
        let mut state = self.lock();
        let State { holds, queue, .. } = &mut *state;
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
            let wakes = renewal.age.as_ref().map_or(wakes, |age| age.at.min(wakes));
            next = Some(next.map_or(wakes, |next| next.min(wakes)));
        }
        (queue.len(), next)
    }

    /// Takes the next hold to renew, and whether the local fallback has made it.
    pub(super) fn take(&self) -> Option<(OpenHold, bool)> {
        let now = Instant::now();
        let State { holds, queue, .. } = &mut *self.lock();
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
    pub(super) fn on_renewed(&self, id: HoldId, sent: Instant, result: &Result<SettleAnswer, Error>) {
        let holds = &mut self.lock().holds;
        match result {
            Ok(SettleAnswer::Settled) => {
                if let Some(renewal) = holds.get_mut(&id) {
                    (renewal.due, renewal.asked) = (sent + renewal.interval, None);
                }
            }
            // The hold was lost, or has just ended. Its request still gets too old.
            Ok(_) => match holds.get_mut(&id) {
                Some(Renewal { due, asked, age: Some(age), .. }) => (*due, *asked) = (age.at, None),
                _ => drop(holds.remove(&id)),
            },
            // It is due again soon.
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{iter, thread};

    use tokio::{
        runtime::{Builder, Handle},
        time::advance,
    };

    use super::*;
    use crate::{
        check::Check,
        policy::{HoldSettings, Policy},
    };

    const SECOND: Duration = Duration::from_secs(1);

    /// Adds a hold that is renewed every four seconds.
    fn add(renewals: &Arc<Renewals>, home: runtime::Id) -> (RenewedHold, Instant, Instant) {
        let settings = HoldSettings::new().with_ttl(12 * SECOND);
        let check = Check::hold("k", &Policy::per_minute("p", 10).unwrap().with_holds(settings), 1);
        let (_, hold, _) = check.holds().next().unwrap();
        renewals.add(&hold, false, Some(home), None).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_hold_that_is_due_shares_its_call_with_those_of_its_runtime_that_are_due_soon() {
        let there = || Builder::new_current_thread().build().unwrap().handle().id();
        let (here, there) = (Handle::current().id(), thread::spawn(there).join().unwrap());
        let (renewals, start) = (Arc::default(), Instant::now());
        let (first, due, elsewhere) = add(&renewals, here);
        assert_eq!([due, elsewhere], [4, 5].map(|seconds| start + seconds * SECOND));
        advance(SECOND).await;
        let (second, _foreign) = (add(&renewals, here).0, add(&renewals, there).0);
        advance(2 * SECOND).await;
        let _later = add(&renewals, here).0;
        advance(SECOND - HELP).await;
        assert_eq!(renewals.queue_due(here), (0, Some(due)));
        advance(HELP).await;
        assert_eq!(renewals.queue_due(here), (2, Some(due + HELP)));
        let sent: Vec<_> = iter::from_fn(|| renewals.take()).map(|(hold, _)| hold.id()).collect();
        assert!(sent.len() == 2 && sent.contains(&first.id) && sent.contains(&second.id));
        assert_eq!(renewals.queue_due(here), (0, Some(due + SECOND)), "their answers are waited for");
    }

    #[tokio::test(start_paused = true)]
    async fn holds_that_have_ended_leave_no_memory() {
        let (renewals, here) = (Arc::default(), Handle::current().id());
        drop((0..5_000).map(|_| add(&renewals, here)).collect::<Vec<_>>());
        assert_eq!(renewals.queue_due(here), (0, None));
        assert!(renewals.lock().holds.capacity() <= 1_024);
    }
}
