//! A page that shows the windows slide: files in this program, and events as they happen.

mod comparison;
mod feed;
mod frame;
mod history;
mod json;
mod record;
mod stricter;
mod viewer;

use std::{convert::Infallible, future::ready, sync::Arc};

use axum::body::{Body, Bytes};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY, RETRY_AFTER,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{StatusCode, request::Parts};
use axum::response::{IntoResponse, Response};
use axum::{Router, extract::Path, routing::get};
use futures_util::{StreamExt, stream};
use tokio::{sync::Semaphore, task::spawn_blocking};
use tollgate::{ConfigError, KeyExtractor, Limiter, MemoryStore, PeerIp, Policy, RateLimitLayer, observe::Fingerprint};

pub(crate) use self::feed::Feed;
use crate::limits::Quota;
use crate::page::{history::is_replayable, json::Fields};

/// The page loads nothing from elsewhere, and no other page may frame it.
const SECURITY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                        img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";

/// Path, type and content of each file.
const FILES: [(&str, &str, &str); 10] = [
    ("/", "text/html; charset=utf-8", include_str!("index.html")),
    ("/page/page.css", CSS, include_str!("page.css")),
    ("/page/page.js", JAVASCRIPT, include_str!("page.js")),
    ("/page/charts.js", JAVASCRIPT, include_str!("charts.js")),
    ("/page/model.js", JAVASCRIPT, include_str!("model.js")),
    ("/page/requests.js", JAVASCRIPT, include_str!("requests.js")),
    ("/page/stricter.js", JAVASCRIPT, include_str!("stricter.js")),
    ("/page/table.js", JAVASCRIPT, include_str!("table.js")),
    ("/page/uplot.css", CSS, include_str!("uplot.css")),
    ("/page/uplot.js", JAVASCRIPT, include_str!("uplot.js")),
];

/// The routes of the page. Looking at a limit spends nothing of it.
pub(crate) fn routes(limiter: Limiter, quota: Quota, feed: Feed, store: &'static str) -> Result<Router, ConfigError> {
    let files = FILES.into_iter().fold(Router::new(), |router, (path, kind, content)| {
        router.route(path, get(move || async move { (fields(kind), content) }))
    });
    let (watched, named) = (feed.clone(), quota.clone());
    let events = move |parts: Parts| async move { events(&parts, &limiter, &quota, &watched, store) };
    // Each answer takes some milliseconds of a processor: one at a time, and some a second for each address.
    let turn = Arc::new(Semaphore::new(1));
    let questions = Policy::per_second("questions", 5)?;
    // That all of them come from one address is no mistake.
    let questioned = Limiter::new(MemoryStore::new()).without_notices();
    let stricter = get(move |path: Path<_>, parts: Parts| stricter(path, parts, named, feed, turn))
        .layer(RateLimitLayer::new(questioned, questions, PeerIp::new()).validated()?);
    let files = files.route("/page/stricter/{policy}/{limit}/{client}", stricter);
    Ok(files.route("/page/events", get(events)))
}

/// Events from now on, until the viewer goes away, is too slow or the server ends.
fn events(parts: &Parts, limiter: &Limiter, quota: &Quota, feed: &Feed, store: &str) -> Response {
    let Some(visitor) = visitor(parts) else { return StatusCode::BAD_REQUEST.into_response() };
    let frames = match feed.join(visitor) {
        Ok(frames) => frames,
        Err(text) => return (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "5")], text).into_response(),
    };
    let mut first = b"data: ".to_vec();
    let mut object = Fields::begin(&mut first);
    object.value("now", record::now());
    object.word("visitor", visitor);
    object.word("store", store);
    object.word("breaker", if limiter.is_breaker_open() { "open" } else { "closed" });
    if let Some(policy) = quota.policy() {
        object.object("policy", |object| record::write_policy(object, &policy));
    }
    object.objects("events", [(); 0], |_, ()| {});
    object.end();
    first.extend_from_slice(b"\n\n");
    let first = stream::once(ready(Bytes::from(first)));
    let body = first.chain(frames).map(Ok::<_, Infallible>);
    (fields("text/event-stream"), Body::from_stream(body)).into_response()
}

/// What a stricter limit would have refused in the last hour, of all clients, of the visitor and of one client.
async fn stricter(
    Path((name, limit, client)): Path<(String, u64, String)>,
    parts: Parts,
    quota: Quota,
    feed: Feed,
    turn: Arc<Semaphore>,
) -> Response {
    let Some(visitor) = visitor(&parts) else { return StatusCode::BAD_REQUEST.into_response() };
    let Ok(client) = client.parse::<Fingerprint>() else {
        return (StatusCode::BAD_REQUEST, "The last part of the path is no client.\n").into_response();
    };
    let turn = turn.acquire_owned().await;
    let answer = spawn_blocking(move || {
        // It goes on although the client goes away, and so it keeps its turn.
        let _turn = turn;
        let judged = feed.judged_by(&name);
        let in_force = quota.policy().filter(|policy| policy.name() == name).or_else(|| judged.policy.clone());
        let Some(policy) = in_force.filter(is_replayable) else {
            return Err((StatusCode::NOT_FOUND, format!("No policy {name:?} with a window has judged a request.\n")));
        };
        let shadow = stricter::shadow_of(&policy, limit).map_err(|text| (StatusCode::BAD_REQUEST, text))?;
        Ok(stricter::replay(&judged, shadow, visitor, client).to_string())
    });
    match answer.await {
        Ok(Ok(answer)) => (fields("application/json"), answer).into_response(),
        Ok(Err(refusal)) => refusal.into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn visitor(parts: &Parts) -> Option<Fingerprint> {
    let key = PeerIp::new().extract(parts).ok().flatten();
    key.map(|key| Fingerprint::of(&key))
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
