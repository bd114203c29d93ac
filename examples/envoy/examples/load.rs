//! Load for the service: a number of calls at once, as fast as it answers, and then at half of that rate. Prints the
//! rates and the times of calls.
//!
//! `cargo run --release -p tollgate-envoy --example load -- ADDRESS [STREAMS] [SECONDS] [TENANTS]`, with
//! `examples/envoy/examples/load.yaml` as the configuration. It speaks HTTP/2 itself, because a client of tonic takes
//! more time than the service.

use std::time::{Duration, Instant};
use std::{env, error::Error, sync::Arc};

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;
use tokio::{net::TcpStream, task::JoinSet, time::sleep_until};

const CONNECTIONS: usize = 4;

/// What all callers share.
#[derive(Clone)]
struct Load {
    messages: Arc<[Bytes]>,
    until: Instant,
    /// The time between two calls of a caller; nothing if each follows the answer of the one before.
    pause: Duration,
}

/// The times of calls, and how many were refused.
#[derive(Default)]
struct Seen {
    times: Vec<Duration>,
    refused: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let address = arguments.next().ok_or("load ADDRESS [STREAMS] [SECONDS] [TENANTS]")?;
    let mut number = |default| arguments.next().map_or(Ok(default), |text| text.parse());
    let (streams, seconds, tenants) = (number(64)?, number(5)?, number(10_000)?);
    let messages: Arc<[Bytes]> = (0..tenants).map(message).collect();
    let mut pause = Duration::ZERO;
    for share in ["all", "half"] {
        let (start, length) = (Instant::now(), Duration::from_secs(seconds.try_into()?));
        let load = Load { messages: Arc::clone(&messages), until: start + length, pause };
        let Seen { mut times, refused } = run(&address, streams, load).await?;
        let rate = times.len() as f64 / start.elapsed().as_secs_f64();
        times.sort_unstable();
        let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or_default();
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(at);
        println!("{share}: {rate:.0} decisions/s, p50 {p50:?}, p99 {p99:?}, p99.9 {p999:?}, {refused} refused");
        pause = Duration::from_secs_f64(2.0 * streams as f64 / rate);
    }
    Ok(())
}

async fn run(address: &str, streams: usize, load: Load) -> Result<Seen, Box<dyn Error>> {
    let mut running = JoinSet::new();
    for connection in 0..CONNECTIONS {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, driver) = h2::client::handshake(stream).await?;
        tokio::spawn(driver);
        for caller in (connection..streams).step_by(CONNECTIONS) {
            // Callers begin one after the other.
            let first = Instant::now() + load.pause.mul_f64(caller as f64 / streams as f64);
            running.spawn(calls(sender.clone(), load.clone(), caller, first));
        }
    }
    let mut all = Seen::default();
    while let Some(result) = running.join_next().await {
        let Seen { times, refused } = result?.map_err(|error| error.to_string())?;
        all.times.extend(times);
        all.refused += refused;
    }
    Ok(all)
}

/// Calls one after the other.
async fn calls(
    sender: SendRequest<Bytes>,
    Load { messages, until, pause }: Load,
    caller: usize,
    mut due: Instant,
) -> Result<Seen, h2::Error> {
    let (mut seen, mut next) = (Seen::default(), caller.wrapping_mul(7_919));
    let mut sender = sender.ready().await?;
    while Instant::now() < until {
        // A call that is late because of the one before is timed from when it was due. A timer that is late is none of
        // the service.
        let start = if due > Instant::now() {
            sleep_until(due.into()).await;
            Instant::now()
        } else if pause.is_zero() {
            Instant::now()
        } else {
            due
        };
        due += pause;
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
        seen.refused += u64::from(!is_ok);
        seen.times.push(start.elapsed());
        sender = sender.ready().await?;
    }
    Ok(seen)
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
