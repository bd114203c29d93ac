//! gRPC calls that the upstream refuses with a head alone ("trailers-only").

use std::time::Duration;

use http::{HeaderMap, HeaderName};

use super::times::number;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_RETRY_PUSHBACK_MS: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Whether the status is 8 `RESOURCE_EXHAUSTED` or 14 `UNAVAILABLE`. Without a wait in another field they ask for no
/// pause, because `RESOURCE_EXHAUSTED` is also the status of messages that are too large.
pub(super) fn is_refusal(headers: &HeaderMap) -> bool {
    headers.get(GRPC_STATUS).is_some_and(|status| matches!(status.as_bytes(), b"8" | b"14"))
}

/// The wait in milliseconds. A negative number says that no wait helps, and is no wait.
pub(super) fn pushback(headers: &HeaderMap) -> Option<Duration> {
    let waits = headers.get_all(GRPC_RETRY_PUSHBACK_MS).iter().filter_map(|wait| number(wait.as_bytes().trim_ascii()));
    waits.max().map(Duration::from_millis)
}
