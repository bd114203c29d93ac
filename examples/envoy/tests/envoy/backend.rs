//! The service behind Envoy: it answers after the time and with the fields that a request asks for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, http::HeaderMap, response::IntoResponse};
use tokio::net::TcpListener;

/// A running backend.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    /// The units that all requests have spent.
    pub(crate) spent: Arc<AtomicU64>,
}

impl Backend {
    pub(crate) async fn start() -> Self {
        let spent = Arc::<AtomicU64>::default();
        let counted = Arc::clone(&spent);
        let app = Router::new().fallback(move |headers: HeaderMap| answer(headers, Arc::clone(&counted)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, spent }
    }
}

async fn answer(headers: HeaderMap, spent: Arc<AtomicU64>) -> impl IntoResponse {
    let number = |name| headers.get(name).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    tokio::time::sleep(Duration::from_millis(number("x-takes").unwrap_or(0))).await;
    let units = number("x-spends").unwrap_or(1);
    spent.fetch_add(units, Ordering::Relaxed);
    ([("x-spent", units.to_string())], "ok")
}
