//! What has to be done for holds in the background: ends are sent again, and open holds are renewed.

use std::sync::Arc;

use tokio::{runtime, time::Instant};

use crate::{limiter::core::Core, runtime::workers::Job};

/// The job of the workers of a limiter.
pub(super) struct HoldJob(pub(super) Arc<Core>);

impl Job for HoldJob {
    fn run(&self, here: runtime::Id) -> Option<Instant> {
        let ends = self.0.look_after_ends();
        let renewals = self.0.renew_due_holds(here);
        [ends, renewals].into_iter().flatten().min()
    }

    fn on_runtime_end(&self, ended: runtime::Id) {
        self.0.renewals.on_runtime_end(ended);
        self.0.ends.look_soon();
    }
}
