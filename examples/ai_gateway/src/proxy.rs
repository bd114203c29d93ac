//! The way of a request to the upstream, and of the answer back.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderValue, Method, Request, StatusCode, header::CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::{Extension, extract::State};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tollgate::middleware::Bill;

use crate::{chat::Chat, relay};

/// The largest answer that is not streamed, in bytes.
const LARGEST: usize = 16 << 20;

/// In the extensions of a response that is a failure, although the model has written.
#[derive(Clone)]
pub(crate) struct BrokenOff;

/// The client of the upstream.
#[derive(Clone)]
pub(crate) struct Proxy {
    client: Client<HttpConnector, Body>,
    target: Arc<str>,
}

impl Proxy {
    pub(crate) fn new(upstream: &str) -> Self {
        let target = format!("{}/v1/chat/completions", upstream.trim_end_matches('/')).into();
        Self { client: Client::builder(TokioExecutor::new()).build_http(), target }
    }
}

/// `POST /v1/chat/completions`. Answers with what the upstream answers, and writes on the bill what it costs.
///
/// Until something is on the bill, the request costs its estimate: so it is also for a client that goes away while the
/// model writes an answer that is not streamed.
pub(crate) async fn complete(
    State(Proxy { client, target }): State<Proxy>,
    Extension(chat): Extension<Chat>,
    bill: Bill,
) -> Response {
    let request = Request::builder().method(Method::POST).uri(&*target).header(CONTENT_TYPE, "application/json");
    let Ok(request) = request.body(Body::from(chat.body.to_string())) else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    let Ok(response) = client.request(request).await else {
        return (StatusCode::BAD_GATEWAY, "the upstream does not answer").into_response();
    };
    let (parts, body) = response.into_parts();
    let (status, body) = (parts.status, Body::new(body));
    let content_type = parts.headers.get(CONTENT_TYPE).cloned();
    let body = match status {
        StatusCode::OK if is_events(content_type.as_ref()) => relay::stream(body, &chat, bill),
        StatusCode::OK => match to_bytes(body, LARGEST).await {
            Ok(bytes) => {
                let answer: Option<Value> = serde_json::from_slice(&bytes).ok();
                if let Some(total) = answer.and_then(|answer| answer["usage"]["total_tokens"].as_u64()) {
                    bill.set_cost(total);
                }
                Body::from(bytes)
            }
            Err(_) => {
                let message = "the upstream has ended its answer early";
                return (StatusCode::BAD_GATEWAY, Extension(BrokenOff), message).into_response();
            }
        },
        // A failure, which costs nothing.
        _ => body,
    };
    match content_type {
        Some(content_type) => (status, [(CONTENT_TYPE, content_type)], body).into_response(),
        None => (status, body).into_response(),
    }
}

/// Whether an answer is a stream. An upstream may answer otherwise than it was asked to.
fn is_events(content_type: Option<&HeaderValue>) -> bool {
    let media_type = content_type.and_then(|value| value.as_bytes().split(|byte| *byte == b';').next());
    media_type.is_some_and(|media_type| media_type.trim_ascii().eq_ignore_ascii_case(b"text/event-stream"))
}
