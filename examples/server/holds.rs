//! Two routes whose cost is known late: tokens of a model, and uploads of which only three may run at once.

use std::task::{Context, Poll, ready};
use std::{convert::Infallible, pin::Pin, time::Duration};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{StatusCode, Uri, header::CONTENT_TYPE, response};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http_body::Frame;
use serde_json::json;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tollgate::middleware::{Bill, Settlement};
use tollgate::{ConfigError, Limiter, PeerIp, Policy, RateLimitLayer, policy::HoldSettings};

use crate::options::Options;

/// The longest time that a request may ask for: a day, in milliseconds.
const LONGEST_MS: u64 = 86_400_000;

/// The routes, each behind a layer of its own.
pub(crate) fn routes(limiter: &Limiter, options: &Options) -> Result<Router, ConfigError> {
    let holds = HoldSettings::new().with_ttl(options.hold_ttl);
    let tokens = Policy::per_minute("tokens", 1_000)?.with_holds(holds);
    // The estimate is held while the model works. What the handler has put on the bill is charged at the end.
    let per_token = RateLimitLayer::new(limiter.clone(), tokens, PeerIp::new())
        .with_cost_fn(|request| Generate::parse(&request.uri).map_or(0, |generate| generate.estimate))
        .fail_closed()
        .with_headers(options.headers)
        .with_settlement(|_: &response::Parts| Settlement::AtEnd)
        .validated()?;
    let uploads = Policy::concurrent("uploads", 3)?.with_holds(holds);
    let at_once =
        RateLimitLayer::new(limiter.clone(), uploads, PeerIp::new()).fail_closed().with_headers(options.headers);
    Ok(Router::new().route("/generate", post(generate).layer(per_token)).route("/upload", get(upload).layer(at_once)))
}

/// The parameters of `POST /generate`.
struct Generate {
    /// The units that are held.
    estimate: u64,
    /// The units that the model uses.
    actual: u64,
    /// How long the model works.
    duration: Duration,
}

impl Generate {
    fn parse(uri: &Uri) -> Result<Self, String> {
        const KNOWN: [&str; 3] = ["estimate", "actual", "ms"];
        let estimate = parameter(uri, &KNOWN, "estimate", Policy::MAX_LIMIT)?.unwrap_or(100);
        let actual = parameter(uri, &KNOWN, "actual", Policy::MAX_LIMIT)?.unwrap_or(estimate);
        let ms = parameter(uri, &KNOWN, "ms", LONGEST_MS)?.unwrap_or(0);
        match estimate {
            0 => Err("estimate=0 would hold nothing; write 1 or more\n".to_owned()),
            _ => Ok(Self { estimate, actual, duration: Duration::from_millis(ms) }),
        }
    }
}

/// Stands in for a model that reports its usage.
async fn generate(bill: Bill, uri: Uri) -> Response {
    match Generate::parse(&uri) {
        Ok(Generate { actual, duration, .. }) => {
            sleep(duration).await;
            bill.set_cost(actual);
            ([(CONTENT_TYPE, "application/json")], json!({ "charged": actual }).to_string()).into_response()
        }
        Err(mistake) => (StatusCode::BAD_REQUEST, mistake).into_response(),
    }
}

/// Streams for as long as the client has asked for, or until the client goes away.
async fn upload(uri: Uri) -> Response {
    match parameter(&uri, &["ms"], "ms", LONGEST_MS) {
        Ok(ms) => {
            let now = Instant::now();
            let end = now + Duration::from_millis(ms.unwrap_or(1_000));
            Body::new(Dots { end, next: Box::pin(sleep_until(now)) }).into_response()
        }
        Err(mistake) => (StatusCode::BAD_REQUEST, mistake).into_response(),
    }
}

/// A body with a dot every 20 ms, until it ends.
struct Dots {
    end: Instant,
    next: Pin<Box<Sleep>>,
}

impl HttpBody for Dots {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        ready!(self.next.as_mut().poll(cx));
        let now = Instant::now();
        if now >= self.end {
            return Poll::Ready(None);
        }
        let next = self.end.min(now + Duration::from_millis(20));
        self.next.as_mut().reset(next);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b".")))))
    }
}

/// A number up to `most` in the query of `uri`; `None` if it is absent. All parameters must be `known`.
fn parameter(uri: &Uri, known: &[&str], name: &str, most: u64) -> Result<Option<u64>, String> {
    let mut found = None;
    for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if !known.contains(&key) {
            return Err(format!("{key:?} is not a parameter; write {}\n", known.join("=N or ") + "=N"));
        }
        if key == name {
            let number = value.parse().ok().filter(|number| *number <= most);
            found = Some(number.ok_or_else(|| format!("{name}={value} is not a whole number from 0 to {most}\n"))?);
        }
    }
    Ok(found)
}
