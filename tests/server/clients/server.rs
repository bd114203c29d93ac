//! A server that rejects a client's first request, and logs the time and status of each request.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::{Router, response::Response, routing::get};
use http::request::Parts;
use tollgate::{Error, ErrorKind, Key, Limiter, Policy, RateLimitLayer, http};

use crate::support::{FlakyStore, http::serve};

/// How long after Retry-After a client may retry on a busy machine.
const TOLERANCE: Duration = Duration::from_secs(10);

pub(crate) struct Server {
    address: SocketAddr,
    log: RequestLog,
    wait: Duration,
}

#[derive(Clone, Default)]
struct RequestLog(Arc<Mutex<Vec<(Instant, u16)>>>);

/// Why the first request is rejected. The cause is set up when the request arrives, because clients start slowly.
#[derive(Clone)]
enum FirstRequest {
    /// Another client has just spent the budget: 429.
    Spend(Limiter, Policy),
    /// The store is down and recovers after this request: 503.
    Recover(FlakyStore),
}

impl Server {
    /// A limit of one request per `wait`, which is spent at the first request.
    pub(crate) async fn spent(wait: Duration) -> Self {
        let limiter = Limiter::new(FlakyStore::default());
        let policy = Policy::new("p", 1, wait).unwrap();
        let limit = RateLimitLayer::new(limiter.clone(), policy.clone(), one_key as fn(&Parts) -> Key);
        Self::start(limit, FirstRequest::Spend(limiter, policy), wait).await
    }

    /// A store that is down for the first request.
    pub(crate) async fn down(wait: Duration) -> Self {
        let store = FlakyStore::default();
        store.fail(Some(Error::new(ErrorKind::Unavailable, "down")));
        let policy = Policy::per_minute("p", 100).unwrap();
        let limit =
            RateLimitLayer::new(Limiter::new(store.clone()), policy, one_key as fn(&Parts) -> Key).fail_closed();
        Self::start(limit.with_outage_retry_after(wait), FirstRequest::Recover(store), wait).await
    }

    async fn start(limit: RateLimitLayer<fn(&Parts) -> Key>, first: FirstRequest, wait: Duration) -> Self {
        let log = RequestLog::default();
        let app = Router::new().route("/", get(|| async { "passed" }).post(|| async { "passed" })).layer(limit);
        let address = serve(app.layer(from_fn_with_state((log.clone(), first), log_request))).await;
        Self { address, log, wait }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub(crate) fn statuses(&self) -> Vec<u16> {
        self.log.0.lock().unwrap().iter().map(|(_, status)| *status).collect()
    }

    /// Asserts one rejection and then a success after the wait, soon after it, with no request in between.
    #[track_caller]
    pub(crate) fn assert_waited_for_retry_after(&self, refusal: u16) {
        assert_eq!(self.statuses(), [refusal, 200]);
        let log = self.log.0.lock().unwrap();
        let waited = log[1].0 - log[0].0;
        assert!(
            (self.wait..self.wait + TOLERANCE).contains(&waited),
            "waited {waited:?}, Retry-After was {:?}",
            self.wait
        );
    }
}

fn one_key(_: &Parts) -> Key {
    Key::from("one_key")
}

async fn log_request(
    State((RequestLog(log), first)): State<(RequestLog, FirstRequest)>,
    request: Request,
    next: Next,
) -> Response {
    let at = Instant::now();
    let is_first = log.lock().unwrap().is_empty();
    if let FirstRequest::Spend(limiter, policy) = &first
        && is_first
    {
        assert!(limiter.check("one_key", policy, 1).await.unwrap().is_allowed());
    }
    let response = next.run(request).await;
    if let FirstRequest::Recover(store) = &first {
        store.fail(None);
    }
    log.lock().unwrap().push((at, response.status().as_u16()));
    response
}
