//! The fields of draft-ietf-httpapi-ratelimit-headers, in the forms of its revisions 06, 07 and 11.

use http::{HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::{Fields, Quota, Report, fields::number, line::Line};

// Not statics: a constant is made in place, a static is cloned through its table of functions.
pub(super) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(super) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) const RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");

/// Revision 11, section 3: what the client may do, a List with one member per policy.
pub(super) fn draft_11_policies(quotas: &[Quota<'_>]) -> Option<HeaderValue> {
    let mut policies = List::default();
    for quota in quotas {
        policies.member(|out| {
            string(out, quota.name);
            parameter(out, ";q=", quota.limit);
            if let Some(unit) = quota.unit {
                out.extend_from_slice(b";qu=");
                string(out, unit);
            }
            if let Some(window) = whole_window(quota) {
                parameter(out, ";w=", window);
            }
        });
    }
    policies.value()
}

/// Revision 11, section 4: where it stands.
pub(super) fn draft_11_limits(report: &Report<'_>, all_on_denial: bool) -> Option<HeaderValue> {
    let mut limits = List::default();
    for quota in report.quotas.iter().filter(|quota| report.allowed || all_on_denial || quota.violated) {
        limits.member(|out| {
            string(out, quota.name);
            parameter(out, ";r=", quota.remaining);
            if let Some(window) = report.effective_window(quota) {
                parameter(out, ";t=", window);
            }
        });
    }
    limits.value()
}

/// The same of one policy, which has a name without escapes and of a bounded length.
pub(super) fn draft_11_limit(report: &Report<'_>, quota: &Quota<'_>) -> HeaderValue {
    let mut line = Line::default();
    line.push(b"\"");
    line.push(quota.name.as_bytes());
    line.push(b"\";r=");
    line.push_number(quota.remaining);
    if let Some(window) = report.effective_window(quota) {
        line.push(b";t=");
        line.push_number(window);
    }
    HeaderValue::from_bytes(line.as_slice()).expect("a policy's name is a Token, which headers can hold")
}

/// Revision 07: one Dictionary about the policy that is closest to its limit.
pub(super) fn draft_07(report: &Report<'_>, fields: &mut Fields) {
    if let Some((selected, reset)) = selected(report) {
        let mut limit = List::default();
        limit.member(|out| parameter(out, "limit=", selected.limit));
        limit.member(|out| parameter(out, "remaining=", selected.remaining));
        limit.member(|out| parameter(out, "reset=", reset));
        limit.push_to(fields, RATELIMIT);
        quota_policies(report, selected, fields);
    }
}

/// Revision 06: the same in fields of their own.
pub(super) fn draft_06(report: &Report<'_>, fields: &mut Fields) {
    if let Some((selected, reset)) = selected(report) {
        fields.push(RATELIMIT_LIMIT, number(selected.limit));
        fields.push(RATELIMIT_REMAINING, number(selected.remaining));
        fields.push(RATELIMIT_RESET, number(reset));
        quota_policies(report, selected, fields);
    }
}

/// The names that [`draft_06`] and [`draft_07`] send one value of, the units left first.
pub(super) static SINGLE_06: [HeaderName; 3] = [
    HeaderName::from_static("ratelimit-remaining"),
    HeaderName::from_static("ratelimit-limit"),
    HeaderName::from_static("ratelimit-reset"),
];
pub(super) static SINGLE_07: [HeaderName; 1] = [HeaderName::from_static("ratelimit")];

/// Both revisions require a reset, and on a denial the same one as Retry-After.
fn selected<'a>(report: &'a Report<'_>) -> Option<(&'a Quota<'a>, u64)> {
    let selected = report.selected()?;
    let reset = if report.allowed { None } else { report.retry_after() };
    Some((selected, reset.or_else(|| report.effective_window(selected))?))
}

/// `100;w=60, 1000;w=86400`: a quota value once, for revision 06 and 07 forbid to share one; the selected policy stays.
fn quota_policies(report: &Report<'_>, selected: &Quota<'_>, fields: &mut Fields) {
    let mut policies = List::default();
    for (index, quota) in report.quotas.iter().enumerate() {
        let is_selected = std::ptr::eq(quota, selected);
        let shared = report.quotas[..index].iter().any(|earlier| earlier.limit == quota.limit);
        if !is_selected && (shared || quota.limit == selected.limit) {
            continue;
        }
        policies.member(|out| {
            parameter(out, "", quota.limit);
            if let Some(window) = whole_window(quota) {
                parameter(out, ";w=", window);
            }
        });
    }
    policies.push_to(fields, RATELIMIT_POLICY);
}

/// `w`, in whole seconds, at least 1.
fn whole_window(quota: &Quota<'_>) -> Option<u64> {
    quota.window.map(|window| super::seconds_up(window).max(1))
}

/// Values of one policy fit; those of several may go to the heap.
#[derive(Default)]
struct List(SmallVec<[u8; 96]>);

impl List {
    fn member(&mut self, write: impl FnOnce(&mut SmallVec<[u8; 96]>)) {
        if !self.0.is_empty() {
            self.0.extend_from_slice(b", ");
        }
        write(&mut self.0);
    }

    /// An empty List means: do not send the field. One that is no header value (a control character in a name that is
    /// not a policy's) is not sent either.
    fn value(self) -> Option<HeaderValue> {
        (!self.0.is_empty()).then(|| HeaderValue::from_bytes(&self.0).ok())?
    }

    fn push_to(self, fields: &mut Fields, name: HeaderName) {
        if let Some(value) = self.value() {
            fields.push(name, value);
        }
    }
}

/// A String: only `"` and `\` are escaped.
fn string(out: &mut SmallVec<[u8; 96]>, text: &str) {
    out.push(b'"');
    // A policy's name has neither.
    if text.bytes().any(|byte| matches!(byte, b'"' | b'\\')) {
        for byte in text.bytes() {
            if matches!(byte, b'"' | b'\\') {
                out.push(b'\\');
            }
            out.push(byte);
        }
    } else {
        out.extend_from_slice(text.as_bytes());
    }
    out.push(b'"');
}

fn parameter(out: &mut SmallVec<[u8; 96]>, name: &str, value: u64) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}
