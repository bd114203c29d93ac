//! The arithmetic of all header styles.

use std::{cmp::Reverse, time::Duration};

use super::{
    duration::{seconds_up, whole_seconds},
    quota::QuotaReport,
};

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
