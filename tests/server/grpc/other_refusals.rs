//! Statuses of outages, exhausted costs, unusable keys and misconfiguration.

use tollgate::{
    GlobalKey, GrpcStatus, HeaderKey, Key, Limiter, MemoryStore, PeerIp, Policy, RateLimitLayer, key::KeyError,
};
use tonic::Code;
use tonic_types::{ErrorDetail, StatusExt};

use super::probe::{Probe, check, layer_with_clock, per_minute, refused, serve, text};
use crate::support::DownStore;

fn down() -> RateLimitLayer<GlobalKey, GrpcStatus> {
    RateLimitLayer::new(Limiter::new(DownStore), per_minute(1), GlobalKey).with_rejection(GrpcStatus::default())
}

#[tokio::test]
async fn fail_closed_is_unavailable_with_a_wait_and_without_the_stores_text() {
    let probe = Probe::default();
    let channel = serve(&probe, down().fail_closed()).await;
    let status = refused(check(&channel).await, Code::Unavailable);
    assert_eq!(status.message(), "rate limiter unavailable");
    assert_eq!(text(status.metadata(), "grpc-retry-pushback-ms"), Some("1000"));
    assert_eq!(text(status.metadata(), "retry-after"), Some("1"));
    assert_eq!(text(status.metadata(), "ratelimit"), None);
    let details = status.get_error_details_vec();
    assert!(matches!(&details[..], [ErrorDetail::RetryInfo(info)] if info.retry_delay.unwrap().as_secs() == 1));
    assert!(!format!("{status:?}").contains("SECRET"));
    assert_eq!(probe.calls(), 0);
}

#[tokio::test]
async fn fail_open_forwards_calls() {
    let probe = Probe::default();
    let channel = serve(&probe, down().fail_open()).await;
    for _ in 0..3 {
        check(&channel).await.unwrap();
    }
    assert_eq!(probe.calls(), 3);
}

#[tokio::test]
async fn a_cost_that_can_never_pass_forbids_retries() {
    let (limit, _) = layer_with_clock(per_minute(5));
    let channel = serve(&Probe::default(), limit.with_cost_fn(|_| 7)).await;
    let status = refused(check(&channel).await, Code::ResourceExhausted);
    assert_eq!(status.message(), "rate limit exceeded");
    assert_eq!(text(status.metadata(), "grpc-retry-pushback-ms"), Some("-1"));
    assert_eq!(text(status.metadata(), "retry-after"), None);
    let details = status.get_error_details_vec();
    let [ErrorDetail::QuotaFailure(quota)] = &details[..] else { panic!("{details:?}") };
    let violation = &quota.violations[0];
    assert_eq!((&*violation.quota_id, violation.quota_value), ("p", 5));
    assert!(violation.description.contains("costs 7 units"), "{}", violation.description);
}

#[tokio::test]
async fn a_call_with_a_denied_key_is_not_permitted() {
    let denied = |_: &http::request::Parts| Err::<Key, _>(KeyError::denied());
    let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), per_minute(1), denied);
    let channel = serve(&Probe::default(), limit.with_rejection(GrpcStatus::default())).await;
    let status = refused(check(&channel).await, Code::PermissionDenied);
    assert_eq!(status.message(), "requests with this key are refused");
    assert_eq!(text(status.metadata(), "grpc-retry-pushback-ms"), Some("-1"));
}

#[tokio::test]
async fn a_call_without_its_key_is_an_invalid_argument_that_names_the_header() {
    let limiter = Limiter::new(MemoryStore::new());
    let by_header = RateLimitLayer::new(limiter.clone(), per_minute(1), HeaderKey::new("x-secret").unwrap());
    let channel = serve(&Probe::default(), by_header.with_rejection(GrpcStatus::default())).await;
    let status = refused(check(&channel).await, Code::InvalidArgument);
    assert_eq!(status.message(), "The request has no header x-secret.");
    assert_eq!(text(status.metadata(), "grpc-retry-pushback-ms"), Some("-1"));
    assert!(status.details().is_empty());

    // A missing peer address is an error of the setup, so the message names it.
    let by_peer = RateLimitLayer::new(limiter, per_minute(1), PeerIp::new());
    let channel = serve(&Probe::default(), by_peer.with_rejection(GrpcStatus::default())).await;
    let status = refused(check(&channel).await, Code::InvalidArgument);
    assert!(status.message().contains("the peer address is not known"), "{}", status.message());
}

#[tokio::test]
async fn a_misconfigured_layer_is_internal_with_the_error() {
    let channel = serve(&Probe::default(), layer_with_clock(per_minute(1)).0.with_policies(Vec::<Policy>::new())).await;
    let status = refused(check(&channel).await, Code::Internal);
    assert_eq!(status.message(), "no policy, so nothing would be limited; give at least one");
    assert_eq!(text(status.metadata(), "grpc-retry-pushback-ms"), Some("-1"));
}
