//! A server that refuses a client's first request, and keeps a diary of what it asks and when.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Request, State},
    middleware::{Next, from_fn_with_state},
    response::Response,
    routing::get,
};
use http::request::Parts;
use tollgate::{Error, ErrorKind, Key, Limiter, Policy, RateLimitLayer, http};

use crate::support::{FlakyStore, http::serve};

/// How much later than told a client may come on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Server {
    address: SocketAddr,
    diary: Diary,
    wait: Duration,
}

#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<(Instant, u16)>>>);

/// What the first request meets. It is made so when it arrives, for clients take their time to start.
#[derive(Clone)]
enum First {
    /// Somebody else has just spent the budget.
    Spend(Limiter, Policy),
    /// The store is down, and back afterwards.
    Heal(FlakyStore),
}

impl Server {
    /// One request per `wait`, and that one is taken: 429.
    pub(crate) async fn spent(wait: Duration) -> Self {
        let limiter = Limiter::new(FlakyStore::default());
        let policy = Policy::new("p", 1, wait).unwrap();
        let limit = RateLimitLayer::new(limiter.clone(), policy.clone(), everybody as fn(&Parts) -> Key);
        Self::start(limit, First::Spend(limiter, policy), wait).await
    }

    /// The store is down for the first request: 503.
    pub(crate) async fn down(wait: Duration) -> Self {
        let store = FlakyStore::default();
        store.fail(Some(Error::new(ErrorKind::Unavailable, "down")));
        let policy = Policy::per_minute("p", 100).unwrap();
        let limit =
            RateLimitLayer::new(Limiter::new(store.clone()), policy, everybody as fn(&Parts) -> Key).fail_closed();
        Self::start(limit.with_outage_retry_after(wait), First::Heal(store), wait).await
    }

    async fn start(limit: RateLimitLayer<fn(&Parts) -> Key>, first: First, wait: Duration) -> Self {
        let diary = Diary::default();
        let app = Router::new().route("/", get(|| async { "passed" }).post(|| async { "passed" })).layer(limit);
        let address = serve(app.layer(from_fn_with_state((diary.clone(), first), note))).await;
        Self { address, diary, wait }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub(crate) fn statuses(&self) -> Vec<u16> {
        self.diary.0.lock().unwrap().iter().map(|(_, status)| *status).collect()
    }

    /// Refused once, then let through: after the wait, soon after it, and without a request in between.
    #[track_caller]
    pub(crate) fn assert_waited_as_told(&self, refusal: u16) {
        assert_eq!(self.statuses(), [refusal, 200]);
        let diary = self.diary.0.lock().unwrap();
        let waited = diary[1].0 - diary[0].0;
        assert!((self.wait..self.wait + PATIENCE).contains(&waited), "waited {waited:?}, told {:?}", self.wait);
    }
}

fn everybody(_: &Parts) -> Key {
    Key::from("everybody")
}

async fn note(State((Diary(diary), first)): State<(Diary, First)>, request: Request, next: Next) -> Response {
    let at = Instant::now();
    let is_first = diary.lock().unwrap().is_empty();
    if let First::Spend(limiter, policy) = &first
        && is_first
    {
        assert!(limiter.check("everybody", policy, 1).await.unwrap().is_allowed());
    }
    let response = next.run(request).await;
    if let First::Heal(store) = &first {
        store.fail(None);
    }
    diary.lock().unwrap().push((at, response.status().as_u16()));
    response
}
