//! Responses with random fields never stop a client for longer than an hour, and never make it panic.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use proptest::{collection::vec, prelude::*, sample::select};
use tollgate::ThrottleLayer;
use tower::Layer;

use super::upstream::{Upstream, call, limiter, millis, secs};
use crate::support::{per_minute, seed};

/// The fields that the layer reads.
const NAMES: [&str; 12] = [
    "age",
    "date",
    "grpc-retry-pushback-ms",
    "grpc-status",
    "ratelimit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "retry-after",
    "x-ratelimit-after",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];

/// Pieces of valid fields.
const PIECES: [&str; 24] = [
    "0",
    "1",
    "60",
    "-1",
    "8",
    "14",
    "99999999999999999999",
    "1767225600",
    "1767225600000",
    "0.5",
    ".",
    ";",
    ",",
    "=",
    "\"",
    "\\",
    "r=0",
    ";t=5",
    "remaining=0",
    "reset=7",
    "Thu, 01 Jan 2026 00:00:00 GMT",
    "inf",
    " ",
    "\u{e9}",
];

fn value() -> impl Strategy<Value = HeaderValue> {
    let pieces = vec(select(&PIECES[..]), 0..8).prop_map(|pieces| pieces.concat().into_bytes());
    let bytes = prop_oneof![3 => pieces, 1 => vec(any::<u8>(), 0..40)];
    bytes.prop_filter_map("no field has these bytes", |bytes| HeaderValue::from_bytes(&bytes).ok())
}

fn lines() -> impl Strategy<Value = Vec<(&'static str, HeaderValue)>> {
    vec((select(&NAMES[..]), value()), 0..12)
}

#[test]
fn random_fields_pause_for_an_hour_at_most() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let status = select(&[200_u16, 204, 301, 403, 429, 503, 599][..]);
    proptest!(seed::cases(2_000), |(status in status, lines in lines())| {
        let headers: HeaderMap =
            lines.into_iter().map(|(name, value)| (HeaderName::from_static(name), value)).collect();
        let pause = runtime.block_on(async {
            let upstream = Upstream::default();
            upstream.respond(StatusCode::from_u16(status).unwrap(), headers.clone());
            let layer = ThrottleLayer::new(limiter(), per_minute("p", 1_000), "upstream").with_max_wait(secs(7_200));
            for _ in 0..2 {
                call(&layer.layer(upstream.clone())).await.unwrap();
            }
            upstream.calls()[1]
        });
        prop_assert!(pause <= millis(3_600_005), "{pause:?} after {headers:?}");
        prop_assert!(status != 429 || pause >= secs(1) || !headers.is_empty());
    });
}
