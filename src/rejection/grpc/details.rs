//! `google.rpc.Status` in the encoding of Protocol Buffers. A rejection needs few fields of this message, so this
//! module encodes them without a code generator and its runtime.

use std::time::Duration;

use crate::policy::Policy;
use crate::rejection::denial::{Cause, Denial};

/// The most violations in the details. Even with the longest names, these violations take less than half of the 8 KiB
/// of header fields that clients accept.
const MOST_VIOLATIONS: usize = 16;

/// Rounds up to milliseconds, at least 1, because the client waits exactly this long.
pub(super) fn whole_millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).max(1)
}

/// The content of `grpc-status-details-bin`. `None` if there is neither a wait nor a violation.
pub(super) fn details(code: u16, message: &str, denial: &Denial) -> Option<Vec<u8>> {
    let violations = match denial.cause() {
        Cause::CostAboveLimit { policy, limit, .. } => {
            vec![Violation { policy, limit: *limit, description: denial.detail().unwrap_or_default() }]
        }
        Cause::QuotaExceeded(decision) => {
            let violated = decision.violated().take(MOST_VIOLATIONS);
            violated.map(|violated| Violation::new(&violated.policy)).collect()
        }
        Cause::Blocked { .. }
        | Cause::HeldTooLong { .. }
        | Cause::Key(_)
        | Cause::Misconfigured(_)
        | Cause::StoreUnavailable => Vec::new(),
    };
    Status { code, message, retry_after_ms: denial.retry_after().map(whole_millis), violations }.encode()
}

/// The content of `grpc-status-details-bin`.
struct Status<'a> {
    /// The gRPC status code. Must equal `grpc-status`.
    code: u16,
    message: &'a str,
    retry_after_ms: Option<u64>,
    violations: Vec<Violation<'a>>,
}

/// A `google.rpc.QuotaFailure.Violation`.
struct Violation<'a> {
    policy: &'a str,
    limit: u64,
    description: String,
}

impl<'a> Violation<'a> {
    fn new(policy: &'a Policy) -> Self {
        let (limit, unit) = (policy.limit(), policy.unit().unwrap_or("requests"));
        let description = match (policy.window(), policy.calendar_windows()) {
            (Some(window), _) => format!("{limit} {unit} per {}s", window.as_secs_f64()),
            (None, Some(calendar)) => format!("{limit} {unit} per {}", calendar.period()),
            (None, None) => format!("{limit} {unit}"),
        };
        Self { policy: policy.name(), limit, description }
    }

    /// Encodes the violation. Its `subject` is the policy, never the client's key.
    fn message(&self) -> Message {
        Message::default()
            .bytes(1, format!("policy:{}", self.policy))
            .bytes(2, &self.description)
            .bytes(5, self.policy)
            .number(7, self.limit)
    }
}

impl Status<'_> {
    /// Encodes the status. `None` if it has neither a wait nor violations.
    fn encode(&self) -> Option<Vec<u8>> {
        if self.retry_after_ms.is_none() && self.violations.is_empty() {
            return None;
        }
        let mut status = Message::default().number(1, self.code.into()).bytes(2, self.message);
        if let Some(millis) = self.retry_after_ms {
            status = status.any("RetryInfo", Message::default().bytes(1, duration(millis)));
        }
        if !self.violations.is_empty() {
            let violations = self.violations.iter().map(Violation::message);
            status = status.any("QuotaFailure", violations.fold(Message::default(), |all, one| all.bytes(1, one)));
        }
        Some(status.0)
    }
}

/// A `google.protobuf.Duration`, at most as long as the largest `Retry-After`.
fn duration(millis: u64) -> Message {
    let millis = millis.min(2_147_483_647_000);
    Message::default().number(1, millis / 1_000).number(2, millis % 1_000 * 1_000_000)
}

/// An encoded message: fields in sequence, each with its number and wire type.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    /// Adds an integer field. 0 is omitted, because readers read 0 for a missing field.
    fn number(mut self, field: u8, value: u64) -> Self {
        if value > 0 {
            self.0.push(field << 3);
            self.varint(value);
        }
        self
    }

    /// Adds a field of text, bytes or a message.
    fn bytes(mut self, field: u8, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref();
        self.0.push(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// Adds a message to the details of a `google.rpc.Status`.
    fn any(self, name: &str, message: Self) -> Self {
        let url = format!("type.googleapis.com/google.rpc.{name}");
        self.bytes(3, Self::default().bytes(1, url).bytes(2, message))
    }

    /// Writes an integer with seven bits per byte, the lowest bits first. All bytes but the last have the eighth bit
    /// set.
    fn varint(&mut self, mut value: u64) {
        while value > 0x7f {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
