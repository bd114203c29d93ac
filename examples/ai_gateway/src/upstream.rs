//! A scripted upstream, so that the example needs no network: it writes as much as it may, a token each few
//! milliseconds.
//!
//! The model decides about failures: `broken` answers with 500, and `cut` ends its connection after five tokens.

use std::{io, time::Duration};

use axum::body::{Body, Bytes, to_bytes};
use axum::http::{StatusCode, header::CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::post};
use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::sleep};

/// The time for one token.
const PACE: Duration = Duration::from_millis(5);
/// The number of tokens that the model `cut` writes.
const CUT_AFTER: u64 = 5;
/// What the tokenizer of this model adds to each message.
const TOKENS_OF_ROLE: u64 = 4;

/// Starts the upstream on a free port. Returns its URL.
pub(crate) async fn start() -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let app = Router::new().route("/v1/chat/completions", post(complete));
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(url)
}

async fn complete(body: Body) -> Response {
    let Ok(body) = to_bytes(body, usize::MAX).await else { return StatusCode::BAD_REQUEST.into_response() };
    let Ok(request) = serde_json::from_slice::<Value>(&body) else { return StatusCode::BAD_REQUEST.into_response() };
    let model = request["model"].as_str().unwrap_or_default().to_owned();
    if model == "broken" {
        let body = json!({ "error": { "message": "the model is broken", "type": "server_error" } });
        return (StatusCode::INTERNAL_SERVER_ERROR, [(CONTENT_TYPE, "application/json")], body.to_string())
            .into_response();
    }
    let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let words = |message: &Value| message["content"].as_str().unwrap_or_default().split_whitespace().count() as u64;
    let prompt_tokens: u64 = messages.iter().map(|message| words(message) + TOKENS_OF_ROLE).sum();
    let completion_tokens = request["max_tokens"].as_u64().unwrap_or(16);
    let usage = json!({
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    });
    if request["stream"].as_bool().unwrap_or(false) {
        return streamed(model, completion_tokens, usage);
    }
    sleep(PACE * u32::try_from(completion_tokens).unwrap_or(u32::MAX)).await;
    let message = json!({ "role": "assistant", "content": "word ".repeat(completion_tokens as usize) });
    let choices = json!([{ "index": 0, "message": message, "finish_reason": "length" }]);
    let object = "chat.completion";
    let answer =
        json!({ "id": "1", "object": object, "created": 0, "model": model, "choices": choices, "usage": usage });
    ([(CONTENT_TYPE, "application/json")], answer.to_string()).into_response()
}

/// One event for each token, one with the usage, and the end.
fn streamed(model: String, completion_tokens: u64, usage: Value) -> Response {
    let is_cut = model == "cut";
    let written = if is_cut { completion_tokens.min(CUT_AFTER) } else { completion_tokens };
    let event = |choices: Value, usage: Value| {
        let object = "chat.completion.chunk";
        let chunk =
            json!({ "id": "1", "object": object, "created": 0, "model": model, "choices": choices, "usage": usage });
        Bytes::from(format!("data: {chunk}\n\n"))
    };
    let token = event(json!([{ "index": 0, "delta": { "content": "word" }, "finish_reason": null }]), Value::Null);
    let last = match is_cut {
        true => vec![Err(io::Error::other("cut"))],
        false => vec![Ok(event(json!([]), usage)), Ok(Bytes::from("data: [DONE]\n\n"))],
    };
    let tokens = stream::repeat(token).take(written as usize).map(Ok);
    let paced = tokens.chain(stream::iter(last)).then(async |event| {
        sleep(PACE).await;
        event
    });
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(paced)).into_response()
}
