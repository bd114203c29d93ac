//! `X-RateLimit-*`, the de-facto fields: one limit, and a reset that means full restoration.

use http::{HeaderName, HeaderValue};

use super::{
    Fields, Quota,
    fields::number,
    ietf::window,
    report::Report,
    structured::{List, parameter, string},
};

pub(super) const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(super) const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(super) const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
pub(super) const AFTER: HeaderName = HeaderName::from_static("x-ratelimit-after");
pub(super) const ENVOY_RATELIMITED: HeaderName = HeaderName::from_static("x-envoy-ratelimited");

/// Resets in seconds from now.
pub(super) fn delta(report: &Report<'_>, fields: &mut Fields) {
    if let Some((selected, wait_us)) = selected(report) {
        let limit = number(selected.capacity);
        triple(fields, selected, limit, wait_us.map(|wait_us| seconds(report, wait_us)));
    }
}

/// Resets in seconds since the Unix epoch.
pub(super) fn epoch(report: &Report<'_>, fields: &mut Fields) {
    if let Some((selected, wait_us)) = selected(report) {
        let at = |wait_us| report.now_us.saturating_add(wait_us).div_ceil(1_000_000);
        // On a denial, later than now.
        let least = if report.allowed { 0 } else { report.now_us / 1_000_000 + 1 };
        triple(fields, selected, number(selected.capacity), wait_us.map(|wait_us| at(wait_us).max(least)));
    }
}

/// As Envoy spells them: every policy, with its name, follows the limit.
pub(super) fn envoy(report: &Report<'_>, fields: &mut Fields) {
    if let Some((selected, wait_us)) = selected(report) {
        let mut limits = List::default();
        limits.member(|out| parameter(out, "", selected.capacity));
        for quota in report.quotas {
            limits.member(|out| {
                parameter(out, "", quota.limit);
                window(out, quota);
                out.extend_from_slice(b";name=");
                string(out, quota.name);
            });
        }
        if let Some(limits) = limits.value() {
            triple(fields, selected, limits, wait_us.map(|wait_us| seconds(report, wait_us)));
        }
    }
    if !report.allowed {
        fields.push(ENVOY_RATELIMITED, HeaderValue::from_static("true"));
    }
}

/// As tower_governor spells them, without a reset.
pub(super) fn tower_governor(report: &Report<'_>, fields: &mut Fields) {
    if let Some(selected) = report.selected() {
        triple(fields, selected, number(selected.capacity), None);
    }
    if let Some(seconds) = report.retry_after() {
        fields.push(AFTER, number(seconds));
    }
}

fn triple(fields: &mut Fields, selected: &Quota<'_>, limit: HeaderValue, reset: Option<u64>) {
    fields.push(REMAINING, number(selected.remaining));
    fields.push(LIMIT, limit);
    if let Some(reset) = reset {
        fields.push(RESET, number(reset));
    }
}

/// The quota that is told, and the microseconds until its reset: on an allowed response until all is available again;
/// on a denial until the request may be repeated, or nothing if no wait helps.
fn selected<'a>(report: &'a Report<'_>) -> Option<(&'a Quota<'a>, Option<u64>)> {
    let selected = report.selected()?;
    let wait = match report.allowed {
        true => selected.reset,
        false => selected.retry_after.map(|wait| wait.saturating_add(report.jitter)),
    };
    // A style without a known reset is not sent, except on a denial that no wait helps.
    if wait.is_none() && (report.allowed || selected.next.is_none()) {
        return None;
    }
    Some((selected, wait.map(|wait| u64::try_from(wait.as_micros()).unwrap_or(u64::MAX))))
}

/// On a denial at least 1.
fn seconds(report: &Report<'_>, wait_us: u64) -> u64 {
    wait_us.div_ceil(1_000_000).max(u64::from(!report.allowed))
}
