//! The state of one quota, counted by a store or outside tollgate.

use std::time::Duration;

use crate::{decision::PolicyDecision, policy::Holds};

/// The state of one quota, in the terms of the RateLimit fields.
///
/// A [`Writer`](crate::headers::Writer) converts each [`PolicyDecision`] into a quota. To send the state of a quota
/// that is counted outside tollgate, create a `Quota` and pass it to
/// [`Writer::write_quotas`](crate::headers::Writer::write_quotas), which has an example.
#[derive(Clone, Copy, Debug)]
pub struct Quota<'a> {
    /// The policy's name.
    pub name: &'a str,
    /// `q`: units per window.
    pub limit: u64,
    /// The most units that can be available at once: the burst of a token bucket, the limit of all other algorithms.
    pub capacity: u64,
    /// `w`: the window; `None` if the quota has no window.
    pub window: Option<Duration>,
    /// `qu`: the unit; `None` for requests.
    pub unit: Option<&'a str>,
    /// `pk`: the partition of the quota, if it is sent; see [`PartitionKeys`](crate::headers::PartitionKeys).
    pub partition_key: Option<&'a [u8]>,
    /// `r`: units left.
    pub remaining: u64,
    /// Time until more units become available, if known.
    pub next: Option<Duration>,
    /// Time until all units are available again, if known.
    pub reset: Option<Duration>,
    /// Time until the denied request passes; `None` if this quota did not deny the request, or the request can never
    /// pass.
    pub retry_after: Option<Duration>,
    /// Whether this quota denied the request.
    pub violated: bool,
}

impl<'a> From<&'a PolicyDecision> for Quota<'a> {
    fn from(decision: &'a PolicyDecision) -> Self {
        let PolicyDecision { policy, violated, available, retry_after, next, reset, .. } = decision;
        let typical = policy.holds().filter(|_| policy.is_concurrent()).map(Holds::typical);
        Self {
            name: policy.name(),
            limit: policy.limit().into(),
            // Of the whole policy, as the limit is: a client knows of no shards.
            capacity: policy.burst().unwrap_or(policy.limit()).into(),
            // Units of a concurrency limit come back when others end, at no known time.
            window: (!policy.is_concurrent()).then(|| policy.window()),
            unit: policy.unit(),
            partition_key: decision.partition_key(),
            remaining: (*available).into(),
            next: Some(typical.map_or(*next, |typical| typical.min(*next))),
            reset: Some(typical.map_or(*reset, |typical| typical.min(*reset))),
            retry_after: *retry_after,
            violated: *violated,
        }
    }
}
