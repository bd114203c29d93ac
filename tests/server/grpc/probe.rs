//! A service that counts its calls, behind the layer, and a client.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpListener;
use tollgate::{
    GlobalKey, GrpcStatus, KeyExtractor, Limiter, ManualClock, MemoryStore, Policy, RateLimitLayer,
    rejection::Rejection,
};
use tonic::transport::{Channel, Endpoint, Server, server::TcpIncoming};
use tonic::{Code, Request, Response, Status, async_trait, body::Body, codegen::tokio_stream, metadata::MetadataMap};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// `grpc.health.v1.Health`: a unary method and a streaming one, with generated code.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probe(Arc<AtomicUsize>);

impl Probe {
    /// The number of calls that reached the service.
    pub(crate) fn calls(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn server(&self) -> HealthServer<Self> {
        HealthServer::new(self.clone())
    }

    fn count(&self) -> HealthCheckResponse {
        self.0.fetch_add(1, Ordering::SeqCst);
        HealthCheckResponse { status: 1 }
    }
}

#[async_trait]
impl Health for Probe {
    type WatchStream = tokio_stream::Iter<std::vec::IntoIter<Result<HealthCheckResponse, Status>>>;

    async fn check(&self, _: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        Ok(Response::new(self.count()))
    }

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Ok(Response::new(tokio_stream::iter(vec![Ok(self.count()); 3])))
    }
}

/// A layer with one global key and a manual clock.
pub(crate) fn layer_with_clock(policy: Policy) -> (RateLimitLayer<GlobalKey, GrpcStatus>, ManualClock) {
    let clock = ManualClock::default();
    let limiter = Limiter::new(MemoryStore::new().with_clock(clock.clone()));
    (RateLimitLayer::new(limiter, policy, GlobalKey).with_rejection(GrpcStatus::default()), clock)
}

/// The policy "p" with this limit per minute.
pub(crate) fn per_minute(limit: u64) -> Policy {
    Policy::per_minute("p", limit).unwrap()
}

/// Serves the probe behind the layer with tonic's server, for as long as the test runs.
pub(crate) async fn serve<K, R>(probe: &Probe, limit: RateLimitLayer<K, R>) -> Channel
where
    K: KeyExtractor,
    R: Rejection<Body>,
{
    let incoming = TcpIncoming::from(TcpListener::bind("127.0.0.1:0").await.unwrap());
    let address = incoming.local_addr().unwrap();
    let server = Server::builder().layer(limit).add_service(probe.server());
    tokio::spawn(server.serve_with_incoming(incoming));
    Endpoint::new(format!("http://{address}")).unwrap().connect().await.unwrap()
}

/// One unary call.
pub(crate) async fn check(channel: &Channel) -> Result<(), Status> {
    HealthClient::new(channel.clone()).check(HealthCheckRequest::default()).await.map(|_| ())
}

/// Asserts that a call was refused with `code`; returns the status.
#[track_caller]
pub(crate) fn refused(result: Result<(), Status>, code: Code) -> Status {
    let status = result.unwrap_err();
    assert_eq!(status.code(), code, "{status:?}");
    status
}

/// The value of a metadata field, which must occur at most once.
#[track_caller]
pub(crate) fn text<'a>(metadata: &'a MetadataMap, name: &str) -> Option<&'a str> {
    let values: Vec<&str> = metadata.get_all(name).iter().map(|value| value.to_str().unwrap()).collect();
    assert!(values.len() < 2, "{name}: {values:?}");
    values.first().copied()
}
