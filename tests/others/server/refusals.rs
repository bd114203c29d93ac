//! The three causes of a refusal that ends.

use std::sync::{Arc, Mutex, PoisonError};
use std::{collections::HashMap, error::Error, time::Duration};

use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::{Router, http::request::Parts, response::Response, routing::get};
use tollgate::{Key, Limiter, MemoryStore, Policy, ProblemJson, RateLimitLayer, store::FailingStore};

/// The window of a request, and the Retry-After of an outage.
const WAIT: Duration = Duration::from_secs(2);

/// One request per window: the second one is refused, and told to wait for the window, to within milliseconds.
pub(crate) fn routes() -> Result<Router, Box<dyn Error>> {
    let policy = Policy::new("p", 1, WAIT)?;
    let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), policy, path as fn(&Parts) -> Key);
    let reduced = limit.clone().with_rejection(ProblemJson::reduced_capacity());
    let outages = Outages::default();
    let outage = get(passed).layer(from_fn_with_state(outages.clone(), outage));
    Ok(Router::new()
        .route("/429/{id}", get(passed).layer(limit))
        .route("/503/{id}", get(passed).layer(reduced))
        .route("/outage/{id}", outage))
}

async fn passed() -> &'static str {
    "passed"
}

fn path(parts: &Parts) -> Key {
    Key::from(parts.uri.path())
}

/// The service of each path, whose store is down for the first request.
type Outages = Arc<Mutex<HashMap<String, (Router, FailingStore)>>>;

async fn outage(State(outages): State<Outages>, request: Request, _: Next) -> Response {
    use tower::ServiceExt as _;
    let (service, store) = {
        let mut outages = outages.lock().unwrap_or_else(PoisonError::into_inner);
        outages.entry(request.uri().path().to_owned()).or_insert_with(unavailable).clone()
    };
    let answer = service.oneshot(request).await;
    store.recover();
    answer.unwrap_or_else(|never| match never {})
}

fn unavailable() -> (Router, FailingStore) {
    let store = FailingStore::new();
    let policy = Policy::per_minute("p", 100).expect("the name is a Token and the limit above 0");
    let limit = RateLimitLayer::new(Limiter::new(store.clone()), policy, path as fn(&Parts) -> Key)
        .fail_closed()
        .with_outage_retry_after(WAIT);
    (Router::new().fallback(passed).layer(limit), store)
}
