//! A reqwest client that stays within the quota of an upstream.
//!
//! Run it with `cargo run --release -p tollgate-reqwest-client [-- --redis URL]`.
//!
//! The upstream is a local server that grants 10 calls a second and refuses the others with 429. Twenty tasks share a
//! client whose layer makes each call wait for its turn. With Redis, clients in several processes share the quota, and
//! the pauses that the upstream asks for. The program prints when the calls were made, and that none was refused.

use std::time::{Duration, Instant};
use std::{net::SocketAddr, process::ExitCode};

use axum::{Router, routing::get};
use tokio::{net::TcpListener, task::JoinSet};
use tollgate::{
    GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer, RedisStore, ThrottleLayer, throttle::Throttled,
};
use tower::{Service, ServiceBuilder, ServiceExt};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The number of tasks, which make one call each.
const CALLS: u64 = 20;
/// The calls that the upstream grants in each [`WINDOW`].
const QUOTA: u64 = 10;
const WINDOW: Duration = Duration::from_secs(1);
/// The longest time by which two calls may differ in their delay on the way to the upstream.
///
/// The upstream counts a call when it arrives. A call that is delayed arrives closer to the next ones than it left, so
/// the window of the client is longer than the upstream's by this time. With equal windows, the upstream would refuse
/// the first calls of a window that arrive faster than those of the window before.
const LONGEST_DELAY: Duration = Duration::from_millis(100);

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Failure> {
    let limiter = match redis_url()? {
        Some(url) => Limiter::new(RedisStore::open(&url)?),
        None => Limiter::new(MemoryStore::new()),
    };
    let url = format!("http://{}/", start_upstream().await?);

    // What is known of the quota. The layer also obeys the fields of the upstream, if it sends any.
    let quota = Policy::new("upstream", QUOTA, WINDOW + LONGEST_DELAY)?;
    let throttle =
        ThrottleLayer::new(limiter, quota, "upstream").with_max_wait(Duration::from_secs(5)).with_shared_pauses();
    // A redirect that the client follows by itself would be a call that the throttle does not see.
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
    let client = ServiceBuilder::new().layer(throttle).service(client);

    let started = Instant::now();
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let (mut client, url) = (client.clone(), url.clone());
        calls.spawn(async move {
            let request = client.get_ref().get(url).build()?;
            let response = client.ready().await?.call(request).await?;
            Ok::<_, Failure>((started.elapsed(), response.status()))
        });
    }
    let mut refused = 0;
    while let Some(call) = calls.join_next().await {
        match call? {
            Ok((at, status)) => {
                println!("{:6.2} s  {status}", at.as_secs_f64());
                refused += u64::from(status == reqwest::StatusCode::TOO_MANY_REQUESTS);
            }
            Err(error) => match error.downcast_ref::<Throttled>() {
                Some(throttled) => println!("not made: {throttled}"),
                None => return Err(error),
            },
        }
    }
    println!("{refused} of {CALLS} calls were refused by the upstream");
    Ok(())
}

/// Starts the upstream, which enforces its own quota.
async fn start_upstream() -> Result<SocketAddr, Failure> {
    let quota = Policy::new("quota", QUOTA, WINDOW)?;
    let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), quota, GlobalKey);
    let app = Router::new().route("/", get(|| async { "hello" })).layer(limit);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}

/// Reads `--redis URL`.
fn redis_url() -> Result<Option<String>, String> {
    const USAGE: &str = "Usage: tollgate-reqwest-client [--redis URL]";
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next(), arguments.next()) {
        (None, ..) => Ok(None),
        (Some("--redis"), Some(url), None) => Ok(Some(url)),
        _ => Err(USAGE.to_owned()),
    }
}
