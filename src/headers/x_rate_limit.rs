//! The de-facto `X-RateLimit-*` fields: one limit, and the time until all units are available again.

use http::HeaderValue;

use super::quota::{QuotaReport, Snapshot};
use super::structured::{List, parameter, string, window};
use super::{X_AFTER, X_ENVOY_RATELIMITED, X_LIMIT, X_REMAINING, X_RESET, duration::number, fields::HeaderFields};

/// Adds the fields with the reset in seconds from now.
pub(super) fn delta(snapshot: &Snapshot<'_>, fields: &mut HeaderFields) {
    if let Some((selected, wait_us)) = selected(snapshot) {
        let limit = number(selected.capacity);
        push_limit(fields, selected, limit, wait_us.map(|wait_us| seconds(snapshot, wait_us)));
    }
}

/// Adds the fields with the reset in seconds since the Unix epoch.
pub(super) fn epoch(snapshot: &Snapshot<'_>, fields: &mut HeaderFields) {
    if let Some((selected, wait_us)) = selected(snapshot) {
        let at = |wait_us| snapshot.now_us.saturating_add(wait_us).div_ceil(1_000_000);
        // On a denial the reset is in the future.
        let earliest = if snapshot.allowed { 0 } else { snapshot.now_us / 1_000_000 + 1 };
        push_limit(fields, selected, number(selected.capacity), wait_us.map(|wait_us| at(wait_us).max(earliest)));
    }
}

/// Adds the fields of Envoy. In `X-RateLimit-Limit`, every policy follows the limit, with its name.
pub(super) fn envoy(snapshot: &Snapshot<'_>, fields: &mut HeaderFields) {
    if let Some((selected, wait_us)) = selected(snapshot) {
        let mut limits = List::default();
        limits.member(|out| parameter(out, "", selected.capacity));
        for quota in snapshot.quotas {
            limits.member(|out| {
                parameter(out, "", quota.limit);
                window(out, quota.window);
                out.extend_from_slice(b";name=");
                string(out, quota.name);
            });
        }
        if let Some(limits) = limits.value() {
            push_limit(fields, selected, limits, wait_us.map(|wait_us| seconds(snapshot, wait_us)));
        }
    }
    if !snapshot.allowed {
        fields.push(X_ENVOY_RATELIMITED, HeaderValue::from_static("true"));
    }
}

/// Adds the fields of tower_governor, which have no reset.
pub(super) fn tower_governor(snapshot: &Snapshot<'_>, fields: &mut HeaderFields) {
    if let Some(selected) = snapshot.selected() {
        push_limit(fields, selected, number(selected.capacity), None);
    }
    if let Some(seconds) = snapshot.retry_after() {
        fields.push(X_AFTER, number(seconds));
    }
}

/// Adds the units left, the limit and, if known, the reset.
fn push_limit(fields: &mut HeaderFields, selected: &QuotaReport<'_>, limit: HeaderValue, reset: Option<u64>) {
    fields.push(X_REMAINING, number(selected.remaining));
    fields.push(X_LIMIT, limit);
    if let Some(reset) = reset {
        fields.push(X_RESET, number(reset));
    }
}

/// The quota to send, and the microseconds until its reset. On an allowed response, the reset is when all units are
/// available again. On a denial, the reset is when the request passes, and `None` if no wait helps.
fn selected<'a>(snapshot: &'a Snapshot<'_>) -> Option<(&'a QuotaReport<'a>, Option<u64>)> {
    let selected = snapshot.selected()?;
    let wait = match snapshot.allowed {
        true => selected.reset,
        false => selected.retry_after.map(|wait| wait.saturating_add(snapshot.jitter)),
    };
    // Without a known reset no fields are sent, except on a denial that no wait helps.
    if wait.is_none() && (snapshot.allowed || selected.next.is_none()) {
        return None;
    }
    Some((selected, wait.map(|wait| u64::try_from(wait.as_micros()).unwrap_or(u64::MAX))))
}

/// Whole seconds, rounded up; on a denial at least 1.
fn seconds(snapshot: &Snapshot<'_>, wait_us: u64) -> u64 {
    wait_us.div_ceil(1_000_000).max(u64::from(!snapshot.allowed))
}
