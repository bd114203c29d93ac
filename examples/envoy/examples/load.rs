//! Load for the service: a number of calls at once, for some seconds. Prints the rate and the times of calls.
//!
//! `cargo run --release -p tollgate-envoy --example load -- ADDRESS [STREAMS] [SECONDS] [TENANTS]`, with
//! `examples/envoy/examples/load.yaml` as the configuration. It speaks HTTP/2 itself, because a client of tonic takes
//! more time than the service.

use std::{
    env,
    error::Error,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;
use tokio::{net::TcpStream, task::JoinSet};

const CONNECTIONS: usize = 4;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let address = arguments.next().ok_or("load ADDRESS [STREAMS] [SECONDS] [TENANTS]")?;
    let mut number = |default| arguments.next().map_or(Ok(default), |text| text.parse());
    let (streams, seconds, tenants) = (number(64)?, number(5)?, number(10_000)?);
    let messages: Arc<[Bytes]> = (0..tenants).map(message).collect();
    let until = Instant::now() + Duration::from_secs(seconds.try_into()?);
    let mut running = JoinSet::new();
    for connection in 0..CONNECTIONS {
        let stream = TcpStream::connect(&address).await?;
        stream.set_nodelay(true)?;
        let (sender, driver) = h2::client::handshake(stream).await?;
        tokio::spawn(driver);
        for caller in (connection..streams).step_by(CONNECTIONS) {
            running.spawn(calls(sender.clone(), Arc::clone(&messages), caller, until));
        }
    }
    let start = Instant::now();
    let (mut times, mut refused) = (Vec::new(), 0);
    while let Some(result) = running.join_next().await {
        let (some, denied) = result?.map_err(|error| error.to_string())?;
        times.extend(some);
        refused += denied;
    }
    let elapsed = start.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or_default();
    println!(
        "{streams} streams: {:.0} decisions/s, p50 {:?}, p99 {:?}, p99.9 {:?}, {refused} refused",
        times.len() as f64 / elapsed,
        at(0.5),
        at(0.99),
        at(0.999)
    );
    Ok(())
}

/// Calls one after the other. Returns the time of each, and how many were refused.
async fn calls(
    sender: SendRequest<Bytes>,
    messages: Arc<[Bytes]>,
    caller: usize,
    until: Instant,
) -> Result<(Vec<Duration>, u64), h2::Error> {
    let (mut times, mut refused, mut next) = (Vec::new(), 0, caller.wrapping_mul(7_919));
    let mut sender = sender.ready().await?;
    while Instant::now() < until {
        let start = Instant::now();
        let request = Request::post("http://load/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .expect("the parts of the request are valid");
        let (response, mut body) = sender.send_request(request, false)?;
        next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        body.send_data(messages[(next >> 33) % messages.len()].clone(), true)?;
        let mut body = response.await?.into_body();
        let mut is_ok = false;
        while let Some(data) = body.data().await {
            let data = data?;
            body.flow_control().release_capacity(data.len())?;
            // The overall code is the first field of the message, behind its length.
            is_ok |= data.get(5..7) == Some(&[0x08, 1]);
        }
        refused += u64::from(!is_ok);
        times.push(start.elapsed());
        sender = sender.ready().await?;
    }
    Ok((times, refused))
}

/// A call of one descriptor: the domain `load` and a tenant.
fn message(tenant: usize) -> Bytes {
    let field = |tag: u8, content: &[u8]| {
        let length = u8::try_from(content.len()).expect("all fields are short");
        [&[tag << 3 | 2, length], content].concat()
    };
    let entry = [field(1, b"tenant"), field(2, format!("tenant-{tenant}").as_bytes())].concat();
    let message = [field(1, b"load"), field(2, &field(1, &entry))].concat();
    let length = u8::try_from(message.len()).expect("the message is short");
    [&[0, 0, 0, 0, length], &message[..]].concat().into()
}
