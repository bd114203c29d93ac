//! The service: a handler for each protocol, which puts units on its bill as it goes.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::{collections::HashMap, convert::Infallible, future::Future, pin::Pin, time::Duration};

use axum::body::{Body, HttpBody};
use axum::http::{Response, StatusCode, request, response};
use axum::{Extension, Router, extract::Request, routing::get};
use bytes::Bytes;
use hyper::{body::Frame, upgrade};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use tokio::time::{Sleep, sleep};
use tollgate::middleware::{Bill, HoldGuard, Settlement};
use tollgate::{Decision, Limiter, Policy, RateLimitLayer, decision::Source, policy::HoldSettings};
use tonic::{Status, async_trait, codegen::tokio_stream::Stream, service::Routes};
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::web_socket::{self, CLOSE, TEXT};

/// Slots of each protocol: fewer than its clients, so that some requests are denied.
pub(super) const SLOTS: u64 = 8;

pub(super) fn slots() -> Policy {
    Policy::concurrent("slots", SLOTS).unwrap()
}

/// Requests that fail before their handlers have put anything on the bill are free.
pub(super) fn units() -> Policy {
    let policy = Policy::per_day("units", 1_000_000_000).unwrap().with_resolution(Duration::from_secs(90));
    policy.with_holds(HoldSettings::new().with_unsettled_released(true))
}

/// The sums of the bills of each protocol.
#[derive(Clone, Default)]
pub(super) struct Ledger(Arc<Mutex<HashMap<&'static str, Sums>>>);

#[derive(Clone, Copy, Default)]
pub(super) struct Sums {
    /// The units of requests that the store has admitted.
    pub(super) by_store: i64,
    /// The units of requests that the share has admitted.
    pub(super) by_share: i64,
}

impl Ledger {
    pub(super) fn of(&self, protocol: &str) -> Sums {
        self.0.lock().unwrap().get(protocol).copied().unwrap_or_default()
    }

    /// All units, by the store and by the share.
    pub(super) fn total(&self) -> (i64, i64) {
        let sums = self.0.lock().unwrap();
        (sums.values().map(|sums| sums.by_store).sum(), sums.values().map(|sums| sums.by_share).sum())
    }

    /// The bill of a request, with the same units in this ledger.
    fn meter(&self, protocol: &'static str, bill: Bill, decision: &Decision) -> Meter {
        bill.set_cost_of("units", 0);
        Meter { protocol, bill, is_by_share: decision.source() == Source::Local, ledger: self.clone() }
    }
}

#[derive(Clone)]
struct Meter {
    protocol: &'static str,
    bill: Bill,
    is_by_share: bool,
    ledger: Ledger,
}

impl Meter {
    fn add(&self, units: u64) {
        self.bill.add_to("units", units);
        let mut sums = self.ledger.0.lock().unwrap();
        let Sums { by_store, by_share } = sums.entry(self.protocol).or_default();
        *if self.is_by_share { by_share } else { by_store } += units as i64;
    }
}

fn protocol(parts: &request::Parts) -> &'static str {
    match parts.uri.path() {
        "/sse" => "sse",
        "/web-socket" => "web-socket",
        "/h2" => "h2",
        "/h1" => "h1",
        _ => "grpc",
    }
}

/// A gRPC call that fails before its handler is free: tonic answers it, as soon as the client has reset the stream in
/// the middle of the message, and its bill is empty. Without this, it is charged the units that are held.
fn settlement(response: &response::Parts) -> Settlement {
    if response.headers.contains_key("grpc-status") { Settlement::Nothing } else { Settlement::AtEnd }
}

