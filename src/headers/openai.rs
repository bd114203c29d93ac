//! The fields of OpenAI's API: a limit of requests, and a limit of tokens.

use std::time::Duration;

use http::HeaderName;

use super::duration::{duration, number};
use super::fields::HeaderFields;
use super::quota::{QuotaReport, Snapshot};
use crate::headers;

/// The units of the fields; `None` is a request.
const UNITS: [(Option<&str>, [HeaderName; 3]); 2] = [
    (None, [headers::LIMIT_REQUESTS, headers::REMAINING_REQUESTS, headers::RESET_REQUESTS]),
    (Some("tokens"), [headers::LIMIT_TOKENS, headers::REMAINING_TOKENS, headers::RESET_TOKENS]),
];

/// Adds the limit, the units left and, if known, the reset of each unit that a quota counts.
pub(super) fn push(snapshot: &Snapshot<'_>, fields: &mut HeaderFields) {
    for (unit, [limit, remaining, reset]) in UNITS {
        let Some(selected) = snapshot.selected_in(unit) else { continue };
        fields.push(limit, number(selected.capacity));
        fields.push(remaining, number(selected.remaining));
        if let Some(wait) = until_reset(snapshot, selected) {
            fields.push(reset, duration(wait));
        }
    }
}

/// Time until all units are available again, or until the request passes if the quota has denied it; `None` if it is
/// not known, or the request can never pass.
fn until_reset(snapshot: &Snapshot<'_>, quota: &QuotaReport<'_>) -> Option<Duration> {
    match snapshot.allowed || !quota.violated {
        true => quota.reset,
        false => quota.retry_after.map(|wait| wait.saturating_add(snapshot.jitter)),
    }
}
