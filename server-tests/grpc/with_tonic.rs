//! Where a layer can be put in tonic, and what its documentation says of routes and addresses there.

use std::net::SocketAddr;

use http::Request;
use tokio::net::TcpListener;
use tollgate::{GlobalKey, GrpcStatus, PeerIp, RateLimitLayer, Route};
use tonic::{
    Code,
    body::Body,
    service::{LayerExt, Routes},
    transport::{
        Channel, Endpoint, Server,
        server::{TcpConnectInfo, TcpIncoming},
    },
};
use tower::util::MapRequestLayer;

use super::probe::{Probe, check, per_minute, refused, serve, timed};
use crate::support::http::serve as serve_router;

fn layer(limit: u32) -> RateLimitLayer<GlobalKey, GrpcStatus> {
    timed(per_minute(limit)).0
}

async fn connect(address: SocketAddr) -> Channel {
    Endpoint::new(format!("http://{address}")).unwrap().connect().await.unwrap()
}

#[tokio::test]
async fn around_one_service_alone() {
    let incoming = TcpIncoming::from(TcpListener::bind("127.0.0.1:0").await.unwrap());
    let address = incoming.local_addr().unwrap();
    let service = layer(1).named_layer(Probe::default().server());
    tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
    let channel = connect(address).await;
    check(&channel).await.unwrap();
    refused(check(&channel).await, Code::ResourceExhausted);
}

#[tokio::test]
async fn in_front_of_a_server_a_method_is_told_by_its_path() {
    let limit = layer(3).route("/grpc.health.v1.Health/Check", Route::cost(3)).unwrap();
    let channel = serve(&Probe::default(), limit).await;
    check(&channel).await.unwrap();
    refused(check(&channel).await, Code::ResourceExhausted);
}

#[tokio::test]
async fn in_a_router_a_service_is_told_by_its_matched_path() {
    let limit = layer(3).route("/grpc.health.v1.Health/{*rest}", Route::cost(3)).unwrap();
    let router = Routes::new(Probe::default().server()).into_axum_router().layer(limit);
    let channel = connect(serve_router(router).await).await;
    check(&channel).await.unwrap();
    refused(check(&channel).await, Code::ResourceExhausted);
}

#[tokio::test]
async fn peers_are_told_by_an_extension_that_a_layer_outside_inserts() {
    let with_address = MapRequestLayer::new(|mut request: Request<Body>| {
        let info = request.extensions().get::<TcpConnectInfo>();
        if let Some(address) = info.and_then(TcpConnectInfo::remote_addr) {
            request.extensions_mut().insert(address);
        }
        request
    });
    let limiter = tollgate::Limiter::new(tollgate::MemoryStore::new());
    let limit = RateLimitLayer::new(limiter, per_minute(1), PeerIp::default()).with_rejection(GrpcStatus::default());
    let incoming = TcpIncoming::from(TcpListener::bind("127.0.0.1:0").await.unwrap());
    let address = incoming.local_addr().unwrap();
    let server = Server::builder().layer(with_address).layer(limit).add_service(Probe::default().server());
    tokio::spawn(server.serve_with_incoming(incoming));
    let channel = connect(address).await;
    check(&channel).await.unwrap();
    refused(check(&channel).await, Code::ResourceExhausted);
}
