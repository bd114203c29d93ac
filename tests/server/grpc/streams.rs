//! Streams are charged once, when they open.

use tollgate::{GlobalKey, GrpcStatus, RateLimitLayer};
use tonic::codegen::tokio_stream::{Stream, pending};
use tonic::{Code, Request, Status, client::Grpc, codegen::http::uri::PathAndQuery, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse, health_client::HealthClient};
use tonic_prost::ProstCodec;

use super::probe::{Probe, layer_with_clock, per_minute, refused, serve, text};

fn one_call() -> RateLimitLayer<GlobalKey, GrpcStatus> {
    layer_with_clock(per_minute(1)).0
}

#[tokio::test]
async fn an_open_stream_has_the_fields_in_its_initial_metadata_and_not_in_its_trailers() {
    let channel = serve(&Probe::default(), one_call()).await;
    let response = HealthClient::new(channel).watch(HealthCheckRequest::default()).await.unwrap();
    assert_eq!(text(response.metadata(), "ratelimit"), Some(r#""p";r=0;t=60"#));
    assert_eq!(text(response.metadata(), "ratelimit-policy"), Some(r#""p";q=1;w=60"#));
    let mut stream = response.into_inner();
    let mut messages = 0;
    while stream.message().await.unwrap().is_some() {
        messages += 1;
    }
    assert_eq!(messages, 3, "messages of a stream are not charged");
    let trailers = stream.trailers().await.unwrap().unwrap();
    assert_eq!((text(&trailers, "ratelimit"), text(&trailers, "ratelimit-policy")), (None, None));
}

#[tokio::test]
async fn a_denied_server_stream_has_a_status_instead_of_messages() {
    let probe = Probe::default();
    let channel = serve(&probe, one_call()).await;
    let mut client = HealthClient::new(channel);
    client.watch(HealthCheckRequest::default()).await.unwrap();
    let denied = client.watch(HealthCheckRequest::default()).await.map(|_| ());
    let status = refused(denied, Code::ResourceExhausted);
    assert_eq!(text(status.metadata(), "grpc-retry-pushback-ms"), Some("60000"));
    assert_eq!(probe.calls(), 1);
}

/// The status arrives although the client never ends its stream.
#[tokio::test]
async fn a_denied_client_stream_gets_its_status_while_still_open() {
    let channel = serve(&Probe::default(), one_call()).await;
    super::probe::check(&channel).await.unwrap();
    let status = refused(stream(&channel, pending()).await, Code::ResourceExhausted);
    assert_eq!(text(status.metadata(), "grpc-retry-pushback-ms"), Some("60000"));
    // The connection is still usable.
    refused(super::probe::check(&channel).await, Code::ResourceExhausted);
}

/// A bidirectional stream to a method that the service does not have.
async fn stream<S>(channel: &Channel, messages: S) -> Result<(), Status>
where
    S: Stream<Item = HealthCheckRequest> + Send + 'static,
{
    let mut client = Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    let path = PathAndQuery::from_static("/grpc.health.v1.Health/Chat");
    client.streaming(Request::new(messages), path, codec).await.map(|_| ())
}
