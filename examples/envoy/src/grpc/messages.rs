//! The messages of Envoy, with texts of any bytes.
//!
//! Envoy copies fields of requests into its messages as clients have sent them, and they need not be UTF-8. A message
//! that cannot be read would be a call without an answer, which Envoy may pass, or the end of a stream.

use std::collections::HashMap;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor};
use envoy_types::pb::envoy::service::rate_limit_quota::v3::{BucketId, RateLimitQuotaUsageReports};
use envoy_types::pb::envoy::service::{
    rate_limit_quota::v3::rate_limit_quota_usage_reports::BucketQuotaUsage, ratelimit::v3::RateLimitRequest,
};
use envoy_types::pb::google::protobuf::{Duration, UInt64Value};
use prost::Message;

use super::codec::Utf8;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Call {
    #[prost(bytes = "vec", tag = "1")]
    domain: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<Descriptor>,
    #[prost(uint32, tag = "3")]
    hits_addend: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<Entry>,
    #[prost(message, optional, tag = "2")]
    limit: Option<rate_limit_descriptor::RateLimitOverride>,
    #[prost(message, optional, tag = "3")]
    hits_addend: Option<UInt64Value>,
    #[prost(bool, tag = "4")]
    is_negative_hits: bool,
}

/// Of a descriptor, and of the map of a bucket.
#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Report {
    #[prost(bytes = "vec", tag = "1")]
    domain: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    usages: Vec<Usage>,
}

#[derive(Clone, PartialEq, Message)]
struct Usage {
    #[prost(message, optional, tag = "1")]
    bucket: Option<Bucket>,
    #[prost(message, optional, tag = "2")]
    time_elapsed: Option<Duration>,
    #[prost(uint64, tag = "3")]
    allowed: u64,
    #[prost(uint64, tag = "4")]
    denied: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Bucket {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<Entry>,
}

/// What is no UTF-8 is ISO-8859-1, which has a character for each byte, and which fields of HTTP once were.
fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| error.as_bytes().iter().copied().map(char::from).collect())
}

impl Utf8 for RateLimitRequest {
    type AnyText = Call;
    /// Descriptors, and their entries.
    const PARTS: &'static [u32] = &[2, 1];
}

impl From<Call> for RateLimitRequest {
    fn from(Call { domain, descriptors, hits_addend }: Call) -> Self {
        Self { domain: text(domain), descriptors: descriptors.into_iter().map(Into::into).collect(), hits_addend }
    }
}

impl From<Descriptor> for RateLimitDescriptor {
    fn from(Descriptor { entries, limit, hits_addend, is_negative_hits }: Descriptor) -> Self {
        let entry = |Entry { key, value }| rate_limit_descriptor::Entry { key: text(key), value: text(value) };
        Self { entries: entries.into_iter().map(entry).collect(), limit, hits_addend, is_negative_hits }
    }
}

impl Utf8 for RateLimitQuotaUsageReports {
    type AnyText = Report;
    /// Usages, their buckets, and the entries of these.
    const PARTS: &'static [u32] = &[2, 1, 1];
}

impl From<Report> for RateLimitQuotaUsageReports {
    fn from(Report { domain, usages }: Report) -> Self {
        Self { domain: text(domain), bucket_quota_usages: usages.into_iter().map(Into::into).collect() }
    }
}

impl From<Usage> for BucketQuotaUsage {
    /// A bucket that is no UTF-8 has no name in an answer, so it is left out.
    fn from(Usage { bucket, time_elapsed, allowed, denied }: Usage) -> Self {
        let entry = |Entry { key, value }| Some((String::from_utf8(key).ok()?, String::from_utf8(value).ok()?));
        let entries = |bucket: Bucket| bucket.entries.into_iter().map(entry).collect::<Option<HashMap<_, _>>>();
        let bucket_id = bucket.and_then(entries).map(|bucket| BucketId { bucket });
        Self { bucket_id, time_elapsed, num_requests_allowed: allowed, num_requests_denied: denied }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a message of Envoy as one with texts of any bytes.
    fn reread<M: Utf8>(message: &M) -> M {
        M::AnyText::decode(&*message.encode_to_vec()).unwrap().into()
    }

    #[test]
    fn the_fields_are_those_of_envoy() {
        let entry =
            |key: &str, value: &str| rate_limit_descriptor::Entry { key: key.to_owned(), value: value.to_owned() };
        let descriptor = RateLimitDescriptor {
            entries: vec![entry("tenant", "José"), entry("", "")],
            limit: Some(rate_limit_descriptor::RateLimitOverride { requests_per_unit: 3, unit: 2 }),
            hits_addend: Some(UInt64Value { value: u64::MAX }),
            is_negative_hits: true,
        };
        let descriptors = vec![descriptor, RateLimitDescriptor::default()];
        let call = RateLimitRequest { domain: "shop".to_owned(), descriptors, hits_addend: 7 };
        assert_eq!(reread(&call), call);
        let bucket = [("tenant", "a"), ("", "é")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let usage = BucketQuotaUsage {
            bucket_id: Some(BucketId { bucket }),
            time_elapsed: Some(Duration { seconds: 5, nanos: 6 }),
            num_requests_allowed: u64::MAX,
            num_requests_denied: 8,
        };
        let bucket_quota_usages = vec![usage, BucketQuotaUsage::default()];
        let report = RateLimitQuotaUsageReports { domain: "shop".to_owned(), bucket_quota_usages };
        assert_eq!(reread(&report), report);
    }

    #[test]
    fn a_text_that_is_no_utf_8_is_iso_8859_1() {
        assert_eq!(text(b"Jos\xe9".to_vec()), "José");
        assert_eq!(text("José".into()), "José");
        assert_ne!(text(b"\xff".to_vec()), text(b"\xfe".to_vec()));
    }
}
