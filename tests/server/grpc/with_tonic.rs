//! The places of a layer in tonic, with the documented routes and peer addresses.

use std::net::SocketAddr;

use http::Request;
use tokio::net::TcpListener;
use tollgate::{GlobalKey, GrpcStatus, PeerIp, RateLimitLayer, Route};
use tonic::service::{LayerExt, Routes};
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, body::Body};
use tower::util::MapRequestLayer;

use super::probe::{Probe, check, layer_with_clock, per_minute, refused, serve};
use crate::support::http::serve as serve_router;

fn layer(limit: u64) -> RateLimitLayer<GlobalKey, GrpcStatus> {
    layer_with_clock(per_minute(limit)).0
}

async fn connect(address: SocketAddr) -> Channel {
    Endpoint::new(format!("http://{address}")).unwrap().connect().await.unwrap()
}

#[tokio::test]
async fn the_layer_wraps_a_single_service() {
    let incoming = TcpIncoming::from(TcpListener::bind("127.0.0.1:0").await.unwrap());
    let address = incoming.local_addr().unwrap();
    let service = layer(1).named_layer(Probe::default().server());
    tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
    let channel = connect(address).await;
    check(&channel).await.unwrap();
    refused(check(&channel).await, Code::ResourceExhausted);
}

#[tokio::test]
async fn in_front_of_a_server_a_route_matches_the_path_of_a_method() {
    let limit = layer(3).route("/grpc.health.v1.Health/Check", Route::new().cost(3));
    let channel = serve(&Probe::default(), limit).await;
    check(&channel).await.unwrap();
    refused(check(&channel).await, Code::ResourceExhausted);
}

#[tokio::test]
async fn in_a_router_a_route_matches_the_matched_path_of_a_service() {
    let limit = layer(3).route("/grpc.health.v1.Health/{*rest}", Route::new().cost(3));
    let router = Routes::new(Probe::default().server()).into_axum_router().layer(limit);
    let channel = connect(serve_router(router).await).await;
    check(&channel).await.unwrap();
    refused(check(&channel).await, Code::ResourceExhausted);
}

#[tokio::test]
async fn the_peer_address_comes_from_an_extension_that_an_outer_layer_inserts() {
    let with_address = MapRequestLayer::new(|mut request: Request<Body>| {
        let info = request.extensions().get::<TcpConnectInfo>();
        if let Some(address) = info.and_then(TcpConnectInfo::remote_addr) {
            request.extensions_mut().insert(address);
        }
        request
    });
    let limiter = tollgate::Limiter::new(tollgate::MemoryStore::new());
    let limit = RateLimitLayer::new(limiter, per_minute(1), PeerIp::new()).with_rejection(GrpcStatus::default());
    let incoming = TcpIncoming::from(TcpListener::bind("127.0.0.1:0").await.unwrap());
    let address = incoming.local_addr().unwrap();
    let server = Server::builder().layer(with_address).layer(limit).add_service(Probe::default().server());
    tokio::spawn(server.serve_with_incoming(incoming));
    let channel = connect(address).await;
    check(&channel).await.unwrap();
    refused(check(&channel).await, Code::ResourceExhausted);
}
