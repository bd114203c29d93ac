//! What a request asks of the model, and what it may cost.

use axum::body::{Body, to_bytes};
use axum::response::{IntoResponse, Response};
use axum::{extract::Request, http::StatusCode, middleware::Next};
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
    /// An estimate of the tokens that the model reads.
    pub(crate) prompt_tokens: u64,
    /// The most tokens that the model may write.
    max_tokens: u64,
    /// Whether the client has asked for the usage at the end of a stream.
    pub(crate) wants_usage: bool,
}

impl Chat {
    /// The tokens that are held while the model writes. The settlement charges what it has reported, also if it is
    /// more.
    pub(crate) fn estimate(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.max_tokens)
    }

    fn new(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut body: Value = serde_json::from_slice(bytes).map_err(|_| "the body is not JSON")?;
        let messages = body["messages"].as_array().ok_or("messages is not an array")?;
        // The bytes of an image, or of a link to one, do not tell its tokens.
        if messages.iter().any(|message| !message["content"].is_string()) {
            return Err("a content is not a string");
        }
        // The model writes `max_tokens` for each of several answers.
        if !body["n"].is_null() && body["n"] != 1 {
            return Err("n is not 1");
        }
        // The second name replaces the first in newer versions of the API. The larger counts.
        let given = [
            most(&body["max_tokens"]).ok_or("max_tokens is not a number from 1")?,
            most(&body["max_completion_tokens"]).ok_or("max_completion_tokens is not a number from 1")?,
        ];
        let max_tokens = match given[0].max(given[1]) {
            0 => DEFAULT_MAX_TOKENS,
            given => given,
        };
        // The upstream keeps to the estimate, also one that knows only the first name.
        if body["max_tokens"].is_null() {
            body["max_tokens"] = max_tokens.into();
        }
        let wants_usage = body["stream_options"]["include_usage"].as_bool().unwrap_or(false);
        // The upstream tells the usage also at the end of a stream.
        if body["stream"].as_bool().unwrap_or(false) {
            body["stream_options"] = json!({ "include_usage": true });
        }
        // The model reads more than the contents, such as roles and descriptions of tools.
        Ok(Self { body, prompt_tokens: tokens_of(bytes.len()), max_tokens, wants_usage })
    }
}

/// The number of tokens that a field allows, 0 if it is not given.
fn most(field: &Value) -> Option<u64> {
    match field {
        Value::Null => Some(0),
        number => number.as_u64().filter(|tokens| *tokens > 0),
    }
}

/// About the number of tokens of an English text of this number of bytes. A gateway counts with the tokenizer of its
/// model: the closer the estimate, the less is held for nothing, and the less a budget is passed.
pub(crate) fn tokens_of(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(4)
}

/// Reads the body, and puts a [`Chat`] into the extensions.
pub(crate) async fn read(request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, LARGEST).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    match Chat::new(&body) {
        Ok(chat) => parts.extensions.insert(chat),
        Err(mistake) => return (StatusCode::BAD_REQUEST, mistake).into_response(),
    };
    next.run(Request::from_parts(parts, Body::empty())).await
}
