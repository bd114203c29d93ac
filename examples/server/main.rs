//! A server with limited routes: `cargo run --release --example server`, then `curl -i localhost:3000/watch`.

mod observability;
mod options;
mod prometheus;

use std::{net::SocketAddr, process::ExitCode};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, request::Parts},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::json;
use tokio::{net::TcpListener, signal};
use tollgate::{KeyExtractor, Limiter, MemoryStore, PeerIp, Policy, RateLimitLayer, RedisStore, Route};

use crate::options::Options;

type Failure = Box<dyn std::error::Error>;

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
    let limiter = match &options.redis {
        Some(url) => Limiter::new(RedisStore::builder().deadline(options.deadline).connect(url)?),
        None => Limiter::new(MemoryStore::new()),
    };
    let (limiter, metrics) = observability::observe(limiter)?;
    // The server starts without Redis too: the failure policy of each route applies until Redis answers.
    if let Err(error) = limiter.ready().await {
        eprintln!("limits are not enforced yet: {error}");
    }
    let per_client = Policy::new("per-client", options.limit, options.window)?.with_algorithm(options.algorithm);
    let login = Policy::per_minute("login", 5)?.with_count_rejected(true);

    let limit = RateLimitLayer::new(limiter.clone(), per_client.clone(), PeerIp::default())
        .with_headers(options.headers)
        .route("/search", Route::cost(10).fail_closed())?
        .route("POST /login", Route::policy(login).fail_closed())?
        .route("/healthz", Route::exempt())?
        .route("/quota", Route::exempt())?
        .route("/metrics", Route::exempt())?;
    let app = Router::new()
        .route("/watch", get(|| async { "watching\n" }))
        .route("/search", get(|| async { "found\n" }))
        .route("/login", post(|| async { "welcome\n" }))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/quota", get(quota))
        .with_state((limiter, per_client))
        .merge(metrics)
        .layer(limit);

    let listener = TcpListener::bind(&options.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", options.listen))?;
    options.print_commands_to_try(listener.local_addr()?);
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).with_graceful_shutdown(shutdown_signal()).await?;
    Ok(())
}

/// Reports how much of the quota the caller has left, without a charge.
async fn quota(State((limiter, policy)): State<(Limiter, Policy)>, parts: Parts) -> Response {
    let Ok(Some(key)) = PeerIp::default().extract(&parts) else { return StatusCode::BAD_REQUEST.into_response() };
    match limiter.peek(key, &policy).await {
        Ok(decision) => {
            let state = &decision.policies()[0];
            let used = policy.capacity() - state.available;
            Json(json!({
                "limit": policy.capacity(),
                "used": used,
                "available": state.available,
                "reset": state.reset.as_millis().div_ceil(1_000),
            }))
            .into_response()
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
