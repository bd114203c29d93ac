//! Renewal of open holds.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    runtime::{self, Handle},
    time::Instant,
};

use crate::{
    error::Error,
    hold::{HoldChange, OpenHold, Settlement},
    limiter::{
        core::Core,
        hold::{renewals::RenewedHold, worker::HoldJob},
    },
};

/// Largest number of renewals in flight: those of a worker share calls, and leave room for checks.
const MOST_IN_FLIGHT: usize = 512;

impl Core {
    /// Renews a hold until the guard is dropped, where it was made, or in another runtime that takes part.
    ///
    /// Without a tokio runtime with timers nothing is renewed, and the hold ends with its time-to-live.
    pub(in crate::limiter) fn renew(self: &Arc<Self>, hold: &OpenHold, is_local: bool) -> Option<RenewedHold> {
        let home = Handle::try_current().ok().map(|runtime| runtime.id());
        let (renewed, due, elsewhere) = self.renewals.add(hold, is_local, home)?;
        self.workers.start(due, Some(elsewhere), || Arc::new(HoldJob(Arc::clone(self))));
        Some(renewed)
    }

    /// Renews what is due from the current runtime. Returns when the next hold is due.
    pub(super) fn renew_due_holds(self: &Arc<Self>, here: runtime::Id) -> Option<Instant> {
        let (due, next) = self.renewals.take_due(here);
        let tasks = due.len().min(MOST_IN_FLIGHT);
        let due = Arc::new(Mutex::new(due));
        if let Ok(runtime) = Handle::try_current() {
            for _ in 0..tasks {
                runtime.spawn(renew_all(Arc::clone(self), Arc::clone(&due)));
            }
        }
        next
    }

    async fn renew_once(&self, hold: &OpenHold, is_local: bool) -> Result<Settlement, Error> {
        match &self.fallback {
            Some(fallback) if is_local => Ok(fallback.change_hold(hold, HoldChange::Renew)),
            _ => self.renew_hold(hold).await,
        }
    }
}

/// Renews one hold after the other, until the queue is empty.
async fn renew_all(core: Arc<Core>, due: Arc<Mutex<VecDeque<(OpenHold, bool)>>>) {
    let next = || due.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    while let Some((hold, is_local)) = next() {
        let sent = Instant::now();
        let result = core.renew_once(&hold, is_local).await;
        core.renewals.on_renewed(hold.id, sent, &result);
    }
}
