//! A gateway in front of a language model: accounts are limited by requests, tokens in, tokens out, and streams at
//! once.
//!
//! Run it with `cargo run --release -p examples --example model_gateway`. `docs/model-gateway.md` explains it and shows
//! what to try.

use std::{convert::Infallible, env, error::Error, time::Duration};

use axum::{
    Extension, Router,
    body::{Body, to_bytes},
    extract::Request,
    http::{StatusCode, header::AUTHORIZATION, request, response},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response, Sse, sse::Event},
    routing::post,
};
use futures_util::stream::{self, Stream, StreamExt};
use serde_json::Value;
use tokio::{net::TcpListener, signal, time::sleep};
use tollgate::{
    ConfigError, ExtensionKey, Key, Limiter, MemoryStore, Policy,
    RateLimitLayer, RedisStore,
    middleware::{Bill, Settlement},
    policy::HoldSettings,
};

/// The largest body of a request, in bytes.
const LARGEST: usize = 64 << 10;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = match env::var("REDIS_URL") {
        Ok(url) => Limiter::new(RedisStore::open(&url)?),
        Err(_) => Limiter::new(MemoryStore::new()),
    };
    // The layer that is added last is the outermost one, so a request passes
    // them from the bottom up.
    let app = Router::new()
        .route("/v1/complete", post(complete))
        .layer(limits(limiter.clone())?)
        .layer(from_fn(read_prompt))
        .layer(from_fn(authenticate));

    let address =
        env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(&address).await?;
    println!("Listening on http://{}", listener.local_addr()?);
    let stop = async { drop(signal::ctrl_c().await) };
    axum::serve(listener, app).with_graceful_shutdown(stop).await?;
    // What the last requests have held is settled before the process ends.
    limiter.close().await;
    Ok(())
}

/// The four limits of an account. A request passes all of them, or takes
/// nothing from any.
fn limits(
    limiter: Limiter,
) -> Result<RateLimitLayer<ExtensionKey<Account>>, ConfigError> {
    // If a process is killed, what it holds is charged after this time.
    // Requests that live are renewed.
    let holds = HoldSettings::new().with_ttl(Duration::from_secs(300));
    let policies = [
        Policy::per_minute("requests", 10)?,
        Policy::per_minute("input-tokens", 1_000)?.with_unit("tokens"),
        Policy::per_minute("output-tokens", 500)?
            .with_unit("tokens")
            .with_holds(holds),
        Policy::concurrent("streams", 2)?,
    ];
    RateLimitLayer::new(limiter, policies, ExtensionKey::<Account>::new())
        .with_cost_of_fn(
            "input-tokens",
            of_prompt(|prompt| prompt.input_tokens),
        )
        .with_cost_of_fn("output-tokens", of_prompt(|prompt| prompt.max_tokens))
        .fail_closed()
        .with_settlement(|response: &response::Parts| match response.status {
            // Charges what is on the bill when the stream has ended.
            StatusCode::OK => Settlement::AtEnd,
            _ => Settlement::Nothing, // the model has written nothing
        })
        .validated()
}

/// The account that pays. Authentication inserts it.
#[derive(Clone)]
struct Account(u64);

impl From<&Account> for Key {
    fn from(account: &Account) -> Key {
        Key::from(account.0)
    }
}

/// Finds the account of an API key. A gateway reads its accounts from a
/// database.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let account = match request
        .headers()
        .get(AUTHORIZATION)
        .map(|value| value.as_bytes())
    {
        Some(b"Bearer key-of-ann") => Account(1),
        Some(b"Bearer key-of-bob") => Account(2),
        _ => return StatusCode::UNAUTHORIZED.into_response(),
    };
    request.extensions_mut().insert(account);
    next.run(request).await
}

/// What a request asks of the model.
#[derive(Clone)]
struct Prompt {
    text: String,
    input_tokens: u64,
    /// The most tokens that the model may write.
    max_tokens: u64,
}

/// Reads the body before the limits, because the costs depend on it.
async fn read_prompt(request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, LARGEST).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let Ok(json) = serde_json::from_slice::<Value>(&body) else {
        return bad_request("the body is not JSON");
    };
    let Some(text) = json["prompt"].as_str() else {
        return bad_request("prompt is not a string");
    };
    let Some(max_tokens @ 1..) = json["max_tokens"].as_u64() else {
        return bad_request("max_tokens is not a number from 1");
    };
    // A gateway counts with the tokenizer of its model.
    let input_tokens = text.split_whitespace().count() as u64;
    parts.extensions.insert(Prompt {
        text: text.to_owned(),
        input_tokens,
        max_tokens,
    });
    next.run(Request::from_parts(parts, Body::empty())).await
}

fn bad_request(mistake: &'static str) -> Response {
    (StatusCode::BAD_REQUEST, mistake).into_response()
}

/// A cost that the prompt decides. Without a prompt, the cost is above every
/// limit, which is refused with 400.
fn of_prompt(cost: fn(&Prompt) -> u64) -> impl Fn(&request::Parts) -> u64 {
    move |request| request.extensions.get().map_or(u64::MAX, cost)
}

/// Streams the answer of the model, and writes on the bill what it costs.
async fn complete(
    Extension(prompt): Extension<Prompt>,
    bill: Bill,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    // The bill is empty so far, and an empty bill is charged what was held: the
    // estimate. With this line, a client that hangs up before the first token
    // pays nothing.
    bill.set_cost(0);
    Sse::new(model(prompt).map(move |output| {
        Ok(match output {
            Output::Token(token) => {
                // A client that hangs up pays for the tokens so far.
                bill.add(1);
                Event::default().data(token)
            }
            Output::Usage { output_tokens } => {
                bill.set_cost(output_tokens); // the model's own figure
                Event::default().event("usage").data(output_tokens.to_string())
            }
        })
    }))
}

/// What a model streams.
enum Output {
    Token(String),
    /// The last event, with the tokens that the model has written.
    Usage {
        output_tokens: u64,
    },
}

/// Stands in for a model: it repeats the prompt, one word every 100 ms, until
/// it has written as much as it may.
fn model(prompt: Prompt) -> impl Stream<Item = Output> {
    let words: Vec<String> = prompt
        .text
        .split_whitespace()
        .take(prompt.max_tokens as usize)
        .map(str::to_owned)
        .collect();
    let output_tokens = words.len() as u64;
    let tokens = stream::iter(words).then(async |word| {
        sleep(Duration::from_millis(100)).await;
        Output::Token(word)
    });
    tokens.chain(stream::iter([Output::Usage { output_tokens }]))
}
