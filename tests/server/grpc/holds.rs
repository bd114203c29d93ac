//! Slots and tokens of gRPC calls, through tonic's server.

use std::time::Duration;

use tokio::net::TcpListener;
use tollgate::{GlobalKey, GrpcStatus, Limiter, MemoryStore, Policy, RateLimitLayer, middleware::WrappedBody};
use tonic::transport::{Channel, Endpoint, Server, server::TcpIncoming};
use tonic::{Code, Request, Response, Status, async_trait, codegen::tokio_stream};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::probe::{refused, text};

/// A service whose streams stay open, except for those of the service named `ends`.
struct Streams;

#[async_trait]
impl Health for Streams {
    type WatchStream = std::pin::Pin<Box<dyn tokio_stream::Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn check(&self, _: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        Ok(Response::new(HealthCheckResponse { status: 1 }))
    }

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        use tokio_stream::StreamExt;
        let first = tokio_stream::iter([Ok(HealthCheckResponse { status: 1 })]);
        Ok(Response::new(match &*request.get_ref().service {
            "ends" => Box::pin(first),
            _ => Box::pin(first.chain(tokio_stream::pending())),
        }))
    }
}

async fn serve(limit: RateLimitLayer<GlobalKey, GrpcStatus, WrappedBody>) -> Channel {
    let incoming = TcpIncoming::from(TcpListener::bind("127.0.0.1:0").await.unwrap());
    let address = incoming.local_addr().unwrap();
    let server = Server::builder().layer(limit).add_service(HealthServer::new(Streams));
    tokio::spawn(server.serve_with_incoming(incoming));
    Endpoint::new(format!("http://{address}")).unwrap().connect().await.unwrap()
}

async fn watch(channel: &Channel, service: &str) -> Result<tonic::Streaming<HealthCheckResponse>, Status> {
    let request = HealthCheckRequest { service: service.to_owned() };
    Ok(HealthClient::new(channel.clone()).watch(request).await?.into_inner())
}

#[tokio::test]
async fn a_stream_holds_its_slot_until_it_ends_or_its_client_goes_away() {
    let slots = Policy::concurrent("streams", 2).unwrap();
    let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), slots, GlobalKey)
        .with_rejection(GrpcStatus::default())
        .with_held_body();
    let channel = serve(limit).await;
    let mut first = watch(&channel, "stays").await.unwrap();
    let second = watch(&channel, "stays").await.unwrap();
    assert!(first.message().await.unwrap().is_some());
    let status = refused(watch(&channel, "stays").await.map(|_| ()), Code::ResourceExhausted);
    assert_eq!(text(status.metadata(), "grpc-retry-pushback-ms"), Some("1000"));

    drop(second);
    let mut third = None;
    for _ in 0..1_000 {
        match watch(&channel, "ends").await {
            Ok(stream) => third = Some(stream),
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
        if third.is_some() {
            break;
        }
    }
    let mut third = third.expect("the slot of the client that went away");
    assert!(third.message().await.unwrap().is_some());
    assert!(third.message().await.unwrap().is_none(), "the trailers have the status OK");
    assert!(watch(&channel, "stays").await.is_ok(), "the slot of the stream that has ended");
    drop(first);
}
