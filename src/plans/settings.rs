//! The settings of plans as plain data, and their defaults.

use std::{sync::Arc, time::Duration};

use tokio::runtime::Handle;

use super::entry::Lifetimes;
use crate::{
    clock::{Clock, SystemClock},
    observe::Reporter,
};

/// See the setters of [`Plans`](super::Plans).
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) lifetimes: Lifetimes,
    pub(super) timeout: Duration,
    pub(super) max_lookups: usize,
    /// The runtime of all look-ups; `None` for the runtime of the request.
    pub(super) runtime: Option<Handle>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) reporter: Reporter,
}

impl Settings {
    /// The capacity is not a setting, because the cache is created with it.
    pub(super) const CAPACITY: usize = 100_000;

    /// When a look-up without an answer no longer keeps others from starting. Its own timeout ends a look-up earlier,
    /// unless its runtime is blocked or has no timers. Not shorter than the time between two look-ups of a key.
    pub(super) fn overdue_after(&self) -> Duration {
        self.timeout.saturating_mul(2).max(self.lifetimes.ttl).max(self.lifetimes.failure_ttl())
    }
}

impl Default for Settings {
    fn default() -> Self {
        let lifetimes =
            Lifetimes { ttl: Duration::from_secs(60), stale: Duration::from_secs(3_600), failure_ttl: None };
        Self {
            lifetimes,
            timeout: Duration::from_secs(5),
            max_lookups: 64,
            runtime: None,
            clock: Arc::new(SystemClock),
            reporter: Reporter::default(),
        }
    }
}
