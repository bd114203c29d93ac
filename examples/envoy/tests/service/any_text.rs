//! Values that are no UTF-8. Envoy sends fields of requests as clients have sent them, and passes a request if the call
//! fails, so such a call must not fail.

use envoy_types::pb::envoy::service::rate_limit_quota::v3::{
    BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports, rate_limit_quota_usage_reports::BucketQuotaUsage,
};
use envoy_types::pb::envoy::{
    extensions::common::ratelimit::v3::RateLimitDescriptor, service::ratelimit::v3::RateLimitResponse,
};
use http::uri::PathAndQuery;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Request, client::Grpc, transport::Endpoint};

use crate::support::raw::{Raw, with_byte};
use crate::support::{Descriptor, Service, domain, entries, passed, request};

async fn client(service: &Service) -> Grpc<tonic::transport::Channel> {
    let channel = Endpoint::from_shared(format!("http://{}", service.address)).unwrap().connect().await.unwrap();
    let mut client = Grpc::new(channel);
    client.ready().await.unwrap();
    client
}

/// The answer to a call in which `{` is this byte.
async fn reply(service: &Service, descriptor: RateLimitDescriptor, byte: u8) -> RateLimitResponse {
    let call = with_byte(&request("test", [descriptor]), byte);
    let path = PathAndQuery::from_static("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
    client(service).await.unary(Request::new(call), path, Raw::default()).await.unwrap().into_inner()
}

#[tokio::test]
async fn values_that_are_no_utf_8_are_limited_each_by_itself() {
    let service = Service::start(&domain(&[
        "{ key: tenant, rate_limit: { unit: year, requests_per_unit: 2 } }",
        "{ key: tokens, rate_limit: { unit: year, requests_per_unit: 100, hold_ttl: 5m } }",
    ]))
    .await;
    for byte in [0xff, 0xfe] {
        let mut results = Vec::new();
        for _ in 0..4 {
            results.push(passed(&reply(&service, entries([("tenant", "a{")]), byte).await));
        }
        assert_eq!(results, [true, true, false, false], "{byte:x}");
    }
    // The same name in ISO-8859-1 and in UTF-8.
    for name in ["Jos\u{e9}"; 2] {
        assert!(passed(&reply(&service, entries([("tenant", "Jos{")]), 0xe9).await), "{name}");
    }
    assert!(!service.passes([entries([("tenant", "Jos\u{e9}")])]).await);
    // The id of a request too.
    let tokens = |role| entries([("tokens", "a"), (role, "{")]);
    assert!(passed(&reply(&service, tokens("hold").hits(60), 0xff).await));
    assert!(passed(&reply(&service, tokens("settle").hits(10), 0xff).await));
    assert_eq!(service.left(entries([("tokens", "a")])).await, 90);
}

#[tokio::test]
async fn a_bucket_that_is_no_utf_8_ends_no_stream_and_gets_nothing() {
    let rule = "{ key: tenant, rate_limit: { unit: hour, requests_per_unit: 1000, lease: 500 } }";
    let service = Service::start(&domain(&[rule])).await;
    let (reports, receiver) = mpsc::unbounded_channel();
    let path = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";
    let (path, codec) = (PathAndQuery::from_static(path), Raw::<RateLimitQuotaResponse>::default());
    let stream = Request::new(UnboundedReceiverStream::new(receiver));
    let mut answers = client(&service).await.streaming(stream, path, codec).await.unwrap().into_inner();
    for tenant in ["b", "c"] {
        let usage = |tenant: &str| BucketQuotaUsage {
            bucket_id: Some(BucketId { bucket: [("tenant".to_owned(), tenant.to_owned())].into() }),
            num_requests_denied: 1,
            ..BucketQuotaUsage::default()
        };
        let bucket_quota_usages = vec![usage("a{"), usage(tenant)];
        let report = RateLimitQuotaUsageReports { domain: "test".to_owned(), bucket_quota_usages };
        reports.send(with_byte(&report, 0xff)).unwrap();
        let answer = answers.message().await.unwrap().unwrap();
        let buckets: Vec<_> = answer.bucket_action.iter().map(|action| action.bucket_id.clone().unwrap()).collect();
        assert!(buckets.iter().all(|bucket| bucket.bucket["tenant"] == tenant), "{buckets:?}");
        assert_eq!(service.left(entries([("tenant", tenant)])).await, 992);
    }
}

#[tokio::test]
async fn a_message_of_very_many_parts_is_refused_before_it_takes_memory() {
    let service = Service::start(&domain(&["{ key: tenant }"])).await;
    // A descriptor without entries.
    let call = [0x12, 0x00].repeat(200_001);
    let path = PathAndQuery::from_static("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
    let codec = Raw::<RateLimitResponse>::default();
    let status = client(&service).await.unary(Request::new(call), path, codec).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
}
