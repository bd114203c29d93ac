//! `X-RateLimit-*`, the de-facto fields: one limit, and a reset that means full restoration.

use http::HeaderName;

use super::{Fields, Report, fields::number};

static LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(super) static REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
static RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The names of this style, the units left first.
pub(super) static SINGLE: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-reset"),
];

/// Resets in seconds from now.
pub(super) fn delta(report: &Report<'_>, fields: &mut Fields) {
    triple(report, fields, |report, wait_us| {
        let seconds = wait_us.div_ceil(1_000_000);
        if report.allowed { seconds } else { seconds.max(1) }
    });
}

/// Resets in seconds since the Unix epoch.
pub(super) fn epoch(report: &Report<'_>, fields: &mut Fields) {
    triple(report, fields, |report, wait_us| {
        let at = report.now_us.saturating_add(wait_us).div_ceil(1_000_000);
        if report.allowed { at } else { at.max(report.now_us / 1_000_000 + 1) }
    });
}

/// On an allowed response the reset is when all is available again; on a denial, when the request may be repeated.
fn triple(report: &Report<'_>, fields: &mut Fields, reset: fn(&Report<'_>, u64) -> u64) {
    let Some(selected) = report.selected() else { return };
    let wait = if report.allowed { selected.reset } else { selected.retry_after };
    // A style without a known reset is not sent, except on a denial that no wait helps.
    if wait.is_none() && (report.allowed || selected.next.is_none()) {
        return;
    }
    fields.push(REMAINING.clone(), number(selected.remaining));
    fields.push(LIMIT.clone(), number(selected.limit));
    if let Some(wait) = wait {
        let wait_us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        fields.push(RESET.clone(), number(reset(report, wait_us)));
    }
}
