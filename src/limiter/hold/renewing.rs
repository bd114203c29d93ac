//! Renewal of open holds.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    runtime::{self, Handle},
    time::Instant,
};

use crate::{
    error::Error,
    hold::{OpenHold, SettleAnswer},
    limiter::hold::{
        age::{Age, Owner},
        renewals::RenewedHold,
        shared::SharedHolds,
        worker::HoldJob,
    },
};

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

    async fn renew_once(&self, hold: &OpenHold, is_local: bool) -> Result<SettleAnswer, Error> {
        match &self.calls.fallback {
            Some(fallback) if is_local => Ok(fallback.renew_own_hold(hold)),
            _ => self.renew_hold(hold).await,
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
        let result = shared.renew_once(&hold, is_local).await;
        shared.renewals.on_renewed(hold.id, sent, &result);
        // A store that answers at once must not keep the thread from other tasks.
        tokio::task::yield_now().await;
    }
}
