//! A page that shows the windows slide: files in this program, and events as they happen.

mod comparison;
mod feed;
mod record;

use axum::{
    Router,
    body::{Body, Bytes},
    http::{
        StatusCode,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY, RETRY_AFTER,
            X_CONTENT_TYPE_OPTIONS,
        },
        request::Parts,
    },
    response::{IntoResponse, Response},
    routing::get,
};
use futures_util::stream;
use serde_json::json;
use tollgate::{KeyExtractor, Limiter, PeerIp, observe::Fingerprint};

pub(crate) use self::feed::Feed;
use crate::limits::Quota;

/// The page loads nothing from elsewhere, and no other page may frame it.
const SECURITY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                        img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";

/// Path, type and content of each file.
const FILES: [(&str, &str, &str); 8] = [
    ("/", "text/html; charset=utf-8", include_str!("index.html")),
    ("/page/page.css", CSS, include_str!("page.css")),
    ("/page/page.js", JAVASCRIPT, include_str!("page.js")),
    ("/page/charts.js", JAVASCRIPT, include_str!("charts.js")),
    ("/page/model.js", JAVASCRIPT, include_str!("model.js")),
    ("/page/requests.js", JAVASCRIPT, include_str!("requests.js")),
    ("/page/uplot.css", CSS, include_str!("uplot.css")),
    ("/page/uplot.js", JAVASCRIPT, include_str!("uplot.js")),
];

/// The routes of the page. They have no limit, so that looking at a limit spends nothing.
pub(crate) fn routes(limiter: Limiter, quota: Quota, feed: Feed, store: &'static str) -> Router {
    let files = FILES.into_iter().fold(Router::new(), |router, (path, kind, content)| {
        router.route(path, get(move || async move { (fields(kind), content) }))
    });
    let events = move |parts: Parts| async move { events(&parts, &limiter, &quota, &feed, store) };
    files.route("/page/events", get(events))
}

/// Events from now on, until the viewer goes away, is too slow or the server ends.
fn events(parts: &Parts, limiter: &Limiter, quota: &Quota, feed: &Feed, store: &str) -> Response {
    let Ok(Some(visitor)) = PeerIp::new().extract(parts) else { return StatusCode::BAD_REQUEST.into_response() };
    let Some(frames) = feed.join() else {
        let text = "As many viewers as allowed watch already. Close one, or try again later.\n";
        return (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "5")], text).into_response();
    };
    let first = json!({
        "now": record::now(),
        "visitor": Fingerprint::of(&visitor).to_string(),
        "store": store,
        "breaker": if limiter.is_breaker_open() { "open" } else { "closed" },
        "policy": quota.policy().map(|policy| record::policy(&policy)),
        "events": [],
    });
    let first = Bytes::from(format!("data: {first}\n\n"));
    let body = stream::unfold((Some(first), frames), |(first, mut frames)| async {
        let frame = match first {
            Some(first) => Some(first),
            None => frames.recv().await,
        };
        frame.map(|frame| (Ok::<_, std::convert::Infallible>(frame), (None, frames)))
    });
    (fields("text/event-stream"), Body::from_stream(body)).into_response()
}

fn fields(kind: &'static str) -> [(HeaderName, &'static str); 5] {
    [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, SECURITY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ]
}
