//! An application with a limit for each client, and what it has seen.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{StatusCode, header::CACHE_CONTROL};
use axum::middleware::{Next, from_fn_with_state};
use axum::{Router, response::Response, routing::get};
use tollgate::{ClientIp, Limiter, ManualClock, MemoryStore, Policy, RateLimitLayer};

use super::caller::{ALICE, BOB, BUDGET, Caller};
use super::front::{Front, Lines, Proxy};
use crate::support::http::{Connection, serve};

/// The application behind a proxy that connects from `127.0.0.1`.
pub(crate) struct Site {
    pub(crate) front: Front,
    pub(crate) clock: ManualClock,
    seen: Seen,
}

/// The addresses at the end of X-Forwarded-For, by the connection on which they arrived.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<HashMap<SocketAddr, HashSet<String>>>>);

/// The routes. Caches may keep `/kept`, and a busy handler answers 429 itself.
pub(crate) fn routes() -> Router {
    let passed = async || ([(CACHE_CONTROL, "no-store")], "passed");
    let kept = async || ([(CACHE_CONTROL, "max-age=600")], "kept");
    let busy = async || (StatusCode::TOO_MANY_REQUESTS, "busy");
    Router::new().route("/", get(passed).post(passed)).route("/kept", get(kept)).route("/busy", get(busy))
}

impl Site {
    /// Starts an application whose clients have [`BUDGET`] units, and the proxy; `None` if it is not installed.
    pub(crate) async fn start(client: ClientIp, proxy: Proxy, lines: Lines) -> Option<Self> {
        let clock = ManualClock::default();
        let limiter = Limiter::new(MemoryStore::new().with_clock(clock.clone()));
        let limit = Policy::per_minute("p", u64::try_from(BUDGET).unwrap()).unwrap();
        let mut layer = RateLimitLayer::new(limiter, limit, client);
        if let Lines::Cache(style) = lines {
            layer = layer.with_headers(style);
        }
        Self::serving(routes().layer(layer), clock, proxy, lines).await
    }

    /// Starts the proxy in front of the router, whose limits have this clock.
    pub(crate) async fn serving(router: Router, clock: ManualClock, proxy: Proxy, lines: Lines) -> Option<Self> {
        if !proxy.is_installed() {
            return None;
        }
        let seen = Seen::default();
        let application = serve(router.layer(from_fn_with_state(seen.clone(), see))).await;
        Some(Self { front: Front::start(proxy, lines, application).await, clock, seen })
    }

    /// Starts the proxy with the lines of the page that every application needs.
    pub(crate) async fn plain(proxy: Proxy) -> Option<Self> {
        Self::start(behind_the_proxy(), proxy, Lines::Plain).await
    }

    /// A connection to the proxy from this address.
    pub(crate) async fn caller(&self, source: &str) -> Caller {
        Caller::Http1(Connection::open_from(source.parse::<IpAddr>().unwrap(), self.front.address()).await)
    }

    pub(crate) async fn assert_each_client_has_one_budget(&self) {
        self.caller(ALICE).await.assert_charged_for_all("alice").await;
        // Most of Alice's requests forged Bob's address; Bob's budget must be untouched.
        self.caller(BOB).await.assert_charged_for_all("bob").await;
    }

    /// How many connections of the proxy carried a request of Alice and one of Bob.
    pub(crate) fn shared_connections(&self) -> usize {
        let seen = self.seen.0.lock().unwrap();
        seen.values().filter(|clients| [ALICE, BOB].iter().all(|client| clients.contains(*client))).count()
    }
}

/// The extractor of the page, with the address from which the proxies of the tests connect.
pub(crate) fn behind_the_proxy() -> ClientIp {
    ClientIp::behind_load_balancer(["127.0.0.1"]).unwrap()
}

async fn see(
    State(seen): State<Seen>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    if let Some(line) = request.headers().get_all("x-forwarded-for").iter().next_back() {
        let client = line.to_str().unwrap().rsplit(", ").next().unwrap().to_owned();
        seen.0.lock().unwrap().entry(peer).or_default().insert(client);
    }
    next.run(request).await
}
