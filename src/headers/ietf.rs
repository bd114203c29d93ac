//! The fields of draft-ietf-httpapi-ratelimit-headers, in the forms of its revisions 03, 06, 07 and 11.

use http::HeaderValue;

use super::quota::{QuotaReport, Snapshot};
use super::structured::{List, Text, bytes, integer, parameter, string, window};
use super::{RATELIMIT, RATELIMIT_LIMIT, RATELIMIT_POLICY, RATELIMIT_REMAINING, RATELIMIT_RESET, fields::HeaderFields};

/// `RateLimit-Policy` of revision 11, section 3: a List with one member per policy.
pub(super) fn draft_11_policies(quotas: &[QuotaReport<'_>]) -> Option<HeaderValue> {
    let mut policies = List::default();
    for quota in quotas {
        policies.member(|out| {
            string(out, quota.name);
            parameter(out, ";q=", quota.limit);
            if let Some(unit) = quota.unit {
                out.extend_from_slice(b";qu=");
                string(out, unit);
            }
            window(out, quota.window);
            partition_key(out, quota);
        });
    }
    policies.value()
}

/// `RateLimit` of revision 11, section 4: a List with the state of each policy.
pub(super) fn draft_11_limits(snapshot: &Snapshot<'_>, all_on_denial: bool) -> Option<HeaderValue> {
    let mut limits = List::default();
    for quota in snapshot.quotas.iter().filter(|quota| snapshot.allowed || all_on_denial || quota.violated) {
        limits.member(|out| {
            string(out, quota.name);
            let quota = &within_quota(quota);
            parameter(out, ";r=", quota.remaining);
            if let Some(window) = snapshot.effective_window(quota) {
                parameter(out, ";t=", window);
            }
            partition_key(out, quota);
        });
    }
    limits.value()
}

/// `RateLimit` of revision 11 for one policy without a partition key, whose name needs no escape and has a bounded
/// length.
pub(super) fn draft_11_limit(snapshot: &Snapshot<'_>, quota: &QuotaReport<'_>) -> HeaderValue {
    let mut text = BoundedText::default();
    text.push(b"\"");
    text.push(quota.name.as_bytes());
    text.push(b"\";r=");
    let quota = &within_quota(quota);
    text.push_number(quota.remaining);
    if let Some(window) = snapshot.effective_window(quota) {
        text.push(b";t=");
        text.push_number(window);
    }
    HeaderValue::from_bytes(text.as_slice()).expect("a policy's name is a Token, which headers can hold")
}

/// The quota with `remaining` at most `limit`.
///
/// `q` and `w` of revision 11 state a rate and cannot state a burst above it. Earlier revisions let the two differ
/// ("Service Limit", revision 06) and leave the difference to documentation. A client that paces itself by `q` would
/// treat a larger `r` as an error. A client that spends all of the smaller `r` at once stays within the burst.
fn within_quota<'a>(quota: &QuotaReport<'a>) -> QuotaReport<'a> {
    QuotaReport { remaining: quota.remaining.min(quota.limit), ..*quota }
}

/// Adds the fields of revision 07: one Dictionary for the selected policy, and all policies.
pub(super) fn draft_07(snapshot: &Snapshot<'_>, fields: &mut HeaderFields) {
    if let Some((selected, reset)) = selected(snapshot) {
        let mut limit = List::default();
        limit.member(|out| parameter(out, "limit=", selected.capacity));
        limit.member(|out| parameter(out, "remaining=", selected.remaining));
        limit.member(|out| parameter(out, "reset=", reset));
        limit.push_to(fields, RATELIMIT);
        quota_policies(List::default(), snapshot, selected).push_to(fields, RATELIMIT_POLICY);
    }
}

/// Adds the fields of revision 06: one field each for the limit, the units left and the reset, and all policies.
pub(super) fn draft_06(snapshot: &Snapshot<'_>, fields: &mut HeaderFields) {
    if let Some((selected, reset)) = selected(snapshot) {
        fields.push(RATELIMIT_LIMIT, integer(selected.capacity));
        fields.push(RATELIMIT_REMAINING, integer(selected.remaining));
        fields.push(RATELIMIT_RESET, integer(reset));
        quota_policies(List::default(), snapshot, selected).push_to(fields, RATELIMIT_POLICY);
    }
}

/// Adds the fields of revision 03. In `RateLimit-Limit`, all policies follow the limit.
pub(super) fn draft_03(snapshot: &Snapshot<'_>, fields: &mut HeaderFields) {
    if let Some((selected, reset)) = selected(snapshot) {
        let mut limit = List::default();
        limit.member(|out| parameter(out, "", selected.capacity));
        quota_policies(limit, snapshot, selected).push_to(fields, RATELIMIT_LIMIT);
        fields.push(RATELIMIT_REMAINING, integer(selected.remaining));
        fields.push(RATELIMIT_RESET, integer(reset));
    }
}

/// The selected quota and its reset in seconds. Revisions 03, 06 and 07 require a reset, which equals `Retry-After` on
/// a denial.
fn selected<'a>(snapshot: &'a Snapshot<'_>) -> Option<(&'a QuotaReport<'a>, u64)> {
    let selected = snapshot.selected()?;
    let reset = if snapshot.allowed { None } else { snapshot.retry_after() };
    Some((selected, reset.or_else(|| snapshot.effective_window(selected))?))
}

/// Adds each policy to a List: `100;w=60, 1000;w=86400`. Lists each limit once, because revisions 06 and 07 forbid two
/// policies with one limit. Of policies with equal limits, the selected one is listed.
fn quota_policies(mut policies: List, snapshot: &Snapshot<'_>, selected: &QuotaReport<'_>) -> List {
    for (index, quota) in snapshot.quotas.iter().enumerate() {
        let is_selected = std::ptr::eq(quota, selected);
        let shared = snapshot.quotas[..index].iter().any(|earlier| earlier.limit == quota.limit);
        if !is_selected && (shared || quota.limit == selected.limit) {
            continue;
        }
        policies.member(|out| {
            parameter(out, "", quota.limit);
            window(out, quota.window);
            if quota.capacity != quota.limit {
                // The parameter name in the examples of revisions 03, 06 and 07.
                parameter(out, ";burst=", quota.capacity);
            }
        });
    }
    policies
}

fn partition_key(out: &mut Text, quota: &QuotaReport<'_>) {
    if let Some(key) = quota.partition_key {
        out.extend_from_slice(b";pk=");
        bytes(out, key);
    }
}

/// Bytes of a text: a policy's name of up to 64 characters, two numbers and the syntax around them.
const CAPACITY: usize = 128;

/// A text of at most [`CAPACITY`] bytes.
struct BoundedText {
    text: [u8; CAPACITY],
    length: usize,
}

impl Default for BoundedText {
    fn default() -> Self {
        Self { text: [0; CAPACITY], length: 0 }
    }
}

impl BoundedText {
    #[inline]
    fn push(&mut self, text: &[u8]) {
        self.text[self.length..][..text.len()].copy_from_slice(text);
        self.length += text.len();
    }

    fn push_number(&mut self, number: u64) {
        self.push(itoa::Buffer::new().format(number).as_bytes());
    }

    fn as_slice(&self) -> &[u8] {
        &self.text[..self.length]
    }
}
