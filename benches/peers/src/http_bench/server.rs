//! Requests per second of an axum server. The servers share one thread; the client's connections use the main thread.

use std::time::{Duration, Instant};
use std::{net::SocketAddr, thread};

use axum::{Router, routing::get};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::{net::TcpStream, runtime, sync::oneshot, task::JoinSet};
use tollgate::Algorithm;

use super::layers::{self, AXUM_GOVERNOR, NONE, TOLLGATE, TOWER_GOVERNOR, Traffic};
use crate::{ROUNDS, Result, report::Report, stats::median};

const CONNECTIONS: usize = 32;

struct Variant {
    name: &'static str,
    address: SocketAddr,
    expected: StatusCode,
    figures: Vec<f64>,
}

pub fn run(time: Duration, report: &mut Report) -> Result<()> {
    let client = runtime::Builder::new_current_thread().enable_all().build()?;
    for traffic in Traffic::ALL {
        // Dropped at the end of this iteration, which ends the servers' thread.
        let (_keep_running, stop) = oneshot::channel();
        let (names, routers): (Vec<_>, Vec<_>) = routers(traffic)?.into_iter().unzip();
        let addresses = serve(routers, stop)?;
        let expected = |name| match traffic {
            Traffic::Denied if name != NONE => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::OK,
        };
        let mut variants: Vec<Variant> = (names.into_iter().zip(addresses))
            .map(|(name, address)| Variant { name, address, expected: expected(name), figures: Vec::new() })
            .collect();
        for variant in &mut variants {
            client.block_on(variant.slice(time / ROUNDS))?;
        }
        for _ in 0..ROUNDS {
            for variant in &mut variants {
                let figure = client.block_on(variant.slice(time / ROUNDS))?;
                variant.figures.push(figure);
            }
        }
        summarise(traffic, variants, report);
    }
    Ok(())
}

fn routers(traffic: Traffic) -> Result<[(&'static str, Router); 4]> {
    let router = || Router::new().route("/", get(|| async { "hello\n" }));
    Ok([
        (NONE, router()),
        (TOLLGATE, router().layer(layers::tollgate(traffic, Algorithm::SlidingWindowLog)?)),
        (TOWER_GOVERNOR, router().layer(layers::tower_governor(traffic)?)),
        (AXUM_GOVERNOR, router().layer(layers::axum_governor(traffic)?)),
    ])
}

/// Serves all routers on one thread until the sender of `stop` is dropped. Only one server at a time is under load.
fn serve(routers: Vec<Router>, stop: oneshot::Receiver<()>) -> Result<Vec<SocketAddr>> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let mut addresses = Vec::new();
    for router in routers {
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
        addresses.push(listener.local_addr()?);
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        runtime.spawn(async { axum::serve(listener, service).await });
    }
    thread::spawn(move || {
        // The result is always the error of the dropped sender.
        let _ = runtime.block_on(stop);
    });
    Ok(addresses)
}

impl Variant {
    /// Sends requests over all connections for `time`; returns requests per second.
    async fn slice(&self, time: Duration) -> Result<f64> {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(connect(self.address).await?);
        }
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for connection in connections {
            tasks.spawn(client(connection, start + time, self.expected));
        }
        let (mut requests, mut unexpected) = (0, 0);
        while let Some(result) = tasks.join_next().await {
            let counts = result??;
            requests += counts.0;
            unexpected += counts.1;
        }
        // All connections have one peer address, and every limit allows the first request of a peer.
        if unexpected > 1 {
            let (name, expected) = (self.name, self.expected);
            return Err(
                format!("{name}: {unexpected} of {requests} responses did not have the status {expected}").into()
            );
        }
        Ok(requests as f64 / start.elapsed().as_secs_f64())
    }
}

async fn connect(address: SocketAddr) -> Result<SendRequest<Empty<Bytes>>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// Sends requests one after another. Returns the number of responses, and how many did not have the expected status.
async fn client(mut connection: SendRequest<Empty<Bytes>>, until: Instant, expected: StatusCode) -> Result<(u64, u64)> {
    let (mut requests, mut unexpected) = (0, 0);
    while Instant::now() < until {
        connection.ready().await?;
        let request = Request::get("/").header("host", "localhost").body(Empty::new())?;
        let response = connection.send_request(request).await?;
        unexpected += u64::from(response.status() != expected);
        response.into_body().collect().await?;
        requests += 1;
    }
    Ok((requests, unexpected))
}

fn summarise(traffic: Traffic, variants: Vec<Variant>, report: &mut Report) {
    println!("\naxum server, {} requests, {CONNECTIONS} keep-alive connections", traffic.name());
    let rates: Vec<_> = variants.into_iter().map(|variant| (variant.name, median(variant.figures))).collect();
    for &(name, per_second) in &rates {
        println!("  {name:<16} {per_second:>8.0} requests/s");
        report.figure(json!({ "server": name, "traffic": traffic.name(), "per_second": per_second }));
    }
    for (&(name, per_second), ratio) in rates.iter().zip(["no_layer", "", "tower_governor", "axum_governor"]) {
        if name != TOLLGATE {
            report.ratio(&format!("http_server_{}_vs_{ratio}", traffic.name()), rates[1].1 / per_second);
        }
    }
}
