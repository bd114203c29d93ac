//! A channel of tonic behind `ThrottleLayer`, in front of a server behind `RateLimitLayer`.

use std::{error::Error, time::Duration};

use tollgate::throttle::{Throttle, Throttled};
use tollgate::{GlobalKey, GrpcStatus, Limiter, MemoryStore, Policy, RateLimitLayer, ThrottleLayer};
use tonic::{Code, Status, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tower::Layer;

use super::probe::{Probe, per_minute, refused, serve};

/// The server's limit: `limit` calls in `window`.
fn server_limit(limit: u64, window: Duration) -> RateLimitLayer<GlobalKey, GrpcStatus> {
    let policy = Policy::new("server", limit, window).unwrap();
    RateLimitLayer::new(Limiter::new(MemoryStore::new()), policy, GlobalKey).with_rejection(GrpcStatus::default())
}

fn throttled(channel: Channel, own: Policy) -> HealthClient<Throttle<Channel>> {
    let throttle = ThrottleLayer::new(Limiter::new(MemoryStore::new()), own, "server");
    HealthClient::new(throttle.with_max_wait(Duration::from_secs(5)).layer(channel))
}

async fn check(client: &HealthClient<Throttle<Channel>>) -> Result<(), Status> {
    client.clone().check(HealthCheckRequest::default()).await.map(drop)
}

#[tokio::test]
async fn a_throttled_channel_is_never_refused() {
    let probe = Probe::default();
    let channel = serve(&probe, server_limit(2, Duration::from_secs(1))).await;
    let client = throttled(channel, per_minute(1_000));
    for _ in 0..5 {
        check(&client).await.unwrap();
    }
    assert_eq!(probe.calls(), 5);
}

#[tokio::test]
async fn a_throttled_channel_obeys_a_refusal_with_a_pushback() {
    let probe = Probe::default();
    let channel = serve(&probe, server_limit(1, Duration::from_secs(3))).await;
    let client = throttled(channel.clone(), per_minute(1_000));
    super::probe::check(&channel).await.unwrap();
    let status = refused(check(&client).await, Code::ResourceExhausted);
    assert!(super::probe::text(status.metadata(), "grpc-retry-pushback-ms").is_some(), "unchanged: {status:?}");
    check(&client).await.unwrap();
    assert_eq!(probe.calls(), 2);
}

#[tokio::test]
async fn the_error_of_a_call_that_is_not_made_is_the_source_of_its_status() {
    let probe = Probe::default();
    let channel = serve(&probe, server_limit(100, Duration::from_secs(1))).await;
    let client = throttled(channel, per_minute(1));
    check(&client).await.unwrap();
    let status = check(&client).await.unwrap_err();
    assert!(status.message().contains("this call may wait for 5s"), "{status:?}");
    let throttled = status.source().unwrap().downcast_ref::<Throttled>().unwrap();
    assert!(throttled.retry_after() > Some(Duration::from_secs(50)));
    assert_eq!(probe.calls(), 1);
}
