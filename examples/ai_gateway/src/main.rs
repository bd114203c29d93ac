//! A proxy in front of an API in the style of OpenAI: a key spends from its own limits, from those of its team and from
//! the budget of its organisation, in one hold.
//!
//! Run it with `cargo run --release -p tollgate-ai-gateway`. The upstream is a part of the program, unless `--upstream`
//! names another. `docs/model-gateway.md` shows what to try.

mod account;
mod chat;
mod events;
mod limits;
mod options;
mod proxy;
mod relay;
mod upstream;
mod usage;

use std::{error::Error, process::ExitCode};

use axum::routing::{get, post};
use axum::{Router, middleware::from_fn, serve::ListenerExt};
use tokio::{net::TcpListener, signal};
use tollgate::{Limiter, MemoryStore, RedisStore};

use self::{limits::Limits, options::Options, proxy::Proxy};

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let options = Options::read(std::env::args().skip(1))?;
    let limiter = match &options.redis {
        Some(url) => Limiter::new(RedisStore::builder().deadline(options.deadline).open(url)?),
        None => Limiter::new(MemoryStore::new()),
    };
    let limits = Limits::new(&options)?;
    let upstream = match &options.upstream {
        Some(url) => url.clone(),
        None => upstream::start().await?,
    };
    // The layer that is added last is the outermost one, so a request passes them from the bottom up.
    let chat = Router::new()
        .route("/v1/chat/completions", post(proxy::complete))
        .with_state(Proxy::new(&upstream))
        .layer(limits.layer(limiter.clone(), &options)?)
        .layer(from_fn(chat::read));
    let usage = Router::new().route("/usage", get(usage::show)).with_state((limiter.clone(), limits));
    let app = chat.merge(usage).layer(from_fn(account::authenticate));

    let listener = TcpListener::bind(&options.listen).await?;
    println!("Listening on http://{}", listener.local_addr()?);
    // Otherwise, a piece of a stream may wait 40 ms for the acknowledgement of the one before.
    let listener = listener.tap_io(|connection| drop(connection.set_nodelay(true)));
    let stop = async { drop(signal::ctrl_c().await) };
    axum::serve(listener, app).with_graceful_shutdown(stop).await?;
    // What the last requests have held is settled before the process ends.
    limiter.close().await;
    Ok(())
}
