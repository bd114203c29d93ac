//! What a request asks of the model, and what it may cost.

use axum::{
    body::{Body, to_bytes},
    extract::Request,
    http::StatusCode,
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

/// The largest body of a request, in bytes.
const LARGEST: usize = 1 << 20;
/// How much the model may write if the request does not say it.
const DEFAULT_MAX_TOKENS: u64 = 256;

/// A request that was read before the limits, because its cost depends on its body.
#[derive(Clone)]
pub(crate) struct Chat {
    /// The body for the upstream.
    pub(crate) body: Value,
    /// An estimate of the tokens of the messages.
    pub(crate) prompt_tokens: u64,
    /// The most tokens that the model may write.
    max_tokens: u64,
    pub(crate) is_stream: bool,
    /// Whether the client has asked for the usage at the end of a stream.
    pub(crate) wants_usage: bool,
}

impl Chat {
    /// The tokens that are held while the model writes. The settlement charges what it has reported, also if it is
    /// more.
    pub(crate) fn estimate(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.max_tokens)
    }

    fn new(mut body: Value) -> Result<Self, &'static str> {
        let messages = body["messages"].as_array().ok_or("messages is not an array")?;
        let contents = messages.iter().map(|message| message["content"].as_str().ok_or("a content is not a string"));
        let prompt_tokens = contents.map(|content| content.map(tokens_of)).sum::<Result<u64, _>>()?;
        let max_tokens = match &body["max_tokens"] {
            Value::Null => DEFAULT_MAX_TOKENS,
            number => number.as_u64().filter(|tokens| *tokens > 0).ok_or("max_tokens is not a number from 1")?,
        };
        let is_stream = body["stream"].as_bool().unwrap_or(false);
        let wants_usage = body["stream_options"]["include_usage"].as_bool().unwrap_or(false);
        // The upstream keeps to the estimate, and tells the usage also at the end of a stream.
        body["max_tokens"] = max_tokens.into();
        if is_stream {
            body["stream_options"] = json!({ "include_usage": true });
        }
        Ok(Self { body, prompt_tokens, max_tokens, is_stream, wants_usage })
    }
}

/// About as many tokens as an English text has. A gateway counts with the tokenizer of its model: the closer the
/// estimate, the less is held for nothing, and the less a budget is passed.
pub(crate) fn tokens_of(text: &str) -> u64 {
    (text.len() as u64).div_ceil(4)
}

/// Reads the body, and puts a [`Chat`] into the extensions.
pub(crate) async fn read(request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, LARGEST).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    match serde_json::from_slice(&body).map_err(|_| "the body is not JSON").and_then(Chat::new) {
        Ok(chat) => parts.extensions.insert(chat),
        Err(mistake) => return (StatusCode::BAD_REQUEST, mistake).into_response(),
    };
    next.run(Request::from_parts(parts, Body::empty())).await
}
