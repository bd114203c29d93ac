//! The status of a denied call.

use std::time::Duration;

use tollgate::{GlobalKey, GrpcStatus, HeaderKey, Limiter, MemoryStore, Policy, RateLimitLayer};
use tonic::{Code, Request, metadata::KeyAndValueRef};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_types::{ErrorDetail, StatusExt};

use super::probe::{Probe, check, layer_with_clock, per_minute, refused, serve, text};
use crate::support::PendingStore;

#[tokio::test]
async fn a_spent_quota_is_resource_exhausted_with_the_wait() {
    let channel = serve(&Probe::default(), layer_with_clock(per_minute(1)).0).await;
    check(&channel).await.unwrap();
    let status = refused(check(&channel).await, Code::ResourceExhausted);
    assert_eq!(status.message(), "rate limit exceeded; retry after 60s");
    for (name, value) in [
        ("grpc-retry-pushback-ms", "60000"),
        ("retry-after", "60"),
        ("ratelimit", r#""p";r=0;t=60"#),
        ("ratelimit-policy", r#""p";q=1;w=60"#),
    ] {
        assert_eq!(text(status.metadata(), name), Some(value), "{name}");
    }
}

#[tokio::test]
async fn a_denied_call_never_reaches_the_service() {
    let at_once = Limiter::new(MemoryStore::new());
    let later = Limiter::new(PendingStore(MemoryStore::new()));
    for limiter in [at_once, later] {
        let probe = Probe::default();
        let limit = RateLimitLayer::new(limiter, per_minute(2), GlobalKey).with_rejection(GrpcStatus::default());
        let channel = serve(&probe, limit).await;
        for _ in 0..2 {
            check(&channel).await.unwrap();
        }
        for _ in 0..5 {
            refused(check(&channel).await, Code::ResourceExhausted);
        }
        assert_eq!(probe.calls(), 2);
    }
}

#[tokio::test]
async fn a_blocked_policy_is_permission_denied_without_a_wait() {
    let channel = serve(&Probe::default(), layer_with_clock(Policy::blocked("suspended").unwrap()).0).await;
    let status = refused(check(&channel).await, Code::PermissionDenied);
    assert_eq!(status.message(), "Policy suspended lets no request through.");
    assert_eq!(text(status.metadata(), "grpc-retry-pushback-ms"), Some("-1"));
    assert_eq!((text(status.metadata(), "retry-after"), text(status.metadata(), "ratelimit")), (None, None));
}

#[tokio::test]
async fn details_name_the_wait_first_and_then_every_violated_policy() {
    let spent = Policy::new("burst", 1, Duration::from_millis(1_500)).unwrap();
    let (limit, _) = layer_with_clock(per_minute(1));
    let limit = limit.with_policies(vec![spent, per_minute(1), Policy::per_hour("roomy", 9).unwrap()]);
    let channel = serve(&Probe::default(), limit).await;
    check(&channel).await.unwrap();
    let status = refused(check(&channel).await, Code::ResourceExhausted);
    let details = status.get_error_details_vec();
    let [ErrorDetail::RetryInfo(retry), ErrorDetail::QuotaFailure(quota)] = &details[..] else {
        panic!("{details:?}");
    };
    assert_eq!(retry.retry_delay.unwrap().as_millis(), 60_000);
    let violations: Vec<_> =
        quota.violations.iter().map(|v| (&*v.subject, &*v.description, &*v.quota_id, v.quota_value)).collect();
    assert_eq!(
        violations,
        [("policy:burst", "1 requests per 1.5s", "burst", 1), ("policy:p", "1 requests per 60s", "p", 1)]
    );
}

#[tokio::test]
async fn law_10_no_key_is_in_a_status_or_its_details() {
    let by_token = RateLimitLayer::new(Limiter::new(MemoryStore::new()), per_minute(1), HeaderKey::new("x-t").unwrap());
    let channel = serve(&Probe::default(), by_token.with_rejection(GrpcStatus::default())).await;
    let call = || {
        let mut request = Request::new(HealthCheckRequest::default());
        request.metadata_mut().insert("x-t", "s3cret".parse().unwrap());
        let mut client = HealthClient::new(channel.clone());
        async move { client.check(request).await.map(|_| ()) }
    };
    call().await.unwrap();
    let status = refused(call().await, Code::ResourceExhausted);
    assert!(!format!("{status:?}").contains("s3cret"));
    assert!(!String::from_utf8_lossy(status.details()).contains("s3cret"));
}

#[tokio::test]
async fn details_can_be_left_out() {
    let (limit, _) = layer_with_clock(per_minute(1));
    let channel = serve(&Probe::default(), limit.with_rejection(GrpcStatus::default().with_details(false))).await;
    check(&channel).await.unwrap();
    let status = refused(check(&channel).await, Code::ResourceExhausted);
    assert!(status.details().is_empty());
    assert_eq!(text(status.metadata(), "grpc-retry-pushback-ms"), Some("60000"));
}

/// Clients reject metadata of more than 8 KiB.
#[tokio::test]
async fn many_violated_policies_do_not_make_the_status_too_large() {
    let policies: Vec<Policy> = (0..64).map(|n| Policy::per_minute(format!("policy-{n}"), 1).unwrap()).collect();
    let channel = serve(&Probe::default(), layer_with_clock(per_minute(1)).0.with_policies(policies)).await;
    check(&channel).await.unwrap();
    let status = refused(check(&channel).await, Code::ResourceExhausted);
    assert_eq!(status.get_details_quota_failure().unwrap().violations.len(), 16);
    let fields = status.metadata().iter().map(|field| match field {
        KeyAndValueRef::Ascii(name, value) => name.as_str().len() + value.as_bytes().len(),
        KeyAndValueRef::Binary(name, value) => name.as_str().len() + value.as_encoded_bytes().len(),
    });
    assert!(fields.sum::<usize>() + status.details().len() * 4 / 3 < 8 << 10);
}

#[tokio::test]
async fn a_hidden_limit_is_not_in_the_details_and_a_later_try_is_not_forbidden() {
    let (limit, _) = layer_with_clock(per_minute(1));
    let limit = limit.with_headers(tollgate::HeaderStyle::Hidden);
    let channel = serve(&Probe::default(), limit).await;
    check(&channel).await.unwrap();
    let status = refused(check(&channel).await, Code::ResourceExhausted);
    assert!(!String::from_utf8_lossy(status.details()).contains("1 requests per 60s"));
    // -1 tells clients never to try again; a call in a minute passes.
    assert_eq!(text(status.metadata(), "grpc-retry-pushback-ms"), None);
}
