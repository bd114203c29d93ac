//! A service with one route and one limit in a separate process, which can be paused without pausing the test.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::{env, net::SocketAddr, thread, time::Duration};

use axum::{Router, routing::get};
use tokio::{net::TcpListener, runtime};
use tollgate::observe::{Event, Observer};
use tollgate::{Limiter, PeerIp, Policy, RateLimitLayer, RedisStore};

/// Configuration of the service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) limit: u32,
    pub(crate) worker_threads: usize,
    /// How long the handler blocks its worker thread.
    pub(crate) blocks_for: Duration,
    pub(crate) fail_closed: bool,
}

/// The service process. It ends when this value is dropped or the test process dies.
pub(crate) struct Service {
    child: Child,
    pub(crate) port: u16,
}

impl Service {
    pub(crate) fn start(redis: &str, setup: Setup) -> Self {
        let Setup { limit, worker_threads, blocks_for, fail_closed } = setup;
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "server_process", "--ignored", "--nocapture"])
            .env("NETWORK_REDIS", redis)
            .env("NETWORK_LIMIT", limit.to_string())
            .env("NETWORK_WORKERS", worker_threads.to_string())
            .env("NETWORK_HOLDS_MS", blocks_for.as_millis().to_string())
            .env("NETWORK_FAIL_CLOSED", u8::from(fail_closed).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.map_while(Result::ok).find_map(|line| line.split("port=").nth(1)?.parse().ok());
        Self { child, port: port.unwrap() }
    }

    /// Sends the process a signal: `STOP`, `CONT`.
    pub(crate) fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([&format!("-{signal}"), &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Prints why a check got no verdict.
struct PrintFailures;

impl Observer for PrintFailures {
    fn on_event(&self, event: &Event<'_>) {
        if ["store_failure", "breaker_change"].contains(&event.name()) {
            eprintln!("{event}");
        }
    }
}

pub(crate) fn main() {
    let number = |name: &str| env::var(name).unwrap().parse::<u32>().unwrap();
    // Ends the process when the test closes standard input or dies.
    thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let workers = usize::try_from(number("NETWORK_WORKERS")).unwrap();
    let blocks_for_ms = number("NETWORK_HOLDS_MS");
    let runtime = runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build().unwrap();
    runtime.block_on(async {
        let limiter = Limiter::new(RedisStore::open(&env::var("NETWORK_REDIS").unwrap()).unwrap());
        let limiter = limiter.with_observer(PrintFailures);
        let policy = Policy::per_minute("p", number("NETWORK_LIMIT").into()).unwrap();
        let layer = RateLimitLayer::new(limiter, policy, PeerIp::new());
        let layer = if number("NETWORK_FAIL_CLOSED") == 1 { layer.fail_closed() } else { layer.fail_open() };
        let handler = move || async move {
            // Blocks the thread, as a password hash or a file read does.
            for _ in 0..blocks_for_ms {
                thread::sleep(Duration::from_millis(1));
            }
            "handled"
        };
        let app = Router::new().route("/", get(handler).layer(layer));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("port={}", listener.local_addr().unwrap().port());
        axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await.unwrap();
    });
}
