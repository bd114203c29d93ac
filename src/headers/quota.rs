//! Where one quota stands, whoever counted it.

use std::time::Duration;

use crate::decision::PolicyDecision;

/// Where one quota stands, as headers tell it.
#[derive(Clone, Copy, Debug)]
pub struct Quota<'a> {
    /// The policy's name.
    pub name: &'a str,
    /// `q`: units per window.
    pub limit: u64,
    /// The most units that can be there at once: the burst of a token bucket, the limit of all other algorithms.
    pub capacity: u64,
    /// `w`: the window, if there is one.
    pub window: Option<Duration>,
    /// `qu`: the unit, if it is not requests.
    pub unit: Option<&'a str>,
    /// `pk`: whose quota it is, if that is told at all; see [`PartitionKeys`](super::PartitionKeys).
    pub partition_key: Option<&'a [u8]>,
    /// `r`: units left.
    pub remaining: u64,
    /// Until more becomes available, if known.
    pub next: Option<Duration>,
    /// Until all of it is available again, if known.
    pub reset: Option<Duration>,
    /// Until the refused request passes; `None` if it was not refused or can never pass.
    pub retry_after: Option<Duration>,
    /// Whether the request was denied because of this quota.
    pub violated: bool,
}

impl<'a> From<&'a PolicyDecision> for Quota<'a> {
    fn from(decision: &'a PolicyDecision) -> Self {
        let PolicyDecision { policy, violated, available, retry_after, next, reset, .. } = decision;
        Self {
            name: policy.name(),
            limit: policy.limit().into(),
            capacity: policy.capacity().into(),
            window: Some(policy.window()),
            unit: policy.unit(),
            partition_key: decision.partition_key(),
            remaining: (*available).into(),
            next: Some(*next),
            reset: Some(*reset),
            retry_after: *retry_after,
            violated: *violated,
        }
    }
}
