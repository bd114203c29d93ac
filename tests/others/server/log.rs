//! The log of requests: when each came, when it was answered, and how.

use std::sync::{Arc, Mutex, PoisonError};
use std::{collections::BTreeMap, time::Instant};

use axum::extract::{Request, State};
use axum::{Json, middleware::Next, response::Response};
use serde_json::{Value, json};

/// The requests of each path.
#[derive(Clone)]
pub(crate) struct Log {
    start: Instant,
    requests: Arc<Mutex<BTreeMap<String, Vec<Value>>>>,
}

impl Default for Log {
    fn default() -> Self {
        Self { start: Instant::now(), requests: Arc::default() }
    }
}

pub(crate) async fn record(State(log): State<Log>, request: Request, next: Next) -> Response {
    let (path, version) = (request.uri().path().to_owned(), format!("{:?}", request.version()));
    let came = log.start.elapsed();
    let response = next.run(request).await;
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let entry = json!({
        "version": version,
        "came": came.as_secs_f64(),
        "answered": log.start.elapsed().as_secs_f64(),
        "status": response.status().as_u16(),
        "retry_after": header("retry-after"),
    });
    log.requests.lock().unwrap_or_else(PoisonError::into_inner).entry(path).or_default().push(entry);
    response
}

pub(crate) async fn show(State(log): State<Log>) -> Json<BTreeMap<String, Vec<Value>>> {
    Json(log.requests.lock().unwrap_or_else(PoisonError::into_inner).clone())
}
