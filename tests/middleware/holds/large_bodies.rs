//! Large frames: a slot is not free while most of the response waits for its client.

use axum::{Router, body::Body, routing::get};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, StreamBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tollgate::{Policy, RateLimitLayer, store::SettleAnswer::Settled};
use tower::ServiceExt;

use super::{Ledger, next, one_client, request, uploads};
use crate::support::{counting::within_10_seconds, http::serve};

const PIECE: usize = 64 << 10;

/// 200 000 bytes, all different in their order.
fn large() -> Bytes {
    (0..200_000_u32).map(|number| (number % 251) as u8).collect()
}

fn app(ledger: &Ledger, policy: Policy, body: impl Fn() -> Body + Clone + Send + Sync + 'static) -> Router {
    let limit = RateLimitLayer::new(ledger.limiter(), policy, one_client());
    Router::new().route("/", get(move || async move { body() })).layer(limit)
}

#[tokio::test]
async fn a_large_frame_is_passed_in_pieces_and_the_last_one_ends_the_hold() {
    let ledger = Ledger::default();
    let response = app(&ledger, uploads(), || Body::from(large())).oneshot(request()).await.unwrap();
    let mut body = response.into_body();
    let mut read = Vec::new();
    for length in [PIECE, PIECE, PIECE, 200_000 - 3 * PIECE] {
        assert!(!body.is_end_stream());
        assert_eq!(body.size_hint().exact(), Some((200_000 - read.len()) as u64));
        assert_eq!(ledger.settlements(), []);
        let piece = next(&mut body).unwrap().unwrap().into_data().unwrap();
        assert_eq!(piece.len(), length);
        read.extend(piece);
    }
    assert!(body.is_end_stream());
    assert_eq!(ledger.settlements(), [(0, Settled)]);
    assert!(next(&mut body).is_none());
    assert_eq!(read, large());
}

#[tokio::test]
async fn a_frame_of_one_piece_stays_whole_and_ends_the_hold() {
    let ledger = Ledger::default();
    let response = app(&ledger, uploads(), || Body::from(large().slice(..PIECE))).oneshot(request()).await.unwrap();
    let mut body = response.into_body();
    assert_eq!(next(&mut body).unwrap().unwrap().into_data().unwrap().len(), PIECE);
    assert!(body.is_end_stream());
    assert_eq!(ledger.settlements(), [(0, Settled)]);
}

#[tokio::test]
async fn trailers_and_small_frames_follow_the_pieces_in_their_order() {
    let ledger = Ledger::default();
    let body = || {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        let data = [large(), Bytes::from("small"), large()].map(Frame::data);
        let frames = data.into_iter().chain([Frame::trailers(trailers)]).map(Ok::<_, std::convert::Infallible>);
        Body::new(StreamBody::new(tonic::codegen::tokio_stream::iter(frames.collect::<Vec<_>>())))
    };
    let response = app(&ledger, uploads(), body).oneshot(request()).await.unwrap();
    let collected = response.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(collected.to_bytes(), [&large()[..], b"small", &large()[..]].concat());
    assert_eq!(ledger.settlements(), [(0, Settled)]);
}

/// Sends a request, reads the head of the response, and no more. The system buffers little for it.
async fn never_reads(address: std::net::SocketAddr) -> (TcpStream, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut head = vec![0; 12];
    within_10_seconds(stream.read_exact(&mut head)).await.unwrap();
    (stream, String::from_utf8(head).unwrap())
}

/// hyper takes a frame as soon as it has room for its first byte. So a body of one frame had ended, with its slot, when
/// the response had only begun.
#[tokio::test]
async fn law_1_clients_that_never_read_hold_their_slots_also_of_a_response_in_one_frame() {
    let ledger = Ledger::default();
    let address = serve(app(&ledger, uploads(), || Body::from(vec![0; 32 << 20]))).await;
    let mut clients = Vec::new();
    for _ in 0..10 {
        clients.push(never_reads(address).await);
    }
    let statuses: Vec<&str> = clients.iter().map(|(_, head)| &head[9..]).collect();
    assert_eq!(statuses, [["200"; 3].as_slice(), &["429"; 7]].concat());
}
