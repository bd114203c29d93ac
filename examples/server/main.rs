//! A server with limited routes: `cargo run -p examples --example server`, then
//! `curl -i localhost:3000/watch`.

mod holds;
mod limits;
mod observability;
mod options;
mod page;
mod prometheus;

use std::{fs, net::SocketAddr, process::ExitCode, time::Duration};

use axum::http::{StatusCode, header::CONTENT_TYPE, request::Parts};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, extract::State, serve::ListenerExt};
use serde_json::json;
use tokio::{net::TcpListener, signal, sync::oneshot, time::sleep};
use tollgate::{KeyExtractor, Limiter, MemoryStore, PeerIp, RedisStore, observe::Fingerprint};

use crate::limits::{Limits, Quota};
use crate::{options::Options, page::Feed};

type Failure = Box<dyn std::error::Error>;

/// How long requests may take to end after the signal to stop.
const DRAIN: Duration = Duration::from_secs(10);

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

async fn run() -> Result<(), Failure> {
    let Some(options) = Options::parse(std::env::args().skip(1))? else {
        print!("{}", options::USAGE);
        return Ok(());
    };
    let mut redis = RedisStore::builder().deadline(options.deadline);
    if let Some(file) = &options.secret_file {
        let secret = fs::read_to_string(file).map_err(|error| format!("cannot read {file}: {error}"))?;
        let secret = secret.strip_suffix('\n').unwrap_or(&secret);
        redis = redis.key_secret(secret);
        // With the same secret, log lines lead to the counts in Redis.
        Fingerprint::set_secret(secret)?;
    }
    let limiter = match &options.redis {
        Some(url) => Limiter::new(redis.open(url)?),
        None => Limiter::new(MemoryStore::new()),
    };
    let (limiter, for_operators) = observability::observe(limiter, &options)?;
    let feed = Feed::default();
    let limiter = if options.page { limiter.with_observer(feed.clone()) } else { limiter };
    let limits = match &options.config {
        Some(file) => Limits::watch(file, limiter.clone())?,
        None => Limits::of(&options, limiter.clone())?,
    };
    let holds = holds::routes(&limiter, &options)?;
    // The server starts without Redis too: the failure policy of each route applies until Redis answers.
    if let Err(error) = limiter.ready().await {
        let error = error.to_string();
        eprintln!("limits are not enforced yet: {}", error.trim_end_matches('.'));
    }
    let at_the_end = limiter.clone();
    let page = if options.page {
        let store = if options.redis.is_some() { "Redis" } else { "memory" };
        page::routes(limiter.clone(), limits.quota.clone(), feed.clone(), store)?
    } else {
        Router::new()
    };
    let app = Router::new()
        .route("/watch", get(|| async { "watching\n" }))
        .route("/search", get(|| async { "found\n" }))
        .route("/login", post(|| async { "welcome\n" }))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/quota", get(quota))
        .with_state((limiter, limits.quota))
        .merge(for_operators);
    let app = if options.limited { app.layer(limits.layer) } else { app };
    let app = app.merge(holds).merge(page);

    let listener = TcpListener::bind(&options.listen).await.map_err(|error| {
        format!("cannot listen on {}: {error}; choose another address with --listen", options.listen)
    })?;
    options.print_commands_to_try(listener.local_addr()?);
    // Otherwise a part of a response may wait for the client's acknowledgement of the part before: 40 ms over HTTP/2.
    let listener = listener.tap_io(|connection| drop(connection.set_nodelay(true)));
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    let (ending, ended) = oneshot::channel();
    let shutdown = async move {
        shutdown_signal().await;
        feed.close();
        let _ = ending.send(());
    };
    let drained = async {
        drop(ended.await);
        sleep(DRAIN).await;
    };
    tokio::select! {
        result = axum::serve(listener, service).with_graceful_shutdown(shutdown).into_future() => result?,
        // A client that does not read its response must not keep the server.
        () = drained => {}
    }
    // What the last requests have held is given back before the process ends.
    at_the_end.close().await;
    Ok(())
}

/// Reports how much of the quota the caller has left, without a charge.
async fn quota(State((limiter, quota)): State<(Limiter, Quota)>, parts: Parts) -> Response {
    let Ok(Some(key)) = PeerIp::new().extract(&parts) else { return StatusCode::BAD_REQUEST.into_response() };
    let Some(policy) = quota.policy() else { return StatusCode::NOT_FOUND.into_response() };
    match limiter.peek(key, &policy).await {
        Ok(decision) => {
            let state = &decision.policies()[0];
            let used = policy.capacity() - state.available;
            let quota = json!({
                "limit": policy.capacity(),
                "used": used,
                "available": state.available,
                "reset": state.reset.as_millis().div_ceil(1_000),
            });
            ([(CONTENT_TYPE, "application/json")], quota.to_string()).into_response()
        }
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// Completes on Ctrl-C, or on SIGTERM from a supervisor.
async fn shutdown_signal() {
    let interrupt = async {
        // Without a handler for Ctrl-C, SIGTERM still stops the server.
        if signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    let terminate = async {
        match signal::unix::signal(signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => drop(signal.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminate = std::future::pending::<()>();
    tokio::select! {
        () = interrupt => {}
        () = terminate => {}
    }
}
