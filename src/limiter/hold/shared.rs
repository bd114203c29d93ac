//! What the holds of a limiter share.

use std::{fmt, sync::Arc};

use crate::{
    calls::Calls,
    key::Key,
    limiter::hold::{ends::Ends, renewals::Renewals},
    policy::Policy,
    runtime::workers::Workers,
};

/// The calls by which holds change, and the changes that are due.
#[derive(Clone)]
pub(in crate::limiter) struct SharedHolds {
    pub(in crate::limiter) calls: Arc<Calls>,
    /// The ends of holds that the store has not answered yet.
    pub(super) ends: Arc<Ends>,
    /// The holds that are renewed while they are held.
    pub(super) renewals: Arc<Renewals>,
    /// The tasks that look after both, one in each runtime.
    pub(super) workers: Arc<Workers>,
    /// Hears of what may let callers pass that wait for their units.
    pub(super) waiters: Arc<dyn OnChangedCount>,
}

/// Hears of counts that holds have changed.
pub(in crate::limiter) trait OnChangedCount: Send + Sync {
    /// A hold of the count has ended.
    fn hold_ended(&self, key: &Key, policy: &Policy);

    /// A settlement that came too late was charged.
    fn charged_late(&self, key: &Key, policy: &Policy);
}

impl SharedHolds {
    pub(in crate::limiter) fn new(calls: Arc<Calls>, waiters: Arc<dyn OnChangedCount>) -> Self {
        Self { calls, ends: Arc::default(), renewals: Arc::default(), workers: Arc::default(), waiters }
    }

    /// The same holds with other calls or other waiters.
    pub(in crate::limiter) fn with(&self, calls: Arc<Calls>, waiters: Arc<dyn OnChangedCount>) -> Self {
        Self { calls, waiters, ..self.clone() }
    }
}

impl fmt::Debug for SharedHolds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedHolds").field("calls", &self.calls).finish_non_exhaustive()
    }
}
