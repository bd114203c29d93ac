//! What has to be done for holds in the background: ends are sent again, and open holds are renewed.

use std::sync::{Arc, atomic::AtomicUsize};

use tokio::{runtime, time::Instant};

use crate::{limiter::hold::shared::SharedHolds, runtime::workers::Job};

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
