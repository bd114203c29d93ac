//! The state of one quota, counted by a store or outside tollgate, and the arithmetic of all header styles.

use std::{cmp::Reverse, time::Duration};

use super::duration::{seconds_up, whole_seconds};
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

impl<'a> QuotaReport<'a> {
    /// The quota of a decision at its time. The window of a calendar ends at a known time, also if nothing is spent in
    /// it.
    pub(super) fn at(decision: &'a PolicyDecision, now_us: u64) -> Self {
        let quota = Self::from(decision);
        match decision.policy.calendar_windows() {
            Some(windows) if decision.next.is_zero() => {
                let until_end = Duration::from_micros(windows.at(now_us).end_us.saturating_sub(now_us));
                quota.with_waits(until_end, until_end)
            }
            _ => quota,
        }
    }
}

/// The quotas at the time of a response, and the options of the writer.
pub(super) struct Snapshot<'a> {
    pub(super) quotas: &'a [QuotaReport<'a>],
    pub(super) allowed: bool,
    pub(super) now_us: u64,
    pub(super) capped_ratio: bool,
    /// The random time that is added to each wait.
    pub(super) jitter: Duration,
}

impl Snapshot<'_> {
    /// Whole seconds until the denied request passes; `None` if the request was allowed or can never pass.
    pub(super) fn retry_after(&self) -> Option<u64> {
        self.wait().map(whole_seconds)
    }

    /// Time until the denied request passes, with the jitter; `None` if the request was allowed or can never pass.
    pub(super) fn wait(&self) -> Option<Duration> {
        let mut waits = self.quotas.iter().filter(|quota| quota.violated).map(|quota| quota.retry_after);
        let first = waits.next()??;
        let longest = waits.try_fold(first, |longest, wait| wait.map(|wait| longest.max(wait)))?;
        Some(longest.saturating_add(self.jitter))
    }

    /// `t`, the effective window: the seconds in which the client can spend at most `remaining`.
    pub(super) fn effective_window(&self, quota: &QuotaReport<'_>) -> Option<u64> {
        let next = quota.next?;
        let has_to_wait = quota.violated || self.allowed && quota.remaining == 0;
        let mut seconds = seconds_up(if has_to_wait { next.saturating_add(self.jitter) } else { next });
        if let Some(window) = quota.window.filter(|_| self.capped_ratio && quota.remaining > 0 && quota.limit > 0) {
            seconds = seconds.max(paced_seconds(quota.remaining, window, quota.limit));
        }
        match self.retry_after() {
            Some(retry_after) if quota.violated => Some(seconds.max(1).min(retry_after)),
            _ => Some(seconds),
        }
    }

    /// The quota that a style with a single limit sends: on a denial the violated quota with the longest wait,
    /// otherwise the quota with the fewest units left.
    pub(super) fn selected(&self) -> Option<&QuotaReport<'_>> {
        if self.allowed { self.fewest_left(|_| true) } else { self.longest_wait(|_| true) }
    }

    /// The quota in `unit` that a style with a limit for each unit sends. On a denial that no quota in this unit has
    /// caused, it is the quota with the fewest units left, as on an allowed response.
    pub(super) fn selected_in(&self, unit: Option<&str>) -> Option<&QuotaReport<'_>> {
        let in_unit = |quota: &QuotaReport<'_>| quota.unit == unit;
        self.longest_wait(in_unit).or_else(|| self.fewest_left(in_unit))
    }

    /// Of quotas with the same number of units left, the one with the longest window.
    fn fewest_left(&self, accepts: impl Fn(&QuotaReport<'_>) -> bool) -> Option<&QuotaReport<'_>> {
        let window = |quota: &QuotaReport<'_>| quota.window.unwrap_or(Duration::MAX);
        let quotas = self.quotas.iter().filter(|quota| accepts(quota));
        quotas.min_by_key(|quota| (quota.remaining, Reverse(window(quota))))
    }

    /// The violated quota with the longest wait; `None` if the request was allowed.
    fn longest_wait(&self, accepts: impl Fn(&QuotaReport<'_>) -> bool) -> Option<&QuotaReport<'_>> {
        let wait = |quota: &QuotaReport<'_>| quota.retry_after.unwrap_or(Duration::MAX);
        // `rev`, because `max_by_key` returns the last of equal elements.
        let quotas = self.quotas.iter().rev().filter(|quota| !self.allowed && quota.violated && accepts(quota));
        quotas.max_by_key(|quota| wait(quota))
    }
}

/// Seconds that `units` last at the rate of `limit` per `window`, rounded up.
fn paced_seconds(units: u64, window: Duration, limit: u64) -> u64 {
    // 64-bit numbers suffice in most cases, and 128-bit division is several times slower.
    let narrow = u64::try_from(window.as_micros()).ok().and_then(|window| window.checked_mul(units));
    if let (Some(paced), Some(rate)) = (narrow, limit.checked_mul(1_000_000)) {
        return paced.div_ceil(rate);
    }
    let paced = u128::from(units).saturating_mul(window.as_micros());
    u64::try_from(paced.div_ceil(u128::from(limit) * 1_000_000)).unwrap_or(u64::MAX)
}
