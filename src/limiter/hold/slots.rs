//! Renewal of the slots of concurrency limits, for as long as they are held: one task for all slots of a limiter.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::Notify,
    task::JoinSet,
    time::{Instant, timeout_at},
};

use crate::{
    error::Error,
    hold::{HoldChange, HoldId, OpenHold, Settlement},
    limiter::core::Core,
    policy::Holds,
    runtime::{drivers::Driver, random::RandomMap},
};

/// The slots that this process holds.
#[derive(Debug, Default)]
pub(in crate::limiter) struct Slots {
    state: Mutex<State>,
    /// Wakes the task when a slot is due earlier than those before.
    earlier: Notify,
}

#[derive(Debug, Default)]
struct State {
    slots: RandomMap<HoldId, Renewal>,
    /// Whether a task renews the slots.
    is_running: bool,
    /// When the task wakes.
    wakes: Option<Instant>,
}

#[derive(Debug)]
struct Renewal {
    hold: OpenHold,
    /// Whether the local fallback has made the hold.
    is_local: bool,
    due: Instant,
}

/// A slot that is renewed until this is dropped.
#[derive(Debug)]
pub(crate) struct RenewedSlot {
    slots: Arc<Slots>,
    id: HoldId,
}

impl Drop for RenewedSlot {
    fn drop(&mut self) {
        self.slots.lock().slots.remove(&self.id);
    }
}

impl Core {
    /// Renews the slot of a concurrency limit until the guard is dropped. `None` for other holds.
    ///
    /// Without a tokio runtime with timers nothing is renewed, and the slot ends with its time-to-live.
    pub(in crate::limiter) fn renew_slot(self: &Arc<Self>, hold: &OpenHold, is_local: bool) -> Option<RenewedSlot> {
        let due = Instant::now() + interval(hold)?;
        let slots = Arc::clone(&self.slots);
        let mut state = slots.lock();
        state.slots.insert(hold.id, Renewal { hold: hold.clone(), is_local, due });
        let starts = !mem::replace(&mut state.is_running, true);
        if state.wakes.is_some_and(|wakes| due < wakes) {
            slots.earlier.notify_one();
        }
        drop(state);
        if starts {
            let task = Task { slots: Arc::clone(&slots), has_ended: false };
            if let (Ok(runtime), true) = (Handle::try_current(), Driver::Timers.is_there()) {
                drop(runtime.spawn(task.run(Arc::clone(self))));
            }
        }
        Some(RenewedSlot { slots, id: hold.id })
    }

    async fn renew_slot_once(&self, hold: &OpenHold, is_local: bool) -> Result<Settlement, Error> {
        match &self.fallback {
            Some(fallback) if is_local => Ok(fallback.change_hold(hold, HoldChange::Renew)),
            _ => self.renew_hold(hold).await,
        }
    }
}

/// The time between two renewals: a third of the time-to-live, so that two may fail. `None` if the hold is no slot of a
/// concurrency limit.
fn interval(hold: &OpenHold) -> Option<Duration> {
    let holds = hold.policy.holds().filter(|_| hold.policy.is_concurrent());
    holds.map(Holds::ttl).map(|ttl| (ttl / 3).max(SHORTEST))
}

/// The shortest time between two renewals, whatever the time-to-live is.
const SHORTEST: Duration = Duration::from_millis(1);

/// The task that renews the slots. If its runtime ends, another runtime takes over with the next slot.
struct Task {
    slots: Arc<Slots>,
    /// Whether the task found no slots, so that another one may run.
    has_ended: bool,
}

impl Task {
    async fn run(mut self, core: Arc<Core>) {
        while let Some(wakes) = self.slots.next_due() {
            if timeout_at(wakes, self.slots.earlier.notified()).await.is_err() {
                self.slots.renew_due(&core).await;
            }
        }
        self.has_ended = true;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if !self.has_ended {
            let mut state = self.slots.lock();
            (state.is_running, state.wakes) = (false, None);
        }
    }
}

impl Slots {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the next slot is due. `None` without slots, which ends the task.
    fn next_due(&self) -> Option<Instant> {
        let mut state = self.lock();
        state.wakes = state.slots.values().map(|renewal| renewal.due).min();
        state.is_running = state.wakes.is_some();
        state.wakes
    }

    /// Renews the slots that are due, and those that are due soon: all at the same time, so that the store can send
    /// them in one call.
    async fn renew_due(&self, core: &Arc<Core>) {
        let mut renewals = JoinSet::new();
        let now = Instant::now();
        for renewal in self.lock().slots.values_mut() {
            let interval = interval(&renewal.hold).unwrap_or(SHORTEST);
            if renewal.due <= now + interval / 2 {
                renewal.due = now + interval;
                let (core, hold, is_local) = (Arc::clone(core), renewal.hold.clone(), renewal.is_local);
                renewals.spawn(async move { (hold.id, core.renew_slot_once(&hold, is_local).await) });
            }
        }
        while let Some(renewed) = renewals.join_next().await {
            if let Ok((id, result)) = renewed {
                self.on_renewed(id, result);
            }
        }
    }

    fn on_renewed(&self, id: HoldId, result: Result<Settlement, Error>) {
        let mut state = self.lock();
        match result {
            Ok(Settlement::Settled) => {}
            // The slot was lost, or has just been given back.
            Ok(_) => drop(state.slots.remove(&id)),
            Err(_) => {
                if let Some(renewal) = state.slots.get_mut(&id) {
                    let interval = interval(&renewal.hold).unwrap_or(SHORTEST);
                    renewal.due = renewal.due.min(Instant::now() + (interval / 4).max(SHORTEST));
                }
            }
        }
    }
}
