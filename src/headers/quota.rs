//! The state of one quota, counted by a store or outside tollgate.

use std::time::Duration;

use crate::{decision::PolicyDecision, policy::HoldSettings};

/// The state of one quota, in the terms of the RateLimit fields.
///
/// A [`HeaderWriter`](crate::headers::HeaderWriter) converts each [`PolicyDecision`] into a quota. To send the state of
/// a quota that is counted outside tollgate, create a `QuotaReport` and pass it to
/// [`HeaderWriter::write_quotas`](crate::headers::HeaderWriter::write_quotas), which has an example.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct QuotaReport<'a> {
    pub(super) name: &'a str,
    pub(super) limit: u64,
    pub(super) capacity: u64,
    pub(super) window: Option<Duration>,
    pub(super) unit: Option<&'a str>,
    pub(super) partition_key: Option<&'a [u8]>,
    pub(super) remaining: u64,
    /// Time until more units become available, if known.
    pub(super) next: Option<Duration>,
    /// Time until all units are available again, if known.
    pub(super) reset: Option<Duration>,
    pub(super) retry_after: Option<Duration>,
    /// Whether this quota denied the request.
    pub(super) violated: bool,
}

impl<'a> QuotaReport<'a> {
    /// Creates the state of the policy `name`: `limit` units per window (`q`), of which `remaining` are left (`r`).
    ///
    /// The quota counts requests, has no window and no partition, and its waits are not known. It has not denied the
    /// request.
    pub fn new(name: &'a str, limit: u64, remaining: u64) -> Self {
        Self {
            name,
            limit,
            capacity: limit,
            window: None,
            unit: None,
            partition_key: None,
            remaining,
            next: None,
            reset: None,
            retry_after: None,
            violated: false,
        }
    }

    /// Sets the most units that can be available at once, such as the burst of a token bucket. Defaults to the limit.
    pub fn with_capacity(self, capacity: u64) -> Self {
        Self { capacity, ..self }
    }

    /// Sets the window (`w`). Defaults to `None`: the quota has no window.
    pub fn with_window(self, window: impl Into<Option<Duration>>) -> Self {
        Self { window: window.into(), ..self }
    }

    /// Sets the unit (`qu`). Defaults to `None`: requests.
    pub fn with_unit(self, unit: impl Into<Option<&'a str>>) -> Self {
        Self { unit: unit.into(), ..self }
    }

    /// Sets the partition of the quota (`pk`), see [`PartitionKeys`](crate::headers::PartitionKeys). Defaults to
    /// `None`: no partition is sent.
    pub fn with_partition_key(self, key: impl Into<Option<&'a [u8]>>) -> Self {
        Self { partition_key: key.into(), ..self }
    }

    /// Sets the time until more units become available, and the time until all units are available again. Defaults to
    /// `None`: they are not known.
    pub fn with_waits(self, next: impl Into<Option<Duration>>, reset: impl Into<Option<Duration>>) -> Self {
        Self { next: next.into(), reset: reset.into(), ..self }
    }

    /// Says that this quota has denied the request, and sets the time until the request passes. With `None` the
    /// request can never pass.
    pub fn denied(self, retry_after: impl Into<Option<Duration>>) -> Self {
        Self { retry_after: retry_after.into(), violated: true, ..self }
    }
}

impl<'a> From<&'a PolicyDecision> for QuotaReport<'a> {
    fn from(decision: &'a PolicyDecision) -> Self {
        let PolicyDecision { policy, violated, available, retry_after, next, reset, .. } = decision;
        let typical = policy.holds().filter(|_| policy.is_concurrent()).map(HoldSettings::typical_duration);
        Self {
            name: policy.name(),
            limit: policy.limit(),
            // Of the whole policy, as the limit is: a client knows of no shards.
            capacity: policy.burst().unwrap_or(policy.limit()),
            // Units of a concurrency limit come back when others end, at no known time.
            window: policy.window(),
            unit: policy.unit(),
            partition_key: decision.partition_key(),
            remaining: *available,
            next: Some(typical.map_or(*next, |typical| typical.min(*next))),
            reset: Some(typical.map_or(*reset, |typical| typical.min(*reset))),
            retry_after: *retry_after,
            violated: *violated,
        }
    }
}
