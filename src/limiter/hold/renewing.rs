//! What each runtime does for holds in the background: ends are sent again, open holds are renewed, and those that have
//! reached their longest age end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{self, Handle};
use tokio::time::Instant;

use crate::limiter::hold::age::{Age, AgedHold, Owner};
use crate::limiter::hold::{ends::SharedHolds, renewals::RenewedHold, request::HeldUnits};
use crate::observe::{Event, Warning};
use crate::{check::open_hold::OpenHold, policy::Policy, runtime::workers::Job};

/// Largest number of renewals in flight: those of a worker share calls, and leave room for checks.
const MOST_IN_FLIGHT: usize = 512;

impl SharedHolds {
    /// Renews a hold until the guard is dropped, where it was made, or in another runtime that takes part.
    ///
    /// When the hold reaches its longest age, it is not renewed any more, and its `owner` ends it. Without a tokio
    /// runtime with timers nothing is renewed, and the hold ends with its time-to-live.
    pub(super) fn renew(
        self: &Arc<Self>,
        hold: &OpenHold,
        is_local: bool,
        owner: Option<Owner>,
    ) -> Option<RenewedHold> {
        let home = Handle::try_current().ok().map(|runtime| runtime.id());
        let (renewed, due, elsewhere) = self.renewals.add(hold, is_local, home, Age::of(&hold.policy, owner))?;
        self.workers.start(due, Some(elsewhere), || Arc::new(HoldJob::new(Arc::clone(self))));
        Some(renewed)
    }

    /// Renews what is due from the current runtime, of which `tasks` is the number of tasks that do. Returns when the
    /// next hold is due.
    pub(super) fn renew_due_holds(self: &Arc<Self>, here: runtime::Id, tasks: &Arc<AtomicUsize>) -> Option<Instant> {
        self.end_aged_holds();
        let (waiting, next) = self.renewals.queue_due(here);
        let running = tasks.load(Ordering::Relaxed);
        if let Ok(runtime) = Handle::try_current() {
            for _ in running..MOST_IN_FLIGHT.min(running + waiting) {
                tasks.fetch_add(1, Ordering::Relaxed);
                runtime.spawn(renew_all(Arc::clone(self), Running(Arc::clone(tasks))));
            }
        }
        next
    }

    /// Ends the holds of requests that are too old.
    pub(super) fn end_aged_holds(self: &Arc<Self>) {
        for AgedHold { hold, owner } in self.renewals.take_aged() {
            self.warn_of_longest(&hold.policy);
            if let Some(Owner { request, held, origin, claim }) = owner
                && let Some(charged) = request.charged(&hold.policy)
                && claim.claim()
            {
                let policy = hold.policy.clone();
                self.end_units(HeldUnits::new(hold, held), charged, true, &origin);
                request.on_ended(&policy);
            }
        }
    }

    /// Warns once of a hold that has reached its longest age.
    fn warn_of_longest(&self, policy: &Policy) {
        if let (Some(listener), Some(longest)) =
            (&self.calls.listener, policy.holds().and_then(|holds| holds.longest()))
            && self.renewals.too_long.claim()
        {
            listener.on_event(&Event::of_warning(Warning::held_too_long(policy.name(), longest)));
        }
    }
}

/// Counts a task until it has ended.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Renews one hold after the other, until the queue is empty.
async fn renew_all(shared: Arc<SharedHolds>, _running: Running) {
    while let Some((hold, is_local)) = shared.renewals.take() {
        let sent = Instant::now();
        let result = shared.renew_hold(&hold, is_local).await;
        shared.renewals.on_renewed(hold.id(), sent, &result);
        // A store that answers at once must not keep the thread from other tasks.
        tokio::task::yield_now().await;
    }
}

/// The job of the worker of a runtime.
pub(super) struct HoldJob {
    shared: Arc<SharedHolds>,
    /// The number of tasks of the runtime that renew holds.
    renewing: Arc<AtomicUsize>,
}

impl HoldJob {
    pub(super) fn new(shared: Arc<SharedHolds>) -> Self {
        Self { shared, renewing: Arc::default() }
    }
}

impl Job for HoldJob {
    fn run(&self, here: runtime::Id) -> Option<Instant> {
        let ends = self.shared.look_after_ends();
        let renewals = self.shared.renew_due_holds(here, &self.renewing);
        [ends, renewals].into_iter().flatten().min()
    }

    fn on_runtime_end(&self, ended: runtime::Id) {
        self.shared.renewals.on_runtime_end(ended);
        self.shared.ends.look_soon();
    }
}
