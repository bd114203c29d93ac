//! Four processes call a real upstream over a network, while Redis and a process are restarted and the upstream asks
//! for a pause. What counts is when calls arrive at the upstream.

use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{env, thread};

use axum::{Router, response::IntoResponse, routing::get};
use bytes::Bytes;
use http::{Request, StatusCode, header::RETRY_AFTER};
use http_body_util::Full;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::{runtime::Builder, task::JoinSet};
use tollgate::{Policy, ThrottleLayer};
use tower::{Layer, ServiceExt};

use crate::support::proxy::{Fault, Proxy};
use crate::support::{http::serve, link::Link, measured, redis_server::RedisServer};
use crate::{load::limiter, print_line};

const LIMIT: usize = 50;
/// Longer than the second of the upstream, because calls take longer on their way now and then.
const WINDOW: Duration = Duration::from_millis(1_100);
const SECOND: Duration = Duration::from_secs(1);
const RUN: Duration = Duration::from_secs(12);
const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

#[derive(Clone, Default)]
struct Upstream(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    arrivals: Vec<Instant>,
    /// Whether the next call is refused.
    refuses: bool,
}

impl Upstream {
    fn answer(&self) -> impl IntoResponse + use<> {
        let mut state = self.0.lock().unwrap();
        state.arrivals.push(Instant::now());
        match std::mem::take(&mut state.refuses) {
            true => (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "1")]).into_response(),
            false => StatusCode::NO_CONTENT.into_response(),
        }
    }
}

fn spawn(redis: &str, upstream: &str) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "arrivals_process", "--ignored"])
        .env("WAITING_URL", redis)
        .env("WAITING_UPSTREAM", upstream)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The entry point of a process: workers that make call after call until the process is killed.
pub(crate) fn main() {
    let (redis, upstream) = (env::var("WAITING_URL").unwrap(), env::var("WAITING_UPSTREAM").unwrap());
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let (limiter, _) = limiter(&redis).await;
        let policy = Policy::new("upstream", u64::try_from(LIMIT).unwrap(), WINDOW).unwrap();
        let throttle = ThrottleLayer::new(limiter, policy, "account").with_shared_pauses();
        let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        let client = throttle.with_max_wait(Duration::from_secs(5)).layer(client);
        let mut workers = JoinSet::new();
        for _ in 0..8 {
            let (client, upstream) = (client.clone(), upstream.clone());
            workers.spawn(async move {
                loop {
                    let request = Request::get(&upstream).body(Full::default()).unwrap();
                    if client.clone().oneshot(request).await.is_err() {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                }
            });
        }
        // A process that is left behind ends by itself.
        let _ = tokio::time::timeout(RUN * 2, workers.join_all()).await;
    });
}

/// Runs the fleet, and returns the most calls that arrived within a second, if they are more than the limit.
fn run() -> Option<String> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let upstream = Upstream::default();
    let handler = upstream.clone();
    let app = Router::new().route("/", get(move || async move { handler.answer() }));
    let to_upstream = Link::to(runtime.block_on(serve(app)).port(), Duration::from_millis(20));
    let url = format!("http{}/", to_upstream.url().strip_prefix("redis").unwrap());
    let mut redis = RedisServer::start_with(DURABLE);
    let way_to_redis = Proxy::to(redis.port());
    way_to_redis.set(Fault::Latency(Duration::from_millis(3)));
    let to_redis = way_to_redis.url();
    let mut processes: Vec<Child> = (0..4).map(|_| spawn(&to_redis, &url)).collect();
    let start = Instant::now();
    let at = |second: u64| thread::sleep(Duration::from_secs(second).saturating_sub(start.elapsed()));
    at(3);
    upstream.0.lock().unwrap().refuses = true;
    at(6);
    let mut killed = std::mem::replace(&mut processes[0], spawn(&to_redis, &url));
    killed.kill().unwrap();
    killed.wait().unwrap();
    at(8);
    redis.restart();
    at(RUN.as_secs());
    for process in &mut processes {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    let arrivals = &upstream.0.lock().unwrap().arrivals;
    let within = |from: &Instant| arrivals.iter().filter(|at| **at >= *from && **at < *from + SECOND).count();
    let most = arrivals.iter().map(within).max().unwrap_or_default();
    let last = arrivals.last().map(|at| at.duration_since(start));
    print_line(&format!("arrivals of four processes: {} calls, at most {most} in a second", arrivals.len()));
    // Otherwise the run would show nothing: calls wait for room nearly all the time, also after the restarts.
    assert!(most >= LIMIT / 2 && last.is_some_and(|last| last > RUN - 2 * SECOND), "{most}, {last:?}");
    // Four processes that do not share their counts make four times as many, which no delay of a call explains.
    assert!(most < 2 * LIMIT, "{most}");
    (most > LIMIT).then(|| format!("{most} calls arrived within a second, and {LIMIT} are allowed"))
}

/// A machine that holds a call up on its way lets it arrive in the second of others, so this is a measurement.
#[test]
fn no_second_of_an_upstream_has_more_arrivals_of_four_processes_than_its_limit() {
    measured(run);
}

#[test]
#[ignore = "takes minutes: tests/run --long"]
fn long_no_second_of_an_upstream_has_more_arrivals_in_eight_runs() {
    let missed: Vec<_> = (0..8).filter_map(|_| run()).collect();
    assert!(missed.is_empty(), "{missed:?}");
}