/// The service behind a layer that holds a slot and ten units for each request.
pub(super) fn router(limiter: &Limiter, ledger: &Ledger) -> Router {
    let limit = RateLimitLayer::new(limiter.clone(), [slots(), units()], |parts: &request::Parts| {
        tollgate::Key::from(protocol(parts))
    });
    let limit = limit.with_cost_of("units", 10).fail_local().with_settlement(settlement);
    let stream = |protocol: &'static str, kind: &'static str| {
        let ledger = ledger.clone();
        get(move |bill: Bill, Extension(decision): Extension<Decision>, guard: HoldGuard| async move {
            let meter = ledger.meter(protocol, bill, &decision);
            sleep(Duration::from_micros(500)).await;
            meter.add(3);
            let work = meter.clone();
            tokio::spawn(async move {
                sleep(Duration::from_millis(2)).await;
                work.add(2);
                drop(guard); // after the units
            });
            Response::builder().header("content-type", kind).body(Body::new(Events::new(4, meter))).unwrap()
        })
    };
    let web_sockets = {
        let ledger = ledger.clone();
        get(move |bill: Bill, Extension(decision): Extension<Decision>, request: Request| async move {
            serve_web_socket(request, ledger.meter("web-socket", bill, &decision))
        })
    };
    let grpc = Routes::new(HealthServer::new(Calls(ledger.clone()))).into_axum_router();
    let plain = Router::new()
        .route("/h1", stream("h1", "text/plain"))
        .route("/h2", stream("h2", "text/plain"))
        .route("/sse", stream("sse", "text/event-stream"))
        .route("/web-socket", web_sockets);
    plain.merge(grpc).layer(limit)
}

/// Events, a unit each.
struct Events {
    left: u64,
    meter: Meter,
    pause: Pin<Box<Sleep>>,
}

impl Events {
    fn new(left: u64, meter: Meter) -> Self {
        Self { left, meter, pause: Box::pin(sleep(Duration::from_millis(1))) }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<u64>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        ready!(self.pause.as_mut().poll(cx));
        self.pause = Box::pin(sleep(Duration::from_millis(1)));
        self.left -= 1;
        self.meter.add(1);
        Poll::Ready(Some(self.left))
    }
}

impl HttpBody for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let event = ready!(self.poll_event(cx));
        Poll::Ready(event.map(|left| Ok(Frame::data(Bytes::from(format!("data: {left}\n\n"))))))
    }
}

/// Answers each message of a WebSocket, a unit each, until the client closes it.
fn serve_web_socket(mut request: Request, meter: Meter) -> Response<Body> {
    let key = request.headers().get("sec-websocket-key").and_then(|key| key.to_str().ok()).unwrap_or_default();
    let accept = web_socket::accept(key);
    let upgraded = upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgraded.await else { return };
        let mut io = TokioIo::new(upgraded);
        while let Ok((kind, message)) = web_socket::read(&mut io).await {
            if kind == TEXT {
                meter.add(1);
            }
            if io.write_all(&web_socket::frame(kind, &message, None)).await.is_err() || kind == CLOSE {
                break;
            }
        }
        // Dropping the bill in the meter ends the holds.
    });
    let switching = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
    let switching = switching.header("connection", "upgrade").header("upgrade", "websocket");
    switching.header("sec-websocket-accept", accept).body(Body::empty()).unwrap()
}

/// A gRPC service whose calls stream four messages.
struct Calls(Ledger);

struct Messages(Events);

impl Stream for Messages {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_event(cx).map(|event| event.map(|_| Ok(HealthCheckResponse { status: 1 })))
    }
}

#[async_trait]
impl Health for Calls {
    type WatchStream = Messages;

    async fn check(
        &self,
        _: tonic::Request<HealthCheckRequest>,
    ) -> Result<tonic::Response<HealthCheckResponse>, Status> {
        Err(Status::unimplemented("not tested"))
    }

    async fn watch(&self, request: tonic::Request<HealthCheckRequest>) -> Result<tonic::Response<Messages>, Status> {
        let (Some(bill), Some(decision)) = (request.extensions().get(), request.extensions().get()) else {
            return Err(Status::internal("no bill"));
        };
        let meter = self.0.meter("grpc", Bill::clone(bill), decision);
        meter.add(3);
        Ok(tonic::Response::new(Messages(Events::new(4, meter))))
    }
}
